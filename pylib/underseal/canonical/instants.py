"""Instants in canonical form (clauses H1.1d, H1.1e)."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

_INSTANT = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt]([0-9]{2}):([0-9]{2}):([0-9]{2})"
    r"(\.[0-9]{1,6})?(?:[Zz]|([-+])([0-9]{2}):([0-9]{2}))"
)


def instant_text(value: datetime) -> str:
    """Write an instant.

    Parameters:
        value: a datetime with a zone.

    Returns:
        `YYYY-MM-DDTHH:MM:SS[.f]Z` in UTC, without trailing zeros in the fraction.

    Raises:
        ValueError: it has no zone.
        OverflowError: in UTC it lies outside the years 1 to 9999.
    """
    if value.utcoffset() is None:
        raise ValueError("expected a datetime with a zone, found a naive one")
    utc = value.astimezone(UTC)
    fraction = f".{utc.microsecond:06}".rstrip("0") if utc.microsecond else ""
    return f"{utc.replace(microsecond=0, tzinfo=None).isoformat()}{fraction}Z"


def canonical_instant(string: str) -> str | None:
    """Rewrite an instant.

    Parameters:
        string: RFC 3339 text with an offset and at most 6 fraction digits.

    Returns:
        The same instant as `instant_text` writes it; None if the text is no instant (second 60 among it) or lies
        outside the years 1 to 9999.
    """
    found = _INSTANT.fullmatch(string)
    if found is None:
        return None
    *fields, fraction, sign, hours, minutes = found.groups()
    if sign and (int(hours) > 23 or int(minutes) > 59):
        return None
    offset = timedelta(hours=int(hours), minutes=int(minutes)) if sign else timedelta()
    try:
        year, month, day, hour, minute, second = map(int, fields)
        local = datetime(
            year, month, day, hour, minute, second, int((fraction or ".")[1:].ljust(6, "0")), UTC
        )
        return instant_text(local + offset if sign == "-" else local - offset)
    except (ValueError, OverflowError):
        return None
