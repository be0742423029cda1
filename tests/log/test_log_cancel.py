"""Cancelling, and what came of an execution (clauses E6, E12)."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.held.sql.kernel import Kernel, Row, outcome
from tests.inbox.box import Box

DENIED = ("denied", "execution")


def cancel(b: Box, who: str | None = "ann", reason: str | None = None, force: bool = False) -> Row:
    """Cancel."""
    return b.k.call("cancel_execution", b.id, who, reason, force)


def ended(b: Box) -> Box:
    """End it."""
    b.write("complete")
    return b


@pytest.mark.clause("E6e")
def test_what_has_not_begun_is_cancelled_at_once(b: Box) -> None:
    assert outcome(cancel(b, reason="changed my mind")) == ("cancelled", None)
    row = b.execution()
    assert (row["status"], row["fence"], row["head"]) == ("cancelled", 2, 1)
    assert b.log()[-1]["data"] == {"principal": "ann", "reason": "changed my mind"}
    assert b.wakes() == []
    assert outcome(b.step()) == ("conflict", "stale-fence")


@pytest.mark.clause("E6e")
def test_what_somebody_has_claimed_may_be_in_its_first_step(b: Box) -> None:
    (claim,) = b.k.rows("select * from underseal.claim_due('w', '{f}', '30 s')")
    assert claim["status"] == "pending"
    assert outcome(cancel(b)) == ("requested", None)
    assert b.execution()["status"] == "running"
    assert replace(b, fence=claim["fence"]).write("cancelled")["outcome"] == "cancelled"


@pytest.mark.clause("E6e")
def test_a_claim_that_has_run_out_is_no_driver(b: Box) -> None:
    b.k.rows("select * from underseal.claim_due('w', '{f}', '30 s')")
    b.k.clock.advance(seconds=31)
    assert outcome(cancel(b)) == ("cancelled", None)


@pytest.mark.clause("E6e")
@pytest.mark.parametrize("parked", [False, True])
def test_whoever_drives_is_asked_to_clean_up(b: Box, parked: bool) -> None:
    b.step()
    if parked:
        b.park(w=["a"])
    assert outcome(cancel(b, reason="enough")) == ("requested", None)
    row = b.execution()
    assert (row["status"], row["cancel_requested"], row["fence"], row["waits"]) == ("running", True, 1, None)
    assert (b.types()[-1], b.log()[-1]["data"]) == (
        "EXECUTION_CANCEL_REQUESTED",
        {"principal": "ann", "reason": "enough"},
    )
    assert b.wakes() == ["drive"]
    before = b.k.everything()
    assert outcome(cancel(b)) == ("unchanged", None)
    assert b.k.everything() == before
    assert b.write("cancelled", reason="cleaned up")["status"] == "cancelled"


@pytest.mark.clause("E6e", "E7a")
def test_a_park_does_not_bury_the_wish_to_cancel(b: Box) -> None:
    b.step()
    cancel(b)
    before = b.k.everything()
    waits = [{"wait": "w", "arms": [{"topic": "a"}]}]
    refused = b.write("park", waits=waits)
    assert (refused["outcome"], refused["reason"], refused["cancel_requested"]) == (
        "conflict",
        "cancel-requested",
        True,
    )
    assert "cancel_told" in refused["message"]
    assert b.k.everything() == before
    assert b.write("park", waits=waits, cancel_told=False)["reason"] == "cancel-requested"
    # a driver that was told may park while it cleans up
    assert b.write("park", waits=waits, cancel_told=True)["outcome"] == "parked"


@pytest.mark.clause("E6e")
@pytest.mark.parametrize("parked", [False, True])
@pytest.mark.parametrize("asked", [False, True])
def test_force_ends_it_and_shuts_its_driver_out(b: Box, parked: bool, asked: bool) -> None:
    b.step()
    if parked:
        b.park(w=["a"])
    if asked:
        cancel(b)
    assert outcome(cancel(b, force=True)) == ("cancelled", None)
    row = b.execution()
    assert (row["status"], row["fence"], row["waits"]) == ("cancelled", 2, None)
    assert b.wakes() == []
    assert outcome(b.step()) == ("conflict", "stale-fence")


@pytest.mark.clause("E6e")
@pytest.mark.parametrize("verb", ["complete", "fail", "cancelled", "continue"])
@pytest.mark.parametrize("force", [False, True])
def test_an_end_is_not_cancelled(b: Box, verb: str, force: bool) -> None:
    b.write(verb)
    before = b.k.everything()
    assert outcome(cancel(b, force=force)) == ("conflict", "ended")
    assert b.k.everything() == before


def test_a_reason_is_short(b: Box) -> None:
    before = b.k.everything()
    assert outcome(cancel(b, reason="x" * 1001)) == ("refused", "malformed-reason")
    assert b.k.everything() == before
    assert outcome(cancel(b, reason="x" * 1000)) == ("cancelled", None)


@pytest.mark.clause("E6f")
@pytest.mark.parametrize("verb", ["append", "park", "complete", "fail", "cancelled", "continue"])
def test_an_outcome_is_recorded_whatever_the_status_and_changes_nothing_else(b: Box, verb: str) -> None:
    b.write(verb, **({"waits": [{"wait": "w", "arms": [{"topic": "a"}]}]} if verb == "park" else {}))
    before = b.execution()
    row = b.k.call("record_outcome", b.id, '{"paid": 1.50}', "ann")
    assert (outcome(row), row["seq"]) == (("recorded", None), before["head"] + 1)
    after = b.execution()
    assert {**after, "changed_at": None} == {**before, "head": before["head"] + 1, "changed_at": None}
    (event,) = [event for event in b.log() if event["type"] == "OUTCOME_RECORDED"]
    assert event["data"] == {"outcome": {"paid": 1.5}, "principal": "ann"}
    assert '{"paid": 1.50}' in event["text"]
    assert b.k.call("record_outcome", b.id, None, "ann")["seq"] == before["head"] + 2


@pytest.mark.parametrize(
    ("value", "reason"),
    [('{"__loomEnc": "x"}', "envelope"), ('{"a": {"$shredded": true}}', "envelope"), ('"\\u0000"', "unreadable"),
     (json.dumps("x" * 1024 * 1024), "too-large")],
)  # fmt: skip
def test_an_outcome_holds_nothing_sealed_and_is_not_large(b: Box, value: str, reason: str) -> None:
    before = b.k.everything()
    assert outcome(b.k.call("record_outcome", b.id, value, "ann")) == ("refused", reason)
    assert b.k.everything() == before


VERBS: tuple[tuple[str, str, tuple[Any, ...]], ...] = (
    ("cancel", "cancel_execution", ("%who",)),
    ("outcome", "record_outcome", ("1", "%who")),
    ("fork", "fork_execution", (0, "%who")),
    ("resume", "resume_gate", ("ok", "1", "%who")),
    ("migrate", "migrate_execution", (2, "%who")),
    ("read", "load_snapshot", ("%who",)),
    ("read", "get_content", (b"x", "%who")),
)


def ask(
    b: Box, verb: str, arguments: tuple[Any, ...], who: str | None, execution_id: str | None = None
) -> Row:
    """Call a verb as somebody."""
    return b.k.call(verb, execution_id or b.id, *(who if one == "%who" else one for one in arguments))


@pytest.mark.clause("E12c")
@pytest.mark.parametrize(("op", "verb", "arguments"), VERBS)
def test_a_stranger_and_who_asks_for_what_is_not_there_are_told_the_same(
    b: Box, op: str, verb: str, arguments: tuple[Any, ...]
) -> None:
    def but_denials() -> dict[str, list[str]]:
        return {name: rows for name, rows in b.k.everything().items() if name != "execution_denial"}

    before = but_denials()
    foreign = ask(b, verb, arguments, "mallory")
    missing = ask(b, verb, arguments, "ann", "nothing")
    assert outcome(foreign) == DENIED
    assert foreign == missing
    assert but_denials() == before
    denials = b.k.rows("select op, execution_id, principal, cause from underseal.execution_denials")
    assert denials == [
        {"op": op, "execution_id": "nothing", "principal": "ann", "cause": "missing"},
        {"op": op, "execution_id": b.id, "principal": "mallory", "cause": "foreign"},
    ]
    assert outcome(ask(b, verb, arguments, "ann")) != DENIED


@pytest.mark.clause("E12a")
@pytest.mark.parametrize(("op", "verb", "arguments"), VERBS)
def test_nobody_is_denied(b: Box, op: str, verb: str, arguments: tuple[Any, ...]) -> None:
    assert outcome(ask(b, verb, arguments, "")) == DENIED


@pytest.mark.clause("E12c")
@pytest.mark.parametrize(("op", "verb", "arguments"), VERBS[:5])
def test_a_denied_call_locks_nothing(b: Box, op: str, verb: str, arguments: tuple[Any, ...]) -> None:
    # a row that is locked says by whom
    who = "select xmax::text from underseal.execution where chain_id = %s"
    with b.k.connection.transaction(force_rollback=True):
        before = b.k.value(who, b.id)
        ask(b, verb, arguments, "mallory")
        assert b.k.value(who, b.id) == before


@pytest.mark.clause("E12a")
def test_an_operator_cancels_and_records(k: Kernel, b: Box) -> None:
    k.do("select * from underseal.map_login('underseal_owner', 'op')")
    k.do("select * from underseal.grant_access('underseal_owner', 'operator')")
    assert outcome(b.k.call("record_outcome", b.id, "1", "op")) == ("recorded", None)
    assert outcome(cancel(b, "op")) == ("cancelled", None)
    assert b.log()[-1]["data"]["principal"] == "op"
