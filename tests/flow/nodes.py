"""Nodes that drive flows over a test's database, several in one event loop, and a gateway whose calls can go wrong."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar
from uuid import UUID

import psycopg
from psycopg import sql

from underseal import AsyncExecutionDriver, AsyncExecutions
from underseal.flow.definition import Flow
from underseal.flow.gateway import Gateway
from underseal.flow.runtime import FlowRuntime, Holds, Limits
from underseal.foundation.sources import AsyncPoolSource
from underseal.foundation.steps import Row, Steps, drive_async
from underseal.log.model import CancelOutcome, LogEvent, Observed
from underseal.testing import TestDatabase
from underseal.wake.model import Claim

T = TypeVar("T")

OWNER: Final = "ann"
SOON: Final = timedelta(milliseconds=5)
LEASE: Final = timedelta(seconds=30)
PATIENCE: Final = 10.0


class Lost(psycopg.OperationalError):
    """The connection went away."""


async def until(condition: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """Ask until the answer is true; `condition` may be async."""
    async with asyncio.timeout(seconds):
        while True:
            said = condition()
            answer = await said if asyncio.iscoroutine(said) else said
            if answer:
                return answer
            await asyncio.sleep(0.005)


@dataclass
class Stop:
    """A place where a write waits.

    Parameters:
        reached: set once it waits.
        go: lets it go on.
    """

    reached: asyncio.Event = field(default_factory=asyncio.Event)
    go: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass
class Faults:
    """What goes wrong with calls.

    Parameters:
        calls: how often each was made.
        items: what was written, each item as JSON.
    """

    calls: Counter[str] = field(default_factory=Counter)
    items: list[str] = field(default_factory=list)
    _plan: dict[tuple[str, int], tuple[str, BaseException]] = field(default_factory=dict)
    _shut: dict[str, asyncio.Event] = field(default_factory=dict)
    _always: dict[str, BaseException] = field(default_factory=dict)
    _stops: dict[str, Stop] = field(default_factory=dict)

    def lose(self, call: str, when: str, number: int = 1, error: BaseException | None = None) -> None:
        """Let the n-th of these calls from now on fail `before` it is made or `after` it was."""
        self._plan[call, self.calls[call] + number] = when, error or Lost("the server closed the connection")

    def away(self, *calls: str) -> None:
        """Let these calls fail until `back`."""
        for call in calls:
            self._always[call] = Lost("connection refused")

    def back(self) -> None:
        """Nothing fails any more."""
        self._always.clear()

    def shut(self, call: str) -> asyncio.Event:
        """Let these calls wait until the event is set."""
        return self._shut.setdefault(call, asyncio.Event())

    def open(self, call: str) -> None:
        """Let them go on, and later ones too."""
        self._shut.pop(call).set()

    def stop_at(self, word: str) -> Stop:
        """Let the next write with an item that contains a text wait."""
        stop = self._stops[word] = Stop()
        return stop

    async def wait_at(self, items: Sequence[str]) -> None:
        """Wait where it was asked for."""
        for word, stop in list(self._stops.items()):
            if any(word in item for item in items):
                del self._stops[word]
                stop.reached.set()
                await stop.go.wait()

    async def cross(self, call: str, act: Callable[[], Awaitable[T]]) -> T:
        """Make a call."""
        self.calls[call] += 1
        when, error = self._plan.pop((call, self.calls[call]), (None, None))
        if call in self._shut:
            await self._shut[call].wait()
        if call in self._always:
            raise self._always[call]
        if when == "before":
            assert error is not None
            raise error
        answer = await act()
        if when == "after":
            assert error is not None
            raise error
        return answer


@dataclass(frozen=True, slots=True)
class Doubtful(Gateway):
    """A gateway whose calls can go wrong."""

    faults: Faults = field(default_factory=Faults)

    async def write(self, items: Sequence[str]) -> list[Row]:
        async def act() -> list[Row]:
            return await Gateway.write(self, items)

        self.faults.items += items
        await self.faults.wait_at(items)
        return await self.faults.cross("write", act)

    async def claim(self, flows: Sequence[str], versions: Sequence[int], limit: int) -> list[Claim]:
        return await self.faults.cross("claim", lambda: Gateway.claim(self, flows, versions, limit))

    async def renew(self, execution_ids: Iterable[str]) -> dict[str, str]:
        return await self.faults.cross("renew", lambda: Gateway.renew(self, execution_ids))

    async def release(self, execution_ids: Iterable[str]) -> None:
        await self.faults.cross("release", lambda: Gateway.release(self, execution_ids))

    async def put_off(self, execution_id: str, retry_in: timedelta) -> None:
        await self.faults.cross("put_off", lambda: Gateway.put_off(self, execution_id, retry_in))

    async def deliver(self, items: Sequence[dict[str, Any]]) -> list[Row]:
        return await self.faults.cross("deliver", lambda: Gateway.deliver(self, items))

    async def read(self, logs: Sequence[dict[str, Any]], most: int) -> list[Row]:
        return await self.faults.cross("read", lambda: Gateway.read(self, logs, most))

    async def head(self, execution_id: str) -> Observed:
        return await self.faults.cross("head", lambda: Gateway.head(self, execution_id))

    async def refence(self, execution_id: str, seen: Observed) -> Observed:
        return await self.faults.cross("refence", lambda: Gateway.refence(self, execution_id, seen))

    async def recover(self, claim: Claim, most: int) -> Observed:
        return await self.faults.cross("recover", lambda: Gateway.recover(self, claim, most))

    async def now(self) -> datetime:
        return await self.faults.cross("now", lambda: Gateway.now(self))

    async def report_divergence(self, execution_id: str, fence: int, cause: str) -> None:
        await self.faults.cross("report", lambda: Gateway.report_divergence(self, execution_id, fence, cause))

    async def await_operation(self, operation_id: UUID, execution_id: str, fence: int) -> Row:
        return await self.faults.cross(
            "await", lambda: Gateway.await_operation(self, operation_id, execution_id, fence)
        )

    async def cancel(self, execution_id: str, principal: str) -> CancelOutcome:
        return await self.faults.cross("cancel", lambda: Gateway.cancel(self, execution_id, principal))


@dataclass
class Node:
    """A process that drives flows, as far as the database can tell.

    Parameters:
        runtime: what drives.
        faults: what goes wrong with its calls.
    """

    runtime: FlowRuntime
    faults: Faults
    _serving: asyncio.Task[None] | None = None

    def serve(self) -> Node:
        """Begin."""
        self._serving = asyncio.create_task(self.runtime.serve())
        return self

    async def start(self, flow: str, value: Any = None, **rest: Any) -> str:
        """Start an execution here."""
        return await self.runtime.start(flow, OWNER, value, **rest)

    async def run(self, flow: str, value: Any = None, **rest: Any) -> Any:
        """Run one to its end."""
        async with asyncio.timeout(PATIENCE):
            return await self.runtime.run(flow, OWNER, value, **rest)

    async def result(self, execution_id: str) -> Any:
        """The output of one."""
        async with asyncio.timeout(PATIENCE):
            return await self.runtime.result(execution_id)

    async def stop(self, grace: float = 5) -> None:
        """Stop gracefully."""
        await self.runtime.drain(grace)
        await self.kill()

    async def kill(self) -> None:
        """End where it stands, as a process does that is killed: nothing is written, given back or said."""
        if self._serving is None:
            return
        serving, self._serving = self._serving, None
        serving.cancel()
        await asyncio.wait([serving])
        if not serving.cancelled():
            serving.result()

    @property
    def driven(self) -> set[str]:
        """What it drives."""
        return set(self.runtime.active)


class World:
    """The nodes of one test, and whoever talks to what they drive."""

    def __init__(
        self,
        database: TestDatabase,
        stack: AsyncExitStack,
        source: AsyncPoolSource,
        emptying: sql.Composed | None,
    ) -> None:
        """Made by `a_world`."""
        self._emptying = emptying
        self.database = database
        self.admin = database.connect()
        self.executions = AsyncExecutions._over(source, None)  # type: ignore[arg-type]
        self.driver = AsyncExecutionDriver._over(source, None)  # type: ignore[arg-type]
        self._stack = stack
        self._source = source
        self._names = 0

    async def perform(self, steps: Steps[Any]) -> Any:
        """Carry steps out."""
        return await drive_async(self._source, steps)

    def make(
        self,
        *flows: Flow,
        name: str | None = None,
        lease: timedelta = LEASE,
        limits: Limits | None = None,
        holds: Holds | None = None,
        idle: timedelta = SOON * 4,
        **options: Any,
    ) -> Node:
        """A node that does not serve yet."""
        self._names += 1
        faults = Faults()
        gateway = Doubtful(self.perform, name or f"node:{self._names}", lease, faults)
        runtime = FlowRuntime(
            gateway, flows, holds=holds, limits=limits, poll_every=SOON, idle_poll_every=idle, **options
        )
        node = Node(runtime, faults)
        self._stack.push_async_callback(node.kill)
        return node

    def node(self, *flows: Flow, **options: Any) -> Node:
        """A node that serves."""
        return self.make(*flows, **options).serve()

    # -- what others do ----------------------------------------------------------------------------

    async def begin(
        self, flow: str, value: Any = None, execution_id: str | None = None, version: int = 1
    ) -> str:
        """Start an execution that nobody drives yet."""
        return str(
            await self.executions.start(flow, OWNER, value, execution_id=execution_id, flow_version=version)
        )

    async def send(self, execution_id: str, topic: str, payload: Any = None, **rest: Any) -> None:
        """Send to one."""
        await self.executions.send(execution_id, topic, payload, OWNER, **rest)

    async def log(self, execution_id: str) -> list[LogEvent]:
        """Its events."""
        return list(await self.executions.events(execution_id, OWNER))

    async def types(self, execution_id: str) -> list[str]:
        """Their types."""
        return [event.type for event in await self.log(execution_id)]

    async def data(self, execution_id: str, kind: str) -> list[Any]:
        """The data of its events of one type."""
        return [event.data for event in await self.log(execution_id) if event.type == kind]

    async def status(self, execution_id: str) -> str:
        """Its status."""
        return str((await self.executions.get(execution_id, OWNER)).status)

    async def comes_to(self, execution_id: str, *statuses: str) -> None:
        """Wait for it to have one of these statuses."""

        async def there() -> str:
            status = await self.status(execution_id)
            return status if status in statuses else ""

        await until(there)

    async def parks(self, execution_id: str) -> None:
        """Wait for it to be parked."""
        await self.comes_to(execution_id, "suspended")

    def reports(self, kind: str) -> list[Any]:
        """What operators were told."""
        return self.admin.execute(
            "select * from underseal.operator_report where kind = %s order by 1", [kind]
        ).fetchall()

    def expire_claims(self, execution_id: str) -> None:
        """Let its claim have run out, whatever the clock says."""
        chain, _, member = execution_id.partition("~")
        self.admin.execute(
            "update underseal.wake set claimed_until = underseal.clock() - interval '1 second'"
            " where chain_id = %s and member = %s and claimed_until is not null",
            [chain, member],
        )

    def empty(self) -> None:
        """Let nothing have happened."""
        assert self._emptying is not None
        self.admin.execute(self._emptying)

    def wakes(self, execution_id: str) -> list[Any]:
        """Its wakes."""
        chain, _, member = execution_id.partition("~")
        return self.admin.execute(
            "select * from underseal.wake where chain_id = %s and member = %s order by kind", [chain, member]
        ).fetchall()


@asynccontextmanager
async def a_world(database: TestDatabase, emptying: sql.Composed | None = None) -> AsyncIterator[World]:
    """A world whose nodes are killed at its end."""
    source = AsyncPoolSource(database.conninfo, max_size=8)
    try:
        async with AsyncExitStack() as stack:
            yield World(database, stack, source, emptying)
    finally:
        await source.close()


def note(place: list[Any], what: T) -> T:
    """Remember that a step ran."""
    place.append(what)
    return what
