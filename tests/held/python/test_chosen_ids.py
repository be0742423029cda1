"""Requests under an id of the caller's choice: a repetition after a crash finds what was requested."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest
from pydantic import SecretStr

from tests.held.python.worlds import REQUESTER, Blocking, PayoutParams, PayoutSend, TokenParams, World
from underseal import Awaited, Held, Principal, RequestRefused
from underseal.held import kernel
from underseal.testing import TestClock

pytestmark = pytest.mark.clause("E6b")
PAYOUT = PayoutParams(order="o-1", cents=5)


def request(
    world: World,
    chosen: UUID | None,
    params: Any = PAYOUT,
    who: Principal = REQUESTER,
    kind: str = "payout.send",
) -> Held:
    """Ask."""
    held: Held = world.us.request(kind, who, params, operation_id=chosen)
    return held


def count(world: World) -> int:
    """How many operations there are."""
    return len(world.admin.execute("select from underseal.held_operation").fetchall())


def refused(world: World, chosen: UUID, *rest: Any) -> str:
    """Ask in vain: why."""
    with pytest.raises(RequestRefused) as caught:
        request(world, chosen, *rest)
    return caught.value.reason


def test_the_operation_has_the_id_that_was_chosen(world: World) -> None:
    chosen = uuid4()
    held = request(world, chosen)
    assert (held.operation_id, held.state, held.duplicate) == (chosen, "HELD", False)
    assert request(world, None, PayoutParams(order="o-2", cents=5)).operation_id != chosen


def test_a_repetition_finds_it_in_whatever_state(world: World) -> None:
    chosen = uuid4()
    first = request(world, chosen)
    for state in ("HELD", "APPROVED", "SUCCEEDED"):
        if state == "APPROVED":
            world.approve(first)
        if state == "SUCCEEDED":
            world.us.run_approved()
        again = request(world, chosen)
        assert (again.operation_id, again.duplicate) == (chosen, True)
        assert again.state == world.row(first)["state"]
        assert (again.params_hash, again.requested_at, again.expires_at) == (
            first.params_hash, first.requested_at, first.expires_at,
        )  # fmt: skip
    assert again.state == "SUCCEEDED"
    assert count(world) == 1


def test_what_was_done_is_not_estimated_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The provider may no longer agree to what it has done."""
    chosen = uuid4()
    world.us.cancel(request(world, chosen), REQUESTER)
    monkeypatch.setattr(PayoutSend, "estimate", None)
    assert request(world, chosen).state == "CANCELLED"


def test_an_id_that_means_something_else_is_refused(world: World) -> None:
    chosen = uuid4()
    request(world, chosen)
    assert refused(world, chosen, PayoutParams(order="o-1", cents=6)) == "id-taken"
    assert refused(world, chosen, PAYOUT, Principal("ann", "session")) == "id-taken"
    assert (
        refused(world, chosen, TokenParams(name="o-1", password=SecretStr("x")), REQUESTER, "token.issue")
        == "id-taken"
    )
    assert count(world) == 1


def test_hidden_parameters_are_compared_while_their_seal_is_there(world: World) -> None:
    chosen = uuid4()
    secret, other = (TokenParams(name="ci", password=SecretStr(one)) for one in ("one", "two"))
    held = request(world, chosen, secret, REQUESTER, "token.issue")
    again = request(world, chosen, secret, REQUESTER, "token.issue")
    assert (again.operation_id, again.duplicate) == (chosen, True)
    assert refused(world, chosen, other, REQUESTER, "token.issue") == "id-taken"
    world.us.cancel(held, REQUESTER)
    assert request(world, chosen, secret, REQUESTER, "token.issue").state == "CANCELLED"
    named = TokenParams(name="cd", password=SecretStr("one"))
    assert refused(world, chosen, named, REQUESTER, "token.issue") == "id-taken"


def test_the_same_request_under_another_id_is_the_open_one(world: World) -> None:
    first = request(world, uuid4())
    second = request(world, uuid4())
    assert (second.operation_id, second.duplicate) == (first.operation_id, True)


def test_who_is_second_to_an_id_finds_it(sync_world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process requested it, and it ended, between the look and the request."""
    chosen, begin = uuid4(), kernel.begin_request

    def meanwhile(*arguments: Any) -> Any:
        monkeypatch.setattr(kernel, "begin_request", begin)
        sync_world.us.cancel(request(sync_world, chosen), REQUESTER)
        return (yield from begin(*arguments))

    monkeypatch.setattr(kernel, "begin_request", meanwhile)
    again = request(sync_world, chosen)
    assert (again.operation_id, again.state, again.duplicate) == (chosen, "CANCELLED", True)


@pytest.mark.clause("H9.3a")
def test_a_seal_that_got_stale_leaves_the_id_free(
    world: World, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, calls = kernel.begin_request, 0

    def slow(*arguments: Any) -> Any:
        nonlocal calls
        row = yield from begin(*arguments)
        calls += 1
        if calls == 1:
            clock.advance(seconds=31)
        return row

    monkeypatch.setattr(kernel, "begin_request", slow)
    chosen = uuid4()
    held = request(world, chosen)
    assert (held.operation_id, held.state, held.duplicate, calls) == (chosen, "HELD", False, 2)
    assert count(world) == 1


def test_a_driver_has_an_execution_wait_for_it(world: World) -> None:
    chosen = uuid4()
    executions, driver = world.us.executions, world.us.driver
    if world.loop is not None:
        executions, driver = Blocking(executions, world.loop), Blocking(driver, world.loop)
    execution = executions.start("f", REQUESTER)
    awaited = driver.await_operation(chosen, execution, 1)
    assert awaited == Awaited("not-found", None, awaited.message, None)
    held = request(world, chosen)
    assert driver.await_operation(held, execution, 1) == Awaited("awaited", None, None, "HELD")
    assert driver.await_operation(held.operation_id, execution, 1).outcome == "unchanged"
    world.us.cancel(held, REQUESTER)
    (message,) = executions.inbox(execution, REQUESTER)
    assert (message.topic, message.sender, message.message_id) == (
        f"$hold/{chosen}",
        str(chosen),
        str(chosen),
    )
    told = driver.await_operation(world.us.get(held, REQUESTER), execution, 1)
    assert (told.outcome, told.state) == ("told", "CANCELLED")
    stale = driver.await_operation(held, execution, 2)
    assert (stale.outcome, stale.reason) == ("conflict", "stale-fence")
