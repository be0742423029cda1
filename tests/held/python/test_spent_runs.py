"""With a spent register a row that somebody brought back is not run again."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.held.python.worlds import World
from underseal import FileSpentRegister
from underseal.testing import TestClock


class Recorder:
    """A register in memory that tells what it was asked."""

    def __init__(self) -> None:
        self.kept: dict[UUID, timedelta] = {}
        self.broken = False

    def spend(self, operation_id: UUID, keep_for: timedelta) -> bool:
        if self.broken:
            raise ConnectionError("the other database is away")
        first = operation_id not in self.kept
        self.kept.setdefault(operation_id, keep_for)
        return first


def restore(world: World, before: dict[str, Any]) -> None:
    """Bring a row back to what it was, as a super-writer or a restore of the table would."""
    columns = {
        name: json.dumps(value) if name == "sealed_payload" else value
        for name, value in before.items()
        if name != "operation_id"
    }
    settings = ", ".join(f"{name} = %({name})s" for name in columns)
    with world.triggers_off():
        world.admin.execute(
            f"update underseal.held_operation set {settings} where operation_id = %(operation_id)s",
            {**columns, "operation_id": before["operation_id"]},
        )
        world.admin.execute("delete from underseal.replay_ticket")
        world.admin.execute("delete from underseal.held_event_pending where seq > 2")
        world.admin.execute("delete from underseal.held_event where seq > 2")


@pytest.mark.clause("H8.5a", "H8.5c")
def test_a_row_that_was_brought_back_is_refused(make_world: Callable[..., World], tmp_path: Path) -> None:
    world = make_world(spent=FileSpentRegister(tmp_path / "spent"))
    held = world.approved()
    before = world.row(held)
    assert world.us.run(held).outcome == "succeeded"
    restore(world, before)
    assert world.look(held).state == "APPROVED"
    report = world.us.run(held)
    assert (report.outcome, report.reason) == ("refused", "spent")
    assert len(world.service.done) == 1


def test_without_a_register_such_a_row_runs_again(sync_world: World) -> None:
    held = sync_world.approved()
    before = sync_world.row(held)
    sync_world.us.run(held)
    restore(sync_world, before)
    assert sync_world.us.run(held).outcome == "succeeded"


@pytest.mark.clause("H8.5b", "H8.5c")
def test_a_cancelled_row_that_was_brought_back_is_refused(
    make_world: Callable[..., World], tmp_path: Path
) -> None:
    world = make_world(spent=FileSpentRegister(tmp_path / "spent"))
    held = world.approved()
    before = world.row(held)
    assert world.us.cancel(held, "rita").outcome == "cancelled"
    restore(world, before)
    report = world.us.run(held)
    assert (report.outcome, report.reason, world.service.done) == ("refused", "spent", [])


@pytest.mark.clause("H8.5b")
def test_cancelling_what_nobody_approved_spends_nothing(make_world: Callable[..., World]) -> None:
    register = Recorder()
    world = make_world(spent=register)
    assert world.us.cancel(world.hold(), "rita").outcome == "cancelled"
    assert register.kept == {}


@pytest.mark.clause("H8.5b")
def test_a_register_that_is_away_cancels_nothing(make_world: Callable[..., World]) -> None:
    register = Recorder()
    world = make_world(spent=register)
    held = world.approved()
    register.broken = True
    with pytest.raises(ConnectionError):
        world.us.cancel(held, "rita")
    assert world.look(held).state == "APPROVED"


@pytest.mark.clause("H8.5a")
def test_a_register_that_is_away_runs_nothing(make_world: Callable[..., World]) -> None:
    register = Recorder()
    world = make_world(spent=register)
    held = world.approved()
    register.broken = True
    report = world.us.run(held)
    assert (report.outcome, report.reason, world.service.done) == ("refused", "register-unavailable", [])
    assert "away" not in world.row(held)["outcome_detail"]


@pytest.mark.clause("H8.5e")
def test_an_entry_lasts_longer_than_the_sealed_deadline(
    make_world: Callable[..., World], clock: TestClock
) -> None:
    register = Recorder()
    world = make_world(spent=register)
    run, cancelled = world.approved(5), world.approved(6)
    deadline = world.row(run)["run_deadline"]
    # The columns do not count: a shorter one within the tolerance shortens nothing.
    world.edit(run, run_deadline=deadline - timedelta(seconds=60))
    world.us.run(run)
    world.us.cancel(cancelled, "rita")
    assert register.kept[run.operation_id] > deadline - clock.now()
    assert register.kept[cancelled.operation_id] > timedelta(days=730)
