"""Fields of events and messages: what goes in comes out, only there, whole or not at all."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from underseal.errors import KeyUnavailableError, PayloadShreddedError
from underseal.seal import COMMITTING, FIELD, MESSAGE, PLAIN, Destroyed, Key, KeyRingError, SealError, seal
from underseal.seal.capability import opens
from underseal.seal.fields import (
    Sealed,
    message_key,
    open_fields,
    open_lineage,
    open_message,
    seal_fields,
    seal_lineage,
    seal_message,
)
from underseal.seal.lineage import Lineage
from underseal.seal.paths import dotted, look, parse_pointer, pointer
from underseal.seal.sensitive import SensitiveMap
from underseal.testing import DictConnection

KEY = Key("subject-1", "subject", bytes(range(32)))
OTHER = Key("subject-2", "subject", bytes(range(1, 33)))
SUBJECT = "user:7"
HERE = Lineage("c")
STEPS = SensitiveMap(
    {"STEP_COMPLETED": "output", "MESSAGE_CONSUMED": "payload", "EXECUTION_STARTED": "input"}
)


def lookup(key_id: str) -> Key | None:
    return {KEY.id: KEY, OTHER.id: OTHER}.get(key_id)


def sealed(data: dict[str, Any], kind: str = "STEP_COMPLETED", **more: Any) -> Sealed[dict[str, Any]]:
    given_: dict[str, Any] = {"sensitive": STEPS, "key": KEY, "subject": SUBJECT, "execution_id": "c"} | more
    return seal_fields(kind, data, **given_)


def opened(data: Mapping[str, Any], marker: Any, kind: str = "STEP_COMPLETED", **more: Any) -> Any:
    given_: dict[str, Any] = {
        "sensitive": STEPS, "lookup": lookup, "subject": SUBJECT, "lineage": HERE, "seq": 4
    } | more  # fmt: skip
    return open_fields(kind, data, marker, **given_)


def reason(data: Mapping[str, Any], marker: Any, kind: str = "STEP_COMPLETED", **more: Any) -> str:
    with pytest.raises(SealError) as caught:
        opened(data, marker, kind, **more)
    return caught.value.reason


def step(op: int = 1, output: Any = "secret") -> dict[str, Any]:
    return {"op": op, "name": "quote", "output": output}


names = st.text(st.sampled_from("ab.\\/~0*"), max_size=3) | st.text(max_size=3)
jsons: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**200), 2**200)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(), max_size=5)
    | st.sampled_from(["\ud800", "\0", "", -0.0, 1e300, 5e-324]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=10,
)


def within(value: Any) -> list[tuple[str, ...]]:
    """Every path into a value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [(), *((str(name), *path) for name, one in inner for path in within(one))]


@pytest.mark.clause("M1", "M19")
@given(jsons, st.data())
def test_every_json_value_comes_back_as_it_went_in(output: Any, draw: Any) -> None:
    inside = [("output", *path) for path in within(output)]
    chosen = draw.draw(st.lists(st.sampled_from(inside), max_size=4))
    sensitive = SensitiveMap({"STEP_COMPLETED": [pointer(path) for path in chosen]})
    data = step(output=output)
    before = json.dumps(data)

    made = sealed(data, sensitive=sensitive)

    places = [parse_pointer(one) for one in made.pointers]
    assert all(path is not None and look(made.data, path)["__loomEnc"] == COMMITTING for path in places)
    assert made.covers == tuple(
        sorted(f"STEP_COMPLETED.{dotted(path)}" for path in places if path is not None)
    )
    assert set(made.covers) <= {f"STEP_COMPLETED.{dotted(path)}" for path in chosen}
    assert all(any(path[: len(p)] == p for p in places if p is not None) for path in chosen)
    assert (made.marker is None) is (chosen == [])
    assert opens(made.marker, sensitive.capability())
    stored = json.loads(json.dumps(made.data))
    assert json.dumps(opened(stored, made.marker, sensitive=sensitive)) == before == json.dumps(data)


@pytest.mark.clause("M19")
@given(jsons, st.sampled_from([COMMITTING, PLAIN]))
def test_every_message_comes_back_as_it_went_in(payload: Any, cipher: str) -> None:
    sensitive = SensitiveMap({"INBOX_MESSAGE": "payload"}, open_legacy=cipher == PLAIN)
    made = seal_message(
        payload,
        sensitive,
        KEY,
        subject=SUBJECT,
        execution_id="c~pay.3",
        sender="ann",
        message_id="m",
        cipher=cipher,
    )
    assert made.pointers == ("/payload",)
    assert made.data["fmt"] == MESSAGE
    assert made.data["org"] == "c~pay"
    back = open_message(
        made.data, made.marker, sensitive, lookup, subject=SUBJECT, lineage=Lineage("c~pay.7"), topic="t",
        sender="ann", message_key=message_key("ann", "m"),
    )  # fmt: skip
    assert json.dumps(back) == json.dumps(payload)


@pytest.mark.clause("M1")
def test_only_what_was_really_sealed_is_named() -> None:
    sensitive = SensitiveMap({"STEP_COMPLETED": ["output.a", "output.b", "output.a.x", "/output/0"]})
    made = sealed(step(output={"a": {"x": 1}, "c": 2}), sensitive=sensitive)
    assert made.covers == ("STEP_COMPLETED.output.a",)
    assert made.marker == {"v": 1, "cipher": COMMITTING, "covers": ["STEP_COMPLETED.output.a"]}
    nothing = sealed(step(output={"c": 2}), sensitive=sensitive)
    assert (nothing.data, nothing.pointers, nothing.covers, nothing.marker) == (
        step(output={"c": 2}),
        (),
        (),
        None,
    )


def test_what_is_sealed_is_one_place_and_the_rest_stays_the_object_it_was() -> None:
    data = step(output={"a": 1, "b": [1, {"c": 2}]})
    kept = copy.deepcopy(data)
    made = sealed(data, sensitive=SensitiveMap({"STEP_COMPLETED": "/output/b/1/c"}))
    assert data == kept
    assert made.data["output"]["a"] == 1
    assert made.data["output"]["b"][1]["c"]["fmt"] == FIELD


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("inf"),
        {1, 2},
        b"x",
        object(),
        10**5000,
        {"a": {"__loomEnc": "x"}},
        [{"$shredded": True}],
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.clause("G13")
def test_what_is_no_json_or_holds_an_envelope_is_not_sealed(value: Any) -> None:
    with pytest.raises(SealError) as caught:
        sealed(step(output=value))
    assert caught.value.reason == "malformed"


@pytest.mark.parametrize(
    "value", [{"__loomEnc": 1}, {"$shredded": False}, {"a": "__loomEnc"}, ['"__loomEnc"']]
)
def test_what_only_looks_reserved_is_sealed(value: Any) -> None:
    made = sealed(step(output=value))
    assert opened(made.data, made.marker)["output"] == value


def test_a_value_is_as_deep_and_as_large_as_a_log_allows() -> None:
    deep: Any = 1
    for _ in range(512):
        deep = [deep]
    made = sealed(step(output=deep))
    assert opened(made.data, made.marker)["output"] == deep
    for wrong in ([deep], "x" * 2**20):
        with pytest.raises(SealError) as caught:
            sealed(step(output=wrong))
        assert caught.value.reason == "malformed"


@pytest.mark.parametrize("op", [None, 1.0, True, [1], 2**53, "\ud800"])
def test_an_event_without_its_key_is_not_sealed(op: Any) -> None:
    with pytest.raises(SealError) as caught:
        sealed(step() | {"op": op})
    assert caught.value.reason == "malformed"
    with pytest.raises(SealError, match="tells its events apart") as caught:
        sealed({"output": 1})
    assert caught.value.reason == "malformed"


def test_a_key_of_another_purpose_seals_nothing() -> None:
    with pytest.raises(SealError) as caught:
        sealed(step(), key=Key("k", "payload", bytes(32)))
    assert caught.value.reason == "unsupported"


def test_a_message_is_sealed_as_one() -> None:
    for kind in ("MESSAGE_CONSUMED", "INBOX_MESSAGE"):
        with pytest.raises(ValueError, match="seal_message"):
            sealed({"payload": 1}, kind)


# ---- not here ----


@pytest.mark.clause("M19")
@pytest.mark.parametrize("cipher_change", [{}, {"org": "c"}])
@pytest.mark.parametrize(
    ("kind", "data", "more"),
    [
        ("STEP_COMPLETED", step(2), {}),
        ("STEP_COMPLETED", step(1) | {"op": "1"}, {}),
        ("STEP_COMPLETED", step(1), {"subject": "user:8"}),
        ("STEP_COMPLETED", step(1), {"lineage": Lineage("d")}),
        ("STEP_COMPLETED", step(1), {"lineage": Lineage("c~2")}),
        ("VALUE_RECORDED", {"op": 1, "value": 0}, {}),
        ("EXECUTION_STARTED", {"input": 0}, {"seq": 0}),
        ("MESSAGE_CONSUMED", {"topic": "t", "key": message_key("ann", "m"), "payload": 0}, {}),
    ],
)
def test_a_value_put_elsewhere_does_not_open(
    kind: str, data: dict[str, Any], more: dict[str, Any], cipher_change: dict[str, str]
) -> None:
    sensitive = SensitiveMap(
        {
            "STEP_COMPLETED": "output",
            "VALUE_RECORDED": "value",
            "EXECUTION_STARTED": "input",
            "MESSAGE_CONSUMED": "payload",
        }
    )
    member = {"STEP_COMPLETED": "output", "VALUE_RECORDED": "value", "EXECUTION_STARTED": "input"}.get(
        kind, "payload"
    )
    lineage = more.get("lineage", HERE)
    relabelled = cipher_change and {
        "org": lineage.execution_id,
        "fmt": MESSAGE if member == "payload" else FIELD,
    }
    envelope = sealed(step()).data["output"] | relabelled
    marker = {"v": 1, "cipher": COMMITTING, "covers": [f"{kind}.{member}"]}
    moved = data | {member: envelope}
    assert reason(moved, marker, kind, sensitive=sensitive, **more) == "does-not-open"


@pytest.mark.clause("M19")
def test_two_fields_of_one_event_are_not_swapped() -> None:
    sensitive = SensitiveMap({"STEP_COMPLETED": ["output.a", "output.b", "output.0"]})
    made = sealed(step(output={"a": 1, "b": 2}), sensitive=sensitive)
    swapped = {**made.data, "output": {"a": made.data["output"]["b"], "b": made.data["output"]["a"]}}
    assert reason(swapped, made.marker, sensitive=sensitive) == "does-not-open"


@pytest.mark.clause("M19")
@pytest.mark.parametrize(
    ("execution_id", "change"),
    [
        ("c", {"key": message_key("ann", "m2")}),
        ("c", {"key": message_key("ann\0m", "")}),
        ("c~pay", {}),
        ("d", {}),
    ],
)
def test_a_message_put_elsewhere_does_not_open(execution_id: str, change: dict[str, str]) -> None:
    made = seal_message(1, STEPS, KEY, subject=SUBJECT, execution_id="c", sender="ann", message_id="m")
    data = {"topic": "t", "sender": "ann", "key": message_key("ann", "m"), "payload": made.data}
    marker = {"v": 1, "cipher": COMMITTING, "covers": ["MESSAGE_CONSUMED.payload"]}
    assert opened(data, marker, "MESSAGE_CONSUMED", lineage=Lineage("c~9"))["payload"] == 1
    lineage = Lineage(execution_id)
    for relabelled in (made.data, made.data | {"org": execution_id}):
        if change or execution_id != "c":
            moved = data | change | {"payload": relabelled}
            assert reason(moved, marker, "MESSAGE_CONSUMED", lineage=lineage) == "does-not-open"


def test_a_message_key_is_the_database_s(db: DictConnection) -> None:
    for sender, message_id in [("ann", "m"), ("Zoë", "")]:
        row = db.execute(
            "select encode(underseal._message_key(%s, %s), 'hex') as key", [sender, message_id]
        ).fetchone()
        assert row == {"key": message_key(sender, message_id)}


# ---- forks ----


@pytest.mark.clause("M19")
def test_a_fork_opens_the_prefix_it_copied_and_nothing_else_of_its_origin() -> None:
    fork = Lineage("c").fork("f", 10)
    late = fork.fork("g", 5)
    made = sealed(step())
    for lineage, seq, may in [
        (fork, 10, True), (fork, 11, False), (late, 5, True), (late, 6, False), (Lineage("f"), 3, False),
    ]:  # fmt: skip
        if may:
            assert opened(made.data, made.marker, lineage=lineage, seq=seq) == step()
        else:
            assert reason(made.data, made.marker, lineage=lineage, seq=seq) == "does-not-open"
    own = sealed(step(), execution_id="f")
    assert opened(own.data, own.marker, lineage=fork, seq=11) == step()
    assert reason(own.data, own.marker, lineage=fork, seq=10) == "does-not-open"
    assert reason(own.data, own.marker, lineage=late, seq=6) == "does-not-open"


def test_a_fork_s_input_is_the_one_it_began_from() -> None:
    made = sealed({"input": 1, "flow": "f"}, "EXECUTION_STARTED")
    fork = Lineage("c").fork("f", 3).fork("g", 1)
    assert opened(made.data, made.marker, "EXECUTION_STARTED", lineage=fork, seq=0)["input"] == 1
    for execution_id in ("f", "g"):
        other = sealed({"input": 1, "flow": "f"}, "EXECUTION_STARTED", execution_id=execution_id)
        assert reason(other.data, other.marker, "EXECUTION_STARTED", lineage=fork, seq=0) == "does-not-open"


def test_a_fork_opens_messages_that_its_prefix_was_handed() -> None:
    made = seal_message(1, STEPS, KEY, subject=SUBJECT, execution_id="c~pay", sender="ann", message_id="m")
    data = {"topic": "t", "sender": "ann", "key": message_key("ann", "m"), "payload": made.data}
    marker = {"v": 1, "cipher": COMMITTING, "covers": ["MESSAGE_CONSUMED.payload"]}
    fork = Lineage("c~pay.2").fork("f", 9)
    assert opened(data, marker, "MESSAGE_CONSUMED", lineage=fork)["payload"] == 1


@pytest.mark.clause("M19")
def test_the_lineage_of_a_fork_is_sealed_into_it() -> None:
    fork = Lineage("c").fork("f", 10).fork("g", 5)
    envelope = seal_lineage(fork, KEY, subject=SUBJECT)
    assert open_lineage(envelope, lookup, subject=SUBJECT, execution_id="g") == fork
    for subject, execution_id in [("user:8", "g"), (SUBJECT, "h")]:
        for one in (envelope, envelope | {"org": execution_id}):
            with pytest.raises(SealError) as caught:
                open_lineage(one, lookup, subject=subject, execution_id=execution_id)
            assert caught.value.reason == "does-not-open"
    plain = seal_lineage(fork, KEY, subject=SUBJECT, cipher=PLAIN)
    with pytest.raises(SealError, match="open_legacy"):
        open_lineage(plain, lookup, subject=SUBJECT, execution_id="g")
    data = {"flow": "f", "input": 1, "lineage": envelope}
    marker = {"v": 1, "cipher": COMMITTING, "covers": ["EXECUTION_STARTED.lineage"]}
    quiet = SensitiveMap({"STEP_COMPLETED": "output"})
    assert opened(data, marker, "EXECUTION_STARTED", sensitive=quiet, lineage=fork, seq=0)["lineage"] == [
        ["f", 5],
        ["c", 10],
    ]
    assert reason(data, marker, "EXECUTION_STARTED", sensitive=quiet, lineage=fork.fork("h", 1), seq=0) == (
        "does-not-open"
    )


@pytest.mark.parametrize(
    "value", [None, {}, "x", [["c"]], [["c", "1"]], [["c", -1]], [["", 1]], [["c", True]], ["ab"]]
)
def test_what_is_no_lineage(value: Any) -> None:
    assert Lineage.from_json("f", value) is None
    place = (SUBJECT, "f", "EXECUTION_STARTED", "[]", "/lineage")
    envelope = seal(json.dumps(value).encode(), KEY, fmt=FIELD, place=place, origin="f")
    with pytest.raises(SealError, match="no lineage"):
        open_lineage(envelope, lookup, subject=SUBJECT, execution_id="f")


@pytest.mark.parametrize("readable", [None, [["c", 1]], {}, "x", {"__loomEnc": COMMITTING}])
def test_a_readable_lineage_is_none(readable: Any) -> None:
    with pytest.raises(SealError) as caught:
        open_lineage(readable, lookup, subject=SUBJECT, execution_id="f", shredded=True)
    assert caught.value.reason == "malformed"


def test_a_lineage_is_the_json_that_it_came_from() -> None:
    fork = Lineage("c").fork("f", 10).fork("g", 5)
    assert Lineage.from_json("g", fork.to_json()) == fork


# ---- ends of children ----

ENDS = SensitiveMap({"EXECUTION_COMPLETED": "output", "EXECUTION_FAILED": "error.message"})


def child_end(**change: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    made = sealed({"output": "secret"}, "EXECUTION_COMPLETED", sensitive=ENDS, execution_id="c~pay-3.2")
    data = {
        "topic": "$child/pay-3",
        "sender": "c~pay-3.2",
        "key": message_key("c~pay-3.2", "c~pay-3.2"),
        "payload": {"status": "completed", "output": made.data["output"]},
    }
    return data | change, {"v": 1, "cipher": COMMITTING, "covers": ["MESSAGE_CONSUMED.payload.output"]}


def test_the_end_of_a_child_opens_for_who_asked() -> None:
    data, marker = child_end()
    told = opened(data, marker, "MESSAGE_CONSUMED", sensitive=ENDS)
    assert told["payload"] == {"status": "completed", "output": "secret"}
    fork = Lineage("c").fork("f", 9)
    assert (
        opened(data, marker, "MESSAGE_CONSUMED", sensitive=ENDS, lineage=fork)["payload"] == told["payload"]
    )
    inbox = marker | {"covers": ["INBOX_MESSAGE.payload.output"]}
    assert (
        open_message(
            data["payload"], inbox, ENDS, lookup, subject=SUBJECT, lineage=HERE, topic=data["topic"],
            sender=data["sender"], message_key=data["key"],
        )
        == told["payload"]
    )  # fmt: skip


@pytest.mark.clause("M19")
@pytest.mark.parametrize(
    ("change", "lineage"),
    [
        ({"topic": "$child/ship-4"}, HERE),
        ({"sender": "c~ship-4"}, HERE),
        ({"topic": "$child/ship-4", "sender": "c~ship-4"}, HERE),
        ({}, Lineage("d")),
        ({"topic": "mine"}, HERE),
    ],
)
def test_one_child_s_end_is_not_another_s(change: dict[str, Any], lineage: Lineage) -> None:
    data, marker = child_end(**change)
    assert reason(data, marker, "MESSAGE_CONSUMED", sensitive=ENDS, lineage=lineage) == "does-not-open"


@pytest.mark.clause("M19")
def test_a_child_that_completed_is_not_told_as_failed() -> None:
    data, marker = child_end()
    data["payload"] = {"status": "failed", "output": data["payload"]["output"]}
    assert reason(data, marker, "MESSAGE_CONSUMED", sensitive=ENDS) == "does-not-open"
    data["payload"]["status"] = "cancelled"
    assert reason(data, marker, "MESSAGE_CONSUMED", sensitive=ENDS) == "malformed"


def test_nothing_is_sealed_in_the_end_of_a_held_operation() -> None:
    data, marker = child_end(topic="$hold/0198c5f2")
    assert reason(data, marker, "MESSAGE_CONSUMED", sensitive=ENDS) in {"malformed", "does-not-open"}
    made = seal_message(1, STEPS, KEY, subject=SUBJECT, execution_id="c", sender="ann", message_id="m")
    posing = {
        "topic": "$hold/0198c5f2",
        "sender": "ann",
        "key": message_key("ann", "m"),
        "payload": made.data,
    }
    whole = {"v": 1, "cipher": COMMITTING, "covers": ["MESSAGE_CONSUMED.payload"]}
    assert reason(posing, whole, "MESSAGE_CONSUMED") == "malformed"
    readable = {"topic": "$hold/0198c5f2", "payload": {"state": "SUCCEEDED"}}
    assert opened(readable, None, "MESSAGE_CONSUMED") == readable


# ---- whole or not at all ----


@pytest.mark.clause("M14", "M19")
def test_one_of_two_that_does_not_open_opens_none() -> None:
    sensitive = SensitiveMap({"STEP_COMPLETED": ["output.a", "output.b"]})
    made = sealed(step(output={"a": 1, "b": 2}), sensitive=sensitive)
    lost = copy.deepcopy(made.data)
    lost["output"]["b"]["kid"] = "subject-9"
    seen: list[str] = []

    def find(key_id: str) -> Key | None:
        seen.append(key_id)
        return lookup(key_id)

    with pytest.raises(KeyUnavailableError):
        opened(lost, made.marker, sensitive=sensitive, lookup=find)
    assert seen == ["subject-1", "subject-9"]
    bad = copy.deepcopy(made.data)
    bad["output"]["b"]["ct"] = bad["output"]["a"]["ct"]
    assert reason(bad, made.marker, sensitive=sensitive) == "does-not-open"


@pytest.mark.clause("M14")
def test_no_value_is_opened_before_every_key_is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    sensitive = SensitiveMap({"STEP_COMPLETED": ["output.a", "output.b"]})
    made = sealed(step(output={"a": 1, "b": 2}), sensitive=sensitive)
    made.data["output"]["b"]["kid"] = "subject-9"

    def never(*_: object) -> bytes:
        raise AssertionError("decrypted")

    monkeypatch.setattr("underseal.seal.ciphers.gcm_open", never)
    with pytest.raises(KeyUnavailableError):
        opened(made.data, made.marker, sensitive=sensitive)


@pytest.mark.clause("M14", "X10")
@pytest.mark.parametrize(
    ("found", "shredded", "error"),
    [
        (None, False, KeyUnavailableError),
        (None, True, PayloadShreddedError),
        (OTHER, False, KeyUnavailableError),
        (OTHER, True, PayloadShreddedError),
        (Key("subject-1", "payload", bytes(32)), False, KeyUnavailableError),
        (Destroyed("subject-1", "subject"), False, PayloadShreddedError),
        (Destroyed("subject-9", "subject"), False, KeyUnavailableError),
    ],
)
def test_a_missing_key_is_no_erasure_without_proof(
    found: Any, shredded: bool, error: type[SealError]
) -> None:
    made = sealed(step())
    with pytest.raises(SealError) as caught:
        opened(made.data, made.marker, lookup=lambda _: found, shredded=shredded)
    assert type(caught.value) is error
    assert caught.value.key_id == "subject-1"


@pytest.mark.clause("M14", "X10")
def test_a_store_that_cannot_answer_is_no_erasure() -> None:
    made = sealed(step())

    def away(key_id: str) -> Key:
        raise KeyRingError("the key store is away")

    with pytest.raises(KeyRingError) as caught:
        opened(made.data, made.marker, lookup=away, shredded=True)
    assert caught.value.reason == "key-unavailable"


@pytest.mark.clause("M19")
def test_another_secret_under_the_id_does_not_open() -> None:
    made = sealed(step())
    assert (
        reason(made.data, made.marker, lookup=lambda _: Key("subject-1", "subject", bytes(32)))
        == "does-not-open"
    )


# ---- markers, and what is readable ----


@pytest.mark.clause("M3", "M16")
def test_what_the_map_does_not_cover_is_not_opened() -> None:
    made = sealed(step())
    assert (
        reason(made.data, made.marker, sensitive=SensitiveMap({"STEP_FAILED": "error"}))
        == "marker-unopenable"
    )
    assert reason(made.data, made.marker, sensitive=SensitiveMap()) == "marker-unopenable"
    assert reason(made.data, {**made.marker, "v": 2} if made.marker else None) == "marker-unopenable"


@pytest.mark.clause("M3")
def test_an_old_path_opens_as_long_as_it_is_registered() -> None:
    old = SensitiveMap({"STEP_COMPLETED": "output.a"})
    made = sealed(step(output={"a": 1, "b": 2}), sensitive=old)
    both = SensitiveMap({"STEP_COMPLETED": ["output", "output.a"]}, required=False)
    assert opened(made.data, made.marker, sensitive=both) == step(output={"a": 1, "b": 2})
    strict = SensitiveMap({"STEP_COMPLETED": ["output", "output.a"]})
    assert reason(made.data, made.marker, sensitive=strict) == "not-sealed"
    assert (
        reason(made.data, made.marker, sensitive=SensitiveMap({"STEP_COMPLETED": "output"}))
        == "marker-unopenable"
    )


@pytest.mark.clause("M20")
@pytest.mark.parametrize("output", ["secret", None, {"__loomEnc": 1}, {}, 0])
def test_plaintext_in_a_sealed_slot_is_refused_where_sealing_is_required(output: Any) -> None:
    assert reason(step(output=output), None) == "not-sealed"
    lenient = SensitiveMap({"STEP_COMPLETED": "output"}, required=False)
    assert opened(step(output=output), None, sensitive=lenient) == step(output=output)
    assert opened({"op": 1, "name": "n"}, None) == {"op": 1, "name": "n"}


@pytest.mark.clause("M20")
def test_plaintext_where_the_marker_says_sealed_is_always_refused() -> None:
    lenient = SensitiveMap({"STEP_COMPLETED": "output"}, required=False)
    marker = sealed(step()).marker
    assert reason(step(), marker, sensitive=lenient) == "not-sealed"
    assert reason({"op": 1}, marker, sensitive=lenient) == "malformed"


def test_an_unmarked_envelope_in_a_slot_is_opened() -> None:
    made = sealed(step())
    assert opened(made.data, None) == step()
    assert reason({**made.data, "op": 2}, None) == "does-not-open"


@pytest.mark.parametrize(
    "covers",
    [
        ["STEP_FAILED.output"],
        ["STEP_COMPLETED.output\\"],
        ["STEP_COMPLETED.output", "STEP_COMPLETED.output.a"],
        ["STEP_COMPLETED.name"],
        ["STEP_COMPLETED"],
    ],
)
def test_a_marker_that_makes_no_sense_opens_nothing(
    covers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = sealed(step())
    monkeypatch.setattr("underseal.seal.capability.opens", lambda *_: True)
    marker = {"v": 1, "cipher": COMMITTING, "covers": covers}
    assert reason(made.data, marker) in {"malformed", "not-sealed"}


def test_the_marker_s_cipher_is_the_envelope_s() -> None:
    legacy = SensitiveMap({"STEP_COMPLETED": "output"}, open_legacy=True)
    made = sealed(step())
    assert made.marker is not None
    assert reason(made.data, made.marker | {"cipher": PLAIN}, sensitive=legacy) == "malformed"


@pytest.mark.clause("M19")
def test_the_record_s_cipher_opens_only_where_that_is_asked_for() -> None:
    made = sealed(step(), cipher=PLAIN)
    assert reason(made.data, made.marker) == "marker-unopenable"
    assert reason(made.data, None) == "unsupported"
    legacy = SensitiveMap({"STEP_COMPLETED": "output"}, open_legacy=True)
    assert opened(made.data, made.marker, sensitive=legacy) == step()


@pytest.mark.parametrize("text", [b"", b"{", b"nan?", b"\xff", b"[" * 100_000, b'{"a":{"__loomEnc":"x"}}'])
def test_what_is_sealed_and_no_value_of_ours_is_refused(text: bytes) -> None:
    place = (SUBJECT, "c", "STEP_COMPLETED", "[1]", "/output")
    envelope = seal(text, KEY, fmt=FIELD, place=place, origin="c")
    assert reason(step(output=envelope), None) == "malformed"


def test_a_number_that_python_makes_no_integer_of_comes_as_the_readers_give_it() -> None:
    place = (SUBJECT, "c", "STEP_COMPLETED", "[1]", "/output")
    envelope = seal(b"1" * 5000, KEY, fmt=FIELD, place=place, origin="c")
    assert str(opened(step(output=envelope), None)["output"]) == "1" * 5000


def test_the_keys_of_an_event_are_told_apart() -> None:
    sensitive = SensitiveMap(
        {"PAYMENT": "card", "STEP_ATTEMPT_FAILED": "error"}, keys={"PAYMENT": ["a", "b"]}
    )
    made = sealed({"a": "1,2", "b": "3", "card": 1}, "PAYMENT", sensitive=sensitive)
    assert opened(made.data, made.marker, "PAYMENT", sensitive=sensitive)["card"] == 1
    for other in ({"a": "1", "b": "2,3"}, {"a": "1,2", "b": 3}, {"a": '1,2","3', "b": ""}):
        assert reason({**made.data, **other}, made.marker, "PAYMENT", sensitive=sensitive) == "does-not-open"
    tried = sealed({"op": 1, "attempt": 2, "error": {}}, "STEP_ATTEMPT_FAILED", sensitive=sensitive)
    again = {**tried.data, "attempt": 3}
    assert reason(again, tried.marker, "STEP_ATTEMPT_FAILED", sensitive=sensitive) == "does-not-open"
