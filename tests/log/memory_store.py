"""Stores in memory: the smallest things that pass the conformance suites, and the same with one fault each."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import wraps
from threading import RLock
from typing import Any, TypeVar
from uuid import UUID, uuid4

from underseal.held.model import Outcome
from underseal.log.model import Appended, LogEvent, Observed
from underseal.snapshot.model import Snapshot
from underseal.testing.conformance.event_store import Events

F = TypeVar("F", bound=Callable[..., Any])


def locked(method: F) -> F:
    """One caller at a time."""

    @wraps(method)
    def inside(self: Any, *args: Any, **kwargs: Any) -> Any:
        with self.lock:
            return method(self, *args, **kwargs)

    return inside  # type: ignore[return-value]


@dataclass
class Row:
    """One execution."""

    fence: int
    head: int = 0
    ended: bool = False
    incarnation: UUID = field(default_factory=uuid4)
    events: list[LogEvent] = field(default_factory=list)


class MemoryEventStore:
    """An event store in a dict."""

    def __init__(self) -> None:
        self.lock = RLock()
        self.rows: dict[str, Row] = {}
        self.floors: dict[str, int] = {}
        self.all: list[LogEvent] = []

    def write(self, execution_id: str, row: Row, kind: str, data: Any) -> None:
        """Put one event at the end of a log."""
        row.head = row.events[-1].seq + 1 if row.events else 0
        cursor = str(len(self.all) + 1)
        event = LogEvent(execution_id, row.head, kind, data, datetime.now(UTC), cursor=cursor)
        row.events.append(event)
        self.all.append(event)

    def answer(self, row: Row, outcome: str, reason: str | None = None) -> Appended:
        """What became of a write."""
        return Appended(outcome, reason, None, 1, None, None, row.head, row.fence, False)

    def conflict(self, row: Row, fence: int) -> str | None:
        """Why a write under a fence is refused."""
        if fence != row.fence:
            return "stale-fence"
        return "ended" if row.ended else None

    def unlike(self, row: Row, seen: Observed) -> str | None:
        """What has changed since an observation."""
        if seen.incarnation != row.incarnation:
            return "gone"
        if seen.fence != row.fence:
            return "stale-fence"
        return "moved" if seen.head != row.head else None

    @locked
    def start(self, execution_id: str) -> Appended:
        if execution_id in self.rows:
            return Appended("exists")
        row = self.rows[execution_id] = Row(self.floors.get(execution_id, 0) + 1)
        self.write(execution_id, row, "EXECUTION_STARTED", {})
        return self.answer(row, "started")

    @locked
    def append(self, execution_id: str, fence: int, events: Events) -> Appended:
        row = self.rows.get(execution_id)
        if row is None:
            return Appended("not-found")
        reason = self.conflict(row, fence)
        if reason is not None:
            return self.answer(row, "conflict", reason)
        if any(event["type"].startswith("EXECUTION_") for event in events):
            return self.answer(row, "refused", "reserved-type")
        for event in copy.deepcopy(list(events)):
            self.write(execution_id, row, event["type"], event["data"])
        return self.answer(row, "appended")

    @locked
    def append_if_unchanged(self, execution_id: str, seen: Observed, events: Events) -> Appended:
        row = self.rows.get(execution_id)
        reason = None if row is None else self.unlike(row, seen)
        if row is not None and reason is not None:
            return self.answer(row, "conflict", reason)
        return self.append(execution_id, seen.fence or 0, events)

    @locked
    def append_batch(self, items: Sequence[tuple[str, int, Events]]) -> list[Appended]:
        return [self.append(*item) for item in items]

    @locked
    def complete(self, execution_id: str, fence: int) -> Appended:
        row = self.rows[execution_id]
        reason = self.conflict(row, fence)
        if reason is not None:
            return self.answer(row, "conflict", reason)
        self.write(execution_id, row, "EXECUTION_COMPLETED", {})
        row.ended = True
        return self.answer(row, "completed")

    @locked
    def head(self, execution_id: str) -> Observed:
        row = self.rows.get(execution_id)
        return Observed("not-found") if row is None else self.observed(row, "found")

    def observed(self, row: Row, outcome: str, reason: str | None = None) -> Observed:
        """An observation."""
        return Observed(outcome, reason, None, row.head, row.fence, row.incarnation)

    @locked
    def acquire_fence(self, execution_id: str) -> Observed:
        row = self.rows.get(execution_id)
        if row is None:
            return Observed("not-found")
        row.fence += 1
        return self.observed(row, "acquired")

    @locked
    def acquire_fence_if(self, execution_id: str, seen: Observed) -> Observed:
        row = self.rows.get(execution_id)
        reason = None if row is None else self.unlike(row, seen)
        if row is not None and reason is not None:
            return self.observed(row, "conflict", reason)
        return self.acquire_fence(execution_id)

    @locked
    def read(self, execution_id: str, after_seq: int = -1) -> list[LogEvent]:
        row = self.rows.get(execution_id)
        return [] if row is None else [event for event in row.events if event.seq > after_seq]

    @locked
    def fork(self, execution_id: str, through_seq: int, new_id: str) -> str:
        if new_id in self.rows:
            return "exists"
        row = self.rows[new_id] = Row(self.floors.get(new_id, 0) + 1)
        for event in self.rows[execution_id].events:
            if event.seq <= through_seq:
                self.write(new_id, row, event.type, event.data)
        return "forked"

    @locked
    def truncate(self, execution_id: str, fence: int, before_seq: int) -> None:
        row = self.rows[execution_id]
        row.events = [event for event in row.events if event.seq == 0 or event.seq >= before_seq]

    @locked
    def delete(self, execution_id: str) -> None:
        self.floors[execution_id] = self.rows.pop(execution_id).fence
        self.all = [event for event in self.all if event.execution_id != execution_id]

    @locked
    def read_all(self, cursor: str | None, limit: int) -> tuple[list[LogEvent], str | None]:
        after = int(cursor or 0)
        page = [event for event in self.all if int(event.cursor or 0) > after][:limit]
        return page, page[-1].cursor if page else cursor


class MemorySnapshotStore:
    """A snapshot store in a dict."""

    def __init__(self) -> None:
        self.events = MemoryEventStore()
        self.newest: dict[str, Snapshot] = {}

    def begin(self, execution_id: str) -> int:
        return self.events.start(execution_id).fence or 0

    def advance(self, execution_id: str, fence: int) -> int:
        return self.events.append(execution_id, fence, [{"type": "STEP_DONE", "data": {}}]).head or 0

    def take_over(self, execution_id: str) -> int:
        return self.events.acquire_fence(execution_id).fence or 0

    def save(self, execution_id: str, fence: int, seq: int, state: Any) -> Outcome:
        seen = self.events.head(execution_id)
        if seen.outcome == "not-found":
            return Outcome("not-found")
        if seen.fence != fence:
            return Outcome("conflict", "stale-fence")
        if seen.head != seq:
            return Outcome("conflict", "moved")
        self.newest[execution_id] = Snapshot(execution_id, seq, copy.deepcopy(state))
        return Outcome("saved")

    def load(self, execution_id: str) -> Snapshot | None:
        return self.newest.get(execution_id)

    def delete(self, execution_id: str) -> None:
        self.events.delete(execution_id)
        self.newest.pop(execution_id, None)
