"""The stores of this package, in the shape that the suites ask for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from underseal.errors import ExecutionAlreadyExistsError, ExecutionDeniedError
from underseal.held.model import Outcome
from underseal.log import batch
from underseal.log.client import ExecutionDriver, Executions
from underseal.log.model import Appended, LogEvent, Observed
from underseal.snapshot.model import Snapshot
from underseal.testing.conformance.event_store import Events

_PRINCIPAL = "conformance"


class _Postgres:
    def __init__(self, database: str, *, max_connections: int = 10) -> None:
        """Work on a database with the kernel, over a login that may call everything.

        Parameters:
            database: a conninfo, of the schema's owner for instance.
            max_connections: most connections at once.
        """
        self.executions = Executions(database, max_connections=max_connections)
        self.driver = ExecutionDriver(database, max_connections=max_connections)

    def close(self) -> None:
        """Close the connections."""
        self.executions.close()
        self.driver.close()

    def _start(self, execution_id: str) -> Appended:
        return self.driver.append_batch([batch.start_item(execution_id, "conformance", _PRINCIPAL)])[0]

    def _end_and_delete(self, execution_id: str) -> None:
        seen = self.driver.acquire_fence(execution_id)
        if seen.outcome == "acquired" and seen.fence is not None:
            self.driver.append_batch([batch.complete_item(execution_id, seen.fence)])
        done = self.executions.delete_chain(execution_id, _PRINCIPAL)
        assert done.outcome == "deleted", done


class PostgresEventStore(_Postgres):
    """The log in Postgres as an `EventStore`."""

    def start(self, execution_id: str) -> Appended:
        """See `EventStore`."""
        return self._start(execution_id)

    def append(self, execution_id: str, fence: int, events: Events) -> Appended:
        """See `EventStore`."""
        return self.driver.append(execution_id, fence, events)

    def append_if_unchanged(self, execution_id: str, seen: Observed, events: Events) -> Appended:
        """See `EventStore`."""
        return self.driver.append_if_unchanged(execution_id, seen, events)

    def append_batch(self, items: Sequence[tuple[str, int, Events]]) -> list[Appended]:
        """See `EventStore`."""
        return self.driver.append_batch([batch.append_item(*item) for item in items])

    def complete(self, execution_id: str, fence: int) -> Appended:
        """See `EventStore`."""
        return self.driver.append_batch([batch.complete_item(execution_id, fence)])[0]

    def head(self, execution_id: str) -> Observed:
        """See `EventStore`."""
        return self.driver.head(execution_id)

    def acquire_fence(self, execution_id: str) -> Observed:
        """See `EventStore`."""
        return self.driver.acquire_fence(execution_id)

    def acquire_fence_if(self, execution_id: str, seen: Observed) -> Observed:
        """See `EventStore`."""
        return self.driver.acquire_fence_if(execution_id, seen)

    def read(self, execution_id: str, after_seq: int = -1) -> list[LogEvent]:
        """See `EventStore`."""
        found: list[LogEvent] = []
        try:
            while page := self.driver.events(execution_id, after_seq=after_seq):
                found += page
                after_seq = page[-1].seq
        except ExecutionDeniedError:
            return []
        return found

    def fork(self, execution_id: str, through_seq: int, new_id: str) -> str:
        """See `EventStore`."""
        try:
            self.executions.fork(execution_id, through_seq, _PRINCIPAL, new_id=new_id)
        except ExecutionAlreadyExistsError:
            return "exists"
        return "forked"

    def truncate(self, execution_id: str, fence: int, before_seq: int) -> None:
        """See `EventStore`."""
        seen = self.driver.head(execution_id)
        saved = self.driver.save_snapshot(execution_id, fence, seen.head or 0, None)
        assert saved.outcome == "saved", saved
        done = self.executions.compact(execution_id, before_seq, None)
        assert done.outcome == "truncated", done

    def delete(self, execution_id: str) -> None:
        """See `EventStore`."""
        self._end_and_delete(execution_id)

    def read_all(self, cursor: str | None, limit: int) -> tuple[list[LogEvent], str | None]:
        """See `EventStore`."""
        return self.driver.read_all(cursor, limit=limit)


class PostgresSnapshotStore(_Postgres):
    """The snapshots in Postgres as a `SnapshotStore`."""

    def begin(self, execution_id: str) -> int:
        """See `SnapshotStore`."""
        fence = self._start(execution_id).fence
        assert fence is not None
        return fence

    def advance(self, execution_id: str, fence: int) -> int:
        """See `SnapshotStore`."""
        head = self.driver.append(execution_id, fence, [batch.event("STEP_DONE")]).head
        assert head is not None
        return head

    def take_over(self, execution_id: str) -> int:
        """See `SnapshotStore`."""
        fence = self.driver.acquire_fence(execution_id).fence
        assert fence is not None
        return fence

    def save(self, execution_id: str, fence: int, seq: int, state: Any) -> Outcome:
        """See `SnapshotStore`."""
        return self.driver.save_snapshot(execution_id, fence, seq, state)

    def load(self, execution_id: str) -> Snapshot | None:
        """See `SnapshotStore`."""
        return self.driver.load_snapshot(execution_id)

    def delete(self, execution_id: str) -> None:
        """See `SnapshotStore`."""
        self._end_and_delete(execution_id)
