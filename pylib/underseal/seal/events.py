"""What of an event may be sealed, and which members tell it from the others of its type (docs/formats.md)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from underseal.seal.paths import MISSING, Path, look

INBOX: Final = "INBOX_MESSAGE"
CONSUMED: Final = "MESSAGE_CONSUMED"
STARTED: Final = "EXECUTION_STARTED"
SNAPSHOT_COVER: Final = "SNAPSHOT.state"
LINEAGE: Final[Path] = ("lineage",)
CHILD_TOPIC: Final = "$child/"
HOLD_TOPIC: Final = "$hold/"
CHILD_ENDS: Final[Mapping[str, str]] = {"completed": "EXECUTION_COMPLETED", "failed": "EXECUTION_FAILED"}
"""What a child's end says of itself → the event in the child's log that it was made from."""

_TYPE: Final = re.compile(r"[A-Z][A-Z0-9_]{0,63}")
_FACT: Final = re.compile(r"(EXECUTION|MESSAGE|TIMER|INBOX|OUTCOME|PAYLOAD|ERASURE)_.*|SNAPSHOT")
_EXACT: Final = 2**53


@dataclass(frozen=True, slots=True)
class EventKind:
    """One type of event.

    Attributes:
        sealable: the members that may be sealed, or something within them; None for any.
        key: the members that tell an event from others of its type in one execution.
    """

    sealable: frozenset[str] | None
    key: tuple[Path, ...]


def _kind(sealable: str, *key: str) -> EventKind:
    return EventKind(frozenset({sealable}), tuple((name,) for name in key))


_NOTHING: Final = EventKind(frozenset(), ())

KINDS: Final[Mapping[str, EventKind]] = {
    STARTED: _kind("input"),
    "EXECUTION_COMPLETED": _kind("output"),
    "EXECUTION_FAILED": _kind("error"),
    "STATE_RESTORED": _kind("events"),
    "OUTCOME_RECORDED": _kind("outcome"),
    "STEP_COMPLETED": _kind("output", "op"),
    "STEP_ATTEMPT_FAILED": _kind("error", "op", "attempt"),
    "STEP_FAILED": _kind("error", "op"),
    "VALUE_RECORDED": _kind("value", "op"),
    "CALL_REFUSED": _kind("error", "op"),
    INBOX: _kind("payload"),
    CONSUMED: _kind("payload"),
    # what they name, the runtime and the kernel go by
    **dict.fromkeys(
        (
            "CHILD_STARTED",
            "HOLD_REQUESTED",
            "HOLD_OPENED",
            "CANCELLATION_DELIVERED",
            "FLOW_DIVERGED",
        ),
        _NOTHING,
    ),
}
"""The types that the kernel and the runtime of flows write. Whatever is not here is an application's own."""


def kind_of(event_type: str) -> EventKind | None:
    """What is known of a type; None for an application's own.

    Raises:
        ValueError: it is no type of an event.
    """
    if not isinstance(event_type, str) or not _TYPE.fullmatch(event_type):
        raise ValueError("expected a type of events: A to Z, 0 to 9 and _, at most 64 of them")
    known = KINDS.get(event_type)
    return _NOTHING if known is None and _FACT.fullmatch(event_type) else known


def event_key(data: Mapping[str, Any], key: tuple[Path, ...]) -> str | None:
    """The key of an event: the JSON array of the members that make it; None where one is missing or no text or integer.

    Parameters:
        data: the event's data.
        key: paths to these members.
    """
    values = [look(data, path) for path in key]
    return json.dumps(values, ensure_ascii=False, separators=(",", ":")) if all(map(_names, values)) else None


def _names(value: Any) -> bool:
    if value is MISSING or isinstance(value, bool):
        return False
    return isinstance(value, str) or (isinstance(value, int) and -_EXACT < value < _EXACT)
