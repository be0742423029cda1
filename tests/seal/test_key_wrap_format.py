"""key-wrap-v1: a subject's key under a master, bound to subject, key id and epoch; and masters seal nothing else."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

import pytest
import rfc8785
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from underseal.seal import KEY_WRAP, PLAIN, SNAPSHOT, Key, MemoryKeyRing, SealError, open_seal, seal
from underseal.seal.store import KeyPlace, KeyStoreError, RingMaster
from underseal.testing.entropy import FixedEntropy, deterministic

MASTER = Key("master-000102030405060708090a0b0c0d0e0f", "master", bytes(range(32)))
RING = MemoryKeyRing([MASTER])
SUBJECT_KEY = Key("subject-303132333435363738393a3b3c3d3e3f", "subject", bytes(range(64, 96)))
PLACE = KeyPlace("user:7 Zoë", SUBJECT_KEY.id, 3)
VECTOR = Path(__file__).parents[1] / "vectors" / "key_wraps.json"
SALT = hashlib.sha256(b"salt of a wrapped key").digest()
IV = hashlib.sha256(b"iv of a wrapped key").digest()[:12]


def wrapped() -> dict[str, Any]:
    return dict(RingMaster(RING).wrap(SUBJECT_KEY, PLACE))


def build() -> dict[str, Any]:
    with deterministic(FixedEntropy([SALT, IV])):
        envelope = wrapped()
    return {
        "about": "A subject's key wrapped with a fixed salt and IV; docs/formats.md says how. Secrets in hex.",
        "master": {"id": MASTER.id, "purpose": "master", "secret": MASTER.secret.hex()},
        "subject": PLACE.subject,
        "key_id": PLACE.key_id,
        "epoch": PLACE.epoch,
        "secret": SUBJECT_KEY.secret.hex(),
        "envelope": envelope,
    }


@pytest.mark.clause("M17", "M19")
def test_this_code_makes_the_vector_of_wrapped_keys() -> None:
    assert json.loads(VECTOR.read_text(encoding="utf-8")) == build()


@pytest.mark.clause("M19")
def test_an_independent_reading_of_the_format_unwraps_the_key() -> None:
    vector = json.loads(VECTOR.read_text(encoding="utf-8"))
    envelope = vector["envelope"]
    header = {name: envelope[name] for name in ("__loomEnc", "v", "kid", "fmt", "org")}
    place = [vector["subject"], vector["key_id"], str(vector["epoch"])]
    covered = rfc8785.dumps(header | {"purpose": "master", "place": place})
    salt, iv, kc, ct = (
        base64.urlsafe_b64decode(envelope[name] + "==") for name in ("salt", "iv", "kc", "ct")
    )
    pseudorandom = hmac.new(salt, bytes.fromhex(vector["master"]["secret"]), hashlib.sha512).digest()
    okm = hmac.new(pseudorandom, hashlib.sha256(covered).digest() + b"\x01", hashlib.sha512).digest()
    assert (envelope["fmt"], envelope["org"]) == ("key-wrap-v1", vector["key_id"])
    assert okm[32:] == kc
    assert AESGCM(okm[:32]).decrypt(iv, ct, covered).hex() == vector["secret"]


@pytest.mark.clause("M19")
@pytest.mark.parametrize(
    "place",
    [
        KeyPlace("user:8", PLACE.key_id, 3),
        KeyPlace("user:7 Zoë", "subject-" + 32 * "0", 3),
        KeyPlace(PLACE.subject, PLACE.key_id, 4),
    ],
)
def test_a_wrapped_key_opens_in_its_place_alone(place: KeyPlace) -> None:
    master = RingMaster(RING)
    envelope = wrapped()
    assert master.unwrap(envelope, PLACE) == SUBJECT_KEY
    with pytest.raises(KeyStoreError):
        master.unwrap(envelope, place)
    with pytest.raises(KeyStoreError):
        master.unwrap(envelope | {"org": place.key_id}, place)


@pytest.mark.clause("H2.11a")
def test_a_master_seals_nothing_but_keys_and_nothing_but_a_master_wraps_one() -> None:
    with pytest.raises(SealError, match="seals nothing else") as caught:
        seal(b"{}", MASTER, fmt=SNAPSHOT, place=("e", "0"), origin="e")
    assert caught.value.reason == "unsupported"
    elements = PLACE.elements
    with pytest.raises(SealError, match="under a master key"):
        seal(SUBJECT_KEY.secret, SUBJECT_KEY, fmt=KEY_WRAP, place=elements, origin=PLACE.key_id)
    with pytest.raises(SealError, match="no other cipher"):
        seal(SUBJECT_KEY.secret, MASTER, fmt=KEY_WRAP, place=elements, origin=PLACE.key_id, cipher=PLAIN)
    with pytest.raises(SealError, match="under a master key"):
        open_seal(wrapped(), RING, purpose="subject", fmt=KEY_WRAP, place=elements)


@pytest.mark.parametrize("size", [0, 16, 31])
def test_a_wrapped_key_of_another_length_is_none(size: int) -> None:
    envelope = seal(bytes(size), MASTER, fmt=KEY_WRAP, place=PLACE.elements, origin=PLACE.key_id)
    with pytest.raises(KeyStoreError, match=f"expected 32 bytes .* found {size}"):
        RingMaster(RING).unwrap(envelope, PLACE)
    with pytest.raises(SealError, match="at most 32"):
        seal(bytes(33), MASTER, fmt=KEY_WRAP, place=PLACE.elements, origin=PLACE.key_id)


@pytest.mark.clause("M19")
@pytest.mark.parametrize("epoch", ["0", "01", "", "-1", "1.0"])
def test_an_epoch_has_one_text(epoch: str) -> None:
    with pytest.raises(SealError, match="the epoch of its place"):
        seal(bytes(32), MASTER, fmt=KEY_WRAP, place=("s", PLACE.key_id, epoch), origin=PLACE.key_id)
