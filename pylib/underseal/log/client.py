"""`Executions` and `ExecutionDriver`: what callers and drivers do with executions, over sync connections."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from datetime import timedelta
from typing import Any, Self, TypeVar
from uuid import UUID

import psycopg
from psycopg_pool import ConnectionPool

from underseal.flow import transfer
from underseal.foundation.sources import PoolSource
from underseal.foundation.steps import Steps, drive
from underseal.held.model import Awaited, Held, Operation, Outcome, Principal
from underseal.held.verbs import await_operation, operation_key, principal_id
from underseal.inbox import verbs as inbox
from underseal.inbox.model import Consumed, Delivered, Discarded, InboxMessage, NextMessage, Sent
from underseal.log import result as results
from underseal.log import verbs
from underseal.log.follow import AllFeed, ExecutionFeed, Following
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

Connection = psycopg.Connection[Any]
Who = Principal | str


def id_or_none(principal: Who | None) -> str | None:
    """The id of a principal; None for the system itself."""
    return None if principal is None else principal_id(principal)


class _Client:
    """The connections that a client works on."""

    _hint: Callable[[], None] | None = None

    def __init__(
        self, database: str | ConnectionPool[Any], *, prepare_threshold: int | None = 5, max_connections: int = 10
    ) -> None:  # fmt: skip
        """Make a client; nothing is connected before its first use.

        Parameters:
            database: a conninfo, or a pool of psycopg_pool, which stays the caller's to close.
            prepare_threshold: for a conninfo, runs of a statement before it is prepared; None
                behind pgbouncer in transaction mode. A pool brings its own setting.
            max_connections: for a conninfo, size of the pool made from it.
        """
        self._source = PoolSource(database, max_size=max_connections, prepare_threshold=prepare_threshold)
        self._joined: ContextVar[Connection | None] | None = None

    @classmethod
    def _over(
        cls,
        source: PoolSource,
        joined: ContextVar[Connection | None],
        hint: Callable[[], None] | None = None,
    ) -> Self:
        """One that works on the connections of another client, and tells it when something was made due."""
        made = cls.__new__(cls)
        made._source, made._joined, made._hint = source, joined, hint
        return made

    def __enter__(self) -> Self:
        """The client itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def close(self) -> None:
        """Close the connections opened here; a pool that was given stays open."""
        self._source.close()

    def _do(self, steps: Steps[T], connection: Connection | None = None) -> T:
        joined = None if self._joined is None else self._joined.get()
        return drive(connection or joined or self._source, steps)

    def _due(self, steps: Steps[T], connection: Connection | None = None) -> T:
        """For what makes an execution due; a transaction of the caller's commits when nobody here sees it."""
        answer = self._do(steps, connection)
        if self._hint is not None and connection is None and (self._joined is None or not self._joined.get()):
            self._hint()
        return answer

    def _read(self, steps: Steps[T]) -> T:
        """For what reads on and on: in no transaction of the caller's, which would never see anything new."""
        return drive(self._source, steps)


class Executions(_Client):
    """What callers do with executions; safe to share between threads. `Underseal.executions` is one.

    Every method names a principal (clause E12). What the principal may not do, and an execution that is not there,
    read the same: `ExecutionDeniedError`. Where a method takes `connection`, it may work on a connection of the
    caller's own, as in `Underseal`.
    """

    # -- starting ----------------------------------------------------------------------------------

    def start(
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
        """Start an execution; a worker that knows the flow drives it.

        Parameters:
            flow: name of the flow.
            principal: its owner.
            value: its input, JSON.
            execution_id: an id of the caller's choice, at most 200 characters without a tilde; one is drawn if not
                given. The same id given twice starts it once: the second call is told that it exists.
            flow_version: which version of the flow's code.
            after: how long it waits before it is due.
            connection: the caller's own: the execution exists if and only if that commits.

        Returns:
            Its id.

        Errors:
            ExecutionAlreadyExistsError: the id is taken (clause E3).
            ExecutionRefusedError: `malformed-id`, `malformed-flow`, `malformed-delay`, `too-large`, `envelope`;
                `not-found` for a child of a chain that this owner has not.
            AccessDenied: this login may not act for the principal.
        """
        steps = verbs.start(flow, principal_id(principal), value, execution_id, flow_version, after)
        return self._due(steps, connection)

    def start_many(
        self,
        flow: str,
        principal: Who,
        values: Iterable[Any],
        *,
        flow_version: int = 1,
        after: timedelta | None = None,
        connection: Connection | None = None,
    ) -> list[Start]:
        """Start many executions of a flow in one call and one commit, many times as fast as one by one.

        One that is refused keeps none of the others from being started: look at the outcome of each.

        Parameters:
            flow, principal, flow_version, after: as in `start`, for all of them.
            values: the input of each, JSON; at most 1,000.
            connection: the caller's own: they exist if and only if that commits.

        Returns:
            What became of each, in the order of `values`, with its id.

        Errors:
            ExecutionRefusedError: `too-many`; nothing was started.
            AccessDenied: this login may not act for the principal; nothing was started.
        """
        steps = verbs.start_many(flow, principal_id(principal), values, flow_version, after)
        return self._due(steps, connection)

    def fork(
        self,
        execution_id: str,
        through_seq: int,
        principal: Who,
        *,
        new_id: str | None = None,
        connection: Connection | None = None,
    ) -> str:
        """Start another execution from a copy of the first events of one.

        Parameters:
            execution_id: whose log is copied.
            through_seq: number of the last event that is copied.
            principal: who asks, and the new one's owner.
            new_id: an id of the caller's choice.
            connection: the caller's own, if wanted.

        Returns:
            The new one's id.

        Errors:
            ExecutionAlreadyExistsError: the id is taken.
            ExecutionRefusedError: the log was compacted below there, or the prefix ends with an end.
            ExecutionDeniedError: not this principal.
        """
        return self._due(verbs.fork(execution_id, through_seq, principal_id(principal), new_id), connection)

    def export_state(
        self,
        execution_id: str,
        principal: Who,
        *,
        capability: Mapping[str, Any] | None = None,
        connection: Connection | None = None,
    ) -> dict[str, Any]:
        """What an execution of a flow has come to, as a document of JSON: its input and its recorded results.

        `restore_from_state` goes on from it, here or in another database. It holds payloads: keep it as you keep those.

        Parameters:
            execution_id: which; also one that has ended.
            principal: who asks.
            capability: what this node can open.
            connection: the caller's own, if wanted.

        Returns:
            The document; `not_carried` lists children and held operations that had not told their end.

        Errors:
            ExecutionDeniedError: not this principal, or none of this id.
            ExecutionRefusedError: `compacted`: the log is not whole, and its snapshot is not of this release.

        Source: clauses E6, E9.
        """
        return self._do(transfer.export(execution_id, principal_id(principal), capability), connection)

    def restore_from_state(
        self,
        state: Mapping[str, Any],
        principal: Who,
        *,
        execution_id: str | None = None,
        connection: Connection | None = None,
    ) -> str:
        """Start an execution that goes on from a state as its own.

        Waits begin anew, and messages that waited are not there. What the state's execution had begun and had not told
        its end stays with that one: here its waits end at once, with `ChildFailed` or `HoldEnded`.

        Whoever calls this says what the flow's steps returned. So it takes a login that may name whom it acts for, and
        a service should not hand it to its users.

        Parameters:
            state: what `export_state` gave.
            principal: the new execution's owner.
            execution_id: an id of the caller's choice, as in `start`.
            connection: the caller's own, if wanted.

        Returns:
            The new execution's id.

        Errors:
            ExecutionAlreadyExistsError: the id is taken.
            ExecutionRefusedError: `malformed-state`, `bound-login`, `too-large` (over 1 MiB), and as in `start`.
            AccessDenied: this login may not act for the principal.

        Source: clauses E6, E12, E13.
        """
        return self._due(transfer.restore(state, principal_id(principal), execution_id), connection)

    # -- looking -----------------------------------------------------------------------------------

    def get(
        self, execution_id: str, principal: Who, *, connection: Connection | None = None
    ) -> ExecutionInfo:
        """One execution.

        Parameters:
            execution_id: which.
            principal: who looks.
            connection: the caller's own, if wanted.

        Errors:
            ExecutionDeniedError: not this principal, or none of this id.
        """
        return self._do(verbs.get(execution_id, principal_id(principal)), connection)

    def list(
        self,
        principal: Who,
        *,
        statuses: Iterable[str] | None = None,
        flow: str | None = None,
        limit: int = 50,
        after: ExecutionInfo | str | None = None,
        connection: Connection | None = None,
    ) -> list[ExecutionInfo]:
        """A page of the executions that a principal may read, newest first.

        Parameters:
            principal: who looks.
            statuses: only these.
            flow: only of this flow.
            limit: most to return.
            after: go on after this one; pages stay as they are while executions begin and end.
            connection: the caller's own, if wanted.

        Errors:
            AccessDenied: this login may not act for the principal.
        """
        steps = verbs.list_executions(principal_id(principal), statuses, flow, limit, after)
        return self._do(steps, connection)

    def events(
        self,
        execution_id: str,
        principal: Who,
        *,
        after_seq: int = -1,
        limit: int = 1000,
        capability: Mapping[str, Any] | None = None,
        connection: Connection | None = None,
    ) -> builtins.list[LogEvent]:
        """Events of an execution's log, in order.

        Parameters:
            execution_id: which.
            principal: who looks.
            after_seq: only events after this number.
            limit: most to return.
            capability: what this node can open; a log with a sealed event it cannot open is denied.
            connection: the caller's own, if wanted.

        Errors:
            ExecutionDeniedError: not this principal, or none of this id.
        """
        steps = verbs.events(execution_id, principal_id(principal), after_seq, limit, capability)
        return self._do(steps, connection)

    def inbox(
        self,
        execution_id: str,
        principal: Who,
        *,
        after_seq: int = 0,
        limit: int = 1000,
        capability: Mapping[str, Any] | None = None,
        connection: Connection | None = None,
    ) -> builtins.list[InboxMessage]:
        """What waits in an execution's inbox, without what it says.

        Parameters:
            execution_id: whose.
            principal: who looks.
            after_seq: only messages after this number.
            limit: most to return.
            capability: what this node can open.
            connection: the caller's own, if wanted.

        Errors:
            ExecutionDeniedError: not this principal, or none of this id.
        """
        steps = inbox.list_inbox(execution_id, principal_id(principal), capability, after_seq, limit)
        return self._do(steps, connection)

    def follow(
        self,
        execution_id: str,
        principal: Who,
        *,
        after_seq: int = -1,
        until_ended: bool = True,
        capability: Mapping[str, Any] | None = None,
        idle_poll_every: timedelta = timedelta(seconds=1),
    ) -> Following:
        """Follow an execution's log as it grows, in order and without gaps (clause E11).

        `for event in executions.follow(…)`. To go on another time, give the last event's `seq` as `after_seq`.

        Parameters:
            execution_id: which.
            principal: who follows; judged anew at every look.
            after_seq: begin after this event.
            until_ended: end when the execution has; otherwise go on, for outcomes recorded later.
            capability: what this node can open.
            idle_poll_every: what the wait between two looks grows to while nothing happens.

        Errors:
            ExecutionDeniedError: not this principal (any more), or none of this id; raised by the iteration.
        """
        feed = ExecutionFeed(execution_id, principal_id(principal), after_seq, until_ended, capability)
        return Following(feed, self._read, idle_poll_every.total_seconds())

    def result(self, execution_id: str, principal: Who, *, timeout: timedelta | None = None) -> Any:
        """Wait for the output of an execution, or of the one that goes on in its place.

        Parameters:
            execution_id: which.
            principal: who waits; judged anew at every look.
            timeout: how long at most; None for as long as it takes, zero for one look.

        Errors:
            ExecutionFailed: it failed or was cancelled: `status`, and `error` as it was recorded.
            TimeoutError: it has not ended yet.
            ExecutionDeniedError: not this principal, or none of this id.
        """
        return self._read(results.result(execution_id, principal_id(principal), timeout))

    # -- telling it something ----------------------------------------------------------------------

    def send(
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
        """Send a message to an execution; one that was continued passes it on to its successor.

        Parameters:
            execution_id: to whom.
            topic: a name without `$` at its beginning; first in, first out within one.
            payload: JSON.
            principal: the sender.
            message_id: an id of the sender's; sent twice, it is delivered once (clause I2).
            expires_in: how long it may wait.
            connection: the caller's own: it is sent if and only if that commits.

        Returns:
            `sent` or `duplicate`; `conflict` (`ended`).

        Errors:
            InboxFullError: the topic's backlog is full.
            InboxMessageRefusedError: `too-large`, `envelope`, `malformed-topic`, `malformed-id`, `malformed-expiry`.
            ExecutionDeniedError: not this principal, or none of this id.
        """
        steps = inbox.send(execution_id, topic, payload, principal_id(principal), message_id, expires_in)
        return self._due(steps, connection)

    def resume(
        self,
        execution_id: str,
        gate: str,
        answer: Any,
        principal: Who,
        *,
        connection: Connection | None = None,
    ) -> Sent:
        """Answer a gate, once, also before the execution waits for it.

        Parameters:
            execution_id: whose gate.
            gate: its name.
            answer: JSON.
            principal: who answers.
            connection: the caller's own, if wanted.

        Returns:
            `resumed`; `conflict` (`already-answered`, `ended`).

        Errors:
            InboxMessageRefusedError: `too-large`, `envelope`, a malformed name.
            ExecutionDeniedError: not this principal, or none of this id.
        """
        return self._due(inbox.resume(execution_id, gate, answer, principal_id(principal)), connection)

    def cancel(
        self,
        execution_id: str,
        principal: Who,
        reason: str | None = None,
        *,
        force: bool = False,
        connection: Connection | None = None,
    ) -> CancelOutcome:
        """Ask that an execution be cancelled; its driver cleans up and ends it.

        Parameters:
            execution_id: which.
            principal: who asks.
            reason: why.
            force: end it now, without cleaning up; whoever drives it has lost its fence.
            connection: the caller's own, if wanted.

        Returns:
            `requested`, `cancelled` (at once: it had not begun, or was forced), `unchanged`, `conflict` (`ended`).

        Errors:
            ExecutionRefusedError: `malformed-reason`: more than 1000 characters.
            ExecutionDeniedError: not this principal, or none of this id.
        """
        return self._due(verbs.cancel(execution_id, principal_id(principal), reason, force), connection)

    def migrate(
        self, execution_id: str, flow_version: int, principal: Who, *, connection: Connection | None = None
    ) -> Outcome:
        """Move an open execution to another version of its flow, a later or an earlier one (clause E6).

        Whoever drives it can write nothing more, and it is due at once for workers that serve the new version. What
        it waits for keeps its instants, if the new version waits for it again.

        Parameters:
            execution_id: which.
            flow_version: from 1.
            principal: the owner, or an operator.
            connection: the caller's own, if wanted.

        Returns:
            `migrated`; `unchanged` (it is of that version already); `conflict` (`ended`).

        Errors:
            ExecutionDeniedError: the principal may not, or there is none.
            ExecutionRefusedError: `malformed-version`.
        """
        return self._due(verbs.migrate(execution_id, flow_version, principal_id(principal)), connection)

    def record_outcome(
        self, execution_id: str, outcome: Any, principal: Who, *, connection: Connection | None = None
    ) -> Recorded:
        """Write down what became of it in the world, also after its end.

        Parameters:
            execution_id: which.
            outcome: JSON.
            principal: who says so.
            connection: the caller's own, if wanted.

        Errors:
            ExecutionRefusedError: `too-large`, `envelope`.
            ExecutionDeniedError: not this principal, or none of this id.
        """
        return self._do(verbs.record_outcome(execution_id, outcome, principal_id(principal)), connection)

    # -- operating ---------------------------------------------------------------------------------

    def discard(
        self,
        execution_id: str,
        topic: str,
        principal: Who,
        reason: str | None = None,
        *,
        inbox_seq: int | None = None,
        connection: Connection | None = None,
    ) -> Discarded:
        """Discard what waits on a topic.

        Parameters:
            execution_id: whose inbox.
            topic: which topic.
            principal: the operator.
            reason: why.
            inbox_seq: only this message, which must be the topic's first; otherwise all of them.
            connection: the caller's own, if wanted.

        Returns:
            `discarded` and how many; `unchanged`; `conflict` (`moved`).

        Errors:
            ExecutionRefusedError: `malformed-note`: a reason of more than 256 characters.
            ExecutionDeniedError: not this principal, or none of this id.
        """
        steps = inbox.discard(execution_id, topic, principal_id(principal), reason, inbox_seq)
        return self._do(steps, connection)

    def compact(
        self,
        execution_id: str,
        before_seq: int,
        principal: Who | None,
        *,
        connection: Connection | None = None,
    ) -> Compacted:
        """Drop the events below a number, but the first one; a snapshot must cover them (clause E9).

        Parameters:
            execution_id: whose log.
            before_seq: the lowest number above 0 that stays.
            principal: the operator; None for a worker.
            connection: the caller's own, if wanted.

        Returns:
            `truncated`; `unchanged`; `refused` (`no-snapshot`, `beyond-head`).

        Errors:
            ExecutionDeniedError: not this principal, or none of this id.
        """
        return self._do(verbs.compact(execution_id, before_seq, id_or_none(principal)), connection)

    def delete_chain(self, chain_id: str, principal: Who, *, connection: Connection | None = None) -> Deleted:
        """Delete a chain, whose every member has ended: logs, inbox, snapshots, content.

        Parameters:
            chain_id: the id of its first execution.
            principal: the operator.
            connection: the caller's own, if wanted.

        Returns:
            `deleted` and how many executions went; `conflict` (`open`).

        Errors:
            ExecutionRefusedError: `malformed-id`: not the id of a chain.
            ExecutionDeniedError: not this principal, or none of this id.
        """
        return self._do(verbs.delete_chain(chain_id, principal_id(principal)), connection)

    def purge(
        self, ended_before: timedelta, limit: int = 100, *, connection: Connection | None = None
    ) -> builtins.list[Deleted]:
        """Delete chains whose executions have all ended some time ago, as `delete_chain` does.

        Parameters:
            ended_before: how long ago the last of them ended, or longer.
            limit: most chains to delete.
            connection: the caller's own, if wanted.

        Returns:
            `purged` for each.
        """
        return self._do(verbs.purge(ended_before, limit), connection)

    def sweep_denials(self, limit: int = 1000, *, connection: Connection | None = None) -> int:
        """Forget denials older than 30 days; how many. Call it again while it forgets as many as it may.

        Parameters:
            limit: most to forget.
            connection: the caller's own, if wanted.
        """
        return self._do(verbs.sweep_denials(limit), connection)

    def verify(
        self, execution_id: str, principal: Who | None = None, *, connection: Connection | None = None
    ) -> Verification:
        """Compare what the tables say of an execution with what its log says (clause E4).

        Parameters:
            execution_id: which.
            principal: the operator; None for a worker.
            connection: the caller's own, if wanted.

        Returns:
            `verified`, `different` with each difference, or `unverifiable`.

        Errors:
            ExecutionDeniedError: not this principal, or none of this id.
        """
        return self._do(verify_steps(execution_id, id_or_none(principal)), connection)

    # -- what is the schema owner's ----------------------------------------------------------------

    def set_access_policy(self, hook: str | None, *, connection: Connection | None = None) -> Outcome:
        """Let a function of the host decide who may do what with an execution (clauses E12, E15).

        Parameters:
            hook: `schema.function(text, text, text, text, text)` of op, principal, owner, execution id and flow,
                returns boolean; an error or NULL denies. None for the default: owners and operators.
            connection: one whose login owns the schema.

        Returns:
            `set` or `unset`.
        """
        return self._do(verbs.set_access_policy(hook), connection)

    def set_denial_hook(self, hook: str | None, *, connection: Connection | None = None) -> Outcome:
        """Let a function of the host hear of every denial of what would have changed something (clauses E14, E15).

        Parameters:
            hook: `schema.function(text, text, text, text)` of op, principal, execution id and reason; what it
                returns is not looked at, and an error of it changes nothing. None for none.
            connection: one whose login owns the schema.

        Returns:
            `set` or `unset`.
        """
        return self._do(verbs.set_denial_hook(hook), connection)

    def adopt_cursor(self, cursor: str, *, connection: Connection | None = None) -> str:
        """The same place in this log, for a cursor of `follow_all` that is refused as `foreign-cursor`.

        After a switch to a standby that had everything, or pg_upgrade. Where transactions were lost, or the log
        was restored from a dump, events would be missed: begin again instead.

        Parameters:
            cursor: the cursor.
            connection: one whose login owns the schema.

        Errors:
            ExecutionRefusedError: `malformed-cursor`.
        """
        return self._do(verbs.adopt_cursor(cursor), connection)

    def adopt_log(self, *, connection: Connection | None = None) -> int:
        """After a restore from a dump: make the log's events this cluster's own; how many (`not-adopted`).

        Parameters:
            connection: one whose login owns the schema.
        """
        return self._do(verbs.adopt_log(), connection)


class ExecutionDriver(_Client):
    """What those do who drive executions: a runtime, a worker, a test. `Underseal.driver` is one.

    Its login has the access `worker`. Every answer is a value, also a no, since each is part of how a driver goes
    on: after `stale-fence` it stops.
    """

    # -- writing -----------------------------------------------------------------------------------

    def append(
        self,
        execution_id: str,
        fence: int,
        events: Sequence[Mapping[str, Any]],
        *,
        connection: Connection | None = None,
    ) -> Appended:
        """Append events under the fence that was acquired last (clause E2).

        Parameters:
            execution_id: whose log.
            fence: from `acquire_fence`, or from the claim.
            events: `{"type", "data"}` each; `batch.event` makes them.
            connection: the caller's own, if wanted.

        Returns:
            `appended`; `not-found`; `conflict` (`stale-fence`, `ended`, `suspended`); `refused`.
        """
        return self._do(verbs.append(execution_id, fence, events), connection)

    def append_if_unchanged(
        self,
        execution_id: str,
        seen: Observed,
        events: Sequence[Mapping[str, Any]],
        *,
        connection: Connection | None = None,
    ) -> Appended:
        """Append only if head, fence and incarnation are as they were observed.

        Parameters:
            execution_id: whose log.
            seen: from `head`.
            events: as for `append`.
            connection: the caller's own, if wanted.

        Returns:
            as `append`; `conflict` also `moved` and `gone`.
        """
        return self._do(verbs.append_if_unchanged(execution_id, seen, events), connection)

    def append_batch(
        self, items: Sequence[Mapping[str, Any]], *, connection: Connection | None = None
    ) -> list[Appended]:
        """Write to the logs of many executions at once, each with an outcome of its own, in their order.

        Parameters:
            items: what the functions of `underseal.log.batch` make; one execution an item.
            connection: the caller's own, if wanted.
        """
        return self._do(verbs.append_batch(items), connection)

    def await_operation(
        self,
        operation: UUID | Held | Operation,
        execution_id: str,
        fence: int,
        *,
        connection: Connection | None = None,
    ) -> Awaited:
        """Have the end of a held operation told to an execution, before it parks on the topic `$hold/<operation id>`.

        The message `{"operation_id", "state", "reason", "result"}` comes in the transaction that ends the operation,
        whatever ends it, to the execution or to the one that goes on with it by then.

        Parameters:
            operation: which; its requester is the execution's owner, and it runs in the background.
            execution_id: who waits.
            fence: of its driver.
            connection: the caller's own, if wanted.

        Returns:
            `awaited`; `unchanged`; `told` (it has ended: the message is there); `not-found`; `conflict` (`stale-fence`,
            `ended`); `refused` (`foreign`, `by-requester`).
        """
        return self._do(await_operation(operation_key(operation), execution_id, fence), connection)

    # -- fences ------------------------------------------------------------------------------------

    def head(self, execution_id: str, *, connection: Connection | None = None) -> Observed:
        """Observe an execution.

        Parameters:
            execution_id: which.
            connection: the caller's own, if wanted.

        Returns:
            `found` or `not-found`.
        """
        return self._do(verbs.head(execution_id), connection)

    def acquire_fence(self, execution_id: str, *, connection: Connection | None = None) -> Observed:
        """Take the fence: every older holder's writes fail from now on.

        Parameters:
            execution_id: which.
            connection: the caller's own, if wanted.

        Returns:
            `acquired` or `not-found`.
        """
        return self._do(verbs.acquire_fence(execution_id), connection)

    def acquire_fence_if(
        self, execution_id: str, seen: Observed, *, connection: Connection | None = None
    ) -> Observed:
        """Take the fence only if head, fence and incarnation are as they were observed.

        Parameters:
            execution_id: which.
            seen: from `head`.
            connection: the caller's own, if wanted.

        Returns:
            `acquired`; `not-found`; `conflict` (`moved`, `gone`, `stale-fence`).
        """
        return self._do(verbs.acquire_fence_if(execution_id, seen), connection)

    def recover(
        self,
        execution_id: str,
        seen: Observed,
        worker: str,
        lease: timedelta,
        *,
        max_recoveries: int = 3,
        connection: Connection | None = None,
    ) -> Observed:
        """Take a running execution over from a driver that is gone (clause E8).

        Parameters:
            execution_id: which.
            seen: from `head`, as old as the evidence that its driver is gone.
            worker: who takes over.
            lease: for how long its wake is claimed.
            max_recoveries: how often this may happen without any progress.
            connection: the caller's own, if wanted.

        Returns:
            `recovered` with the new fence; `conflict` (`moved`, `gone`, `stale-fence`, `not-running`); `refused`
            (`exhausted`, which operators are told).
        """
        return self._do(verbs.recover(execution_id, seen, worker, lease, max_recoveries), connection)

    def report_divergence(
        self, execution_id: str, fence: int, cause: str, *, connection: Connection | None = None
    ) -> Outcome:
        """Tell operators that a flow's code has left an execution's log behind; park it besides (clause E5).

        Parameters:
            execution_id: which.
            fence: the fence in force.
            cause: what was expected and what was found, at most 1,000 characters and no payload.
            connection: the caller's own, if wanted.

        Returns:
            `reported`; `not-found`; `conflict` (`stale-fence`, `ended`); `refused` (`too-large`).
        """
        return self._do(verbs.report_divergence(execution_id, fence, cause), connection)

    # -- delivering --------------------------------------------------------------------------------

    def next_message(
        self,
        execution_id: str,
        fence: int,
        *,
        capability: Mapping[str, Any] | None = None,
        connection: Connection | None = None,
    ) -> NextMessage:
        """Look at what answers the first wait that can be answered; nothing is changed (clause G16).

        Parameters:
            execution_id: whose waits.
            fence: the fence in force.
            capability: what this node can open.
            connection: the caller's own, if wanted.
        """
        return self._do(inbox.next_message(execution_id, fence, capability), connection)

    def consume_message(
        self, execution_id: str, fence: int, found: NextMessage, *, connection: Connection | None = None
    ) -> Consumed:
        """Consume what `next_message` found, if it still is what comes next.

        Parameters:
            execution_id: whose waits.
            fence: the fence in force.
            found: from `next_message`.
            connection: the caller's own, if wanted.

        Returns:
            `consumed`; `conflict` (`stale-fence`, `stale`).
        """
        return self._do(inbox.consume(execution_id, fence, found), connection)

    def deliver(self, execution_id: str, fence: int, *, connection: Connection | None = None) -> Delivered:
        """Answer every wait that plain messages and due timers can answer, in park order.

        Parameters:
            execution_id: whose waits.
            fence: the fence in force.
            connection: the caller's own, if wanted.
        """
        return self._do(inbox.deliver(execution_id, fence), connection)

    def deliver_batch(
        self, items: Iterable[tuple[str, int]], *, connection: Connection | None = None
    ) -> list[Delivered]:
        """Deliver to many executions at once, each with an outcome of its own, in their order.

        Parameters:
            items: pairs of an execution and the fence in force, one an execution, at most 1,000.
            connection: the caller's own, if wanted.

        Errors:
            ExecutionRefusedError: `too-many`; nothing was delivered.
        """
        return self._do(inbox.deliver_batch(items), connection)

    def expire_inbox(self, limit: int = 100, *, connection: Connection | None = None) -> int:
        """Dispose of messages that have expired, of any execution; how many.

        Parameters:
            limit: most to dispose of.
            connection: the caller's own, if wanted.
        """
        return self._do(inbox.expire(limit), connection)

    # -- reading -----------------------------------------------------------------------------------

    def events(
        self,
        execution_id: str,
        *,
        after_seq: int = -1,
        limit: int = 1000,
        capability: Mapping[str, Any] | None = None,
        connection: Connection | None = None,
    ) -> list[LogEvent]:
        """Events of an execution's log, as the system itself reads them.

        Parameters:
            execution_id: which.
            after_seq: only events after this number.
            limit: most to return.
            capability: what this node can open.
            connection: the caller's own, if wanted.

        Errors:
            ExecutionDeniedError: none of this id, or one that does not open here.
        """
        return self._do(verbs.events(execution_id, None, after_seq, limit, capability), connection)

    def read_logs(
        self,
        logs: Iterable[tuple[str, int]],
        *,
        limit: int = 1000,
        capability: Mapping[str, Any] | None = None,
        connection: Connection | None = None,
    ) -> list[LogRead]:
        """Events of many executions' logs in one call, as the system itself reads them.

        Parameters:
            logs: pairs of an execution and the number after which to read, -1 for all.
            limit: most to return of each, up to 10,000.
            capability: what this node can open; a log that holds anything else is `denied`.
            connection: the caller's own, if wanted.

        Returns:
            one for each pair, in their order.
        """
        return self._do(verbs.read_logs(logs, limit, capability), connection)

    def read_all(
        self,
        cursor: str | None = None,
        *,
        limit: int = 1000,
        capability: Mapping[str, Any] | None = None,
        connection: Connection | None = None,
    ) -> tuple[list[LogEvent], str | None]:
        """Read on over all logs: the events that are new since a cursor, and the cursor to go on from.

        Parameters:
            cursor: from the call before; None for the beginning.
            limit: most to return.
            capability: what this node can open; an event that does not open comes as a stub.
            connection: the caller's own, if wanted.
        """
        return self._do(verbs.read_all(cursor, limit, capability), connection)

    def follow_all(
        self,
        cursor: str | None = None,
        *,
        capability: Mapping[str, Any] | None = None,
        idle_poll_every: timedelta = timedelta(seconds=1),
    ) -> Following:
        """Follow all logs as they grow, without gaps, in an order that no execution's own contradicts (clause E11).

        To go on another time, give the last event's `cursor`.

        Parameters:
            cursor: begin after it; None for the beginning.
            capability: what this node can open.
            idle_poll_every: what the wait between two looks grows to while nothing happens.
        """
        return Following(AllFeed(cursor, capability), self._read, idle_poll_every.total_seconds())

    # -- snapshots and content ---------------------------------------------------------------------

    def save_snapshot(
        self, execution_id: str, fence: int, seq: int, state: Any, *, connection: Connection | None = None
    ) -> Outcome:
        """Save a flow's state as of the head of its log (clause E9).

        Parameters:
            execution_id: whose.
            fence: the fence in force.
            seq: number of the last event it covers, which must be the head.
            state: JSON.
            connection: the caller's own, if wanted.

        Returns:
            `saved`; `not-found`; `conflict` (`stale-fence`, `moved`); `refused` (`too-large`, `not-sealed`).
        """
        return self._do(snapshots.save(execution_id, fence, seq, state), connection)

    def load_snapshot(
        self,
        execution_id: str,
        *,
        capability: Mapping[str, Any] | None = None,
        connection: Connection | None = None,
    ) -> Snapshot | None:
        """The newest snapshot, or None.

        Parameters:
            execution_id: whose.
            capability: what this node can open.
            connection: the caller's own, if wanted.

        Errors:
            ExecutionDeniedError: none of this id, or one that does not open here.
        """
        return self._do(snapshots.load(execution_id, None, capability), connection)

    def put_content(
        self, execution_id: str, body: Any, fence: int, *, connection: Connection | None = None
    ) -> Stored:
        """Store a large value once for the chain, under its hash (clause E10).

        Parameters:
            execution_id: whose chain.
            body: JSON.
            fence: the fence in force.
            connection: the caller's own, if wanted.
        """
        return self._do(snapshots.put_content(execution_id, body, fence), connection)

    def get_content(
        self,
        execution_id: str,
        digest: bytes,
        *,
        capability: Mapping[str, Any] | None = None,
        connection: Connection | None = None,
    ) -> Any:
        """What was stored under a hash; None where nothing is.

        Parameters:
            execution_id: whose chain.
            digest: from `put_content`.
            capability: what this node can open.
            connection: the caller's own, if wanted.

        Errors:
            ExecutionDeniedError: none of this id, or one that does not open here.
        """
        return self._do(snapshots.get_content(execution_id, digest, None, capability), connection)

    def sweep_content(
        self,
        limit: int = 100,
        grace: timedelta = timedelta(hours=1),
        *,
        connection: Connection | None = None,
    ) -> list[ContentSwept]:
        """Remove stored values that no event refers to.

        Parameters:
            limit: most chains to look at.
            grace: what is younger stays, since its event may be on its way.
            connection: the caller's own, if wanted.
        """
        return self._do(snapshots.sweep_content(limit, grace), connection)
