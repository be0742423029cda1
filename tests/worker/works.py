"""A service with flows, and its workers."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from tests.held.python.worlds import World
from underseal import ExecutionInfo, Flow, FlowContext, Worker, flow
from underseal.held.pace import Pace
from underseal.testing import in_background, wait_until

SOON = timedelta(milliseconds=20)
ROOT = Path(__file__).parents[2]


async def same(value: Any) -> Any:
    """A step's function."""
    return value


def blocking(value: Any) -> Any:
    """A plain one."""
    return value


def broken() -> None:
    """One that fails."""
    raise ValueError("no")


@flow("plain")
async def plain(ctx: FlowContext, value: Any) -> Any:
    """One async step, one plain one."""
    return [await ctx.run("same", same, value), await ctx.run("blocking", blocking, value)]


@flow("bad")
async def bad(ctx: FlowContext) -> None:
    """Fails."""
    await ctx.run("broken", broken)


@flow("countdown")
async def countdown(ctx: FlowContext, left: int) -> Any:
    """Goes on as new."""
    if left:
        ctx.continue_as_new(left - 1)
    return "lift-off"


@flow("waits")
async def waits(ctx: FlowContext) -> Any:
    """Waits for a message."""
    return await ctx.receive("word")


@flow("asks")
async def asks(ctx: FlowContext, cents: Any) -> Any:
    """Holds a payout."""
    return await ctx.hold("payout.send", {"order": "o-1", "cents": cents})


@flow("issues")
async def issues(ctx: FlowContext) -> Any:
    """Holds what its requester would have to run."""
    return await ctx.hold("token.issue", {"name": "ci", "password": "hunter2"})


FLOWS: tuple[Flow, ...] = (plain, bad, countdown, waits, asks, issues)


class Works(World):
    """A database, a service with gated methods and flows, and one client of it."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.us.serve(*FLOWS)

    @property
    def executions(self) -> Any:
        """What callers do with executions, called synchronously."""
        return self.executions_of(self.us)

    def executions_of(self, client: Any) -> Any:
        """The same of another client."""
        return client.executions if self.loop is None else _Blocking(client.executions, self.loop)

    def start(self, name: str, value: Any = None, who: str = "rita", **more: Any) -> str:
        """Start an execution."""
        started: str = self.executions.start(name, who, value, **more)
        return started

    def result(self, execution_id: str, who: str = "rita", seconds: float = 20) -> Any:
        """Its output."""
        return self.executions.result(execution_id, who, timeout=timedelta(seconds=seconds))

    def info(self, execution_id: str, who: str = "rita") -> ExecutionInfo:
        """How it stands."""
        found: ExecutionInfo = self.executions.get(execution_id, who)
        return found

    def types(self, execution_id: str) -> list[str]:
        """The types of its events."""
        return [event.type for event in self.executions.events(execution_id, "rita")]

    def commits(self) -> int:
        """How many transactions this database has committed."""
        self.admin.execute("select pg_stat_clear_snapshot()")
        row = self.admin.execute(
            "select xact_commit from pg_stat_database where datname = current_database()"
        ).fetchone()
        assert row is not None
        return int(row["xact_commit"])

    def claims(self) -> list[str]:
        """Executions that some worker has claimed."""
        rows = self.admin.execute(
            "select chain_id from underseal.wake where claimed_until > underseal.clock() order by chain_id"
        ).fetchall()
        return [row["chain_id"] for row in rows]


class _Blocking:
    def __init__(self, thing: Any, loop: Any) -> None:
        self._thing, self._loop = thing, loop

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: self._loop.wait(getattr(self._thing, name)(*args, **kwargs))


@contextmanager
def working(works: Works, client: Any = None, **options: Any) -> Iterator[Worker]:
    """A worker that is stopped at the end, whose end is waited for."""
    options = {"poll_every": SOON, "idle_poll_every": SOON, "grace": timedelta(seconds=20), **options}
    worker: Worker = (client or works.us).worker(**options)
    if works.loop is None:
        ended: Any = in_background(worker.run)
    else:
        ended = asyncio.run_coroutine_threadsafe(worker.serve(), works.loop.loop)
    try:
        yield worker
    finally:
        worker.stop()
        ended.result(timeout=60)


def settle(worker: Worker) -> None:
    """From now on it looks for flows when it is told to, and otherwise once a minute."""
    runtime, loop = wait_until(lambda: worker._runtime), worker._loop
    assert runtime is not None
    assert loop is not None
    runtime._pace = Pace(60, 60)
    loop.call_soon_threadsafe(runtime.look)
    time.sleep(0.5)


def program(text: str, *args: str) -> subprocess.Popen[str]:
    """A process that runs this text, with these arguments."""
    return subprocess.Popen(
        [sys.executable, "-c", text, *args],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'pylib'}:{ROOT}"},
    )


def next_line(process: subprocess.Popen[str]) -> str:
    """What it says next, before long."""
    assert process.stdout is not None
    line: str = in_background(process.stdout.readline).result(timeout=60)
    return line.rstrip("\n")
