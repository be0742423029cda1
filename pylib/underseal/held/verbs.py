"""What a client can do, as steps: the two facades only differ in how they carry these out."""

# `type` is what the column is called, in SQL and here.
# ruff: noqa: A002

from __future__ import annotations

import builtins
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
from pydantic import BaseModel

from underseal.errors import AccessDenied, RequestRefused, UnknownConsumer
from underseal.foundation.steps import Row, Steps, atomic, call
from underseal.held import kernel
from underseal.held.core import Core
from underseal.held.gate import hold_or_run
from underseal.held.model import (
    Awaited,
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
    RunReport,
    Swept,
    VoteOutcome,
)
from underseal.held.replay import running
from underseal.held.request import request_steps
from underseal.held.run import run_one
from underseal.held.schemas import bare
from underseal.held.votes import vote_steps

log = logging.getLogger("underseal.held")

LONGEST = timedelta(days=2 * 365)
"""No operation lives longer: a policy gives at most 365 days to be approved and as many to run."""


def principal_id(principal: Principal | str) -> str:
    """The id of a principal, or the id itself.

    Errors:
        TypeError: neither.
    """
    found = principal if isinstance(principal, str) else getattr(principal, "id", None)
    if not isinstance(found, str):
        raise TypeError(f"expected a Principal or its id as a text, found {type(principal).__name__}")
    return found


def operation_key(operation: Operation | Echo | Held | UUID) -> UUID:
    """The id of an operation, or the id itself."""
    return operation if isinstance(operation, UUID) else operation.operation_id


def request(
    core: Core, type: str, principal: Principal, params: Any, operation_id: UUID | None
) -> Steps[Held]:
    """Hold a request by the name of its type."""
    kind = yield from core.kind_of(type)
    return (yield from request_steps(core, kind, principal, params, operation_id))


def await_operation(operation_id: UUID, execution_id: str, fence: int) -> Steps[Awaited]:
    """Have the end of an operation told to an execution."""
    row = yield from kernel.await_operation(operation_id, execution_id, fence)
    return Awaited(row["outcome"], row["reason"], row["message"], row["state"])


def resubmit(core: Core, type: str, principal: Principal, params: Any) -> Steps[Held | RunReport]:
    """Ask again; run what is approved for the requester to run."""
    kind = core.gated(type)
    if kind is None or kind.mode != "BY_REQUESTER":
        raise RequestRefused("other-mode", f"expected a BY_REQUESTER type that is gated here, found {type}")
    return (yield from hold_or_run(core, kind, principal, params, joined=False))


def get(operation_id: UUID, principal: str) -> Steps[Operation | None]:
    """Read one operation."""
    row = yield from kernel.get_operation(operation_id, principal)
    if not _found(row):
        return None
    return Operation.from_row({**row, "operation_id": operation_id})


def list_operations(
    principal: str, states: Iterable[str] | None, limit: int, after: UUID | None
) -> Steps[list[Operation]]:
    """Read a page of operations."""
    wanted = ("HELD", "APPROVED", "EXECUTING") if states is None else tuple(states)
    rows = yield from kernel.list_operations(principal, wanted, limit, after)
    return [Operation.from_row(row) for row in rows if _found(row)]


def events(operation_id: UUID, principal: str) -> Steps[list[Event] | None]:
    """Read a timeline."""
    rows = yield from kernel.list_events(operation_id, principal)
    if not all(_found(row) for row in rows):
        return None
    return [
        Event(
            row["seq"], row["type"], row["actor"], row["from_state"], row["to_state"], row["cause"], row["detail"],
            row["recorded_at"],
        )
        for row in rows
    ]  # fmt: skip


def vote(
    core: Core, shown: Operation | Echo, approver: str, decision: Decision, reason: str | None, *, run: bool
) -> Steps[VoteOutcome]:
    """Vote, and start the run at once where this process can (clause H5.2)."""
    echo = shown.echo if isinstance(shown, Operation) else shown
    outcome = yield from vote_steps(core, echo, approver, decision, reason)
    if outcome.outcome != "approved" or not run or core.rebuild is None:
        return outcome
    try:
        report = yield from run_one(core, echo.operation_id)
    except psycopg.errors.InsufficientPrivilege:
        # This login votes and does not run: a worker's sweep will.
        return outcome
    except Exception as error:  # noqa: BLE001 -- the vote is cast, and its outcome must be told
        log.warning(
            "the run of operation %s was not carried out here: %s",
            echo.operation_id,
            error.__class__.__name__,
        )
        return outcome
    if report.state is None:
        return outcome
    return VoteOutcome(
        outcome.outcome, outcome.reason, outcome.message, outcome.state, outcome.votes, outcome.votes_required,
        outcome.cast_at, report,
    )  # fmt: skip


def cancel(
    core: Core, operation_id: UUID, principal: str, note: str | None, as_operator: bool
) -> Steps[Outcome]:
    """Cancel; what was approved is spent in the cancelling transaction (clause H8.5)."""

    def block() -> Steps[Row]:
        row = yield from kernel.cancel_operation(operation_id, principal, note, as_operator)
        if row["outcome"] == "cancelled" and row["was_approved"] and core.spent is not None:
            # How long the seal says it could still run, a requester's process need not know: the longest there is.
            yield from call(core.spent.spend, operation_id, LONGEST + timedelta(days=1))
        return row

    row = yield from (block() if core.spent is None else atomic(block))
    return Outcome(row["outcome"], row["reason"], row["message"])


def register(core: Core) -> Steps[list[Registration]]:
    """Register every gated type."""
    done = []
    for kind in core.kinds.values():
        row = yield from kernel.register_operation_type(
            kind.type,
            kind.version,
            kind.mode,
            json.dumps(kind.schema),
            kind.provider.policy.as_json(),
            kind.salted,
        )
        done.append(Registration(row["outcome"], row["reason"], row["message"], kind.type, kind.version))
    return done


def register_sql(
    type: str, version: int, parameters: Mapping[str, Any] | builtins.type[BaseModel], policy: Policy,
    functions: Sequence[str], safe: Sequence[str],
) -> Steps[Registration]:  # fmt: skip
    """Register a type of SQL functions."""
    schema = (
        parameters
        if isinstance(parameters, Mapping)
        else bare(parameters.model_json_schema(mode="validation"))
    )
    row = yield from kernel.register_sql_operation(
        type, version, json.dumps(schema), policy.as_json(), functions, safe
    )
    return Registration(row["outcome"], row["reason"], row["message"], type, version)


def types() -> Steps[list[OperationType]]:
    """Read the registered types."""
    rows = yield from kernel.list_operation_types()
    return [OperationType.from_row(row) for row in rows]


def set_armed(type: str, version: int, armed: bool, principal: str | None) -> Steps[Outcome]:
    """Switch a type."""
    row = yield from kernel.set_armed(type, version, armed, principal)
    return Outcome(row["outcome"], row["reason"], row["message"])


def sweep(limit: int) -> Steps[list[Swept]]:
    """End what time has ended."""
    rows = yield from kernel.sweep_operations(limit)
    return [Swept(row["outcome"], row["operation_id"]) for row in rows if _found(row)]


def progress(core: Core, note: str) -> Steps[Outcome]:
    """Mark how far the run that is executing got."""
    now = running.get()
    if now is None:
        return Outcome(
            "ignored", "no-run", "This code is not run by Underseal now, so there is nothing to mark."
        )
    row = yield from kernel.record_progress(now.operation_id, now.run_token, note)
    handle = core.runs.get(now.run_id)
    if row["outcome"] == "recorded" and handle is not None:
        handle.note = note
    return Outcome(row["outcome"], row["reason"], row["message"])


def register_consumer(consumer: str, from_start: bool) -> Steps[Outcome]:
    """Register a consumer of the outbox."""
    row = yield from kernel.register_consumer(consumer, from_start)
    return Outcome(row["outcome"], row["reason"], row["message"])


def drop_consumer(consumer: str) -> Steps[Outcome]:
    """Forget a consumer."""
    row = yield from kernel.drop_consumer(consumer)
    return Outcome(row["outcome"], row["reason"], row["message"])


def read_outbox(consumer: str, limit: int) -> Steps[list[OutboxEvent]]:
    """Read what a consumer has not acknowledged."""
    rows = yield from kernel.read_outbox(consumer, limit)
    if rows and rows[0]["outcome"] != "event":
        raise UnknownConsumer(rows[0]["message"])
    return [
        OutboxEvent(
            row["position"], row["operation_id"], row["seq"], row["type"], row["operation_type"], row["actor"],
            row["from_state"], row["to_state"], row["cause"], row["detail"], row["recorded_at"],
        )
        for row in rows
    ]  # fmt: skip


def ack_outbox(consumer: str, position: int) -> Steps[Outcome]:
    """Acknowledge up to a position."""
    row = yield from kernel.ack_outbox(consumer, position)
    if row["outcome"] == "not-found":
        raise UnknownConsumer(row["message"])
    return Outcome(row["outcome"], row["reason"], row["message"])


def key_uses() -> Steps[list[KeyUse]]:
    """Read which keys open operations need."""
    rows = yield from kernel.list_key_ids()
    return [KeyUse(row["key_id"], row["purpose"], row["open_rows"]) for row in rows]


def unserved(core: Core) -> Steps[list[tuple[UUID, str]]]:
    """Report approved operations that nothing here can run; returns those whose report was due."""
    kinds = (yield from core.sql_kinds()) if core.serve_sql else {}
    served = [*core.served(), *((kind.type, kind.version) for kind in kinds.values())]
    rows = yield from kernel.report_unserved(core.worker, served, core.key_ids())
    return [(row["operation_id"], row["message"]) for row in rows if row["outcome"] == "reported"]


def _found(row: Row) -> bool:
    if row["outcome"] == "denied":
        raise AccessDenied(row["reason"], row["message"])
    return bool(row["outcome"] != "not-found")
