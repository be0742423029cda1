"""What a cron expression means in a zone, through every change of the clocks; and what becomes of missed instants."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim, CronSimError
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from tests.wake.wakes import at
from underseal.wake.cron import FIRES, MISSED, ON_TIME, Calendar, Missed, ScheduleRefusedError

HOUR = timedelta(hours=1)
ZONES = (
    "Europe/Berlin", "America/New_York", "America/Sao_Paulo", "America/Havana", "Asia/Beirut", "Africa/Cairo",
    "Asia/Kathmandu", "Australia/Sydney", "Pacific/Apia", "America/Santiago", "UTC", "Asia/Tehran",
)  # fmt: skip


def instants(cron: str, zone: str, after: str, count: int) -> list[str]:
    """The next instants in UTC, as text."""
    found = Calendar.read(cron, zone).upcoming(at(after), count)
    return [one.strftime("%Y-%m-%dT%H:%MZ") for one in found]


def test_the_hour_that_is_missing_in_spring_runs_at_its_end_and_once() -> None:
    # 2027-03-28 in Berlin: after 01:59 comes 03:00
    assert instants("30 2 * * *", "Europe/Berlin", "2027-03-27T12:00Z", 2) == [
        "2027-03-28T01:00Z",
        "2027-03-29T00:30Z",
    ]
    assert instants("0,15,30 2,3 * * *", "Europe/Berlin", "2027-03-28T00:00Z", 3) == [
        "2027-03-28T01:00Z", "2027-03-28T01:15Z", "2027-03-28T01:30Z",
    ]  # fmt: skip


def test_the_hour_that_comes_twice_in_autumn_runs_once() -> None:
    # 2027-10-31 in Berlin: 02:00 to 03:00 comes twice
    assert instants("30 2 * * *", "Europe/Berlin", "2027-10-30T12:00Z", 2) == [
        "2027-10-31T00:30Z",
        "2027-11-01T01:30Z",
    ]
    # asked between the two
    assert instants("30 2 * * *", "Europe/Berlin", "2027-10-31T00:45Z", 1) == ["2027-11-01T01:30Z"]
    assert instants("30 2 * * *", "Europe/Berlin", "2027-10-31T01:10Z", 1) == ["2027-11-01T01:30Z"]


def test_a_star_follows_the_real_time_through_both() -> None:
    for day in ("2027-03-28", "2027-10-31"):
        found = Calendar.read("*/30 * * * *", "Europe/Berlin").upcoming(at(f"{day}T00:00Z"), 12)
        assert [two - one for one, two in pairwise(found)] == [HOUR / 2] * 11


def test_a_midnight_that_does_not_exist_runs_when_the_day_begins() -> None:
    # 2018-11-04 in São Paulo began at 01:00
    assert instants("0 0 * * *", "America/Sao_Paulo", "2018-11-03T12:00Z", 2) == [
        "2018-11-04T03:00Z",
        "2018-11-05T02:00Z",
    ]


def test_a_day_that_does_not_exist_runs_at_its_end() -> None:
    # Samoa skipped 2011-12-30
    assert instants("0 12 * * *", "Pacific/Apia", "2011-12-29T12:00Z", 3) == [
        "2011-12-29T22:00Z", "2011-12-30T10:00Z", "2011-12-30T22:00Z",
    ]  # fmt: skip


def test_the_last_of_february_comes_in_leap_years() -> None:
    assert instants("0 0 29 2 *", "UTC", "2026-01-01T00:00Z", 2) == ["2028-02-29T00:00Z", "2032-02-29T00:00Z"]
    assert instants("0 0 29 2 *", "UTC", "2096-03-01T00:00Z", 1) == ["2104-02-29T00:00Z"]
    assert instants("0 0 * 2 MON#5", "UTC", "2026-01-01T00:00Z", 1) == ["2044-02-29T00:00Z"]


def test_seconds_come_first_where_there_are_six_fields() -> None:
    found = Calendar.read("*/20 * * * * *", "UTC").upcoming(at("2026-01-01T00:00:01.5Z"), 2)
    assert found == [at("2026-01-01T00:00:20Z"), at("2026-01-01T00:00:40Z")]


@pytest.mark.parametrize(
    "cron",
    ["", "* * * *", "* * * * * * *", "60 * * * *", "x * * * *", "0 0 30 2 *", "0 0 31 4,6,9,11 *", "*/0 * * * *",
     "5-1 * * * *", "@daily", "* * * * " + "1," * 100 + "1", "1/L * * * *", "0 0 * * 1#6", "0 0 L/x * *", "0 0 ? * *",
     "0 0 1#1#1 * *", "0 0 * * L", "² * * * *"],
)  # fmt: skip
def test_what_is_no_expression_is_refused(cron: str) -> None:
    with pytest.raises(ScheduleRefusedError) as caught:
        Calendar.read(cron, "UTC")
    assert caught.value.reason == "malformed-cron"


@pytest.mark.parametrize(
    "zone",
    ["", "Berlin", "Europe", "Europe/berlin2", "localtime", "posixrules", "Factory", "../etc/passwd", "/etc/localtime",
     "UTC\n", "a" * 65, "Europe/Berlin\0"],
)  # fmt: skip
def test_an_unknown_zone_is_refused(zone: str) -> None:
    with pytest.raises(ScheduleRefusedError) as caught:
        Calendar.read("0 0 * * *", zone)
    assert caught.value.reason == "unknown-zone"


def test_what_never_comes_is_refused() -> None:
    calendar = Calendar.read("0 0 * * *", "UTC")
    with pytest.raises(ScheduleRefusedError) as caught:
        calendar.after(datetime(9999, 12, 31, 12, tzinfo=UTC))
    assert caught.value.reason == "never"


FIELD = {
    "minute": st.sampled_from(["*", "0", "30", "59", "*/7", "*/15", "0,30", "10-20", "1/13"]),
    "hour": st.sampled_from(["*", "0", "1", "2", "3", "23", "*/2", "*/5", "1-3", "0,2,12"]),
    "day": st.sampled_from(["*", "*", "*", "1", "L", "LW", "*/2", "25-31", "29", "31"]),
    "month": st.sampled_from(["*", "*", "3", "10,11", "*/3", "2", "MAR"]),
    "weekday": st.sampled_from(["*", "*", "SUN", "MON-FRI", "7", "5L", "1#2", "0,6"]),
}
CRON = st.builds(lambda *parts: " ".join(parts), *FIELD.values()) | st.builds(
    lambda second, rest: f"{second} {rest}",
    st.sampled_from(["0", "*/10", "59"]),
    st.builds(lambda *parts: " ".join(parts), *FIELD.values()),
)
# dense around the changes of the clocks in 2018 to 2030, and anywhere
AROUND = [
    datetime(year, month, day, tzinfo=UTC)
    for year in range(2018, 2031)
    for month in (3, 4, 10, 11)
    for day in (1, 15, 25, 28)
]
INSTANT = st.builds(
    lambda base, seconds: base + timedelta(seconds=seconds),
    st.sampled_from(AROUND),
    st.integers(0, 12 * 86400),
) | st.datetimes(datetime(1990, 1, 1), datetime(2060, 1, 1), timezones=st.just(UTC))


def theirs(cron: str, zone: str, after: datetime, count: int) -> list[datetime]:
    """cronsim's own iteration from well before, each instant once."""
    iteration = CronSim(cron, (after - timedelta(days=2)).astimezone(ZoneInfo(zone)))
    found: list[datetime] = []
    for one in islice(iteration, 200_000):
        moment = one.astimezone(UTC)
        if moment > after and moment not in found:
            found.append(moment)
        if len(found) == count:
            break
    return found


@settings(deadline=None)
@given(cron=CRON, zone=st.sampled_from(ZONES), after=INSTANT)
def test_from_instant_to_instant_it_goes_as_cronsim_goes(cron: str, zone: str, after: datetime) -> None:
    try:
        calendar = Calendar.read(cron, zone)
    except ScheduleRefusedError:
        with pytest.raises(CronSimError):
            CronSim(cron, after)
        return
    expected = theirs(cron, zone, after, 8)
    assume(len(expected) == 8)
    found = calendar.upcoming(after, 8)
    assert found == expected
    assert found == sorted(set(found))
    assert found[0] > after
    # whoever asks anywhere between two instants gets the later one
    assert calendar.after(found[3] + (found[4] - found[3]) * 0.5) == found[4]
    assert calendar.at_or_after(found[3]) == found[3]


@given(
    cron=CRON,
    zone=st.sampled_from(ZONES),
    due=INSTANT,
    late=st.floats(0, 40 * 86400),
    missed=st.sampled_from(MISSED),
)
# midnight of 29 March is in the hour that Havana's clocks skip
@example(
    cron="* 0 * 3 SUN", zone="America/Havana", due=at("1998-01-01T00:00:00Z"), late=1817940.0, missed="skip"
)
def test_a_plan_keeps_what_its_policy_says(
    cron: str, zone: str, due: datetime, late: float, missed: Missed
) -> None:
    try:
        calendar = Calendar.read(cron, zone)
        due_at = calendar.after(due)
    except ScheduleRefusedError:
        return
    now = due_at + timedelta(seconds=late)
    plan = calendar.plan(due_at, now, missed, limit=50)
    fires = [due_at + one for one in plan.fires]
    next_at = due_at + plan.next_in

    assert fires == sorted(set(fires))
    assert all(due_at <= one <= now for one in fires)
    assert all(calendar.at_or_after(one) == one for one in [*fires, next_at])
    assert plan.next_in > timedelta(0)
    if len(fires) < 50:
        assert next_at > now
    if fires:
        assert calendar.after(fires[-1]) == next_at
    if due_at >= now - ON_TIME or missed == "all":
        assert fires[0] == due_at
    elif missed == "latest":
        assert len(fires) == 1
    else:
        assert all(one >= now - ON_TIME for one in fires)
    for one, two in pairwise(fires):
        assert calendar.after(one) == two


DUE = at("2026-01-01T03:00:00Z")


@pytest.mark.parametrize(
    ("missed", "late", "fires", "next_in"),
    [
        ("skip", timedelta(seconds=60), [0], 24),
        ("skip", timedelta(seconds=61), [], 24),
        ("skip", timedelta(hours=48, seconds=30), [48], 72),
        ("latest", timedelta(hours=71), [48], 72),
        ("latest", timedelta(seconds=60), [0], 24),
        ("all", timedelta(hours=71), [0, 24, 48], 72),
        ("all", timedelta(hours=24 * 200), [24 * n for n in range(FIRES)], 24 * FIRES),
    ],
)  # fmt: skip
def test_what_becomes_of_missed_instants(
    missed: Missed, late: timedelta, fires: list[int], next_in: int
) -> None:
    plan = Calendar.read("0 3 * * *", "UTC").plan(DUE, DUE + late, missed)
    assert plan.fires == tuple(HOUR * one for one in fires)
    assert plan.next_in == HOUR * next_in


def test_a_year_of_seconds_is_planned_at_once() -> None:
    calendar = Calendar.read("* * * * * *", "Europe/Berlin")
    now = DUE + timedelta(days=365, milliseconds=300)
    assert calendar.plan(DUE, now, "latest").fires == (timedelta(days=365),)
    assert len(calendar.plan(DUE, now, "skip").fires) == 60
    assert len(calendar.plan(DUE, now, "all").fires) == FIRES


def test_an_instant_that_the_zones_rules_no_longer_have_starts_nothing() -> None:
    calendar = Calendar.read("0 3 * * *", "Europe/Berlin")
    # planned for 03:00 UTC by other rules
    plan = calendar.plan(at("2027-06-01T03:00Z"), at("2027-06-01T03:00:05Z"), "all")
    assert (plan.fires, plan.next_in) == ((), timedelta(hours=22))


@pytest.mark.parametrize("missed", MISSED)
def test_as_long_as_nothing_was_missed_each_instant_is_kept(missed: Missed) -> None:
    plan = Calendar.read("*/20 * * * * *", "UTC").plan(DUE, DUE + ON_TIME, missed)
    assert plan.fires == tuple(timedelta(seconds=20 * n) for n in range(4))
