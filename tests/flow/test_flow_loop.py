"""The loop that a flow runs on: what it has, what it refuses, and how a flow on it is put aside (clause E5)."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.flow.sim import Sim, nothing, replayed
from underseal.errors import FlowError
from underseal.flow.context import FlowContext
from underseal.flow.loop import FlowLoop

Ctx = FlowContext


async def sleeps() -> None:
    await asyncio.sleep(0.1)


async def waits_for() -> None:
    await asyncio.wait_for(asyncio.Event().wait(), 1)


async def times_out() -> None:
    async with asyncio.timeout(1):
        await asyncio.Event().wait()


async def waits() -> None:
    await asyncio.wait([asyncio.ensure_future(asyncio.Event().wait())], timeout=1)


async def in_a_thread() -> None:
    await asyncio.to_thread(threading.get_ident)


async def in_a_pool() -> None:
    with ThreadPoolExecutor(1) as pool:
        await asyncio.get_running_loop().run_in_executor(pool, threading.get_ident)


async def threadsafe() -> None:
    asyncio.run_coroutine_threadsafe(asyncio.sleep(0), asyncio.get_running_loop())


async def looks_at_the_time() -> None:
    asyncio.get_running_loop().time()


async def later() -> None:
    asyncio.get_running_loop().call_later(1, print)


async def at() -> None:
    asyncio.get_running_loop().call_at(1, print)


@pytest.mark.clause("E5c")
@pytest.mark.filterwarnings("ignore:coroutine:RuntimeWarning")
@pytest.mark.parametrize(
    ("act", "instead"),
    [
        (sleeps, "ctx.sleep"),
        (waits_for, "ctx.select"),
        (times_out, "ctx.now"),
        (waits, "ctx.sleep"),
        (in_a_thread, "a step"),
        (in_a_pool, "a step"),
        (threadsafe, "a step"),
        (looks_at_the_time, "ctx.now"),
        (later, "ctx.sleep"),
        (at, "ctx.sleep"),
    ],
)
def test_what_is_not_recorded_is_refused(act: Callable[[], Coroutine[Any, Any, None]], instead: str) -> None:
    async def body(ctx: Ctx) -> None:
        await act()

    with Sim(body) as sim:
        assert sim.end is not None
        assert sim.end.kind == "failed"
        assert '"FlowError"' in sim.end.text
        assert instead in sim.end.text
    gc.collect()


@pytest.mark.clause("E5c")
async def test_a_future_from_outside_is_refused() -> None:
    outside: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def body(ctx: Ctx) -> None:
        await outside

    with Sim(body) as sim:
        assert sim.end is not None
        assert sim.end.kind == "failed"
        assert "FlowError" in sim.end.text
        assert "a step" in sim.end.text


@pytest.mark.clause("E5c")
def test_what_asyncio_has_beside_time_works() -> None:
    async def body(ctx: Ctx) -> list[int]:
        lock, event, line = asyncio.Lock(), asyncio.Event(), asyncio.Queue[int]()
        order: list[int] = []

        async def fill(number: int) -> None:
            async with lock:
                await ctx.run(f"s{number}", nothing)
                await line.put(number)
            if number == 2:
                event.set()

        tasks = [asyncio.create_task(fill(number)) for number in range(3)]
        await event.wait()
        await asyncio.sleep(0)
        async with asyncio.TaskGroup() as group:
            for _ in tasks:
                group.create_task(take(line, order))
        return order

    async def take(line: asyncio.Queue[int], order: list[int]) -> None:
        order.append(await line.get())

    with Sim(body).done("s0").done("s1").done("s2") as sim:
        assert sim.end is not None
        assert sim.end.text == "[0,1,2]"


async def test_a_flow_runs_inside_a_task_of_another_loop_and_leaves_it_as_it_was() -> None:
    seen: list[Any] = []

    async def body(ctx: Ctx) -> None:
        seen.append((asyncio.get_running_loop(), asyncio.current_task()))

    before = (asyncio.get_running_loop(), asyncio.current_task())
    with Sim(body):
        assert (asyncio.get_running_loop(), asyncio.current_task()) == before
    assert isinstance(seen[0][0], FlowLoop)
    assert seen[0][1] is not before[1]
    await asyncio.sleep(0)


# -- being put aside -------------------------------------------------------------------------------------


def put_aside(body: Any) -> list[str]:
    """What is logged as a flow is put aside."""
    told: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: told.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("underseal.flow")
    logger.addHandler(handler)
    try:
        sim = Sim(body)
        sim.replay.close()
    finally:
        logger.removeHandler(handler)
    gc.collect()
    return told


@pytest.mark.clause("E6a")
@pytest.mark.parametrize(
    "how", ["raises", "steps", "exits", "nested", "groups", "asks", "swallows", "returns"]
)
def test_a_flow_may_do_anything_as_it_is_put_aside(how: str) -> None:  # noqa: C901 -- each case is a line
    ran: list[str] = []

    async def body(ctx: Ctx) -> None:  # noqa: C901
        try:
            if how == "groups":
                async with asyncio.TaskGroup() as group:
                    for number in range(3):
                        group.create_task(inner(ctx, number))
            else:
                await ctx.receive("x")
        except GeneratorExit:
            if how == "swallows":
                await ctx.receive("y")
            if how == "returns":
                return
            raise
        finally:
            ran.append("own")
            if how == "raises":
                raise ValueError("no")
            if how == "steps":
                await ctx.run("undo", nothing)
            if how == "exits":
                raise SystemExit(1)
            if how == "nested":
                await asyncio.shield(asyncio.ensure_future(asyncio.Event().wait()))
            if how == "asks":
                ctx.random()

    async def inner(ctx: Ctx, number: int) -> None:
        try:
            await ctx.run(f"s{number}", nothing)
        finally:
            ran.append("inner")

    assert put_aside(body) == []
    assert ran == (["inner"] * 3 + ["own"] if how == "groups" else ["own"])


@pytest.mark.clause("E6a")
async def test_no_task_of_a_flow_that_is_put_aside_runs_outside() -> None:
    ran: list[str] = []

    async def stray() -> None:
        ran.append("stray")

    async def body(ctx: Ctx) -> None:
        try:
            await ctx.receive("x")
        finally:
            task = asyncio.create_task(stray())
            ran.append(str(task))

    sim = Sim(body)
    sim.replay.close()
    await asyncio.sleep(0)
    assert ran == []


def test_a_flow_that_goes_on_for_ever_is_left_and_said() -> None:
    def body() -> Any:
        async def run(ctx: Ctx) -> None:
            while True:
                try:
                    await asyncio.get_running_loop().create_future()
                except GeneratorExit:
                    if not tired:
                        continue
                    raise

        return run

    tired: list[int] = []
    sim = Sim(body())
    told: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: told.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("underseal.flow").addHandler(handler)
    try:
        sim.replay.close()
    finally:
        logging.getLogger("underseal.flow").removeHandler(handler)
        tired.append(1)
    assert len(told) == 1
    assert "goes on awaiting" in told[0]


def test_a_loop_that_is_closed_takes_nothing() -> None:
    loop = FlowLoop()  # type: ignore[abstract]
    loop.close()
    ran: list[int] = []
    loop.call_soon(ran.append, 1)
    with pytest.raises(FlowError):
        loop.create_task(asyncio.sleep(0))
    loop.run_until_idle()
    assert ran == []
    assert loop.is_closed()
    assert loop.is_running()
    assert not loop.get_debug()


@pytest.mark.clause("E5a")
def test_the_flows_context_variables_are_its_own() -> None:
    from contextvars import ContextVar

    var = ContextVar("var", default="outside")

    async def body(ctx: Ctx) -> str:
        var.set("inside")
        await ctx.run("s", nothing)
        return var.get()

    with Sim(body).done("s") as sim:
        assert sim.end is not None
        assert sim.end.text == '"inside"'
        assert replayed(sim.code, sim.log).end() == sim.end
    assert var.get() == "outside"


@pytest.mark.clause("E5a")
def test_a_sets_order_follows_from_the_numbers_alone() -> None:
    def order(count: int) -> list[int]:
        loop = FlowLoop()  # type: ignore[abstract]
        futures = [loop.create_future() for _ in range(count)]
        places = {future: place for place, future in enumerate(futures)}
        return [places[future] for future in set(futures[::3])]

    for count in (10, 100, 1000):
        first = order(count)
        assert all(order(count) == first for _ in range(20))
