"""Python values to a tree (clause H1.1): the type decides what is an instant or a UUID."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from uuid import UUID

from underseal.canonical.instants import instant_text
from underseal.canonical.limits import MAX_DEPTH, MAX_INTEGER
from underseal.canonical.refusal import member_path, refusal
from underseal.canonical.tree import Members, Number, Tree


def _integer(value: int, path: str) -> Number:
    # Judged before it is written: Python refuses to write an integer of thousands of digits.
    if not -MAX_INTEGER <= value <= MAX_INTEGER:
        raise refusal(
            "integer-range",
            path,
            f"expected an integer from {-MAX_INTEGER} to {MAX_INTEGER}; send a larger one as a string",
        )
    return Number(int.__repr__(value))


def _instant(value: datetime, path: str) -> str:
    try:
        return instant_text(value)
    except (ValueError, OverflowError):
        raise refusal(
            "instant", path, "expected a datetime with a zone, within the years 0001 to 9999 in UTC"
        ) from None


def _float(_: float, path: str) -> Tree:
    raise refusal(
        "float",
        path,
        "expected an integer without fraction and exponent; send a whole number of a smaller unit, or a string",
    )


_SCALARS: tuple[tuple[type, Callable[..., Tree]], ...] = (
    (bool, lambda value, _: value),
    (int, _integer),
    (str, lambda value, _: str.__str__(value)),
    (float, _float),
    (datetime, _instant),
    (UUID, lambda value, _: str(value)),
)


def _members(value: dict[object, object], path: str, level: int) -> Members:
    pairs: list[tuple[str, Tree]] = []
    for name, member in value.items():
        if not isinstance(name, str):
            raise refusal(
                "unsupported-type", path, f"expected member names of type str, found {type(name).__name__}"
            )
        name = str.__str__(name)
        pairs.append((name, to_tree(member, member_path(path, name), level)))
    return Members(pairs)


def to_tree(value: object, path: str = "", level: int = 0) -> Tree:
    """Turn a Python value into a tree.

    Parameters:
        value: a dict with str names, a list, a str, an int, a bool, None, a datetime with a zone or a UUID.
        path: RFC 6901 pointer to it.
        level: how many objects and arrays it lies in.

    Returns:
        The tree, in which nothing is judged that `write` judges.

    Raises:
        CanonicalError: `float`, `integer-range`, `instant`, `too-deep` (a value that contains itself too) or
            `unsupported-type`.
    """
    if value is None:
        return None
    for kind, convert in _SCALARS:
        if isinstance(value, kind):
            return convert(value, path)
    if not isinstance(value, dict | list):
        raise refusal(
            "unsupported-type",
            path,
            f"expected dict, list, str, int, bool, None, datetime or UUID, found {type(value).__name__}",
        )
    if level >= MAX_DEPTH:
        raise refusal(
            "too-deep", path, f"expected at most {MAX_DEPTH} levels of nesting, found {level + 1} or more"
        )
    if isinstance(value, dict):
        return _members(value, path, level + 1)
    return [to_tree(element, f"{path}/{number}", level + 1) for number, element in enumerate(value)]
