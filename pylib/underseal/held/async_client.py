"""`AsyncUnderseal`: the same as `Underseal`, over async connections.

Every method does what its twin does, and its documentation is the twin's; a test compares the
signatures. Only how steps are carried out differs (foundation/steps.py).
"""

# `type` is what the column is called, in SQL and here.
# ruff: noqa: A002

from __future__ import annotations

import builtins
import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta
from typing import Any, Self, TypeVar
from uuid import UUID

import psycopg
from psycopg_pool import AsyncConnectionPool
from pydantic import BaseModel

from underseal.flow.definition import Flow, Flows
from underseal.flow.runtime import FlowRuntime, Limits
from underseal.foundation.sources import AsyncPoolSource
from underseal.foundation.steps import Steps, drive_async
from underseal.held import run, verbs
from underseal.held.client import Underseal
from underseal.held.core import Core, default_worker_name
from underseal.held.gate import gated_call
from underseal.held.model import (
    Decision,
    Echo,
    Event,
    Held,
    KeyUse,
    Operation,
    OperationType,
    OutboxEvent,
    Outcome,
    Policy,
    Principal,
    Registration,
    RewrapProgress,
    RunReport,
    Swept,
    VoteOutcome,
)
from underseal.held.provider import Provider
from underseal.held.rewrap import Rewrap
from underseal.held.sequence import Rebuild
from underseal.held.spent import SpentRegister
from underseal.log.async_client import AsyncExecutionDriver, AsyncExecutions
from underseal.seal import KeyRing
from underseal.wake.client import LEASE
from underseal.worker.hint import Listener, hint_place, hinter_of
from underseal.worker.runtime import runtime_of
from underseal.worker.service import Worker

T = TypeVar("T")
P = TypeVar("P", bound=BaseModel)
R = TypeVar("R")

F = TypeVar("F", bound=Callable[..., Any])

Connection = psycopg.AsyncConnection[Any]


def _twin(method: F) -> F:
    """Give a method the documentation of its sync twin."""
    method.__doc__ = getattr(Underseal, method.__name__).__doc__
    return method


class AsyncUnderseal:
    """A client over async connections; safe to share between the tasks of one loop. See `Underseal`.

    Plain functions that it calls (providers, principals, the spent register) are run in threads of
    their own, so that none of them blocks the loop.
    """

    def __init__(
        self,
        database: str | AsyncConnectionPool[Any],
        *,
        keys: KeyRing,
        principals: Rebuild | None = None,
        worker_name: str | None = None,
        spent: SpentRegister | None = None,
        run_on_approval: bool = True,
        serve_sql: bool = True,
        renew_every: timedelta = timedelta(minutes=5),
        prepare_threshold: int | None = 5,
        max_connections: int = 10,
        hint: bool | str = False,
    ) -> None:
        """Make a client; parameters as in `Underseal`, the pool an async one."""
        self._source = AsyncPoolSource(
            database, max_size=max_connections, prepare_threshold=prepare_threshold
        )
        self._core = Core(
            keys,
            principals,
            worker_name or default_worker_name(),
            spent,
            renew_every.total_seconds(),
            serve_sql,
        )
        self._run_on_approval = run_on_approval
        self._worker_name = worker_name
        self._hint = hint
        self._hinter = hinter_of(self, hint)
        self._flows = Flows()
        self._joined: ContextVar[Connection | None] = ContextVar("underseal_joined", default=None)
        self.executions = AsyncExecutions._over(self._source, self._joined, self._due)
        self.driver = AsyncExecutionDriver._over(self._source, self._joined)

    async def __aenter__(self) -> Self:
        """The client itself."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close."""
        await self.close()

    @_twin
    async def close(self) -> None:
        """See `Underseal.close`."""
        if self._hinter is not None:
            self._hinter.close()
        await self._source.close()

    # -- gating ------------------------------------------------------------------------------------

    @_twin
    def gate(
        self, provider: Provider[P]
    ) -> Callable[[Callable[[Principal, P], Awaitable[R]]], Callable[[Principal, P], Awaitable[R | Held]]]:
        """See `Underseal.gate`."""
        kind = self._core.add(provider)

        def decorate(
            method: Callable[[Principal, P], Awaitable[R]],
        ) -> Callable[[Principal, P], Awaitable[R | Held]]:
            if not inspect.iscoroutinefunction(method):
                raise TypeError(f"{method.__qualname__} is not async def; gate it with Underseal")

            @functools.wraps(method)
            async def gated(principal: Principal, params: P) -> R | Held:
                joined = self._joined.get()
                steps = gated_call(self._core, kind, method, principal, params, joined=joined is not None)
                answer: R | Held = await self._do(steps)
                return answer

            kind.method = gated
            return gated

        return decorate

    @_twin
    @contextmanager
    def using(self, connection: Connection) -> Iterator[None]:
        """See `Underseal.using`."""
        token = self._joined.set(connection)
        try:
            yield
        finally:
            self._joined.reset(token)

    # -- flows -------------------------------------------------------------------------------------

    @_twin
    def serve(self, *flows: Flow) -> None:
        """See `Underseal.serve`."""
        for one in flows:
            self._flows.add(one)

    def runtime(
        self,
        *,
        limits: Limits | None = None,
        lease: timedelta = LEASE,
        idle_poll_every: timedelta = timedelta(seconds=1),
        claims: bool = True,
        grace: timedelta = timedelta(seconds=30),
    ) -> FlowRuntime:
        """A runtime of the flows that are served, in this process: `async with us.runtime() as rt: await rt.run(…)`.

        It starts executions and drives them without a worker in between, and like a worker it drives what is due.

        Parameters:
            limits: how much at once.
            lease: how long a claim holds, 1 second to 1 hour; it is renewed each third of it.
            idle_poll_every: the longest wait between two looks at the database while there is nothing.
            claims: whether it claims what is due; otherwise it drives only what it starts.
            grace: how long steps may take to end at the end of the block.
        """
        place = hint_place(self._source, self._hint)
        return runtime_of(
            self,
            limits=limits,
            lease=lease,
            idle_poll_every=idle_poll_every,
            claims=claims,
            grace=grace,
            hint=None if place is None else Listener(place).listen,
        )

    # -- types -------------------------------------------------------------------------------------

    @_twin
    async def register(self, *, connection: Connection | None = None) -> list[Registration]:
        """See `Underseal.register`."""
        return await self._do(verbs.register(self._core), connection)

    @_twin
    async def register_sql_operation(
        self,
        type: str,
        version: int,
        parameters: Mapping[str, Any] | builtins.type[BaseModel],
        policy: Policy,
        *,
        estimate: str,
        check_run: str,
        run: str,
        safe_sqlstates: Iterable[str] = (),
        connection: Connection | None = None,
    ) -> Registration:
        """See `Underseal.register_sql_operation`."""
        functions = (estimate, check_run, run)
        steps = verbs.register_sql(type, version, parameters, policy, functions, tuple(safe_sqlstates))
        return await self._do(steps, connection)

    @_twin
    async def types(self, *, connection: Connection | None = None) -> list[OperationType]:
        """See `Underseal.types`."""
        return await self._do(verbs.types(), connection)

    @_twin
    async def set_armed(
        self,
        type: str,
        version: int,
        armed: bool,
        principal: Principal | str | None = None,
        *,
        connection: Connection | None = None,
    ) -> Outcome:
        """See `Underseal.set_armed`."""
        who = None if principal is None else verbs.principal_id(principal)
        return await self._do(verbs.set_armed(type, version, armed, who), connection)

    # -- requesting --------------------------------------------------------------------------------

    @_twin
    async def request(
        self,
        type: str,
        principal: Principal,
        params: Any,
        *,
        operation_id: UUID | None = None,
        connection: Connection | None = None,
    ) -> Held:
        """See `Underseal.request`."""
        return await self._do(verbs.request(self._core, type, principal, params, operation_id), connection)

    @_twin
    async def resubmit(self, type: str, principal: Principal, params: Any) -> Held | RunReport:
        """See `Underseal.resubmit`."""
        return await self._perform(verbs.resubmit(self._core, type, principal, params))

    # -- looking -----------------------------------------------------------------------------------

    @_twin
    async def get(
        self,
        operation: UUID | Held | Operation,
        principal: Principal | str,
        *,
        connection: Connection | None = None,
    ) -> Operation | None:
        """See `Underseal.get`."""
        steps = verbs.get(verbs.operation_key(operation), verbs.principal_id(principal))
        return await self._do(steps, connection)

    @_twin
    async def list(
        self,
        principal: Principal | str,
        *,
        states: Iterable[str] | None = None,
        limit: int = 50,
        after: UUID | None = None,
        connection: Connection | None = None,
    ) -> list[Operation]:
        """See `Underseal.list`."""
        return await self._do(
            verbs.list_operations(verbs.principal_id(principal), states, limit, after), connection
        )

    @_twin
    async def events(
        self,
        operation: UUID | Held | Operation,
        principal: Principal | str,
        *,
        connection: Connection | None = None,
    ) -> builtins.list[Event] | None:
        """See `Underseal.events`."""
        steps = verbs.events(verbs.operation_key(operation), verbs.principal_id(principal))
        return await self._do(steps, connection)

    # -- deciding ----------------------------------------------------------------------------------

    @_twin
    async def vote(
        self,
        shown: Operation | Echo,
        principal: Principal | str,
        decision: Decision,
        reason: str | None = None,
        *,
        connection: Connection | None = None,
    ) -> VoteOutcome:
        """See `Underseal.vote`."""
        alone = connection is None and self._joined.get() is None
        steps = verbs.vote(
            self._core,
            shown,
            verbs.principal_id(principal),
            decision,
            reason,
            run=alone and self._run_on_approval,
        )
        outcome = await self._do(steps, connection)
        if alone and outcome.outcome in ("approved", "rejected"):
            self._due()
        return outcome

    @_twin
    async def approve(
        self,
        shown: Operation | Echo,
        principal: Principal | str,
        reason: str | None = None,
        *,
        connection: Connection | None = None,
    ) -> VoteOutcome:
        """See `Underseal.approve`."""
        return await self.vote(shown, principal, "approve", reason, connection=connection)

    @_twin
    async def reject(
        self,
        shown: Operation | Echo,
        principal: Principal | str,
        reason: str,
        *,
        connection: Connection | None = None,
    ) -> VoteOutcome:
        """See `Underseal.reject`."""
        return await self.vote(shown, principal, "reject", reason, connection=connection)

    @_twin
    async def cancel(
        self,
        operation: UUID | Held | Operation,
        principal: Principal | str,
        note: str | None = None,
        *,
        as_operator: bool = False,
        connection: Connection | None = None,
    ) -> Outcome:
        """See `Underseal.cancel`."""
        steps = verbs.cancel(
            self._core, verbs.operation_key(operation), verbs.principal_id(principal), note, as_operator
        )
        return await self._do(steps, connection)

    # -- running -----------------------------------------------------------------------------------

    @_twin
    async def run(self, operation: UUID | Held | Operation) -> RunReport:
        """See `Underseal.run`."""
        return await self._perform(run.run_one(self._core, verbs.operation_key(operation)))

    @_twin
    async def run_approved(self, limit: int = 10) -> builtins.list[RunReport]:
        """See `Underseal.run_approved`."""
        done: list[RunReport] = []
        while len(done) < limit:
            report = await self._perform(run.run_next(self._core))
            if report is None:
                break
            done.append(report)
        return done

    @_twin
    async def progress(self, note: str) -> Outcome:
        """See `Underseal.progress`."""
        return await drive_async(self._source, verbs.progress(self._core, note))

    @_twin
    async def sweep(self, limit: int = 100) -> builtins.list[Swept]:
        """See `Underseal.sweep`."""
        return await drive_async(self._source, verbs.sweep(limit))

    @_twin
    async def report_unserved(self) -> builtins.list[tuple[UUID, str]]:
        """See `Underseal.report_unserved`."""
        return await drive_async(self._source, verbs.unserved(self._core))

    @_twin
    def worker(
        self,
        *,
        concurrency: int = 4,
        poll_every: timedelta = timedelta(milliseconds=500),
        idle_poll_every: timedelta = timedelta(seconds=5),
        grace: timedelta = timedelta(seconds=30),
        limits: Limits | None = None,
        lease: timedelta = LEASE,
        hint: bool | str | None = None,
    ) -> Worker:
        """See `Underseal.worker`."""
        return Worker(
            self, concurrency=concurrency, poll_every=poll_every, idle_poll_every=idle_poll_every, grace=grace,
            limits=limits, lease=lease, hint=hint,
        )  # fmt: skip

    # -- outbox and keys ---------------------------------------------------------------------------

    @_twin
    async def register_consumer(
        self, consumer: str, *, from_start: bool = True, connection: Connection | None = None
    ) -> Outcome:
        """See `Underseal.register_consumer`."""
        return await self._do(verbs.register_consumer(consumer, from_start), connection)

    @_twin
    async def drop_consumer(self, consumer: str, *, connection: Connection | None = None) -> Outcome:
        """See `Underseal.drop_consumer`."""
        return await self._do(verbs.drop_consumer(consumer), connection)

    @_twin
    async def read_outbox(
        self, consumer: str, limit: int = 100, *, connection: Connection | None = None
    ) -> builtins.list[OutboxEvent]:
        """See `Underseal.read_outbox`."""
        return await self._do(verbs.read_outbox(consumer, limit), connection)

    @_twin
    async def ack_outbox(
        self, consumer: str, position: int, *, connection: Connection | None = None
    ) -> Outcome:
        """See `Underseal.ack_outbox`."""
        return await self._do(verbs.ack_outbox(consumer, position), connection)

    @_twin
    async def rewrap(self, batch_size: int = 100) -> AsyncIterator[RewrapProgress]:
        """See `Underseal.rewrap`."""
        work = Rewrap(self._core, batch_size)
        while (progress := await drive_async(self._source, work.batch())) is not None:
            yield progress

    @_twin
    async def key_uses(self, *, connection: Connection | None = None) -> builtins.list[KeyUse]:
        """See `Underseal.key_uses`."""
        return await self._do(verbs.key_uses(), connection)

    # -- carrying out ------------------------------------------------------------------------------

    def _due(self) -> None:
        """Something was made due, and is committed."""
        if self._hinter is not None:
            self._hinter.hint()

    async def _do(self, steps: Steps[T], connection: Connection | None = None) -> T:
        return await drive_async(connection or self._joined.get() or self._source, steps)

    async def _perform(self, steps: Steps[T]) -> T:
        """For runs: in no transaction of the caller's, whose locks the end of the run would wait for."""
        token = self._joined.set(None)
        try:
            return await drive_async(self._source, steps)
        finally:
            self._joined.reset(token)
