"""Voting from Python: on what was shown, sealed, in time."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from tests.held.python import forging
from tests.held.python.worlds import REQUESTER, PayoutParams, World
from underseal import Echo, Principal, RequestRefused, SealError, restricted
from underseal.held import kernel
from underseal.held.payload import Payload
from underseal.testing import TestClock


@pytest.mark.clause("H2.2a", "H2.2b", "H2.2c", "H4.5b")
@pytest.mark.parametrize("decision", ["approve", "reject"])
def test_a_vote_is_sealed_with_what_was_shown(world: World, clock: TestClock, decision: Any) -> None:
    held = world.hold()
    shown = world.us.get(held, "ann")
    world.us.vote(shown, "ann", decision, "because")
    sealed = forging.decision_of(world, held, "ann")
    assert dataclasses.asdict(sealed) == {
        "operation_id": held.operation_id,
        "approver": "ann",
        "decision": decision,
        "reason": "because",
        "params_hash": held.params_hash.hex(),
        "row_version": shown.row_version,
        "shown": shown.shown,
        "cast_at": clock.now(),
    }


@pytest.mark.clause("H2.9a", "H2.9b")
@pytest.mark.parametrize("columns", [{"redacted": '{"cents":1,"order":"o-1"}'}, {"effect": '{"pays":1}'}])
def test_a_vote_on_what_is_shown_no_more_is_a_conflict(world: World, columns: dict[str, str]) -> None:
    held = world.hold()
    shown = world.us.get(held, "ann")
    world.edit(held, **columns)
    outcome = world.us.approve(shown, "ann")
    assert (outcome.outcome, outcome.reason, world.look(held).state) == (
        "conflict",
        "version-mismatch",
        "HELD",
    )
    # What is shown now can be voted on; the run then finds that it is not what was asked for.
    outcome = world.approve(held)
    assert (outcome.outcome, outcome.run.outcome) == ("approved", "refused")
    assert world.service.done == []


@pytest.mark.clause("H4.1b", "H4.1c")
@pytest.mark.parametrize(
    ("changes", "reason"),
    [({"params_hash": b"\0" * 32}, "hash-mismatch"), ({"row_version": 7}, "version-mismatch")],
)
def test_a_vote_that_echoes_something_else_is_a_conflict(
    world: World, changes: dict[str, Any], reason: str
) -> None:
    held = world.hold()
    echo = dataclasses.replace(world.us.get(held, "ann").echo, **changes)
    outcome = world.us.approve(echo, "ann")
    assert (outcome.outcome, outcome.reason, world.look(held).state) == ("conflict", reason, "HELD")


def test_an_echo_goes_through_a_form(world: World) -> None:
    held = world.hold()
    token = world.us.get(held, "ann").echo.token()
    assert world.us.approve(Echo.parse(token), "ann").outcome == "approved"


@pytest.mark.parametrize("token", ["", "a:b:c:d", "0" * 36 + ":" + "0" * 64 + ":x:" + "0" * 64])
def test_what_is_no_echo_is_refused(token: str) -> None:
    with pytest.raises(ValueError, match="token of an Echo"):
        Echo.parse(token)


@pytest.mark.clause("H4.3a", "H4.3b")
@pytest.mark.parametrize("principal", [REQUESTER, Principal("rita", "token", "t-9"), "rita"])
def test_the_requester_cannot_vote(world: World, principal: Any) -> None:
    held = world.send(Principal("rita", "session"), PayoutParams(order="o-1", cents=5))
    outcome = world.us.approve(world.look(held), principal)
    assert (outcome.outcome, outcome.reason) == ("conflict", "self-approval")


@pytest.mark.clause("H4.5a")
def test_a_rejection_needs_a_reason(world: World) -> None:
    held = world.hold()
    shown = world.us.get(held, "ann")
    assert world.us.vote(shown, "ann", "reject").reason == "reason-required"
    assert world.us.reject(shown, "ann", "not this month").outcome == "rejected"
    assert world.look(held).state == "REJECTED"


@pytest.mark.clause("H4.7c")
def test_somebody_else_finds_nothing(world: World) -> None:
    held = world.hold()
    assert world.us.get(held, "eve") is None
    assert world.us.events(held, "eve") is None
    assert world.us.list("eve") == []
    assert world.us.approve(world.look(held), "eve").outcome == "not-found"
    assert world.us.cancel(held, "eve").outcome == "not-found"


@pytest.mark.clause("H9.3a")
def test_a_vote_whose_seal_got_stale_is_sealed_again(
    world: World, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = world.hold()
    shown = world.us.get(held, "ann")
    look, calls = kernel.get_operation, []

    def slow(*args: Any) -> Any:
        row = yield from look(*args)
        calls.append(row["now"])
        if len(calls) == 1:
            clock.advance(seconds=31)
        return row

    monkeypatch.setattr(kernel, "get_operation", slow)
    outcome = world.us.approve(shown, "ann")
    assert (outcome.outcome, outcome.cast_at, len(calls)) == ("approved", calls[1], 2)
    assert outcome.run.outcome == "succeeded"


@pytest.mark.clause("H9.3a")
def test_a_vote_that_is_always_stale_is_not_cast(
    world: World, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = world.hold()
    shown = world.us.get(held, "ann")
    look = kernel.get_operation

    def slow(*args: Any) -> Any:
        row = yield from look(*args)
        clock.advance(seconds=31)
        return row

    monkeypatch.setattr(kernel, "get_operation", slow)
    with pytest.raises(RequestRefused) as refused:
        world.us.approve(shown, "ann")
    assert refused.value.reason == "stale-seal"
    assert world.admin.execute("select from underseal.held_vote").fetchone() is None


@pytest.mark.clause("H2.11b")
def test_an_approver_works_with_decision_keys_alone(world: World) -> None:
    held = world.hold()
    ring = restricted(world.ring, {"decision"})
    approver = world.client(keys=ring, principals=None)
    assert approver.approve(approver.get(held, "ann"), "ann").outcome == "approved"
    with pytest.raises(SealError) as refused:
        Payload.opened(world.row(held)["sealed_payload"], ring, held.operation_id)
    assert refused.value.reason == "key-unavailable"
    approver.close()


@pytest.mark.clause("H2.11b")
def test_without_a_decision_key_nobody_votes(world: World) -> None:
    held = world.hold()
    approver = world.client(keys=restricted(world.ring, {"payload", "fingerprint"}))
    with pytest.raises(SealError):
        approver.approve(approver.get(held, "ann"), "ann")
    assert world.look(held).state == "HELD"
    approver.close()


def test_a_quorum_is_counted(world: World) -> None:
    world.owner.execute(
        "select underseal.register_operation_type(t.type, 1, 'ON_APPROVAL', t.parameters,"
        ' \'{"votes_required": 2, "approvers": ["ann", "bob"], "hold_for": 3600, "run_within": 3600}\')'
        " from underseal.operation_type t where t.type = 'payout.send'"
    )
    held = world.hold()
    first = world.approve(held, "ann")
    assert (first.outcome, first.votes, first.votes_required, first.run) == ("recorded", 1, 2, None)
    second = world.approve(held, "bob")
    assert (second.outcome, second.run.outcome) == ("approved", "succeeded")
    assert [vote.approver for vote in world.look(held).votes] == ["ann", "bob"]


def test_what_one_may_do_is_said(world: World) -> None:
    held = world.hold()
    assert (world.us.get(held, "ann").can, world.look(held).can) == (("vote",), ("cancel",))
    assert world.us.cancel(held, "rita", "changed my mind").outcome == "cancelled"
    assert (world.look(held).can, world.look(held).state) == ((), "CANCELLED")
    assert [operation.state for operation in world.us.list("rita", states=["CANCELLED"])] == ["CANCELLED"]


def test_an_operator_cancels_what_is_not_theirs(world: World) -> None:
    held = world.hold()
    assert world.us.cancel(held, "ops", "too risky", as_operator=True).outcome == "cancelled"


def test_a_page_of_operations(world: World) -> None:
    for cents in (1, 2, 3):
        world.hold(cents)
    first = world.us.list("ann", limit=2)
    rest = world.us.list("ann", limit=2, after=first[-1].operation_id)
    assert [one.effect for one in first + rest] == ['{"pays":3}', '{"pays":2}', '{"pays":1}']
