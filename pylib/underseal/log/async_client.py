"""`AsyncExecutions` and `AsyncExecutionDriver`: the same as their twins, over async connections.

Every method does what its twin does, and its documentation is the twin's; a test compares the signatures.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from datetime import timedelta
from typing import Any, Self, TypeVar
from uuid import UUID

import psycopg
from psycopg_pool import AsyncConnectionPool

from underseal.flow import transfer
from underseal.foundation.sources import AsyncPoolSource
from underseal.foundation.steps import Steps, drive_async
from underseal.held.model import Awaited, Held, Operation, Outcome
from underseal.held.verbs import await_operation, operation_key, principal_id
from underseal.inbox import verbs as inbox
from underseal.inbox.model import Consumed, Delivered, Discarded, InboxMessage, NextMessage, Sent
from underseal.log import result as results
from underseal.log import verbs
from underseal.log.client import ExecutionDriver, Executions, Who, id_or_none
from underseal.log.follow import AllFeed, AsyncFollowing, ExecutionFeed
from underseal.log.model import (
    Appended,
    CancelOutcome,
    Compacted,
    Deleted,
    ExecutionInfo,
    LogEvent,
    LogRead,
    Observed,
    Recorded,
    Start,
)
from underseal.log.verify import Verification, verify_steps
from underseal.snapshot import verbs as snapshots
from underseal.snapshot.model import ContentSwept, Snapshot, Stored

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

Connection = psycopg.AsyncConnection[Any]


def _twin(of: type) -> Callable[[F], F]:
    """Give a method the documentation of its sync twin."""

    def give(method: F) -> F:
        method.__doc__ = getattr(of, method.__name__).__doc__
        return method

    return give


class _AsyncClient:
    """The connections that a client works on."""

    _hint: Callable[[], None] | None = None

    def __init__(
        self,
        database: str | AsyncConnectionPool[Any],
        *,
        prepare_threshold: int | None = 5,
        max_connections: int = 10,
    ) -> None:
        """Make a client; parameters as in `Executions`, the pool an async one."""
        self._source = AsyncPoolSource(
            database, max_size=max_connections, prepare_threshold=prepare_threshold
        )
        self._joined: ContextVar[Connection | None] | None = None

    @classmethod
    def _over(
        cls,
        source: AsyncPoolSource,
        joined: ContextVar[Connection | None],
        hint: Callable[[], None] | None = None,
    ) -> Self:
        """One that works on the connections of another client, and tells it when something was made due."""
        made = cls.__new__(cls)
        made._source, made._joined, made._hint = source, joined, hint
        return made

    async def __aenter__(self) -> Self:
        """The client itself."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close."""
        await self.close()

    async def close(self) -> None:
        """Close the connections opened here; a pool that was given stays open."""
        await self._source.close()

    async def _do(self, steps: Steps[T], connection: Connection | None = None) -> T:
        joined = None if self._joined is None else self._joined.get()
        return await drive_async(connection or joined or self._source, steps)

    async def _due(self, steps: Steps[T], connection: Connection | None = None) -> T:
        """For what makes an execution due; a transaction of the caller's commits when nobody here sees it."""
        answer = await self._do(steps, connection)
        if self._hint is not None and connection is None and (self._joined is None or not self._joined.get()):
            self._hint()
        return answer

    async def _read(self, steps: Steps[T]) -> T:
        """For what reads on and on: in no transaction of the caller's, which would never see anything new."""
        return await drive_async(self._source, steps)


class AsyncExecutions(_AsyncClient):
    """Over async connections what `Executions` is; `AsyncUnderseal.executions` is one."""

    # -- starting ----------------------------------------------------------------------------------

    @_twin(Executions)
    async def start(
        self,
        flow: str,
        principal: Who,
        value: Any = None,
        *,
        execution_id: str | None = None,
        flow_version: int = 1,
        after: timedelta | None = None,
        connection: Connection | None = None,
    ) -> str:
        """See `Executions.start`."""
        steps = verbs.start(flow, principal_id(principal), value, execution_id, flow_version, after)
        return await self._due(steps, connection)

    @_twin(Executions)
    async def start_many(
        self,
        flow: str,
        principal: Who,
        values: Iterable[Any],
        *,
        flow_version: int = 1,
        after: timedelta | None = None,
        connection: Connection | None = None,
    ) -> list[Start]:
        """See `Executions.start_many`."""
        steps = verbs.start_many(flow, principal_id(principal), values, flow_version, after)
        return await self._due(steps, connection)

    @_twin(Executions)
    async def fork(
        self,
        execution_id: str,
        through_seq: int,
        principal: Who,
        *,
        new_id: str | None = None,
        connection: Connection | None = None,
    ) -> str:
        """See `Executions.fork`."""
        return await self._due(
            verbs.fork(execution_id, through_seq, principal_id(principal), new_id), connection
        )

    @_twin(Executions)
    async def export_state(
        self,
        execution_id: str,
        principal: Who,
        *,
        capability: Mapping[str, Any] | None = None,
        connection: Connection | None = None,
    ) -> dict[str, Any]:
        """See `Executions.export_state`."""
        return await self._do(transfer.export(execution_id, principal_id(principal), capability), connection)

    @_twin(Executions)
    async def restore_from_state(
        self,
        state: Mapping[str, Any],
        principal: Who,
        *,
        execution_id: str | None = None,
        connection: Connection | None = None,
    ) -> str:
        """See `Executions.restore_from_state`."""
        return await self._due(transfer.restore(state, principal_id(principal), execution_id), connection)

    # -- looking -----------------------------------------------------------------------------------

    @_twin(Executions)
    async def get(
        self, execution_id: str, principal: Who, *, connection: Connection | None = None
    ) -> ExecutionInfo:
        """See `Executions.get`."""
        return await self._do(verbs.get(execution_id, principal_id(principal)), connection)

    @_twin(Executions)
    async def list(
        self,
        principal: Who,
        *,
        statuses: Iterable[str] | None = None,
        flow: str | None = None,
        limit: int = 50,
        after: ExecutionInfo | str | None = None,
        connection: Connection | None = None,
    ) -> list[ExecutionInfo]:
        """See `Executions.list`."""
        steps = verbs.list_executions(principal_id(principal), statuses, flow, limit, after)
        return await self._do(steps, connection)

    @_twin(Executions)
    async def events(
        self,
        execution_id: str,
        principal: Who,
        *,
        after_seq: int = -1,
        limit: int = 1000,
        capability: Mapping[str, Any] | None = None,
        connection: Connection | None = None,
    ) -> builtins.list[LogEvent]:
        """See `Executions.events`."""
        steps = verbs.events(execution_id, principal_id(principal), after_seq, limit, capability)
        return await self._do(steps, connection)

    @_twin(Executions)
    async def inbox(
        self,
        execution_id: str,
        principal: Who,
        *,
        after_seq: int = 0,
        limit: int = 1000,
        capability: Mapping[str, Any] | None = None,
        connection: Connection | None = None,
    ) -> builtins.list[InboxMessage]:
        """See `Executions.inbox`."""
        steps = inbox.list_inbox(execution_id, principal_id(principal), capability, after_seq, limit)
        return await self._do(steps, connection)

    @_twin(Executions)
    def follow(
        self,
        execution_id: str,
        principal: Who,
        *,
        after_seq: int = -1,
        until_ended: bool = True,
        capability: Mapping[str, Any] | None = None,
        idle_poll_every: timedelta = timedelta(seconds=1),
    ) -> AsyncFollowing:
        """See `Executions.follow`."""
        feed = ExecutionFeed(execution_id, principal_id(principal), after_seq, until_ended, capability)
        return AsyncFollowing(feed, self._read, idle_poll_every.total_seconds())

    @_twin(Executions)
    async def result(
        self,
        execution_id: str,
        principal: Who,
        *,
        timeout: timedelta | None = None,  # noqa: ASYNC109 -- its twin's
    ) -> Any:
        """See `Executions.result`."""
        return await self._read(results.result(execution_id, principal_id(principal), timeout))

    # -- telling it something ----------------------------------------------------------------------

    @_twin(Executions)
    async def send(
        self,
        execution_id: str,
        topic: str,
        payload: Any,
        principal: Who,
        *,
        message_id: str | None = None,
        expires_in: timedelta | None = None,
        connection: Connection | None = None,
    ) -> Sent:
        """See `Executions.send`."""
        steps = inbox.send(execution_id, topic, payload, principal_id(principal), message_id, expires_in)
        return await self._due(steps, connection)

    @_twin(Executions)
    async def resume(
        self,
        execution_id: str,
        gate: str,
        answer: Any,
        principal: Who,
        *,
        connection: Connection | None = None,
    ) -> Sent:
        """See `Executions.resume`."""
        return await self._due(inbox.resume(execution_id, gate, answer, principal_id(principal)), connection)

    @_twin(Executions)
    async def cancel(
        self,
        execution_id: str,
        principal: Who,
        reason: str | None = None,
        *,
        force: bool = False,
        connection: Connection | None = None,
    ) -> CancelOutcome:
        """See `Executions.cancel`."""
        return await self._due(verbs.cancel(execution_id, principal_id(principal), reason, force), connection)

    @_twin(Executions)
    async def migrate(
        self, execution_id: str, flow_version: int, principal: Who, *, connection: Connection | None = None
    ) -> Outcome:
        """See `Executions.migrate`."""
        return await self._due(verbs.migrate(execution_id, flow_version, principal_id(principal)), connection)

    @_twin(Executions)
    async def record_outcome(
        self, execution_id: str, outcome: Any, principal: Who, *, connection: Connection | None = None
    ) -> Recorded:
        """See `Executions.record_outcome`."""
        return await self._do(
            verbs.record_outcome(execution_id, outcome, principal_id(principal)), connection
        )

    # -- operating ---------------------------------------------------------------------------------

    @_twin(Executions)
    async def discard(
        self,
        execution_id: str,
        topic: str,
        principal: Who,
        reason: str | None = None,
        *,
        inbox_seq: int | None = None,
        connection: Connection | None = None,
    ) -> Discarded:
        """See `Executions.discard`."""
        steps = inbox.discard(execution_id, topic, principal_id(principal), reason, inbox_seq)
        return await self._do(steps, connection)

    @_twin(Executions)
    async def compact(
        self,
        execution_id: str,
        before_seq: int,
        principal: Who | None,
        *,
        connection: Connection | None = None,
    ) -> Compacted:
        """See `Executions.compact`."""
        return await self._do(verbs.compact(execution_id, before_seq, id_or_none(principal)), connection)

    @_twin(Executions)
    async def delete_chain(
        self, chain_id: str, principal: Who, *, connection: Connection | None = None
    ) -> Deleted:
        """See `Executions.delete_chain`."""
        return await self._do(verbs.delete_chain(chain_id, principal_id(principal)), connection)

    @_twin(Executions)
    async def purge(
        self, ended_before: timedelta, limit: int = 100, *, connection: Connection | None = None
    ) -> builtins.list[Deleted]:
        """See `Executions.purge`."""
        return await self._do(verbs.purge(ended_before, limit), connection)

    @_twin(Executions)
    async def sweep_denials(self, limit: int = 1000, *, connection: Connection | None = None) -> int:
        """See `Executions.sweep_denials`."""
        return await self._do(verbs.sweep_denials(limit), connection)

    @_twin(Executions)
    async def verify(
        self, execution_id: str, principal: Who | None = None, *, connection: Connection | None = None
    ) -> Verification:
        """See `Executions.verify`."""
        return await self._do(verify_steps(execution_id, id_or_none(principal)), connection)

    # -- what is the schema owner's ----------------------------------------------------------------

    @_twin(Executions)
    async def set_access_policy(self, hook: str | None, *, connection: Connection | None = None) -> Outcome:
        """See `Executions.set_access_policy`."""
        return await self._do(verbs.set_access_policy(hook), connection)

    @_twin(Executions)
    async def set_denial_hook(self, hook: str | None, *, connection: Connection | None = None) -> Outcome:
        """See `Executions.set_denial_hook`."""
        return await self._do(verbs.set_denial_hook(hook), connection)

    @_twin(Executions)
    async def adopt_cursor(self, cursor: str, *, connection: Connection | None = None) -> str:
        """See `Executions.adopt_cursor`."""
        return await self._do(verbs.adopt_cursor(cursor), connection)

    @_twin(Executions)
    async def adopt_log(self, *, connection: Connection | None = None) -> int:
        """See `Executions.adopt_log`."""
        return await self._do(verbs.adopt_log(), connection)


class AsyncExecutionDriver(_AsyncClient):
    """Over async connections what `ExecutionDriver` is; `AsyncUnderseal.driver` is one."""

    # -- writing -----------------------------------------------------------------------------------

    @_twin(ExecutionDriver)
    async def append(
        self,
        execution_id: str,
        fence: int,
        events: Sequence[Mapping[str, Any]],
        *,
        connection: Connection | None = None,
    ) -> Appended:
        """See `ExecutionDriver.append`."""
        return await self._do(verbs.append(execution_id, fence, events), connection)

    @_twin(ExecutionDriver)
    async def append_if_unchanged(
        self,
        execution_id: str,
        seen: Observed,
        events: Sequence[Mapping[str, Any]],
        *,
        connection: Connection | None = None,
    ) -> Appended:
        """See `ExecutionDriver.append_if_unchanged`."""
        return await self._do(verbs.append_if_unchanged(execution_id, seen, events), connection)

    @_twin(ExecutionDriver)
    async def append_batch(
        self, items: Sequence[Mapping[str, Any]], *, connection: Connection | None = None
    ) -> list[Appended]:
        """See `ExecutionDriver.append_batch`."""
        return await self._do(verbs.append_batch(items), connection)

    @_twin(ExecutionDriver)
    async def await_operation(
        self,
        operation: UUID | Held | Operation,
        execution_id: str,
        fence: int,
        *,
        connection: Connection | None = None,
    ) -> Awaited:
        """See `ExecutionDriver.await_operation`."""
        return await self._do(await_operation(operation_key(operation), execution_id, fence), connection)

    # -- fences ------------------------------------------------------------------------------------

    @_twin(ExecutionDriver)
    async def head(self, execution_id: str, *, connection: Connection | None = None) -> Observed:
        """See `ExecutionDriver.head`."""
        return await self._do(verbs.head(execution_id), connection)

    @_twin(ExecutionDriver)
    async def acquire_fence(self, execution_id: str, *, connection: Connection | None = None) -> Observed:
        """See `ExecutionDriver.acquire_fence`."""
        return await self._do(verbs.acquire_fence(execution_id), connection)

    @_twin(ExecutionDriver)
    async def acquire_fence_if(
        self, execution_id: str, seen: Observed, *, connection: Connection | None = None
    ) -> Observed:
        """See `ExecutionDriver.acquire_fence_if`."""
        return await self._do(verbs.acquire_fence_if(execution_id, seen), connection)

    @_twin(ExecutionDriver)
    async def recover(
        self,
        execution_id: str,
        seen: Observed,
        worker: str,
        lease: timedelta,
        *,
        max_recoveries: int = 3,
        connection: Connection | None = None,
    ) -> Observed:
        """See `ExecutionDriver.recover`."""
        return await self._do(verbs.recover(execution_id, seen, worker, lease, max_recoveries), connection)

    @_twin(ExecutionDriver)
    async def report_divergence(
        self, execution_id: str, fence: int, cause: str, *, connection: Connection | None = None
    ) -> Outcome:
        """See `ExecutionDriver.report_divergence`."""
        return await self._do(verbs.report_divergence(execution_id, fence, cause), connection)

    # -- delivering --------------------------------------------------------------------------------

    @_twin(ExecutionDriver)
    async def next_message(
        self,
        execution_id: str,
        fence: int,
        *,
        capability: Mapping[str, Any] | None = None,
        connection: Connection | None = None,
    ) -> NextMessage:
        """See `ExecutionDriver.next_message`."""
        return await self._do(inbox.next_message(execution_id, fence, capability), connection)

    @_twin(ExecutionDriver)
    async def consume_message(
        self, execution_id: str, fence: int, found: NextMessage, *, connection: Connection | None = None
    ) -> Consumed:
        """See `ExecutionDriver.consume_message`."""
        return await self._do(inbox.consume(execution_id, fence, found), connection)

    @_twin(ExecutionDriver)
    async def deliver(
        self, execution_id: str, fence: int, *, connection: Connection | None = None
    ) -> Delivered:
        """See `ExecutionDriver.deliver`."""
        return await self._do(inbox.deliver(execution_id, fence), connection)

    @_twin(ExecutionDriver)
    async def deliver_batch(
        self, items: Iterable[tuple[str, int]], *, connection: Connection | None = None
    ) -> list[Delivered]:
        """See `ExecutionDriver.deliver_batch`."""
        return await self._do(inbox.deliver_batch(items), connection)

    @_twin(ExecutionDriver)
    async def expire_inbox(self, limit: int = 100, *, connection: Connection | None = None) -> int:
        """See `ExecutionDriver.expire_inbox`."""
        return await self._do(inbox.expire(limit), connection)

    # -- reading -----------------------------------------------------------------------------------

    @_twin(ExecutionDriver)
    async def events(
        self,
        execution_id: str,
        *,
        after_seq: int = -1,
        limit: int = 1000,
        capability: Mapping[str, Any] | None = None,
        connection: Connection | None = None,
    ) -> list[LogEvent]:
        """See `ExecutionDriver.events`."""
        return await self._do(verbs.events(execution_id, None, after_seq, limit, capability), connection)

    @_twin(ExecutionDriver)
    async def read_logs(
        self,
        logs: Iterable[tuple[str, int]],
        *,
        limit: int = 1000,
        capability: Mapping[str, Any] | None = None,
        connection: Connection | None = None,
    ) -> list[LogRead]:
        """See `ExecutionDriver.read_logs`."""
        return await self._do(verbs.read_logs(logs, limit, capability), connection)

    @_twin(ExecutionDriver)
    async def read_all(
        self,
        cursor: str | None = None,
        *,
        limit: int = 1000,
        capability: Mapping[str, Any] | None = None,
        connection: Connection | None = None,
    ) -> tuple[list[LogEvent], str | None]:
        """See `ExecutionDriver.read_all`."""
        return await self._do(verbs.read_all(cursor, limit, capability), connection)

    @_twin(ExecutionDriver)
    def follow_all(
        self,
        cursor: str | None = None,
        *,
        capability: Mapping[str, Any] | None = None,
        idle_poll_every: timedelta = timedelta(seconds=1),
    ) -> AsyncFollowing:
        """See `ExecutionDriver.follow_all`."""
        return AsyncFollowing(AllFeed(cursor, capability), self._read, idle_poll_every.total_seconds())

    # -- snapshots and content ---------------------------------------------------------------------

    @_twin(ExecutionDriver)
    async def save_snapshot(
        self, execution_id: str, fence: int, seq: int, state: Any, *, connection: Connection | None = None
    ) -> Outcome:
        """See `ExecutionDriver.save_snapshot`."""
        return await self._do(snapshots.save(execution_id, fence, seq, state), connection)

    @_twin(ExecutionDriver)
    async def load_snapshot(
        self,
        execution_id: str,
        *,
        capability: Mapping[str, Any] | None = None,
        connection: Connection | None = None,
    ) -> Snapshot | None:
        """See `ExecutionDriver.load_snapshot`."""
        return await self._do(snapshots.load(execution_id, None, capability), connection)

    @_twin(ExecutionDriver)
    async def put_content(
        self, execution_id: str, body: Any, fence: int, *, connection: Connection | None = None
    ) -> Stored:
        """See `ExecutionDriver.put_content`."""
        return await self._do(snapshots.put_content(execution_id, body, fence), connection)

    @_twin(ExecutionDriver)
    async def get_content(
        self,
        execution_id: str,
        digest: bytes,
        *,
        capability: Mapping[str, Any] | None = None,
        connection: Connection | None = None,
    ) -> Any:
        """See `ExecutionDriver.get_content`."""
        return await self._do(snapshots.get_content(execution_id, digest, None, capability), connection)

    @_twin(ExecutionDriver)
    async def sweep_content(
        self,
        limit: int = 100,
        grace: timedelta = timedelta(hours=1),
        *,
        connection: Connection | None = None,
    ) -> list[ContentSwept]:
        """See `ExecutionDriver.sweep_content`."""
        return await self._do(snapshots.sweep_content(limit, grace), connection)
