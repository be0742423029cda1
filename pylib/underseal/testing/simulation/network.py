"""Between a node and the database: each call is on its way, is carried out, and its reply is on its way back."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg import pq
from psycopg.adapt import AdaptersMap
from psycopg.errors import error_from_result
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from underseal.foundation.sources import READING
from underseal.testing.simulation.loop import Life
from underseal.testing.simulation.server import IDLE, Work

if TYPE_CHECKING:
    from underseal.testing.simulation.world import Node, Simulation

_NO_CONNECTION: Final = 4.0
"""Seconds after which a pool gives up."""
_TRIES_AGAIN: Final = 0.25
_NAMED: Final = re.compile(r"underseal\.(\w+)\s*\(")
_IDS: Final = re.compile(r'"execution_id":\s*"([^"]+)"')
_SHORT: Final = 60


class SimCursor(psycopg.AsyncCursor[Any]):
    """Tells its connection what it is about, for the trace."""

    async def execute(self, query: Any, params: Any = None, **more: Any) -> Any:
        """As in psycopg."""
        self._conn.telling = self, _told(query, params)  # type: ignore[attr-defined]
        return await super().execute(query, params, **more)


class SimConnection(psycopg.AsyncConnection[Any]):
    """A connection whose traffic is simulated; all the rest is psycopg's own."""

    def __init__(self, pgconn: Any, simulation: Simulation, node: Node, life: Life) -> None:
        super().__init__(pgconn)
        self._adapters = AdaptersMap(READING)
        self._autocommit = True
        self._isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        self.cursor_factory = SimCursor
        self.prepare_threshold = None
        self.simulation = simulation
        self.node = node
        self.life = life
        self.telling: tuple[SimCursor, str] | None = None
        self.severed = False
        self.under_way: Call | None = None

    def __del__(self, *_: Any) -> None:
        """What it leads to is the server's, and closed there."""

    @property
    def closed(self) -> bool:
        """Whether it is of no use any more."""
        return self.severed or self.pgconn.status == pq.ConnStatus.BAD

    async def close(self) -> None:
        """Close it; what is under way on it goes on in the database, as it would."""
        self.breaks()

    def breaks(self) -> None:
        """It is of no use from now on."""
        if not self.severed:
            self.severed = True
            if self.under_way is None or not self.under_way.arrived:
                self.simulation.give_back(self.pgconn)

    async def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:  # noqa: ARG002, ASYNC109
        """One exchange with the database."""
        if self.closed:
            raise psycopg.OperationalError("the connection is closed")
        cursor, what = self.telling or (
            None,
            str(getattr(gen, "__name__", "call")).strip("_").removesuffix("_gen"),
        )
        self.telling = None
        call = Call(self, gen, what, cursor)
        try:
            return await call.answer
        except asyncio.CancelledError:
            self.breaks()
            raise


class Call:
    """One exchange: on its way, under way, answered."""

    def __init__(self, connection: SimConnection, gen: Any, what: str, cursor: SimCursor | None) -> None:
        self.connection = connection
        self.simulation = connection.simulation
        self.node, self.life = connection.node, connection.life
        self._gen = gen
        self._cursor = cursor
        self.what = what
        self.answer: asyncio.Future[Any] = self.simulation.loop.create_future()
        self.arrived = False
        self.despite = False
        self.lost_call = False
        self.lost_reply = False
        self.dies_with_it: float | None = None
        self._waits_since: float | None = None
        self._value: Any = None
        self._error: BaseException | None = None
        connection.under_way = self
        self.there, self.held, self.back = self.simulation.departs(self)
        if cursor is None or connection.pgconn.transaction_status != IDLE:
            self.held = None
        self.simulation.loop.at(self.simulation.loop.now + self.there, self._arrive)

    def _arrive(self) -> None:
        simulation = self.simulation
        if self.connection.severed:
            self._fail()
            return
        now = simulation.loop.now
        if self.lost_call or max(self.node.cut_until, simulation.server.away_until) > now:
            self._note("never got there")
            self._fail()
            return
        self.arrived = True
        simulation.under_way.append(self)
        pgconn = self.connection.pgconn
        if self.held is not None:
            simulation.server.begin(pgconn)
        if not simulation.server.do(pgconn, self._gen, self._worked):
            self._waits_since = now
            self._note("waits for a lock")

    def _worked(self, work: Work) -> None:
        if self._waits_since is not None:
            self.simulation.waited(self.life, self.simulation.loop.now - self._waits_since)
        self._value, self._error = work.value, work.error
        if self.held is None:
            self._done()
        elif self._error is not None:
            self.simulation.server.end(self.connection.pgconn, b"rollback", lambda _: self._done())
        else:
            self.simulation.loop.at(self.simulation.loop.now + self.held, self._commit)

    def _commit(self) -> None:
        if self not in self.simulation.under_way:
            return  # it was cut off
        self.simulation.server.end(self.connection.pgconn, b"commit", self._committed)

    def _committed(self, work: Work) -> None:
        if work.error is not None:
            self._error = work.error
        else:
            (result,) = work.value
            if result.status != pq.ExecStatus.COMMAND_OK:
                self._error = error_from_result(result)
        self._done()

    def _done(self) -> None:
        """It is in the database, or was refused there."""
        self.simulation.under_way.remove(self)
        self.connection.under_way = None
        self._note(_outcome(None if self._cursor is None else self._cursor.pgresult, self._error))
        if self.connection.severed or self.life.gone:
            self.simulation.give_back(self.connection.pgconn)
        if self.dies_with_it is not None and self.node.life is self.life:
            self.simulation.crash(self.node, self.dies_with_it)
        self.simulation.loop.at(self.simulation.loop.now + self.back, self._reply)

    def _reply(self) -> None:
        if self.life.gone or self.answer.done():
            return
        if self.lost_reply or self.node.cut_until > self.simulation.loop.now or self.connection.closed:
            self._note("its reply is lost")
            self._fail()
        elif self._error is not None:
            self.answer.set_exception(self._error)
        else:
            self.answer.set_result(self._value)

    def cut_off(self) -> None:
        """The database has ended what it did for it: nothing of it is there."""
        self.simulation.under_way.remove(self)
        self.connection.severed = True
        self.simulation.give_back(self.connection.pgconn)
        self._note("is cut off")
        self._fail()

    def _fail(self) -> None:
        self.connection.under_way = None
        self.connection.breaks()
        if not (self.answer.done() or self.life.gone):
            self.answer.set_exception(psycopg.OperationalError("the connection was lost (simulated)"))

    def _note(self, outcome: str) -> None:
        self.simulation.note(self.life.title, self.what, outcome)


class SimPool(AsyncConnectionPool[SimConnection]):
    """What a client takes for a pool: the connections of one life."""

    def __init__(self, simulation: Simulation, node: Node, life: Life) -> None:
        # a pool of psycopg's would open connections and start tasks of its own
        self._simulation = simulation
        self._node = node
        self._life = life
        self.open_ones: list[SimConnection] = []
        self._free: list[SimConnection] = []
        self.kwargs: Any = {}

    @property
    def conninfo(self) -> Any:  # type: ignore[override]
        """It does not tell: whoever would open connections of their own comes here instead."""
        return None

    def __del__(self) -> None:
        """There is nothing to warn of."""

    @asynccontextmanager
    async def connection(self, timeout: float | None = None) -> AsyncIterator[SimConnection]:  # noqa: ARG002, ASYNC109
        """Lend a connection."""
        connection = await self._get()
        try:
            yield connection
        except BaseException:
            if not connection.closed and connection.pgconn.transaction_status != IDLE:
                connection.breaks()
            raise
        finally:
            if connection.closed:
                self.open_ones.remove(connection)
            else:
                self._free.append(connection)

    async def _get(self) -> SimConnection:
        simulation = self._simulation
        while self._free:
            found = self._free.pop()
            if not found.closed:
                return found
            self.open_ones.remove(found)
        gives_up = simulation.loop.time() + _NO_CONNECTION
        while max(self._node.cut_until, simulation.server.away_until) > simulation.loop.now:
            if simulation.loop.time() >= gives_up:
                raise PoolTimeout(f"no connection within {_NO_CONNECTION:g} s (simulated)")
            await asyncio.sleep(_TRIES_AGAIN)
        made = SimConnection(simulation.server.connect(self._life.title), simulation, self._node, self._life)
        self.open_ones.append(made)
        return made

    def cut_off(self) -> None:
        """The database has ended its connections."""
        for connection in self.open_ones:
            connection.breaks()

    def abandon(self) -> None:
        """The process is gone: what has reached the database goes on, what was open there ends."""
        for connection in self.open_ones:
            call = connection.under_way
            if call is None or not call.despite:
                connection.breaks()
        self.open_ones.clear()
        self._free.clear()


def _told(query: Any, params: Any) -> str:
    text = query if isinstance(query, str) else str(query)
    named = _NAMED.search(text)
    what = named.group(1) if named else " ".join(text.split())[:_SHORT]
    values = list(params.values()) if isinstance(params, dict) else list(params or ())
    ids = [found for value in values if isinstance(value, str) for found in _IDS.findall(value)]
    if not ids:
        ids = [
            value for value in values if isinstance(value, str) and 0 < len(value) <= 40 and "{" not in value
        ]
    shown = " ".join(dict.fromkeys(ids))
    return f"{what} {shown}"[: 2 * _SHORT].strip()


def _outcome(result: Any, error: BaseException | None) -> str:
    if error is not None:
        sqlstate = getattr(error, "sqlstate", None)
        return f"{type(error).__name__} {sqlstate or ''}".strip()
    if result is None or result.status != pq.ExecStatus.TUPLES_OK:
        return ""
    names = [result.fname(place) for place in range(result.nfields)]
    if b"outcome" not in names:
        return "1 row" if result.ntuples == 1 else f"{result.ntuples} rows"
    found: dict[str, int] = {}
    for row in range(result.ntuples):
        said = [result.get_value(row, names.index(name)) for name in (b"outcome", b"reason") if name in names]
        told = "/".join(one.decode() for one in said if one)
        found[told] = found.get(told, 0) + 1
    return ", ".join(told if times == 1 else f"{times} {told}" for told, times in found.items())
