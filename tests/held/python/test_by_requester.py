"""BY_REQUESTER: the requester asks again, inside their own call, and alone gets the result."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from pydantic import SecretStr

from tests.held.python.worlds import REQUESTER, TokenParams, World
from underseal import Held, OutcomeUnknown, Principal, RequestRefused, RunReport
from underseal.held import kernel
from underseal.testing import TestClock, in_background

PARAMS = TokenParams(name="ci", password=SecretStr("hunter2"))
BOUND = Principal("rita", "token", "t-1")
RESULT = {"token": "s3cr3t"}


def approved(world: World, principal: Principal = REQUESTER, params: TokenParams = PARAMS) -> Held:
    """A token that is asked for and approved."""
    world.service.body = lambda principal, params: RESULT
    held = world.issue(principal, params)
    assert world.approve(held).outcome == "approved"
    return held  # type: ignore[no-any-return]


@pytest.mark.clause("H7.2a", "H7.3a", "H7.3b", "H7.2e")
def test_asking_again_runs_it_and_returns_the_result(world: World) -> None:
    held = approved(world)
    assert (world.look(held).state, world.service.done) == ("APPROVED", [])
    assert "run" in world.look(held).can
    assert world.issue(REQUESTER, PARAMS) == RESULT
    assert world.service.done == [("token.issue", "rita", PARAMS)]
    row = world.row(held)
    assert (row["state"], row["result"], row["outcome_detail"]) == ("SUCCEEDED", None, None)
    everything = world.admin.execute(
        "select string_agg(to_jsonb(t)::text, '') as all from (select to_jsonb(o) from underseal.held_operation o"
        " union all select to_jsonb(e) from underseal.held_event e"
        " union all select to_jsonb(a) from underseal.audit_entry a) t"
    ).fetchone()
    assert everything is not None
    assert RESULT["token"] not in everything["all"]
    assert "hunter2" not in everything["all"]


@pytest.mark.clause("H7.2a")
def test_asking_again_while_it_waits_holds(world: World) -> None:
    held = world.issue(REQUESTER, PARAMS)
    again = world.issue(REQUESTER, PARAMS)
    assert (again.duplicate, again.state, again.operation_id) == (True, "HELD", held.operation_id)


@pytest.mark.clause("H7.2a", "H1.7e")
def test_asking_again_after_a_rotation_finds_it(world: World) -> None:
    approved(world)
    for purpose in ("payload", "decision", "fingerprint"):
        world.ring.rotate(purpose)
    assert world.issue(REQUESTER, PARAMS) == RESULT


@pytest.mark.clause("H7.2e")
def test_nobody_else_runs_it(world: World) -> None:
    held = approved(world)
    assert world.us.run_approved() == []
    assert (world.us.run(held).outcome, world.us.run(held).reason) == ("conflict", "other-mode")
    assert (world.look(held).state, world.service.done) == ("APPROVED", [])


@pytest.mark.clause("H7.2b")
def test_asking_again_past_the_run_deadline_runs_nothing(world: World, clock: TestClock) -> None:
    held = approved(world)
    clock.advance(minutes=61)
    again = world.issue(REQUESTER, PARAMS)
    assert (again.duplicate, again.state, world.service.done) == (False, "HELD", [])
    assert (world.look(held).state, world.us.sweep()) == ("EXPIRED", [])


@pytest.mark.clause("H7.2c")
def test_asking_again_under_another_kind_of_authentication_runs_nothing(world: World) -> None:
    approved(world, Principal("rita", "session"))
    assert isinstance(world.issue(Principal("rita", "password"), PARAMS), Held)
    assert world.service.done == []


@pytest.mark.clause("H7.2d")
@pytest.mark.parametrize("token", ["t-2", None])
def test_asking_again_under_another_token_runs_nothing(world: World, token: str | None) -> None:
    approved(world, BOUND)
    assert isinstance(world.issue(Principal("rita", "token", token), PARAMS), Held)
    assert world.service.done == []
    assert world.issue(BOUND, PARAMS) == RESULT


@pytest.mark.clause("H7.4a")
def test_a_repeat_by_somebody_else_is_another_request(world: World) -> None:
    held = approved(world)
    other = world.issue(Principal("ron"), PARAMS)
    assert (other.duplicate, other.operation_id == held.operation_id, world.service.done) == (
        False,
        False,
        [],
    )


@pytest.mark.clause("H7.4b")
def test_a_repeat_with_other_parameters_is_another_request(world: World) -> None:
    held = approved(world)
    other = world.issue(REQUESTER, TokenParams(name="ci", password=SecretStr("hunter3")))
    assert isinstance(other, Held)
    assert (other.duplicate, other.operation_id == held.operation_id, world.service.done) == (
        False,
        False,
        [],
    )
    # The answer is that of a first request, and what was approved still waits for its own parameters.
    assert (other.state, world.look(held).state) == ("HELD", "APPROVED")


@pytest.mark.clause("H6.11b")
def test_a_refused_repeat_is_raised(world: World) -> None:
    held = approved(world)
    world.service.state_key = "shut"
    with pytest.raises(RequestRefused) as refused:
        world.issue(REQUESTER, PARAMS)
    # The repeat itself is held anew only by another call: this one was the run, and it was refused.
    assert refused.value.reason == "state-changed"
    assert world.look(held).state == "REFUSED"


@pytest.mark.clause("H6.8")
def test_a_permission_that_was_lost_refuses_the_repeat(world: World) -> None:
    held = approved(world)
    world.service.denied.add("rita")
    with pytest.raises(RequestRefused) as refused:
        world.issue(REQUESTER, PARAMS)
    assert (refused.value.reason, world.look(held).state) == ("permission-denied", "REFUSED")


def test_an_exception_of_the_body_reaches_the_caller(world: World) -> None:
    held = approved(world)

    def explode(principal: Principal, params: Any) -> None:
        raise ZeroDivisionError("no entropy")

    world.service.body = explode
    with pytest.raises(ZeroDivisionError):
        world.issue(REQUESTER, PARAMS)
    assert world.look(held).state == "FAILED"


def test_an_end_that_could_not_be_recorded_is_told(world: World, clock: TestClock) -> None:
    approved(world)
    world.service.body = lambda principal, params: clock.advance(minutes=16)
    with pytest.raises(OutcomeUnknown) as unknown:
        world.issue(REQUESTER, PARAMS)
    assert unknown.value.reason == "lease-lost"


def test_resubmit_tells_instead_of_raising(world: World) -> None:
    world.service.body = lambda principal, params: RESULT
    held = world.us.resubmit("token.issue", REQUESTER, PARAMS)
    assert isinstance(held, Held)
    world.approve(held)
    report = world.us.resubmit("token.issue", REQUESTER, PARAMS)
    assert isinstance(report, RunReport)
    assert (report.outcome, report.value) == ("succeeded", RESULT)


def test_resubmit_is_for_by_requester_alone(world: World) -> None:
    with pytest.raises(RequestRefused) as refused:
        world.us.resubmit("payout.send", REQUESTER, {"order": "o-1", "cents": 5})
    assert refused.value.reason == "other-mode"


@pytest.mark.clause("H5.1c", "H7.2a")
def test_two_repeats_at_once_run_it_once(sync_world: World) -> None:
    approved(sync_world)
    inside, go = threading.Event(), threading.Event()

    def wait(principal: Principal, params: Any) -> dict[str, str]:
        inside.set()
        assert go.wait(20)
        return RESULT

    sync_world.service.body = wait
    first = in_background(sync_world.issue, REQUESTER, PARAMS)
    assert inside.wait(20)
    second = sync_world.issue(REQUESTER, PARAMS)
    go.set()
    assert (second.state, second.duplicate) == ("EXECUTING", True)
    assert first.result(timeout=20) == RESULT
    assert len(sync_world.service.done) == 1


@pytest.mark.clause("H7.2a")
def test_a_repeat_inside_the_callers_transaction_runs_nothing(sync_world: World) -> None:
    approved(sync_world)
    conn = sync_world.database.connect(sync_world.login, autocommit=False)
    with conn.transaction(), sync_world.us.using(conn):
        again = sync_world.issue(REQUESTER, PARAMS)
    assert (again.state, again.duplicate, sync_world.service.done) == ("APPROVED", True, [])
    assert sync_world.issue(REQUESTER, PARAMS) == RESULT


@pytest.mark.clause("H7.3b")
def test_the_result_never_leaves_for_the_database(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    finish, sent = kernel.finish_run, []

    def watched(*args: Any) -> Any:
        sent.append(args)
        return finish(*args)

    monkeypatch.setattr(kernel, "finish_run", watched)
    approved(world)
    assert world.issue(REQUESTER, PARAMS) == RESULT
    assert len(sent) == 1
    assert RESULT["token"] not in repr(sent)
