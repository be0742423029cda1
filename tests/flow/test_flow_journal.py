"""What is on disk before an effect starts, and what starts nothing any more (clauses E6, E8; DESIGN 8)."""

from __future__ import annotations

import asyncio
import gc
import time
from datetime import timedelta
from typing import Any, cast

import psycopg
import pytest

from tests.flow.nodes import World, until
from underseal.errors import ExecutionAlreadyExistsError, ExecutionFailed, ExecutionRefusedError, FlowError
from underseal.flow.context import FlowContext
from underseal.flow.definition import flow
from underseal.flow.keeper import ClaimKeeper
from underseal.flow.runtime import Limits

Ctx = FlowContext


async def give(value: Any) -> Any:
    """A step that gives what it is given."""
    return value


@pytest.mark.clause("E6h")
@pytest.mark.parametrize("journal", ["safe", "behind"])
async def test_an_effect_starts_when_all_before_it_is_on_disk(w: World, journal: Any) -> None:
    spent: list[str] = []

    async def spend(key: str) -> None:
        spent.append(key)

    @flow("f", journal=journal)
    async def body(ctx: Ctx) -> Any:
        key = await ctx.run("draw", give, "key")
        await ctx.run("spend", spend, key)
        await ctx.run("first of two", give, 1)
        token = ctx.random()
        await ctx.run("spend again", spend, str(token))

    node = w.node(body)
    stop = node.faults.stop_at('"draw"')
    execution = await node.start("f")
    await until(stop.reached.is_set)
    await asyncio.sleep(0.03)
    assert spent == ([] if journal == "safe" else ["key"]) or (journal == "behind" and spent[0] == "key")
    if journal == "safe":
        assert "STEP_COMPLETED" not in await w.types(execution)
        again = node.faults.stop_at('"random"')
        stop.go.set()
        await until(again.reached.is_set)
        await asyncio.sleep(0.03)
        assert spent == ["key"]
        again.go.set()
    stop.go.set()
    await node.result(execution)
    assert len(spent) == 2


@pytest.mark.clause("E6h")
@pytest.mark.parametrize("journal", ["safe", "behind"])
async def test_what_ends_while_a_write_is_under_way_is_written_next(w: World, journal: Any) -> None:
    """The flow ends, parks or goes on while what came before is on its way to the disk."""
    first, second = asyncio.Event(), asyncio.Event()

    @flow("f", journal=journal)
    async def body(ctx: Ctx, how: str) -> Any:
        await asyncio.gather(ctx.run("one", first.wait), ctx.run("two", second.wait))
        if how == "park":
            await ctx.receive("a")
        if how == "fail":
            raise ValueError
        if how == "continue":
            ctx.continue_as_new("end")
        return how

    node = w.node(body)
    for how in ("end", "park", "fail", "continue"):
        first.clear()
        second.clear()
        execution = await node.start("f", how)
        stop = node.faults.stop_at('"one"')
        first.set()
        await until(stop.reached.is_set)
        second.set()
        await asyncio.sleep(0.02)
        stop.go.set()
        if how == "park":
            await w.send(execution, "a")
        if how == "fail":
            with pytest.raises(ExecutionFailed):
                await node.result(execution)
        else:
            await node.result(execution)


@pytest.mark.clause("E6h")
async def test_nothing_starts_after_a_refused_write(w: World) -> None:
    ran: list[str] = []

    async def late() -> None:
        ran.append("late")

    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ran.append("cancelled")

    @flow("f", journal="behind")
    async def body(ctx: Ctx) -> None:
        beside = ctx.run("slow", slow)
        # the kernel counts the whole event, and says no
        await ctx.run("big", give, "é" * 500_000 + "\\" * 22_000)
        await ctx.receive("never")
        await ctx.run("late", late)
        await beside

    node = w.node(body)
    real = node.runtime.journal._write

    async def refusing(items: Any) -> Any:
        return await real([item.replace('"type":"STEP_COMPLETED"', '"type":"bad type"') for item in items])

    node.runtime.journal._write = refusing
    execution = await node.start("f")
    with pytest.raises(ExecutionFailed) as caught:
        await node.result(execution)
    assert caught.value.error is not None
    assert caught.value.error["type"] == "WriteRefused"
    assert "malformed-type" in str(caught.value.error["message"])
    assert ran == ["cancelled"]


@pytest.mark.clause("E6h")
async def test_what_cannot_even_fail_is_put_off(w: World) -> None:
    @flow("f")
    async def body(ctx: Ctx) -> None:
        await ctx.run("s", give, 1)

    node = w.node(body)
    real = node.runtime.journal._write

    async def breaking(items: Any) -> Any:
        if any('"verb":"start"' not in item for item in items):
            raise psycopg.DataError("cannot take it")
        return await real(items)

    node.runtime.journal._write = breaking
    execution = await node.start("f")
    await until(lambda: node.faults.calls["put_off"])
    await until(lambda: w.wakes(execution)[0]["claimed_by"] is None)
    assert node.driven == set()
    assert await w.status(execution) in ("pending", "running")


@pytest.mark.clause("E6h")
async def test_one_bad_item_harms_none_beside_it(w: World) -> None:
    @flow("f")
    async def body(ctx: Ctx, value: Any) -> Any:
        return await ctx.run("s", give, value)

    node = w.node(body, limits=Limits(lanes=1))
    real = node.runtime.journal._write

    async def breaking(items: Any) -> Any:
        if any('"output":"bad"' in item for item in items):
            raise psycopg.DataError("cannot take it")
        return await real(items)

    node.runtime.journal._write = breaking
    shut = node.faults.shut("nothing")
    assert not shut.is_set()
    told = await asyncio.gather(*[node.run("f", one) for one in (1, 2, "bad", 3, 4)], return_exceptions=True)
    assert [one for one in told if not isinstance(one, BaseException)] == [1, 2, 3, 4]
    assert isinstance(told[2], ExecutionFailed)


@pytest.mark.clause("E8a")
async def test_nothing_starts_after_a_lost_claim(w: World) -> None:
    ran: list[str] = []
    began = asyncio.Event()

    async def slow() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ran.append("cancelled")

    @flow("f")
    async def body(ctx: Ctx) -> None:
        await ctx.run("slow", slow)
        await ctx.run("late", give, 1)

    node = w.node(body, lease=timedelta(seconds=1))
    execution = await node.start("f")
    await until(began.is_set)
    await w.driver.acquire_fence(execution)
    w.admin.execute("update underseal.wake set claimed_by = 'other'")
    await until(lambda: ran == ["cancelled"])
    assert node.driven == set()
    assert node.runtime.counts.lost == 1
    assert await w.types(execution) == ["EXECUTION_STARTED"]


@pytest.mark.clause("E8a")
async def test_a_stale_fence_ends_the_driving(w: World) -> None:
    go = asyncio.Event()

    @flow("f")
    async def body(ctx: Ctx) -> None:
        await ctx.run("slow", go.wait)
        await ctx.run("late", give, 1)

    node = w.make(body, claims=False).serve()
    execution = await node.start("f")
    await w.driver.acquire_fence(execution)
    go.set()
    await until(lambda: not node.driven)
    assert await w.types(execution) == ["EXECUTION_STARTED"]


@pytest.mark.clause("E8a")
async def test_claims_are_renewed_while_a_step_outlasts_its_lease(w: World) -> None:
    """And every other timeout around it: it is run once, by one node, while another looks on."""
    ran: list[int] = []

    async def long() -> int:
        ran.append(1)
        await asyncio.sleep(1.6)
        return 7

    @flow("f")
    async def body(ctx: Ctx) -> Any:
        picked = asyncio.ensure_future(ctx.select(ctx.receive("a"), ctx.sleep(seconds=0.1)))
        return [await ctx.run("long", long), (await picked).index]

    node, other = w.node(body, lease=timedelta(seconds=1)), w.node(body, lease=timedelta(seconds=1))
    execution = await node.start("f")
    assert await node.result(execution) == [7, 1]
    assert ran == [1]
    assert node.faults.calls["renew"] >= 3
    assert "EXECUTION_RECOVERED" not in await w.types(execution)
    assert other.runtime.counts.lost == node.runtime.counts.lost == 0


@pytest.mark.clause("E8a")
async def test_a_node_that_was_stalled_starts_no_further_effect(w: World) -> None:
    ran: list[str] = []
    began = asyncio.Event()

    async def step(name: str) -> None:
        ran.append(name)
        began.set()

    @flow("f")
    async def body(ctx: Ctx) -> None:
        await ctx.run("one", step, "one")
        await ctx.run("two", step, "two")

    node = w.make(body, lease=timedelta(seconds=1), claims=False).serve()
    stop = node.faults.stop_at('"one"')
    execution = await node.start("f")
    await until(stop.reached.is_set)
    shut = node.faults.shut("renew")
    stop.go.set()
    time.sleep(1.1)  # noqa: ASYNC251 -- the loop is stalled past the lease
    await asyncio.sleep(0.1)
    assert ran == ["one"]
    w.admin.execute(
        "update underseal.wake set claimed_by = 'other', claimed_until = underseal.clock() + interval '9 s'"
    )
    node.faults.open("renew")
    assert shut.is_set()
    await until(lambda: not node.driven)
    assert ran == ["one"]
    assert await w.status(execution) == "running"


@pytest.mark.clause("E8a")
async def test_a_claim_that_nobody_took_meanwhile_is_renewed_and_goes_on(w: World) -> None:
    @flow("f")
    async def body(ctx: Ctx) -> int:
        await ctx.run("one", give, 1)
        return int(await ctx.run("two", give, 2))

    node = w.make(body, lease=timedelta(seconds=1), claims=False).serve()
    stop = node.faults.stop_at('"one"')
    execution = await node.start("f")
    await until(stop.reached.is_set)
    node.faults.lose("renew", "before")
    stop.go.set()
    time.sleep(1.1)  # noqa: ASYNC251 -- the loop is stalled past the lease
    assert await node.result(execution) == 2


# -- starting ------------------------------------------------------------------------------------------


async def test_an_id_that_is_taken_is_said(w: World) -> None:
    @flow("f")
    async def body(ctx: Ctx) -> None:
        await ctx.receive("a")

    node, other = w.node(body), w.node(body)
    await node.start("f", execution_id="e")
    for one in (node, other):
        with pytest.raises(ExecutionAlreadyExistsError):
            await one.start("f", execution_id="e")
    with pytest.raises(ExecutionRefusedError):
        await node.start("f", execution_id="a~~b")
    with pytest.raises(FlowError, match="expected a flow that this process knows"):
        await node.start("g")
    with pytest.raises(ValueError, match="the input of the flow"):
        await node.start("f", float("nan"))


async def test_starts_wait_for_room_and_never_exceed_it(w: World) -> None:
    most, done = 0, 0

    @flow("f", journal="behind")
    async def body(ctx: Ctx, value: int) -> None:
        nonlocal most, done
        most = max(most, len(node.driven))
        done += 1

    node = w.node(body, limits=Limits(executions=100))
    gc.collect()
    began = time.monotonic()
    tasks = [asyncio.create_task(node.start("f", number)) for number in range(10_000)]
    await asyncio.sleep(0)
    biggest = 0
    while not all(task.done() for task in tasks):
        biggest = max(biggest, len(node.runtime.journal._waiting), len(node.driven))
        await asyncio.sleep(0.001)
    await until(lambda: node.runtime.counts.completed == 10_000)
    assert done == 10_000
    assert most <= 100
    assert biggest <= 100
    assert time.monotonic() - began < 60
    await until(lambda: node.runtime._promised == 0)
    assert not node.runtime._queue
    assert node.driven == set()
    assert not cast(ClaimKeeper, node.runtime.keeper)._until


async def test_starts_are_taken_in_their_order_and_may_give_up(w: World) -> None:
    order: list[int] = []
    go = asyncio.Event()

    async def wait(value: int) -> None:
        order.append(value)
        await go.wait()

    @flow("f")
    async def body(ctx: Ctx, value: int) -> None:
        await ctx.run("s", wait, value)

    node = w.make(body, limits=Limits(executions=1), claims=False).serve()
    tasks = [asyncio.create_task(node.start("f", number)) for number in range(5)]
    await until(lambda: order == [0])
    tasks[2].cancel()
    go.set()
    await until(lambda: node.runtime.counts.completed == 4)
    assert order == [0, 1, 3, 4]
    await asyncio.wait(tasks)


async def test_claims_and_starts_together_keep_to_the_limit(w: World) -> None:
    most = 0

    async def look() -> None:
        nonlocal most
        most = max(most, len(node.driven))
        await asyncio.sleep(0.003)

    @flow("f")
    async def body(ctx: Ctx) -> None:
        await ctx.run("s", look)

    for _ in range(60):
        await w.begin("f")
    node = w.node(body, limits=Limits(executions=10))
    await asyncio.gather(*[node.start("f") for _ in range(60)])
    await until(lambda: node.runtime.counts.completed == 120)
    assert most <= 10


async def test_writers_wait_while_too_much_waits(w: World) -> None:
    @flow("f")
    async def body(ctx: Ctx) -> None:
        await ctx.run("s", give, 1)

    node = w.make(body)
    node.runtime.journal._most_waiting = 4
    tasks = [asyncio.create_task(node.start("f")) for _ in range(20)]
    await asyncio.sleep(0.02)
    assert len(node.runtime.journal._waiting) <= 20
    blocked = asyncio.create_task(node.start("f"))
    await asyncio.sleep(0.02)
    assert blocked not in [one for one in tasks if one.done()]
    assert len(node.driven) <= 20
    node.serve()
    await asyncio.gather(*tasks, blocked)


async def test_what_stops_gives_everything_back(w: World) -> None:
    go, began = asyncio.Event(), asyncio.Event()

    async def slow() -> int:
        began.set()
        await go.wait()
        return 5

    @flow("f")
    async def body(ctx: Ctx) -> Any:
        first = await ctx.run("slow", slow)
        return [first, await ctx.run("next", give, 1)]

    node = w.node(body)
    execution = await node.start("f")
    await until(began.is_set)
    stopping = asyncio.create_task(node.stop())
    await asyncio.sleep(0.02)
    with pytest.raises(FlowError, match="stops"):
        await node.start("f")
    go.set()
    await stopping
    assert [one["name"] for one in await w.data(execution, "STEP_COMPLETED")] == ["slow"]
    (wake,) = w.wakes(execution)
    assert wake["claimed_by"] is None
    assert wake["attempts"] == 0
    assert await w.node(body).result(execution) == [5, 1]
    assert "EXECUTION_RECOVERED" not in await w.types(execution)


async def test_a_step_that_outlasts_the_grace_is_begun_anew_elsewhere(w: World) -> None:
    ran: list[int] = []

    async def slow() -> None:
        ran.append(1)
        if len(ran) == 1:
            await asyncio.Event().wait()

    @flow("f")
    async def body(ctx: Ctx) -> None:
        await ctx.run("slow", slow)

    node = w.node(body)
    execution = await node.start("f")
    await until(lambda: ran)
    await node.stop(grace=0.02)
    await w.node(body).result(execution)
    assert ran == [1, 1]
    assert "EXECUTION_RECOVERED" not in await w.types(execution)


@pytest.mark.clause("E8a")
async def test_what_is_killed_runs_nothing_on(w: World) -> None:
    ran: list[str] = []
    began, go = asyncio.Event(), asyncio.Event()

    async def slow() -> None:
        began.set()
        await go.wait()
        ran.append("slow")

    @flow("f", journal="behind")
    async def body(ctx: Ctx) -> None:
        await ctx.run("slow", slow)
        await ctx.run("more", slow)

    node = w.node(body)
    await node.start("f")
    await until(began.is_set)
    await node.kill()
    go.set()
    await asyncio.sleep(0.02)
    assert ran == []
