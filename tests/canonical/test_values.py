"""Canonical JSON from Python values: the type decides, and what has no canonical form is refused with its place."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import StrEnum
from typing import Any
from uuid import UUID

import pytest

from underseal.canonical import MAX_INTEGER, canonical_json, canonicalise
from underseal.errors import CanonicalError

BERLIN = timezone(timedelta(hours=2))


class Colour(StrEnum):
    RED = "red"


def nested(levels: int) -> dict[str, Any]:
    """An object of that many levels, itself included."""
    inner: Any = 1
    for _ in range(levels - 1):
        inner = [inner]
    return {"a": inner}


@pytest.mark.clause("H1.1b", "H1.1d", "H1.1f", "H1.1j")
@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": datetime(2026, 1, 1, 1, 30, tzinfo=BERLIN)}, '{"a":"2025-12-31T23:30:00Z"}'),
        ({"a": datetime(2026, 1, 1, 0, 0, 0, 120_000, UTC)}, '{"a":"2026-01-01T00:00:00.12Z"}'),
        ({"a": datetime(1, 1, 1, tzinfo=UTC)}, '{"a":"0001-01-01T00:00:00Z"}'),
        ({"a": datetime.max.replace(tzinfo=UTC)}, '{"a":"9999-12-31T23:59:59.999999Z"}'),
        (
            {"a": UUID("A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11")},
            '{"a":"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"}',
        ),
        ({"a": "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11"}, '{"a":"A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11"}'),
        ({"a": None, "b": [None, {"c": None}]}, '{"b":[null,{}]}'),
        ({"a": True, "b": 1, "c": Colour.RED, Colour.RED: False}, '{"a":true,"b":1,"c":"red","red":false}'),
        ({"a": MAX_INTEGER, "b": -MAX_INTEGER}, '{"a":9007199254740991,"b":-9007199254740991}'),
        (nested(64), json.dumps(nested(64), separators=(",", ":"))),
    ],
)
def test_accepted(value: dict[str, Any], text: str) -> None:
    assert canonical_json(value) == text


CIRCLE: list[Any] = []
CIRCLE.append(CIRCLE)


@pytest.mark.clause(
    "H1.1c", "H1.1e", "H1.1i", "H1.2b", "H1.5b", "H1.6c", "H1.6d", "H1.6e", "H1.6g", "H1.6h", "H1.6i"
)
@pytest.mark.parametrize(
    ("value", "reason", "path"),
    [
        ({"a": [1.0]}, "float", "/a/0"),
        ({"a": float("nan")}, "float", "/a"),
        ({"a": float("inf")}, "float", "/a"),
        ({"a": -0.0}, "float", "/a"),
        ({"a": MAX_INTEGER + 1}, "integer-range", "/a"),
        ({"a": -MAX_INTEGER - 1}, "integer-range", "/a"),
        ({"a": 10**10_000}, "integer-range", "/a"),
        ({"a": datetime(2026, 1, 1)}, "instant", "/a"),
        ({"a": datetime(1, 1, 1, tzinfo=BERLIN)}, "instant", "/a"),
        ({"a": datetime.max.replace(tzinfo=timezone(-timedelta(hours=1)))}, "instant", "/a"),
        ({"a": date(2026, 1, 1)}, "unsupported-type", "/a"),
        ({"a": Decimal(1)}, "unsupported-type", "/a"),
        ({"a": b"x"}, "unsupported-type", "/a"),
        ({"a": {1, 2}}, "unsupported-type", "/a"),
        ({"a": (1, 2)}, "unsupported-type", "/a"),
        ({"a": object()}, "unsupported-type", "/a"),
        ({"a": {1: 2}}, "unsupported-type", "/a"),
        ({"a": {None: 2}}, "unsupported-type", "/a"),
        ({"a": "\ud800"}, "lone-surrogate", "/a"),
        ({"a": "x\x00"}, "nul", "/a"),
        ({"\x00": None}, "nul", "/\ufffd"),
        ({"\u00e9": 1, "e\u0301": 2}, "key-collision", "/e\u0301"),
        ({Colour.RED: 1, "a": {"\ufdd0": 1}}, "unassigned", "/a/\ufffd"),
        ({"a": CIRCLE}, "too-deep", "/a" + "/0" * 63),
        (nested(65), "too-deep", "/a" + "/0" * 63),
        ({"a": "x" * 65_529}, "too-large", ""),
        (None, "not-an-object", ""),
        ([], "not-an-object", ""),
        ("a", "not-an-object", ""),
        (1, "not-an-object", ""),
        (True, "not-an-object", ""),
    ],
)
def test_refused(value: Any, reason: str, path: str) -> None:
    with pytest.raises(CanonicalError) as refused:
        canonical_json(value)
    assert (refused.value.reason, refused.value.path) == (reason, path)


@pytest.mark.clause("H1.2d")
@pytest.mark.parametrize(
    ("value", "numbers"), [({"a": "x" * 65_529}, ("65536", "65537")), (nested(65), ("64", "65"))]
)
def test_limits_are_named(value: Any, numbers: tuple[str, str]) -> None:
    with pytest.raises(CanonicalError) as refused:
        canonical_json(value)
    assert all(number in str(refused.value) for number in numbers)


@pytest.mark.clause("H1.6i")
def test_a_long_path_is_cut() -> None:
    with pytest.raises(CanonicalError) as refused:
        canonical_json({"k" * 10_000: 1.5})
    assert len(refused.value.path) == 512
    assert refused.value.path.endswith("\u2026")


@pytest.mark.clause("H1.6i")
def test_an_error_holds_no_value() -> None:
    with pytest.raises(CanonicalError) as refused:
        canonical_json({"a": "hunter2\x00"})
    assert "hunter2" not in f"{refused.value!s}{refused.value!r}"


@pytest.mark.clause("H1.6i")
def test_malformed_text_leaves_no_cause() -> None:
    # The parser's own error holds the whole document.
    with pytest.raises(CanonicalError) as refused:
        canonicalise('{"a":"hunter2", x}')
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__
