"""Starting, and the fence: whoever takes it shuts every older holder out (clauses E1, E2, E3, E8)."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from tests.held.sql.kernel import Kernel, Row, outcome
from tests.inbox.box import Box
from underseal.testing import DictConnection

STEP = json.dumps([{"type": "STEP_COMPLETED", "data": {"n": 1}}])
NOBODY = UUID(int=0)


def append(b: Box, fence: int) -> Row:
    """Append one event in one call."""
    return b.k.call("append", b.id, fence, STEP)


def seen(b: Box, **changes: Any) -> list[Any]:
    """Head, fence and incarnation as they are; `changes` are what was seen instead."""
    row = b.execution()
    return list({name: changes.get(name, row[name]) for name in ("head", "fence", "incarnation")}.values())


def end(b: Box) -> Box:
    """End it."""
    assert b.write("complete")["outcome"] == "completed"
    return b


# -- start -------------------------------------------------------------------------------------------


@pytest.mark.clause("E1c")
def test_an_execution_begins_with_its_first_event(k: Kernel) -> None:
    row = k.call("start_execution", "onboard", "ann", '{"order": 1.50}')
    assert outcome(row) == ("started", None)
    b = Box(k, row["execution_id"])
    assert len(b.id) == 32
    (event,) = b.log()
    assert (event["seq"], event["type"]) == (0, "EXECUTION_STARTED")
    assert '{"order": 1.50}' in event["text"]
    assert event["data"]["owner"] == "ann"
    row = b.execution()
    assert (row["status"], row["flow"], row["flow_version"], row["owner"], row["fence"]) == (
        "pending", "onboard", 1, "ann", 1,
    )  # fmt: skip
    assert b.wakes() == ["drive"]


@pytest.mark.clause("E3")
@pytest.mark.parametrize("sealed", [False, True])
def test_an_id_that_is_taken_is_refused_whoever_has_it(b: Box, sealed: bool) -> None:
    if sealed:
        b.k.do(
            "insert into underseal.event (chain_id, member, seq, recorded_at, type, data, metadata)"
            " values (%s, '', 1, underseal.clock(), 'STEP_COMPLETED', '{}', %s)",
            b.id, json.dumps({"seal": {"v": 1, "cipher": "x", "covers": ["STEP_COMPLETED.output"]}}),
        )  # fmt: skip
    before = b.k.everything()
    answers = [b.k.call("start_execution", "other", who, None, b.id) for who in ("ann", "mallory")]
    assert [outcome(row) for row in answers] == [("exists", None)] * 2
    assert answers[0] == answers[1]
    assert b.k.everything() == before


@pytest.mark.clause("E3")
@pytest.mark.parametrize("other", ["end", "continue"])
def test_an_id_stays_taken_after_the_end(b: Box, other: str) -> None:
    first = b.id
    end(b) if other == "end" else b.go_on()
    assert b.k.call("start_execution", "f", "ann", None, first)["outcome"] == "exists"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"execution_id": "a\nb"}, "malformed-id"),
        ({"execution_id": "x" * 201}, "malformed-id"),
        ({"execution_id": ""}, "malformed-id"),
        ({"flow": ""}, "malformed-flow"),
        ({"flow": None}, "malformed-flow"),
        ({"flow_version": 0}, "malformed-flow"),
        ({"after": "-1 second"}, "malformed-delay"),
        ({"after": "3651 days"}, "malformed-delay"),
        ({"input": '{"a": {"__loomEnc": "x"}}'}, "envelope"),
        ({"input": json.dumps("x" * 1024 * 1024)}, "too-large"),
    ],
)
def test_what_is_malformed_is_not_started(k: Kernel, change: dict[str, Any], reason: str) -> None:
    before = k.everything()
    wanted = {
        "flow": "f", "principal": "ann", "input": None, "execution_id": None, "flow_version": 1, "after": None,
        **change,
    }  # fmt: skip
    (row,) = k.rows(
        "select * from underseal.start_execution(%s, %s, %s::json, %s, %s, %s::interval)", *wanted.values()
    )
    assert outcome(row) == ("refused", reason)
    assert k.everything() == before


@pytest.mark.clause("E6c", "E12b")
def test_a_child_is_started_in_a_chain_of_its_owner_alone(b: Box) -> None:
    before = b.k.everything()
    told = [
        {**b.k.call("start_execution", "f", who, None, name), "execution_id": None}
        for who, name in (("ann", "nothing~pay"), ("mallory", f"{b.chain}~pay"))
    ]
    assert outcome(told[0]) == ("not-found", None)
    assert told[1] == told[0]
    assert b.k.everything() == before
    # nor beside one that is there
    assert Box(b.k, f"{b.chain}~pay").start().execution()["owner"] == "ann"
    assert outcome(b.k.call("start_execution", "f", "mallory", None, f"{b.chain}~pay")) == ("not-found", None)
    # whose chain it is says its first execution, whatever became of that
    end(b)
    assert b.k.call("start_execution", "f", "ann", None, f"{b.chain}~ship")["outcome"] == "started"


def test_nobody_starts_nothing(k: Kernel) -> None:
    assert outcome(k.call("start_execution", "f", "")) == ("denied", "no-principal")


def test_a_start_may_wait(k: Kernel) -> None:
    (row,) = k.rows("select * from underseal.start_execution('f', 'ann', after => '90 minutes')")
    wake = k.value("select wake_at from underseal.wake where chain_id = %s", row["execution_id"])
    assert (wake - k.clock.now()).total_seconds() == 5400


# -- append ------------------------------------------------------------------------------------------


@pytest.mark.clause("E2a", "E2b")
def test_only_the_current_fence_appends(b: Box) -> None:
    assert append(b, 1)["outcome"] == "appended"
    assert b.k.call("acquire_fence", b.id)["fence"] == 2
    before = b.k.everything()
    for stale in (1, 3, 0, None):
        assert outcome(append(b, stale)) == ("conflict", "stale-fence")  # type: ignore[arg-type]
    assert b.k.everything() == before
    row = append(b, 2)
    assert (row["outcome"], row["head"], row["fence"], row["status"]) == ("appended", 2, 2, "running")


@pytest.mark.clause("E2c", "E2d")
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"head": 0}, "moved"),
        ({"head": 2}, "moved"),
        ({"head": None}, "moved"),
        ({"fence": 2}, "stale-fence"),
        ({"fence": None}, "stale-fence"),
        ({"incarnation": uuid4()}, "gone"),
        ({"incarnation": None}, "gone"),
    ],
)
def test_what_was_observed_must_still_be_so(b: Box, change: dict[str, Any], reason: str) -> None:
    append(b, 1)
    before = b.k.everything()
    assert outcome(b.k.call("append_if_unchanged", b.id, *seen(b, **change), STEP)) == ("conflict", reason)
    assert outcome(b.k.call("acquire_fence_if", b.id, *seen(b, **change))) == ("conflict", reason)
    assert outcome(b.k.call("recover_execution", b.id, *seen(b, **change), "w", "1 minute")) == (
        "conflict",
        reason,
    )
    assert b.k.everything() == before


@pytest.mark.clause("E2c", "E2b")
def test_what_is_as_observed_succeeds(b: Box) -> None:
    append(b, 1)
    row = b.k.call("append_if_unchanged", b.id, *seen(b), STEP)
    assert (row["outcome"], row["head"]) == ("appended", 2)
    taken = b.k.call("acquire_fence_if", b.id, *seen(b))
    assert (taken["outcome"], taken["fence"], taken["head"], taken["status"]) == ("acquired", 2, 2, "running")
    assert taken["incarnation"] == b.execution()["incarnation"]
    assert outcome(append(b, 1)) == ("conflict", "stale-fence")


# -- acquire -----------------------------------------------------------------------------------------


@pytest.mark.clause("E2b")
def test_a_fence_is_taken_over_and_over_and_only_grows(b: Box) -> None:
    taken = [b.k.call("acquire_fence", b.id) for _ in range(3)]
    assert [(row["outcome"], row["fence"]) for row in taken] == [("acquired", n) for n in (2, 3, 4)]
    assert {row["incarnation"] for row in taken} == {b.execution()["incarnation"]}


def test_a_parked_execution_s_fence_is_taken_too(b: Box) -> None:
    b.park(w=["a"])
    row = b.k.call("acquire_fence", b.id)
    assert (row["outcome"], row["status"], row["head"]) == ("acquired", "suspended", 1)


def test_what_has_ended_has_no_driver(b: Box) -> None:
    end(b)
    before = b.k.everything()
    row = b.k.call("acquire_fence", b.id)
    assert (outcome(row), row["fence"], row["status"]) == (("conflict", "ended"), 1, "completed")
    assert outcome(b.k.call("acquire_fence_if", b.id, *seen(b))) == ("conflict", "ended")
    assert outcome(b.k.call("recover_execution", b.id, *seen(b), "w", "1 minute")) == (
        "conflict",
        "not-running",
    )
    assert b.k.everything() == before


def test_what_is_not_there_has_no_fence(k: Kernel) -> None:
    before = k.everything()
    for verb, *rest in (
        ("acquire_fence",),
        ("acquire_fence_if", 0, 1, NOBODY),
        ("recover_execution", 0, 1, NOBODY, "w", "1 minute"),
        ("append", 1, STEP),
    ):
        assert outcome(k.call(verb, "nothing", *rest)) == ("not-found", None)
    assert k.everything() == before


@pytest.mark.clause("E2d", "E2e")
def test_an_id_taken_again_is_another_execution_and_begins_above_its_last_fence(b: Box) -> None:
    b.take()
    b.take()
    observed = seen(b)
    end(b)
    assert b.k.call("delete_chain", b.id, "op")["outcome"] == "deleted"
    b.start()
    assert b.execution()["fence"] == 4
    b.fence = 4
    # head and fence as they were, of another execution
    observed[:2] = seen(b)[:2]
    assert outcome(b.k.call("append_if_unchanged", b.id, *observed, STEP)) == ("conflict", "gone")
    assert outcome(b.k.call("acquire_fence_if", b.id, *observed)) == ("conflict", "gone")
    for stale in (1, 2, 3):
        assert outcome(append(b, stale)) == ("conflict", "stale-fence")
    end(b)
    b.k.call("delete_chain", b.id, "op")
    b.start()
    assert b.execution()["fence"] == 5


# -- recover -----------------------------------------------------------------------------------------


def recover(b: Box, worker: str = "w2", most: int = 3, lease: str = "30 seconds") -> Row:
    """Take it over as it is."""
    return b.k.call("recover_execution", b.id, *seen(b), worker, lease, most)


@pytest.mark.clause("E8a")
@pytest.mark.parametrize("begun", [False, True])
def test_an_execution_is_taken_over_with_its_wake(b: Box, begun: bool) -> None:
    if begun:
        append(b, 1)
    head = b.execution()["head"]
    row = recover(b)
    assert (row["outcome"], row["fence"], row["head"], row["status"]) == ("recovered", 2, head + 1, "running")
    assert (b.log()[-1]["type"], b.log()[-1]["data"]) == (
        "EXECUTION_RECOVERED",
        {"worker": "w2", "attempt": 1},
    )
    (wake,) = b.k.rows("select * from underseal.wake where chain_id = %s", b.chain)
    assert (wake["kind"], wake["claimed_by"], wake["attempts"]) == ("drive", "w2", 1)
    assert (wake["claimed_until"] - b.k.clock.now()).total_seconds() == 30
    assert outcome(append(b, 1)) == ("conflict", "stale-fence")
    assert append(b, 2)["outcome"] == "appended"


@pytest.mark.clause("E8a")
def test_a_wake_that_was_lost_comes_back_with_a_recovery(b: Box) -> None:
    append(b, 1)
    b.k.do("delete from underseal.wake where chain_id = %s", b.chain)
    recover(b)
    assert b.wakes() == ["drive"]


@pytest.mark.clause("E8a")
def test_a_claim_that_holds_is_not_taken_over(b: Box) -> None:
    append(b, 1)
    recover(b, "w1")
    before = b.k.everything()
    assert outcome(recover(b, "w2")) == ("conflict", "claimed")
    assert b.k.everything() == before
    b.k.clock.advance(seconds=30)
    assert recover(b, "w2")["outcome"] == "recovered"
    # and who claimed it may take it over from a run of its own that is lost
    assert recover(b, "w2")["outcome"] == "recovered"


@pytest.mark.clause("E8b")
def test_after_so_many_tries_without_progress_an_operator_is_called(b: Box) -> None:
    append(b, 1)
    assert [recover(b, most=2)["outcome"] for _ in range(2)] == ["recovered"] * 2
    row, head = b.execution(), b.execution()["head"]
    for _ in range(2):
        assert outcome(recover(b, most=2)) == ("refused", "exhausted")
    assert (b.execution(), b.execution()["head"]) == (row, head)
    (report,) = b.k.rows("select kind, times from underseal.operator_reports where subject = %s", b.id)
    assert report == {"kind": "recoveries-exhausted", "times": 2}
    append(b, 3)
    assert recover(b, most=2)["outcome"] == "recovered"
    assert b.log()[-1]["data"]["attempt"] == 1


@pytest.mark.parametrize(
    "claim", [("", "1 minute", 3), ("w" * 201, "1 minute", 3), ("w", "0", 3), ("w", "61 minutes", 3), ("w", None, 3),
              ("w", "1 minute", 0)],
)  # fmt: skip
def test_a_malformed_claim_recovers_nothing(b: Box, claim: tuple[Any, ...]) -> None:
    before = b.k.everything()
    assert outcome(b.k.call("recover_execution", b.id, *seen(b), *claim)) == ("refused", "malformed-claim")
    assert b.k.everything() == before


def test_what_is_parked_is_not_taken_over(b: Box) -> None:
    b.park(w=["a"])
    assert outcome(recover(b)) == ("conflict", "not-running")


LOCKING = (
    ("start_execution", "f", "ann"),
    ("start_executions", "[]"),
    ("append", "x", 1, STEP),
    ("append_if_unchanged", "x", 0, 1, NOBODY, STEP),
    ("acquire_fence", "x"),
    ("acquire_fence_if", "x", 0, 1, NOBODY),
    ("recover_execution", "x", 0, 1, NOBODY, "w", "1 minute"),
    ("cancel_execution", "x", "ann"),
    ("migrate_execution", "x", 2, "ann"),
    ("report_divergence", "x", 1, "cause"),
    ("deliver_batch", "[]"),
    ("resume_gate", "x", "g", "1", "ann"),
    ("record_outcome", "x", "1", "ann"),
    ("fork_execution", "x", 0, "ann"),
    ("truncate_prefix", "x", 1, "op"),
    ("delete_chain", "x", "op"),
    ("purge_executions", "1 day"),
    ("put_content", "x", "1", 1),
    ("sweep_content",),
    ("save_snapshot", "x", 1, 0, "1"),
)


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_who_locks_and_judges_needs_read_committed(db: DictConnection, level: str) -> None:
    for verb, *arguments in LOCKING:
        places = ", ".join(["%s"] * len(arguments))
        with db.transaction(force_rollback=True):
            db.execute(f"set transaction isolation level {level}")
            with pytest.raises(psycopg.Error) as caught, db.transaction():
                db.execute(f"select * from underseal.{verb}({places})", arguments)
        assert caught.value.sqlstate == "US008", verb
