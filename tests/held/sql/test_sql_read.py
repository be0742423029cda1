"""Reading, for who asked and for who may decide; and the views for operators."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from tests.held.sql.kernel import (
    ENDED,
    HASH,
    HOLD_FOR,
    OPEN,
    RUN_WITHIN,
    TYPE,
    Kernel,
    as_text,
    outcome,
)


def look(k: Kernel, operation: Any, who: str | None = "ann") -> dict[str, Any]:
    return k.call("get_operation", operation, who)


@pytest.mark.clause("H4.7d", "H2.8a")
@pytest.mark.parametrize("who", ["ann", "bob"])
def test_the_requester_and_the_approvers_see_it(k: Kernel, who: str) -> None:
    operation = k.hold(token_id="t-secret")
    row = look(k, operation, who)
    assert outcome(row) == ("found", None)
    assert (row["type"], row["version"], row["mode"], row["state"]) == (TYPE, 1, "ON_APPROVAL", "HELD")
    assert (row["effect"], row["redacted"]) == ('{"closes":1}', '{"account":"a"}')
    assert (row["params_hash"], row["row_version"], row["votes_required"]) == (HASH, 1, 1)
    assert row["expires_at"] - row["requested_at"] == timedelta(seconds=HOLD_FOR)
    assert (row["votes"], row["now"]) == ([], k.clock.now())
    for hidden in ("t-secret", "__loomEnc", "abcdabcd"):
        assert hidden not in as_text([row])


@pytest.mark.clause("H4.7c")
def test_everybody_else_gets_one_and_the_same_answer(k: Kernel) -> None:
    def sight(rows: list[dict[str, Any]], operation: Any) -> str:
        return as_text(rows).replace(str(operation), "?").replace(repr(operation), "?")

    nothing = uuid4()
    expected = {
        verb: sight(k.calls(verb, nothing, "zed"), nothing) for verb in ("get_operation", "list_events")
    }
    for state in (*OPEN, *ENDED):
        operation = k.reach(state)
        for verb, answer in expected.items():
            assert sight(k.calls(verb, operation, "zed"), operation) == answer
        assert k.calls("list_operations", "zed", [*OPEN, *ENDED], 50, None) == []
        (beyond,) = k.calls("list_operations", "zed", [*OPEN, *ENDED], 50, operation)
        (missing,) = k.calls("list_operations", "zed", [*OPEN, *ENDED], 50, nothing)
        assert sight([beyond], operation) == sight([missing], nothing)
        assert outcome(beyond) == ("not-found", None)
    for verb in ("get_operation", "list_events"):
        assert outcome(k.call(verb, nothing, None)) == ("denied", "no-principal")
    assert outcome(k.call("list_operations", None)) == ("denied", "no-principal")


def test_it_says_what_one_can_do_and_why_not_more(k: Kernel) -> None:
    def can(operation: Any, who: str) -> tuple[list[str], bool]:
        row = look(k, operation, who)
        return row["can"], row["why"] is not None

    held, approved, running = k.hold(), k.reach("APPROVED"), k.reach("EXECUTING")
    assert [can(held, who) for who in ("ann", "bob")] == [(["cancel"], True), (["vote"], False)]
    assert [can(approved, who) for who in ("ann", "bob")] == [(["cancel"], True), ([], True)]
    assert [can(running, who) for who in ("ann", "bob")] == [([], True), ([], True)]
    k.clock.advance(seconds=HOLD_FOR)
    assert [can(held, who) for who in ("ann", "bob")] == [([], True), ([], True)]
    k.clock.advance(seconds=RUN_WITHIN)
    assert [can(approved, who) for who in ("ann", "bob")] == [([], True), ([], True)]
    for state in ENDED:
        assert [can(k.reach(state), who) for who in ("ann", "bob")] == [([], True), ([], True)]


def test_who_has_voted_cannot_vote_again(bare: Kernel) -> None:
    bare.register(votes_required=2)
    operation = bare.hold()
    bare.vote(operation, "bob", "approve", "yes")
    row = look(bare, operation, "bob")
    assert (row["can"], row["why"]) == ([], "You have voted; more votes are needed.")
    (vote,) = row["votes"]
    assert (vote["approver"], vote["decision"], vote["reason"], vote["row_version"]) == (
        "bob",
        "approve",
        "yes",
        1,
    )
    assert "sealed_decision" not in vote
    assert look(bare, operation, "carol")["can"] == ["vote"]


def test_the_requester_runs_what_is_theirs_to_run(bare: Kernel) -> None:
    bare.register(mode="BY_REQUESTER")
    operation = bare.reach("APPROVED")
    assert look(bare, operation)["can"] == ["run", "cancel"]
    assert look(bare, operation, "bob")["can"] == []
    bare.clock.advance(seconds=RUN_WITHIN)
    assert look(bare, operation)["can"] == []


@pytest.mark.clause("H8.4a", "H8.4b")
def test_an_unknown_outcome_says_to_request_again(k: Kernel) -> None:
    run = k.executing()
    k.clock.advance(minutes=15)
    k.calls("sweep_operations")
    row = look(k, run.operation)
    assert "request again" in row["why"]
    assert "it left no mark of progress" in row["outcome_detail"]


def test_lists_show_what_one_asked_for_or_may_decide(bare: Kernel) -> None:
    bare.register("one", approvers=["bob"])
    bare.register("two", approvers=["carol"])
    mine = bare.hold(type="one", principal="ann")
    theirs = bare.hold(type="two", principal="bob")
    ended = bare.hold(type="one", principal="ann")
    bare.cancel(ended)

    def listed(who: str, *rest: Any) -> set[Any]:
        return {row["operation_id"] for row in bare.calls("list_operations", who, *rest)}

    assert listed("ann") == {mine}
    assert listed("bob") == {mine, theirs}
    assert listed("carol") == {theirs}
    assert listed("zed") == set()
    assert listed("ann", ["CANCELLED"]) == {ended}
    assert listed("ann", ["HELD", "CANCELLED"]) == {mine, ended}
    assert listed("zed", ["CANCELLED"]) == set()
    assert listed("carol", ["CANCELLED"]) == set()
    assert listed("ann", ["APPROVED"]) == set()
    assert listed("ann", []) == set()


def test_lists_come_in_pages_newest_first(k: Kernel) -> None:
    operations = []
    for number in range(6):
        operations.append(k.hold())
        if number % 2:
            k.cancel(operations[-1])
        k.clock.advance(seconds=1)
    every = ["HELD", "CANCELLED"]
    pages: list[Any] = []
    after = None
    while page := k.calls("list_operations", "bob", every, 4, after):
        pages.append([row["operation_id"] for row in page])
        after = page[-1]["operation_id"]
    assert pages == [operations[:1:-1], operations[1::-1]]


@pytest.mark.clause("H3.6a", "H3.6b")
def test_the_timeline_tells_who_did_what_when_and_between_which_states(k: Kernel) -> None:
    run_operation = k.hold()
    times = [k.clock.now()]
    for step in ("approve", "claim", "finish"):
        times.append(k.clock.advance(seconds=1))
        if step == "approve":
            k.approve(run_operation)
        elif step == "claim":
            run = k.run(run_operation)
        else:
            k.finish(run, "FAILED", "broke")
    rows = k.calls("list_events", run_operation, "ann")
    assert [(r["seq"], r["type"], r["actor"], r["from_state"], r["to_state"]) for r in rows] == [
        (1, "requested", "ann", None, "HELD"),
        (2, "approved", "bob", "HELD", "APPROVED"),
        (3, "claimed", "worker:w1", "APPROVED", "EXECUTING"),
        (4, "failed", "worker:w1", "EXECUTING", "FAILED"),
    ]
    assert [r["recorded_at"] for r in rows] == times
    assert (rows[-1]["cause"], rows[1]["detail"].keys()) == ("broke", {"run_deadline"})
    assert rows == k.calls("list_events", run_operation, "bob")


@pytest.mark.clause("H3.6a")
def test_the_timeline_view_is_that_of_every_operation(k: Kernel) -> None:
    one, two = k.reach("SUCCEEDED"), k.reach("CANCELLED")
    k.call("register_consumer", "c")
    k.calls("read_outbox", "c", 3)
    rows = k.rows("select * from underseal.operation_timeline where operation_id = %s", one)
    assert [row["type"] for row in rows] == ["requested", "approved", "claimed", "succeeded"]
    assert [row["position"] for row in rows] == [1, 2, 3, None]
    assert {(row["operation_type"], row["requester"]) for row in rows} == {(TYPE, "ann")}
    assert len(k.rows("select from underseal.operation_timeline where operation_id = %s", two)) == 2


def test_pending_operations_are_the_open_ones(bare: Kernel) -> None:
    bare.register(approvers=["bob", "carol", "dave"], votes_required=2, rejections_to_end=2)
    operation = bare.hold()
    bare.approve(operation)
    bare.reject(operation, "carol")
    done = bare.hold()
    bare.cancel(done)
    (row,) = bare.rows("select * from underseal.pending_operations")
    assert (row["operation_id"], row["state"], row["approvals"], row["votes_required"]) == (
        operation,
        "HELD",
        1,
        2,
    )
    assert (row["requester"], row["effect"], row["redacted"]) == ("ann", '{"closes":1}', '{"account":"a"}')


def test_health_counts_and_ages(k: Kernel) -> None:
    def health() -> dict[tuple[str, str], tuple[int, float]]:
        rows = k.rows("select * from underseal.operation_health")
        return {(r["kind"], r["name"]): (r["amount"], float(r["oldest_seconds"])) for r in rows}

    k.call("register_consumer", "c")
    k.hold()
    k.clock.advance(seconds=10)
    k.hold()
    k.executing()
    k.reach("APPROVED")
    k.reach("CANCELLED")
    k.calls("read_outbox", "c", 2)
    k.call("ack_outbox", "c", 1)
    k.clock.advance(seconds=20)
    found = health()
    assert found["state", "HELD"] == (2, 30.0)
    assert found["state", "EXECUTING"] == found["state", "APPROVED"] == (1, 20.0)
    assert found["ended-today", "CANCELLED"] == (1, 20.0)
    assert found["outbox-lag", "c"] == (8, 20.0)
    assert not {kind for kind, _ in found} & {"stuck-run", "overdue"}
    k.clock.advance(seconds=HOLD_FOR)
    found = health()
    assert found["stuck-run", "w1"][0] == 1
    assert found["overdue", "HELD"][0] == 2
    k.clock.advance(seconds=RUN_WITHIN)
    assert health()["overdue", "APPROVED"][0] == 1
    k.clock.advance(days=1)
    assert ("ended-today", "CANCELLED") not in health()


@pytest.mark.clause("H2.8b")
def test_no_view_shows_a_seal_or_a_hash_of_a_token(k: Kernel) -> None:
    views = k.rows(
        "select c.relname as view, a.attname as column from pg_class c join pg_attribute a on a.attrelid = c.oid"
        " where c.relkind = 'v' and c.relnamespace = 'underseal'::regnamespace and a.attnum > 0"
    )
    assert len({row["view"] for row in views}) >= 6
    shown = {row["column"] for row in views}
    assert not shown & {
        "sealed_payload",
        "sealed_decision",
        "run_token_hash",
        "ticket_hash",
        "fingerprint",
        "token_id",
    }
