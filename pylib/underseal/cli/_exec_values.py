"""JSON values of a log as a person reads them: bounded, nothing hidden, and what is sealed said to be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

from rich.text import Text

from underseal.cli._visible import visible, visible_value

_LONGEST_TEXT: Final = 240
_LONGEST_NAME: Final = 80
_DEEPEST: Final = 8
_ONE_LINE: Final = 60


def is_sealed(value: Any) -> bool:
    """Whether a value is an envelope.

    Parameters:
        value: a parsed JSON value.
    """
    return isinstance(value, dict) and isinstance(value.get("__loomEnc"), str)


def value_rows(value: Any, most: int) -> tuple[list[tuple[str, Text]], bool]:
    """A value as rows of place and value, at most so many, and whether there are more; a small one is a single row
    without a place.

    A string stands in quotes, and what is not in quotes is a number, a word of JSON, or ours: so nobody can write what
    this says.

    Parameters:
        value: a parsed JSON value.
        most: how many rows.
    """
    small = _small(value)
    if small is not None:
        return [("", small)], False
    rows = list(islice(_rows("", value, 0), most + 1))
    return rows[:most], len(rows) > most


def _small(value: Any) -> Text | None:
    if not isinstance(value, dict | list) or not value or is_sealed(value) or _is_shredded(value):
        return _leaf(value)
    members = list(value.values()) if isinstance(value, dict) else value
    if len(members) > 4 or any(isinstance(one, dict | list) and one for one in members):
        return None
    if any(isinstance(one, str) and len(one) > _ONE_LINE for one in [*value, *members]):
        return None
    line = visible_value(value)
    return Text(line) if len(line) <= _ONE_LINE else None


def _is_shredded(value: Any) -> bool:
    return isinstance(value, dict) and value.get("$shredded") is True


def _rows(place: str, value: Any, depth: int) -> Iterator[tuple[str, Text]]:
    if is_sealed(value) or _is_shredded(value) or not isinstance(value, dict | list) or not value:
        yield visible(place), _leaf(value)
        return
    if depth == _DEEPEST:
        yield visible(place), Text("deeper still; --json has it", style="dim italic")
        return
    for name, one in value.items() if isinstance(value, dict) else enumerate(value):
        step = _cut(str(name), _LONGEST_NAME).replace("~", "~0").replace("/", "~1")
        yield from _rows(f"{place}/{step}" if place else step, one, depth + 1)


def _leaf(value: Any) -> Text:
    if is_sealed(value):
        return Text("sealed", style="magenta italic")
    if _is_shredded(value):
        return Text("shredded", style="magenta italic")
    if isinstance(value, str) and len(value) > _LONGEST_TEXT:
        return Text(visible_value(value[:_LONGEST_TEXT])).append(f"… {len(value)} characters", "dim italic")
    return Text(visible_value(value))


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


def sealed_by(metadata: Mapping[str, Any] | None) -> str | None:
    """What a seal marker says, in words; None where there is none.

    Parameters:
        metadata: what the kernel notes beside an event.
    """
    marker = (metadata or {}).get("seal")
    if marker is None:
        return None
    covers = marker.get("covers") if isinstance(marker, dict) else None
    cipher = marker.get("cipher") if isinstance(marker, dict) else None
    named = ", ".join(visible(str(one)) for one in covers) if isinstance(covers, list) else "unknown"
    return f"{named}; by {visible(str(cipher))}"
