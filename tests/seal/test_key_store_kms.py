"""Masters in AWS KMS, as moto plays it: bound to the place, asked of our keys alone, silent about keys (X9, X10)."""

from __future__ import annotations

import logging
import pickle
import subprocess
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import botocore.exceptions
import pytest

from tests.seal.key_store_harness import KmsMasters, RingMasters, kms
from underseal.errors import KeyStoreError
from underseal.seal import Key, encoding
from underseal.seal.keys import mint
from underseal.seal.store import FileKeyStore, KeyPlace
from underseal.seal.store.kms import KmsMaster

KEY = mint("subject")
PLACE = KeyPlace("a", KEY.id, 1)


@pytest.fixture
def masters() -> Iterator[KmsMasters]:
    with kms():
        yield KmsMasters()


def refusal(master: KmsMaster, wrapped: Any, place: KeyPlace = PLACE) -> str:
    with pytest.raises(KeyStoreError) as caught:
        master.unwrap(wrapped, place)
    assert caught.value.reason == "key-unavailable"
    assert (caught.value.__context__, caught.value.key_id) == (None, place.key_id)
    return str(caught.value)


@pytest.mark.clause("X9", "M19")
def test_a_key_comes_back_from_kms_in_its_place_alone(masters: KmsMasters) -> None:
    master = KmsMaster(masters.arns[0], client=masters.client)
    wrapped = master.wrap(KEY, PLACE)
    assert master.unwrap(wrapped, PLACE) == KEY
    assert wrapped.keys() == {"kms", "v", "key", "ct"}
    assert master.holder(wrapped) == master.active_id() == masters.arns[0]
    for place in (KeyPlace("b", KEY.id, 1), KeyPlace("a", "subject-0", 1), KeyPlace("a", KEY.id, 2)):
        assert "InvalidCiphertext" in refusal(master, wrapped, place)


@pytest.mark.clause("X10")
def test_what_is_under_a_kms_key_of_others_is_not_even_asked(masters: KmsMasters) -> None:
    ours, other = masters.arns[:2]
    wrapped = KmsMaster(other, client=masters.client).wrap(KEY, PLACE)
    assert f"it is under {other}" in refusal(KmsMaster(ours, client=masters.client), wrapped)
    assert KmsMaster(ours, older=[other], client=masters.client).unwrap(wrapped, PLACE) == KEY
    # Nor is a blob opened by another key than the one it is said to be under.
    refusal(KmsMaster(ours, client=masters.client), dict(wrapped) | {"key": ours})


@pytest.mark.clause("X10")
@pytest.mark.parametrize(
    "changes",
    [{"kms": "other"}, {"v": 2}, {"ct": "="}, {"ct": ""}, {"ct": "AAAA"}, {"ct": 7}, {"key": 7}, {"more": 1}],
)
def test_what_kms_did_not_wrap_is_refused(masters: KmsMasters, changes: dict[str, Any]) -> None:
    master = KmsMaster(masters.arns[0], client=masters.client)
    refusal(master, dict(master.wrap(KEY, PLACE)) | changes)
    refusal(master, {})
    assert master.holder({}) == "unknown"


@pytest.mark.parametrize(
    "arn", ["alias/mine", "arn:aws:kms:eu-central-1:123456789012:alias/mine", "", "x" * 40]
)
def test_a_kms_key_is_named_by_its_arn(arn: str) -> None:
    with pytest.raises(KeyStoreError, match="expected the ARN of a KMS key"):
        KmsMaster(arn)
    with pytest.raises(KeyStoreError, match="expected the ARN of a KMS key"):
        KmsMaster("arn:aws:kms:eu-central-1:123456789012:key/1", older=[arn])


@pytest.mark.clause("X10")
def test_a_kms_key_that_is_disabled_is_no_erasure(masters: KmsMasters) -> None:
    master = KmsMaster(masters.arns[0], client=masters.client)
    wrapped = master.wrap(KEY, PLACE)
    masters.client.disable_key(KeyId=masters.arns[0].rpartition("/")[2])
    with _answers(masters.client, "DisabledException"):
        assert "AWS KMS answered DisabledException" in refusal(master, wrapped)


class _answers:  # noqa: N801 - it reads as what it is
    """Let KMS answer with an error, or not at all."""

    def __init__(self, client: Any, what: str | Exception) -> None:
        self._client = client
        self._error = (
            botocore.exceptions.ClientError({"Error": {"Code": what}}, "Decrypt")
            if isinstance(what, str)
            else what
        )

    def __enter__(self) -> None:
        def fail(**_: object) -> None:
            raise self._error

        self._client.decrypt = self._client.encrypt = fail

    def __exit__(self, *_: object) -> None:
        del self._client.decrypt, self._client.encrypt


@pytest.mark.clause("X10")
@pytest.mark.parametrize(
    "what",
    [
        "ThrottlingException",
        "AccessDeniedException",
        "KMSInvalidStateException",
        botocore.exceptions.EndpointConnectionError(endpoint_url="https://kms.example"),
        botocore.exceptions.NoCredentialsError(),
        botocore.exceptions.ReadTimeoutError(endpoint_url="https://kms.example"),
    ],
    ids=str,
)
def test_whatever_kms_refuses_is_unavailable_and_shows_no_key(
    masters: KmsMasters, what: str | Exception
) -> None:
    master = KmsMaster(masters.arns[0], client=masters.client)
    wrapped = master.wrap(KEY, PLACE)
    with _answers(masters.client, what):
        assert "AWS KMS" in refusal(master, wrapped)
        with pytest.raises(KeyStoreError, match="AWS KMS") as caught:
            master.wrap(KEY, PLACE)
    assert caught.value.__context__ is None
    shown = "".join(traceback.TracebackException.from_exception(caught.value, capture_locals=True).format())
    assert repr(KEY.secret) not in shown


@pytest.mark.clause("X9")
@pytest.mark.parametrize("name", ["botocore", "botocore.endpoint", "botocore.parsers"])
def test_no_key_goes_through_a_client_that_logs_bodies(masters: KmsMasters, name: str) -> None:
    master = KmsMaster(masters.arns[0], client=masters.client)
    wrapped = master.wrap(KEY, PLACE)
    logger, before = logging.getLogger(name), logging.getLogger(name).level
    logger.setLevel(logging.DEBUG)
    try:
        assert "a logger of botocore is at DEBUG" in refusal(master, wrapped)
        with pytest.raises(KeyStoreError, match="is at DEBUG"):
            master.wrap(KEY, PLACE)
    finally:
        logger.setLevel(before)
    assert master.unwrap(wrapped, PLACE) == KEY


def test_a_key_of_another_length_is_none_from_kms_either(masters: KmsMasters) -> None:
    context = {"subject": "a", "key_id": KEY.id, "epoch": "1"}
    master = KmsMaster(masters.arns[0], client=masters.client)
    short = masters.client.encrypt(KeyId=masters.arns[0], Plaintext=b"x" * 31, EncryptionContext=context)
    wrapped = dict(master.wrap(KEY, PLACE)) | {"ct": encoding.encode(short["CiphertextBlob"])}
    assert "expected 32 bytes" in refusal(master, wrapped)


@pytest.mark.clause("X9")
def test_a_cached_key_asks_kms_once_and_a_destroyed_one_is_not_served(
    masters: KmsMasters, tmp_path: Path
) -> None:
    calls: list[str] = []

    class Counting:
        def encrypt(self, **given: Any) -> Any:
            calls.append("encrypt")
            return masters.client.encrypt(**given)

        def decrypt(self, **given: Any) -> Any:
            calls.append("decrypt")
            return masters.client.decrypt(**given)

    master = KmsMaster(masters.arns[0], client=Counting())
    FileKeyStore.create(tmp_path / "keys", master, fences=tmp_path / "fences").mint("a", named=())
    # It is known to open before it is kept, and read once after.
    assert calls == ["encrypt", "decrypt", "decrypt"]
    store = FileKeyStore(tmp_path / "keys", master, fences=tmp_path / "fences")
    calls.clear()
    made = store.current("a")
    assert made is not None
    assert isinstance(store.find(made.key_id, "a"), Key)
    assert calls == ["decrypt"]


def test_a_kms_master_shows_its_arn_and_is_not_pickled(masters: KmsMasters) -> None:
    master = KmsMaster(masters.arns[0])
    assert repr(master) == f"<KmsMaster {masters.arns[0]}>"
    assert master.unwrap(master.wrap(KEY, PLACE), PLACE) == KEY
    for one in (master, RingMasters().now()):
        with pytest.raises(TypeError, match="never pickled"):
            pickle.dumps(one)


def test_nothing_but_the_kms_master_needs_boto3() -> None:
    program = (
        "import sys; sys.modules['boto3'] = None; sys.modules['botocore'] = None\n"
        "import underseal, underseal.cli, underseal.seal.store, underseal.testing.conformance\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
