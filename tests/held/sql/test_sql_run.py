"""What the owner of a run may do, and what becomes of a run that was cut off."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from tests.held.sql.kernel import Claimed, Kernel, outcome

LEASE = timedelta(minutes=15)
Verb = Callable[[Kernel, Claimed], dict[str, Any]]


def renew(k: Kernel, run: Claimed) -> dict[str, Any]:
    return k.call("renew_run", run.operation, run.token)


def mark(k: Kernel, run: Claimed) -> dict[str, Any]:
    return k.call("record_progress", run.operation, run.token, "half")


def ticket(k: Kernel, run: Claimed) -> dict[str, Any]:
    return k.call("issue_ticket", run.operation, run.token)


def finish(k: Kernel, run: Claimed) -> dict[str, Any]:
    return k.finish(run)


VERBS: dict[str, Verb] = {"renew": renew, "mark": mark, "ticket": ticket, "finish": finish}
EVERY_VERB = pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS.keys())


@pytest.mark.clause("H8.1a")
def test_a_renewal_holds_for_another_15_minutes_from_now(k: Kernel) -> None:
    run = k.executing()
    k.clock.advance(minutes=10)
    answer = renew(k, run)
    assert outcome(answer) == ("renewed", None)
    assert answer["lease_until"] == k.operation(run.operation)["run_lease_until"] == k.clock.now() + LEASE
    assert k.events(run.operation) == ["requested", "approved", "claimed"]


@pytest.mark.clause("H6.7d")
def test_a_mark_of_progress_is_an_audit_entry_under_the_run_s(k: Kernel) -> None:
    run = k.executing()
    assert outcome(mark(k, run)) == ("recorded", None)
    (entry,) = k.audit(run.operation, "progress")
    assert entry["parent_id"] == k.operation(run.operation)["run_audit_id"]
    assert (entry["principal"], entry["detail"], entry["recorded_at"]) == (
        "ann",
        {"note": "half"},
        k.clock.now(),
    )


@pytest.mark.clause("H6.6f")
@EVERY_VERB
def test_only_the_claimer_s_token_counts(k: Kernel, verb: Verb) -> None:
    run = k.executing()
    other = k.executing()
    before = k.everything()
    for token in (b"", b"x" * 32, None, other.token, k.operation(run.operation)["run_token_hash"]):
        answer = verb(k, Claimed(run.operation, run.run, token))  # type: ignore[arg-type]
        assert outcome(answer) == ("conflict", "not-your-run")
    assert k.everything() == before
    assert verb(k, run)["outcome"] in ("renewed", "recorded", "issued", "finished")


@EVERY_VERB
def test_an_operation_that_is_not_there_has_no_run(k: Kernel, verb: Verb) -> None:
    run = k.executing()
    assert outcome(verb(k, Claimed(uuid4(), run.run, run.token))) == ("conflict", "not-found")


@pytest.mark.parametrize("state", ["SUCCEEDED", "FAILED", "REFUSED"])
@EVERY_VERB
def test_an_ended_run_goes_no_further(k: Kernel, verb: Verb, state: str) -> None:
    run = k.executing()
    k.finish(run, state, "because")
    before = k.everything()
    answer = verb(k, run)
    assert outcome(answer) == ("conflict", "already-ended")
    assert state in answer["message"]
    assert k.everything() == before


@pytest.mark.clause("H4.4d", "H9.1a")
@pytest.mark.parametrize("verb", [renew, mark, ticket], ids=["renew", "mark", "ticket"])
def test_a_run_without_its_lease_goes_no_further(k: Kernel, verb: Verb) -> None:
    run = k.executing()
    k.clock.advance(minutes=15)
    before = k.everything()
    assert outcome(verb(k, run)) == ("conflict", "lease-lost")
    assert k.everything() == before
    k.calls("sweep_operations")
    before = k.everything()
    assert outcome(verb(k, run)) == ("conflict", "lease-lost")
    assert k.everything() == before


@pytest.mark.parametrize("verb", [renew, mark, ticket, finish], ids=["renew", "mark", "ticket", "finish"])
def test_a_run_goes_on_until_the_end_of_its_lease(k: Kernel, verb: Verb) -> None:
    run = k.executing()
    k.clock.advance(minutes=15, microseconds=-1)
    assert verb(k, run)["outcome"] in ("renewed", "recorded", "issued", "finished")


@pytest.mark.clause("H2.7")
@pytest.mark.parametrize("state", ["SUCCEEDED", "FAILED", "REFUSED", "OUTCOME_UNKNOWN"])
def test_a_finish_ends_it_and_wipes_the_payload(k: Kernel, state: str) -> None:
    run = k.executing()
    k.clock.advance(minutes=1)
    answer = k.finish(run, state, "a-reason", "in words", {"n": 1})
    row = k.operation(run.operation)
    assert (outcome(answer), answer["state"], row["state"]) == (("finished", None), state, state)
    assert (row["sealed_payload"], row["payload_key_id"], row["fingerprint"], row["fingerprint_key_id"]) == (
        None,
    ) * 4
    assert (row["outcome_reason"], row["outcome_detail"]) == ("a-reason", "in words")
    assert row["result"] == ({"n": 1} if state == "SUCCEEDED" else None)
    assert row["ended_at"] == row["changed_at"] == k.clock.now()
    last = k.timeline(run.operation)[-1]
    assert (last["type"], last["actor"], last["from_state"], last["reason"]) == (
        state.lower().replace("_", "-"),
        "worker:w1",
        "EXECUTING",
        "a-reason",
    )
    (entry,) = k.audit(run.operation, "result")
    assert (entry["parent_id"], entry["principal"]) == (row["run_audit_id"], "ann")
    assert entry["detail"] == {"state": state, "reason": "a-reason", "detail": "in words"}


@pytest.mark.parametrize("state", ["HELD", "APPROVED", "EXECUTING", "CANCELLED", "EXPIRED", "DONE", "", None])
def test_a_run_ends_in_one_of_four_ways(k: Kernel, state: str | None) -> None:
    run = k.executing()
    before = k.everything()
    with pytest.raises(psycopg.Error) as caught:
        k.finish(run, state)
    assert caught.value.sqlstate == "US001"
    assert k.everything() == before


@pytest.mark.clause("H8.3a", "H8.3b", "H8.2a")
@pytest.mark.parametrize("swept", [False, True])
@pytest.mark.parametrize("state", ["SUCCEEDED", "FAILED"])
def test_a_finish_without_the_lease_is_refused_and_on_the_timeline(
    k: Kernel, state: str, swept: bool
) -> None:
    run = k.executing()
    k.clock.advance(minutes=15)
    if swept:
        k.calls("sweep_operations")
        k.clock.advance(minutes=1)
    answer = k.finish(run, state, "a-reason", None, {"n": 1})
    row = k.operation(run.operation)
    assert (outcome(answer), answer["state"]) == (("conflict", "lease-lost"), "OUTCOME_UNKNOWN")
    assert (row["state"], row["outcome_reason"], row["result"]) == ("OUTCOME_UNKNOWN", "lease-lost", None)
    assert k.events(run.operation)[-2:] == ["outcome-unknown", "late-finish"]
    late = k.timeline(run.operation)[-1]
    assert (late["actor"], late["reason"], late["detail"]) == ("worker:w1", "lease-lost", {"would_be": state})
    assert (late["from_state"], late["to_state"]) == ("OUTCOME_UNKNOWN", "OUTCOME_UNKNOWN")
    assert k.audit(run.operation, "result") == []
    before = k.everything()
    assert outcome(k.finish(run, state)) == ("conflict", "lease-lost")
    assert k.everything() == before


@pytest.mark.clause("H8.3a")
def test_a_stranger_s_finish_after_the_lease_is_lost_is_not_on_the_timeline(k: Kernel) -> None:
    run = k.executing()
    k.clock.advance(minutes=15)
    before = k.everything()
    assert outcome(k.finish(run, token=b"x" * 32)) == ("conflict", "not-your-run")
    assert k.everything() == before


@pytest.mark.clause("H8.4a", "H8.4b")
def test_an_unknown_outcome_says_how_far_it_got_and_to_ask_again(k: Kernel) -> None:
    run = k.executing()
    for note in ("sent the order", "got the receipt"):
        k.clock.advance(seconds=1)
        k.call("record_progress", run.operation, run.token, note)
    at = k.clock.now()
    k.clock.advance(minutes=15)
    k.calls("sweep_operations")
    detail = k.operation(run.operation)["outcome_detail"]
    assert f'its last mark is "got the receipt", of {at:%Y-%m-%d %H:%M:%S} UTC.' in detail
    assert "Ask again" in detail


@pytest.mark.clause("H8.4b")
def test_an_unknown_outcome_says_when_nothing_was_marked(k: Kernel) -> None:
    marked = k.executing()
    mark(k, marked)
    run = k.executing()
    k.clock.advance(minutes=15)
    k.calls("sweep_operations")
    assert "it left no mark of progress" in k.operation(run.operation)["outcome_detail"]
    assert '"half"' in k.operation(marked.operation)["outcome_detail"]


@pytest.mark.clause("H8.2b")
def test_nothing_runs_an_unknown_outcome_again(k: Kernel) -> None:
    run = k.executing()
    k.clock.advance(minutes=15)
    k.calls("sweep_operations")
    before = k.everything()
    assert outcome(k.claims(only=run.operation)[0]) == ("conflict", "not-approved")
    assert k.claims() == []
    assert k.calls("sweep_operations") == []
    assert outcome(k.approve(run.operation, "carol")) == ("conflict", "already-decided")
    assert outcome(k.cancel(run.operation)) == ("conflict", "already-decided")
    assert outcome(renew(k, run)) == ("conflict", "lease-lost")
    assert k.everything() == before
