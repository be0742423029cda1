"""Instants are shown with their zone, and relative to the database's clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from underseal.cli._times import absolute, both, duration, iso, relative

NOON = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


def test_absolute_names_the_zone() -> None:
    assert absolute(NOON, UTC) == "2026-11-30 12:00:00 UTC"
    assert absolute(NOON, timezone(timedelta(hours=5, minutes=30))) == "2026-11-30 17:30:00 +05:30"
    assert absolute(NOON, timezone(-timedelta(hours=8))) == "2026-11-30 04:00:00 -08:00"


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0 s"),
        (59, "59 s"),
        (60, "1 min"),
        (65, "1 min 5 s"),
        (7200, "2 h"),
        (90061, "1 d 1 h"),
        (86399.8, "1 d"),
    ],
)
def test_durations_have_at_most_two_units(seconds: float, shown: str) -> None:
    assert duration(timedelta(seconds=seconds)) == shown


def test_relative_looks_both_ways() -> None:
    assert relative(NOON - timedelta(minutes=3), NOON) == "3 min ago"
    assert relative(NOON + timedelta(hours=2, minutes=5), NOON) == "in 2 h 5 min"
    assert relative(NOON + timedelta(milliseconds=400), NOON) == "just now"


def test_both_and_none() -> None:
    assert both(None, NOON) == "–"
    assert both(NOON, NOON).endswith("(just now)")
    assert "(" not in both(NOON, None)
    assert iso(NOON) == "2026-11-30T12:00:00Z"
