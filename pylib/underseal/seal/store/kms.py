"""Masters in AWS KMS: every wrap and unwrap is a call there, bound to its place by the encryption context (X9).

docs/seal.md says what that costs and what it cannot do. This file alone needs boto3 (``underseal[aws]``).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, NoReturn, Protocol

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from underseal.errors import KeyStoreError
from underseal.seal import encoding
from underseal.seal.keys import SECRET_BYTES, Key
from underseal.seal.store.model import KeyPlace, Wrapped

VERSION: Final = 1
KMS: Final = "aws-kms"

_ARN: Final = re.compile(r"arn:aws[a-z-]*:kms:([a-z0-9-]+):[0-9]{12}:key/[A-Za-z0-9-]+")
_MEMBERS: Final = frozenset({"kms", "v", "key", "ct"})
_CONFIG: Final = Config(connect_timeout=5, read_timeout=5, retries={"mode": "standard", "max_attempts": 3})
_UNKNOWN: Final = "unknown"


class KmsClient(Protocol):
    """What is used of a boto3 client for KMS."""

    def encrypt(self, *, KeyId: str, Plaintext: bytes, EncryptionContext: Mapping[str, str]) -> Any:  # noqa: N803
        """Wrap."""
        ...

    def decrypt(self, *, KeyId: str, CiphertextBlob: bytes, EncryptionContext: Mapping[str, str]) -> Any:  # noqa: N803
        """Unwrap."""
        ...


class KmsMaster:
    """Wraps keys of subjects under symmetric keys of AWS KMS.

    Parameters:
        key: ARN of the KMS key that wraps. An alias is refused: it can be pointed at another key.
        older: ARNs of those that wrapped before and still open. A key that is in neither is not asked, whatever a
            stored key names.
        client: a boto3 client for KMS; one with short timeouts and few retries, in the key's region, if None.

    Raises:
        KeyStoreError: an ARN is none.
    """

    def __init__(self, key: str, *, older: Iterable[str] = (), client: KmsClient | None = None) -> None:
        self._older = tuple(older)
        for arn in (key, *self._older):
            if not _ARN.fullmatch(arn):
                raise KeyStoreError(
                    f"expected the ARN of a KMS key (arn:aws:kms:<region>:<account>:key/<id>), found {arn!r}"
                )
        self._key = key
        region = key.split(":")[3]
        self._client: KmsClient = (
            boto3.client("kms", region_name=region, config=_CONFIG) if client is None else client
        )

    def active_id(self) -> str:
        """Return the ARN of the KMS key that wraps now."""
        return self._key

    def holder(self, wrapped: Wrapped) -> str:
        """Return the ARN that ``wrapped`` names."""
        return str(wrapped.get("key", _UNKNOWN))

    def wrap(self, key: Key, place: KeyPlace) -> Wrapped:
        """Return what KMS makes of ``key`` in the context of ``place``. Raises ``KeyStoreError`` where KMS does not."""
        answer = self._encrypted(key.secret, place)
        if isinstance(answer, str):
            raise KeyStoreError(f"AWS KMS did not wrap a subject's key: {answer}", place.key_id)
        return {"kms": KMS, "v": VERSION, "key": self._key, "ct": encoding.encode(answer)}

    def unwrap(self, wrapped: Wrapped, place: KeyPlace) -> Key:
        """Return the key that KMS wrapped in the context of ``place``.

        Raises:
            KeyStoreError: KMS is away, refuses, or made it for another place; or the KMS key is not one of ours.
        """
        found = self._unwrapped(wrapped, place)
        if isinstance(found, str):
            raise KeyStoreError(f"a subject's key does not unwrap: {found}", place.key_id)
        return found

    def _encrypted(self, secret: bytes, place: KeyPlace) -> bytes | str:
        if _logs_bodies():
            return _TALKATIVE
        try:
            answer = self._client.encrypt(
                KeyId=self._key, Plaintext=secret, EncryptionContext=_context(place)
            )
        except (BotoCoreError, ClientError) as error:
            return _cause(error)
        blob: bytes = answer["CiphertextBlob"]
        return blob

    def _unwrapped(self, wrapped: Wrapped, place: KeyPlace) -> Key | str:
        arn, blob = wrapped.get("key"), encoding.decode(str(wrapped.get("ct")))
        if wrapped.keys() != _MEMBERS or (wrapped["kms"], wrapped["v"]) != (KMS, VERSION) or not blob:
            return "it is not what AWS KMS wrapped"
        if not isinstance(arn, str) or arn not in (self._key, *self._older):
            return f"it is under {arn}, which is not among the KMS keys of this process"
        if _logs_bodies():
            return _TALKATIVE
        try:
            answer = self._client.decrypt(KeyId=arn, CiphertextBlob=blob, EncryptionContext=_context(place))
        except (BotoCoreError, ClientError) as error:
            return _cause(error)
        secret = answer["Plaintext"]
        if len(secret) != SECRET_BYTES:
            return f"expected {SECRET_BYTES} bytes under {arn}, found {len(secret)}"
        return Key(place.key_id, "subject", secret)

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a master is never pickled or copied: make it again from its ARN")

    def __repr__(self) -> str:
        return f"<KmsMaster {self._key}>"


_TALKATIVE: Final = (
    "a logger of botocore is at DEBUG, where it writes bodies of requests and answers, and keys are in them; run: "
    'logging.getLogger("botocore").setLevel(logging.INFO)'
)


def _logs_bodies() -> bool:
    """Whether keys would be written to a log: botocore logs the bodies of calls at DEBUG."""
    names = [name for name in logging.root.manager.loggerDict if name.startswith("botocore.")]
    return any(logging.getLogger(name).isEnabledFor(logging.DEBUG) for name in ["botocore", *names])


def _context(place: KeyPlace) -> dict[str, str]:
    return {"subject": place.subject, "key_id": place.key_id, "epoch": str(place.epoch)}


def _cause(error: BotoCoreError | ClientError) -> str:
    """Why KMS did not, in words without a key: botocore's own frames hold the whole call."""
    if isinstance(error, ClientError):
        return f"AWS KMS answered {error.response.get('Error', {}).get('Code', 'an error')}"
    return f"AWS KMS cannot be reached ({type(error).__name__})"
