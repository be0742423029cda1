"""A writer keeps whole rows, seals and votes and all, and puts them back later (clauses T5b, H8.5).

What the database alone cannot stop is asserted as well as what it can: docs/threat-model.md says the same.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.held.python.worlds import HOUR, World
from tests.hostile.audit import Audit
from tests.hostile.writer import Writer
from underseal import FileSpentRegister, Held
from underseal.testing import TestClock

ENDS = ("SUCCEEDED", "FAILED", "REFUSED", "CANCELLED")


@pytest.fixture(params=[False, True], ids=["alone", "register"])
def register(request: pytest.FixtureRequest) -> bool:
    """Whether there is a spent register."""
    return bool(request.param)


@pytest.fixture
def world(register: bool, make_sync_world: Callable[..., World], tmp_path: Path) -> World:
    """A service with or without one."""
    return make_sync_world(spent=FileSpentRegister(tmp_path / "spent") if register else None)


def end(world: World, held: Held, state: str) -> None:
    """Bring an approved operation to an end."""
    if state == "CANCELLED":
        world.us.cancel(held, "rita")
    else:
        world.service.check = "not-now" if state == "REFUSED" else None
        world.service.body = (lambda *_: 1 // 0) if state == "FAILED" else (lambda *_: {"ok": True})
        world.us.run(held)
    assert world.look(held).state == state
    world.service.check, world.service.body = None, lambda *_: {"ok": True}
    world.service.done.clear()


@pytest.mark.clause("T5b", "H8.5c")
@pytest.mark.parametrize("state", ENDS)
def test_an_approved_operation_put_back_after_its_end(world: World, register: bool, state: str) -> None:
    held = world.approved()
    put_back = Writer(world.admin).keep(held.operation_id)
    end(world, held, state)
    put_back()
    assert world.look(held).state == "APPROVED"
    report = world.us.run(held)
    if register:
        assert (report.outcome, report.reason, world.service.done) == ("refused", "spent", [])
    else:
        assert (report.outcome, len(world.service.done)) == ("succeeded", 1)


@pytest.mark.clause("T5b", "H8.5c")
def test_an_approved_operation_put_back_while_it_runs(world: World, register: bool) -> None:
    held = world.approved()
    put_back = Writer(world.admin).keep(held.operation_id)
    again: list[Any] = []

    def body(*_: Any) -> None:
        if not again:
            again.append(put_back())
            again.append(world.us.run(held))

    world.service.body = body
    world.us.run(held)
    assert (again[1].outcome, again[1].reason) == (("refused", "spent") if register else ("succeeded", None))
    assert len(world.service.done) == (1 if register else 2)


@pytest.mark.clause("T5b", "H9.3b")
@pytest.mark.parametrize("state", ["SUCCEEDED", "EXPIRED"])
def test_nothing_put_back_after_its_sealed_deadline_runs(world: World, clock: TestClock, state: str) -> None:
    held = world.approved()
    row = world.row(held)
    writer = Writer(world.admin)
    put_back = writer.keep(held.operation_id)
    if state == "SUCCEEDED":
        end(world, held, state)
    clock.advance(hours=2)
    world.us.sweep()
    assert world.look(held).state == state
    put_back()
    writer.admin.execute("alter table underseal.operation_type disable trigger user")
    writer.admin.execute("update underseal.operation_type set run_within = '100 days'")
    writer.set(held.operation_id, run_deadline=row["run_deadline"] + 9 * HOUR)
    report = world.us.run(held)
    assert (report.outcome, report.reason, world.service.done) == ("refused", "integrity", [])


@pytest.mark.clause("T5b", "H2.12b")
@pytest.mark.parametrize("votes", ["kept", "as they are"])
def test_what_was_rejected_is_not_approved_by_putting_it_back(
    audit: Audit, writer: Writer, votes: str
) -> None:
    """Of two approvals needed one was given; then it was rejected."""
    us = audit.world.us
    held = audit.hold()
    audit.approve(held, "ann")
    row, put_back = audit.world.row(held), writer.keep(held.operation_id)
    assert us.reject(us.get(held, "bob"), "bob", "no").outcome == "rejected"
    if votes == "kept":
        put_back()
    else:
        rejected = writer.keep(held.operation_id)
        put_back()
        seal = {name: row[name] for name in ("payload_key_id", "fingerprint", "fingerprint_key_id")}
        rejected()
        writer.revive(held.operation_id, row["sealed_payload"], seal)
    writer.call_approved(held.operation_id)
    report = us.run(held)
    assert (report.outcome, report.reason, audit.world.service.done) == ("refused", "integrity", [])


@pytest.mark.clause("T5b")
@pytest.mark.parametrize("state", ["REJECTED", "CANCELLED"])
def test_a_request_put_back_waits_for_true_approvals_again(audit: Audit, writer: Writer, state: str) -> None:
    """A no can be unsaid by a writer who kept the request; a yes cannot be said."""
    us = audit.world.us
    held = audit.hold()
    put_back = writer.keep(held.operation_id)
    if state == "REJECTED":
        us.reject(us.get(held, "cy"), "cy", "no")
    else:
        us.cancel(held, "rita")
    put_back()
    assert (us.run(held).reason, audit.world.service.done) == ("not-approved", [])
    audit.push([held])
    audit.check()
    assert audit.was_done(held)


@pytest.mark.clause("T5b", "H9.3b")
def test_a_request_put_back_after_its_sealed_expiry_is_past_approving(
    audit: Audit, writer: Writer, clock: TestClock
) -> None:
    held = audit.hold()
    row, put_back = audit.world.row(held), writer.keep(held.operation_id)
    clock.advance(hours=2)
    audit.world.us.sweep()
    assert audit.world.look(held).state == "EXPIRED"
    put_back()
    writer.set(
        held.operation_id,
        requested_at=row["requested_at"] + 1.5 * HOUR,
        expires_at=row["expires_at"] + 9 * HOUR,
    )
    assert [audit.approve(held, "ann"), audit.approve(held, "bob")] == ["recorded", "approved"]
    report = audit.world.us.run(held)
    assert (report.outcome, report.reason, audit.world.service.done) == ("refused", "integrity", [])
