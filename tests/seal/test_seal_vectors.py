"""tests/vectors/seals.json: what it says is what this code does, and what an independent reading of the
formats gives.

The independent half uses the standard library's HMAC and hashes, and builds every text by hand.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import Any

import pytest
import rfc8785
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests.seal import seal_vectors
from underseal.seal import Key, MemoryKeyRing, SealError, fingerprint, open_seal

FILE = seal_vectors.PATH.read_text(encoding="ascii")
VECTORS: dict[str, Any] = json.loads(FILE)
KEYS = {key["id"]: key for key in VECTORS["keys"]}
RING = MemoryKeyRing(Key(k["id"], k["purpose"], bytes.fromhex(k["secret"])) for k in VECTORS["keys"])

# Frozen: another language may have been proved against exactly these bytes.
DIGEST = "57e2aaf5cbb8414b49f3d08e4039e3ac2a06623d0545451788caebc8caeb0a11"


def named(part: str) -> Any:
    return [pytest.param(vector, id=vector["name"]) for vector in VECTORS[part]]


@pytest.mark.clause("M19")
def test_the_file_is_frozen() -> None:
    assert hashlib.sha256(FILE.encode()).hexdigest() == DIGEST


@pytest.mark.clause("H2.3a", "M17", "M19")
def test_this_code_makes_the_file() -> None:
    assert seal_vectors.build() == VECTORS


def hkdf_sha512(secret: bytes, salt: bytes, info: bytes) -> bytes:
    """RFC 5869 for one block of output, 64 bytes, by hand."""
    pseudorandom = hmac.new(salt, secret, hashlib.sha512).digest()
    return hmac.new(pseudorandom, info + b"\x01", hashlib.sha512).digest()


def unpadded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


@pytest.mark.clause("H2.3a", "M19")
@pytest.mark.parametrize("vector", named("seals"))
def test_an_independent_reading_of_the_format_makes_the_same_envelope(vector: dict[str, Any]) -> None:
    key, iv, plaintext = KEYS[vector["key"]], bytes.fromhex(vector["iv"]), vector["plaintext"].encode()
    header = {"v": 1, "kid": key["id"], "fmt": vector["fmt"], "org": vector["origin"]}
    if "salt" in vector:
        header["__loomEnc"] = "underseal/aes-256-gcm-hkdf"
        covered = rfc8785.dumps(header | {"purpose": key["purpose"], "place": vector["place"]})
        info = hashlib.sha256(covered).digest()
        salt = bytes.fromhex(vector["salt"])
        okm = hkdf_sha512(bytes.fromhex(key["secret"]), salt, info)
        assert (vector["info"], vector["aes_key"] + vector["commitment"]) == (info.hex(), okm.hex())
        more, aes_key = {"salt": unpadded(salt), "kc": unpadded(okm[32:])}, okm[:32]
    else:
        header["__loomEnc"] = "loom/aes-256-gcm"
        covered = ("loom-snap-v1|" + "|".join(vector["place"])).encode()
        more, aes_key = {"aad": "loom-snap-v1"}, bytes.fromhex(key["secret"])
    assert vector["associated_data"].encode() == covered
    ciphertext = AESGCM(aes_key).encrypt(iv, plaintext, covered)
    assert vector["envelope"] == header | more | {"iv": unpadded(iv), "ct": unpadded(ciphertext)}


@pytest.mark.clause("H2.3a")
@pytest.mark.parametrize("vector", named("seals"))
def test_every_published_seal_opens(vector: dict[str, Any]) -> None:
    purpose = KEYS[vector["key"]]["purpose"]
    opened = open_seal(vector["envelope"], RING, purpose=purpose, fmt=vector["fmt"], place=vector["place"])
    assert opened == vector["plaintext"].encode()


@pytest.mark.clause("H2.3b", "H2.3c", "H2.3d", "M19")
@pytest.mark.parametrize("vector", named("refused"))
def test_every_published_refusal_is_refused(vector: dict[str, Any]) -> None:
    with pytest.raises(SealError) as caught:
        open_seal(
            vector["envelope"], RING, purpose=vector["purpose"], fmt=vector["fmt"], place=vector["place"]
        )
    assert caught.value.reason == vector["reason"]


@pytest.mark.clause("H1.7d")
@pytest.mark.parametrize("vector", VECTORS["fingerprints"], ids=lambda v: v["requester"])
def test_an_independent_reading_makes_the_same_fingerprint(vector: dict[str, Any]) -> None:
    named_parts = [vector["requester"], vector["type"], str(vector["version"]), vector["canonical"]]
    parts = [part.encode() for part in ("underseal-fingerprint-v1", *named_parts)]
    message = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    secret = bytes.fromhex(KEYS[vector["key"]]["secret"])
    assert hmac.new(secret, message, hashlib.sha256).hexdigest() == vector["fingerprint"]
    key = RING.active("fingerprint")
    made = fingerprint(key, vector["requester"], vector["type"], vector["version"], vector["canonical"])
    assert made.hex() == vector["fingerprint"]
