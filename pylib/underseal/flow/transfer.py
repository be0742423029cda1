"""An execution's state as a document, and executions that go on from one: in another database, or mended in this."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NoReturn

from underseal.errors import AccessDenied, ExecutionAlreadyExistsError, ExecutionRefusedError
from underseal.flow.replay import DIVERGED
from underseal.flow.state import CARRIED, STATE_VERSION, Event, Loaded, Recorded, event_flaw, loaded
from underseal.foundation.calls import json_text
from underseal.foundation.steps import Steps
from underseal.log import kernel, verbs
from underseal.snapshot import verbs as snapshots

FORMAT: Final = "underseal-state"
_PAGE: Final = 1000


def export(execution_id: str, principal: str, capability: Mapping[str, Any] | None) -> Steps[dict[str, Any]]:
    """The state of an execution, as of its last event."""
    info = yield from verbs.get(execution_id, principal)
    compacted = info.log_start > 1
    found = yield from _read(execution_id, principal, capability, info.head, compacted)
    if found.missing is not None and not compacted:  # meanwhile it was
        found = yield from _read(execution_id, principal, capability, info.head, True)
    kept = Recorded(found.events).events()
    if found.missing is not None or not kept or kept[0][0] != "EXECUTION_STARTED":
        raise ExecutionRefusedError(
            "compacted", f"Expected a whole log, or a snapshot of this release, found {found.missing} gone."
        )
    return {
        "format": FORMAT,
        "v": STATE_VERSION,
        "execution_id": execution_id,
        "owner": info.owner,
        "status": info.status,
        "seq": found.head,
        "flow": info.flow,
        "flow_version": info.flow_version,
        **carried(kept),
    }


def carried(kept: Sequence[Event]) -> dict[str, Any]:
    """What of a state goes along to another execution.

    Parameters:
        kept: the state's events, EXECUTION_STARTED first.
    """
    started = kept[0][1]
    restored = kept[1][1] if len(kept) > 1 and kept[1][0] == "STATE_RESTORED" else {}
    return {
        "began_as": restored.get("flow_version", started["flow_version"]),
        "input": started["input"],
        "events": [_without_others(kind, data) for kind, data in kept if _goes_along(kind, data)],
        "not_carried": not_carried(kept),
    }


def _read(
    execution_id: str, principal: str, capability: Mapping[str, Any] | None, head: int, compacted: bool
) -> Steps[Loaded]:
    snapshot = (yield from snapshots.load(execution_id, principal, capability)) if compacted else None
    page: list[tuple[int, Event]] = []
    after = -1 if snapshot is None else snapshot.seq
    while True:
        some = yield from verbs.events(execution_id, principal, after, _PAGE, capability)
        page += [(one.seq, (one.type or "", dict(one.data or {}))) for one in some]
        if len(some) < _PAGE:
            return loaded(None if snapshot is None else (snapshot.seq, snapshot.state), page, head)
        after = some[-1].seq


def _goes_along(kind: str, data: Mapping[str, Any]) -> bool:
    return kind in CARRIED and data.get("wait") != DIVERGED


def _without_others(kind: str, data: dict[str, Any]) -> list[Any]:
    """What a cancellation took along stays with the execution that was cancelled."""
    return [kind, {"cancels": []} if kind == "CANCELLATION_DELIVERED" else data]


def not_carried(events: Iterable[Event]) -> list[dict[str, str]]:
    """Children and held operations that have not told their end: whoever goes on from the state does not hear it.

    Parameters:
        events: of a state.
    """
    begun: dict[str, dict[str, str]] = {}
    asked: dict[int, dict[str, str]] = {}
    for kind, data in events:
        if kind == "CHILD_STARTED" and "execution_id" in data:
            begun[f"$child/{data['execution_id'].partition('~')[2]}"] = {"child": data["execution_id"]}
        elif kind == "HOLD_REQUESTED":
            asked[data["op"]] = {"hold": data["operation_id"]}
        elif kind == "HOLD_OPENED":
            asked.pop(data["op"], None)
            begun[f"$hold/{data['operation_id']}"] = {"hold": data["operation_id"]}
        elif kind == "CALL_REFUSED":
            asked.pop(data["op"], None)
        elif kind == "MESSAGE_CONSUMED":
            begun.pop(data.get("topic", ""), None)
    return [*begun.values(), *asked.values()]


def restore(state: Any, principal: str, execution_id: str | None) -> Steps[str]:
    """Start an execution that goes on from a state."""
    checked = checked_state(state)
    row = yield from kernel.restore_execution(json_text(checked), principal, execution_id)
    if row["outcome"] == "exists":
        raise ExecutionAlreadyExistsError(execution_id or "", row["message"])
    if row["outcome"] == "denied":
        raise AccessDenied(row["reason"], row["message"])
    if row["outcome"] != "restored":
        raise ExecutionRefusedError(row["reason"] or row["outcome"], row["message"])
    made: str = row["execution_id"]
    return made


def checked_state(state: Any) -> dict[str, Any]:
    """What is restored of a document, if it is a state.

    Parameters:
        state: what `export` gave, perhaps edited since.

    Errors:
        ExecutionRefusedError: `malformed-state`; the message says where, and shows no value.
    """
    if not isinstance(state, Mapping) or state.get("format") != FORMAT or state.get("v") != STATE_VERSION:
        _refuse(f"a document of format {FORMAT} version {STATE_VERSION}, found another")
    for name, wanted in (("flow", str), ("flow_version", int), ("began_as", int), ("events", list)):
        if not isinstance(state.get(name), wanted) or isinstance(state[name], bool):
            _refuse(f"a {wanted.__name__} in {name}, found something else")
    if state["flow_version"] < 1 or state["began_as"] < 1:
        _refuse("flow_version and began_as of at least 1, found less")
    for place, event in enumerate(state["events"]):
        flaw = event_flaw(event)
        if flaw is not None:
            _refuse(f"event {place} of events {flaw}")
    names = ("v", "flow", "flow_version", "began_as", "input", "events", "not_carried")
    try:
        json_text(state)
    except (TypeError, ValueError, RecursionError) as error:
        _refuse(f"JSON, found what is not ({type(error).__name__})")
    return {name: state[name] for name in names if name in state}


def _refuse(what: str) -> NoReturn:
    raise ExecutionRefusedError("malformed-state", f"Expected {what}. Export the state again.")
