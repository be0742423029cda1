"""The replay of one flow: events go in, in the order of the log, and what it asks for comes out. No I/O.

Live or at a replay it is the same: a result is recorded, and then given to the flow as it was recorded. The flow runs
until it waits for something before the next event goes in, so what it does depends on the log alone (clause E5).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from underseal.errors import FlowError, StepError
from underseal.flow.arms import Arm, Started, not_carried_over
from underseal.flow.definition import Flow
from underseal.flow.loop import FlowLoop, explained
from underseal.flow.operation import ChildCall, HoldCall, Kind, Operation, StepCall
from underseal.flow.state import CARRIED
from underseal.flow.values import NotRecordable, error_of, text_of

DIVERGED: Final = "diverged"
"""The wait of a flow whose code does not match its log."""
DIVERGED_GATE: Final = "underseal.diverged"
"""The gate that this wait stands at: answer it once the right code is there."""

NEWS: Final = frozenset(
    {"MESSAGE_CONSUMED", "TIMER_FIRED", "EXECUTION_CANCEL_REQUESTED", "EXECUTION_MIGRATED", "EXECUTION_RECOVERED",
     "OUTCOME_RECORDED"}
)  # fmt: skip
"""What comes into a log beside its driver's own events."""

Data: TypeAlias = Mapping[str, Any]
EndKind: TypeAlias = Literal["completed", "failed", "cancelled", "continued"]


class FlowDiverged(Exception):  # noqa: N818 -- what has happened
    """The code does not do what the log says it did.

    Attributes:
        op: number of the operation at which they part; 0 for none.
        expected: what the log has there.
        found: what the code does.
    """

    def __init__(self, op: int, expected: str, found: str) -> None:
        """Keep both."""
        super().__init__(f"operation {op}: expected {expected}, as the log has it, found {found}")
        self.op = op
        self.expected = expected
        self.found = found


class ContinueAsNew(BaseException):
    """Raised through a flow by `ctx.continue_as_new`."""

    def __init__(self, value: Any, flow: str | None, version: int | None) -> None:
        """Keep what the successor gets."""
        super().__init__("the flow continues as a new execution")
        self.value = value
        self.flow = flow
        self.version = version


@dataclass(frozen=True, slots=True)
class End:
    """How a flow ended.

    Attributes:
        kind: the status it leads to.
        text: JSON of the output, the error, or the successor's input.
        flow, version: of the successor, where they change.
    """

    kind: EndKind
    text: str = "null"
    flow: str | None = None
    version: int | None = None


@dataclass(slots=True, repr=False)  # a repr would show inputs and results
class Replay:
    """One execution's flow, as far as its log goes.

    Attributes:
        flow: its code.
        execution_id: its id.
        ops: what the flow has asked for and not got, by number.
        fresh: of these, what nobody has looked at yet, in the order of the calls.
        emitted: events that the flow caused by itself (its random numbers), to be recorded.
        replaying: whether the log is still being read.
        version: the execution's flow version at this place of its log.
        owner: whose it is.
        cancel_requested: somebody wants it cancelled.
        cancelling: the flow has been told.
        recorded_waits: what the log says it waits for, by wait id: the arms.
        last_divergence: the last one that was recorded.
        cancels: what was to be cancelled with it, as it was recorded.
        begun: children and held operations that have not told their end yet, or are on their way, by id.
    """

    flow: Flow
    execution_id: str
    ops: dict[int, Operation] = field(default_factory=dict)
    fresh: list[Operation] = field(default_factory=list)
    emitted: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    replaying: bool = True
    version: int = 0
    owner: str = ""
    cancel_requested: bool = False
    cancelling: bool = False
    cancels: list[dict[str, str]] = field(default_factory=list)
    begun: dict[str, Literal["child", "hold"]] = field(default_factory=dict)
    recorded_waits: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    last_divergence: Data | None = None
    _loop: FlowLoop = field(default_factory=FlowLoop)
    _count: int = 0
    _values: dict[int, tuple[str, Any]] = field(default_factory=dict)
    _served: dict[int, str] = field(default_factory=dict)
    _began_as: int | None = None
    _own_version: int = 0
    _left: dict[str, Literal["child", "hold"]] = field(default_factory=dict)
    _shared: set[str] = field(default_factory=set)
    _unclaimed: dict[str, deque[Any]] = field(default_factory=dict)
    _main: asyncio.Task[Any] | None = None

    # -- events in ---------------------------------------------------------------------------------

    def foresee(self, events: Iterable[tuple[str, Data]]) -> None:
        """Note the recorded values of events that will be applied: a flow is given them in the middle of a call."""
        for kind, data in events:
            if kind == "VALUE_RECORDED":
                self._values[data["op"]] = (data["kind"], data["value"])
            elif kind == "STATE_RESTORED":
                if self._began_as is None:
                    self._began_as = data["flow_version"]
                self.foresee(data["events"])

    def apply(self, kind: str, data: Data) -> None:
        """Take one event of the log, and let the flow go on until it waits again.

        Parameters:
            kind: its type.
            data: its data.

        Errors:
            FlowDiverged: the flow's code does not match it.
        """
        handler = _HANDLERS.get(kind)
        if handler is None:
            return
        if self.emitted and kind not in NEWS and kind not in ("VALUE_RECORDED", "STATE_RESTORED"):
            op = self.emitted[0][1]["op"]
            raise FlowDiverged(
                op, _said(kind, data), f"{self.emitted[0][1]['kind']}, which the log does not have"
            )
        handler(self, data)
        if not self._loop.run_until_idle():
            raise FlowDiverged(0, "a flow that waits for its results", "one that goes round without waiting")

    def caught_up(self) -> None:
        """The log is read: from here on what the flow asks for is to be done."""
        self.replaying = False
        self.fresh = [op for op in self.ops.values() if not op.future.done()]
        for op in self.fresh:
            if op.kind == "step" and op.wait_id in self.recorded_waits:
                op.resting = 0.0  # a wait that was parked on before keeps its instant

    def given_up(self) -> bool:
        """Whether the flow may have given operations up since this was asked last."""
        found, self._loop.given_up = self._loop.given_up, False
        return found

    def close(self) -> None:
        """Put the flow aside where it stands."""
        self._loop.close()
        # without circles, what a flow held is freed at once and not by the collector
        self._main = None
        self.ops.clear()

    def _started(self, data: Data) -> None:
        from underseal.flow.context import FlowContext  # the context needs this module

        self._own_version = data["flow_version"]
        self.version = self._own_version if self._began_as is None else self._began_as
        self.owner = data["owner"]
        ctx = FlowContext(self)
        self._main = self._loop.create_task(self.flow.begin(ctx, data["input"]))

    def _restored(self, data: Data) -> None:
        """Go through what another execution had come to. What that one has begun stays its own."""
        for kind, inner in data["events"]:
            if kind not in CARRIED:
                raise FlowDiverged(0, "a state as it is exported", kind)
            self.apply(kind, inner)
        self.version = self._own_version
        self._left.update(self.begun)
        self.begun.clear()
        self.cancels = []
        self.recorded_waits = {}
        for op in list(self.ops.values()):
            if op.intent is not None and not op.future.done():
                del self.ops[op.number]
                op.future.set_exception(StepError(op.name, not_carried_over("hold", op.intent)["error"]))
            self._answer_left(op)

    def _answer_left(self, op: Operation) -> None:
        """Answer a wait for what stayed with another execution, which will not tell its end here."""
        for place, arm in enumerate(op.arms):
            if isinstance(arm, Started) and arm.id in self._left and not op.future.done():
                self.ops.pop(op.number, None)
                op.future.set_result((place, not_carried_over(self._left[arm.id], arm.id)))

    def _answer_unclaimed(self, op: Operation) -> None:
        """Give a wait the first message that came together with what made the flow give up waiting for it."""
        for place, arm in enumerate(op.arms if self._unclaimed else ()):
            waiting = self._unclaimed.get(_topic(arm.spec()) or "")
            if waiting and not op.future.done():
                self.ops.pop(op.number, None)
                op.future.set_result((place, waiting.popleft()))

    def _migrated(self, data: Data) -> None:
        self.version = data["flow_version"]

    def _cancel_asked(self, data: Data) -> None:  # noqa: ARG002 -- a handler's shape
        self.cancel_requested = True
        # the kernel forgets what was waited for; the flow is told, and waits anew
        self.recorded_waits = {}

    def _cancel_told(self, data: Data) -> None:
        self._demand_running("a cancellation")
        self.cancelling = True
        self.cancels = data["cancels"]
        assert self._main is not None
        self._main.cancel()

    def _step_done(self, data: Data) -> None:
        self._resolve(data, "step", data["name"]).set_result(data["output"])

    def _step_failed(self, data: Data) -> None:
        future = self._resolve(data, "step", data["name"])
        future.set_exception(StepError(data["name"], data["error"]))

    def _attempt_failed(self, data: Data) -> None:
        op = self._find(data, "step", data["name"])
        op.attempts = data["attempt"]

    def _value(self, data: Data) -> None:
        if data["kind"] == "now":
            self._resolve(data, "now", "now").set_result(data["value"])
            return
        if self._served.pop(data["op"], None) == data["kind"]:
            return
        op = self.ops.get(data["op"])
        drawn = (value["kind"] for _, value in self.emitted if value["op"] == data["op"])
        found = next(drawn, self._found(data["op"]) if op is None else self._found_op(op))
        raise FlowDiverged(data["op"], f"a {data['kind']}", found)

    def _child_started(self, data: Data) -> None:
        op = self._resolve_op(data, "child", data["name"])
        assert isinstance(op.call, ChildCall)
        self.begun[op.call.execution_id] = "child"
        op.future.set_result(op.call.execution_id)

    def _hold_requested(self, data: Data) -> None:
        self._find(data, "hold", data["type"]).intent = data["operation_id"]
        self.begun[data["operation_id"]] = "hold"

    def _hold_opened(self, data: Data) -> None:
        op = self._resolve_op(data, "hold", data["type"])
        if op.intent is not None and op.intent != data["operation_id"]:
            # it was open before this flow asked for the same: it is waited for, and not taken back
            del self.begun[op.intent]
            self._shared.add(data["operation_id"])
        self.begun[data["operation_id"]] = "hold"
        op.future.set_result(data["operation_id"])

    def _refused(self, data: Data) -> None:
        op = self._resolve_op(data, data["kind"], data["name"])
        if op.intent is not None:
            del self.begun[op.intent]
        op.future.set_exception(StepError(data["name"], data["error"]))

    def _message(self, data: Data) -> None:
        if data.get("wait") is not None:
            self._answered(data["wait"], data["arm"], data.get("payload"))

    def _timer(self, data: Data) -> None:
        self._answered(data["wait"], data["arm"], None)

    def _answered(self, wait_id: str, arm: int, payload: Any) -> None:
        self.recorded_waits.pop(wait_id, None)
        if wait_id == DIVERGED:
            return
        number, _, _ = wait_id.partition(":")
        op = self.ops.get(int(number)) if number.isdigit() else None
        if op is not None and op.kind == "step" and ":retry:" in wait_id:
            op.resting = None
            if not self.replaying:
                self.fresh.append(op)
            return
        if op is None or op.kind != "wait" or op.wait_id != wait_id:
            raise FlowDiverged(
                int(number) if number.isdigit() else 0, f"the wait {wait_id}", self._found_op(op)
            )
        del self.ops[op.number]
        ended = op.arms[arm]
        if isinstance(ended, Started) and ended.id is not None:
            self.begun.pop(ended.id, None)
        topic = _topic(ended.spec())
        if not op.future.done():
            op.future.set_result((arm, payload))
        elif topic is not None:
            self._unclaimed.setdefault(topic, deque()).append(payload)

    def _suspended(self, data: Data) -> None:
        waits = {wait["wait"]: wait["arms"] for wait in data["waits"]}
        self.recorded_waits = waits
        if DIVERGED in waits:
            return
        recorded = {name for name in waits if ":retry:" not in name}
        mine = {
            op.wait_id
            for op in self.ops.values()
            if op.kind == "wait" and not op.future.done() and _same_arms(op, waits.get(op.wait_id))
        }
        busy = next(
            (
                op
                for op in self.ops.values()
                if op.kind != "wait" and not op.attempts and not op.future.done()
            ),
            None,
        )
        if recorded != mine or busy is not None:
            missing = sorted(recorded - mine)
            found = (
                self._found_op(busy)
                if busy is not None
                else f"waits for {sorted(mine - recorded) or 'fewer'}"
            )
            raise FlowDiverged(busy.number if busy else 0, f"a park on {missing or sorted(recorded)}", found)

    def _diverged(self, data: Data) -> None:
        self.last_divergence = data

    # -- what the flow asks for --------------------------------------------------------------------

    def begin(self, kind: Kind, name: str, call: StepCall | ChildCall | HoldCall | None = None) -> Operation:
        """A new operation, numbered in the order of the calls.

        Parameters:
            kind: what it is.
            name: its name.
            call: what is to be done.
        """
        self._demand_open()
        self._count += 1
        op = Operation(self._count, kind, name, self._loop.create_future(), call)
        self.ops[op.number] = op
        self.fresh.append(op)
        return op

    async def wait(self, label: str, arms: tuple[Arm[Any], ...]) -> tuple[int, Any]:
        """Wait for the first of some arms: its place and the payload."""
        for arm in arms:
            arm.use()
        for arm in arms:
            if isinstance(arm, Started):
                await arm.opened
        op = self.begin("wait", label)
        op.arms = arms
        self._answer_left(op)
        self._answer_unclaimed(op)
        answer: tuple[int, Any] = await op.future
        return answer

    def value(self, kind: str, make: Callable[[], Any]) -> Any:
        """A value that is drawn once and recorded; a replay gives the recorded one.

        Parameters:
            kind: `random` or `uuid`.
            make: draws it.
        """
        self._demand_open()
        self._count += 1
        number = self._count
        known = self._values.get(number)
        if known is not None and known[0] == kind:
            self._served[number] = kind
            return known[1]
        drawn = make()
        self.emitted.append(("VALUE_RECORDED", {"op": number, "kind": kind, "value": drawn}))
        return drawn

    @property
    def next_number(self) -> int:
        """The number that the next operation gets."""
        return self._count + 1

    def under_way(self) -> list[dict[str, str]]:
        """What a cancellation takes along: children and held operations that have not told their end, by kind.

        One whose begin is not recorded yet may be there all the same.
        """
        begun: list[dict[str, str]] = [
            {kind: which} for which, kind in self.begun.items() if which not in self._shared
        ]
        begun += [
            {"child": op.call.execution_id}
            for op in self.ops.values()
            if isinstance(op.call, ChildCall) and not op.future.done()
        ]
        return begun

    # -- what comes out ----------------------------------------------------------------------------

    def end(self) -> End | None:
        """How the flow ended; None while it has not."""
        task = self._main
        if task is None or not task.done():
            return None
        if task.cancelled():
            if self.cancelling:
                return End("cancelled")
            return self._failed(asyncio.CancelledError("a task of the flow cancelled the flow"))
        error = task.exception()
        going_on = _continuation(error)
        if going_on is not None:
            try:
                text = text_of(going_on.value, "the successor's input")
            except NotRecordable as flaw:
                return self._failed(flaw)
            return End("continued", text, going_on.flow, going_on.version)
        if error is not None:
            return self._failed(error)
        try:
            return End("completed", text_of(task.result(), "the output of the flow"))
        except NotRecordable as flaw:
            return self._failed(flaw)

    def _failed(self, error: BaseException) -> End:
        told = error_of(explained(error), keep_traceback=self.flow.keep_traceback)
        if isinstance(error, StepError):
            told = {**error.error, "step": error.step}
        return End("failed", text_of(told, "an error"))

    # -- matching ----------------------------------------------------------------------------------

    def _resolve(self, data: Data, kind: Kind, name: str) -> asyncio.Future[Any]:
        return self._resolve_op(data, kind, name).future

    def _resolve_op(self, data: Data, kind: Kind, name: str) -> Operation:
        op = self._find(data, kind, name)
        del self.ops[op.number]
        if op.future.done():
            # the flow gave it up, and the log has a result all the same: another code wrote it
            raise FlowDiverged(op.number, f"the result of {kind} {name}", "that the flow has given it up")
        return op

    def _find(self, data: Data, kind: Kind, name: str) -> Operation:
        op = self.ops.get(data["op"])
        ended = self._main is None or self._main.done()
        if op is None or op.kind != kind or op.name != name or ended:
            found = self._found(data["op"]) if op is None or ended else self._found_op(op)
            raise FlowDiverged(data["op"], f"{kind} {name}", found)
        return op

    def _found(self, number: int) -> str:
        if self._main is not None and self._main.done():
            return "a flow that has ended"
        if number > self._count:
            return "a flow that does not come so far"
        return "another operation"

    def _found_op(self, op: Operation | None) -> str:
        return "no such wait" if op is None else f"{op.kind} {op.name}"

    def _demand_open(self) -> None:
        if self._loop.is_closed():
            raise FlowError("expected a running flow, found one that has ended or was put aside")

    def _demand_running(self, what: str) -> None:
        if self._main is None or self._main.done():
            raise FlowDiverged(0, what, "a flow that has ended")


def _continuation(error: BaseException | None) -> ContinueAsNew | None:
    """The wish to continue that ended a flow, also from inside of TaskGroups."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error if isinstance(error, ContinueAsNew) else None


def open_waits(events: Iterable[tuple[str, Data]]) -> dict[str, list[dict[str, Any]]]:
    """What a log says its execution waits for, whatever its flow's code makes of it: the arms by wait id."""
    waits: dict[str, list[dict[str, Any]]] = {}
    for kind, data in events:
        if kind == "EXECUTION_SUSPENDED":
            waits = {wait["wait"]: wait["arms"] for wait in data["waits"]}
        elif kind == "EXECUTION_CANCEL_REQUESTED":
            waits = {}
        elif kind in ("MESSAGE_CONSUMED", "TIMER_FIRED") and data.get("wait") is not None:
            waits.pop(data["wait"], None)
    return waits


def _same_arms(op: Operation, recorded: list[dict[str, Any]] | None) -> bool:
    """Whether a wait has the arms that the log says; one that the log does not know counts as it is."""
    if recorded is None:
        return True
    mine = [_topic(arm.spec()) for arm in op.arms]
    return mine == [arm.get("topic") for arm in recorded]


def _topic(spec: dict[str, Any]) -> str | None:
    return f"$gate/{spec['gate']}" if "gate" in spec else spec.get("topic")


def _said(kind: str, data: Data) -> str:
    return f"{kind} {data.get('name', data.get('type', ''))}".rstrip()


_HANDLERS: Final[dict[str, Callable[[Replay, Data], None]]] = {
    "EXECUTION_STARTED": Replay._started,
    "STATE_RESTORED": Replay._restored,
    "EXECUTION_MIGRATED": Replay._migrated,
    "EXECUTION_CANCEL_REQUESTED": Replay._cancel_asked,
    "EXECUTION_SUSPENDED": Replay._suspended,
    "MESSAGE_CONSUMED": Replay._message,
    "TIMER_FIRED": Replay._timer,
    "CANCELLATION_DELIVERED": Replay._cancel_told,
    "STEP_COMPLETED": Replay._step_done,
    "STEP_FAILED": Replay._step_failed,
    "STEP_ATTEMPT_FAILED": Replay._attempt_failed,
    "VALUE_RECORDED": Replay._value,
    "CHILD_STARTED": Replay._child_started,
    "HOLD_REQUESTED": Replay._hold_requested,
    "HOLD_OPENED": Replay._hold_opened,
    "CALL_REFUSED": Replay._refused,
    "FLOW_DIVERGED": Replay._diverged,
}
