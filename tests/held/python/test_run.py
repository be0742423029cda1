"""Running: the ticket, the record of the end, the lease, the audit trail."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from pydantic import SecretStr

from tests.held.python.worlds import REQUESTER, Blocking, PayoutParams, PayoutSend, TokenParams, World
from underseal import Effect, Held, Principal, Provider, ReplayRefused, RunReport
from underseal.foundation.steps import Steps
from underseal.held import kernel, run
from underseal.held.claim import Claim
from underseal.held.replay import Replay, replaying
from underseal.held.results import MAX_BYTES, result_text
from underseal.testing import TestClock, in_background, wait_until


def carry_out(world: World, steps: Steps[Any]) -> Any:
    """Carry steps out with the world's client."""
    client = world.us.client if isinstance(world.us, Blocking) else world.us
    return world.loop.wait(client._perform(steps)) if world.loop else asyncio.run(client._perform(steps))


def claimed(world: World, held: Held) -> Claim:
    """Claim a run without running it."""
    core = world.us._core
    rows = carry_out(world, kernel.claim_runs("w-1", core.served(), core.key_ids(), 1, held.operation_id))
    return Claim.from_row(rows[0])


def one(world: World, statement: str, *params: Any) -> Any:
    """The one value that a statement gives."""
    row = world.admin.execute(statement, params).fetchone()
    assert row is not None
    return next(iter(row.values()))


@pytest.mark.clause("H5.2a", "H7.1", "H6.9")
def test_the_replica_that_approves_runs_it_as_the_requester(world: World) -> None:
    held = world.hold()
    outcome = world.approve(held)
    assert (outcome.outcome, outcome.run.outcome, outcome.run.value) == (
        "approved",
        "succeeded",
        {"ok": True},
    )
    assert world.service.done == [("payout.send", "rita", PayoutParams(order="o-1", cents=5))]
    assert (world.look(held).state, world.look(held).result) == ("SUCCEEDED", {"ok": True})


@pytest.mark.clause("H5.2b")
def test_a_replica_that_is_no_worker_leaves_it_to_the_sweep(world: World) -> None:
    held = world.hold()
    approver = world.client(principals=None)
    outcome = approver.approve(approver.get(held, "ann"), "ann")
    assert (outcome.outcome, outcome.run, world.look(held).state) == ("approved", None, "APPROVED")
    assert [report.outcome for report in world.us.run_approved()] == ["succeeded"]
    approver.close()


@pytest.mark.clause("H5.2b")
def test_a_login_without_worker_access_leaves_it_to_the_sweep(world: World) -> None:
    held = world.hold()
    world.owner.execute("select underseal.revoke_access(%s, 'worker')", [world.login])
    outcome = world.approve(held)
    assert (outcome.outcome, outcome.run, world.look(held).state) == ("approved", None, "APPROVED")


def test_a_vote_is_told_although_its_run_could_not_begin(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*args: Any) -> Steps[Any]:
        raise psycopg.OperationalError("the database is away")

    held = world.hold()
    monkeypatch.setattr(kernel, "claim_runs", away)
    outcome = world.approve(held)
    assert (outcome.outcome, outcome.run, world.look(held).state) == ("approved", None, "APPROVED")


@pytest.mark.clause("H5.5c")
def test_a_worker_without_the_provider_leaves_it(world: World) -> None:
    held = world.approved()
    bare = world.client()
    assert (bare.run(held).outcome, bare.run(held).reason) == ("conflict", "unserved")
    assert world.look(held).state == "APPROVED"
    assert [operation_id for operation_id, _ in bare.report_unserved()] == [held.operation_id]
    bare.close()


def test_a_run_happens_once(world: World) -> None:
    held = world.approved()
    assert world.us.run(held).outcome == "succeeded"
    assert (world.us.run(held).outcome, world.us.run(held).reason) == ("conflict", "not-approved")
    assert len(world.service.done) == 1


def test_an_exception_is_recorded_by_its_type(world: World) -> None:
    def explode(principal: Principal, params: Any) -> None:
        raise ValueError(f"cannot pay {params!r}")

    world.service.body = explode
    held = world.approved()
    report = world.us.run(held)
    assert (report.outcome, type(report.error)) == ("failed", ValueError)
    row = world.row(held)
    assert (row["state"], row["outcome_reason"], row["outcome_detail"]) == (
        "FAILED",
        "exception",
        "ValueError",
    )


def test_a_message_that_the_provider_calls_safe_is_recorded(world: World) -> None:
    def explode(principal: Principal, params: Any) -> None:
        raise KeyError("no such order")

    world.service.body = explode
    held = world.approved()
    world.us.run(held)
    assert world.row(held)["outcome_detail"] == "KeyError: 'no such order'"


@pytest.mark.clause("H6.8")
def test_the_builtin_permission_error_counts_too(world: World) -> None:
    def deny(principal: Principal, params: Any) -> None:
        raise PermissionError("you may not, rita")

    world.service.body = deny
    held = world.approved()
    world.us.run(held)
    row = world.row(held)
    assert (row["state"], row["outcome_reason"]) == ("REFUSED", "permission-denied")
    assert "rita" not in row["outcome_detail"]


# -- results ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, None), (0, "0"), ({"a": "é"}, '{"a":"é"}'), ("x" * (MAX_BYTES - 2), '"' + "x" * (MAX_BYTES - 2) + '"'),
        ("\\u0000", '"\\\\u0000"'), (PayoutParams(order="o", cents=1), '{"order":"o","cents":1,"note":null}'),
    ],
)  # fmt: skip
def test_a_result_becomes_json(value: Any, text: str | None) -> None:
    assert result_text(value) == (text, None)


@pytest.mark.parametrize(
    "value", ["x" * (MAX_BYTES - 1), "é" * MAX_BYTES, "\0", "\ud800", float("nan"), object()]
)
def test_a_result_that_cannot_be_stored_is_left_out(value: Any) -> None:
    text, remark = result_text(value)
    assert text is None
    assert remark is not None
    assert remark.startswith("the result is not stored: ")


@pytest.mark.parametrize(
    "value", [object(), "x" * 70_000, ["x" * 10] * 5400, 1e300], ids=["object", "long", "spaced", "huge"]
)
def test_a_run_whose_result_cannot_be_stored_succeeded(sync_world: World, value: Any) -> None:
    sync_world.service.body = lambda principal, params: [value] * 300 if value == 1e300 else value
    held = sync_world.approved()
    report = sync_world.us.run(held)
    row = sync_world.row(held)
    assert (report.outcome, row["state"], row["result"]) == ("succeeded", "SUCCEEDED", None)
    assert "the result is not stored" in row["outcome_detail"]


# -- the ticket -------------------------------------------------------------------------------------


@pytest.mark.clause("H6.6a", "H6.6e")
def test_the_public_method_runs_under_a_ticket_that_is_used_up(world: World) -> None:
    seen: list[Any] = []
    world.service.body = lambda principal, params: seen.append(
        world.admin.execute(
            "select consumed_at is not null as used, ticket_hash from underseal.replay_ticket"
        ).fetchone()
    )
    held = world.approved()
    assert world.us.run(held).outcome == "succeeded"
    assert seen[0]["used"] is True
    assert len(seen[0]["ticket_hash"]) == 32


@pytest.mark.clause("H6.6h")
def test_a_gated_call_inside_the_body_holds(world: World) -> None:
    nested: list[Any] = []

    def nest(principal: Principal, params: Any) -> None:
        if world.loop is None:
            nested.append(world.send(principal, PayoutParams(order="o-1", cents=params.cents)))
            nested.append(world.send(principal, PayoutParams(order="o-2", cents=9)))

    world.service.body = nest
    if world.loop is not None:
        # The body of an async method awaits the gated call in its own context.
        class Nesting(PayoutSend):
            type = "payout.nesting"

        async def body(principal: Principal, params: Any) -> None:
            nested.append(await method(principal, params))
            nested.append(await method(principal, PayoutParams(order="o-2", cents=9)))

        method = world.us.gate(Nesting(world.service))(body)

        world.register()
        held = world.loop.wait(method(REQUESTER, PayoutParams(order="o-1", cents=5)))
        world.approve(held)
    else:
        held = world.approved()
        assert world.us.run(held).outcome == "succeeded"
    # The same request is still open (it is the one that runs), another one is held anew.
    assert [type(one) for one in nested] == [Held, Held]
    assert (nested[0].duplicate, nested[0].operation_id) == (True, held.operation_id)
    assert nested[1].duplicate is False


def under_a_replay(world: World, replay: Replay, principal: Principal, params: Any) -> Any:
    """Call the gated method with a replay in its context."""
    token = replaying.set(replay)
    try:
        return world.us._core.kinds["payout.send"].method(principal, params)
    finally:
        replaying.reset(token)


def ticket_of(world: World, claim: Claim) -> bytes:
    """Issue the ticket of a run."""
    row = carry_out(world, kernel.issue_ticket(claim.operation_id, claim.run_token))
    assert row["outcome"] == "issued"
    return bytes(row["ticket"])


@pytest.mark.clause("H6.6b", "H6.6c", "H6.6d", "H6.6g")
def test_a_replay_that_does_not_fit_runs_nothing(sync_world: World) -> None:
    world = sync_world
    first, second = claimed(world, world.approved(5)), claimed(world, world.approved(6))
    ticket, other_ticket = ticket_of(world, first), ticket_of(world, second)
    rita = Principal("rita")
    params = PayoutParams(order="o-1", cents=5)
    good = Replay(first.operation_id, "payout.send", 1, rita, '{"cents":5,"order":"o-1"}', ticket)

    def refused(reason: str, replay: Replay, principal: Principal = rita, given: Any = params) -> None:
        with pytest.raises(ReplayRefused) as error:
            under_a_replay(world, replay, principal, given)
        assert error.value.reason == reason
        assert world.service.done == []

    def with_(**changes: Any) -> Replay:
        return Replay(**{name: getattr(good, name) for name in good.__slots__} | changes)

    refused("arguments-differ", good, given=PayoutParams(order="o-1", cents=6))
    refused("principal-differs", good, principal=Principal("ann"))
    refused("principal-differs", good, principal=Principal("rita", "token"))
    refused("ticket-refused", with_(ticket=b"0" * 32))
    refused("ticket-refused", with_(ticket=other_ticket))
    refused("ticket-refused", with_(operation_id=second.operation_id))
    refused("ticket-refused", with_(operation_id=uuid4()))
    ann = Principal("ann")
    refused("ticket-refused", with_(principal=ann), principal=ann)
    assert under_a_replay(world, good, rita, params) == {"ok": True}
    world.service.done.clear()
    refused("ticket-refused", good)
    carry_out(world, kernel.finish_run(second.operation_id, second.run_token, "FAILED", None, None, None))
    refused("ticket-refused", with_(operation_id=second.operation_id, ticket=other_ticket))


def test_a_replay_of_another_type_is_no_replay(sync_world: World) -> None:
    replay = Replay(uuid4(), "payout.other", 1, REQUESTER, '{"cents":5,"order":"o-1"}', b"")
    assert isinstance(under_a_replay(sync_world, replay, REQUESTER, PayoutParams(order="o-1", cents=5)), Held)


@pytest.mark.clause("H6.6g")
def test_a_method_that_gets_other_arguments_ends_in_integrity(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = world.us._core.kinds["payout.send"]
    held = world.approved()
    monkeypatch.setattr(kind, "arguments", lambda canonical: PayoutParams(order="o-1", cents=6))
    monkeypatch.setattr(kind, "redacted", lambda canonical: '{"cents":5,"order":"o-1"}')
    world.service.effect = {"pays": 5}
    report = world.us.run(held)
    assert (report.outcome, report.reason, world.service.done) == ("refused", "integrity", [])


def test_a_ticket_that_is_refused_is_recorded(sync_world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    held = sync_world.approved()
    issue = kernel.issue_ticket

    def forged(*args: Any) -> Steps[Any]:
        row = yield from issue(*args)
        return {**row, "ticket": b"0" * 32}

    monkeypatch.setattr(kernel, "issue_ticket", forged)
    report = sync_world.us.run(held)
    assert (report.outcome, report.reason, sync_world.service.done) == ("refused", "ticket", [])


# -- the audit trail --------------------------------------------------------------------------------


@pytest.mark.clause("H6.7a", "H6.7b", "H6.7d")
def test_the_run_is_a_child_of_the_request_and_marks_its_progress(world: World) -> None:
    marks: list[Any] = []

    def body(principal: Principal, params: Any) -> None:
        marks.append(world.us.progress("1 of 2"))
        marks.append(one(world, "select count(*) from underseal.audit_entry where action = 'progress'"))

    if world.loop is None:
        world.service.body = body
        held = world.approved()
        world.us.run(held)
    else:

        class Marking(PayoutSend):
            type = "payout.marking"

        async def marking(principal: Principal, params: Any) -> None:
            marks.append(await world.us.client.progress("1 of 2"))
            marks.append(one(world, "select count(*) from underseal.audit_entry where action = 'progress'"))

        method = world.us.gate(Marking(world.service))(marking)

        world.register()
        held = world.loop.wait(method(REQUESTER, PayoutParams(order="o-1", cents=5)))
        world.approve(held)
    assert (marks[0].outcome, marks[1]) == ("recorded", 1)
    entries = {
        row["action"]: row
        for row in world.admin.execute(
            "select * from underseal.audit_entry where operation_id = %s", [held.operation_id]
        )
    }
    assert entries["run"]["parent_id"] == entries["request"]["id"]
    assert [vote["approver"] for vote in entries["run"]["detail"]["approvals"]] == ["ann"]
    assert entries["progress"]["parent_id"] == entries["result"]["parent_id"] == entries["run"]["id"]
    assert entries["progress"]["detail"] == {"note": "1 of 2"}


def test_progress_outside_a_run_is_ignored(world: World) -> None:
    assert world.us.progress("nothing").outcome == "ignored"


# -- the lease --------------------------------------------------------------------------------------


@pytest.mark.clause("H8.1b")
def test_the_lease_is_renewed_while_the_body_runs(make_world: Callable[..., World], clock: TestClock) -> None:
    world = make_world(renew_every=timedelta(milliseconds=20))
    held = world.approved()
    statement = "select run_lease_until from underseal.held_operation where operation_id = %s"

    def body(principal: Principal, params: Any) -> None:
        before = one(world, statement, held.operation_id)
        clock.advance(minutes=10)
        wait_until(lambda: one(world, statement, held.operation_id) == before + timedelta(minutes=10))
        clock.advance(minutes=10)
        wait_until(lambda: one(world, statement, held.operation_id) == before + timedelta(minutes=20))

    world.service.body = body
    assert world.us.run(held).outcome == "succeeded"


@pytest.mark.clause("H8.3a", "H8.3b")
def test_a_replica_that_lost_its_lease_finishes_nothing(world: World, clock: TestClock) -> None:
    held = world.approved()
    world.service.body = lambda principal, params: clock.advance(minutes=16)
    report = world.us.run(held)
    assert (report.outcome, report.reason, report.state) == ("conflict", "lease-lost", None)
    assert world.look(held).state == "OUTCOME_UNKNOWN"
    events = world.us.events(held, "rita")
    assert [event.type for event in events][-2:] == ["outcome-unknown", "late-finish"]
    assert events[-1].detail == {"would_be": "SUCCEEDED"}


def test_a_run_that_lost_its_lease_before_its_ticket_runs_nothing(world: World, clock: TestClock) -> None:
    held = world.approved()

    def late(*_: Any) -> None:
        clock.advance(minutes=16)

    world.us._core.kinds["payout.send"].provider.check_run = late
    report = world.us.run(held)
    assert (report.outcome, report.reason, world.service.done) == ("conflict", "lease-lost", [])
    # Nothing is recorded by who has nothing to say any more: the sweep ends it, and nothing comes late.
    assert [one.outcome for one in world.us.sweep()] == ["outcome-unknown"]
    assert "late-finish" not in [event.type for event in world.us.events(held, "rita")]


@pytest.mark.clause("H8.2c", "H8.4a", "H8.4b")
@pytest.mark.parametrize("mark", [None, "3 of 9"])
def test_a_run_that_is_interrupted_says_that_nobody_knows(sync_world: World, mark: str | None) -> None:
    def interrupt(principal: Principal, params: Any) -> None:
        if mark is not None:
            sync_world.us.progress(mark)
        raise KeyboardInterrupt

    sync_world.service.body = interrupt
    held = sync_world.approved()
    with pytest.raises(KeyboardInterrupt):
        sync_world.us.run(held)
    row = sync_world.row(held)
    assert (row["state"], row["outcome_reason"]) == ("OUTCOME_UNKNOWN", "interrupted")
    assert "Ask again" in row["outcome_detail"]
    assert (mark or "no mark of progress") in row["outcome_detail"]
    assert sync_world.us._core.runs == {}


@pytest.mark.clause("H8.2c")
def test_a_task_that_is_cancelled_says_that_nobody_knows(async_world: World) -> None:
    world = async_world
    assert world.loop is not None
    begun = threading.Event()

    class Endless(PayoutSend):
        type = "payout.endless"

    async def endless(principal: Principal, params: Any) -> None:
        begun.set()
        await asyncio.Event().wait()

    method = world.us.gate(Endless(world.service))(endless)

    world.register()
    held = world.loop.wait(method(REQUESTER, PayoutParams(order="o-1", cents=5)))
    voter = world.client(run_on_approval=False)
    voter.approve(voter.get(held, "ann"), "ann")
    voter.close()
    running = asyncio.run_coroutine_threadsafe(world.us.client.run(held), world.loop.loop)
    assert begun.wait(20)
    running.cancel()
    wait_until(lambda: world.row(held)["state"] == "OUTCOME_UNKNOWN")
    assert world.row(held)["outcome_reason"] == "interrupted"


@pytest.mark.clause("H1.7h")
def test_a_result_that_repeats_a_hidden_parameter_is_not_stored(sync_world: World) -> None:
    class Secretive(Provider[TokenParams]):
        type = "payout.secretive"
        version = 1
        params = TokenParams
        policy = PayoutSend.policy

        def estimate(self, principal: Principal, params: TokenParams) -> Effect:
            return Effect({}, "s")

    send = sync_world.gate(sync_world.us, Secretive())
    sync_world.register()
    sync_world.service.body = lambda principal, params: {
        "said": f"it is {params.password.get_secret_value()}!"
    }
    held = send(REQUESTER, TokenParams(name="ci", password=SecretStr("hunter22")))
    outcome = sync_world.approve(held)
    row = sync_world.row(held)
    assert (row["state"], row["result"]) == ("SUCCEEDED", None)
    assert "repeats a hidden parameter" in row["outcome_detail"]
    assert outcome.run.value == {"said": "it is hunter22!"}


def test_the_end_is_recorded_although_the_database_was_away(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "_FINISH_PAUSES", (0.0, 0.0, 0.0))
    finish, tries = kernel.finish_run, []

    def away(*args: Any) -> Steps[Any]:
        tries.append(args)
        if len(tries) < 3:
            raise psycopg.OperationalError("the database is away")
        if len(tries) == 3:
            # It arrived, and its answer was lost.
            yield from finish(*args)
            raise psycopg.OperationalError("the answer was lost")
        return (yield from finish(*args))

    monkeypatch.setattr(kernel, "finish_run", away)
    held = world.approved()
    report = world.us.run(held)
    assert (report.outcome, report.state, world.look(held).state) == ("succeeded", "SUCCEEDED", "SUCCEEDED")
    assert len(tries) == 4


def test_runs_of_one_client_do_not_wait_for_each_other(sync_world: World) -> None:
    both = threading.Barrier(2, timeout=20)
    sync_world.service.body = lambda principal, params: both.wait() and None
    first, second = sync_world.approved(5), sync_world.approved(6)
    reports = [in_background(sync_world.us.run, one) for one in (first, second)]
    assert [report.result(timeout=30).outcome for report in reports] == ["succeeded", "succeeded"]


def test_a_report_shows_no_value() -> None:
    assert "hunter2" not in repr(RunReport("succeeded", value={"password": "hunter2"}))


def test_the_row_keeps_a_result_as_json(sync_world: World) -> None:
    sync_world.service.body = lambda principal, params: {"list": [1, None, "é"]}
    held = sync_world.approved()
    sync_world.us.run(held)
    assert sync_world.row(held)["result"] == json.loads('{"list": [1, null, "é"]}')
