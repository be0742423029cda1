"""The replay ticket on the client's side: handed to the gated method through a context variable (clause H6.6)."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from underseal.foundation.steps import Steps, call
from underseal.held import kernel
from underseal.held.claim import Claim
from underseal.held.model import Principal


class RunLost(Exception):  # noqa: N818 -- an answer, not an error
    """The run is not ours any more: its lease passed, or it has ended."""

    def __init__(self, reason: str, message: str) -> None:
        """Keep the database's words."""
        super().__init__(message)
        self.reason = reason
        self.message = message


@dataclass(frozen=True, slots=True)
class Replay:
    """What lets one call of one gated method run its body."""

    operation_id: UUID
    type: str
    version: int
    principal: Principal
    canonical: str = field(repr=False)
    ticket: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class RunningNow:
    """The run that the code which is executing belongs to; lets it mark its progress."""

    operation_id: UUID
    run_id: UUID
    run_token: bytes = field(repr=False)


replaying: ContextVar[Replay | None] = ContextVar("underseal_replaying", default=None)
running: ContextVar[RunningNow | None] = ContextVar("underseal_running", default=None)


def replay_steps(
    claim: Claim, method: Callable[..., Any], principal: Principal, arguments: Any, canonical: str
) -> Steps[Any]:
    """Take the run's ticket and call the gated method with it in its context.

    Parameters:
        claim: the claimed row.
        method: the public, gated method.
        principal: the requester, rebuilt.
        arguments: the parameter model.
        canonical: the opened parameters, which the method's own must equal.

    Errors:
        RunLost: no ticket, since the run is not ours any more.
        Whatever the method raises.
    """
    row = yield from kernel.issue_ticket(claim.operation_id, claim.run_token)
    if row["outcome"] != "issued":
        raise RunLost(row["reason"], row["message"])
    replay = Replay(claim.operation_id, claim.type, claim.version, principal, canonical, row["ticket"])
    now = RunningNow(claim.operation_id, claim.run_id, claim.run_token)
    calling = _call_async if inspect.iscoroutinefunction(method) else _call
    return (yield from call(calling, replay, now, method, principal, arguments))


def _call(
    replay: Replay, now: RunningNow, method: Callable[..., Any], principal: Principal, arguments: Any
) -> Any:
    replay_token, running_token = replaying.set(replay), running.set(now)
    try:
        return method(principal, arguments)
    finally:
        running.reset(running_token)
        replaying.reset(replay_token)


async def _call_async(
    replay: Replay, now: RunningNow, method: Callable[..., Any], principal: Principal, arguments: Any
) -> Any:
    replay_token, running_token = replaying.set(replay), running.set(now)
    try:
        return await method(principal, arguments)
    finally:
        running.reset(running_token)
        replaying.reset(replay_token)
