"""Makes tests/vectors/envelopes.json, by the code under test: what executions seal, in every format and both ciphers.

``WRITE_VECTORS=1 pytest tests/seal/test_envelope_vectors.py`` writes it anew. tests/vectors/verify.mjs proves the file
without this code.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from tests.seal.seal_vectors import flipped, refused, sealed, with_spare_bits
from underseal.seal import COMMITTING, FIELD, MESSAGE, PLAIN, SNAPSHOT, Key
from underseal.seal.capability import marker, opens
from underseal.seal.fields import Sealed, message_key, seal_fields, seal_message
from underseal.seal.lineage import Lineage
from underseal.seal.paths import dotted, parse_pointer
from underseal.seal.sensitive import SensitiveMap
from underseal.testing.entropy import FixedEntropy, deterministic

PATH = Path(__file__).parents[1] / "vectors" / "envelopes.json"

KEY = Key("subject-303132333435363738393a3b3c3d3e3f", "subject", bytes(range(96, 128)))
SECOND = Key("subject-404142434445464748494a4b4c4d4e4f", "subject", bytes(range(128, 160)))
SUBJECT = "user:Zoë|7"
CHAIN = "01j9chain"
AWKWARD = 'a"b\\c\u0001\t\n\u007f\u2028e\u0301\U0001f600'
EVENTS = SensitiveMap(
    {
        "STEP_COMPLETED": ["output.card", "/output/items/1", "output.n\\.b", "/output/a~1b~0c"],
        "STEP_ATTEMPT_FAILED": "error",
        "EXECUTION_STARTED": "input",
        "EXECUTION_COMPLETED": "output",
        "INBOX_MESSAGE": "payload",
        "PAYMENT_TAKEN": "card",
    },
    keys={"PAYMENT_TAKEN": ["payment", "/part"]},
)


def _with_draws(name: str, count: int) -> FixedEntropy:
    def drawn(what: str, number: int, size: int) -> bytes:
        return hashlib.sha256(f"{what} {number} of {name}".encode()).digest()[:size]

    return FixedEntropy(
        [drawn(what, number, size) for number in range(count) for what, size in (("salt", 32), ("iv", 12))]
    )


def _event(
    name: str, kind: str, data: dict[str, Any], count: int, execution_id: str = CHAIN, seq: int = 7
) -> dict[str, Any]:
    with deterministic(_with_draws(name, count)):
        made = seal_fields(kind, data, EVENTS, KEY, subject=SUBJECT, execution_id=execution_id)
    return {
        "name": name,
        "type": kind,
        "key_members": ["/" + "/".join(path) for path in EVENTS.key_of(kind)],
        "subject": SUBJECT,
        "execution_id": execution_id,
        "forked_from": [],
        "seq": seq,
        "opened": data,
        "pointers": list(made.pointers),
        "marker": made.marker,
        "data": made.data,
    }


def _message(name: str, payload: Any) -> tuple[Sealed[Any], str]:
    with deterministic(_with_draws(name, 1)):
        made = seal_message(
            payload,
            EVENTS,
            KEY,
            subject=SUBJECT,
            execution_id=f"{CHAIN}~pay.2",
            sender="ann",
            message_id="m-1",
        )
    return made, message_key("ann", "m-1")


def _seals() -> dict[str, Any]:
    place = [SUBJECT, f"{CHAIN}~2", "STEP_COMPLETED", "[3]", "/output"]
    hard = [AWKWARD, f"{CHAIN}~pay-3r2", "PAYMENT_TAKEN", f'["{AWKWARD[-1]}",2]', "/a~1b~0c/0/"]
    inbox = [SUBJECT, f"{CHAIN}~pay", "5a" * 32, "/payload/0/secret"]
    text = '{"n":1.50,"big":123456789012345678901234567890,"s":"Zoë","none":null}'
    return {
        "field": sealed("field", KEY, FIELD, place, place[1], text, COMMITTING),
        "hard": sealed("field in a place that JSON escapes", KEY, FIELD, hard, hard[1], '""', COMMITTING),
        "null": sealed("null", SECOND, FIELD, place, place[1], "null", COMMITTING),
        "message": sealed("message", KEY, MESSAGE, inbox, inbox[1], text, COMMITTING),
        "whole": sealed("whole message", KEY, MESSAGE, [*inbox[:3], "/payload"], inbox[1], "[]", COMMITTING),
        "state": sealed("state", KEY, SNAPSHOT, [CHAIN, "41"], CHAIN, text, COMMITTING),
        "plain field": sealed("field in the record's cipher", KEY, FIELD, place, place[1], text, PLAIN),
        "plain message": sealed("message in the record's cipher", KEY, MESSAGE, inbox, inbox[1], text, PLAIN),
        "plain state": sealed(
            "state in the record's cipher", KEY, SNAPSHOT, [CHAIN, "41"], CHAIN, text, PLAIN
        ),
    }


def _elsewhere(vector: Any, what: str, element: int, other: str) -> list[Any]:
    """A seal in another place, as it is and with its origin made to fit."""
    place = [*vector["place"]]
    place[element] = other
    relabelled = {"org": place[1] if len(place) > 2 else place[0]}
    return [
        refused(f"{vector['name']}: another {what}", "does-not-open", vector, {}, place=place),
        refused(
            f"{vector['name']}: another {what}, relabelled", "does-not-open", vector, relabelled, place=place
        ),
    ]


def _refusals(seals: dict[str, Any]) -> list[Any]:
    made, message, state = seals["field"], seals["message"], seals["state"]
    plain, plain_state = seals["plain field"], seals["plain state"]
    envelope = made["envelope"]
    return [
        *_elsewhere(made, "subject", 0, "user:8"),
        *_elsewhere(made, "execution", 1, f"{CHAIN}~3"),
        *_elsewhere(made, "type", 2, "STEP_FAILED"),
        *_elsewhere(made, "event", 3, "[4]"),
        *_elsewhere(made, "path", 4, "/output/n"),
        *_elsewhere(message, "subject", 0, "user:8"),
        *_elsewhere(message, "inbox", 1, CHAIN),
        *_elsewhere(message, "message", 2, "5b" * 32),
        *_elsewhere(message, "path", 3, "/payload"),
        *_elsewhere(state, "execution", 0, "01j9other"),
        *_elsewhere(state, "number", 1, "42"),
        *_elsewhere(plain_state, "number", 1, "42"),
        refused("a message as a field", "does-not-open", made, message["envelope"]),
        refused(
            "a message as a field, relabelled", "does-not-open", made, {**message["envelope"], "fmt": FIELD}
        ),
        refused("a field as a state", "does-not-open", state, envelope),
        refused("the other key's", "does-not-open", made, {"kid": SECOND.id}),
        refused("a key that is not here", "key-unavailable", made, {"kid": "subject-" + "f" * 32}),
        refused("changed ciphertext", "does-not-open", made, flipped(envelope, "ct")),
        refused("changed commitment", "does-not-open", made, flipped(envelope, "kc")),
        refused("changed salt", "does-not-open", made, flipped(envelope, "salt")),
        refused("changed IV", "does-not-open", made, flipped(envelope, "iv")),
        refused("left-over bits in base64", "malformed", made, {"kc": with_spare_bits(envelope["kc"])}),
        refused("a member too many", "malformed", made, {"aad": FIELD}),
        refused("a path that is no pointer", "does-not-open", made, {}, place=[*made["place"][:4], "output"]),
        refused("unbound, where that is not asked for", "unsupported", plain, {}),
        refused("unbound, with a member of the other", "malformed", plain, {"aad": FIELD}, open_legacy=True),
        refused(
            "unbound, changed", "does-not-open", plain, flipped(plain["envelope"], "ct"), open_legacy=True
        ),
        refused("unbound, another format", "does-not-open", plain, {"fmt": MESSAGE}, open_legacy=True),
        refused("unmarked state", "malformed", plain_state, {"aad": None}),
        refused("state marked as another", "does-not-open", plain_state, {"aad": FIELD}),
    ]


def _events() -> list[dict[str, Any]]:
    output = {"card": {"no": "4111"}, "items": [1, [None]], "n.b": "", "a/b~c": 1.5, "left": "readable"}
    step = _event("four places of a step", "STEP_COMPLETED", {"op": 3, "name": "quote", "output": output}, 4)
    tried = _event("a try", "STEP_ATTEMPT_FAILED", {"op": 3, "attempt": 2, "error": {"message": "no"}}, 1)
    started = _event("an input", "EXECUTION_STARTED", {"flow": "f", "input": None}, 1, seq=0)
    own = _event("an application's own", "PAYMENT_TAKEN", {"payment": AWKWARD, "part": -1, "card": "4111"}, 1)
    ended = _event(
        "a child's end", "EXECUTION_COMPLETED", {"output": [1]}, 1, execution_id=f"{CHAIN}~pay-3.2"
    )
    copied = step | {"name": "a copied prefix", "execution_id": "01j9fork", "forked_from": [[CHAIN, 7]]}
    made, key = _message("a message", {"yes": True})
    consumed = {"wait": "4:receive:t", "arm": 0, "topic": "t", "inbox_seq": 1, "key": key, "sender": "ann"}
    message = {
        "name": "a message",
        "type": "MESSAGE_CONSUMED",
        "key_members": [],
        "subject": SUBJECT,
        "execution_id": f"{CHAIN}~pay.3",
        "forked_from": [],
        "seq": 9,
        "opened": consumed | {"payload": {"yes": True}},
        "pointers": ["/payload"],
        "marker": marker(COMMITTING, ["MESSAGE_CONSUMED.payload"]),
        "data": consumed | {"payload": made.data},
    }
    told = {"wait": "4:child:pay", "arm": 0, "topic": "$child/pay-3", "sender": f"{CHAIN}~pay-3.2"}
    child = message | {
        "name": "the end of a child, told to who asked",
        "execution_id": CHAIN,
        "opened": told | {"payload": {"status": "completed", "output": [1]}},
        "pointers": ["/payload/output"],
        "marker": marker(COMMITTING, ["MESSAGE_CONSUMED.payload.output"]),
        "data": told | {"payload": {"status": "completed", "output": ended["data"]["output"]}},
    }
    return [step, tried, started, own, ended, copied, message, child]


def _moved(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    step, tried, _, own, _, copied, message, child = events
    cards = {
        **step["data"]["output"],
        "card": step["data"]["output"]["n.b"],
        "n.b": step["data"]["output"]["card"],
    }
    moves: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
        ("two fields of a step, swapped", step, {"data": {**step["data"], "output": cards}}),
        ("another step", step, {"data": {**step["data"], "op": 4}}),
        ("another try", tried, {"data": {**tried["data"], "attempt": 3}}),
        ("another part", own, {"data": {**own["data"], "part": 1}}),
        ("another execution", step, {"execution_id": f"{CHAIN}~2"}),
        ("another subject", step, {"subject": "user:8"}),
        ("beyond the copied prefix", copied, {"seq": 8}),
        ("another message", message, {"data": {**message["data"], "key": "00" * 32}}),
        ("another inbox", message, {"execution_id": CHAIN}),
        ("another child", child, {"data": {**child["data"], "topic": "$child/ship-4"}}),
        ("a child of another chain", child, {"execution_id": "01j9other"}),
    ]
    return [
        {member: value for member, value in (event | change | {"name": name}).items() if member != "opened"}
        for name, event, change in moves
    ]


def _paths() -> list[dict[str, str]]:
    pointers = ["/output", "/a/0/b", "/a.b/c~1d/e~0f/g\\h", "/", "//", "/*", "/~01"]
    paths = [(one, parse_pointer(one)) for one in pointers]
    return [{"pointer": one, "dotted": dotted(path)} for one, path in paths if path is not None]


def _markers() -> list[dict[str, Any]]:
    one = {"v": 1, "cipher": "c", "covers": ["A.x", "B.y"]}
    can = {"ciphers": ["c", "d"], "covers": ["A.x", "B.y", "C.z"]}
    cases: list[tuple[Any, Any]] = [
        (None, None), (one, can), (one, None), (one, can | {"covers": ["A.x"]}), (one, can | {"ciphers": ["d"]}),
        (one | {"v": 2}, can), (one | {"v": "1"}, can), (one | {"w": 1}, can), (one | {"covers": []}, can),
        (one | {"covers": "A.x"}, can), (one | {"covers": [["A.x"]]}, can | {"covers": [["A.x"]]}), ([], can),
        (one, []), (one | {"cipher": None}, can | {"ciphers": [None]}), (one, {}),
    ]  # fmt: skip
    return [{"marker": m, "capability": c, "opens": opens(m, c)} for m, c in cases]


def build() -> dict[str, Any]:
    """Return what the file holds."""
    seals, events = _seals(), _events()
    return {
        "about": "What executions seal; docs/formats.md says how it is made. Bytes are hexadecimal.",
        "keys": [{"id": k.id, "purpose": k.purpose, "secret": k.secret.hex()} for k in (KEY, SECOND)],
        "seals": list(seals.values()),
        "refused": _refusals(seals),
        "events": events,
        "moved": _moved(events),
        "paths": _paths(),
        "markers": _markers(),
    }


def lineage_of(event: dict[str, Any]) -> Lineage:
    """The lineage that a vector's event belongs to."""
    return Lineage(event["execution_id"], tuple((one[0], one[1]) for one in event["forked_from"]))


def text() -> str:
    """Return the file's text."""
    return json.dumps(build(), indent=1, ensure_ascii=True) + "\n"
