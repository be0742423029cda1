"""Moving an execution to another version of its flow (clauses E6, E12)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.held.sql.kernel import Kernel, Row, outcome
from tests.inbox.box import Box, box
from underseal.log.client import Executions


def migrate(b: Box, version: int | None = 2, who: str | None = "ann") -> Row:
    """Migrate."""
    return b.k.call("migrate_execution", b.id, version, who)


def wakes(b: Box) -> list[Row]:
    """Its wakes."""
    return b.k.rows(
        "select kind, wake_at, claimed_by, claimed_until, attempts from underseal.wake where chain_id = %s"
        " and member = %s order by kind",
        *b.place,
    )


def due_now(b: Box) -> list[Row]:
    """What the wakes of one that is to be driven at once are."""
    return [
        {"kind": "drive", "wake_at": b.k.clock.now(), "claimed_by": None, "claimed_until": None, "attempts": 0}
    ]  # fmt: skip


def verified(b: Box) -> bool:
    """Whether tables and log agree."""
    return Executions("").verify(b.id, connection=b.k.connection).outcome == "verified"


@pytest.mark.clause("E2b", "E6g", "E8a")
@pytest.mark.parametrize("version", [2, 7])
def test_whoever_drives_it_is_shut_out_and_it_is_due_at_once(b: Box, version: int) -> None:
    b.step()
    b.k.calls("claim_due", "w1", ["f"], "10 minutes")
    b.k.clock.advance(seconds=20)
    b.fence = b.execution()["fence"]
    assert outcome(migrate(b, version)) == ("migrated", None)
    row = b.execution()
    assert (row["status"], row["flow_version"], row["fence"]) == ("running", version, b.fence + 1)
    assert (b.types()[-1], b.log()[-1]["data"]) == (
        "EXECUTION_MIGRATED",
        {"flow_version": version, "principal": "ann"},
    )
    assert wakes(b) == due_now(b)
    assert outcome(b.step()) == ("conflict", "stale-fence")
    assert [row["outcome"] for row in b.k.calls("renew_claims", "w1", [b.id], "10 minutes")] == ["lost"]
    (claim,) = b.k.calls("claim_due", "w2", ["f"], "10 minutes")
    assert (claim["flow_version"], claim["attempts"]) == (version, 1)
    assert verified(b)


@pytest.mark.clause("E6g", "E7b")
@pytest.mark.parametrize("claimed", [False, True])
def test_a_parked_one_runs_again_and_keeps_its_instants(b: Box, claimed: bool) -> None:
    b.park(w1=[60.0, "a"], w2=["b"])
    before = b.execution()["waits"]
    b.k.clock.advance(seconds=20)
    b.put("c")
    if claimed:
        b.k.clock.advance(seconds=40)
        assert len(b.k.calls("claim_due", "w1", ["f"], "10 minutes")) == 1
    assert outcome(migrate(b)) == ("migrated", None)
    row = b.execution()
    assert (row["status"], row["waits"]) == ("running", before)
    assert wakes(b) == due_now(b)
    assert verified(b)
    b.take()
    # the instant is the one of the first park, not 60 seconds from now
    answered = b.park(w1=[60.0, "a"], w3=[5.0])
    assert answered == ("answered" if claimed else "parked")
    waits = {one["wait"]: one["arms"] for one in b.log()[-2 if claimed else -1]["data"]["waits"]}
    assert waits["w1"] == before[0]["arms"]
    assert verified(b)


@pytest.mark.clause("E6g", "E7a")
def test_what_a_parked_one_waited_for_is_still_delivered(b: Box) -> None:
    b.park(w=["a"])
    b.put("a")
    migrate(b)
    assert [wake["kind"] for wake in wakes(b)] == ["drive"]
    b.take()
    assert b.deliver()["answered"] == 1
    assert b.delivered() == [("w", 1)]
    assert (b.status, verified(b)) == ("running", True)


@pytest.mark.clause("E5b", "E6g")
def test_one_that_was_parked_as_diverged_goes_on(b: Box) -> None:
    b.park()
    assert wakes(b) == []
    assert outcome(migrate(b)) == ("migrated", None)
    assert wakes(b) == due_now(b)


@pytest.mark.clause("E6g")
def test_a_start_that_a_worker_without_its_code_put_off_is_due(b: Box) -> None:
    assert len(b.k.calls("claim_due", "w1", ["f"], "1 minute")) == 1
    assert b.k.call("release_claim", b.id, "w1", "1 minute")["outcome"] == "released"
    assert b.k.calls("claim_due", "w2", ["f"], "1 minute") == []
    assert outcome(migrate(b)) == ("migrated", None)
    assert len(b.k.calls("claim_due", "w2", ["f"], "1 minute")) == 1


@pytest.mark.clause("E6g")
def test_a_start_that_was_put_off_stays_so(k: Kernel) -> None:
    b = Box(k, "later")
    assert b.write("start", flow="f", flow_version=3, principal="ann", after="1 hour")["outcome"] == "started"
    begins = k.clock.now() + timedelta(hours=1)
    assert outcome(migrate(b)) == ("migrated", None)
    assert [wake["wake_at"] for wake in wakes(b)] == [begins]
    assert k.calls("claim_due", "w", ["f"], "10 minutes") == []
    k.clock.advance(hours=1)
    (claim,) = k.calls("claim_due", "w", ["f"], "10 minutes")
    assert (claim["flow_version"], claim["status"]) == (2, "running")


@pytest.mark.clause("E6g")
def test_one_that_has_not_begun_is_due(b: Box) -> None:
    migrate(b)
    assert wakes(b) == due_now(b)


@pytest.mark.clause("E6g")
def test_it_may_go_back_and_to_where_it_is_changes_nothing(b: Box) -> None:
    migrate(b, 5)
    before = b.k.everything()
    assert outcome(migrate(b, 5)) == ("unchanged", None)
    assert b.k.everything() == before
    assert outcome(migrate(b, 1)) == ("migrated", None)
    assert b.execution()["flow_version"] == 1


@pytest.mark.clause("E6g", "E8b")
def test_a_new_version_has_all_its_tries(b: Box) -> None:
    b.step()
    for _ in range(2):
        seen = b.k.call("head", b.id)
        b.k.call(
            "recover_execution", b.id, seen["head"], seen["fence"], seen["incarnation"], "w1", "1 minute"
        )
    assert b.execution()["recoveries"] == 2
    migrate(b)
    assert b.execution()["recoveries"] == 0


@pytest.mark.clause("E6g")
def test_who_was_asked_to_clean_up_still_is(b: Box) -> None:
    b.step()
    b.k.call("cancel_execution", b.id, "ann")
    migrate(b)
    assert b.execution()["cancel_requested"]


@pytest.mark.clause("E6g")
@pytest.mark.parametrize("verb", ["complete", "fail", "cancelled", "continue"])
def test_an_end_is_not_migrated(b: Box, verb: str) -> None:
    b.write(verb)
    before = b.k.everything()
    assert outcome(migrate(b)) == ("conflict", "ended")
    assert outcome(migrate(b, 1)) == ("conflict", "ended")
    assert b.k.everything() == before


@pytest.mark.parametrize("version", [0, -1, None])
def test_a_version_is_a_number_from_one(b: Box, version: int | None) -> None:
    before = b.k.everything()
    assert outcome(migrate(b, version)) == ("refused", "malformed-version")
    assert b.k.everything() == before


@pytest.mark.clause("E6g")
def test_others_of_the_chain_stay_as_they_are(b: Box) -> None:
    child = Box(b.k, f"{b.id}~pay").start()
    b.k.calls("claim_due", "w1", ["f"], "10 minutes")
    before = wakes(child), child.execution()
    migrate(b)
    assert (wakes(child), child.execution()) == before
    migrate(child, 3)
    assert (b.execution()["flow_version"], child.execution()["flow_version"]) == (2, 3)


@pytest.mark.clause("E12a")
def test_an_operator_migrates(k: Kernel, b: Box) -> None:
    k.do("select * from underseal.map_login('underseal_owner', 'op')")
    k.do("select * from underseal.grant_access('underseal_owner', 'operator')")
    assert outcome(migrate(b, who="op")) == ("migrated", None)
    assert b.log()[-1]["data"]["principal"] == "op"


# -- what operators are told --------------------------------------------------------------------------


def diverge(b: Box, cause: str | None = "expected step a, found step b", fence: int | None = None) -> Row:
    """Report."""
    return b.k.call("report_divergence", b.id, b.fence if fence is None else fence, cause)


def reports(b: Box) -> list[tuple[Any, ...]]:
    """What operators see."""
    rows = b.k.rows("select subject, kind, cause, times from underseal.operator_reports")
    return [tuple(row.values()) for row in rows]


@pytest.mark.clause("E5b")
def test_operators_are_told_what_has_diverged(b: Box) -> None:
    before = b.execution(), b.log()
    assert outcome(diverge(b)) == ("reported", None)
    b.park()
    assert outcome(diverge(b, "another")) == ("reported", None)
    assert reports(b) == [(b.id, "flow-diverged", "another", 2)]
    assert before[0]["flow_version"] == b.execution()["flow_version"]
    assert b.types() == ["EXECUTION_STARTED", "EXECUTION_SUSPENDED"]
    assert outcome(diverge(box(b.k), None)) == ("reported", None)


@pytest.mark.clause("E5b", "E2b")
def test_only_its_driver_says_so(b: Box) -> None:
    before = b.k.everything()
    for fence in (b.fence - 1, b.fence + 1):
        assert outcome(diverge(b, fence=fence)) == ("conflict", "stale-fence")
    assert outcome(b.k.call("report_divergence", b.id, None, "x")) == ("conflict", "stale-fence")
    assert outcome(b.k.call("report_divergence", "nothing", 1, "x")) == ("not-found", None)
    b.write("complete")
    assert outcome(diverge(b)) == ("conflict", "ended")
    assert b.k.everything()["operator_report"] == before["operator_report"] == []


@pytest.mark.clause("E5b")
def test_a_cause_is_short(b: Box) -> None:
    assert outcome(diverge(b, "x" * 1001)) == ("refused", "too-large")
    assert reports(b) == []
    assert outcome(diverge(b, "x" * 1000)) == ("reported", None)
