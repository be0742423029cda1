"""What a flow asks for that happens outside its log, each with the event that tells its result."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar
from uuid import UUID

from underseal.errors import UndersealError
from underseal.flow import items
from underseal.flow.batches import AWAY
from underseal.flow.operation import ChildCall, HoldCall, Operation, StepCall
from underseal.flow.step import StepInfo, attempt
from underseal.flow.values import NotRecordable, as_recorded, error_of, text_of

if TYPE_CHECKING:
    from underseal.flow.drive import Drive

log = logging.getLogger("underseal.flow")

T = TypeVar("T")

_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 5.0


async def carry_out(drive: Drive, op: Operation) -> None:
    """Do what an operation asks for. What falls where nothing should is left to whoever claims it later."""
    try:
        await EFFECTS[op.kind](drive, op)
    except Exception as error:  # noqa: BLE001 -- one execution's fault must not stop the others
        log.error(
            "execution %s: %s %s could not be carried out (%s), and is left for a while",
            drive.execution_id, op.kind, op.name, type(error).__name__,
            extra={"execution_id": drive.execution_id, "outcome": "put-off"},
        )  # fmt: skip
        if drive.state == "driving":
            drive.runtime.put_off(drive)


async def run_step(drive: Drive, op: Operation) -> None:
    """One try of a step."""
    assert isinstance(op.call, StepCall)
    async with drive.runtime.slots:
        if not await drive.runtime.may_act(drive):
            return
        info = StepInfo(drive.execution_id, op.name, op.number, op.attempts + 1)
        try:
            result = await attempt(op.call, info, drive.runtime.threads)
            text = text_of(result, f"the result of step {op.name}")
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            drive.step_failed(op, error)
            return
        except KeyboardInterrupt:
            raise  # whoever runs this process wants it to end
        except BaseException as error:  # noqa: BLE001 -- whatever a step raises is recorded
            drive.step_failed(op, error)
            return
    drive.effect_ended(
        op,
        "STEP_COMPLETED",
        {"op": op.number, "name": op.name, "output": as_recorded(result, text)},
        items.step_text(op.number, op.name, text),
    )


async def tell_time(drive: Drive, op: Operation) -> None:
    """The database's clock."""
    instant = await through_outage(drive, drive.runtime.gateway.now)
    if instant is not None:
        # a session has a zone of its own, and another worker's has another
        value = instant.astimezone(UTC).isoformat()
        drive.effect_ended(op, "VALUE_RECORDED", {"op": op.number, "kind": "now", "value": value})


async def start_child(drive: Drive, op: Operation) -> None:
    """Start a child; its id follows from the operation, so a repetition after a crash finds it."""
    call = op.call
    assert isinstance(call, ChildCall)
    try:
        value = text_of(call.value, "the input of a child")
    except NotRecordable as flaw:
        _refuse(drive, op, error_of(flaw))
        return
    item = items.start_text(call.execution_id, call.flow, call.version, drive.replay.owner, value, None, "")
    row = await through_outage(
        drive, lambda: drive.runtime.start_child(item, drive.execution_id), claimed=True
    )
    if row is None:
        return
    if row["outcome"] in ("started", "exists"):
        told = {"op": op.number, "name": op.name, "flow": call.flow, "execution_id": call.execution_id}
        drive.effect_ended(op, "CHILD_STARTED", told)
        drive.runtime.look()
    else:
        _refuse(
            drive,
            op,
            {"type": "ChildRefused", "message": f"{row['reason'] or row['outcome']}: {row['message']}"},
        )


async def request_hold(drive: Drive, op: Operation) -> None:
    """Request an operation under the id that was recorded, and have its end sent here."""
    call = op.call
    assert isinstance(call, HoldCall)
    assert op.intent is not None
    intent = UUID(op.intent)
    try:
        operation_id = await through_outage(
            drive,
            lambda: drive.runtime.holds.request(call.type, drive.replay.owner, call.params, intent),
            claimed=True,
        )
        if operation_id is None:
            return
        row = await through_outage(
            drive,
            lambda: drive.runtime.gateway.await_operation(operation_id, drive.execution_id, drive.fence),
        )
    except (UndersealError, TypeError, ValueError) as error:
        _refuse(drive, op, error_of(error))
        return
    if row is None:
        return
    if row["outcome"] in ("awaited", "told", "unchanged"):
        told = {"op": op.number, "type": op.name, "operation_id": str(operation_id)}
        drive.effect_ended(op, "HOLD_OPENED", told)
    elif row["outcome"] == "conflict":
        drive.runtime.lost(drive, row["reason"])
    else:
        _refuse(
            drive,
            op,
            {"type": "HoldRefused", "message": f"{row['reason'] or row['outcome']}: {row['message']}"},
        )


async def cancel_begun(drive: Drive, begun: list[dict[str, str]]) -> None:
    """Cancel what a cancelled flow had begun: its children, and operations that are held for it."""
    runtime = drive.runtime
    owner = drive.replay.owner
    for one in begun:
        for kind, which in one.items():
            try:
                if kind == "child":
                    await through_outage(drive, partial(runtime.gateway.cancel, which, owner))
                else:
                    await through_outage(drive, partial(runtime.holds.cancel, UUID(which), owner))
            except Exception as error:  # noqa: BLE001 -- what cannot be cancelled ends by itself
                log.warning(
                    "execution %s is cancelled; its %s could not be (%s)",
                    drive.execution_id, kind, type(error).__name__,
                )  # fmt: skip
    drive.effect_dropped(0)


async def through_outage(drive: Drive, act: Callable[[], Awaitable[T]], *, claimed: bool = False) -> T | None:
    """Do something with the database, again and again while it is away; None once the execution is not driven here.

    Parameters:
        drive: for whom.
        act: what is done; it bears repetition.
        claimed: whether it may be done only while the claim holds, each time.
    """
    pause = _FIRST_PAUSE
    while drive.state == "driving" and (not claimed or await drive.runtime.may_act(drive)):
        try:
            return await act()
        except AWAY:
            await asyncio.sleep(pause)
            pause = min(_LONGEST_PAUSE, pause * 2)
    return None


def _refuse(drive: Drive, op: Operation, error: dict[str, Any]) -> None:
    drive.effect_ended(
        op, "CALL_REFUSED", {"op": op.number, "kind": op.kind, "name": op.name, "error": error}
    )


EFFECTS: Final[Mapping[str, Callable[[Drive, Operation], Any]]] = {
    "step": run_step,
    "now": tell_time,
    "child": start_child,
    "hold": request_hold,
}
"""By kind of operation."""
