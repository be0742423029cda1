"""Makes tests/vectors/seals.json, by the code under test, with fixed salts and IVs through the testing seam.

The file lets another language prove itself; the tests beside this prove the file, without this code.
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from pathlib import Path
from typing import Any

from underseal.seal import (
    COMMITTING,
    HELD_DECISION,
    HELD_PAYLOAD,
    PLAIN,
    SNAPSHOT,
    Envelope,
    Key,
    associated_data,
    ciphers,
    encoding,
    fingerprint,
    seal,
)
from underseal.seal.envelope import Header
from underseal.testing.entropy import FixedEntropy, deterministic

PATH = Path(__file__).parents[1] / "vectors" / "seals.json"
OPERATION = "0198c5f2-6a4e-7c1d-9b3a-5e2f8d7c6b1a"
OTHER = "0198c5f2-6a4e-7c1d-9b3a-5e2f8d7c6b1b"

KEYS = {
    "payload": Key("payload-000102030405060708090a0b0c0d0e0f", "payload", bytes(range(32))),
    "decision": Key("decision-101112131415161718191a1b1c1d1e1f", "decision", bytes(range(32, 64))),
    "fingerprint": Key("fingerprint-202122232425262728292a2b2c2d2e2f", "fingerprint", bytes(range(64, 96))),
}


def sealed(name: str, key: Key, fmt: str, place: list[str], origin: str, plaintext: str, cipher: str) -> Any:
    """Return a seal with its steps, made with a salt and an IV that follow from its name."""
    salt = hashlib.sha256(f"salt of {name}".encode()).digest()
    iv = hashlib.sha256(f"iv of {name}".encode()).digest()[:12]
    draws = [salt, iv] if cipher == COMMITTING else [iv]
    with deterministic(FixedEntropy(draws)):
        envelope = seal(plaintext.encode(), key, fmt=fmt, place=place, origin=origin, cipher=cipher)
    covered = associated_data(Header(cipher, 1, key.id, fmt, origin), key.purpose, place)
    vector: dict[str, Any] = {
        "name": name,
        "key": key.id,
        "fmt": fmt,
        "place": place,
        "origin": origin,
        "plaintext": plaintext,
        "associated_data": covered.decode(),
        "iv": iv.hex(),
    }
    if cipher == COMMITTING:
        aes_key, commitment = ciphers.derive(key.secret, salt, covered)
        vector |= {
            "salt": salt.hex(),
            "info": hashlib.sha256(covered).hexdigest(),
            "aes_key": aes_key.hex(),
            "commitment": commitment.hex(),
        }
    return vector | {"envelope": envelope}


def refused(name: str, reason: str, vector: Any, changes: dict[str, Any], **slot: Any) -> Any:
    """Return an envelope that must not open in its slot: a vector's with members changed, or left out for None."""
    envelope = {
        member: value for member, value in (vector["envelope"] | changes).items() if value is not None
    }
    purpose = vector["key"].partition("-")[0]
    expected = {"purpose": purpose, "fmt": vector["fmt"], "place": vector["place"]} | slot
    return {"name": name, "reason": reason, **expected, "envelope": envelope}


def flipped(envelope: Envelope, member: str) -> dict[str, str]:
    """Return a member of an envelope with its last bit changed."""
    data = encoding.decode(str(envelope[member]))
    assert data is not None
    return {member: encoding.encode(data[:-1] + bytes([data[-1] ^ 1]))}


def with_spare_bits(text: str) -> str:
    """Return base64url of 32 bytes with a bit set that belongs to no byte."""
    return text[:-1] + chr(ord(text[-1]) + 1)


def build() -> dict[str, Any]:
    """Return what the file holds."""
    payload = sealed(
        "payload",
        KEYS["payload"],
        HELD_PAYLOAD,
        [OPERATION],
        OPERATION,
        '{"amount":1000000,"to":"Zoë"}',
        COMMITTING,
    )
    empty = sealed("empty payload", KEYS["payload"], HELD_PAYLOAD, [OPERATION], OPERATION, "", COMMITTING)
    decision = sealed(
        "decision",
        KEYS["decision"],
        HELD_DECISION,
        [OPERATION, "ann"],
        OPERATION,
        '{"decision":"approve"}',
        COMMITTING,
    )
    awkward = sealed(
        "approver with characters that JSON escapes, some it does not, and none in NFC",
        KEYS["decision"],
        HELD_DECISION,
        [OPERATION, 'a"b\\c/d\u0001\t\n\u007f\u2028e\u0301\U0001f600'],
        OPERATION,
        "null",
        COMMITTING,
    )
    snapshot = sealed(
        "snapshot", KEYS["payload"], SNAPSHOT, ["01J-execution", "42"], "01J-origin", "[1.5,null]", COMMITTING
    )
    record = sealed(
        "snapshot in the record's cipher",
        KEYS["payload"],
        SNAPSHOT,
        ["01J-execution", "42"],
        "01J-origin",
        "[1.5,null]",
        PLAIN,
    )
    envelope = payload["envelope"]
    vote = decision["envelope"]
    composed = unicodedata.normalize("NFC", awkward["place"][1])
    refusals = [
        refused("no envelope", "malformed", payload, {"__loomEnc": None}),
        refused("unknown cipher", "unsupported", payload, {"__loomEnc": "underseal/aes-256-gcm"}),
        refused("unknown version", "unsupported", payload, {"v": 2}),
        refused(
            "plain cipher in a held format",
            "unsupported",
            record,
            {"fmt": HELD_PAYLOAD},
            fmt=HELD_PAYLOAD,
            place=[OPERATION],
        ),
        refused("unknown member", "malformed", payload, {"alg": "none"}),
        refused("missing member", "malformed", payload, {"kc": None}),
        refused("padded base64", "malformed", payload, {"salt": f"{envelope['salt']}="}),
        refused("left-over bits in base64", "malformed", payload, {"kc": with_spare_bits(envelope["kc"])}),
        refused("short IV", "malformed", payload, {"iv": envelope["iv"][:-4]}),
        refused("changed ciphertext", "does-not-open", payload, flipped(envelope, "ct")),
        refused("changed commitment", "does-not-open", payload, flipped(envelope, "kc")),
        refused("changed salt", "does-not-open", payload, flipped(envelope, "salt")),
        refused("changed IV", "does-not-open", payload, flipped(envelope, "iv")),
        refused("another operation", "does-not-open", payload, {}, place=[OTHER]),
        refused("another operation, relabelled", "does-not-open", payload, {"org": OTHER}, place=[OTHER]),
        refused("another approver", "does-not-open", decision, {}, place=[OPERATION, "bob"]),
        refused("approver in another normal form", "does-not-open", awkward, {}, place=[OPERATION, composed]),
        refused("decision over payload", "does-not-open", payload, vote),
        refused("decision over payload, relabelled", "does-not-open", payload, {**vote, "fmt": HELD_PAYLOAD}),
        refused("key that is not here", "key-unavailable", payload, {"kid": "payload-" + "f" * 32}),
        refused("another snapshot", "does-not-open", snapshot, {}, place=["01J-execution", "43"]),
        refused("another origin", "does-not-open", snapshot, {"org": "01J-execution"}),
    ]
    asked = [
        ("ann", "account.close", 1, '{"account":"A-1"}'),
        ("anna", "ccount.close", 1, '{"account":"A-1"}'),
        ("Zoë", "payout.send", 12, "{}"),
    ]
    key = KEYS["fingerprint"]
    fingerprints = [
        {
            "key": key.id,
            "requester": requester,
            "type": kind,
            "version": version,
            "canonical": canonical,
            "fingerprint": fingerprint(key, requester, kind, version, canonical).hex(),
        }
        for requester, kind, version, canonical in asked
    ]
    return {
        "about": "Sealed envelopes and fingerprints; docs/formats.md says how they are made. Bytes are hexadecimal.",
        "keys": [{"id": k.id, "purpose": k.purpose, "secret": k.secret.hex()} for k in KEYS.values()],
        "seals": [payload, empty, decision, awkward, snapshot, record],
        "refused": refusals,
        "fingerprints": fingerprints,
    }


def text() -> str:
    """Return the file's text."""
    return json.dumps(build(), indent=1, ensure_ascii=True) + "\n"
