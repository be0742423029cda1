"""Sealed writes: the kernel checks what callers say is sealed, and writes the markers itself (clauses M1, M2, M20)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.foundation.test_access import role
from tests.held.sql.kernel import Kernel, outcome
from tests.inbox.box import Box
from tests.log.seals import (
    MESSAGE,
    OURS,
    RECORDS,
    envelope,
    events,
    key_of,
    last,
    marker,
    refusal,
    sealed_event,
    sealing_box,
    subject,
)
from underseal.seal.paths import Path, dotted, pointer

ANY_NAME = ["a", "0", "1", "-1", "01", "", "a.b", "a\\b", "a/b", "a~b", "a\nb", "é", "__proto__", "%", '"']


@pytest.mark.clause("M1", "M2")
def test_the_marker_says_what_was_sealed(k: Kernel) -> None:
    b, kid = sealing_box(k)
    data = {"b": envelope(kid), "a": {"z": envelope(kid), "p": 1}, "list": [1, {"x": envelope(kid)}]}
    told = {"type": "NOTED", "data": data, "sealed": ["/list/1/x", "/b", "/a/z", "/b"]}
    assert outcome(b.write("append", events=[told])) == ("appended", None)
    assert last(b)["metadata"] == marker("NOTED.a.z", "NOTED.b", "NOTED.list.1.x")
    assert last(b)["data"] == data
    assert b.execution()["sealed"] is True


@pytest.mark.clause("M1", "M2")
def test_an_event_beside_a_sealed_one_has_no_marker(k: Kernel) -> None:
    b, kid = sealing_box(k)
    plain = {"type": "NOTED", "data": {"output": 1}, "metadata": marker("NOTED.output")}
    told = [plain, sealed_event(kid), plain, {**plain, "sealed": []}, {**plain, "sealed": None}]
    assert outcome(b.write("append", events=told)) == ("appended", None)
    expected = [None, marker("NOTED.output"), None, None, None]
    assert [row["metadata"] for row in events(b)[1:]] == expected
    b.k.call("append", b.id, 1, json.dumps(told))
    assert [row["metadata"] for row in events(b)[6:]] == expected
    assert outcome(b.k.call("append", b.id, 1, json.dumps([sealed_event(kid)]))) == ("appended", None)
    assert last(b)["metadata"] == marker("NOTED.output")
    assert outcome(b.k.call("append", b.id, 1, json.dumps([plain]))) == ("appended", None)
    assert last(b)["metadata"] is None


@pytest.mark.clause("M1")
@pytest.mark.parametrize("cipher", [OURS, RECORDS])
def test_each_verb_says_what_of_its_own_event_is_sealed(k: Kernel, cipher: str) -> None:
    whose = subject(k)
    kid = key_of(whose)
    sealed = envelope(kid, cipher=cipher)
    first = sealed_event(kid, output=envelope(kid, cipher=cipher))
    b = Box(k, f"c-{whose}")
    start = {"flow": "f", "flow_version": 1, "principal": "ann", "subject": whose}
    row = b.write(
        "start", **start, input=sealed, sealed=["/input"], events=[{"type": "A", "data": {}}, first]
    )
    assert outcome(row) == ("started", None)
    assert [one["metadata"] for one in events(b)] == [
        marker("EXECUTION_STARTED.input", cipher=cipher), None, marker("NOTED.output", cipher=cipher),
    ]  # fmt: skip
    row = b.write("continue", input={"card": [sealed]}, sealed=["/input/card/0"], events=[first])
    assert outcome(row) == ("continued", None)
    assert [(one["type"], one["metadata"]) for one in events(b)[3:]] == [
        ("NOTED", marker("NOTED.output", cipher=cipher)), ("EXECUTION_CONTINUED", None),
    ]  # fmt: skip
    b.id += "~2"
    assert last(b)["metadata"] == marker("EXECUTION_STARTED.input.card.0", cipher=cipher)
    plain = {"type": "A", "data": {}}
    row = b.write("complete", output={"a": sealed, "b": 1}, sealed=["/output/a"], events=[plain, plain])
    assert outcome(row) == ("completed", None)
    assert [one["metadata"] for one in events(b)[1:]] == [
        None, None, marker("EXECUTION_COMPLETED.output.a", cipher=cipher),
    ]  # fmt: skip
    other = Box(k, f"d-{whose}")
    other.write("start", **start)
    assert outcome(other.write("fail", error=sealed, sealed=["/error"])) == ("failed", None)
    assert last(other)["metadata"] == marker("EXECUTION_FAILED.error", cipher=cipher)
    assert other.execution()["sealed"] is True


@pytest.mark.clause("M1")
def test_callers_start_what_is_sealed(k: Kernel) -> None:
    whose = subject(k)
    sealed = json.dumps({"card": envelope(key_of(whose))})
    row = k.call("start_execution", "f", "ann", sealed, "one", 1, None, whose, ["/input/card"])
    assert outcome(row) == ("started", None)
    item = {
        "flow": "f",
        "principal": "ann",
        "input": json.loads(sealed),
        "subject": whose,
        "sealed": ["/input/card"],
    }
    rows = k.calls(
        "start_executions", json.dumps([{**item, "execution_id": "two"}, {**item, "sealed": None}])
    )
    assert [outcome(one) for one in rows] == [("started", None), ("refused", "envelope")]
    for made in ("one", "two"):
        (first,) = events(Box(k, made))
        assert first["metadata"] == marker("EXECUTION_STARTED.input.card")
        assert first["data"]["subject"] == whose


@pytest.mark.clause("M1", "M2")
def test_every_name_has_its_dotted_path(k: Kernel) -> None:
    b, kid = sealing_box(k)
    for name in ANY_NAME:
        paths: list[Path] = [(name,), ("in", name), ("list", "0", name)]
        data: dict[str, Any] = {
            name: envelope(kid),
            "in": {name: envelope(kid)},
            "list": [{name: envelope(kid)}],
        }
        told = {"type": "NOTED", "data": data, "sealed": [pointer(path) for path in paths]}
        assert outcome(b.write("append", events=[told])) == ("appended", None), name
        assert last(b)["metadata"] == marker(*sorted(f"NOTED.{dotted(path)}" for path in paths)), name


# -- refusals ----------------------------------------------------------------------------------------


@pytest.mark.clause("M2", "M20")
@pytest.mark.parametrize(
    ("pointers", "reason"),
    [
        ("/output", "malformed-sealed"),
        ({"/output": 1}, "malformed-sealed"),
        (7, "malformed-sealed"),
        ([7], "malformed-sealed"),
        ([["/output"]], "malformed-sealed"),
        ([None], "malformed-sealed"),
        (["output"], "malformed-sealed"),
        ([""], "malformed-sealed"),
        (["/output~2"], "malformed-sealed"),
        (["/output~"], "malformed-sealed"),
        (["#/output"], "malformed-sealed"),
        (["/output", "/output/kid"], "malformed-sealed"),
        (["/output", "/outer", "/outer/in"], "malformed-sealed"),
        (["/outer", "/output", "/outer/in"], "malformed-sealed"),
        (["/output", "/" + "x" * 65536], "malformed-sealed"),
        ([f"/{n}" for n in range(10_000)], "malformed-sealed"),
        ([f"/{n}" for n in range(5_000)], "not-sealed"),
        (["/nothing"], "not-sealed"),
        (["/"], "not-sealed"),
        (["/output/"], "not-sealed"),
        (["/outer"], "not-sealed"),
        (["/plain"], "not-sealed"),
        (["/output", "/plain"], "not-sealed"),
        (["/output", "/none"], "not-sealed"),
        (["/list/-1"], "not-sealed"),
        (["/list/01"], "not-sealed"),
        (["/list/+1"], "not-sealed"),
        (["/list/ 1"], "not-sealed"),
        (["/list/1 "], "not-sealed"),
        (["/list/-"], "not-sealed"),
        (["/list/1", "/list/2"], "not-sealed"),
        (["/list/18446744073709551617"], "not-sealed"),
        (["/" + "/".join(["a"] * 5_000)], "not-sealed"),
        (["/output/__loomEnc"], "not-sealed"),
        (["/output\x00"], "unreadable"),
    ],
)
def test_a_pointer_that_is_wrong_is_refused(k: Kernel, pointers: Any, reason: str) -> None:
    b, kid = sealing_box(k)
    data = {"output": envelope(kid), "plain": 1, "none": None, "outer": {"in": 1}, "list": [1, envelope(kid)]}
    told = {"type": "NOTED", "data": data, "sealed": pointers}
    assert refusal(b, told) == reason
    assert refusal(b, {"type": "A", "data": {}}, told) == reason


@pytest.mark.clause("M2", "M20")
@pytest.mark.parametrize(
    "change",
    [
        {"fmt": MESSAGE},
        {"fmt": "loom-snap-v1"},
        {"fmt": "held-payload-v1"},
        {"__loomEnc": "rot13"},
        {"__loomEnc": 7},
        {"v": 2},
        {"v": "1"},
        {"kid": ""},
        {"kid": "k" * 129},
        {"kid": "k k"},
        {"kid": None},
        {"org": None},
        {"org": ""},
        {"salt": None},
        {"kc": None},
        {"kc": "A" * 42},
        {"iv": "A" * 15},
        {"ct": "A"},
        {"ct": None},
        {"aad": "x"},
        {"more": 1},
        {"__loomEnc": RECORDS},
    ],
)
def test_what_is_no_envelope_of_ours_is_refused(k: Kernel, change: dict[str, Any]) -> None:
    b, kid = sealing_box(k)
    assert refusal(b, sealed_event(kid, output={**envelope(kid), **change})) in ("not-sealed", "foreign-key")
    made = {name: value for name, value in {**envelope(kid), **change}.items() if value is not None}
    assert refusal(b, sealed_event(kid, output=made)) == "not-sealed"


@pytest.mark.clause("M2")
def test_an_envelope_that_is_not_named_is_refused(k: Kernel) -> None:
    b, kid = sealing_box(k)
    for hidden in (
        {"more": envelope(kid)},
        {"more": [envelope(kid)]},
        {"more": [[{"deep": envelope(kid)}]]},
        {"more": {"__loomEnc": "x"}},
        {"more": {"$shredded": True}},
        {"__loomEnc": "at the top"},
    ):
        assert refusal(b, sealed_event(kid, output=envelope(kid), **hidden)) == "envelope"
        assert refusal(b, sealed_event(kid), {"type": "NOTED", "data": hidden}) == "envelope"
        assert refusal(b, {"type": "NOTED", "data": hidden}) == "envelope"
    # a value of another kind under the key is an ordinary one
    assert outcome(b.write("append", events=[sealed_event(kid, output=envelope(kid), more={"__loomEnc": 7})])) == (
        "appended", None,
    )  # fmt: skip


@pytest.mark.clause("M2")
def test_escapes_hide_nothing(k: Kernel) -> None:
    b, kid = sealing_box(k)
    hidden = json.dumps(envelope(kid)).replace("__loom", "\\u005f_loom")
    named = '[{"type": "NOTED", "data": {"output": %s}, "%s": ["/%s"]}]'
    assert outcome(k.call("append", b.id, 1, named % (hidden, "sealed", "output"))) == ("appended", None)
    assert last(b)["metadata"] == marker("NOTED.output")
    # who writes the word with escapes has written the word
    assert outcome(k.call("append", b.id, 1, named % (hidden, "s\\u0065aled", "o\\u0075tput"))) == (
        "appended",
        None,
    )
    assert last(b)["metadata"] == marker("NOTED.output")
    item = '[{"verb": "append", "execution_id": "%s", "fence": 1, "events": %s}]'
    for told in (named % (hidden, "other", "output"), named % (f'{{"x": {hidden}}}', "sealed", "output/y")):
        row = k.call("append", b.id, 1, told)
        assert row["outcome"] == "refused"
        assert (
            k.call("append_batch", item % (b.id, told))["reason"]
            == row["reason"]
            in ("envelope", "not-sealed")
        )
    told = named % ('"plaintext"', "s\\u0065aled", "output")
    assert k.call("append_batch", item % (b.id, told))["reason"] == "not-sealed"
    # half a pair, beside a seal
    told = named % (hidden[:-1] + ', "x": "\\ud800"}', "sealed", "output")
    assert k.call("append_batch", item % (b.id, told))["reason"] == "unreadable"
    assert k.call("append", b.id, 1, told)["reason"] == "unreadable"


@pytest.mark.clause("M2")
def test_a_size_and_a_depth_are_kept_to(k: Kernel) -> None:
    b, kid = sealing_box(k)
    assert refusal(b, sealed_event(kid, output=envelope(kid, ct="A" * 1_048_576))) == "too-large"
    assert refusal(b, sealed_event(kid, output=envelope(kid), more="x" * 1_048_576)) == "too-large"
    deep: Any = 1
    for _ in range(512):
        deep = [deep]
    assert refusal(b, sealed_event(kid, output=envelope(kid), deep=deep)) == "unreadable"
    nested: Any = envelope(kid)
    for _ in range(500):
        nested = {"a": nested}
    path = "/a" * 500
    assert outcome(b.write("append", events=[sealed_event(kid, path, **nested)])) == ("appended", None)
    assert last(b)["metadata"] == marker("NOTED" + ".a" * 500)


@pytest.mark.clause("M2", "M20")
def test_a_readable_value_is_never_passed_as_sealed(k: Kernel) -> None:
    b, _ = sealing_box(k)
    told = {"type": "NOTED", "data": {"output": "readable"}, "sealed": ["/output"]}
    assert refusal(b, told) == "not-sealed"
    assert refusal(b, {"type": "A", "data": {}}, told) == "not-sealed"
    assert refusal(b, verb="complete", output="readable", sealed=["/output"]) == "not-sealed"


@pytest.mark.clause("M1", "M2")
def test_an_event_has_one_cipher(k: Kernel) -> None:
    b, kid = sealing_box(k)
    both = {"a": envelope(kid), "b": envelope(kid, cipher=RECORDS)}
    assert refusal(b, {"type": "NOTED", "data": both, "sealed": ["/a", "/b"]}) == "mixed-ciphers"
    two = [sealed_event(kid), sealed_event(kid, output=envelope(kid, cipher=RECORDS))]
    assert outcome(b.write("append", events=two)) == ("appended", None)
    assert [row["metadata"]["seal"]["cipher"] for row in events(b)[1:]] == [OURS, RECORDS]


@pytest.mark.clause("M2")
def test_what_may_not_be_written_may_not_be_written_sealed(k: Kernel) -> None:
    b, kid = sealing_box(k)
    assert refusal(b, sealed_event(kid, kind="MESSAGE_CONSUMED")) == "reserved-type"
    assert refusal(b, sealed_event(kid, kind="noted")) == "malformed-type"
    assert refusal(b, {"type": "NOTED", "data": [envelope(kid)], "sealed": ["/0"]}) == "malformed-data"
    assert refusal(b, {"type": "NOTED", "sealed": ["/0"]}) == "not-sealed"
    assert b.k.call("append", b.id, 1, '[{"sealed": ["/a"]}, 7]')["reason"] == "malformed-events"
    assert b.k.call("append", b.id, 1, '{"sealed": ["/a"]}'.join("[]"))["reason"] == "malformed-type"


@pytest.mark.clause("M2")
def test_a_verb_seals_nothing_but_its_own_value(k: Kernel) -> None:
    whose = subject(k)
    b, kid = sealing_box(k, whose)
    one = envelope(kid)
    start = {"execution_id": "n", "flow": "f", "flow_version": 1, "principal": "ann", "subject": whose}
    assert refusal(b, verb="append", sealed=["/output"]) == "malformed-sealed"
    assert refusal(b, verb="cancelled", reason="r", sealed=["/reason"]) == "malformed-sealed"
    assert refusal(b, verb="complete", output=one, sealed=["/error"]) == "malformed-sealed"
    assert refusal(b, verb="complete", output=1, sealed=["/output"]) == "not-sealed"
    assert refusal(b, verb="complete", sealed=["/output"]) == "not-sealed"
    assert refusal(b, verb="complete", output={"a": one, "b": one}, sealed=["/output/a"]) == "envelope"
    assert refusal(b, verb="complete", output=one) == "envelope"
    assert refusal(b, verb="complete", output="x" * 1_048_576, sealed=["/output"]) == "too-large"
    assert refusal(b, verb="fail", error=one, sealed=["/output"]) == "malformed-sealed"
    assert refusal(b, verb="continue", input=one, sealed=["/output"]) == "malformed-sealed"
    assert refusal(b, verb="start", **start, input=one, sealed=["/flow"]) == "malformed-sealed"
    assert refusal(b, verb="start", **start, input=one, sealed=["/owner", "/input"]) == "malformed-sealed"
    assert refusal(b, verb="start", **start, input=1, sealed=["/input"]) == "not-sealed"
    assert refusal(b, verb="start", **start, input=one, sealed={"/input": 1}) == "malformed-sealed"
    assert k.call("head", "n")["outcome"] == "not-found"


@pytest.mark.clause("M2")
def test_a_refusal_takes_no_neighbour_along(k: Kernel) -> None:
    whose = subject(k)
    boxes = [sealing_box(k, whose)[0] for _ in range(4)]
    kid = key_of(whose)
    told = [[sealed_event(kid)], [sealed_event("unknown")], [sealed_event(kid, "/none")], [sealed_event(kid)]]
    items = [
        {"verb": "append", "execution_id": b.id, "fence": 1, "events": one}
        for b, one in zip(boxes, told, strict=True)
    ]
    rows = k.calls("append_batch", json.dumps(items))
    assert [outcome(row) for row in rows] == [
        ("appended", None), ("refused", "foreign-key"), ("refused", "not-sealed"), ("appended", None),
    ]  # fmt: skip
    assert [b.execution()["head"] for b in boxes] == [1, 0, 0, 1]
    # nor does one that cannot be read at all
    text = json.dumps([{**items[0], "events": [sealed_event(kid)]}, {**items[1], "fence": "x"}])
    assert [outcome(row) for row in k.calls("append_batch", text)] == [
        ("appended", None),
        ("refused", "malformed-item"),
    ]
    assert last(boxes[0])["metadata"] == marker("NOTED.output")


# -- who, and under which key ------------------------------------------------------------------------


@pytest.mark.clause("M2")
def test_only_a_sealer_seals(k: Kernel) -> None:
    whose = subject(k)
    b, kid = sealing_box(k, whose)
    worker, sealer = role(k, "worker"), role(k, "worker", "sealer")
    one = envelope(kid)
    start = {"execution_id": "n", "flow": "f", "flow_version": 1, "principal": "ann", "subject": whose}
    told = [sealed_event(kid)]
    with k.login(worker):
        for row in (
            k.call("append", b.id, 1, json.dumps(told)),
            b.write("append", events=told),
            b.write("complete", output=one, sealed=["/output"]),
            b.write("start", **start, input=one, sealed=["/input"]),
            k.call("start_execution", "f", "ann", json.dumps(one), "n", 1, None, whose, ["/input"]),
            k.call("append", b.id, 1, json.dumps([{"type": "A", "data": {}, "sealed": ["/nothing"]}])),
        ):
            assert outcome(row) == ("refused", "not-sealer")
            assert "grant_access" in row["message"]
        assert outcome(b.write("append", events=[{"type": "A", "data": {}, "sealed": []}])) == (
            "appended",
            None,
        )
    with k.login(sealer):
        assert outcome(k.call("append", b.id, 1, json.dumps(told))) == ("appended", None)
        assert outcome(b.write("append", events=told)) == ("appended", None)
        assert outcome(b.write("start", **start, input=one, sealed=["/input"])) == ("started", None)


@pytest.mark.clause("M2", "X1")
def test_a_seal_is_under_a_key_of_the_chains_subject(k: Kernel) -> None:
    whose, other = subject(k), subject(k)
    b, kid = sealing_box(k, whose)
    assert refusal(b, sealed_event(key_of(other))) == "foreign-key"
    assert refusal(b, sealed_event("unknown")) == "foreign-key"
    two = {"a": envelope(kid), "b": envelope(key_of(other))}
    assert refusal(b, {"type": "NOTED", "data": two, "sealed": ["/a", "/b"]}) == "foreign-key"
    assert refusal(b, sealed_event(kid), sealed_event(key_of(other))) == "foreign-key"
    assert refusal(b, verb="complete", output=envelope(key_of(other)), sealed=["/output"]) == "foreign-key"
    assert refusal(b, verb="continue", input=envelope(key_of(other)), sealed=["/input"]) == "foreign-key"
    nobodys = Box(k, "nobody").start()
    assert refusal(nobodys, sealed_event(kid)) == "no-subject"
    start = {"execution_id": "n", "flow": "f", "flow_version": 1, "principal": "ann", "input": envelope(kid)}
    assert refusal(b, verb="start", **start, sealed=["/input"]) == "no-subject"
    assert refusal(b, verb="start", **start, sealed=["/input"], subject=other) == "foreign-key"


@pytest.mark.clause("M2", "X1")
def test_a_subject_has_many_keys_and_a_destroyed_one_seals_nothing(k: Kernel) -> None:
    whose = subject(k, "key-1", "key-2")
    b = Box(k, "many")
    b.write("start", flow="f", flow_version=1, principal="ann", subject=whose)
    both = {"type": "NOTED", "data": {"a": envelope("key-1"), "b": envelope("key-2")}, "sealed": ["/a", "/b"]}
    assert outcome(b.write("append", events=[both])) == ("appended", None)
    k.do("update underseal.subject_key set destroyed_at = underseal.clock() where key_id = 'key-1'")
    assert refusal(b, both) == "key-destroyed"
    assert outcome(b.write("append", events=[sealed_event("key-2")])) == ("appended", None)


@pytest.mark.clause("X2")
def test_nothing_is_sealed_for_a_subject_that_is_being_erased(k: Kernel) -> None:
    whose = subject(k)
    b, kid = sealing_box(k, whose)
    k.do("insert into underseal.subject_fence values (%s, underseal.clock(), 'erasing')", whose)
    start = {"execution_id": "n", "flow": "f", "flow_version": 1, "principal": "ann", "subject": whose}
    for state in ("erasing", "erased"):
        k.do("update underseal.subject_fence set state = %s where subject = %s", state, whose)
        assert refusal(b, sealed_event(kid)) == "subject-erasing"
        assert refusal(b, verb="complete", output=envelope(kid), sealed=["/output"]) == "subject-erasing"
        assert refusal(b, verb="start", **start) == "subject-erasing"
        assert refusal(b, verb="start", **start, input=envelope(kid), sealed=["/input"]) == "subject-erasing"
        assert outcome(k.call("register_subject_key", whose, "new", 9)) == ("refused", "subject-erasing")
        assert outcome(k.call("register_subject_key", whose, kid, 1)) == ("refused", "subject-erasing")
    # what is plain goes on
    assert outcome(b.write("append", events=[{"type": "A", "data": {}}])) == ("appended", None)
    assert outcome(b.write("complete", output=1)) == ("completed", None)
