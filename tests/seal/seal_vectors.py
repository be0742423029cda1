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


def _sealed(
    name: str, purpose: str, fmt: str, place: list[str], origin: str, plaintext: str, cipher: str
) -> Any:
    salt = hashlib.sha256(f"salt of {name}".encode()).digest()
    iv = hashlib.sha256(f"iv of {name}".encode()).digest()[:12]
    key = KEYS[purpose]
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


def _refused(name: str, reason: str, vector: Any, changes: dict[str, Any], **slot: Any) -> Any:
    envelope = {
        member: value for member, value in (vector["envelope"] | changes).items() if value is not None
    }
    purpose = vector["key"].partition("-")[0]
    expected = {"purpose": purpose, "fmt": vector["fmt"], "place": vector["place"]} | slot
    return {"name": name, "reason": reason, **expected, "envelope": envelope}


def _flipped(envelope: Envelope, member: str) -> dict[str, str]:
    data = encoding.decode(str(envelope[member]))
    assert data is not None
    return {member: encoding.encode(data[:-1] + bytes([data[-1] ^ 1]))}


def _with_spare_bits(text: str) -> str:
    return text[:-1] + chr(ord(text[-1]) + 1)


def build() -> dict[str, Any]:
    """Return what the file holds."""
    payload = _sealed(
        "payload",
        "payload",
        HELD_PAYLOAD,
        [OPERATION],
        OPERATION,
        '{"amount":1000000,"to":"Zoë"}',
        COMMITTING,
    )
    empty = _sealed("empty payload", "payload", HELD_PAYLOAD, [OPERATION], OPERATION, "", COMMITTING)
    decision = _sealed(
        "decision",
        "decision",
        HELD_DECISION,
        [OPERATION, "ann"],
        OPERATION,
        '{"decision":"approve"}',
        COMMITTING,
    )
    awkward = _sealed(
        "approver with characters that JSON escapes, some it does not, and none in NFC",
        "decision",
        HELD_DECISION,
        [OPERATION, 'a"b\\c/d\u0001\t\n\u007f\u2028e\u0301\U0001f600'],
        OPERATION,
        "null",
        COMMITTING,
    )
    snapshot = _sealed(
        "snapshot", "payload", SNAPSHOT, ["01J-execution", "42"], "01J-origin", "[1.5,null]", COMMITTING
    )
    record = _sealed(
        "snapshot in the record's cipher",
        "payload",
        SNAPSHOT,
        ["01J-execution", "42"],
        "01J-origin",
        "[1.5,null]",
        PLAIN,
    )
    sealed = payload["envelope"]
    vote = decision["envelope"]
    composed = unicodedata.normalize("NFC", awkward["place"][1])
    refused = [
        _refused("no envelope", "malformed", payload, {"__loomEnc": None}),
        _refused("unknown cipher", "unsupported", payload, {"__loomEnc": "underseal/aes-256-gcm"}),
        _refused("unknown version", "unsupported", payload, {"v": 2}),
        _refused(
            "plain cipher in a held format",
            "unsupported",
            record,
            {"fmt": HELD_PAYLOAD},
            fmt=HELD_PAYLOAD,
            place=[OPERATION],
        ),
        _refused("unknown member", "malformed", payload, {"alg": "none"}),
        _refused("missing member", "malformed", payload, {"kc": None}),
        _refused("padded base64", "malformed", payload, {"salt": f"{sealed['salt']}="}),
        _refused("left-over bits in base64", "malformed", payload, {"kc": _with_spare_bits(sealed["kc"])}),
        _refused("short IV", "malformed", payload, {"iv": sealed["iv"][:-4]}),
        _refused("changed ciphertext", "does-not-open", payload, _flipped(sealed, "ct")),
        _refused("changed commitment", "does-not-open", payload, _flipped(sealed, "kc")),
        _refused("changed salt", "does-not-open", payload, _flipped(sealed, "salt")),
        _refused("changed IV", "does-not-open", payload, _flipped(sealed, "iv")),
        _refused("another operation", "does-not-open", payload, {}, place=[OTHER]),
        _refused("another operation, relabelled", "does-not-open", payload, {"org": OTHER}, place=[OTHER]),
        _refused("another approver", "does-not-open", decision, {}, place=[OPERATION, "bob"]),
        _refused(
            "approver in another normal form", "does-not-open", awkward, {}, place=[OPERATION, composed]
        ),
        _refused("decision over payload", "does-not-open", payload, vote),
        _refused(
            "decision over payload, relabelled", "does-not-open", payload, {**vote, "fmt": HELD_PAYLOAD}
        ),
        _refused("key that is not here", "key-unavailable", payload, {"kid": "payload-" + "f" * 32}),
        _refused("another snapshot", "does-not-open", snapshot, {}, place=["01J-execution", "43"]),
        _refused("another origin", "does-not-open", snapshot, {"org": "01J-execution"}),
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
        "refused": refused,
        "fingerprints": fingerprints,
    }


def text() -> str:
    """Return the file's text."""
    return json.dumps(build(), indent=1, ensure_ascii=True) + "\n"
