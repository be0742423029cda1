"""Group commit: what many executions want to write or read, in few calls.

While one call is under way, what is wanted meanwhile gathers, and goes with the next. So a call holds as much as the
database is slow, and an idle process waits for nobody.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, Protocol, TypeVar

import psycopg
from psycopg_pool import PoolTimeout

from underseal.errors import KernelError
from underseal.foundation.steps import Row

log = logging.getLogger("underseal.flow")

A = TypeVar("A")
R = TypeVar("R")

_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 5.0
_FEW = 32
"""Items that one lane takes in any case: a call costs as much as a few of them."""
AWAY = (psycopg.OperationalError, psycopg.InterfaceError, PoolTimeout, OSError)
"""What a database that is away raises; what was sent may have been done."""
_NOBODYS_FAULT = frozenset({"US008", "US009", "US011", "US012"})


class NotWritten(OSError):  # noqa: N818 -- what has happened
    """An item was not written, or nobody knows whether it was: whoever may still write it can ask again."""


def _is_an_items_fault(error: Exception) -> bool:
    """Whether it may be what one item holds that made a call fail, and not the state in which the database is.

    A database that can be read only, misses a grant, or is being upgraded takes the same item later.
    """
    if isinstance(error, KernelError):
        return error.sqlstate not in _NOBODYS_FAULT
    if isinstance(error, psycopg.Error):
        too_much = (error.sqlstate or "").startswith(("54", "XX"))
        return too_much or isinstance(error, psycopg.DataError | psycopg.IntegrityError)
    return not isinstance(error, AWAY)


class Writer(Protocol):
    """Something with an item for the journal."""

    def take(self) -> str | None:
        """The next item as JSON; None when there is none. The writer is not asked again before it is answered."""

    def answered(self, row: Row) -> None:
        """What became of the item."""

    def uncertain(self) -> None:
        """Nobody knows what became of it: the database went away."""

    def impossible(self, error: Exception) -> None:
        """The item, alone, made the call fail."""


class Journal:
    """Writes items of many executions in one call each time, over a few lanes at once."""

    def __init__(
        self,
        write: Callable[[Sequence[str]], Awaitable[list[Row]]],
        *,
        lanes: int = 3,
        most_items: int = 500,
        most_bytes: int = 4_000_000,
        most_waiting: int = 20_000,
    ) -> None:
        """Prepare it.

        Parameters:
            write: makes the call; an answer an item, in their order.
            lanes: calls at once; an execution is in one at a time.
            most_items, most_bytes: of one call.
            most_waiting: writers that may wait before `room` does.
        """
        self._write = write
        self._lanes = lanes
        self._free = lanes
        self._most_items = most_items
        self._most_bytes = most_bytes
        self._most_waiting = most_waiting
        self._waiting: deque[Writer] = deque()
        self._wanted = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    def submit(self, writer: Writer) -> None:
        """Ask it for its item soon. It sees to it that it is not submitted twice."""
        self._waiting.append(writer)
        self._wanted.set()
        if len(self._waiting) >= self._most_waiting:
            self._room.clear()

    async def room(self) -> None:
        """Wait while too much waits: whoever makes new work is to ask first."""
        await self._room.wait()

    async def run(self) -> None:
        """Write until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._lanes):
                group.create_task(self._lane())

    async def _lane(self) -> None:
        pause = 0.0
        while True:
            await self._wanted.wait()
            await asyncio.sleep(0)  # whoever is ready now comes along
            batch = self._gather()
            if not batch:
                continue
            self._free -= 1
            try:
                await self._send(batch)
                pause = 0.0
            except Exception as error:  # noqa: BLE001 -- whatever it is, it is to be written yet
                pause = min(_LONGEST_PAUSE, pause * 2 or _FIRST_PAUSE)
                log.warning(
                    "nothing can be written (%s); %s writes are tried again in %.2f s",
                    type(error).__name__, len(batch), pause,
                )  # fmt: skip
                for writer, _ in batch:
                    writer.uncertain()
                await asyncio.sleep(pause)
            finally:
                self._free += 1

    def _gather(self) -> list[tuple[Writer, str]]:
        batch: list[tuple[Writer, str]] = []
        size = 0
        # What waits is shared among the free lanes: if one took it all, this process would idle while the database
        # works, and the database while this process takes the answers.
        share = max(_FEW, -(-len(self._waiting) // self._free))
        most = min(self._most_items, share)
        while self._waiting and len(batch) < most and size < self._most_bytes:
            writer = self._waiting.popleft()
            item = writer.take()
            if item is not None:
                batch.append((writer, item))
                size += len(item)
        if not self._waiting:
            self._wanted.clear()
        if len(self._waiting) < self._most_waiting // 2:
            self._room.set()
        return batch

    async def _send(self, batch: list[tuple[Writer, str]]) -> None:
        try:
            rows = await self._write([item for _, item in batch])
        except Exception as error:
            if not _is_an_items_fault(error):
                raise
            # one item's fault must not be its neighbours'
            if len(batch) == 1:
                batch[0][0].impossible(error)
                return
            while batch:
                await self._send(batch[:1])
                del batch[0]  # what has its answer is not in doubt if the database goes away now
            return
        for (writer, _), row in zip(batch, rows, strict=True):
            try:
                writer.answered(row)
            except Exception as error:  # noqa: BLE001 -- what it says may hold a value
                log.error("one that wrote could not go on (%s); the others do", type(error).__name__)
                writer.uncertain()


class Batcher(Generic[A, R]):
    """Asks for many things in one call each time."""

    def __init__(self, ask: Callable[[Sequence[A]], Awaitable[Sequence[R]]], *, most: int = 500) -> None:
        """Prepare it.

        Parameters:
            ask: makes the call; an answer a thing, in their order.
            most: of one call.
        """
        self._ask = ask
        self._most = most
        self._waiting: deque[tuple[A, asyncio.Future[R]]] = deque()
        self._wanted = asyncio.Event()

    async def get(self, thing: A) -> R:
        """The answer for one thing.

        Errors:
            what the call raised.
        """
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((thing, future))
        self._wanted.set()
        return await future

    async def run(self) -> None:
        """Ask until cancelled."""
        while True:
            await self._wanted.wait()
            await asyncio.sleep(0)
            batch = [self._waiting.popleft() for _ in range(min(self._most, len(self._waiting)))]
            if not self._waiting:
                self._wanted.clear()
            try:
                answers = await self._ask([thing for thing, _ in batch])
            except Exception as error:  # noqa: BLE001 -- whoever asked is told
                for _, future in batch:
                    if not future.done():
                        future.set_exception(error)
                continue
            for (_, future), answer in zip(batch, answers, strict=True):
                if not future.done():
                    future.set_result(answer)
