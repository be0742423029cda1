"""Comparing what the tables say of an execution with what its log says (clause E4).

The log is folded anew by the reference fold: from its beginning, or, where it was compacted, from what the log had
folded to at the newest snapshot. What hangs on the fold without being in it (wakes, who goes on with a line, the last
number of an inbox) is checked for whether it fits. Nothing is mended here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from underseal.errors import ExecutionDeniedError
from underseal.foundation.steps import Steps
from underseal.log import verbs
from underseal.log.fold import Folding, IllegalHistory, line_of, member_of, micros
from underseal.log.model import ENDED, FoldView, LogEvent

_PAGE = 1000
_OPENS_NOTHING: Mapping[str, Any] = {"ciphers": [], "covers": []}


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that the tables and the log say differently; no payload in it.

    Attributes:
        what: a member of the fold (`status`, `inbox.cursors`…), `wake`, `current_member`, `last_inbox_seq`,
            `snapshot` or `log`.
        tables: what the tables say.
        log: what follows from the log.
    """

    what: str
    tables: Any
    log: Any


@dataclass(frozen=True, slots=True)
class Refolded:
    """What a log folds to.

    Attributes:
        fold: as docs/log.md says it; None if it cannot be told.
        since: number of the last event that a snapshot's fold stood for; None if the whole log was folded.
        fault: why the events are no execution's log, or why they cannot be read; None mostly.
        readable: whether they could be read.
        at_snapshot: what the log folds to at the newest snapshot, where both were there to be compared.
    """

    fold: Mapping[str, Any] | None
    since: int | None = None
    fault: str | None = None
    readable: bool = True
    at_snapshot: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Verification:
    """What came of comparing one execution.

    Attributes:
        outcome: `verified`; `different`; `unverifiable` (what is left of the log does not open here, or is a sealed
            snapshot alone).
        execution_id: which.
        differences: each one found.
        since: number of the last event that was taken from a snapshot's fold; None if the whole log was folded.
    """

    outcome: Literal["verified", "different", "unverifiable"]
    execution_id: str
    differences: tuple[Difference, ...] = ()
    since: int | None = None


def refold_steps(execution_id: str, principal: str | None, view: FoldView) -> Steps[Refolded]:
    """Fold an execution's log anew, up to the head that a view shows.

    Parameters:
        execution_id: which.
        principal: who asks; None for a worker.
        view: what the tables say.
    """
    try:
        events = yield from _read(execution_id, principal)
    except ExecutionDeniedError:
        # read_fold was allowed, so this is an event that does not open here
        return Refolded(None, readable=False)
    compacted = view.log_start > 1
    if compacted and (view.snapshot_fold is None or (view.snapshot_seq or 0) < view.log_start - 1):
        return Refolded(None, fault="a compacted log without a snapshot that covers what is gone")
    if compacted and view.snapshot_sealed:
        return Refolded(None, readable=False)
    moved = events and events[-1].seq > view.fold["head"]
    if moved and (yield from verbs.fold_view(execution_id, principal)).fold["head"] != view.fold["head"]:
        # It went on meanwhile: what the tables said follows from what the log was then.
        events = [event for event in events if event.seq <= view.fold["head"]]
    member = member_of(execution_id)
    state = Folding(member)
    since = None
    if compacted and view.snapshot_fold is not None:
        state, since = Folding.from_json(view.snapshot_fold, member), view.snapshot_seq
    return _fold(events, state, since, view)


def verify_steps(execution_id: str, principal: str | None) -> Steps[Verification]:
    """Compare one execution.

    Parameters:
        execution_id: which.
        principal: the operator; None for a worker.
    """
    view = yield from verbs.fold_view(execution_id, principal)
    refolded = yield from refold_steps(execution_id, principal, view)
    found = tuple(_differences(execution_id, view, refolded))
    if found:
        return Verification("different", execution_id, found, refolded.since)
    outcome: Literal["verified", "unverifiable"] = "verified" if refolded.readable else "unverifiable"
    return Verification(outcome, execution_id, (), refolded.since)


def _read(execution_id: str, principal: str | None) -> Steps[list[LogEvent]]:
    events: list[LogEvent] = []
    while True:
        after = events[-1].seq if events else -1
        page = yield from verbs.events(execution_id, principal, after, _PAGE, _OPENS_NOTHING)
        events += page
        if not page:
            return events


def _fold(events: list[LogEvent], state: Folding, since: int | None, view: FoldView) -> Refolded:
    current = view.fold["inbox"] is not None
    at_snapshot = None
    try:
        for event in events:
            if since is not None and event.seq <= since:
                continue
            state.apply(event)
            if event.seq == view.snapshot_seq and since is None:
                at_snapshot = state.as_json((view.snapshot_fold or {}).get("inbox") is not None)
    except IllegalHistory as fault:
        return Refolded(None, since, str(fault))
    except (KeyError, TypeError):
        return Refolded(None, since, f"event {state.head} lacks what an event of its type has")
    return Refolded(state.as_json(current), since, at_snapshot=at_snapshot)


def _differences(execution_id: str, view: FoldView, refolded: Refolded) -> Iterator[Difference]:
    if refolded.fault is not None:
        yield Difference("log", None, refolded.fault)
    if view.last_seq != view.fold["head"]:
        yield Difference("head", view.fold["head"], view.last_seq)
    if refolded.fold is not None:
        yield from _compared(view.fold, refolded.fold)
    if refolded.at_snapshot is not None and dict(view.snapshot_fold or {}) != refolded.at_snapshot:
        yield Difference("snapshot", view.snapshot_fold, refolded.at_snapshot)
    yield from _line_differences(execution_id, view)
    yield from _wake_differences(view)


def _compared(tables: Mapping[str, Any], log: Mapping[str, Any], prefix: str = "") -> Iterator[Difference]:
    for name in sorted({*tables, *log}):
        one, other = tables.get(name), log.get(name)
        if isinstance(one, Mapping) and isinstance(other, Mapping) and not prefix:
            yield from _compared(one, other, f"{name}.")
        elif (one != other or (name in tables) != (name in log)) and prefix + name != "head":
            yield Difference(prefix + name, one, other)


def _line_differences(execution_id: str, view: FoldView) -> Iterator[Difference]:
    line = line_of(member_of(execution_id))
    last = view.line_members[-1] if view.line_members else line
    expected = None if last == line else last
    if view.current_member != expected:
        yield Difference("current_member", view.current_member, expected)
    if (view.fold["inbox"] is not None) != (member_of(execution_id) == last):
        yield Difference("inbox", view.fold["inbox"] is not None, member_of(execution_id) == last)
    numbers = (view.fold["inbox"] or {}).get("cursors", {}).values()
    lowest = max([*numbers, view.pending_seq or 0, 0])
    if (view.last_inbox_seq or 0) < lowest:
        yield Difference("last_inbox_seq", view.last_inbox_seq, lowest)


def _wake_differences(view: FoldView) -> Iterator[Difference]:
    """A wake that is missing is a wakeup lost; one of an execution that has ended would start nothing."""
    status = view.fold["status"]
    wakes = {wake["kind"]: wake for wake in view.wakes}
    if status in ("pending", "running") and "drive" not in wakes:
        yield Difference("wake", None, "drive")
    due = first_due(view.fold["waits"])
    if status == "suspended" and due is not None:
        timer = wakes.get("timer")
        if timer is None:
            yield Difference("wake", None, "timer")
        elif timer["attempts"] == timer["holds"] == 0 and timer["wake_at"] != due:
            yield Difference("wake", timer["wake_at"], due)
    if status in ENDED and wakes:
        yield Difference("wake", sorted(wakes), None)


def first_due(waits: list[Any] | None) -> int | None:
    """The first instant that waits wait for, in microseconds since 1970; None where they wait for none."""
    instants = [arm["due"] for one in waits or () for arm in one["arms"] if "due" in arm]
    return min((micros(datetime.fromisoformat(instant)) for instant in instants), default=None)
