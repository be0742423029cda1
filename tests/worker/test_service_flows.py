"""A client that serves flows: its workers drive them, hold operations for them, and tell what they come to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from tests.held.python.worlds import Service
from tests.worker.works import Works, plain, working
from underseal import (
    AsyncUnderseal,
    ExecutionDeniedError,
    ExecutionFailed,
    FlowError,
    FlowRuntime,
    Principal,
    Underseal,
    flow,
)
from underseal.flow.gateway import Gateway
from underseal.testing import wait_until

# -- results ----------------------------------------------------------------------------------------


@pytest.mark.clause("E6a")
def test_a_worker_drives_what_is_served(works: Works) -> None:
    with working(works):
        assert works.result(works.start("plain", {"a": 1})) == [{"a": 1}, {"a": 1}]


@pytest.mark.clause("E6d")
def test_a_result_is_that_of_the_last_that_goes_on_in_its_place(works: Works) -> None:
    with working(works):
        assert works.result(works.start("countdown", 3)) == "lift-off"


def test_a_failure_tells_its_error(works: Works) -> None:
    with working(works):
        with pytest.raises(ExecutionFailed) as caught:
            works.result(works.start("bad"))
        assert caught.value.status == "failed"
        assert caught.value.error == {"type": "ValueError", "message": "no", "step": "broken"}


def test_a_cancelled_one_has_no_error(works: Works) -> None:
    with working(works):
        started = works.start("waits")
        wait_until(lambda: works.info(started).status == "suspended")
        assert works.executions.cancel(started, "rita").outcome == "requested"
        with pytest.raises(ExecutionFailed) as caught:
            works.result(started)
        assert (caught.value.status, caught.value.error) == ("cancelled", None)


def test_a_result_may_be_waited_for_so_long(works: Works) -> None:
    started = works.start("waits")
    with pytest.raises(TimeoutError, match="found it pending"):
        works.result(started, seconds=0.1)
    with pytest.raises(TimeoutError):
        works.result(started, seconds=0)


def test_a_result_that_is_there_takes_one_look(works: Works) -> None:
    with working(works):
        started = works.start("plain", 1)
        works.result(started)
    assert works.result(started, seconds=0) == [1, 1]


@pytest.mark.clause("E12c")
@pytest.mark.parametrize("known", [True, False])
def test_a_result_is_the_owners(works: Works, known: bool) -> None:
    started = works.start("waits") if known else "nothing"
    login = works.database.create_role("caller")
    works.owner.execute("select underseal.grant_access(%s, 'client', 'asserted')", [login])
    stranger = works.client(conninfo=works.database.conninfo_as(login))
    with pytest.raises(ExecutionDeniedError, match="Expected an execution with which"):
        works.executions_of(stranger).result(started, "bob")
    stranger.close()


def test_a_result_is_found_below_what_was_recorded_later(works: Works) -> None:
    with working(works):
        started = works.start("plain", 7)
        works.result(started)
    for place in range(9):
        assert works.executions.record_outcome(started, {"place": place}, "rita").outcome == "recorded"
    assert works.result(started, seconds=0) == [7, 7]


def test_an_end_that_was_compacted_away_is_told(sync_works: Works) -> None:
    started = sync_works.start("waits")
    with sync_works.triggers_off():
        sync_works.admin.execute("alter table underseal.execution disable trigger all")
        sync_works.admin.execute("update underseal.execution set status = 'completed'")
    with pytest.raises(Exception, match="compacted away"):
        sync_works.result(started)


# -- serving ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("client", [Underseal, AsyncUnderseal])
def test_what_is_no_flow_is_not_served(client: Any, works: Works) -> None:
    us = client("host=/nowhere", keys=works.ring)
    with pytest.raises(FlowError, match="expected what @flow"):
        us.serve(lambda ctx: None)
    us.serve(plain)
    with pytest.raises(FlowError, match="one code for each version"):
        us.serve(flow("plain")(plain.body))
    assert us._flows.names() == ["plain"]


def test_what_is_not_served_is_left_to_others(works: Works) -> None:
    other = works.client()
    other.serve(plain)
    with working(works, other):
        waiting = works.start("waits")
        works.result(works.start("plain", 1))
        assert works.info(waiting).status == "pending"
    other.close()


@pytest.mark.clause("E6g")
def test_a_newer_version_is_left_to_others(works: Works) -> None:
    with working(works):
        newer = works.start("plain", 1, flow_version=2)
        works.result(works.start("plain", 1))
        assert works.info(newer).status == "pending"
    # it was not even claimed, and put off
    row = works.admin.execute(
        "select attempts, wake_at <= underseal.clock() as due from underseal.wake"
    ).fetchone()
    assert row == {"attempts": 0, "due": True}


# -- a runtime of this process ----------------------------------------------------------------------


def runtime(works: Works, **options: Any) -> FlowRuntime:
    """A runtime of the client's."""
    assert works.loop is not None
    made: FlowRuntime = works.us.client.runtime(**options)
    return made


@pytest.mark.clause("E6a")
def test_a_runtime_runs_in_this_process(async_works: Works) -> None:
    works = async_works

    async def work() -> tuple[Any, Any]:
        async with runtime(works) as here:
            due = await works.us.client.executions.start("plain", "rita", 2)
            mine = await here.run("plain", "rita", 1)
            return mine, await here.result(due)

    assert works.loop is not None
    assert works.loop.wait(work()) == ([1, 1], [2, 2])


def test_a_runtime_may_claim_nothing(async_works: Works) -> None:
    works = async_works

    async def work() -> str:
        async with runtime(works, claims=False) as here:
            due: str = await works.us.client.executions.start("plain", "rita", 2)
            await here.run("plain", "rita", 1)
            await asyncio.sleep(0.5)
            return due

    assert works.loop is not None
    assert works.info(works.loop.wait(work())).status == "pending"


@pytest.mark.clause("E8b")
def test_a_runtime_that_ends_gives_back_what_it_has(async_works: Works) -> None:
    works = async_works
    begun = asyncio.Event()

    async def forever() -> None:
        begun.set()
        await asyncio.sleep(3600)

    @flow("stuck")
    async def stuck(ctx: Any) -> None:
        await ctx.run("forever", forever)

    works.us.serve(stuck)

    async def work() -> str:
        async with runtime(works, grace=timedelta(seconds=0.2)) as here:
            started = await here.start("stuck", "rita")
            await begun.wait()
        with pytest.raises(FlowError, match="one that stops"):
            await here.start("plain", "rita")
        return started

    assert works.loop is not None
    started = works.loop.wait(work())
    assert works.claims() == []
    assert not works.info(started).ended
    works.us.client._flows._by_version.pop(("stuck", 1))


@pytest.mark.clause("E8b")
def test_what_is_claimed_while_it_ends_is_given_back(
    async_works: Works, monkeypatch: pytest.MonkeyPatch
) -> None:
    works, claim = async_works, Gateway.claim
    claimed = asyncio.Event()

    async def late(self: Gateway, *args: Any) -> Any:
        found = await claim(self, *args)
        if found:
            claimed.set()
            await asyncio.sleep(0.5)
        return found

    monkeypatch.setattr(Gateway, "claim", late)
    started = works.start("waits")

    async def work() -> None:
        async with runtime(works):
            await claimed.wait()

    assert works.loop is not None
    works.loop.wait(work())
    assert works.claims() == []
    assert not works.info(started).ended


# -- holding operations -----------------------------------------------------------------------------


def held_by(works: Works) -> Any:
    """The one operation that is held."""
    found = wait_until(lambda: works.us.list("ann"))
    return works.us.get(found[0], "ann")


@pytest.mark.clause("E6b")
def test_a_flow_holds_an_operation_in_its_owners_name(works: Works) -> None:
    with working(works):
        started = works.start("asks", 5)
        shown = held_by(works)
        assert (shown.requester, shown.auth_kind) == ("rita", "flow")
        assert works.us.approve(shown, "ann").outcome == "approved"
        assert works.result(started) == {"ok": True}
    assert [(kind, who, params.cents) for kind, who, params in works.service.done] == [
        ("payout.send", "rita", 5)
    ]


@pytest.mark.clause("E6b")
def test_a_run_in_a_worker_reaches_the_flow(make_works: Callable[..., Works]) -> None:
    works = make_works(run_on_approval=False)
    with working(works, idle_poll_every=timedelta(milliseconds=200)) as worker:
        started = works.start("asks", 5)
        assert works.us.approve(held_by(works), "ann").outcome == "approved"
        assert works.result(started) == {"ok": True}
        assert worker.progress.operations == {"succeeded": 1}
        wait_until(lambda: worker.progress.flows.completed == 1)


def test_a_rejection_reaches_the_flow(works: Works) -> None:
    with working(works):
        started = works.start("asks", 5)
        works.us.reject(held_by(works), "ann", "too much")
        with pytest.raises(ExecutionFailed, match=r"HoldEnded.*REJECTED"):
            works.result(started)


@pytest.mark.clause("E6e")
def test_a_flow_that_is_cancelled_takes_its_operation_back(works: Works) -> None:
    with working(works):
        started = works.start("asks", 5)
        shown = held_by(works)
        wait_until(lambda: works.info(started).status == "suspended")
        works.executions.cancel(started, "rita")
        with pytest.raises(ExecutionFailed, match="cancelled"):
            works.result(started)
        wait_until(lambda: works.us.get(shown, "rita").state == "CANCELLED")


@pytest.mark.clause("H7.2e")
def test_a_flow_holds_nothing_that_its_requester_must_run(works: Works) -> None:
    with working(works), pytest.raises(ExecutionFailed, match=r"RequestRefused.*ON_APPROVAL"):
        works.result(works.start("issues"))
    assert works.us.list("rita") == []


@pytest.mark.clause("H6.3")
def test_a_flow_of_somebody_who_may_not_act_holds_nothing(works: Works) -> None:
    works.service.people["rita"] = None
    with working(works), pytest.raises(ExecutionFailed, match=r"RequestRefused.*may not any more"):
        works.result(works.start("asks", 5))
    assert works.us.list("ann") == []


def test_what_the_application_raises_is_told_by_its_type_alone(works: Works) -> None:

    def state_key(_: Any) -> str:
        raise LookupError("hunter2")

    breaking: Any = type("Breaking", (Service,), {"state_key": property(state_key)})
    works.service.__class__ = breaking
    with working(works), pytest.raises(ExecutionFailed, match="LookupError was raised on the way") as caught:
        works.result(works.start("asks", 5))
    assert "hunter2" not in str(caught.value.error)


def test_parameters_that_the_type_does_not_take_fail_the_flow(works: Works) -> None:
    with working(works), pytest.raises(ExecutionFailed, match="ParametersRefused"):
        works.result(works.start("asks", "much"))


def test_without_principals_the_owner_is_the_requester(make_works: Callable[..., Works]) -> None:
    works = make_works(principals=None)
    with working(works):
        works.start("asks", 5)
        assert held_by(works).requester == "rita"


def test_a_principal_is_the_applications_own(works: Works) -> None:
    works.service.people["rita"] = Principal("rita", "session", attributes={"team": "a"})
    with working(works):
        works.start("asks", 5)
        assert held_by(works).auth_kind == "session"
