"""The reference fold: what a log says of its execution, computed one event after the other.

The database folds by statements over many events at once (triggers/event.sql). This is the same in the plainest
form there is, so that the two can be compared; docs/log.md says what the result looks like.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Self

from underseal.log.model import ENDED, LogEvent

WINDOW = 1024
"""How many keys of messages that were disposed of are remembered (clause I2)."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

_STATUSES = {
    "EXECUTION_STARTED": "pending",
    "EXECUTION_SUSPENDED": "suspended",
    "EXECUTION_COMPLETED": "completed",
    "EXECUTION_FAILED": "failed",
    "EXECUTION_CANCELLED": "cancelled",
    "EXECUTION_CONTINUED": "continued",
}
_SAY_NOTHING = frozenset({"OUTCOME_RECORDED", "ERASURE_PENDING", "PAYLOAD_SHREDDED"})
_MOVE_A_PARKED_ONE = frozenset(
    {
        "MESSAGE_CONSUMED",
        "TIMER_FIRED",
        "EXECUTION_CANCEL_REQUESTED",
        "EXECUTION_CANCELLED",
        "EXECUTION_MIGRATED",
    }
)
_ANSWERS = frozenset({"MESSAGE_CONSUMED", "TIMER_FIRED"})
_NO_PROGRESS = frozenset({"EXECUTION_RECOVERED", "EXECUTION_CANCEL_REQUESTED"})


class IllegalHistory(ValueError):  # noqa: N818 -- what it is, not that it is an error
    """The events are no execution's log: a gap, no start, or something after the end."""


def member_of(execution_id: str) -> str:
    """Which member of its chain an execution is, from its id; empty for the first."""
    return execution_id.partition("~")[2]


def line_of(member: str) -> str:
    """The member that began a line of continuations: `` for `2`, `pay` for `pay.2`."""
    return re.sub(r"(^|[.])[0-9]+$", "", member)


def micros(instant: datetime) -> int:
    """Microseconds since 1970."""
    return (instant - _EPOCH) // _MICROSECOND


def status_after(kind: str, data: Mapping[str, Any]) -> str | None:
    """The status an event leads to; None for one that says nothing of it and may follow the end.

    Parameters:
        kind: the event's type.
        data: its data.
    """
    if kind in _SAY_NOTHING or (kind == "MESSAGE_CONSUMED" and data.get("wait") is None):
        return None
    return _STATUSES.get(kind, "running")


def fold(events: Iterable[LogEvent], execution_id: str, *, current: bool = True) -> dict[str, Any]:
    """Fold a whole log.

    Parameters:
        events: from number 0 on.
        execution_id: whose.
        current: whether it is its line's current execution, to which the line's inbox belongs.

    Errors:
        IllegalHistory: they are no execution's log.
    """
    state = Folding(member_of(execution_id))
    for event in events:
        state.apply(event)
    return state.as_json(current)


@dataclass
class Folding:
    """A fold under way.

    Parameters:
        member: which member of its chain the execution is.
    """

    member: str
    flow: str | None = None
    flow_version: int | None = None
    owner: str | None = None
    status: str | None = None
    head: int = -1
    sealed: bool = False
    cancel_requested: bool = False
    recoveries: int = 0
    waits: list[Any] | None = None
    started_at: int | None = None
    changed_at: int | None = None
    cursors: dict[str, int] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any], member: str) -> Self:
        """Go on from a fold that was stored with a snapshot.

        Parameters:
            stored: what `as_json` or the database's fold gave.
            member: which member of its chain the execution is.
        """
        plain = {name: value for name, value in stored.items() if name not in {"line", "inbox"}}
        state = cls(member, **plain)
        state._plant(stored["inbox"] or {})
        return state

    def apply(self, event: LogEvent) -> None:
        """Fold one event.

        Parameters:
            event: the one after the last.

        Errors:
            IllegalHistory: it cannot follow.
        """
        data = event.data or {}
        status = status_after(event.type, data)
        if event.seq != self.head + 1 or (event.seq == 0) != (event.type == "EXECUTION_STARTED"):
            raise IllegalHistory(f"expected event {self.head + 1}, found {event.seq} of type {event.type}")
        if status is not None and (
            self.status in ENDED or (self.status == "suspended" and event.type not in _MOVE_A_PARKED_ONE)
        ):
            raise IllegalHistory(f"event {event.seq} of type {event.type} follows status {self.status}")
        self.head = event.seq
        if event.seq == 0:
            self._begin(event, data)
        self.changed_at = micros(event.recorded_at)
        self.sealed = self.sealed or "seal" in (event.metadata or {})
        self._move(event.type, data, status)
        if event.type == "MESSAGE_CONSUMED":
            self._dispose(data["topic"], data["inbox_seq"], data["key"])

    def as_json(self, current: bool) -> dict[str, Any]:
        """The result, as docs/log.md says it.

        Parameters:
            current: whether the execution is its line's current one.
        """
        inbox = {
            "cursors": dict(self.cursors),
            "seen": [[key, seq] for key, seq in self.seen.items()],
        }
        return {
            "line": line_of(self.member),
            "flow": self.flow,
            "flow_version": self.flow_version,
            "owner": self.owner,
            "status": self.status,
            "head": self.head,
            "sealed": self.sealed,
            "cancel_requested": self.cancel_requested,
            "recoveries": self.recoveries,
            "waits": self.waits,
            "started_at": self.started_at,
            "changed_at": self.changed_at,
            "inbox": inbox if current else None,
        }

    def _begin(self, event: LogEvent, data: Mapping[str, Any]) -> None:
        self.flow, self.flow_version, self.owner = data["flow"], data["flow_version"], data["owner"]
        self.started_at = micros(event.recorded_at)
        self._plant(data.get("carried") or {})

    def _move(self, kind: str, data: Mapping[str, Any], status: str | None) -> None:
        if kind == "EXECUTION_RECOVERED":
            self.recoveries += 1
        elif status is not None and kind not in _NO_PROGRESS:
            self.recoveries = 0
        if kind == "EXECUTION_CANCEL_REQUESTED":
            self.cancel_requested = True
            self.waits = None
        elif kind == "EXECUTION_SUSPENDED":
            self.waits = data["waits"]
        elif status in ENDED:
            self.waits = None
        elif kind == "EXECUTION_MIGRATED":
            self.flow_version = data["flow_version"]
        elif kind in _ANSWERS and data.get("wait") is not None:
            left = [one for one in self.waits or () if one["wait"] != data["wait"]]
            self.waits = left or None
        self.status = status or self.status

    def _plant(self, carried: Mapping[str, Any]) -> None:
        self.cursors.update(carried.get("cursors") or {})
        self.seen.update((key, seq) for key, seq in carried.get("seen") or ())

    def _dispose(self, topic: str, seq: int, key: str) -> None:
        self.cursors[topic] = max(self.cursors.get(topic, seq), seq)
        self.seen.setdefault(key, seq)
        if len(self.seen) > WINDOW:
            del self.seen[next(iter(self.seen))]
