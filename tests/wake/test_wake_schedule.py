"""Schedules in the database: whose they are, what a firing may do, and what it leaves."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest

from tests.wake.wakes import MINUTE, Wakes, outcome
from underseal.testing import OWNER, TestClock, TestDatabase

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
NOTHING = timedelta(0)


@pytest.fixture
def s(w: Wakes, clock: TestClock) -> Wakes:
    """The verbs at 02:00 UTC, with a schedule of ann's that is due at 03:00."""
    clock.set(datetime.fromisoformat("2027-01-10T02:00:00Z"))
    assert w.add(cron="0 3 * * *", time_zone="UTC", input={"x": 1})["outcome"] == "added"
    return w


def due(s: Wakes, clock: TestClock, worker: str = "w1", **late: float) -> dict[str, Any]:
    """The schedule's claim at 03:00, or later."""
    clock.set(datetime.fromisoformat("2027-01-10T03:00:00Z"))
    clock.advance(**(late or {"seconds": 0}))
    (claim,) = s.claim_schedules(worker)
    return claim


def test_a_schedule_is_claimed_when_it_is_due_and_not_before(s: Wakes, clock: TestClock) -> None:
    clock.advance(minutes=59, seconds=59)
    assert s.claim_schedules() == []
    clock.advance(seconds=1)
    (claim,) = s.claim_schedules()
    assert (claim["name"], claim["cron"], claim["time_zone"], claim["missed"]) == (
        "nightly",
        "0 3 * * *",
        "UTC",
        "latest",
    )
    assert claim["due_at"] == claim["now"] == clock.now()
    assert s.claim_schedules("w2") == []


def test_a_firing_starts_the_flow_and_moves_on(s: Wakes, clock: TestClock) -> None:
    fired = s.fire(due(s, clock))
    assert outcome(fired) == ("fired", None)
    assert (fired["started"], fired["existing"]) == (["nightly@2027-01-10T03:00:00Z"], [])
    assert fired["next_at"] == clock.now() + DAY
    execution = s.execution("nightly@2027-01-10T03:00:00Z")
    assert (execution["flow"], execution["flow_version"], execution["owner"], execution["status"]) == (
        "backup", 1, "ann", "pending"
    )  # fmt: skip
    event = s.row("select data from underseal.event where chain_id like 'nightly@%%'")
    assert event["data"]["input"] == {"x": 1}
    (claim,) = s.claim(flows=["backup"])
    s.complete(claim)
    assert s.schedules()[0]["last_id"] == claim["execution_id"]
    assert s.claim_schedules() == []
    clock.advance(days=1)
    assert s.claim_schedules()[0]["due_at"] == fired["next_at"]


def test_many_instants_are_fired_at_once(s: Wakes, clock: TestClock) -> None:
    claim = due(s, clock, days=3, minutes=5)
    fired = s.fire(claim, [n * DAY for n in range(4)], 4 * DAY)
    assert fired["started"] == [f"nightly@2027-01-{10 + n}T03:00:00Z" for n in range(4)]
    assert s.schedules()[0]["last_id"] == "nightly@2027-01-13T03:00:00Z"


def test_a_firing_may_start_nothing_and_be_due_again_at_once(s: Wakes, clock: TestClock) -> None:
    claim = due(s, clock, days=2)
    fired = s.fire(claim, [], DAY)
    assert (outcome(fired), fired["started"], s.started()) == (("fired", None), [], [])
    (again,) = s.claim_schedules("w2")
    assert again["due_at"] == claim["due_at"] + DAY
    assert s.schedules()[0]["last_id"] is None


def test_a_day_of_a_schedule_is_24_hours_in_every_session(s: Wakes, clock: TestClock) -> None:
    s.rows("set timezone = 'Europe/Berlin'")
    clock.set(datetime.fromisoformat("2027-03-27T12:00:00Z"))
    (claim,) = s.claim_schedules()
    fired = s.fire(claim, [76 * DAY], 77 * DAY)
    assert fired["started"] == ["nightly@2027-03-27T03:00:00Z"]
    assert fired["next_at"] == datetime.fromisoformat("2027-03-28T03:00:00Z")
    assert s.add("other", first_in=DAY)["due_at"] == datetime.fromisoformat("2027-03-28T12:00:00Z")


def test_an_id_that_exists_is_not_started_twice(s: Wakes, clock: TestClock) -> None:
    s.start("nightly@2027-01-10T03:00:00Z", flow="backup")
    fired = s.fire(due(s, clock, days=1), [NOTHING, DAY], 2 * DAY)
    assert fired["existing"] == ["nightly@2027-01-10T03:00:00Z"]
    assert fired["started"] == ["nightly@2027-01-11T03:00:00Z"]
    assert s.rows("select 1 from underseal.operator_report") == []


@pytest.mark.parametrize("change", [{"flow": "another"}, {"principal": "mallory"}])
def test_an_id_that_somebody_took_is_told_to_operators(
    s: Wakes, clock: TestClock, change: dict[str, str]
) -> None:
    s.start("nightly@2027-01-10T03:00:00Z", **{"flow": "backup", **change})
    fired = s.fire(due(s, clock))
    assert (fired["started"], len(fired["existing"])) == ([], 1)
    report = s.row("select * from underseal.operator_report")
    assert (report["subject"], report["kind"]) == ("nightly", "schedule-id-taken")


def test_a_worker_that_dies_leaves_its_claim_to_the_next(s: Wakes, clock: TestClock) -> None:
    first = due(s, clock)
    clock.advance(seconds=59)
    assert s.claim_schedules("w2") == []
    clock.advance(seconds=1)
    (second,) = s.claim_schedules("w2")
    assert outcome(s.fire(first)) == ("conflict", "not-claimed")
    assert outcome(s.fire(second, worker="w2")) == ("fired", None)
    assert len(s.started()) == 1


def test_a_late_firing_counts_while_nobody_else_came(s: Wakes, clock: TestClock) -> None:
    claim = due(s, clock)
    clock.advance(hours=5)
    assert outcome(s.fire(claim)) == ("fired", None)


@pytest.mark.parametrize(
    "change",
    [
        {"name": "another"}, {"due_at": datetime.fromisoformat("2027-01-10T03:00:01Z")},
        {"revision": "00000000-0000-0000-0000-000000000000"}, {"revision": None}, {"due_at": None},
    ],
)  # fmt: skip
def test_only_what_was_claimed_is_fired(s: Wakes, clock: TestClock, change: dict[str, Any]) -> None:
    claim = due(s, clock)
    assert outcome(s.fire(claim, **change)) == ("conflict", "not-claimed")
    assert outcome(s.fire(claim, worker="w2")) == ("conflict", "not-claimed")
    assert outcome(s.put_off({**claim, **change})) == ("conflict", "not-claimed")
    assert s.started() == []
    assert outcome(s.fire(claim)) == ("fired", None)


@pytest.mark.parametrize(
    ("fires", "next_in", "reason"),
    [
        (None, DAY, "malformed-instants"),
        ([None], DAY, "malformed-instants"),
        ([-DAY], DAY, "malformed-instants"),
        ([NOTHING, NOTHING], DAY, "malformed-instants"),
        ([2 * HOUR, HOUR], DAY, "malformed-instants"),
        ([timedelta(milliseconds=500)], DAY, "malformed-instants"),
        ([DAY], DAY, "malformed-instants"),
        ([2 * HOUR], HOUR, "malformed-instants"),
        ([DAY], 3 * DAY, "malformed-instants"),
        ([timedelta(seconds=n) for n in range(101)], DAY, "malformed-instants"),
        ([NOTHING], NOTHING, "malformed-distance"),
        ([NOTHING], -DAY, "malformed-distance"),
        ([NOTHING], None, "malformed-distance"),
        ([NOTHING], timedelta(days=18300, microseconds=1), "malformed-distance"),
    ],
)
def test_absurd_firings_are_refused(
    s: Wakes, clock: TestClock, fires: Any, next_in: timedelta | None, reason: str
) -> None:
    claim = due(s, clock, hours=20)
    assert outcome(s.fire(claim, fires, next_in)) == ("refused", reason)
    assert s.started() == []
    assert outcome(s.fire(claim, [timedelta(seconds=n) for n in range(100)], timedelta(days=18300))) == (
        "fired",
        None,
    )


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"name": ""}, "malformed-name"), ({"name": "a~b"}, "malformed-name"), ({"name": "a\nb"}, "malformed-name"),
        ({"name": "x" * 151}, "malformed-name"), ({"name": None}, "malformed-name"),
        ({"flow": ""}, "malformed-flow"), ({"flow": None}, "malformed-flow"), ({"flow_version": 0}, "malformed-flow"),
        ({"cron": None}, "malformed-cron"), ({"cron": "* * * *"}, "malformed-cron"),
        ({"cron": "* * * * * * *"}, "malformed-cron"), ({"cron": "0 0 ; drop *"}, "malformed-cron"),
        ({"cron": "0" * 200 + " * * * *"}, "malformed-cron"),
        ({"time_zone": ""}, "malformed-zone"), ({"time_zone": "../etc"}, "malformed-zone"),
        ({"time_zone": None}, "malformed-zone"),
        ({"missed": "some"}, "malformed-missed"), ({"missed": None}, "malformed-missed"),
        ({"first_in": None}, "malformed-distance"), ({"first_in": NOTHING}, "malformed-distance"),
        ({"first_in": -DAY}, "malformed-distance"), ({"first_in": timedelta(days=18301)}, "malformed-distance"),
        ({"input": {"__loomEnc": "x"}}, "envelope"), ({"input": "x" * 1048577}, "too-large"),
    ],
)  # fmt: skip
def test_an_absurd_schedule_is_refused(w: Wakes, change: dict[str, Any], reason: str) -> None:
    assert outcome(w.add(**change)) == ("refused", reason)
    assert w.rows("select 1 from underseal.schedule") == w.rows("select 1 from underseal.wake") == []


@pytest.mark.parametrize(
    ("age", "answer"), [(10 * MINUTE, "added"), (10.1 * MINUTE, "refused"), (-MINUTE / 60, "refused")]
)
def test_only_an_instant_the_database_just_gave_is_counted_from(
    w: Wakes, clock: TestClock, age: timedelta, answer: str
) -> None:
    added = w.add(since=clock.now() - age)
    assert outcome(added) == (answer, None if answer == "added" else "stale-instant")
    w.remove()
    w.add()
    w.pause()
    resumed = w.pause(paused=False, first_in=HOUR, since=clock.now() - age)
    assert outcome(resumed) == ("resumed", None) if answer == "added" else ("refused", "stale-instant")


def test_distances_count_from_the_instant_and_meet_a_whole_second(w: Wakes, clock: TestClock) -> None:
    since = clock.advance(microseconds=123457)
    clock.advance(seconds=3)
    added = w.add(since=since, first_in=timedelta(days=3000, microseconds=1_000_000 - 123457))
    assert added["due_at"] == since + timedelta(days=3000, microseconds=1_000_000 - 123457)
    assert added["due_at"].microsecond == 0


def test_asking_again_changes_nothing(s: Wakes, clock: TestClock) -> None:
    before = s.schedules()
    claim = due(s, clock)
    again = s.add(cron="0  3 *\t* *", time_zone="UTC", input={"x": 1}, first_in=2 * HOUR)
    assert (outcome(again), again["due_at"]) == (("unchanged", None), clock.now())
    assert [{**one, "now": before[0]["now"]} for one in s.schedules()] == before
    assert outcome(s.fire(claim)) == ("fired", None)


@pytest.mark.parametrize(
    "change", [{"input": {"x": 2}}, {"flow": "other"}, {"flow_version": 2}, {"missed": "all"}]
)
def test_what_is_due_stays_due_where_the_instants_stay(
    s: Wakes, clock: TestClock, change: dict[str, Any]
) -> None:
    clock.advance(days=2)
    changed = s.add(**{"cron": "0 3 * * *", "time_zone": "UTC", "input": {"x": 1}, **change})
    assert outcome(changed) == ("changed", None)
    assert changed["due_at"] == datetime.fromisoformat("2027-01-10T03:00:00Z")
    (claim,) = s.claim_schedules()
    s.fire(claim)
    execution = s.execution("nightly@2027-01-10T03:00:00Z")
    assert (execution["flow"], execution["flow_version"]) == (
        change.get("flow", "backup"),
        change.get("flow_version", 1),
    )


@pytest.mark.parametrize("change", [{"cron": "0 5 * * *"}, {"time_zone": "Asia/Tokyo"}])
def test_other_instants_begin_anew(s: Wakes, clock: TestClock, change: dict[str, Any]) -> None:
    clock.advance(days=2)
    changed = s.add(
        **{"cron": "0 3 * * *", "time_zone": "UTC", "input": {"x": 1}, "first_in": 5 * HOUR, **change}
    )
    assert (outcome(changed), changed["due_at"]) == (("changed", None), clock.now() + 5 * HOUR)


def test_a_paused_schedule_starts_nothing_and_missed_nothing(s: Wakes, clock: TestClock) -> None:
    assert outcome(s.pause()) == ("paused", None)
    assert outcome(s.pause()) == ("unchanged", None)
    assert s.schedule_wake() is None
    assert (s.schedules()[0]["paused"], s.schedules()[0]["due_at"]) == (True, None)
    clock.advance(days=9)
    assert s.claim_schedules() == []
    changed = s.add(cron="0 5 * * *", time_zone="UTC")
    assert (outcome(changed), changed["due_at"], s.schedule_wake()) == (("changed", None), None, None)
    resumed = s.pause(paused=False, first_in=3 * HOUR)
    assert (outcome(resumed), resumed["due_at"]) == (("resumed", None), clock.now() + 3 * HOUR)
    assert outcome(s.pause(paused=False)) == ("unchanged", None)


def test_resuming_needs_a_distance(s: Wakes) -> None:
    s.pause()
    assert outcome(s.pause(paused=False)) == ("refused", "malformed-distance")


def test_a_change_may_be_made_only_to_what_was_read(s: Wakes) -> None:
    (read,) = s.schedules()
    s.add(cron="0 5 * * *")
    assert outcome(s.pause(revision=read["revision"])) == ("conflict", "changed")
    assert outcome(s.pause(revision=s.schedules()[0]["revision"])) == ("paused", None)


def test_a_removed_schedule_leaves_what_it_started(s: Wakes, clock: TestClock) -> None:
    s.fire(due(s, clock))
    assert outcome(s.remove()) == ("removed", None)
    assert outcome(s.remove()) == ("not-found", None)
    assert s.schedules() == []
    assert s.schedule_wake() is None
    assert s.started() == ["nightly@2027-01-10T03:00:00Z"]


@pytest.mark.clause("E12a", "E12b", "E12c")
def test_a_schedule_is_its_owners(s: Wakes) -> None:
    missing = s.pause("none", "bob")
    assert s.pause(principal="bob") == missing
    assert outcome(missing) == ("not-found", None)
    assert s.remove(principal="bob") == s.remove("none", "bob")
    assert outcome(s.add(principal="bob")) == ("conflict", "name-taken")
    assert s.schedules("bob") == []
    assert len(s.schedules("ann")) == 1
    for answer in (s.add(principal=""), s.pause(principal=""), s.remove(principal=""), *s.schedules("")):
        assert outcome(answer) == ("denied", "no-principal")
    assert not s.schedules()[0]["paused"]


@pytest.mark.clause("E12a", "E13b")
def test_an_operator_acts_on_everybodys(s: Wakes, database: TestDatabase) -> None:
    role = database.create_role("operator")
    s.rows("select underseal.grant_access(%s, 'operator'), underseal.map_login(%s, 'oz')", role, role)
    oz = Wakes(database.connect(role))
    for answer in (oz.pause(principal="oz"), oz.remove(principal="oz"), *oz.schedules("oz")):
        assert outcome(answer) == ("denied", "no-principal")
    for answer in (oz.pause(principal="ann", as_operator=True), *oz.schedules("ann", True)):
        assert outcome(answer) == ("denied", "no-principal")
    assert [one["owner"] for one in oz.schedules("oz", True)] == ["ann"]
    assert outcome(oz.pause(principal="oz", as_operator=True)) == ("paused", None)
    assert outcome(oz.pause(principal="oz", paused=False, first_in=HOUR, as_operator=True)) == (
        "resumed",
        None,
    )
    assert outcome(oz.add(principal="oz", cron="0 7 * * *", as_operator=True)) == ("changed", None)
    assert s.schedules()[0]["cron"] == "0 7 * * *"
    assert outcome(oz.remove(principal="oz", as_operator=True)) == ("removed", None)


@pytest.mark.clause("E12a", "E13b")
def test_a_client_bound_to_its_login_has_its_own(s: Wakes, database: TestDatabase) -> None:
    role = database.create_role("client")
    s.rows("select underseal.grant_access(%s, 'client', 'login'), underseal.map_login(%s, 'bob')", role, role)
    bob = Wakes(database.connect(role))
    for answer in (bob.pause(), bob.remove(), bob.add("mine"), *bob.schedules(), bob.pause(as_operator=True)):
        assert outcome(answer) == ("denied", "no-principal")
    assert outcome(bob.add("mine", principal="bob")) == ("added", None)
    assert [one["name"] for one in bob.schedules("bob")] == ["mine"]
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        bob.claim_schedules()


def test_a_worker_without_the_owners_principal_fires_for_the_owner(
    s: Wakes, database: TestDatabase, clock: TestClock
) -> None:
    role = database.create_role("worker")
    s.rows(
        "select underseal.grant_access(%s, 'worker', 'login'), underseal.map_login(%s, 'node1')", role, role
    )
    node = Wakes(database.connect(role))
    clock.advance(hours=1)
    (claim,) = node.claim_schedules("node1")
    for answer in (node.fire(claim), node.put_off(claim)):
        assert outcome(answer) == ("denied", "no-principal")
    assert outcome(node.fire(claim, worker="node1")) == ("fired", None)
    assert s.execution("nightly@2027-01-10T03:00:00Z")["owner"] == "ann"


def test_what_cannot_be_read_is_put_off_and_told(s: Wakes, clock: TestClock) -> None:
    claim = due(s, clock)
    for retry_in in (NOTHING, timedelta(days=1, seconds=1), None):
        assert outcome(s.put_off(claim, retry_in=retry_in)) == ("refused", "malformed-delay")  # type: ignore[arg-type]
    assert outcome(s.put_off(claim)) == ("put-off", None)
    report = s.row("select * from underseal.operator_report")
    assert (report["subject"], report["kind"], report["cause"]) == (
        "nightly",
        "schedule-unreadable",
        "no such zone",
    )
    clock.advance(minutes=4, seconds=59)
    assert s.claim_schedules("w2") == []
    clock.advance(seconds=1)
    assert s.claim_schedules("w2")[0]["due_at"] == claim["due_at"]


def test_schedules_are_listed_by_pages(w: Wakes) -> None:
    for name in ("c", "a", "b"):
        w.add(name)
    query = "select name from underseal.list_schedules('ann', max_schedules => 2, after => %s)"
    assert [row["name"] for row in w.rows(query, None)] == ["a", "b"]
    assert [row["name"] for row in w.rows(query, "b")] == ["c"]
    assert [
        row["name"] for row in w.rows("select name from underseal.list_schedules('ann', only_name => 'b')")
    ] == ["b"]


def test_the_longest_due_is_claimed_first(w: Wakes, clock: TestClock) -> None:
    for name, hours in (("late", 3), ("early", 1), ("middle", 2)):
        w.add(name, first_in=hours * HOUR)
    clock.advance(hours=9)
    assert [one["name"] for one in w.claim_schedules(most=2)] == ["early", "middle"]
    assert [one["name"] for one in w.claim_schedules(most=2)] == ["late"]


@pytest.mark.parametrize(
    ("column", "value"),
    [("cron", "* * *"), ("time_zone", "no zone!"), ("flow", ""), ("missed", "x"), ("flow_version", 0)],
)  # fmt: skip
def test_the_table_itself_refuses_absurd_values(
    s: Wakes, database: TestDatabase, column: str, value: object
) -> None:
    with pytest.raises(psycopg.errors.CheckViolation):
        database.connect(OWNER).execute(f"update underseal.schedule set {column} = %s".encode(), [value])


def test_a_wake_that_a_paused_schedule_was_left_with_by_hand_starts_nothing(
    s: Wakes, clock: TestClock
) -> None:
    s.rows("update underseal.schedule set paused = true")
    clock.advance(hours=1)
    assert s.claim_schedules() == []
