"""Instants as a person reads them: absolute with their zone, and relative to the database's clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final

_UNITS: Final = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))


def absolute(instant: datetime, zone: tzinfo | None = None) -> str:
    """`2026-11-30 16:20:05 +01:00`, or `UTC` where the offset is zero.

    Parameters:
        instant: with a zone.
        zone: the reader's; that of this machine if None.
    """
    local = instant.astimezone(zone)
    offset = local.strftime("%z")
    shown = f"{offset[:3]}:{offset[3:5]}" if local.utcoffset() else "UTC"
    return f"{local:%Y-%m-%d %H:%M:%S} {shown}"


def duration(length: timedelta) -> str:
    """The two largest units of a length: `3 d 4 h`, `12 min 5 s`, `0 s`.

    Parameters:
        length: zero or more.
    """
    seconds = round(length.total_seconds())
    for (name, size), (smaller, part) in zip(_UNITS, (*_UNITS[1:], ("", 0)), strict=True):
        if seconds >= size:
            rest = seconds % size // part if part else 0
            return f"{seconds // size} {name}" + (f" {rest} {smaller}" if rest else "")
    return "0 s"


def relative(instant: datetime, now: datetime) -> str:
    """`2 h 5 min ago`, `in 3 d`, `just now`.

    Parameters:
        instant: when.
        now: the database's clock.
    """
    distance = instant - now
    if abs(distance) < timedelta(seconds=1):
        return "just now"
    if distance < timedelta(0):
        return f"{duration(-distance)} ago"
    return f"in {duration(distance)}"


def both(instant: datetime | None, now: datetime | None) -> str:
    """Absolute, and relative where the database's clock is known; `–` for no instant.

    Parameters:
        instant: when, if at all.
        now: the database's clock.
    """
    if instant is None:
        return "–"
    return absolute(instant) + (f" ({relative(instant, now)})" if now is not None else "")


def iso(instant: datetime) -> str:
    """ISO 8601 in UTC, for `--json`.

    Parameters:
        instant: with a zone.
    """
    return instant.astimezone(UTC).isoformat().replace("+00:00", "Z")
