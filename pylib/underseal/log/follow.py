"""Following logs live: one execution's, or all of them (clause E11).

What is to be read next, and how long to wait when nothing is there, is decided here without I/O; the two kinds of
iterators only read and wait. The database is asked again and again, soon after news and ever later without any; a
database that is away for a while costs warnings and no events, since reading goes on from the same place.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol, Self

import psycopg

from underseal.foundation.steps import Steps
from underseal.held.pace import Pace
from underseal.log import verbs
from underseal.log.model import ENDING, LogEvent

log = logging.getLogger("underseal.log")

SHORTEST = 0.02
LONGEST = 1.0
PAGE = 500


class Feed(Protocol):
    """What an iterator asks: the next events, and whether there can be more."""

    def batch(self) -> Steps[list[LogEvent]]:
        """Read on."""
        ...

    @property
    def over(self) -> bool:
        """Whether nothing can follow what was read."""
        ...


class ExecutionFeed:
    """One execution's log, from an event on."""

    def __init__(
        self,
        execution_id: str,
        principal: str | None,
        after_seq: int,
        until_ended: bool,
        capability: Mapping[str, Any] | None,
    ) -> None:
        """Begin after an event.

        Parameters:
            execution_id: whose log.
            principal: who reads.
            after_seq: the number of the last event that is known already; -1 for none.
            until_ended: be over when the execution has ended.
            capability: what this node can open.
        """
        self._execution_id = execution_id
        self._principal = principal
        self._seq = after_seq
        self._until_ended = until_ended
        self._capability = capability
        self._looked = False
        self._read_all = False
        self._ended = False

    @property
    def over(self) -> bool:
        """Whether it is to end with the execution, which has ended, and everything was read."""
        return self._until_ended and self._ended and self._read_all

    def batch(self) -> Steps[list[LogEvent]]:
        """Read on after the last event read."""
        found = yield from verbs.events(
            self._execution_id, self._principal, self._seq, PAGE, self._capability
        )
        self._read_all = len(found) < PAGE
        if found:
            self._seq = found[-1].seq
            self._ended = self._ended or any(event.type in ENDING for event in found)
        elif self._until_ended and not self._looked:
            # The caller may have begun behind the event that ended it.
            self._looked = True
            seen = yield from verbs.get(self._execution_id, self._principal)
            self._ended = seen.ended and seen.head <= self._seq
        return found


class AllFeed:
    """All logs, from a cursor on."""

    def __init__(self, cursor: str | None, capability: Mapping[str, Any] | None) -> None:
        """Begin at a cursor.

        Parameters:
            cursor: `LogEvent.cursor` of the last event that is known already; None for the beginning.
            capability: what this node can open.
        """
        self._cursor = cursor
        self._capability = capability
        self.over = False

    def batch(self) -> Steps[list[LogEvent]]:
        """Read on after the last event read."""
        found, self._cursor = yield from verbs.read_all(self._cursor, PAGE, self._capability)
        return found


class _Reading:
    """What both iterators keep: events read and not yet given, and how long to wait."""

    def __init__(self, feed: Feed, longest: float) -> None:
        self._feed = feed
        # the first idle look doubles it
        self._pace = Pace(SHORTEST / 2, longest)
        self._ready: deque[LogEvent] = deque()
        self._reached = False

    def _taken(self, found: list[LogEvent]) -> float:
        self._reached = True
        self._ready.extend(found)
        return self._pace.worked() if found else self._pace.idled()

    def _failed(self, error: psycopg.OperationalError) -> float:
        """A database that was never reached is the caller's to hear of; one that went away comes back."""
        if not self._reached:
            raise error
        log.warning("the database is away, and the log is read on when it is back: %s", type(error).__name__)
        return self._pace.failed()


class Following(_Reading):
    """An iterator over events as they are recorded. Close it from any thread, or by leaving its `with` block."""

    def __init__(
        self, feed: Feed, read: Callable[[Steps[list[LogEvent]]], list[LogEvent]], longest: float = LONGEST
    ) -> None:
        """Follow a feed.

        Parameters:
            feed: what to read.
            read: carries steps out.
            longest: seconds that the wait between two looks grows to while nothing happens.
        """
        super().__init__(feed, longest)
        self._read = read
        self._closed = threading.Event()

    def __enter__(self) -> Self:
        """The iterator itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def __iter__(self) -> Self:
        """The iterator itself."""
        return self

    def __next__(self) -> LogEvent:
        """The next event, waited for."""
        while not self._closed.is_set():
            if self._ready:
                return self._ready.popleft()
            if self._feed.over:
                break
            try:
                pause = self._taken(self._read(self._feed.batch()))
            except psycopg.OperationalError as error:
                pause = self._failed(error)
            if not self._ready and not self._feed.over:
                self._closed.wait(pause)
        raise StopIteration

    def close(self) -> None:
        """End the iteration; a wait under way ends too."""
        self._closed.set()


class AsyncFollowing(_Reading):
    """The async twin of `Following`."""

    def __init__(
        self,
        feed: Feed,
        read: Callable[[Steps[list[LogEvent]]], Coroutine[Any, Any, list[LogEvent]]],
        longest: float = LONGEST,
    ) -> None:
        """Follow a feed; parameters as in `Following`."""
        super().__init__(feed, longest)
        self._read = read
        self._closed = asyncio.Event()

    async def __aenter__(self) -> Self:
        """The iterator itself."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close."""
        await self.close()

    def __aiter__(self) -> Self:
        """The iterator itself."""
        return self

    async def __anext__(self) -> LogEvent:
        """The next event, waited for."""
        while not self._closed.is_set():
            if self._ready:
                return self._ready.popleft()
            if self._feed.over:
                break
            try:
                pause = self._taken(await self._read(self._feed.batch()))
            except psycopg.OperationalError as error:
                pause = self._failed(error)
            if not self._ready and not self._feed.over:
                await self._wait(pause)
        raise StopAsyncIteration

    async def _wait(self, pause: float) -> None:
        try:
            async with asyncio.timeout(pause):
                await self._closed.wait()
        except TimeoutError:
            return

    async def close(self) -> None:
        """End the iteration; a wait under way ends too."""
        self._closed.set()
