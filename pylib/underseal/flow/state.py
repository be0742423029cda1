"""What a replay needs of a log: a flow's state, which snapshots keep and a restore goes on from.

It is the recorded results in their order, without what a replay does not look at. So it fits any code that fits the
log, another version or mended code too, and says as much of a divergence as the log does from its last park on.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

from underseal.foundation.calls import json_text

Event = tuple[str, dict[str, Any]]

STATE_VERSION: Final = 1
LIMIT: Final = 1_048_576
"""Bytes of JSON that a state may have, as the kernel has it."""

_MEMBERS: Final[Mapping[str, tuple[str, ...]]] = {
    "EXECUTION_STARTED": ("flow_version", "owner", "input"),
    "EXECUTION_MIGRATED": ("flow_version",),
    "EXECUTION_CANCEL_REQUESTED": (),
    "CANCELLATION_DELIVERED": ("cancels",),
    "MESSAGE_CONSUMED": ("wait", "arm", "payload"),
    "TIMER_FIRED": ("wait", "arm"),
    "STEP_COMPLETED": ("op", "name", "output"),
    "STEP_FAILED": ("op", "name", "error"),
    "STEP_ATTEMPT_FAILED": ("op", "name", "attempt"),
    "VALUE_RECORDED": ("op", "kind", "value"),
    "CHILD_STARTED": ("op", "name", "execution_id"),
    "HOLD_REQUESTED": ("op", "type", "operation_id"),
    "HOLD_OPENED": ("op", "type", "operation_id"),
    "CALL_REFUSED": ("op", "kind", "name", "error"),
    "FLOW_DIVERGED": ("op", "expected", "found", "flow_version"),
    "STATE_RESTORED": ("flow_version", "events", "not_carried"),
}
"""What a replay looks at, by type; parks are looked at apart."""
CARRIED: Final = frozenset(_MEMBERS) - {
    "EXECUTION_STARTED", "EXECUTION_CANCEL_REQUESTED", "FLOW_DIVERGED"
}  # fmt: skip
"""Types that another execution can go on from: what it was asked and how its code fared is its own."""
_OPTIONAL: Final = frozenset({"payload", "execution_id", "not_carried"})
_KINDS: Final[Mapping[str, type | tuple[type, ...]]] = {
    **dict.fromkeys(("op", "arm", "attempt", "flow_version"), int),
    **dict.fromkeys(("name", "type", "kind", "wait", "operation_id", "execution_id"), str),
    **dict.fromkeys(("cancels", "events", "not_carried"), list),
    "error": dict,
}
"""What JSON each member is; any, if it is not here."""
_PARK: Final = "EXECUTION_SUSPENDED"
_ABOUT_A_STEP: Final = frozenset({"STEP_COMPLETED", "STEP_FAILED", "STEP_ATTEMPT_FAILED"})
_KERNELS: Final = ("$child/", "$hold/")


class Recorded:
    """Gathers what a replay needs, event by event.

    Attributes:
        size: bytes of JSON that the state has so far.
        count: how many events have been looked at.
    """

    def __init__(self, events: Iterable[Event] = ()) -> None:
        """Take some from the beginning of a log, or of a state.

        Parameters:
            events: type and data of each, in order.
        """
        self.size = len(f'{{"v":{STATE_VERSION},"events":[]}}')
        self.count = 0
        self._kept: dict[int, str] = {}
        self._park: int | None = None
        self._open: set[str] = set()
        self._tries: dict[Any, int] = {}
        self._past_tries: list[int] = []
        self._divergence: int | None = None
        for kind, data in events:
            self.add(kind, data)

    def add(self, kind: str, data: Mapping[str, Any]) -> None:
        """Take the next event of the log.

        Parameters:
            kind: its type.
            data: its data.
        """
        place, self.count = self.count, self.count + 1
        if kind == _PARK:
            self._parked(place, data)
            return
        members = _MEMBERS.get(kind)
        if members is None or (kind in ("MESSAGE_CONSUMED", "TIMER_FIRED") and data.get("wait") is None):
            return
        if kind in _ABOUT_A_STEP:
            self._tried(data.get("op"))
        trimmed = {name: data[name] for name in members if name in data}
        if kind == "MESSAGE_CONSUMED" and str(data.get("topic")).startswith(_KERNELS):
            trimmed["topic"] = data["topic"]  # whose end it tells
        self._keep(place, kind, trimmed)
        if kind == "STEP_ATTEMPT_FAILED":
            self._tries[data.get("op")] = place
        elif kind == "FLOW_DIVERGED":
            self._drop(self._divergence)
            self._divergence = place
        elif kind == "EXECUTION_CANCEL_REQUESTED":
            self._over()
        elif kind in ("MESSAGE_CONSUMED", "TIMER_FIRED"):
            self._open.discard(data["wait"])
            if not self._open:
                self._over()

    def _parked(self, place: int, data: Mapping[str, Any]) -> None:
        self._over()
        waits = [
            {
                "wait": wait["wait"],
                "arms": [{"topic": arm["topic"]} if "topic" in arm else {} for arm in wait["arms"]],
            }
            for wait in data["waits"]
        ]
        self._park = place
        self._open = {wait["wait"] for wait in waits}
        self._keep(place, _PARK, {"waits": waits})

    def _over(self) -> None:
        """Nothing of the last park is waited for any more: neither it nor the tries it was judged by are needed."""
        self._drop(self._park)
        self._park = None
        self._open = set()
        for place in self._past_tries:
            self._drop(place)
        self._past_tries.clear()

    def _tried(self, op: Any) -> None:
        place = self._tries.pop(op, None)
        if place is None:
            return
        if self._park is not None and place < self._park:
            self._past_tries.append(place)
        else:
            self._drop(place)

    def _keep(self, place: int, kind: str, data: Mapping[str, Any]) -> None:
        text = self._kept[place] = f"[{json_text(kind)},{json_text(data)}]"
        self.size += _bytes(text) + 1

    def _drop(self, place: int | None) -> None:
        text = None if place is None else self._kept.pop(place, None)
        if text is not None:
            self.size -= _bytes(text) + 1

    def text(self) -> str:
        """The state as JSON."""
        return f'{{"v":{STATE_VERSION},"events":[{",".join(self._kept.values())}]}}'

    def events(self) -> list[tuple[str, dict[str, Any]]]:
        """The events that are kept."""
        return [(kind, data) for kind, data in json.loads(self.text())["events"]]


def read_state(state: Any) -> list[tuple[str, dict[str, Any]]] | None:
    """The events of a snapshot's state; None where it is no state of a flow that this release reads.

    Parameters:
        state: what was saved.
    """
    if not isinstance(state, dict) or state.get("v") != STATE_VERSION:
        return None
    events = state.get("events")
    if not isinstance(events, list) or not all(map(_is_event, events)):
        return None
    return [(kind, data) for kind, data in events]


@dataclass(frozen=True, slots=True)
class Loaded:
    """What an execution is replayed from.

    Attributes:
        events: those of its log, or what a snapshot keeps of them and those behind it.
        head: number of the last.
        saved: the last event of the snapshot, 0 without one.
        missing: what is not there, in words; None for nothing.
    """

    events: list[Event]
    head: int
    saved: int = 0
    missing: str | None = None


NOTHING: Final[Mapping[str, Any]] = {"v": STATE_VERSION, "events": []}
"""A state without an event."""


def loaded(snapshot: tuple[int, Any] | None, page: Sequence[tuple[int, Event]], at_least: int) -> Loaded:
    """Put a snapshot and what is behind it together.

    Parameters:
        snapshot: the last event it covers and its state; None for none.
        page: number, type and data of the events behind it, or of the whole log.
        at_least: an event that is known to have been there. A log that was compacted to its end does not tell.
    """
    saved, state = (-1, None) if snapshot is None else snapshot
    kept = [] if snapshot is None else read_state(state)
    events = [*(kept or ()), *(event for _, event in page)]
    head = page[-1][0] if page else saved
    missing = None
    if kept is None:
        missing = f"a state of version {STATE_VERSION} in the snapshot of event {saved}"
    elif len(page) != max(head, at_least) - saved:
        present = {seq for seq, _ in page}
        missing = f"event {next(seq for seq in count(saved + 1) if seq not in present)}"
    return Loaded(events, head, max(0, saved), missing)


def event_flaw(event: Any) -> str | None:
    """What keeps an event of a state from being gone on from, in words; None for nothing.

    Parameters:
        event: `[type, data]`.
    """
    if not _is_event(event) or event[0] not in CARRIED:
        return "to be [type, data] with a type that flows record, found something else"
    kind, data = event
    for name in _MEMBERS[kind]:
        if name not in data:
            if name not in _OPTIONAL:
                return f"({kind}) to have a member {name}, found none"
            continue
        wanted = _KINDS.get(name)
        if wanted is not None and (not isinstance(data[name], wanted) or isinstance(data[name], bool)):
            return f"({kind}) to have another kind of value in {name}, found a {type(data[name]).__name__}"
    if kind == "STATE_RESTORED":
        return next(filter(None, map(event_flaw, data["events"])), None)
    return None


def _is_event(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 2
        and isinstance(value[0], str)
        and (value[0] in _MEMBERS or value[0] == _PARK)
        and isinstance(value[1], dict)
    )


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())
