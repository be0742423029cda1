"""The items of `append_batch`: one write to one execution's log each. They are plain dicts, made often."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeAlias
from uuid import UUID

from underseal.foundation.calls import interval_text

Item: TypeAlias = dict[str, Any]
Events: TypeAlias = Sequence[Mapping[str, Any]]


def event(type: str, **data: Any) -> dict[str, Any]:  # noqa: A002 -- what the column is called
    """An event: `event("STEP_COMPLETED", step="quote", output=12)`."""
    return {"type": type, "data": data}


def topic(name: str) -> dict[str, Any]:
    """An arm that a message of this topic answers."""
    return {"topic": name}


def gate(name: str) -> dict[str, Any]:
    """An arm that an answer to this gate answers."""
    return {"gate": name}


def sleep(duration: timedelta) -> dict[str, Any]:
    """An arm that time answers, counted from the park by the database's clock."""
    return {"for": duration.total_seconds()}


def wait(wait_id: str, *arms: Mapping[str, Any]) -> dict[str, Any]:
    """A wait that the first of its arms to be answered ends; a tie goes to the first named."""
    return {"wait": wait_id, "arms": list(arms)}


def start_item(
    execution_id: str,
    flow: str,
    principal: str,
    value: Any = None,
    *,
    flow_version: int = 1,
    after: timedelta | None = None,
    worker: str | None = None,
    lease: timedelta | None = None,
    events: Events = (),
) -> Item:
    """Start an execution.

    Parameters:
        execution_id: its id.
        flow, flow_version: what drives it.
        principal: its owner.
        value: the input.
        after: how long it waits before it is due.
        worker, lease: a worker that will drive it itself has its wake claimed from the first instant, so long.
        events: what is recorded at once.
    """
    item: Item = {
        "verb": "start", "execution_id": execution_id, "flow": flow, "flow_version": flow_version,
        "principal": principal, "input": value,
    }  # fmt: skip
    if after is not None:
        item["after"] = interval_text(after)
    if worker is not None and lease is not None:
        item["worker"] = worker
        item["lease"] = interval_text(lease)
    if events:
        item["events"] = events
    return item


def append_item(execution_id: str, fence: int, events: Events, **observed: Any) -> Item:
    """Append events; `observed` may hold `head` and `incarnation`, as may all that follow."""
    return _item("append", execution_id, fence, events, observed)


def park_item(
    execution_id: str,
    fence: int,
    waits: Sequence[Mapping[str, Any]],
    events: Events = (),
    *,
    cancel_told: bool = False,
    **observed: Any,
) -> Item:
    """Append events and park on waits, which are answered at once where something is there already.

    Where a cancellation was asked for it is a conflict, unless `cancel_told` says that the flow has been told and only
    parks while it cleans up.
    """
    item = {**_item("park", execution_id, fence, events, observed), "waits": waits}
    return {**item, "cancel_told": True} if cancel_told else item


def complete_item(
    execution_id: str, fence: int, output: Any = None, events: Events = (), **observed: Any
) -> Item:
    """Append events and end it."""
    return {**_item("complete", execution_id, fence, events, observed), "output": output}


def fail_item(execution_id: str, fence: int, error: Any = None, events: Events = (), **observed: Any) -> Item:
    """Append events and end it with an error."""
    return {**_item("fail", execution_id, fence, events, observed), "error": error}


def cancelled_item(
    execution_id: str, fence: int, reason: str | None = None, events: Events = (), **observed: Any
) -> Item:
    """Append events and end it as cancelled."""
    return {**_item("cancelled", execution_id, fence, events, observed), "reason": reason}


def continue_item(
    execution_id: str,
    fence: int,
    value: Any = None,
    events: Events = (),
    *,
    flow: str | None = None,
    flow_version: int | None = None,
    **observed: Any,
) -> Item:
    """Append events, end it, and start its successor; `flow` and `flow_version` stay as they are if not given."""
    item = {**_item("continue", execution_id, fence, events, observed), "input": value}
    if flow is not None:
        item["flow"] = flow
    if flow_version is not None:
        item["flow_version"] = flow_version
    return item


def _item(verb: str, execution_id: str, fence: int, events: Events, observed: Mapping[str, Any]) -> Item:
    item: Item = {"verb": verb, "execution_id": execution_id, "fence": fence}
    if events:
        item["events"] = events
    for name, value in observed.items():
        if name not in {"head", "incarnation"}:
            raise TypeError(f"expected head or incarnation, found {name}")
        item[name] = str(value) if isinstance(value, UUID) else value
    return item
