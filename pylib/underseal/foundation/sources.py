"""Where connections come from: a conninfo, a pool of psycopg_pool, or the caller's own connection.

A connection of ours or of a pool is used at READ COMMITTED, which the schema's functions need; on a
caller's own connection the isolation level is the caller's affair and the schema refuses another
one with US008. Nothing is kept in the session between two statements, so that pgbouncer in
transaction mode is fine; then switch prepared statements off (`prepare_threshold=None`).
"""

from __future__ import annotations

import json
import select
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from decimal import Decimal
from functools import partial
from typing import Any, Final, Protocol

import psycopg
from psycopg.adapt import AdaptersMap
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row
from psycopg.types.json import set_json_loads
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from underseal.errors import SQLSTATES, KernelError

_DIGITS: Final = 4300
"""Python makes no integer of more digits from a text."""


def _integer(digits: str) -> int | Decimal:
    return int(digits) if len(digits) <= _DIGITS else Decimal(digits)


# Whoever may start an execution may put a longer number into its log, and must not stop who reads all logs with it.
READING: Final = AdaptersMap(psycopg.adapters)
set_json_loads(partial(json.loads, parse_int=_integer), READING)

_READ_COMMITTED = psycopg.IsolationLevel.READ_COMMITTED
_WRONG_ISOLATION = "US008"
_WAIT: Final = 30.0
_RECONNECT: Final = 300.0
_SHORT_WAIT: Final = 4.0
"""Seconds. A pool that tries for longer tries ever more rarely, and would come back late after a long outage."""

Params = Mapping[str, Any] | Sequence[Any] | None


@contextmanager
def raise_ours() -> Iterator[None]:
    """Turn a database error of class US into `KernelError`; any other passes as it is."""
    try:
        yield
    except psycopg.Error as error:
        if error.sqlstate is not None and error.sqlstate in SQLSTATES:
            message = error.diag.message_primary or str(error)
            raise KernelError(error.sqlstate, message) from None
        raise


class ConninfoError(ValueError):
    """What was given as a connection string is none. Nothing of it is said: it may hold a password."""

    def __init__(self) -> None:
        """Say what was expected."""
        super().__init__(
            "expected a libpq connection string or a postgresql:// URL, found neither"
            " (not shown: it may hold a password)"
        )


def _readable(conninfo: str) -> str:
    """A conninfo that libpq can read. A pool would try one that it cannot read again and again, for half a minute."""
    try:
        conninfo_to_dict(conninfo)
    except psycopg.ProgrammingError:
        pass
    else:
        return conninfo
    raise ConninfoError


def _silent(conn: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    """Whether nothing has come from the server since the last statement. When it ends it says so, or hangs up."""
    if not hasattr(select, "poll"):
        return not select.select([conn], [], [], 0)[0]
    looker = select.poll()
    looker.register(conn.fileno(), select.POLLIN)
    return not looker.poll(0)


async def _look_async(conn: psycopg.AsyncConnection[Any]) -> None:
    """Let a connection pass that the server has not ended; a round trip only where something came from there."""
    if not _silent(conn):
        await AsyncConnectionPool.check_connection(conn)


Place = tuple[str, dict[str, Any]]
"""A conninfo, and what psycopg is told besides: where a connection of one's own can be opened."""


def _place_of(pool: ConnectionPool[Any] | AsyncConnectionPool[Any]) -> Place | None:
    conninfo, more = pool.conninfo, pool.kwargs
    if not isinstance(conninfo, str):
        return None
    return conninfo, dict(more) if isinstance(more, dict) else {}


class Source(Protocol):
    """Gives sync connections, one unit of work each.

    Attributes:
        owns: whether a unit of work is ours to retry; false on a caller's own connection.
    """

    owns: bool

    def connection(self) -> AbstractContextManager[psycopg.Connection[Any]]:
        """Lend a connection for one statement or one transaction."""
        ...

    def single(self, conn: psycopg.Connection[Any], sql: Any, params: Params) -> list[dict[str, Any]]:
        """Run one statement, on its own or in the transaction that is open."""
        ...

    def close(self) -> None:
        """Give back what this source opened itself."""
        ...


class AsyncSource(Protocol):
    """Gives async connections; otherwise like `Source`."""

    owns: bool

    def connection(self) -> AbstractAsyncContextManager[psycopg.AsyncConnection[Any]]:
        """Lend a connection for one statement or one transaction."""
        ...

    async def single(
        self, conn: psycopg.AsyncConnection[Any], sql: Any, params: Params
    ) -> list[dict[str, Any]]:
        """Run one statement, on its own or in the transaction that is open."""
        ...

    async def close(self) -> None:
        """Give back what this source opened itself."""
        ...


class PoolSource:
    """Connections of a pool: the host's, or one opened here from a conninfo.

    Our own pool checks a connection before it lends it, so that a database restart costs the
    check and not a failed call.
    """

    owns = True

    def __init__(
        self, pool: str | ConnectionPool[Any], *, max_size: int = 10, prepare_threshold: int | None = 5
    ) -> None:
        """Take a pool, or make one that opens at its first use.

        Parameters:
            pool: a conninfo, or a pool of psycopg_pool.
            max_size: most connections of a pool made here.
            prepare_threshold: runs of a statement before it is prepared, for a pool made here;
                None behind pgbouncer in transaction mode.

        Errors:
            ValueError: the text is no conninfo.
        """
        self._mine = isinstance(pool, str)
        self._pool: ConnectionPool[Any] = (
            ConnectionPool(
                _readable(pool),
                min_size=0,
                max_size=max_size,
                open=False,
                check=ConnectionPool.check_connection,
                kwargs={"autocommit": True, "prepare_threshold": prepare_threshold, "context": READING},
                name="underseal",
            )
            if isinstance(pool, str)
            else pool
        )
        self._plain = True

    @contextmanager
    def connection(self) -> Iterator[psycopg.Connection[Any]]:
        """Lend a connection at READ COMMITTED for one statement or one transaction."""
        if self._mine and self._pool.closed:
            self._pool.open()
        with self._pool.connection() as conn:
            before = conn.isolation_level
            if before != _READ_COMMITTED:
                conn.isolation_level = _READ_COMMITTED
            try:
                yield conn
            finally:
                if before != _READ_COMMITTED and conn.info.transaction_status == TransactionStatus.IDLE:
                    conn.isolation_level = before

    def single(self, conn: psycopg.Connection[Any], sql: Any, params: Params) -> list[dict[str, Any]]:
        """Run one statement in a transaction of its own."""
        if conn.autocommit and self._plain:
            try:
                return fetch(conn, sql, params)
            except KernelError as error:
                # A bare statement runs at the server's default isolation. Where that is not READ
                # COMMITTED it takes a BEGIN that says so, from now on.
                if error.sqlstate != _WRONG_ISOLATION:
                    raise
                self._plain = False
        with conn.transaction():
            return fetch(conn, sql, params)

    @property
    def mine(self) -> bool:
        """Whether the pool was made here, from a conninfo."""
        return self._mine

    @property
    def place(self) -> Place | None:
        """Where its connections lead; None where a pool of the host's does not tell."""
        return _place_of(self._pool)

    def close(self) -> None:
        """Close the pool, if it was made here."""
        if self._mine:
            self._pool.close()


class CallerSource:
    """The caller's own connection, in whatever transaction it has open."""

    owns = False

    def __init__(self, conn: psycopg.Connection[Any]) -> None:
        """Keep the connection; it is never closed, committed or rolled back here.

        Parameters:
            conn: the connection.
        """
        self._conn = conn

    @contextmanager
    def connection(self) -> Iterator[psycopg.Connection[Any]]:
        """Lend the one connection."""
        yield self._conn

    def single(self, conn: psycopg.Connection[Any], sql: Any, params: Params) -> list[dict[str, Any]]:
        """Run one statement in the caller's transaction."""
        return fetch(conn, sql, params)

    def close(self) -> None:
        """Leave the connection alone: it is the caller's."""


class AsyncPoolSource:
    """The async twin of `PoolSource`."""

    owns = True

    def __init__(
        self,
        pool: str | AsyncConnectionPool[Any],
        *,
        max_size: int = 10,
        prepare_threshold: int | None = 5,
        check: bool = True,
    ) -> None:
        """Take a pool, or make one that opens at its first use.

        Parameters:
            pool, max_size, prepare_threshold: as in `PoolSource`.
            check: whether a connection is tried before it is lent, or only looked at: for whoever calls often and
                bears a failed call. Such a one is told soon that the database is away, and asks again.
        """
        self._mine = isinstance(pool, str)
        self._pool: AsyncConnectionPool[Any] = (
            AsyncConnectionPool(
                _readable(pool),
                min_size=0,
                max_size=max_size,
                open=False,
                check=AsyncConnectionPool.check_connection if check else _look_async,
                timeout=_WAIT if check else _SHORT_WAIT,
                reconnect_timeout=_RECONNECT if check else _SHORT_WAIT,
                kwargs={"autocommit": True, "prepare_threshold": prepare_threshold, "context": READING},
                name="underseal",
            )
            if isinstance(pool, str)
            else pool
        )
        self._plain = True

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        """Lend a connection at READ COMMITTED for one statement or one transaction."""
        if self._mine and self._pool.closed:
            await self._pool.open()
        async with self._pool.connection() as conn:
            before = conn.isolation_level
            if before != _READ_COMMITTED:
                await conn.set_isolation_level(_READ_COMMITTED)
            try:
                yield conn
            finally:
                if before != _READ_COMMITTED and conn.info.transaction_status == TransactionStatus.IDLE:
                    await conn.set_isolation_level(before)

    async def single(
        self, conn: psycopg.AsyncConnection[Any], sql: Any, params: Params
    ) -> list[dict[str, Any]]:
        """Run one statement in a transaction of its own."""
        if conn.autocommit and self._plain:
            try:
                return await fetch_async(conn, sql, params)
            except KernelError as error:
                if error.sqlstate != _WRONG_ISOLATION:
                    raise
                self._plain = False
        async with conn.transaction():
            return await fetch_async(conn, sql, params)

    @property
    def mine(self) -> bool:
        """Whether the pool was made here, from a conninfo."""
        return self._mine

    @property
    def place(self) -> Place | None:
        """Where its connections lead; None where a pool of the host's does not tell."""
        return _place_of(self._pool)

    async def close(self) -> None:
        """Close the pool, if it was made here."""
        if self._mine:
            await self._pool.close()


class AsyncCallerSource:
    """The async twin of `CallerSource`."""

    owns = False

    def __init__(self, conn: psycopg.AsyncConnection[Any]) -> None:
        """Keep the connection; it is never closed, committed or rolled back here."""
        self._conn = conn

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        """Lend the one connection."""
        yield self._conn

    async def single(
        self, conn: psycopg.AsyncConnection[Any], sql: Any, params: Params
    ) -> list[dict[str, Any]]:
        """Run one statement in the caller's transaction."""
        return await fetch_async(conn, sql, params)

    async def close(self) -> None:
        """Leave the connection alone: it is the caller's."""


def fetch(conn: psycopg.Connection[Any], sql: Any, params: Params) -> list[dict[str, Any]]:
    """Run one statement and return its rows as dicts, whatever row factory the connection has.

    Parameters:
        conn: the connection.
        sql: the statement.
        params: what is bound to it.

    Errors:
        KernelError: a SQLSTATE of class US.
    """
    with raise_ours(), conn.cursor(row_factory=dict_row) as cursor:
        cursor.execute(sql, params)
        return cursor.fetchall() if cursor.description is not None else []


async def fetch_async(conn: psycopg.AsyncConnection[Any], sql: Any, params: Params) -> list[dict[str, Any]]:
    """The async twin of `fetch`."""
    with raise_ours():
        async with conn.cursor(row_factory=dict_row) as cursor:
            await cursor.execute(sql, params)
            return await cursor.fetchall() if cursor.description is not None else []


def as_source(place: Source | psycopg.Connection[Any]) -> Source:
    """A connection of the caller's own becomes a source; a source stays what it is."""
    return CallerSource(place) if isinstance(place, psycopg.Connection) else place


def as_async_source(place: AsyncSource | psycopg.AsyncConnection[Any]) -> AsyncSource:
    """The async twin of `as_source`."""
    return AsyncCallerSource(place) if isinstance(place, psycopg.AsyncConnection) else place


def join(conn: psycopg.Connection[Any]) -> None:
    """Open the transaction that a caller's connection without autocommit has implicitly.

    psycopg would otherwise take a block on an idle connection for a transaction of its own, and
    commit it at the end of the block, behind the caller's back.

    Parameters:
        conn: the caller's connection.
    """
    if not conn.autocommit and conn.info.transaction_status == TransactionStatus.IDLE:
        conn.execute("select 1")


async def join_async(conn: psycopg.AsyncConnection[Any]) -> None:
    """The async twin of `join`."""
    if not conn.autocommit and conn.info.transaction_status == TransactionStatus.IDLE:
        await conn.execute("select 1")
