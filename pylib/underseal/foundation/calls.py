"""Calling a stored function: one row back, and JSON as text, which a `json` argument keeps as it is."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any, Final

from underseal.foundation.steps import Row, Steps, query

_ENCODE: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode
"""One for all calls: `json.dumps` makes a new encoder for each, which takes longer than most values."""


def one_row(sql: str, *params: Any) -> Steps[Row]:
    """Run a statement that answers with one row."""
    rows = yield from query(sql, params)
    return rows[0]


def json_text(value: Any) -> str:
    """The JSON text of a value; None is JSON's null.

    Parameters:
        value: what JSON can say: dicts with text keys, lists, text, numbers, booleans, None.

    Errors:
        ValueError: a NaN, an infinity, or a value that holds itself.
        TypeError: a value that JSON cannot say.
    """
    return _ENCODE(value)


def optional_json_text(value: Any) -> str | None:
    """The same, but None is SQL's null: nothing given."""
    return None if value is None else json_text(value)


def interval_text(duration: timedelta) -> str:
    """A duration for an `interval` argument: in seconds alone, since SQL's days are not all 24 hours long."""
    return f"{duration.total_seconds():.6f} seconds"


def optional_interval_text(duration: timedelta | None) -> str | None:
    """The same, but None is SQL's null: nothing given."""
    return None if duration is None else interval_text(duration)
