"""One execution that this process drives: what its flow asks for is done, what comes of it is recorded, in this order.

Everything happens in callbacks of one event loop, none of which waits: `pump` looks at what the flow asks for, starts
effects and hands the journal what is to be written; the journal answers; effects end. By default an effect starts
only when all that was recorded before it is on disk, and none starts once a write was refused (DESIGN 8).
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal
from uuid import UUID

from underseal.flow import items
from underseal.flow.effects import cancel_begun, carry_out
from underseal.flow.operation import ChildCall, Operation, StepCall
from underseal.flow.replay import DIVERGED, DIVERGED_GATE, NEWS, End, FlowDiverged, Replay, open_waits
from underseal.flow.values import NotRecordable, error_of, text_of
from underseal.foundation.steps import Row
from underseal.seal.entropy import random_bytes

if TYPE_CHECKING:
    from underseal.flow.checkpoints import Gathering
    from underseal.flow.definition import Flow
    from underseal.flow.runtime import FlowRuntime

log = logging.getLogger("underseal.flow")

_LONG: Final = 5.0
"""Seconds from which the wait before another try is a park and not a timer of this process."""
_MOST_TEXT: Final = 4_000_000
"""Characters of events in one write: more would be one value that no database takes, and hold up all others."""
_CANCELLING: Final = 0
"""Among the effects, instead of an operation's number: the cancelling of what a cancelled flow has begun."""

State = Literal["starting", "driving", "parked", "ended", "gone"]


@dataclass(slots=True)
class _Sent:
    """What the journal has in hand."""

    verb: str
    events: list[str]


@dataclass(slots=True, eq=False, repr=False)  # a repr would show inputs and results
class Drive:
    """One execution under this process's fence.

    Attributes:
        runtime: what it is driven by.
        flow: its code.
        execution_id: its id.
        fence: under which it is written.
        start: the item that starts it, if it is started here.
        state: how far it is.
        since: by the loop's clock, when the call that claimed it was sent.
        first: the data of EXECUTION_STARTED, if it is started here.
        head: number of the last event that was read or written.
        head_before: the same before the latest write.
        tried_before: whether its start was sent before, to an end that nobody knows.
        replay: its flow, as far as it goes.
        snapshot_at: from this event on another snapshot is due.
        gathering: the state that one is made of.
    """

    runtime: FlowRuntime
    flow: Flow
    execution_id: str
    fence: int = 0
    start: str | None = None
    state: State = "driving"
    since: float = 0.0
    first: dict[str, Any] | None = None
    head: int = -1
    head_before: int = -1
    tried_before: bool = False
    replay: Replay = field(init=False)
    snapshot_at: float = math.inf
    gathering: Gathering | None = None
    _events: list[str] = field(default_factory=list)
    _sent: _Sent | None = None
    _submitted: bool = False
    _end: End | None = None
    _waits: list[dict[str, Any]] | None = None
    _ready: list[Operation] = field(default_factory=list)
    _effects: dict[int, asyncio.Task[None]] = field(default_factory=dict)
    _backoffs: dict[int, asyncio.TimerHandle] = field(default_factory=dict)
    _cancels: list[dict[str, str]] = field(default_factory=list)
    _doubtful: bool = False
    _parted: bool = False

    def __post_init__(self) -> None:
        """Begin with an empty log."""
        self.replay = Replay(self.flow, self.execution_id)
        if self.flow.snapshot_every is not None:
            self.snapshot_at = self.flow.snapshot_every

    # -- what has happened -------------------------------------------------------------------------

    def load(self, history: Sequence[tuple[str, dict[str, Any]]], missing: str | None = None) -> None:
        """Replay a log, and go on from its end.

        Parameters:
            history: type and data of every event; or what a snapshot keeps of them, and those behind it.
            missing: what of it is not there.
        """
        try:
            if missing is not None:
                raise FlowDiverged(0, missing, "neither in the log nor in a snapshot that this release reads")
            self.replay.foresee(history)
            for kind, data in history:
                self.replay.apply(kind, data)
        except Exception as error:  # noqa: BLE001 -- whatever a log holds, it must not stop the others
            flaw = error if isinstance(error, FlowDiverged) else _unexpected(error)
            self.replay.last_divergence = next(
                (data for kind, data in reversed(history) if kind == "FLOW_DIVERGED"), None
            )
            self._part(flaw, open_waits(history))
            return
        self.replay.caught_up()
        self._cancels = list(self.replay.cancels)
        self.pump()

    def news(self, tail: Sequence[tuple[str, dict[str, Any]]]) -> None:
        """Take what others have added to the log, answers or a wish to cancel; what is our own was taken already."""
        if self.state != "driving":
            return

        def take() -> None:
            for kind, data in tail:
                if kind in NEWS or kind in ("EXECUTION_STARTED", "EXECUTION_SUSPENDED"):
                    self.replay.apply(kind, data)

        self._guarded(take)

    def record(self, kind: str, data: dict[str, Any], text: str | None = None) -> None:
        """Have an event written, and give it to the flow as it was written.

        Parameters:
            kind: its type.
            data: its data, as it will be read.
            text: the event as JSON, where that is known.
        """
        self._events.append(items.event_text(kind, data) if text is None else text)
        self.replay.apply(kind, data)

    def effect_ended(self, op: Operation, kind: str, data: dict[str, Any], text: str | None = None) -> None:
        """Take the result of an effect, unless the flow has given it up meanwhile."""
        self._effects.pop(op.number, None)
        if self._is_wanted(op):
            self._guarded(lambda: self.record(kind, data, text))

    def _is_wanted(self, op: Operation) -> bool:
        return self.state == "driving" and self._end is None and self._waits is None and not op.future.done()

    def step_failed(self, op: Operation, error: BaseException) -> None:
        """Take the failure of one try: there is another, or the step has failed."""
        assert isinstance(op.call, StepCall)
        if not self._is_wanted(op):
            self._effects.pop(op.number, None)
            return
        retry = op.call.retry
        attempt = op.attempts + 1
        told = error_of(error, keep_traceback=self.flow.keep_traceback)
        again = (
            attempt < retry.attempts
            and isinstance(error, retry.only)
            and not isinstance(error, NotRecordable)
        )
        if not again:
            self.effect_ended(op, "STEP_FAILED", {"op": op.number, "name": op.name, "error": told})
            return
        wait = retry.wait_after(attempt)
        loop = asyncio.get_running_loop()
        if wait >= _LONG:
            op.resting, op.began = wait, loop.time()
        else:
            self._backoffs[op.number] = loop.call_later(wait, self._try_again, op)
        self.effect_ended(
            op,
            "STEP_ATTEMPT_FAILED",
            {"op": op.number, "name": op.name, "attempt": attempt, "error": told},
        )

    def _try_again(self, op: Operation) -> None:
        if self._backoffs.pop(op.number, None) is not None and self.state == "driving":
            self._ready.append(op)
            self.pump()

    def effect_dropped(self, number: int) -> None:
        """An effect has ended and there is nothing to record."""
        self._effects.pop(number, None)
        self.pump()

    @property
    def in_a_step(self) -> bool:
        """Whether nothing is written for it now, and perhaps not for long: what others want reaches it by no answer."""
        return (
            self.state == "driving"
            and bool(self._effects)
            and not (self._submitted or self._sent or self._doubtful or self.replay.cancel_requested)
        )

    # -- what is to be done ------------------------------------------------------------------------

    def _guarded(self, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as error:  # noqa: BLE001 -- one execution's fault must not stop the others
            flaw = error if isinstance(error, FlowDiverged) else _unexpected(error)
            self._part(flaw, self.replay.recorded_waits)
            return
        self.pump()

    def pump(self) -> None:
        """Look at what the flow asks for, and see to it."""
        if self.state != "driving":
            return
        if self._waits is not None or self._end is not None:
            self._submit()  # what was sent before it has been answered
            return
        self._collect()
        if self.replay.cancel_requested and not self.replay.cancelling and self.replay.end() is None:
            try:
                self._tell_cancellation()
            except FlowDiverged as flaw:
                self._part(flaw, self.replay.recorded_waits)
                return
            self._collect()
        end = self.replay.end()
        if end is not None:
            self._come_to(end)
        elif self.runtime.draining:
            if not (self._effects or self._events or self._sent):
                self.runtime.give_back(self)
                return
        else:
            self._start_ready()
            if not (self._effects or self._ready or self._backoffs):
                self._park()
        if self.state == "driving" and (self._events or self._end is not None or self._waits is not None):
            self._submit()

    def _come_to(self, end: End) -> None:
        self._stop_effects(but_cancelling=True)
        if self._cancels:
            self._start_ready()
        elif _CANCELLING not in self._effects:
            self._end = end  # what it had begun has been cancelled

    def _tell_cancellation(self) -> None:
        cancels = self.replay.under_way()
        self.record("CANCELLATION_DELIVERED", {"cancels": cancels})
        self._cancels = cancels

    def _collect(self) -> None:
        for kind, data in self.replay.emitted:
            self._events.append(items.event_text(kind, data))
        self.replay.emitted.clear()
        now = asyncio.get_running_loop().time()
        for op in self.replay.fresh:
            if op.future.done():
                continue
            op.began = now
            if op.kind != "wait" and op.resting is None:
                self._ready.append(op)
        self.replay.fresh.clear()
        self._drop_given_up()

    def _drop_given_up(self) -> None:
        if not self.replay.given_up():
            return  # mostly; a look through thousands of open operations at each result would cost more than all else
        given_up = [number for number, op in self.replay.ops.items() if op.future.done()]
        for number in given_up:
            op = self.replay.ops.pop(number)
            if isinstance(op.call, ChildCall):
                self.replay.begun[op.call.execution_id] = "child"  # it may be on its way all the same
            effect = self._effects.pop(number, None)
            if effect is not None:
                effect.cancel()
            backoff = self._backoffs.pop(number, None)
            if backoff is not None:
                backoff.cancel()
        if given_up:
            self._ready = [op for op in self._ready if not op.future.done()]

    def _start_ready(self) -> None:
        if self._doubtful:
            return  # whoever cannot tell what was written may have lost the execution
        for op in self._ready:
            if op.kind == "hold" and op.intent is None:
                # its id is on disk before it is used, so that a repetition after a crash is no second request
                self.record(
                    "HOLD_REQUESTED",
                    {
                        "op": op.number,
                        "type": op.name,
                        "operation_id": str(UUID(bytes=random_bytes(16), version=4)),
                    },
                )
        durable = not self._events and self._sent is None
        waiting = []
        for op in self._ready:
            if durable or (self.flow.journal == "behind" and op.kind != "hold"):
                self._effects[op.number] = asyncio.create_task(
                    carry_out(self, op), context=self.runtime.clean_context()
                )
            else:
                waiting.append(op)
        self._ready = waiting
        if durable and self._cancels:
            self._effects[_CANCELLING] = asyncio.create_task(cancel_begun(self, self._cancels))
            self._cancels = []

    def _park(self) -> None:
        open_ops = [op for op in self.replay.ops.values() if op.waits]
        if not open_ops:
            flaw = FlowDiverged(
                0, "something to wait for", "a flow that waits for nothing that its log can answer"
            )
            self._part(flaw, {})
            return
        now = asyncio.get_running_loop().time()
        self._waits = [{"wait": op.wait_id, "arms": _specs(op, now)} for op in open_ops]

    def _part(self, flaw: FlowDiverged, recorded: dict[str, list[dict[str, Any]]]) -> None:
        """Park as diverged: what the log waits for stays, with its instants, beside a gate for who mends the code."""
        # who may have lost the execution sees what another wrote beside what it began itself: no flaw of the code
        if self.runtime.keeper.holds(self.execution_id):
            log.error(
                "execution %s has diverged: %s; deploy code that fits its log, then resume it at %s or migrate it",
                self.execution_id, flaw, DIVERGED_GATE,
                extra={"execution_id": self.execution_id, "flow": self.flow.name, "outcome": "diverged"},
            )  # fmt: skip
        self._parted = True
        self._stop_effects()
        told = {
            "op": flaw.op,
            "expected": flaw.expected[:500],
            "found": flaw.found[:500],
            "flow_version": self.flow.version,
        }
        if self.replay.last_divergence != told:
            self._events.append(items.event_text("FLOW_DIVERGED", told))
        self._waits = [
            {
                "wait": name,
                "arms": [{"topic": arm["topic"]} if "topic" in arm else {"for": 0} for arm in arms],
            }
            for name, arms in recorded.items()
            if name != DIVERGED
        ]
        self._waits.append({"wait": DIVERGED, "arms": [{"gate": DIVERGED_GATE}]})
        self.runtime.report_divergence(self, str(flaw)[:900])
        self._submit()

    def _stop_effects(self, *, but_cancelling: bool = False) -> None:
        kept = self._effects.pop(_CANCELLING, None) if but_cancelling else None
        for effect in self._effects.values():
            effect.cancel()
        for backoff in self._backoffs.values():
            backoff.cancel()
        self._effects.clear()
        if kept is not None:
            self._effects[_CANCELLING] = kept
        self._backoffs.clear()
        self._ready.clear()

    # -- the journal's side ------------------------------------------------------------------------

    def _submit(self) -> None:
        if not self._submitted and self._sent is None and not self._doubtful:
            self._submitted = True
            self.runtime.journal.submit(self)

    def take(self) -> str | None:
        """What is to be written next."""
        self._submitted = False
        if self.state not in ("driving", "starting") or self._sent is not None:
            return None
        if self.start is not None:
            self._sent = _Sent("start", [])
            return self.start
        events = self._portion()
        if self._events:
            self._sent = _Sent("append", events)  # the rest goes with the next
            return items.append_text(self.execution_id, self.fence, events)
        if self._end is not None:
            self._sent = _Sent("fail" if self._end.kind == "failed" else "end", events)
            return items.end_text(self.execution_id, self.fence, events, self._end)
        if self._waits is not None:
            self._sent = _Sent("park", events)
            # a flow that has diverged cannot be told: whoever mends its code finds the wish in its log
            told = self.replay.cancelling or self._parted
            return items.park_text(self.execution_id, self.fence, events, self._waits, told)
        if not events:
            return None
        self._sent = _Sent("append", events)
        return items.append_text(self.execution_id, self.fence, events)

    def _portion(self) -> list[str]:
        """As many of the events as one call should hold."""
        size = 0
        for place, event in enumerate(self._events):
            size += len(event)
            if size > _MOST_TEXT and place:
                portion, self._events = self._events[:place], self._events[place:]
                return portion
        portion, self._events = self._events, []
        return portion

    def answered(self, row: Row) -> None:
        """What became of what was written."""
        sent, self._sent = self._sent, None
        if sent is None or self.state not in ("driving", "starting"):
            return
        self.head_before = self.head + len(sent.events)
        if row["head"] is not None:
            self.head = row["head"]
        if row["cancel_requested"]:
            self.replay.cancel_requested = True
        if self.head >= self.snapshot_at and row["outcome"] in ("appended", "parked", "answered"):
            self.runtime.checkpoints.written(self, sent.events, row["outcome"] == "appended")
        if row["outcome"] in _WENT:
            _WENT[row["outcome"]](self, row)
        else:
            self._turned_down(sent, row)

    def _turned_down(self, sent: _Sent, row: Row) -> None:
        if row["reason"] == "same-execution":
            # a parent that was taken over starts it again, in the same call: it goes with the next one
            self._events[:0] = sent.events
            self._submit()
        elif row["reason"] == "cancel-requested":
            self._waits = None
            self._events[:0] = sent.events
            self.replay.cancel_requested = True
            self.pump()
        elif sent.verb == "start":
            self.runtime.not_started(self, row)
        elif row["outcome"] == "refused":
            self._refused(sent, row["reason"], row["message"])
        else:
            self.runtime.lost(self, row["reason"] or row["outcome"])

    def _answered_at_once(self, _: Row) -> None:
        if self._parted:
            self.runtime.give_back(self)  # whoever takes it replays it, with better code perhaps
            return
        self._waits = None
        self.runtime.read_news(self)

    def started(self, fence: int) -> None:
        """It is begun under this fence: its flow may run."""
        self.state, self.fence, self.start, self.head = "driving", fence, None, 0
        self.runtime.begun(self)
        assert self.first is not None
        self.replay.caught_up()
        self.news([("EXECUTION_STARTED", self.first)])

    def impossible(self, error: Exception) -> None:
        """Writing it alone made the call fail."""
        sent, self._sent = self._sent, None
        if sent is not None:
            self._refused(sent, type(error).__name__, "the database could not take what was recorded")

    def _refused(self, sent: _Sent, reason: str, message: str) -> None:
        log.error(
            "execution %s: a write was refused (%s)", self.execution_id, reason,
            extra={"execution_id": self.execution_id, "outcome": "write-refused", "reason": reason},
        )  # fmt: skip
        self._stop_effects()
        self._events.clear()
        self._waits = None
        if sent.verb == "fail":
            self.runtime.put_off(self)
            return
        told = {"type": "WriteRefused", "message": f"{reason}: {message}"}
        self._end = End("failed", text_of(told, "an error"))
        self._submit()

    # -- when the database went away ---------------------------------------------------------------

    def uncertain(self) -> None:
        """Nobody knows whether what was sent was written; no effect starts until that is known."""
        self._doubtful = True
        self.runtime.reconcile(self)

    @property
    def quiet(self) -> bool:
        """Whether nothing of it is being written."""
        return self._sent is None

    @property
    def ending(self) -> End | None:
        """The end that was sent, if one was."""
        return self._end

    @property
    def soonest(self) -> float | None:
        """In how many seconds the first instant comes that it waits for, if it waits for any."""
        spans = [arm["for"] for wait in self._waits or () for arm in wait["arms"] if "for" in arm]
        return min(spans, default=None)

    def restart(self) -> None:
        """Send a start again of which nobody knows what became."""
        self._sent, self._doubtful, self.tried_before = None, False, True
        self._submit()

    def settle(self, fence: int, tail: Sequence[tuple[str, dict[str, Any]]]) -> None:
        """Go on under a new fence: under the old one, what was sent cannot be written any more.

        Parameters:
            fence: the new one.
            tail: what the log has behind what was known of it. An item is written whole or not at all, so one event of
                our own shows that it was.
        """
        sent, self._sent = self._sent, None
        self.fence, self._doubtful = fence, False
        if self.state != "driving":
            return
        if sent is not None and all(kind in NEWS for kind, _ in tail):
            self._events[:0] = sent.events
        elif sent is not None and sent.verb == "park":
            self.runtime.give_back(self)  # it was parked; it is due if it was answered, or when it will be
            return
        if self._parted:
            self.pump()
            return
        self._waits = None
        self.news(tail)

    def drop(self, state: State) -> None:
        """Let go of it: nothing of it runs here any more."""
        self.state = state
        self._stop_effects()
        self.replay.close()


def _unexpected(error: Exception) -> FlowDiverged:
    return FlowDiverged(0, "events that flows record", type(error).__name__)


def _specs(op: Operation, now: float) -> list[dict[str, Any]]:
    """The arms as a park names them. Time that has gone by since the flow asked counts."""
    gone = 0.0 if op.began is None else max(0.0, now - op.began)
    if op.resting is not None:
        return [{"for": max(0.0, op.resting - gone)}]
    specs = [arm.spec() for arm in op.arms]
    return [{"for": max(0.0, spec["for"] - gone)} if "for" in spec else spec for spec in specs]


_WENT: Final[dict[str, Callable[[Drive, Row], None]]] = {
    "started": lambda drive, row: drive.started(row["fence"]),
    "appended": lambda drive, _: drive.pump(),
    "parked": lambda drive, _: drive.runtime.parked(drive),
    "answered": Drive._answered_at_once,
    "completed": lambda drive, _: drive.runtime.ended(drive, drive.ending),
    "failed": lambda drive, _: drive.runtime.ended(drive, drive.ending),
    "cancelled": lambda drive, _: drive.runtime.ended(drive, drive.ending),
    "continued": lambda drive, _: drive.runtime.ended(drive, drive.ending),
}
"""What follows a write that was made, by its outcome."""
