"""A flow against a log in memory: what its driver would record, in whatever order results come."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

from underseal.flow.arms import Arm
from underseal.flow.definition import Body, Flow, flow
from underseal.flow.operation import ChildCall, Operation
from underseal.flow.replay import End, Replay

Event = tuple[str, dict[str, Any]]
View = tuple[list[tuple[int, str, str, list[dict[str, Any]], int]], End | None]


def made(body: Body, name: str = "f") -> Flow:
    """A flow of a body."""
    return flow(name)(body)


async def nothing() -> None:
    """A step's function; nobody calls it here."""


class Sim:
    """One execution.

    Parameters:
        code: its flow.
        value: its input.
        execution_id: its id.
    """

    def __init__(self, code: Flow | Body, value: Any = None, execution_id: str = "e") -> None:
        self.code = code if isinstance(code, Flow) else made(code)
        self.replay = Replay(self.code, execution_id)
        self.log: list[Event] = []
        self.views: list[View] = []
        self.replay.caught_up()
        self.record("EXECUTION_STARTED", flow=self.code.name, flow_version=1, owner="ann", input=value)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.replay.close()

    # -- what is recorded --------------------------------------------------------------------------

    def record(self, kind: str, /, **data: Any) -> Sim:
        """An event, and what the flow draws because of it."""
        self.log.append((kind, data))
        self.replay.apply(kind, data)
        self.views.append(view(self.replay))
        for kind_, data_ in self.replay.emitted:
            self.log.append((kind_, data_))
            self.views.append(view(self.replay))
        self.replay.emitted.clear()
        self.replay.fresh.clear()
        for number in [n for n, op in self.replay.ops.items() if op.future.done()]:
            del self.replay.ops[number]
        return self

    def op(self, name: str) -> Operation:
        """The operation of a name that the flow waits for."""
        (found,) = [one for one in self.open() if one.name == name]
        return found

    def open(self) -> list[Operation]:
        """What the flow waits for."""
        return [op for op in self.replay.ops.values() if not op.future.done()]

    def done(self, name: str | Operation, output: Any = None) -> Sim:
        """A step has ended."""
        op = self.op(name) if isinstance(name, str) else name
        return self.record("STEP_COMPLETED", op=op.number, name=op.name, output=output)

    def failed(self, name: str | Operation, type: str = "ValueError") -> Sim:  # noqa: A002
        """A step has failed."""
        op = self.op(name) if isinstance(name, str) else name
        error = {"type": type, "message": "no"}
        return self.record("STEP_FAILED", op=op.number, name=op.name, error=error)

    def tried(self, name: str | Operation) -> Sim:
        """A try has failed."""
        op = self.op(name) if isinstance(name, str) else name
        return self.record(
            "STEP_ATTEMPT_FAILED", op=op.number, name=op.name, attempt=op.attempts + 1,
            error={"type": "ValueError", "message": "no"},
        )  # fmt: skip

    def told(self) -> Sim:
        """The clock has been read."""
        return self.record(
            "VALUE_RECORDED", op=self.op("now").number, kind="now", value="2026-01-01T00:00:00+00:00"
        )

    def begun(self, name: str | Operation) -> Sim:
        """A child has begun."""
        op = self.op(name) if isinstance(name, str) else name
        assert isinstance(op.call, ChildCall)
        return self.record(
            "CHILD_STARTED", op=op.number, name=op.name, flow=op.call.flow, execution_id=op.call.execution_id
        )

    def park(self) -> Sim:
        """It is parked on all that it waits for."""
        waits = [op for op in self.open() if op.kind == "wait"]
        assert waits
        return self.record(
            "EXECUTION_SUSPENDED",
            waits=[{"wait": op.wait_id, "arms": [parked(arm) for arm in op.arms]} for op in waits],
        )

    def answer(self, name: str | Operation, arm: int = 0, payload: Any = None) -> Sim:
        """A wait is answered."""
        op = self.op(name) if isinstance(name, str) else name
        spec = parked(op.arms[arm])
        if "due" in spec:
            return self.record("TIMER_FIRED", wait=op.wait_id, arm=arm)
        if spec["topic"].startswith("$child/"):
            payload = {"status": "completed", "output": payload}
        return self.record(
            "MESSAGE_CONSUMED", wait=op.wait_id, arm=arm, topic=spec["topic"], inbox_seq=1, payload=payload,
            disposition="delivered",
        )  # fmt: skip

    def cancel(self) -> Sim:
        """Somebody wants it cancelled, and it is told."""
        self.record("EXECUTION_CANCEL_REQUESTED", principal="ann", reason=None)
        return self.record("CANCELLATION_DELIVERED", cancels=self.replay.under_way())

    @property
    def end(self) -> End | None:
        """How it ended."""
        return self.replay.end()

    def numbers(self) -> list[tuple[int, str]]:
        """Number and name of what it waits for."""
        return [(op.number, op.name) for op in self.open()]


def parked(arm: Arm[Any]) -> dict[str, Any]:
    """An arm as a park's event has it."""
    spec = arm.spec()
    if "gate" in spec:
        return {"topic": f"$gate/{spec['gate']}"}
    return {"due": "2026-01-01T00:00:00Z"} if "for" in spec else dict(spec)


def view(replay: Replay) -> View:
    """What a driver would have to do next, and how it ended."""
    waiting: list[tuple[int, str, str, list[dict[str, Any]], int]] = [
        (op.number, op.kind, op.name, [arm.spec() for arm in op.arms], op.attempts)
        for op in sorted(replay.ops.values(), key=lambda op: op.number)
        if not op.future.done()
    ]
    end = replay.end()
    return waiting if end is None else [], end


def replayed(code: Flow | Body, log: Sequence[Event], execution_id: str = "e") -> Replay:
    """A log, replayed with a flow's code."""
    replay = Replay(code if isinstance(code, Flow) else made(code), execution_id)
    replay.foresee(log)
    for kind, data in log:
        replay.apply(kind, data)
    replay.caught_up()
    return replay


Script = Callable[[Sim], Any]
