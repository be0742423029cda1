"""Schedules and claims from Python: what a service adds, and what workers do, in both kinds of clients."""

from __future__ import annotations

import inspect
from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.wake.wakes import FLOW, Wakes, at, claimed
from underseal.errors import AccessDenied
from underseal.testing import OWNER, TestClock, TestDatabase, in_background
from underseal.wake.async_client import AsyncClaims, AsyncSchedules
from underseal.wake.client import Claims, Schedules
from underseal.wake.cron import ScheduleRefusedError
from underseal.wake.model import Fired

BERLIN = "Europe/Berlin"
DAY = timedelta(days=1)


@pytest.fixture
def schedules(database: TestDatabase, clock: TestClock) -> Any:
    """The schedules' client, at noon before the clocks go forward in Berlin."""
    clock.set(at("2027-03-27T12:00:00.25Z"))
    with Schedules(database.conninfo_as(OWNER)) as client:
        yield client


@pytest.fixture
def claims(database: TestDatabase, clock: TestClock) -> Any:
    """The worker's client."""
    with Claims(database.conninfo_as(OWNER)) as client:
        yield client


def test_a_schedule_runs_through_the_change_of_the_clocks(
    schedules: Schedules, claims: Claims, w: Wakes, clock: TestClock
) -> None:
    added = schedules.add("nightly", "backup", "30 2 * * *", "ann", time_zone=BERLIN, value={"full": True})
    assert (added.outcome, added.due_at) == ("added", at("2027-03-28T01:00Z"))
    assert claims.fire_due_schedules("w1") == []
    assert claims.next_due([], schedules=True) == timedelta(
        hours=12, minutes=59, seconds=59, milliseconds=750
    )

    clock.set(at("2027-03-28T01:00:03Z"))
    (fired,) = claims.fire_due_schedules("w1")
    assert fired == Fired(
        "fired", None, None, "nightly", ("nightly@2027-03-28T01:00:00Z",), (), at("2027-03-29T00:30:00Z")
    )
    assert claims.fire_due_schedules("w1") == []
    (claim,) = claims.claim_due("w1", ["backup"])
    assert (claim.execution_id, claim.kind, claim.flow_version) == (
        "nightly@2027-03-28T01:00:00Z",
        "drive",
        1,
    )
    (found,) = schedules.list("ann")
    assert (found.value, found.last_id, found.due_at) == ({"full": True}, claim.execution_id, fired.next_at)


@pytest.mark.parametrize(
    ("missed", "started"),
    [("skip", []), ("latest", ["05"]), ("all", ["01", "02", "03", "04", "05"])],
)
def test_missed_instants(
    schedules: Schedules, claims: Claims, clock: TestClock, missed: Any, started: list[str]
) -> None:
    clock.set(at("2027-04-30T12:00Z"))
    schedules.add("daily", "backup", "0 3 * * *", "ann", missed=missed)
    clock.set(at("2027-05-05T09:00Z"))
    (fired,) = claims.fire_due_schedules("w1")
    assert fired.started == tuple(f"daily@2027-05-{day}T03:00:00Z" for day in started)
    assert fired.next_at == at("2027-05-06T03:00Z")


def test_a_long_backlog_is_worked_off_pass_by_pass(
    schedules: Schedules, claims: Claims, w: Wakes, clock: TestClock
) -> None:
    clock.set(at("2027-04-30T12:00:30Z"))
    schedules.add("often", "backup", "* * * * *", "ann", missed="all")
    clock.set(at("2027-04-30T16:10:00Z"))
    counts = [[len(one.started) for one in claims.fire_due_schedules("w1")] for _ in range(4)]
    assert counts == [[100], [100], [50], []]
    assert len(w.started()) == 250


def test_two_workers_and_one_that_dies_start_each_instant_once(
    schedules: Schedules, claims: Claims, w: Wakes, clock: TestClock
) -> None:
    schedules.add("nightly", "backup", "30 2 * * *", "ann", time_zone=BERLIN)
    clock.set(at("2027-03-28T01:00:01Z"))
    assert len(w.claim_schedules("dying", lease=timedelta(seconds=30))) == 1
    assert claims.fire_due_schedules("w1") == []
    clock.advance(seconds=30)
    both = [in_background(claims.fire_due_schedules, name) for name in ("w1", "w2")]
    assert sorted(len(one.result(10)) for one in both) == [0, 1]
    assert w.started() == ["nightly@2027-03-28T01:00:00Z"]


def test_one_that_changes_between_claim_and_firing_starts_nothing(
    schedules: Schedules, claims: Claims, w: Wakes, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedules.add("nightly", "backup", "30 2 * * *", "ann", time_zone=BERLIN)
    clock.set(at("2027-03-28T01:00:01Z"))
    from underseal.wake import kernel

    fire = kernel.fire_schedule

    def changed_first(*args: Any) -> Any:
        schedules.add("nightly", "backup", "45 2 * * *", "ann", time_zone=BERLIN)
        return fire(*args)

    monkeypatch.setattr(kernel, "fire_schedule", changed_first)
    (fired,) = claims.fire_due_schedules("w1")
    assert (fired.outcome, fired.reason, fired.started) == ("conflict", "not-claimed", ())
    assert w.started() == []


def test_one_that_cannot_be_read_here_stops_no_other(
    schedules: Schedules, claims: Claims, w: Wakes, clock: TestClock
) -> None:
    for name in ("a", "b"):
        schedules.add(name, "backup", "0 13 * * *", "ann")
    w.rows("update underseal.schedule set time_zone = 'Mars/Olympus' where name = 'a'")
    clock.set(at("2027-03-27T13:00Z"))
    fired = {one.name: (one.outcome, one.reason) for one in claims.fire_due_schedules("w1")}
    assert fired == {"a": ("put-off", "unknown-zone"), "b": ("fired", None)}
    report = w.row("select * from underseal.operator_report")
    assert (report["subject"], report["kind"]) == ("a", "schedule-unreadable")
    assert "Mars/Olympus" in report["cause"]
    assert claims.fire_due_schedules("w1") == []
    w.rows("update underseal.schedule set time_zone = 'UTC' where name = 'a'")
    clock.advance(minutes=5)
    assert [one.started for one in claims.fire_due_schedules("w1")] == [("a@2027-03-27T13:00:00Z",)]


def test_a_schedule_that_a_human_placed_off_its_instants_finds_back(
    schedules: Schedules, claims: Claims, w: Wakes, clock: TestClock
) -> None:
    w.add("byhand", cron="0 13 * * *", time_zone="UTC", first_in=timedelta(minutes=7))
    clock.advance(minutes=8)
    (fired,) = claims.fire_due_schedules("w1")
    assert (fired.started, fired.next_at) == ((), at("2027-03-27T13:00Z"))


def test_pausing_and_resuming_misses_nothing(
    schedules: Schedules, claims: Claims, w: Wakes, clock: TestClock
) -> None:
    schedules.add("nightly", "backup", "0 13 * * *", "ann", missed="all")
    assert schedules.pause("nightly", "ann").outcome == "paused"
    clock.advance(days=5)
    assert claims.fire_due_schedules("w1") == []
    resumed = schedules.resume("nightly", "ann")
    assert (resumed.outcome, resumed.due_at) == ("resumed", at("2027-04-01T13:00Z"))
    assert schedules.resume("nightly", "ann").outcome == "unchanged"
    assert (
        schedules.resume("none", "ann").outcome == schedules.resume("nightly", "bob").outcome == "not-found"
    )
    found = schedules.get("nightly", "ann")
    assert found is not None
    assert not found.paused
    assert schedules.get("nightly", "bob") is None
    assert schedules.remove("nightly", "ann").outcome == "removed"
    assert schedules.list("ann") == []


@pytest.mark.parametrize(
    ("cron", "zone", "reason"),
    [
        ("0 3 * *", "UTC", "malformed-cron"),
        ("0 3 30 2 *", "UTC", "malformed-cron"),
        ("0 3 * * *", "Berlin", "unknown-zone"),
    ],
)
def test_what_can_never_be_kept_is_refused_before_anything_is_written(
    schedules: Schedules, w: Wakes, cron: str, zone: str, reason: str
) -> None:
    with pytest.raises(ScheduleRefusedError) as caught:
        schedules.add("nightly", "backup", cron, "ann", time_zone=zone)
    assert caught.value.reason == reason
    assert w.rows("select 1 from underseal.schedule") == []


def test_every_expression_a_client_reads_is_one_that_the_database_takes(schedules: Schedules) -> None:
    for number, cron in enumerate(
        ("*/5 1-3,7 L JAN-MAR *", "0 0 * * 1#2", "0 0 LW * 5L", "0 30 4 * * sun", "5/10 * * * 7")
    ):
        assert schedules.add(f"s{number}", "backup", cron, "ann").outcome == "added", cron


def test_a_schedule_joins_the_callers_transaction(schedules: Schedules, database: TestDatabase) -> None:
    connection = database.connect(OWNER, autocommit=False)
    assert schedules.add("nightly", "backup", "0 3 * * *", "ann", connection=connection).outcome == "added"
    assert schedules.list("ann") == []
    connection.commit()
    assert len(schedules.list("ann")) == 1


def test_claims_from_python(claims: Claims, w: Wakes, clock: TestClock) -> None:
    w.start("a", "b", "c")
    held = claims.claim_due("w1", [FLOW], limit=2)
    assert [one.execution_id for one in held] == ["a", "b"]
    assert claims.renew("w1", ["a", "c"]) == {"a": "renewed", "c": "lost"}
    assert claims.release("w1", "a", retry_in=DAY).outcome == "released"
    assert claims.release_all("w1", ["a", "b"]) == {"a": "lost", "b": "released"}
    assert claims.next_due([FLOW]) == timedelta(0)
    assert [one.attempts for one in claims.claim_due("w2", [FLOW])] == [1, 1]
    assert claims.next_due(["another"]) is None
    for call in (
        lambda: claims.claim_due("w1", [FLOW], lease=DAY), lambda: claims.claim_due("w1", [FLOW], limit=0),
        lambda: claims.renew("w1", ["a"], lease=timedelta(0)), lambda: claims.release("w1", "a", retry_in=-DAY),
        lambda: claims.fire_due_schedules("w1", lease=DAY),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="Expected"):
            call()


@pytest.mark.clause("E13b")
def test_a_denial_is_raised(database: TestDatabase, w: Wakes) -> None:
    role = database.create_role("bound")
    for access in ("worker", "client"):
        w.rows("select underseal.grant_access(%s, %s, 'login')", role, access)
    with Claims(database.conninfo_as(role)) as claims, Schedules(database.conninfo_as(role)) as schedules:
        for call in (
            lambda: claims.claim_due("w1", [FLOW]), lambda: claims.renew("w1", ["a"]),
            lambda: claims.release("w1", "a"), lambda: claims.release_all("w1", ["a"]),
            lambda: claims.fire_due_schedules("w1"), lambda: schedules.list("ann"), lambda: schedules.get("x", "ann"),
            lambda: schedules.resume("x", "ann"),
        ):  # fmt: skip
            with pytest.raises(AccessDenied):
                call()
        assert schedules.add("x", "f", "0 3 * * *", "ann").outcome == "denied"
        assert schedules.pause("x", "ann").outcome == schedules.remove("x", "ann").outcome == "denied"


async def test_the_async_twins(database: TestDatabase, w: Wakes, clock: TestClock) -> None:
    clock.set(at("2027-03-27T12:00Z"))
    conninfo = database.conninfo_as(OWNER)
    async with AsyncSchedules(conninfo) as schedules, AsyncClaims(conninfo) as claims:
        assert (await schedules.add("s", FLOW, "0 13 * * *", "ann")).outcome == "added"
        assert (await schedules.pause("s", "ann")).outcome == "paused"
        assert (await schedules.resume("s", "ann")).outcome == "resumed"
        assert [one.name for one in await schedules.list("ann")] == ["s"]
        assert (await schedules.get("s", "ann")) is not None
        assert await claims.next_due([], schedules=True) == timedelta(hours=1)
        clock.advance(hours=1)
        (fired,) = await claims.fire_due_schedules("w1")
        (held,) = await claims.claim_due("w1", [FLOW])
        assert fired.started == (held.execution_id,)
        assert await claims.renew("w1", [held.execution_id]) == {held.execution_id: "renewed"}
        assert (await claims.release("w1", held.execution_id)).outcome == "released"
        assert await claims.release_all("w1", [held.execution_id]) == {held.execution_id: "lost"}
        assert (await schedules.remove("s", "ann")).outcome == "removed"
    assert claimed(w.claim()) == [held.execution_id]


@pytest.mark.parametrize(("one", "other"), [(Schedules, AsyncSchedules), (Claims, AsyncClaims)])
def test_twins_have_the_same_methods(one: type, other: type) -> None:
    def told(of: type) -> dict[str, list[tuple[str, Any, Any]]]:
        return {
            name: [(p.name, p.kind, p.default) for p in inspect.signature(method).parameters.values()]
            for name, method in vars(of).items()
            if not name.startswith("_")
        }

    assert told(one) == told(other)
    assert all(getattr(other, name).__doc__ == getattr(one, name).__doc__ for name in told(one))


def test_instants_keep_their_zone(schedules: Schedules) -> None:
    added = schedules.add("nightly", "backup", "30 2 * * *", "ann", time_zone=BERLIN)
    assert isinstance(added.due_at, datetime)
    assert added.due_at.tzinfo is not None
