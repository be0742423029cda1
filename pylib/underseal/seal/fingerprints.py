"""The fingerprint that finds an open duplicate or a resubmission and tells nobody anything (H1.7)."""

from __future__ import annotations

from typing import Final

from underseal.errors import SealError
from underseal.seal import ciphers
from underseal.seal.keys import Key

_DOMAIN: Final = b"underseal-fingerprint-v1"


def fingerprint(
    key: Key,
    requester: str,
    type: str,  # noqa: A002 - the word of the tables
    version: int,
    canonical: str,
) -> bytes:
    """Return HMAC-SHA-256 over requester, type, version and canonical parameters, each with its length before
    it.

    Parameters:
        key: a key for ``fingerprint``; a table reader without it can confirm no guess.
        requester: principal who asks.
        type: operation type.
        version: its version, from 1.
        canonical: canonical text of the parameters.

    Returns:
        32 bytes.

    Raises:
        SealError: ``unsupported`` for a key with another purpose; ``malformed`` for a version below 1 or a
            text that UTF-8 cannot hold.
    """
    if key.purpose != "fingerprint":
        raise SealError(
            "unsupported", f"a fingerprint needs a fingerprint key, not a {key.purpose} key", key.id
        )
    message = _message(requester, type, version, canonical)
    if message is None:
        raise SealError(
            "malformed", "a fingerprint needs texts without lone surrogates and a version from 1", key.id
        )
    return ciphers.hmac_sha256(key.secret, message)


def _message(requester: str, operation_type: str, version: int, canonical: str) -> bytes | None:
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        return None
    try:
        parts = [
            _DOMAIN,
            requester.encode(),
            operation_type.encode(),
            str(version).encode(),
            canonical.encode(),
        ]
    except UnicodeEncodeError:
        return None
    return b"".join(len(part).to_bytes(8, "big") + part for part in parts)
