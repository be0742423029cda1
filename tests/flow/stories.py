"""Random flows, and logs of them as a driver could have written them, without a database."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any
from uuid import UUID

from underseal.errors import ChildFailed, HoldEnded, StepError
from underseal.flow.context import FlowContext
from underseal.flow.definition import Flow, flow
from underseal.flow.operation import HoldCall, Operation
from underseal.flow.replay import Replay
from underseal.flow.state import Event

Program = list[Any]


def program(random: Random, depth: int = 2, length: int = 6) -> Program:
    """What a flow does: a list of operations, some of which hold lists."""
    kinds = [
        "run",
        "run",
        "now",
        "random",
        "uuid",
        "sleep",
        "receive",
        "gate",
        "select",
        "child",
        "hold",
        "pick",
    ]
    made: Program = []
    for _ in range(random.randint(1, length)):
        kind = random.choice([*kinds, "all", "drop"] if depth else kinds)
        inner = [program(random, depth - 1, 3) for _ in range(2)] if kind in ("all", "drop") else []
        made.append([kind, random.choice("abc"), *inner])
    return made


def effect(*_: Any) -> None:
    """A step; the story says what came of it."""


async def _one(ctx: FlowContext, op: list[Any]) -> Any:
    kind, name = op[:2]
    if kind == "all":
        return await asyncio.gather(*(_play(ctx, one) for one in op[2:]))
    if kind == "drop":
        # something is begun and given up
        given_up = asyncio.ensure_future(_play(ctx, op[2]))
        told = await _play(ctx, op[3])
        given_up.cancel()
        return told
    if kind == "select":
        picked = await ctx.select(ctx.receive(name), ctx.sleep(seconds=5), ctx.gate(name))
        return [picked.index, picked.value]
    if kind == "pick":
        began = ctx.child("other", 1, name=name)
        await ctx.run("meanwhile", effect)
        return (await ctx.select(began, ctx.receive(name))).value
    if kind in ("random", "uuid"):
        return str(ctx.random() if kind == "random" else ctx.uuid())
    calls: dict[str, Callable[[], Any]] = {
        "run": lambda: ctx.run(name, effect),
        "now": ctx.now,
        "sleep": lambda: ctx.sleep(seconds=9),
        "receive": lambda: ctx.receive(name),
        "gate": lambda: ctx.gate(name),
        "child": lambda: ctx.child("other", 1, name=name),
        "hold": lambda: ctx.hold(name, {}),
    }
    result = await calls[kind]()
    return result.isoformat() if kind == "now" else result


async def _play(ctx: FlowContext, operations: Program) -> list[Any]:
    told = []
    for op in operations:
        try:
            told.append(await _one(ctx, op))
        except (StepError, ChildFailed, HoldEnded) as error:
            told.append(str(error))
    return told


@flow("story")
async def story(ctx: FlowContext, operations: Program) -> list[Any]:
    """Plays a program; told to stop, it cleans up with one more step."""
    try:
        return [ctx.version, await _play(ctx, operations), ctx.version]
    except asyncio.CancelledError:
        await ctx.run("clean", effect)
        raise


@dataclass
class Story:
    """A log that grows as a driver, its clock and other people would have it grow.

    Parameters:
        random: decides what happens next.
        operations: what the flow does.
    """

    random: Random
    operations: Program
    code: Flow = story
    log: list[Event] = field(default_factory=list)
    cancels: bool = True

    def __post_init__(self) -> None:
        self.replay = Replay(self.code, "c")
        self.replay.caught_up()
        self.put(
            "EXECUTION_STARTED",
            {"flow": "story", "flow_version": 1, "owner": "ann", "input": self.operations},
        )

    def put(self, kind: str, data: dict[str, Any]) -> None:
        """One more event."""
        self.log.append((kind, data))
        self.replay.apply(kind, data)
        self.log += self.replay.emitted
        self.replay.emitted.clear()
        self.replay.fresh.clear()
        for number in [number for number, op in self.replay.ops.items() if op.future.done()]:
            del self.replay.ops[number]

    def told(self, most: int = 150) -> list[Event]:
        """Let it happen, to its end or so many events."""
        while self.replay.end() is None and len(self.log) < most:
            self._happens()
        return self.log

    def _happens(self) -> None:
        chance = self.random.random()
        if chance < 0.1:
            self._beside()
        elif self.cancels and chance < 0.12 and not self.replay.cancelling:
            self.put("EXECUTION_CANCEL_REQUESTED", {"principal": "ann", "reason": None})
            self.put("CANCELLATION_DELIVERED", {"cancels": self.replay.under_way()})
        else:
            busy = [op for op in self.replay.ops.values() if not op.waits]
            if busy:
                self._effect(self.random.choice(busy))
            else:
                self._park()

    def _beside(self) -> None:
        beside: list[Event] = [
            ("EXECUTION_RECOVERED", {"worker": "w", "attempt": 1}),
            ("OUTCOME_RECORDED", {"outcome": 1, "principal": "ann"}),
            ("EXECUTION_MIGRATED", {"flow_version": self.random.randint(1, 9), "principal": "ann"}),
            ("MESSAGE_CONSUMED", {"topic": "a", "inbox_seq": 1, "disposition": "expired"}),
            ("NOTED_BY_THE_HOST", {"note": 1}),
        ]
        self.put(*self.random.choice(beside))

    def _effect(self, op: Operation) -> None:
        told: dict[str, Any] = {"op": op.number, "name": op.name}
        error = {"type": "ValueError", "message": "no"}
        if op.kind == "now":
            self.put("VALUE_RECORDED", {"op": op.number, "kind": "now", "value": "2030-01-01T00:00:00+00:00"})
        elif op.kind == "child":
            which = getattr(op.call, "execution_id")  # noqa: B009 -- of the call that a child has
            self.put("CHILD_STARTED", told | {"flow": "other", "execution_id": which})
        elif isinstance(op.call, HoldCall):
            which = str(UUID(int=op.number))
            held = {"op": op.number, "type": op.name, "operation_id": which}
            if op.intent is None:
                self.put("HOLD_REQUESTED", held)
            elif self.random.random() < 0.3:
                self.put("CALL_REFUSED", told | {"kind": "hold", "error": error})
            else:
                self.put("HOLD_OPENED", held)
        elif self.random.random() < 0.5:
            self.put("STEP_COMPLETED", told | {"output": f"{op.name}{op.number}"})
        elif self.random.random() < 0.3:
            self.put("STEP_FAILED", told | {"error": error})
        else:
            if self.random.random() < 0.7:
                op.resting = 9.0
            self.put("STEP_ATTEMPT_FAILED", told | {"attempt": op.attempts + 1, "error": error})

    def _park(self) -> None:
        waiting = [op for op in self.replay.ops.values() if op.waits]
        arms = {
            op.wait_id: [self._arm(spec) for spec in ([{"for": 1}] if op.resting else _specs(op))]
            for op in waiting
        }
        self.put(
            "EXECUTION_SUSPENDED", {"waits": [{"wait": name, "arms": each} for name, each in arms.items()]}
        )
        # one answer or several; the others are still waited for then
        for op in self.random.sample(waiting, self.random.randint(1, len(waiting))):
            if op.future.done() or self.replay.ops.get(op.number) is not op:
                continue
            place = self.random.randrange(len(arms[op.wait_id]))
            self._answer(op, place, arms[op.wait_id][place])

    @staticmethod
    def _arm(spec: dict[str, Any]) -> dict[str, Any]:
        if "gate" in spec:
            return {"topic": f"$gate/{spec['gate']}"}
        return {"due": "2030-01-01T00:00:00Z"} if "for" in spec else {"topic": spec["topic"]}

    def _answer(self, op: Operation, place: int, arm: dict[str, Any]) -> None:
        answered: dict[str, Any] = {"wait": op.wait_id, "arm": place}
        if "topic" not in arm:
            self.put("TIMER_FIRED", answered)
            return
        topic = arm["topic"]
        payload: Any = {"said": op.number}
        if topic.startswith("$child/"):
            payload = {"status": "failed", "error": {"type": "X", "message": "y"}}
        elif topic.startswith("$hold/"):
            payload = {"operation_id": topic[6:], "state": "SUCCEEDED", "result": op.number}
        self.put(
            "MESSAGE_CONSUMED",
            answered | {"topic": topic, "inbox_seq": 1, "key": "00", "message_id": "m", "sender": "ann",
                        "disposition": "delivered", "payload": payload},
        )  # fmt: skip


def _specs(op: Operation) -> list[dict[str, Any]]:
    return [arm.spec() for arm in op.arms]


def replayed(code: Flow, history: Sequence[Event], execution_id: str = "c") -> Replay:
    """A replay of a history, to its end."""
    replay = Replay(code, execution_id)
    replay.foresee(history)
    for kind, data in history:
        replay.apply(kind, data)
    replay.caught_up()
    return replay


def come_to(replay: Replay) -> dict[str, Any]:
    """Everything that a driver goes on from."""
    open_ops = {
        op.number: (op.kind, op.name, op.attempts, op.intent, op.resting, op.wait_id, str(op.call)[:60])
        for op in replay.ops.values()
        if not op.future.done()
    }
    return {
        "end": replay.end(),
        "ops": open_ops,
        "arms": {
            op.number: [arm.spec() for arm in op.arms] for op in replay.ops.values() if not op.future.done()
        },
        "emitted": replay.emitted,
        "version": replay.version,
        "owner": replay.owner,
        "cancel_requested": replay.cancel_requested,
        "cancelling": replay.cancelling,
        "cancels": replay.cancels,
        "begun": replay.begun,
        "waits": {name: [arm.get("topic") for arm in arms] for name, arms in replay.recorded_waits.items()},
        "next": replay.next_number,
    }
