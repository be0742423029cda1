"""Logic without I/O: generators that yield commands, and the two drivers that carry them out.

A piece of logic is written once, as a generator. It yields what it needs done and is sent the
answer; an error is thrown into it at the `yield`. `drive` carries the commands out with a sync
connection, `drive_async` with an async one, and neither knows what the logic is about (psycopg 3
is built in the same way).
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import psycopg
from psycopg import sql as pgsql

from underseal.foundation.sources import (
    AsyncSource,
    Source,
    as_async_source,
    as_source,
    join,
    join_async,
    raise_ours,
)
from underseal.foundation.threads import await_here, in_thread

log = logging.getLogger("underseal.foundation")

T = TypeVar("T")
Row: TypeAlias = dict[str, Any]
Params: TypeAlias = Mapping[str, Any] | Sequence[Any] | None
Statement: TypeAlias = str | pgsql.SQL | pgsql.Composed

_ATTEMPTS = 6
_FIRST_PAUSE = 0.01  # seconds; doubles with each attempt


@dataclass(frozen=True, slots=True)
class Query:
    """Run one statement and be sent its rows as dicts (none for a statement without a result)."""

    sql: Statement
    params: Params = None


@dataclass(frozen=True, slots=True)
class Call:
    """Call code of the host and be sent what it returned, awaited where it is awaitable.

    The async driver runs a plain function in a thread of its own, so that it blocks nobody.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Atomic:
    """Run nested steps in one transaction (a savepoint inside another) and be sent their result.

    `make` builds the nested steps; it is called again when the transaction is retried, which
    happens after a serialization failure or a deadlock, unless the connection is the caller's.
    """

    make: Callable[[], Generator[Any, Any, Any]]


@dataclass(frozen=True, slots=True)
class During:
    """Carry nested steps out, and beside them those of `tick` every `every` seconds until they end.

    Not inside `Atomic`: the two work at the same time, on connections of their own. A tick that
    fails is logged and the next one is tried.
    """

    make: Callable[[], Generator[Any, Any, Any]]
    every: float
    tick: Callable[[], Generator[Any, Any, Any]]


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait for so many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Elapsed:
    """Be sent the seconds of a clock that tells how much time goes by, and nothing else."""


Command: TypeAlias = Query | Call | Atomic | During | Pause | Elapsed
Steps: TypeAlias = Generator[Command, Any, T]


class Undo(Exception):  # noqa: N818 -- it is no error
    """Raised inside `Atomic` steps: roll the block back, and send `value` as its result."""

    def __init__(self, value: Any) -> None:
        """Keep the value that the block is to have.

        Parameters:
            value: whatever the block would have returned.
        """
        super().__init__("rolled back on purpose")
        self.value = value


def query(sql: Statement, params: Params = None) -> Steps[list[Row]]:
    """Typed form of `Query`: `rows = yield from query(...)`."""
    rows: list[Row] = yield Query(sql, params)
    return rows


def call(function: Callable[..., Any], *args: Any) -> Steps[Any]:
    """Typed form of `Call`."""
    return (yield Call(function, args))


def elapsed() -> Steps[float]:
    """Typed form of `Elapsed`."""
    seconds: float = yield Elapsed()
    return seconds


def atomic(make: Callable[[], Steps[T]]) -> Steps[T]:
    """Typed form of `Atomic`."""
    value: T = yield Atomic(make)
    return value


def drive(place: Source | psycopg.Connection[Any], steps: Steps[T]) -> T:
    """Carry steps out on a sync connection and return their result.

    Parameters:
        place: a connection source, or a connection of the caller's own; on the latter everything
            joins the caller's transaction and nothing is retried.
        steps: the generator.

    Errors:
        KernelError: the schema raised a SQLSTATE of class US; whatever else the steps let through.
    """
    return _Driver(as_source(place)).run(steps)


async def drive_async(place: AsyncSource | psycopg.AsyncConnection[Any], steps: Steps[T]) -> T:
    """Carry steps out on an async connection and return their result; otherwise like `drive`."""
    return await _AsyncDriver(as_async_source(place)).run(steps)


def _may_retry(error: BaseException, attempt: int) -> bool:
    transient = (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected)
    return isinstance(error, transient) and attempt + 1 < _ATTEMPTS


class _Driver:
    def __init__(self, source: Source, conn: psycopg.Connection[Any] | None = None) -> None:
        self.source = source
        self.conn = conn

    def run(self, steps: Steps[T]) -> T:
        advance: Callable[[], Command] = lambda: steps.send(None)  # noqa: E731
        try:
            while True:
                command = advance()
                try:
                    answer = self.perform(command)
                except BaseException as error:  # noqa: BLE001 -- the steps decide
                    advance = _thrower(steps, error)
                else:
                    advance = _sender(steps, answer)
        except StopIteration as stop:
            value: T = stop.value
            return value
        finally:
            steps.close()

    def perform(self, command: Command) -> Any:
        if isinstance(command, Query):
            return self.retried(lambda source, conn: source.single(conn, command.sql, command.params))
        if isinstance(command, Call):
            result = command.function(*command.args)
            return await_here(result) if inspect.isawaitable(result) else result
        if isinstance(command, Atomic):
            return self.retried(lambda _, conn: self.block(conn, command.make))
        if isinstance(command, Pause):
            return time.sleep(command.seconds)
        if isinstance(command, Elapsed):
            return time.monotonic()
        return self.during(command)

    def retried(self, work: Callable[[Source, psycopg.Connection[Any]], Any]) -> Any:
        if self.conn is not None:
            return work(as_source(self.conn), self.conn)
        attempt = 0
        while True:
            try:
                with self.source.connection() as conn:
                    return work(self.source, conn)
            except psycopg.Error as error:
                if not (self.source.owns and _may_retry(error, attempt)):
                    raise
            time.sleep(_FIRST_PAUSE * 2**attempt)
            attempt += 1

    def block(self, conn: psycopg.Connection[Any], make: Callable[[], Steps[Any]]) -> Any:
        try:
            if not self.source.owns:
                join(conn)
            with raise_ours(), conn.transaction():
                return _Driver(self.source, conn).run(make())
        except Undo as undo:
            return undo.value

    def during(self, command: During) -> Any:
        done = threading.Event()

        def beat() -> None:
            while not done.wait(command.every):
                try:
                    drive(self.source, command.tick())
                except Exception as error:  # noqa: BLE001 -- the next one is tried
                    log.warning("a periodic step failed and will be tried again: %s", type(error).__name__)

        threading.Thread(target=beat, name="underseal-beat", daemon=True).start()
        try:
            return self.run(command.make())
        finally:
            done.set()


class _AsyncDriver:
    def __init__(self, source: AsyncSource, conn: psycopg.AsyncConnection[Any] | None = None) -> None:
        self.source = source
        self.conn = conn

    async def run(self, steps: Steps[T]) -> T:
        advance: Callable[[], Command] = lambda: steps.send(None)  # noqa: E731
        try:
            while True:
                command = advance()
                try:
                    answer = await self.perform(command)
                except BaseException as error:  # noqa: BLE001 -- the steps decide
                    advance = _thrower(steps, error)
                else:
                    advance = _sender(steps, answer)
        except StopIteration as stop:
            value: T = stop.value
            return value
        finally:
            steps.close()

    async def perform(self, command: Command) -> Any:
        if isinstance(command, Query):
            return await self.retried(lambda source, conn: source.single(conn, command.sql, command.params))
        if isinstance(command, Call):
            if inspect.iscoroutinefunction(inspect.unwrap(command.function)):
                return await command.function(*command.args)
            result = await in_thread(command.function, *command.args)
            return await result if inspect.isawaitable(result) else result
        if isinstance(command, Atomic):
            return await self.retried(lambda _, conn: self.block(conn, command.make))
        if isinstance(command, Pause):
            return await asyncio.sleep(command.seconds)
        if isinstance(command, Elapsed):
            return asyncio.get_running_loop().time()
        return await self.during(command)

    async def retried(self, work: Callable[[AsyncSource, psycopg.AsyncConnection[Any]], Any]) -> Any:
        # what is below may swallow a cancellation that comes together with an answer, and whoever was told to end would
        # go on for ever
        task = asyncio.current_task()
        asked = 0 if task is None else task.cancelling()
        try:
            answer = await self._retried(work)
        except Exception:
            if task is not None and task.cancelling() > asked:
                raise asyncio.CancelledError from None
            raise
        if task is not None and task.cancelling() > asked:
            raise asyncio.CancelledError
        return answer

    async def _retried(self, work: Callable[[AsyncSource, psycopg.AsyncConnection[Any]], Any]) -> Any:
        if self.conn is not None:
            return await work(as_async_source(self.conn), self.conn)
        attempt = 0
        while True:
            try:
                async with self.source.connection() as conn:
                    return await work(self.source, conn)
            except psycopg.Error as error:
                if not (self.source.owns and _may_retry(error, attempt)):
                    raise
            await asyncio.sleep(_FIRST_PAUSE * 2**attempt)
            attempt += 1

    async def block(self, conn: psycopg.AsyncConnection[Any], make: Callable[[], Steps[Any]]) -> Any:
        try:
            if not self.source.owns:
                await join_async(conn)
            with raise_ours():
                async with conn.transaction():
                    return await _AsyncDriver(self.source, conn).run(make())
        except Undo as undo:
            return undo.value

    async def during(self, command: During) -> Any:
        async def beat() -> None:
            while True:
                await asyncio.sleep(command.every)
                try:
                    await drive_async(self.source, command.tick())
                except Exception as error:  # noqa: BLE001 -- the next one is tried
                    log.warning("a periodic step failed and will be tried again: %s", type(error).__name__)

        beating = asyncio.create_task(beat())
        try:
            return await self.run(command.make())
        finally:
            beating.cancel()


def _sender(steps: Steps[Any], answer: Any) -> Callable[[], Command]:
    return lambda: steps.send(answer)


def _thrower(steps: Steps[Any], error: BaseException) -> Callable[[], Command]:
    return lambda: steps.throw(error)
