"""Flows started by one process and claimed by a worker in another; and how fast a backlog is drained."""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from statistics import median
from typing import Any, Final

from bench.flows_setting import OWNER, VALUE, busy, calling, driver, driving, service, until
from bench.log_setting import array, make_log_database, new_id
from bench.nodes import Done, Node, running_node
from bench.setting import as_service
from bench.turns import Pace, ratio, take_turns, telling
from underseal import AsyncExecutions
from underseal.flow import items
from underseal.flow.gateway import Gateway
from underseal.flow.runtime import FlowRuntime, Limits
from underseal.foundation.calls import json_text
from underseal.foundation.server import Server

DBNAME: Final = "flows_worker"
AT_ONCE: Final = 64
BACKLOG: Final = 8 * AT_ONCE
"""Executions that wait for the worker at most, so that it is fed while it works and no queue grows."""


class Worker:
    """Claims and drives what is due, between `begin` and `end`."""

    def __init__(self, gateway: Gateway, ended: Any) -> None:
        self._gateway = gateway
        self._ended = ended
        self._stack = AsyncExitStack()
        self._runtime: FlowRuntime | None = None

    async def begin(self, at_once: int = 1000) -> None:
        """Claim from now on, and drive so many at once."""
        self._runtime = await self._stack.enter_async_context(
            driving(self._gateway, limits=Limits(executions=at_once))
        )
        if self._ended is not None:
            telling_ = asyncio.create_task(self._tell())
            self._stack.callback(telling_.cancel)

    async def _tell(self) -> None:
        assert self._runtime is not None
        before = self._ended.value
        while True:
            self._ended.value = before + self._runtime.counts.completed
            await asyncio.sleep(0.002)

    async def end(self) -> None:
        """Claim nothing more, and give back what is held."""
        await self._stack.aclose()

    async def completes(self, amount: int) -> Done:
        """Work until so many have completed."""
        begin, cpu = time.monotonic(), time.process_time()
        await self.begin()
        await until(lambda: self.completed() >= amount, 0.002)
        done = Done(amount, time.monotonic() - begin, time.process_time() - cpu)
        await self.end()
        return done

    def completed(self) -> int:
        """How many have completed since `begin`."""
        assert self._runtime is not None
        return self._runtime.counts.completed


@asynccontextmanager
async def worker(conninfo: str, ended: Any = None) -> AsyncIterator[Worker]:
    """A process that claims.

    Parameters:
        conninfo: the service's connection string.
        ended: a shared counter that is told how many have completed.
    """
    async with calling(conninfo) as gateway:
        yield Worker(gateway, ended)


def start_item() -> str:
    """An execution of one step that nobody has claimed."""
    return items.start_text(new_id(), "one", 1, OWNER, json_text(VALUE), None, "")


class Starter:
    """Starts what another process drives."""

    def __init__(self, executions: AsyncExecutions, ended: Any) -> None:
        self._executions = executions
        self._ended = ended
        self._started = 0

    async def feed(self, way: str, seconds: float) -> Done:
        """Start executions for a while, as many as the worker ends, and count those that ended.

        Parameters:
            way: `batches`, 64 a call of `start_many`; `single`, a call each, 64 at once.
            seconds: for how long.
        """
        act, at_once = (self._start_many, 1) if way == "batches" else (self._start_single, AT_ONCE)
        feeding = asyncio.create_task(busy(act, at_once, seconds * 1.3))
        await asyncio.sleep(seconds * 0.3)
        before, begin = self._ended.value, time.monotonic()
        await asyncio.sleep(seconds)
        done = Done(self._ended.value - before, time.monotonic() - begin, 0.0)
        fed = await feeding
        await until(lambda: self._ended.value >= self._started, 0.01)
        return Done(done.amount, done.seconds, fed.cpu)

    async def _start_many(self) -> None:
        if self._started - self._ended.value > BACKLOG - AT_ONCE:
            await asyncio.sleep(0.001)
            return
        self._started += AT_ONCE
        answers = await self._executions.start_many("one", OWNER, [VALUE] * AT_ONCE)
        if any(one.outcome != "started" for one in answers):
            raise RuntimeError("expected every execution to be started, found others: nothing was measured")

    async def _start_single(self) -> None:
        if self._started - self._ended.value > BACKLOG:
            await asyncio.sleep(0.001)
            return
        self._started += 1
        await self._executions.start("one", OWNER, VALUE)


@asynccontextmanager
async def starter(conninfo: str, ended: Any = None) -> AsyncIterator[Starter]:
    """A process that starts executions.

    Parameters:
        conninfo: the service's connection string.
        ended: a shared counter of those that have completed.
    """
    async with AsyncExecutions(conninfo) as executions:
        yield Starter(executions, ended)


def measure_worker(server: Server, *, pace: Pace, tell: Callable[[str], None]) -> dict[str, float]:
    """Measure one process that starts and one that claims, beside one that does both.

    Parameters:
        server: where; a database is made.
        pace: how long and how often each side is measured.
        tell: is told how far it is.

    Returns: `flow1.worker.per_s` and `.vs_own`, where executions are started in batches of 64; and the same of those
    that are started one by one, 64 at once.
    """
    make_log_database(server, DBNAME)
    conninfo = as_service(server, DBNAME)
    ended = multiprocessing.get_context("spawn").Value("q", 0, lock=False)
    with ExitStack() as stack:
        own = stack.enter_context(running_node(driver, conninfo))
        claiming = stack.enter_context(running_node(worker, conninfo, ended))
        starting = stack.enter_context(running_node(starter, conninfo, ended))

        def measure(side: str) -> float:
            if side == "own":
                alone: Done = own.ask("rate", "one", AT_ONCE, pace.seconds)
                return alone.rate
            claiming.ask("begin", AT_ONCE)
            done: Done = starting.ask("feed", side, pace.seconds)
            claiming.ask("end")
            return done.rate

        sides = ("own", "batches", "single")
        for side in sides:
            measure(side)
        figures = take_turns(sides, pace.rounds, measure, telling(tell, "flows through a worker"))
    return {
        "flow1.worker.vs_own": ratio(figures, "batches", "own"),
        "flow1.worker.per_s": median(figures["batches"]),
        "flow1.worker.single_starts.vs_own": ratio(figures, "single", "own"),
        "flow1.worker.single_starts.per_s": median(figures["single"]),
        "flow1.worker.own_per_s": median(figures["own"]),
    }


def preload(server: Server, dbname: str, amount: int) -> None:
    """Start executions of one step that nobody has claimed."""
    with service(server, dbname) as connection:
        for begin in range(0, amount, 500):
            batch = array([start_item() for _ in range(min(500, amount - begin))])
            rows = connection.execute(
                "select outcome from underseal.append_batch(%s::json)", [batch], prepare=True
            ).fetchall()
            if any(outcome != "started" for (outcome,) in rows):
                raise RuntimeError(
                    "expected every execution to be started, found others: nothing was measured"
                )


def drained(node: Node, amount: int) -> float:
    """Executions a second of a worker with a backlog."""
    done: Done = node.ask("completes", amount)
    return done.rate


def measure_drain(
    server: Server, *, few: int, many: int, rounds: int, tell: Callable[[str], None]
) -> dict[str, float]:
    """Measure how fast a worker drains a long backlog and a short one, each in a database of its own.

    Parameters:
        server: where; two databases are made.
        few, many: executions that wait.
        rounds: how often the short one is measured, half of them after the long one.
        tell: is told how far it is.

    Returns: `drain.few_per_s`, `drain.many_per_s` and `drain.flat`, the ratio.
    """
    for dbname in ("drain_few", "drain_many"):
        make_log_database(server, dbname)
    rates: dict[str, list[float]] = {"few": [], "many": []}
    turns = ["few"] * (rounds - rounds // 2) + ["many"] + ["few"] * (rounds // 2)
    for turn, side in enumerate(turns):
        amount = few if side == "few" else many
        dbname = f"drain_{side}"
        tell(f"preloading {amount:,} ({turn + 1} of {len(turns)})")
        preload(server, dbname, amount)
        tell(f"draining {amount:,} ({turn + 1} of {len(turns)})")
        with running_node(worker, as_service(server, dbname)) as node:
            rates[side].append(drained(node, amount))
    return {
        "drain.flat": median(rates["many"]) / median(rates["few"]),
        "drain.many_per_s": median(rates["many"]),
        "drain.few_per_s": median(rates["few"]),
    }
