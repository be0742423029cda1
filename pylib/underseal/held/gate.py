"""What a gated method does when it is called (clauses H6.1, H6.6, H7.2).

Under a replay ticket its body runs. Called by somebody whose call needs no approval it just runs.
Otherwise it holds; and where the same BY_REQUESTER request is approved already, it runs and returns
the result. Every doubt (the database away, the type switched off, a ticket refused) is an error
that is raised before the body.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from underseal.errors import OutcomeUnknown, ReplayRefused, RequestRefused
from underseal.foundation.steps import Steps, call
from underseal.held import kernel
from underseal.held.core import Core
from underseal.held.kinds import PythonKind
from underseal.held.model import Held, Principal, RunReport
from underseal.held.replay import Replay, replaying
from underseal.held.request import request_steps
from underseal.held.run import resubmit_steps


def gated_call(
    core: Core, kind: PythonKind, body: Callable[..., Any], principal: Principal, params: Any, *, joined: bool
) -> Steps[Any]:
    """One call of a gated method.

    Parameters:
        core: the client's state.
        kind: the method's type.
        body: the method itself.
        principal, params: what it was called with.
        joined: whether the request joins a transaction of the caller's; then nothing is run in it.

    Errors:
        RequestRefused: it was neither held nor run.
        OutcomeUnknown: it ran, and its end could not be recorded.
        ReplayRefused: the replay does not fit the call.
        Whatever the body raises, where it ran.
    """
    replay = replaying.get()
    if replay is not None and (replay.type, replay.version) == (kind.type, kind.version):
        yield from _admit(kind, replay, principal, params)
        return (yield from call(body, principal, params))
    model = kind.arguments(kind.canonical(params))
    if not (yield from call(kind.provider.needs_approval, principal, model)):
        return (yield from call(body, principal, model))
    answer = yield from hold_or_run(core, kind, principal, params, joined=joined)
    if isinstance(answer, Held):
        return answer
    if answer.state == "SUCCEEDED":
        return answer.value
    if answer.state is None:
        raise OutcomeUnknown(answer.reason or answer.outcome, answer.message or _UNKNOWN)
    if answer.error is not None and answer.state == "FAILED":
        raise answer.error
    raise RequestRefused(answer.reason or answer.outcome, answer.message or "the run was refused")


_UNKNOWN = "The run is not this call's any more, and how far it got is not known."


def hold_or_run(
    core: Core, kind: PythonKind, principal: Principal, params: Any, *, joined: bool
) -> Steps[Held | RunReport]:
    """Hold a request; or, where it repeats an approved BY_REQUESTER one, run that.

    Parameters:
        as in `gated_call`.

    Returns:
        What is held, or what became of the run. Where the run is not for this caller to have
        (another token, a race lost), what is held.
    """
    held = yield from request_steps(core, kind, principal, params)
    if not (held.duplicate and held.state == "APPROVED" and kind.mode == "BY_REQUESTER") or joined:
        return held
    report = yield from resubmit_steps(core, principal, held.operation_id)
    return held if report is None else report


def _admit(kind: PythonKind, replay: Replay, principal: Principal, params: Any) -> Steps[None]:
    """Compare the call with what was opened, use the ticket up, and leave the replay before the body begins."""
    replaying.set(None)
    if kind.canonical_of(params) != replay.canonical:
        raise ReplayRefused(
            "arguments-differ",
            f"the arguments of the gated {kind.type} are not the parameters that were approved",
        )
    if principal != replay.principal:
        raise ReplayRefused(
            "principal-differs", f"the gated {kind.type} is called for another principal than asked"
        )
    row = yield from kernel.consume_ticket(replay.operation_id, replay.ticket, principal.id)
    if row["outcome"] != "consumed":
        raise ReplayRefused("ticket-refused", row["message"])
