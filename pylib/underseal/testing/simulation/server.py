"""The database of a simulation: a real Postgres, in which at most one statement moves at a time.

Every statement is carried on until it has ended or waits for a lock that another holds (`pg_blocking_pids` says so);
then whoever comes next in the simulated time is carried on, and in the end the holder. So the order in which things
happen inside the database follows from the seed, though it is the real one.
"""

from __future__ import annotations

import select
from collections.abc import Callable
from typing import Any, Final

import psycopg
from psycopg import pq
from psycopg.generators import execute

from underseal.testing.simulation.clock import Clock

_FIRST_LOOK: Final = 5
"""Milliseconds after which it is asked whether a statement waits for a lock."""
_NEXT_LOOK: Final = 20
_END: Final = 10_000
"""Milliseconds that a backend may take to end."""

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
        while not self.ended:
            try:
                if self._state is None:
                    self._state = next(self._gen)
                ready = _ready(self.pgconn.socket, self._state, wait)
                if ready:
                    self._state = self._gen.send(ready)
                elif server.is_blocked(self.pid):
                    return False
                else:
                    wait = _NEXT_LOOK
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


class Server:
    """One database, its clock, and what is under way in it.

    Attributes:
        clock: what it takes for the time; seconds since `began`.
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
        self._began = began
        self._idle: list[Any] = []
        self._waiting: list[tuple[Work, Callable[[Work], None]]] = []
        self._shown: int | None = None
        self.clock = Clock()
        self.away_until = 0.0

    def reset(self) -> None:
        """Begin another run."""
        self._waiting.clear()
        self._shown = None
        self.clock = Clock()
        self.away_until = 0.0

    def show(self, true: float) -> None:
        """Let its clock show an instant of the simulation."""
        shown = self._began + round(self.clock.shows(true) * 1_000_000)
        if shown != self._shown:
            self._shown = shown
            self._control.execute("select setval('underseal.test_clock', %s)", [shown])

    def is_blocked(self, pid: int) -> bool:
        """Whether a backend waits for a lock that another one holds."""
        (row,) = self._control.execute("select pg_blocking_pids(%s) as pids", [pid]).fetchall()
        return bool(row["pids"])

    def ask(self, sql: str, params: Any = None) -> list[Any]:
        """Look into it, from outside the simulation."""
        return self._control.execute(sql.encode(), params).fetchall()

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
        pgconn.exec_(f"set application_name = '{name}'".encode())
        return pgconn

    def give_back(self, pgconn: Any) -> None:
        """Nobody uses it any more. What it had open ends."""
        if pgconn.status == pq.ConnStatus.OK and pgconn.transaction_status == IDLE:
            self._idle.append(pgconn)
        else:
            self.terminate(pgconn)

    def terminate(self, pgconn: Any) -> None:
        """End a connection with its backend, and wait until that is gone. What waited for it may go on then."""
        self._waiting = [one for one in self._waiting if one[0].pgconn is not pgconn]
        if pgconn.status == pq.ConnStatus.OK:
            self._control.execute("select pg_terminate_backend(%s, %s)", [pgconn.backend_pid, _END])
        pgconn.finish()

    def close(self) -> None:
        """Close what is idle."""
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
        work = Work(pgconn, gen)
        if work.go_on(self):
            ended(work)
        else:
            self._waiting.append((work, ended))
        self.settle()
        return work.ended

    def end(self, pgconn: Any, command: bytes, ended: Callable[[Work], None]) -> None:
        """Commit or roll back, in the same way."""
        pgconn.send_query(command)
        self.do(pgconn, execute(pgconn), ended)

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
