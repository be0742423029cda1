"""What a flow waits for on a real database: time, messages, gates, the first of several (clauses E6, E7)."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.flow.nodes import OWNER, World, until
from underseal.flow.context import FlowContext
from underseal.flow.definition import flow
from underseal.testing import TestClock

Ctx = FlowContext


async def give(value: Any) -> Any:
    """A step that gives what it is given."""
    return value


@pytest.mark.clause("E6b")
async def test_a_flow_sleeps_by_the_databases_clock(timed: World, clock: TestClock) -> None:
    @flow("f")
    async def body(ctx: Ctx) -> list[str]:
        before = await ctx.now()
        await ctx.sleep(timedelta(hours=1), minutes=30)
        return [str(await ctx.now() - before)]

    node = timed.node(body)
    execution = await node.start("f")
    await timed.parks(execution)
    assert node.driven == set()
    clock.advance(minutes=89, seconds=59)
    await asyncio.sleep(0.05)
    assert await timed.status(execution) == "suspended"
    clock.advance(seconds=1)
    assert await node.result(execution) == ["1:30:00"]


@pytest.mark.clause("E6b")
async def test_a_crash_does_not_prolong_a_sleep_that_was_parked(timed: World, clock: TestClock) -> None:
    @flow("f")
    async def body(ctx: Ctx) -> None:
        await ctx.sleep(hours=1)

    node = timed.node(body)
    execution = await node.start("f")
    await timed.parks(execution)
    await node.kill()
    clock.advance(minutes=60)
    await timed.node(body).result(execution)


@pytest.mark.clause("E6b")
async def test_no_sleep_at_all_is_one(w: World) -> None:
    @flow("f")
    async def body(ctx: Ctx) -> int:
        for _ in range(3):
            await ctx.sleep()
        return 1

    assert await w.node(body).run("f") == 1


@pytest.mark.clause("E6b", "E7a")
async def test_messages_come_once_and_in_order(w: World) -> None:
    @flow("f")
    async def body(ctx: Ctx) -> Any:
        return [await ctx.receive("a") for _ in range(3)] + [await ctx.receive("b")]

    node = w.node(body)
    execution = await node.start("f")
    await w.send(execution, "b", "first of b")
    for number in range(4):
        await w.send(execution, "a", number, message_id=f"m{number}")
        await w.send(execution, "a", number, message_id=f"m{number}")
    assert await node.result(execution) == [0, 1, 2, "first of b"]


@pytest.mark.clause("E7a")
async def test_a_send_right_before_the_first_receive_is_not_lost(w: World) -> None:
    @flow("f")
    async def body(ctx: Ctx) -> Any:
        await ctx.run("s", give, 1)
        return await ctx.receive("a")

    node = w.node(body)
    for number in range(20):
        execution = await w.begin("f")
        if number % 2:
            await asyncio.sleep(0.01)
        await w.send(execution, "a", number)
        assert await node.result(execution) == number


@pytest.mark.clause("E7a")
async def test_a_send_while_the_park_is_being_written_is_not_lost(w: World) -> None:
    @flow("f")
    async def body(ctx: Ctx) -> Any:
        await ctx.run("s", give, 1)
        return await ctx.receive("a")

    node = w.node(body)
    stop = node.faults.stop_at('"park"')
    execution = await node.start("f")
    await until(stop.reached.is_set)
    await w.send(execution, "a", 5)
    stop.go.set()
    assert await node.result(execution) == 5
    assert (await w.types(execution))[-3:] == [
        "EXECUTION_SUSPENDED",
        "MESSAGE_CONSUMED",
        "EXECUTION_COMPLETED",
    ]


@pytest.mark.clause("E6b", "E7c")
async def test_an_answer_to_a_gate_comes_before_or_after(w: World) -> None:
    @flow("f")
    async def body(ctx: Ctx) -> Any:
        first = await ctx.gate("early")
        return [first, await ctx.gate("late")]

    node = w.node(body)
    execution = await w.begin("f")
    await w.executions.resume(execution, "early", {"a": 1}, OWNER)
    await w.comes_to(execution, "suspended")
    await w.executions.resume(execution, "late", "yes", OWNER)
    assert await node.result(execution) == [{"a": 1}, "yes"]
    assert (await w.executions.resume(execution, "late", "again", OWNER)).outcome == "conflict"


@pytest.mark.clause("E6b")
async def test_the_first_named_of_the_arms_that_can_be_answered_is(w: World) -> None:
    @flow("f")
    async def body(ctx: Ctx) -> Any:
        told = []
        for arms in (("b", "a"), ("a", "b")):
            picked = await ctx.select(*[ctx.receive(topic) for topic in arms], ctx.sleep(days=1))
            told.append([picked.index, picked.value])
        picked = await ctx.select(ctx.sleep(), ctx.receive("a"), ctx.receive("b"))
        told.append([picked.index, picked.value])
        return told

    execution = await w.begin("f")
    for topic in "aabb":
        await w.send(execution, topic, topic)
    assert await w.node(body).result(execution) == [[0, "b"], [0, "a"], [0, None]]


@pytest.mark.clause("E6b")
async def test_a_timeout_is_a_select_with_a_sleep(timed: World, clock: TestClock) -> None:
    @flow("f")
    async def body(ctx: Ctx) -> Any:
        first = await ctx.select(ctx.receive("a"), ctx.sleep(minutes=5))
        second = await ctx.select(ctx.receive("a"), ctx.sleep(minutes=5))
        return [first.index, second.index, second.value]

    node = timed.node(body)
    execution = await node.start("f")
    await timed.parks(execution)
    clock.advance(minutes=5)
    await until(lambda: _told(timed, execution, "TIMER_FIRED"))
    await timed.parks(execution)
    await timed.send(execution, "a", 7)
    assert await node.result(execution) == [1, 0, 7]


async def _told(w: World, execution: str, kind: str) -> bool:
    return kind in await w.types(execution)


@pytest.mark.clause("E6b")
async def test_several_tasks_wait_side_by_side(w: World) -> None:
    @flow("f")
    async def body(ctx: Ctx) -> Any:
        async def pair(topic: str) -> list[Any]:
            return [await ctx.receive(topic), await ctx.receive(topic)]

        return await asyncio.gather(pair("a"), pair("b"), ctx.gate("g"))

    node = w.node(body)
    execution = await node.start("f")
    await w.parks(execution)
    for topic, value in (("b", 1), ("a", 2), ("b", 3)):
        await w.send(execution, topic, value)
        await asyncio.sleep(0.03)
    await w.executions.resume(execution, "g", 9, OWNER)
    await w.send(execution, "a", 4)
    assert await node.result(execution) == [[2, 4], [1, 3], 9]


@pytest.mark.clause("E6b")
async def test_a_sleep_that_began_with_a_step_counts_from_there(timed: World, clock: TestClock) -> None:
    """The step outlasts it; it fires when nothing else runs, and is not counted anew."""

    async def slow() -> None:
        await asyncio.sleep(0.3)

    @flow("f")
    async def body(ctx: Ctx) -> Any:
        step = ctx.run("slow", slow)
        picked = asyncio.ensure_future(ctx.select(ctx.receive("a"), ctx.sleep(seconds=0.2)))
        await step
        return (await picked).index

    # the clock of the database stands still: only what went by here is left of the sleep
    assert await timed.node(body).run("f") == 1


@pytest.mark.clause("E5a")
async def test_recorded_values_are_the_same_after_a_crash(w: World) -> None:
    seen: list[list[str]] = []

    @flow("f")
    async def body(ctx: Ctx) -> Any:
        values = [str(ctx.random()), str(ctx.uuid()), (await ctx.now()).isoformat()]
        seen.append(values)
        await ctx.receive("a")
        values += [str(ctx.random())]
        return values

    node = w.node(body)
    execution = await node.start("f")
    await w.parks(execution)
    await node.kill()
    node = w.node(body)
    await w.send(execution, "a")
    result = await node.result(execution)
    assert seen[0] == seen[1][:3] == result[:3]
    assert 0 <= float(result[0]) < 1
    assert result[0] != result[3]
    datetime.fromisoformat(result[2])


@pytest.mark.clause("E5b")
async def test_a_flow_that_waits_for_nothing_is_no_failure(w: World) -> None:
    @flow("f")
    async def body(ctx: Ctx) -> None:
        await asyncio.Event().wait()

    execution = await w.node(body).start("f")
    await w.parks(execution)
    (told,) = await w.data(execution, "FLOW_DIVERGED")
    assert "waits for nothing" in told["found"]
    await until(lambda: w.reports("flow-diverged"))
