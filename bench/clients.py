"""Clients in processes of their own, one connection each, that take turns on every side that is compared."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Protocol

import psycopg

from bench.turns import Pace, take_turns


class Side(Protocol):
    """One way to do what is measured."""

    def prepare(self) -> None:
        """Make ready what the next round needs; not measured."""

    def step(self) -> int:
        """Do it once.

        Returns: how much was done.
        """


MakeSides = Callable[[psycopg.Connection[Any]], Mapping[str, Side]]
"""Makes a client's sides; a function of a module, since the clients import it."""


def _serve(conninfo: str, make_sides: MakeSides, pipe: Connection) -> None:
    """A client: told a side it prepares; told an instant (monotonic seconds) it goes on until then and answers how
    much it did."""
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.prepared_max = None
        sides = make_sides(connection)
        pipe.send(0)
        while True:
            side = sides[pipe.recv()]
            side.prepare()
            pipe.send(0)
            begin, end = pipe.recv()
            time.sleep(max(0.0, begin - time.monotonic()))
            step = side.step
            done = 0
            while time.monotonic() < end:
                done += step()
            pipe.send(done)


def _answer(pipe: Connection) -> int:
    try:
        done: int = pipe.recv()
    except EOFError as end:
        raise RuntimeError(
            "expected a client's answer, found that it ended: what it printed says why"
        ) from end
    return done


@dataclass
class Clients:
    """Running clients."""

    pipes: list[Connection]

    def round(self, side: str, amount: int, seconds: float) -> float:
        """Let some of the clients work for a while.

        Parameters:
            side: the name of one of their sides.
            amount: how many clients.
            seconds: for how long.

        Returns: what they did a second, all of them together.
        """
        pipes = self.pipes[:amount]
        for pipe in pipes:
            pipe.send(side)
        for pipe in pipes:
            _answer(pipe)
        begin = time.monotonic() + 0.05
        for pipe in pipes:
            pipe.send((begin, begin + seconds))
        total: int = sum(_answer(pipe) for pipe in pipes)
        return total / (time.monotonic() - begin)

    def compare(
        self, sides: Sequence[str], amount: int, pace: Pace, tell: Callable[[str], None]
    ) -> dict[str, list[float]]:
        """Let them take turns on several sides.

        Parameters:
            sides: what is compared.
            amount: how many clients.
            pace: how long and how often.
            tell: is told how far it is.

        Returns: of each side what they did a second, round by round.
        """
        return take_turns(sides, pace.rounds, lambda side: self.round(side, amount, pace.seconds), tell)


@contextmanager
def running_clients(conninfo: str, amount: int, make_sides: MakeSides) -> Iterator[Clients]:
    """Start clients and stop them at the end.

    Parameters:
        conninfo: the service's connection string.
        amount: how many.
        make_sides: makes the sides of each.
    """
    context = multiprocessing.get_context("spawn")
    with ExitStack() as stack:
        pipes = []
        for _ in range(amount):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(conninfo, make_sides, theirs), daemon=True)
            process.start()
            theirs.close()
            stack.callback(process.join)
            stack.callback(process.terminate)
            pipes.append(ours)
        for pipe in pipes:
            _answer(pipe)
        yield Clients(pipes)
