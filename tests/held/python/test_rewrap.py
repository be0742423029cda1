"""Key rotation: open rows are sealed anew while the system goes on."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import SecretStr

from tests.held.python import forging
from tests.held.python.worlds import REQUESTER, PayoutParams, PayoutSend, TokenParams, World
from underseal import MemoryKeyRing, RewrapProgress, restricted
from underseal.held import kernel


def key_ids(world: World) -> set[tuple[str, str]]:
    """The keys that open rows are under."""
    return {(use.purpose, use.key_id) for use in world.us.key_uses()}


def active(world: World) -> set[tuple[str, str]]:
    """The keys that seal now."""
    return {(purpose, world.ring.active(purpose).id) for purpose in ("payload", "decision", "fingerprint")}


def rotate(world: World) -> None:
    """New keys for everything."""
    for purpose in ("payload", "decision", "fingerprint"):
        world.ring.rotate(purpose)


@pytest.mark.clause("H2.6a", "H2.6b")
def test_a_new_key_seals_and_the_older_one_opens(world: World) -> None:
    old = world.hold(5)
    before = world.ring.active("payload").id
    rotate(world)
    new = world.hold(6)
    assert world.row(old)["payload_key_id"] == before
    assert world.row(new)["payload_key_id"] == world.ring.active("payload").id != before
    assert world.approve(old).run.outcome == "succeeded"


@pytest.mark.clause("H2.6c", "H2.6d", "H1.7f")
def test_open_rows_are_sealed_anew_in_batches(world: World) -> None:
    held = [world.hold(cents) for cents in (1, 2, 3)]
    approved = world.approved(4)
    old = active(world)
    rotate(world)
    progress = list(world.us.rewrap(batch_size=2))
    assert [one.payloads for one in progress] == [2, 4]
    assert progress[-1] == RewrapProgress(4, 1, 0, ())
    assert key_ids(world) == active(world)
    for _, key_id in old:
        world.ring.destroy(key_id)
    # Duplicates are found by the new fingerprint, votes are cast on the new seal, runs open both.
    assert world.hold(1).operation_id == held[0].operation_id
    assert world.approve(held[0]).run.outcome == "succeeded"
    assert world.us.run(approved).outcome == "succeeded"
    assert list(world.us.rewrap()) == []


@pytest.mark.clause("H2.6c")
def test_a_rotation_of_one_purpose_alone(world: World) -> None:
    for purpose in ("payload", "decision", "fingerprint"):
        held = world.approved(7)
        world.ring.rotate(purpose)
        assert len(list(world.us.rewrap())) == 1
        assert key_ids(world) == active(world)
        assert world.us.run(held).outcome == "succeeded"


@pytest.mark.clause("H2.6c")
def test_it_stops_and_starts_again_where_it_was(sync_world: World) -> None:
    for cents in (1, 2, 3):
        sync_world.hold(cents)
    rotate(sync_world)
    first = sync_world.us.rewrap(batch_size=1)
    assert next(first).payloads == 1
    first.close()
    assert [one.payloads for one in sync_world.us.rewrap(batch_size=10)] == [2]
    assert key_ids(sync_world) == {one for one in active(sync_world) if one[0] != "decision"}


def test_a_row_that_ended_meanwhile_is_passed(sync_world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    held = sync_world.hold()
    rotate(sync_world)
    rows = kernel.list_rewrap

    def slow(*args: Any) -> Any:
        listed = yield from rows(*args)
        if listed:
            sync_world.us.cancel(held, "rita")
        return listed

    monkeypatch.setattr(kernel, "list_rewrap", slow)
    assert list(sync_world.us.rewrap()) == [RewrapProgress(0, 0, 1, ())]


@pytest.mark.clause("H2.6d")
def test_a_seal_that_does_not_open_stays_and_is_named(world: World) -> None:
    bad, good = [world.hold(cents) for cents in (1, 2)], [world.hold(cents) for cents in (3, 4, 5)]
    for held in bad:
        sealed = world.row(held)["sealed_payload"]
        world.edit(held, sealed_payload=json.dumps({**sealed, "ct": sealed["ct"][:-4] + "AAAA"}))
    rotate(world)
    last = list(world.us.rewrap(batch_size=1))[-1]
    assert (last.payloads, last.unopened) == (len(good), tuple(sorted(held.operation_id for held in bad)))


@pytest.mark.clause("H2.11b")
def test_a_process_does_what_it_has_keys_for(world: World) -> None:
    world.approved()
    rotate(world)
    decisions = world.client(keys=restricted(world.ring, {"decision"}))
    assert list(decisions.rewrap())[-1] == RewrapProgress(0, 1, 0, ())
    payloads = world.client(keys=restricted(world.ring, {"payload", "fingerprint"}))
    assert list(payloads.rewrap())[-1] == RewrapProgress(1, 0, 0, ())
    nothing = world.client(keys=MemoryKeyRing())
    assert list(nothing.rewrap()) == []
    for client in (decisions, payloads, nothing):
        client.close()


def test_what_is_sealed_stays_the_same(sync_world: World) -> None:
    held = sync_world.issue(REQUESTER, TokenParams(name="ci", password=SecretStr("hunter2")))
    before = forging.payload_of(sync_world, held)
    rotate(sync_world)
    list(sync_world.us.rewrap())
    assert forging.payload_of(sync_world, held) == before


@pytest.mark.clause("H2.6c")
def test_a_request_made_twice_under_two_keys_stops_no_other(world: World) -> None:
    """A process that lacks the old fingerprint key does not find the duplicate, and both are open."""
    first, other = world.hold(1), world.hold(2)
    rotate(world)
    behind = world.client(
        keys=MemoryKeyRing(world.ring.active(purpose) for purpose in ("payload", "fingerprint"))
    )
    send = world.gate(behind, PayoutSend(world.service))
    second = send(REQUESTER, PayoutParams(order="o-1", cents=1))
    assert second.operation_id != first.operation_id
    progress = list(world.us.rewrap())[-1]
    assert (progress.payloads, progress.unopened) == (1, (first.operation_id,))
    assert world.row(other)["fingerprint_key_id"] == world.ring.active("fingerprint").id
    world.us.cancel(second, "rita")
    assert list(world.us.rewrap())[-1].payloads == 1
    behind.close()
