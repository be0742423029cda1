"""The database of a simulation: a real Postgres, in which at most one statement moves at a time.

Every statement is carried on until it has ended or waits for a lock that another holds (`pg_blocking_pids` says so);
then it is held there (see `Brake`), whoever comes next in the simulated time is carried on, and in the end the holder.
So the order in which things happen inside the database follows from the seed, though it is the real one.
"""

from __future__ import annotations

import select
from collections.abc import Callable
from typing import Any, Final

import psycopg
from psycopg import pq, sql
from psycopg.generators import execute

from underseal.testing.simulation.brake import Brake
from underseal.testing.simulation.clock import Clock

_FIRST_LOOK: Final = 5
"""Milliseconds after which it is asked whether a statement waits for a lock."""
_NEXT_LOOK: Final = 20
_SETTLED: Final = 4
"""Milliseconds for which it must have waited: longer than `deadlock_timeout`, so that a deadlock ends whoever closed
the circle, and never whoever waited first."""
_END: Final = 10_000
"""Milliseconds that a backend may take to end."""

_BLOCKED: Final = """
select pg_blocking_pids(%s) <> '{}' and a.wait_event_type = 'Lock' as blocked from pg_stat_get_activity(%s) a"""

IDLE = pq.TransactionStatus.IDLE


class Work:
    """Something that one backend does, carried on bit by bit.

    Attributes:
        pgconn: where.
        ended: whether it has.
        value: what it gave.
        error: what it raised.
    """

    def __init__(self, pgconn: Any, gen: Any) -> None:
        """Prepare it.

        Parameters:
            pgconn: the connection.
            gen: a generator of psycopg's, which says whether it waits to read or to write.
        """
        self.pgconn = pgconn
        self.pid: int = pgconn.backend_pid
        self._gen = gen
        self._state: Any = None
        self.ended = False
        self.value: Any = None
        self.error: BaseException | None = None

    def go_on(self, server: Server) -> bool:
        """Carry it on until it has ended, or waits for a lock; whether it has ended."""
        wait = _FIRST_LOOK
        blocked = False
        server.brake.release(self.pid)
        while not self.ended:
            try:
                if self._state is None:
                    self._state = next(self._gen)
                ready = _ready(self.pgconn.socket, self._state, wait)
                if ready:
                    self._state = self._gen.send(ready)
                    blocked, wait = False, _FIRST_LOOK
                elif not server.is_blocked(self.pid):
                    blocked, wait = False, _NEXT_LOOK
                elif blocked:
                    server.brake.hold(self.pid)
                    return False
                else:
                    blocked, wait = True, _SETTLED
            except StopIteration as stop:
                self.ended, self.value = True, stop.value
            except Exception as error:  # noqa: BLE001 -- handed to whoever asked
                self.ended, self.error = True, error
        return True


def _ready(socket: int, state: Any, milliseconds: int) -> int:
    poll = select.poll()
    poll.register(socket, (select.POLLIN if state & 1 else 0) | (select.POLLOUT if state & 2 else 0))
    found = poll.poll(milliseconds)
    if not found:
        return 0
    event = found[0][1]
    return (1 if event & (select.POLLIN | select.POLLHUP | select.POLLERR) else 0) | (
        2 if event & select.POLLOUT else 0
    )


def wait_for_its_end(pgconn: Any) -> None:
    """Read until the backend has closed its end, the last thing it does: its locks are free then.

    Parameters:
        pgconn: a connection whose backend was told to end.
    """
    poll = select.poll()
    poll.register(pgconn.socket, select.POLLIN)
    while poll.poll(_END):
        try:
            pgconn.consume_input()
        except psycopg.OperationalError:
            return
    raise psycopg.OperationalError(f"a backend did not end within {_END} ms")


class Server:
    """One database, its clock, and what is under way in it.

    Attributes:
        clock: what it takes for the time; seconds since `began`.
        now: tells which instant of the simulation it is.
        brake: holds the backends that wait.
        away_until: until when nobody reaches it.
    """

    def __init__(self, conninfo: str, control: psycopg.Connection[Any], began: int) -> None:
        """Prepare it.

        Parameters:
            conninfo: as whom nodes log in.
            control: a connection of a superuser's.
            began: the time at the beginning of a run, in microseconds since 1970.
        """
        self._conninfo = conninfo
        self._control = control
        self.brake = Brake(control.info.backend_pid, control.info.dbname)
        self._began = began
        self._idle: list[Any] = []
        self._lent: list[Any] = []
        self._waiting: list[tuple[Work, Callable[[Work], None]]] = []
        self._shown: int | None = None
        self.reset()

    def reset(self) -> None:
        """Begin another run."""
        self._shown = None
        self.clock = Clock()
        self.now: Callable[[], float] = lambda: 0.0
        self.away_until = 0.0

    def show(self) -> None:
        """Let its clock show what it is, before anything moves there or looks at it."""
        shown = self._began + round(self.clock.shows(self.now()) * 1_000_000)
        if shown != self._shown:
            self._shown = shown
            self._control.execute("select setval('underseal.test_clock', %s)", [shown])

    def is_blocked(self, pid: int) -> bool:
        """Whether a backend sleeps until another one gives up a lock."""
        (row,) = self._control.execute(_BLOCKED, [pid, pid]).fetchall()
        return bool(row["blocked"])

    def ask(self, statement: str, params: Any = None) -> list[Any]:
        """Look into it, from outside the simulation."""
        self.show()
        return self._control.execute(statement.encode(), params).fetchall()

    def noted(self) -> int:
        """The number of the last thing that the witness noted."""
        return int(self.ask("select last_value from witness.number")[0]["last_value"])

    # -- connections -------------------------------------------------------------------------------

    def connect(self, name: str) -> Any:
        """A connection; one that was used before, where there is one, for its plans are made.

        Parameters:
            name: whose, as `application_name`.
        """
        pgconn = self._idle.pop(0) if self._idle else pq.PGconn.connect(self._conninfo.encode())
        if pgconn.status != pq.ConnStatus.OK:
            raise psycopg.OperationalError(pgconn.get_error_message())
        pgconn.nonblocking = 1
        pgconn.exec_(sql.SQL("set application_name = {}").format(name).as_bytes(None))
        self._lent.append(pgconn)
        return pgconn

    def give_back(self, pgconn: Any) -> bool:
        """Nobody uses it any more. What it had open ends.

        Returns: whether something had to end, for which others may have waited: `settle` lets them go on.
        """
        if pgconn in self._lent:
            self._lent.remove(pgconn)
        if pgconn.status == pq.ConnStatus.OK and pgconn.transaction_status == IDLE:
            self._idle.append(pgconn)
            return False
        self.terminate(pgconn)
        return True

    def terminate(self, *pgconns: Any) -> None:
        """End connections with their backends, all at once, and wait until these are gone."""
        self.show()
        waiting = [one[0].pgconn for one in self._waiting if one[0].pgconn in pgconns]
        self._waiting = [one for one in self._waiting if one[0].pgconn not in pgconns]
        # whoever waits for a lock first, or it would get the lock and go on
        living = [*waiting, *(one for one in pgconns if one not in waiting)]
        living = [one for one in living if one.status == pq.ConnStatus.OK]
        if living:
            pids = [one.backend_pid for one in living]
            self._control.execute("select pg_terminate_backend(p) from unnest(%s::int[]) p", [pids])
            for pid in pids:
                self.brake.release(pid)
        for pgconn in living:
            wait_for_its_end(pgconn)
        for pgconn in pgconns:
            pgconn.finish()

    def restart(self, until: float) -> None:
        """End what anybody has open, and be away for a while.

        Parameters:
            until: until when, in seconds of the simulation.
        """
        self.away_until = until
        self.terminate(*(one for one in self._lent if one.transaction_status != IDLE))

    def close(self) -> None:
        """Close all connections."""
        self.restart(0.0)
        self._idle += self._lent
        self._lent.clear()
        for pgconn in self._idle:
            pgconn.finish()
        self._idle.clear()

    # -- work --------------------------------------------------------------------------------------

    def begin(self, pgconn: Any) -> None:
        """Put what comes next into a transaction that its client does not know of."""
        pgconn.exec_(b"begin isolation level read committed")

    def do(self, pgconn: Any, gen: Any, ended: Callable[[Work], None]) -> bool:
        """Carry something out; call `ended` with it now, or when the lock that it waits for is free.

        Returns: whether it has ended.

        Parameters:
            pgconn: where.
            gen: what.
            ended: takes the work.
        """
        self.show()
        work = Work(pgconn, gen)
        if work.go_on(self):
            ended(work)
        else:
            self._waiting.append((work, ended))
        self.settle()
        return work.ended

    def end(self, pgconn: Any, command: bytes, ended: Callable[[Work], None]) -> None:
        """Commit or roll back, in the same way."""

        def gen() -> Any:
            pgconn.send_query(command)
            return (yield from execute(pgconn))

        self.do(pgconn, gen(), ended)

    def settle(self) -> None:
        """Let go on whatever waited for a lock that is free now."""
        moved = True
        while moved:
            moved = False
            for one in list(self._waiting):
                if one in self._waiting and not self.is_blocked(one[0].pid) and one[0].go_on(self):
                    self._waiting.remove(one)
                    one[1](one[0])
                    moved = True
