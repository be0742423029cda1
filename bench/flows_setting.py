"""The flows that are measured, and the process that drives them."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import timedelta
from typing import Any, Final

import psycopg

from bench.nodes import Done
from bench.setting import as_service
from underseal.flow.context import FlowContext
from underseal.flow.definition import Flow, flow
from underseal.flow.gateway import Gateway
from underseal.flow.runtime import FlowRuntime, Limits
from underseal.foundation.server import Server
from underseal.foundation.sources import AsyncPoolSource
from underseal.foundation.steps import Steps, drive_async

OWNER: Final = "ann"
VALUE: Final = {"user": "user-4711", "plan": "monthly"}
LEASE: Final = timedelta(seconds=30)
STEPS: Final = 10


async def give(value: Any) -> Any:
    """A step that does nothing."""
    return value


@flow("one")
async def one(ctx: FlowContext, value: Any) -> Any:
    """One step."""
    return await ctx.run("step", give, value)


@flow("ten")
async def ten(ctx: FlowContext, value: Any) -> Any:
    """Ten steps, one after the other."""
    for number in range(STEPS):
        await ctx.run(f"step{number}", give, number)
    return value


@flow("long")
async def long(ctx: FlowContext, steps: int) -> int:
    """As many steps as it is told."""
    for number in range(steps):
        await ctx.run("step", give, number)
    return steps


heard: Final[dict[int, float]] = {}
"""When a flow of this process first got a message, by its number and the machine's monotonic clock: a replay gets it
again."""


@flow("listen")
async def listen(ctx: FlowContext, messages: int) -> int:
    """Takes messages, one after the other, and notes when it got them: no real flow may do that."""
    for number in range(messages):
        await ctx.receive("line")
        heard.setdefault(number, time.monotonic())
    return messages


@flow("wait")
async def wait(ctx: FlowContext) -> Any:
    """Waits for a message that does not come."""
    return await ctx.receive("never")


@flow("doze")
async def doze(ctx: FlowContext) -> None:
    """Sleeps for a month."""
    await ctx.sleep(days=30)


FLOWS: Final[tuple[Flow, ...]] = (one, ten, long, listen, wait, doze)


@asynccontextmanager
async def calling(conninfo: str) -> AsyncIterator[Gateway]:
    """The calls of a worker of this process.

    Parameters:
        conninfo: the service's connection string.
    """
    source = AsyncPoolSource(conninfo, max_size=6, check=False)

    async def perform(steps: Steps[Any]) -> Any:
        return await drive_async(source, steps)

    try:
        yield Gateway(perform, f"bench:{os.getpid()}", LEASE)
    finally:
        await source.close()


@asynccontextmanager
async def driving(
    gateway: Gateway, *, claims: bool = True, limits: Limits | None = None
) -> AsyncIterator[FlowRuntime]:
    """A runtime that works until the end of the block, and then gives back what it holds.

    Parameters:
        gateway: its calls.
        claims: whether it looks for work.
        limits: how much it takes on.
    """
    runtime = FlowRuntime(gateway, FLOWS, claims=claims, limits=limits)
    serving = asyncio.create_task(runtime.serve())
    try:
        yield runtime
    finally:
        await runtime.drain(5)
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await serving


async def busy(act: Callable[[], Awaitable[Any]], at_once: int, seconds: float) -> Done:
    """Do something again and again, so much at once, for a while; what has begun is waited for."""
    done = 0
    begin, cpu = time.monotonic(), time.process_time()

    async def go_on() -> None:
        nonlocal done
        while time.monotonic() < begin + seconds:
            await act()
            done += 1

    await asyncio.gather(*[go_on() for _ in range(at_once)])
    return Done(done, time.monotonic() - begin, time.process_time() - cpu)


class Driver:
    """Starts executions and drives them itself."""

    def __init__(self, runtime: FlowRuntime) -> None:
        self._runtime = runtime

    async def rate(self, name: str, at_once: int, seconds: float) -> Done:
        """Executions in a while."""
        return await busy(lambda: self._runtime.run(name, OWNER, VALUE), at_once, seconds)

    async def amount(self, name: str, at_once: int, amount: int) -> Done:
        """So many executions."""
        left = amount
        begin, cpu = time.monotonic(), time.process_time()

        async def go_on() -> None:
            nonlocal left
            while left > 0:
                left -= 1
                await self._runtime.run(name, OWNER, VALUE)

        await asyncio.gather(*[go_on() for _ in range(at_once)])
        return Done(amount, time.monotonic() - begin, time.process_time() - cpu)

    async def idle(self, amount: int, pause: float) -> list[float]:
        """Seconds from start to output, of executions each of which finds everything idle."""
        return [await timed(lambda: self._runtime.run("one", OWNER, VALUE), pause) for _ in range(amount)]


async def until(holds: Callable[[], bool], every: float) -> None:
    """Wait for something that nobody tells of: a counter of another process, or of a runtime that is measured as it is.

    Parameters:
        holds: looks whether it is so.
        every: seconds from look to look.
    """
    while not holds():  # noqa: ASYNC110
        await asyncio.sleep(every)


async def timed(act: Callable[[], Awaitable[Any]], pause: float) -> float:
    """Seconds that something takes, after a pause."""
    await asyncio.sleep(pause)
    begin = time.perf_counter()
    await act()
    return time.perf_counter() - begin


@asynccontextmanager
async def driver(conninfo: str, claims: bool = False) -> AsyncIterator[Driver]:
    """A process that starts executions and drives them itself.

    Parameters:
        conninfo: the service's connection string.
        claims: whether it looks for other work besides.
    """
    async with calling(conninfo) as gateway, driving(gateway, claims=claims) as runtime:
        yield Driver(runtime)


@contextmanager
def service(server: Server, dbname: str) -> Iterator[psycopg.Connection[Any]]:
    """An autocommit connection of the service."""
    with psycopg.connect(as_service(server, dbname), autocommit=True) as connection:
        yield connection
