"""Clients in processes of their own, one connection each, that take turns on every side that is compared."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Final, Protocol

import psycopg

from bench.bare_side import BareSide
from bench.kernel_side import KernelSide
from bench.request import Operation, new_operation

SIDES: Final = ("kernel", "kernel-by-id", "pipeline", "one-statement", "one-by-one")


class _Side(Protocol):
    def cycle(self, op: Operation) -> None: ...


def _serve(conninfo: str, pipe: Connection) -> None:
    """A client: told a side and an instant (monotonic seconds), it cycles until then and answers how often."""
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.prepared_max = None
        sides: dict[str, _Side] = {
            "kernel": KernelSide(connection, by_id=False),
            "kernel-by-id": KernelSide(connection, by_id=True),
            "pipeline": BareSide(connection, way="pipeline"),
            "one-statement": BareSide(connection, way="one-statement"),
            "one-by-one": BareSide(connection, way="one-by-one"),
        }
        pipe.send(0)
        while True:
            side, begin, end = pipe.recv()
            cycle = sides[side].cycle
            ready = [new_operation() for _ in range(20)]
            time.sleep(max(0.0, begin - time.monotonic()))
            done = 0
            while time.monotonic() < end:
                cycle(ready.pop() if ready else new_operation())
                done += 1
            pipe.send(done)


@dataclass
class Clients:
    """Running clients."""

    pipes: list[Connection]

    def round(self, side: str, amount: int, seconds: float) -> float:
        """Let some of the clients cycle for a while.

        Parameters:
            side: one of SIDES.
            amount: how many clients.
            seconds: for how long.

        Returns: cycles a second, all of them together.
        """
        begin = time.monotonic() + 0.05
        for pipe in self.pipes[:amount]:
            pipe.send((side, begin, begin + seconds))
        total: int = sum(pipe.recv() for pipe in self.pipes[:amount])
        return total / (time.monotonic() - begin)


@contextmanager
def running_clients(conninfo: str, amount: int) -> Iterator[Clients]:
    """Start clients and stop them at the end.

    Parameters:
        conninfo: the service's connection string.
        amount: how many.
    """
    context = multiprocessing.get_context("spawn")
    with ExitStack() as stack:
        pipes = []
        for _ in range(amount):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(conninfo, theirs), daemon=True)
            process.start()
            theirs.close()
            stack.callback(process.join)
            stack.callback(process.terminate)
            pipes.append(ours)
        for pipe in pipes:
            pipe.recv()
        yield Clients(pipes)
