"""Gates: an answer is taken once, whichever comes first (clauses E6, E7)."""

from __future__ import annotations

import json

import pytest

from tests.held.sql.kernel import Row, outcome
from tests.inbox.box import Box

GATE = ("gate", "ok")


def resume(b: Box, answer: str | None = '{"yes": 1.50}', gate: str = "ok", who: str = "ann") -> Row:
    """Answer a gate."""
    return b.k.call("resume_gate", b.id, gate, answer, who)


@pytest.mark.clause("E7c", "E6b")
def test_a_parked_execution_is_woken_by_its_gate_s_answer(b: Box) -> None:
    b.park(w=[GATE])
    row = resume(b)
    assert (outcome(row), row["inbox_seq"]) == (("resumed", None), 1)
    assert b.wakes() == ["inbox"]
    assert b.deliver()["answered"] == 1
    fact = b.facts()[0]
    assert (fact["wait"], fact["topic"], fact["sender"], fact["disposition"]) == (
        "w",
        "$gate/ok",
        "ann",
        "delivered",
    )
    assert '{"yes": 1.50}' in b.log()[-1]["text"]
    assert b.status == "running"


@pytest.mark.clause("E7c")
def test_an_answer_before_the_wait_waits_for_it(b: Box) -> None:
    assert outcome(resume(b)) == ("resumed", None)
    assert b.wakes() == ["drive"]
    assert b.park(w=[GATE]) == "answered"
    assert b.delivered() == [("w", 1)]


@pytest.mark.clause("E7c")
def test_a_second_answer_is_refused_while_the_first_waits(b: Box) -> None:
    resume(b)
    before = b.k.everything()
    assert outcome(resume(b)) == ("conflict", "already-answered")
    assert b.k.everything() == before
    b.k.do("select 1")
    b.park(w=[("topic", "other")])
    assert outcome(resume(b)) == ("conflict", "already-answered")


@pytest.mark.clause("E7c")
def test_a_second_click_answers_no_later_gate_of_the_name(b: Box) -> None:
    b.park(w1=[GATE])
    resume(b)
    b.deliver()
    before = b.k.everything()
    assert outcome(resume(b)) == ("conflict", "already-answered")
    assert b.k.everything() == before
    # but one that is waited at again is answered again
    b.park(w2=[GATE])
    assert outcome(resume(b)) == ("resumed", None)
    b.deliver()
    assert b.delivered() == [("w1", 1), ("w2", 2)]


@pytest.mark.clause("E7c")
def test_gates_are_told_apart(b: Box) -> None:
    b.park(w=[("gate", "other")])
    assert outcome(resume(b)) == ("resumed", None)
    assert b.wakes() == []
    assert outcome(resume(b, gate="other")) == ("resumed", None)
    b.deliver()
    assert b.delivered() == [("w", 2)]
    assert b.pending() == [1]


@pytest.mark.clause("E6b")
def test_an_answer_finds_the_one_that_goes_on(b: Box) -> None:
    first = b.id
    b.go_on().park(w=[GATE])
    assert b.k.call("resume_gate", first, "ok", "1", "ann")["outcome"] == "resumed"
    assert b.deliver()["answered"] == 1


@pytest.mark.clause("E6b")
@pytest.mark.parametrize("verb", ["complete", "fail", "cancelled"])
def test_an_end_takes_no_answer(b: Box, verb: str) -> None:
    b.write(verb)
    before = b.k.everything()
    assert outcome(resume(b)) == ("conflict", "ended")
    assert b.k.everything() == before


@pytest.mark.parametrize(
    ("gate", "answer", "reason"),
    [
        ("", "1", "malformed-gate"),
        ("a\tb", "1", "malformed-gate"),
        ("x" * 191, "1", "malformed-gate"),
        ("ok", json.dumps("x" * 65536), "too-large"),
        ("ok", '{"a": {"__loomEnc": "x"}}', "envelope"),
        ("ok", '"\\ud800"', "unreadable"),
        ("ok", '{"a": 1e999999, "b": "\\u0061"}', "unreadable"),
        ("ok", "[" * 600 + "]" * 600, "too-deep"),
    ],
)
def test_a_malformed_answer_is_refused(b: Box, gate: str, answer: str, reason: str) -> None:
    before = b.k.everything()
    assert outcome(resume(b, answer, gate)) == ("refused", reason)
    assert b.k.everything() == before


def test_no_answer_is_null(b: Box) -> None:
    resume(b, None)
    b.park(w=[GATE])
    assert b.facts()[0]["payload"] is None


@pytest.mark.clause("E7c")
def test_nobody_sends_to_a_gate(b: Box) -> None:
    """A gate's topic is the kernel's: what answers it is judged as an answer."""
    assert outcome(b.send("$gate/ok")) == ("refused", "malformed-topic")
