"""`Underseal`: everything a service does with held operations, over sync connections."""

# `type` is what the column is called, in SQL and here.
# ruff: noqa: A002

from __future__ import annotations

import builtins
import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta
from typing import Any, Self, TypeVar
from uuid import UUID

import psycopg
from psycopg_pool import ConnectionPool
from pydantic import BaseModel

from underseal.flow.definition import Flow, Flows
from underseal.flow.runtime import Limits
from underseal.foundation.sources import PoolSource
from underseal.foundation.steps import Steps, drive
from underseal.foundation.threads import in_thread
from underseal.held import run, verbs
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
from underseal.log.client import ExecutionDriver, Executions
from underseal.seal import KeyRing
from underseal.wake.client import LEASE
from underseal.worker.hint import hinter_of
from underseal.worker.service import Worker

T = TypeVar("T")
P = TypeVar("P", bound=BaseModel)
R = TypeVar("R")

Connection = psycopg.Connection[Any]


class Underseal:
    """A client over sync connections; safe to share between threads.

    Where a method takes `connection`, it may work on a connection of the caller's own: what it
    does then commits or rolls back together with the caller's rows. Such a transaction must be at
    READ COMMITTED (US008 otherwise), and the caller retries it after a serialization failure or a
    deadlock; without `connection` that is done here.

    Attributes:
        executions: what callers do with executions, on the same connections; `using` joins it too.
        driver: what those do who drive executions, likewise.
    """

    def __init__(
        self,
        database: str | ConnectionPool[Any],
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
        """Make a client; nothing is connected before its first use.

        Parameters:
            database: a conninfo, or a pool of psycopg_pool, which stays the caller's to close.
            keys: the key ring. Requests need `payload` and `fingerprint` keys, votes `decision`
                keys, runs `payload` and `decision` keys (clause H2.11).
            principals: `(id, auth_kind, token_id)` → `Principal`, or None if they may not act any
                more (disabled, token revoked); sync or async. Without it this process runs nothing.
            worker_name: name under which runs are claimed; by default one that is never used again.
            spent: a spent register (clause H8.5), the same for all processes that run or cancel.
            run_on_approval: start a run in the call that cast the deciding vote, where this
                process can (clause H5.2); if not, a worker's sweep does.
            serve_sql: run operations of SQL functions here too.
            renew_every: how often a run's lease of 15 minutes is renewed.
            prepare_threshold: for a conninfo, runs of a statement before it is prepared; None
                behind pgbouncer in transaction mode. A pool brings its own setting.
            max_connections: for a conninfo, size of the pool made from it.
            hint: send a notification, on a connection of its own, when this client has made something due,
                so that workers with `hint` look at once; a conninfo for where notifications need another way.
        """
        self._source = PoolSource(database, max_size=max_connections, prepare_threshold=prepare_threshold)
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
        self.executions = Executions._over(self._source, self._joined, self._due)
        self.driver = ExecutionDriver._over(self._source, self._joined)

    def __enter__(self) -> Self:
        """The client itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def close(self) -> None:
        """Close the connections opened here; a pool that was given stays open."""
        if self._hinter is not None:
            self._hinter.close()
        self._source.close()

    # -- gating ------------------------------------------------------------------------------------

    def gate(
        self, provider: Provider[P]
    ) -> Callable[[Callable[[Principal, P], R]], Callable[[Principal, P], R | Held]]:
        """Gate a method: `@us.gate(PayoutSend())` above `def send(principal, params)`.

        The gated method returns `Held` where the call waits for approval, and the method's own
        result where it ran. Its body must check what the principal may do, as it would without a
        gate: a run calls it as the requester (clause H6.8).

        Parameters:
            provider: what is gated; one method a type and client.

        Errors:
            ProviderRefused: the parameters cannot be held (a float among them, clause H1.5).
            TypeError: the method is `async def`; gate it with `AsyncUnderseal`.
        """
        kind = self._core.add(provider)

        def decorate(method: Callable[[Principal, P], R]) -> Callable[[Principal, P], R | Held]:
            if inspect.iscoroutinefunction(method):
                raise TypeError(f"{method.__qualname__} is async def; gate it with AsyncUnderseal")

            @functools.wraps(method)
            def gated(principal: Principal, params: P) -> R | Held:
                joined = self._joined.get()
                steps = gated_call(self._core, kind, method, principal, params, joined=joined is not None)
                answer: R | Held = self._do(steps)
                return answer

            kind.method = gated
            return gated

        return decorate

    @contextmanager
    def using(self, connection: Connection) -> Iterator[None]:
        """Let what is called inside the block join a transaction of the caller's own.

        For gated methods, which take no `connection`: the request and the caller's rows commit
        together. Nothing is run inside the block, since a run must not depend on a commit to come:
        a repeated BY_REQUESTER call returns `Held` there.

        Parameters:
            connection: the caller's connection.
        """
        token = self._joined.set(connection)
        try:
            yield
        finally:
            self._joined.reset(token)

    # -- flows -------------------------------------------------------------------------------------

    def serve(self, *flows: Flow) -> None:
        """Take flows that workers of this client drive.

        Parameters:
            flows: what `flow` made; several versions of one name are several flows.

        Errors:
            FlowError: it is no flow, or a version of it is taken by another.
        """
        for one in flows:
            self._flows.add(one)

    # -- types -------------------------------------------------------------------------------------

    def register(self, *, connection: Connection | None = None) -> list[Registration]:
        """Register the types of all gated methods, or bring their policies up to date.

        Parameters:
            connection: one whose login owns the schema, which registering needs; for instance of
                the process that migrates.

        Returns:
            An outcome a type: `registered`, `updated`, `unchanged`, or `refused` (`version-frozen`
            if the parameters changed without a new version).
        """
        return self._do(verbs.register(self._core), connection)

    def register_sql_operation(
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
        """Register a type that SQL functions do (clause H6.10).

        Parameters:
            type, version: as in `Provider`.
            parameters: a JSON Schema or a pydantic model, without secret members.
            policy: who must agree.
            estimate: `schema.function(jsonb, text)`, returns jsonb `{"effect": {…}, "state_key": "…"}`.
            check_run: `schema.function(jsonb, text)`, returns text, null to agree.
            run: `schema.function(jsonb, text)`, returns jsonb.
            safe_sqlstates: SQLSTATEs whose message may be recorded.
            connection: one whose login owns the schema.

        Returns:
            `registered`, `updated`, `unchanged`, or `refused` with the reason.
        """
        functions = (estimate, check_run, run)
        steps = verbs.register_sql(type, version, parameters, policy, functions, tuple(safe_sqlstates))
        return self._do(steps, connection)

    def types(self, *, connection: Connection | None = None) -> list[OperationType]:
        """Every registered type and version.

        Parameters:
            connection: the caller's own, if wanted.
        """
        return self._do(verbs.types(), connection)

    def set_armed(
        self,
        type: str,
        version: int,
        armed: bool,
        principal: Principal | str | None = None,
        *,
        connection: Connection | None = None,
    ) -> Outcome:
        """Switch a type on or off. Off refuses requests and runs; it never lets a call run unheld (clause H6.1).

        Parameters:
            type, version: which.
            armed: the new setting.
            principal: the operator; None for the login's own.
            connection: the caller's own, if wanted.

        Returns:
            `set`, `not-found` or `denied`.
        """
        who = None if principal is None else verbs.principal_id(principal)
        return self._do(verbs.set_armed(type, version, armed, who), connection)

    # -- requesting --------------------------------------------------------------------------------

    def request(
        self,
        type: str,
        principal: Principal,
        params: Any,
        *,
        operation_id: UUID | None = None,
        connection: Connection | None = None,
    ) -> Held:
        """Hold a request by the name of its type, gated here or done by SQL functions.

        Repeating an open request returns the open operation, confirmed byte for byte (clause H1.7).

        Parameters:
            type: the type.
            principal: who asks.
            params: the parameter model, or what it validates.
            operation_id: an id of the caller's choice, a random one kept for this. A repetition after a crash then
                finds what it requested, also when that has ended: the same requester's, of the same type and
                parameters. Hidden parameters of one that has ended can no longer be compared.
            connection: the caller's own: the operation exists if and only if that commits.

        Errors:
            ParametersRefused, CanonicalError: the parameters.
            RequestRefused: `unknown-type`, `version-changed`, `provider-disarmed`, `redaction-leak`, `id-taken`…
            SealError: a key is missing here.
        """
        return self._do(verbs.request(self._core, type, principal, params, operation_id), connection)

    def resubmit(self, type: str, principal: Principal, params: Any) -> Held | RunReport:
        """Repeat a BY_REQUESTER request, and run it if it is approved (clause H7.2).

        The same as calling the gated method, but an end that is no success is told, not raised.
        Not in a transaction of the caller's: the claim must be committed before the run.

        Parameters:
            type: the type.
            principal: the requester, under the auth kind and token of the request.
            params: the same parameters.

        Returns:
            What became of the run, its `value` for this caller alone; or what is held.
        """
        return self._alone(verbs.resubmit(self._core, type, principal, params))

    # -- looking -----------------------------------------------------------------------------------

    def get(
        self,
        operation: UUID | Held | Operation,
        principal: Principal | str,
        *,
        connection: Connection | None = None,
    ) -> Operation | None:
        """One operation, as its requester or an eligible approver may see it.

        Parameters:
            operation: its id.
            principal: who looks.
            connection: the caller's own, if wanted.

        Returns:
            None if there is none, or none that this principal may see (clause H4.7).

        Errors:
            AccessDenied: this login may not act for the principal.
        """
        steps = verbs.get(verbs.operation_key(operation), verbs.principal_id(principal))
        return self._do(steps, connection)

    def list(
        self,
        principal: Principal | str,
        *,
        states: Iterable[str] | None = None,
        limit: int = 50,
        after: UUID | None = None,
        connection: Connection | None = None,
    ) -> list[Operation]:
        """Operations that a principal asked for or may decide, newest first.

        Parameters:
            principal: who looks.
            states: which; by default the open ones.
            limit: most to return, up to 1000.
            after: continue after this operation.
            connection: the caller's own, if wanted.

        Errors:
            AccessDenied: this login may not act for the principal.
        """
        return self._do(
            verbs.list_operations(verbs.principal_id(principal), states, limit, after), connection
        )

    def events(
        self,
        operation: UUID | Held | Operation,
        principal: Principal | str,
        *,
        connection: Connection | None = None,
    ) -> builtins.list[Event] | None:
        """The timeline of an operation, in order; None where `get` gives None.

        Parameters:
            operation: its id.
            principal: who looks.
            connection: the caller's own, if wanted.

        Errors:
            AccessDenied: this login may not act for the principal.
        """
        steps = verbs.events(verbs.operation_key(operation), verbs.principal_id(principal))
        return self._do(steps, connection)

    # -- deciding ----------------------------------------------------------------------------------

    def vote(
        self,
        shown: Operation | Echo,
        principal: Principal | str,
        decision: Decision,
        reason: str | None = None,
        *,
        connection: Connection | None = None,
    ) -> VoteOutcome:
        """Vote on exactly what was shown.

        Parameters:
            shown: the `Operation` that was on the approver's screen, or its `echo`.
            principal: the approver.
            decision: `approve` or `reject`.
            reason: why; a rejection needs one. The requester reads it.
            connection: the caller's own: the vote commits with it, and a run is left to the sweep.

        Returns:
            `recorded`, `approved`, `rejected`; `conflict` (`already-decided`, `expired`,
            `self-approval`, `hash-mismatch`, `version-mismatch`, `already-voted`); `refused`
            (`reason-required`); `not-found`; `denied`. After `approved`, `run` is there if the run
            was started here.

        Errors:
            SealError: the decision key is missing here.
        """
        alone = connection is None and self._joined.get() is None
        steps = verbs.vote(
            self._core,
            shown,
            verbs.principal_id(principal),
            decision,
            reason,
            run=alone and self._run_on_approval,
        )
        outcome = self._do(steps, connection)
        if alone and outcome.outcome in ("approved", "rejected"):
            self._due()
        return outcome

    def approve(
        self,
        shown: Operation | Echo,
        principal: Principal | str,
        reason: str | None = None,
        *,
        connection: Connection | None = None,
    ) -> VoteOutcome:
        """`vote` with `approve`."""
        return self.vote(shown, principal, "approve", reason, connection=connection)

    def reject(
        self,
        shown: Operation | Echo,
        principal: Principal | str,
        reason: str,
        *,
        connection: Connection | None = None,
    ) -> VoteOutcome:
        """`vote` with `reject`."""
        return self.vote(shown, principal, "reject", reason, connection=connection)

    def cancel(
        self,
        operation: UUID | Held | Operation,
        principal: Principal | str,
        note: str | None = None,
        *,
        as_operator: bool = False,
        connection: Connection | None = None,
    ) -> Outcome:
        """Cancel what is held or approved.

        With a spent register the id of an approved operation is spent in the same transaction
        (clause H8.5). If that transaction is the caller's and is rolled back, the operation stays
        approved and will be REFUSED `spent`.

        Parameters:
            operation: its id.
            principal: its requester, or an operator.
            note: why.
            as_operator: act by operator access.
            connection: the caller's own, if wanted.

        Returns:
            `cancelled`; `conflict` (`already-decided`, `expired`, `not-yours`); `not-found`; `denied`.
        """
        steps = verbs.cancel(
            self._core, verbs.operation_key(operation), verbs.principal_id(principal), note, as_operator
        )
        return self._do(steps, connection)

    # -- running -----------------------------------------------------------------------------------

    def run(self, operation: UUID | Held | Operation) -> RunReport:
        """Claim and run one approved ON_APPROVAL operation now, and wait for its end.

        Never in a transaction of the caller's: the claim is committed before the body begins.

        Parameters:
            operation: its id.

        Returns:
            `succeeded`, `failed`, `refused`; `conflict` (`not-approved`, `expired`, `other-mode`,
            `unserved`, `lease-lost`…); `denied`.
        """
        return self._alone(run.run_one(self._core, verbs.operation_key(operation)))

    def run_approved(self, limit: int = 10) -> builtins.list[RunReport]:
        """Claim and run approved operations that nobody has started, one after the other (clause H5.3).

        Parameters:
            limit: most to run.
        """
        done: list[RunReport] = []
        while len(done) < limit:
            report = self._alone(run.run_next(self._core))
            if report is None:
                break
            done.append(report)
        return done

    def progress(self, note: str) -> Outcome:
        """Mark how far the run got; for bodies of gated methods, in a transaction of its own (clause H6.7).

        Parameters:
            note: for people; what OUTCOME_UNKNOWN will show. Never a secret.

        Returns:
            `recorded`; `conflict` (`lease-lost`…); `ignored` outside a run.
        """
        return drive(self._source, verbs.progress(self._core, note))

    def sweep(self, limit: int = 100) -> builtins.list[Swept]:
        """End what time has ended: expired requests, approvals nobody ran, runs without a lease.

        Parameters:
            limit: most of each kind.

        Returns:
            What was ended: `expired`, `missed`, `outcome-unknown`; `failed` for a row that could
            not be ended now and is in the operator reports.
        """
        return drive(self._source, verbs.sweep(limit))

    def report_unserved(self) -> builtins.list[tuple[UUID, str]]:
        """Report approved operations that nothing here can run (clause H5.5).

        Returns:
            Those whose report was due now (the first time, then every 16th), with what is lacking.
        """
        return drive(self._source, verbs.unserved(self._core))

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
        """A worker over this client; `worker().run()` blocks until SIGTERM.

        It runs approved operations, drives the flows that are served, fires schedules, and sweeps. For looks and for
        flows it opens connections of its own, at most 12 besides the client's.

        Parameters:
            concurrency: most runs of operations at once.
            poll_every: pause between two looks for operations while there is work.
            idle_poll_every: the longest such pause, reached by doubling while there is none. For flows it is
                never more than a second.
            grace: how long a run or a step may take to end after SIGTERM. Then a run ends OUTCOME_UNKNOWN, and a
                step begins anew elsewhere.
            limits: how many executions, steps and threads at once.
            lease: how long a claim of an execution holds, 1 second to 1 hour: so long after a crash another worker
                takes it.
            hint: listen for notifications of clients with `hint`; None for as the client does.
        """
        return Worker(
            self, concurrency=concurrency, poll_every=poll_every, idle_poll_every=idle_poll_every, grace=grace,
            limits=limits, lease=lease, hint=hint,
        )  # fmt: skip

    # -- outbox and keys ---------------------------------------------------------------------------

    def register_consumer(
        self, consumer: str, *, from_start: bool = True, connection: Connection | None = None
    ) -> Outcome:
        """Register a consumer of the outbox (clause H3.7); purging waits for what it has not acknowledged.

        Parameters:
            consumer: its name.
            from_start: read from the first event there is, or only what happens from now on.
            connection: the caller's own, if wanted.

        Returns:
            `registered` or `unchanged`.
        """
        return self._do(verbs.register_consumer(consumer, from_start), connection)

    def drop_consumer(self, consumer: str, *, connection: Connection | None = None) -> Outcome:
        """Forget a consumer.

        Parameters:
            consumer: its name.
            connection: the caller's own, if wanted.

        Returns:
            `dropped` or `not-found`.
        """
        return self._do(verbs.drop_consumer(consumer), connection)

    def read_outbox(
        self, consumer: str, limit: int = 100, *, connection: Connection | None = None
    ) -> builtins.list[OutboxEvent]:
        """The next events after what the consumer acknowledged, in order and without a gap.

        Parameters:
            consumer: its name.
            limit: most to return.
            connection: the caller's own. Its transaction then holds up other readers (never
                writers) until it ends.

        Errors:
            UnknownConsumer: it is not registered.
        """
        return self._do(verbs.read_outbox(consumer, limit), connection)

    def ack_outbox(self, consumer: str, position: int, *, connection: Connection | None = None) -> Outcome:
        """Acknowledge every event up to a position.

        Parameters:
            consumer: its name.
            position: the last event dealt with.
            connection: the caller's own: what the events led to and the acknowledgement commit together.

        Returns:
            `acknowledged`, or `refused` (`beyond-end`).

        Errors:
            UnknownConsumer: it is not registered.
        """
        return self._do(verbs.ack_outbox(consumer, position), connection)

    def rewrap(self, batch_size: int = 100) -> Iterator[RewrapProgress]:
        """Seal open rows anew under the active keys, batch by batch, while the system runs (clause H2.6).

        Stop and start again as you like: what is done is done. It does what the ring has keys for.

        Parameters:
            batch_size: rows of each kind at once.

        Yields:
            How far it got, after each batch.
        """
        work = Rewrap(self._core, batch_size)
        while (progress := drive(self._source, work.batch())) is not None:
            yield progress

    def key_uses(self, *, connection: Connection | None = None) -> builtins.list[KeyUse]:
        """Which keys open operations need; any other may be destroyed.

        Parameters:
            connection: the caller's own, if wanted.
        """
        return self._do(verbs.key_uses(), connection)

    # -- carrying out ------------------------------------------------------------------------------

    def _due(self) -> None:
        """Something was made due, and is committed."""
        if self._hinter is not None:
            self._hinter.hint()

    def _do(self, steps: Steps[T], connection: Connection | None = None) -> T:
        return drive(connection or self._joined.get() or self._source, steps)

    def _alone(self, steps: Steps[T]) -> T:
        """For runs: in no transaction of the caller's, whose locks the end of the run would wait for."""
        token = self._joined.set(None)
        try:
            return drive(self._source, steps)
        finally:
            self._joined.reset(token)

    async def _perform(self, steps: Steps[T]) -> T:
        """For the worker, which is written once: the same, beside its loop."""
        return await in_thread(self._alone, steps)
