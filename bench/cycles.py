"""Full cycles a second, through the kernel and without it, in turns."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any, Final

import psycopg

from bench.bare_side import BareSide
from bench.clients import running_clients
from bench.kernel_side import KernelSide
from bench.past import drain
from bench.request import Operation, new_operation
from bench.setting import as_service, make_bare_tables, make_database
from bench.turns import Pace, ratio, telling
from underseal.foundation.server import Server

MEASURES: Final = {
    "kernel": "cycles_per_s",
    "kernel-by-id": "by_id_cycles_per_s",
    "pipeline": "bare_cycles_per_s",
    "one-statement": "bare_one_statement_cycles_per_s",
    "one-by-one": "bare_one_by_one_cycles_per_s",
}
SIDES: Final = tuple(MEASURES)
RATIOS: Final = {
    "pipeline": "vs_bare",
    "one-statement": "vs_bare_one_statement",
    "one-by-one": "vs_bare_one_by_one",
}
DBNAME: Final = "cycles"


class _Cycles:
    """One operation after the other; the first of a round are made before it."""

    def __init__(self, side: KernelSide | BareSide) -> None:
        self._side = side
        self._ready: list[Operation] = []

    def prepare(self) -> None:
        self._ready = [new_operation() for _ in range(20)]

    def step(self) -> int:
        self._side.cycle(self._ready.pop() if self._ready else new_operation())
        return 1


def make_sides(connection: psycopg.Connection[Any]) -> dict[str, _Cycles]:
    """The sides of one client."""
    return {
        "kernel": _Cycles(KernelSide(connection, by_id=False)),
        "kernel-by-id": _Cycles(KernelSide(connection, by_id=True)),
        "pipeline": _Cycles(BareSide(connection, way="pipeline")),
        "one-statement": _Cycles(BareSide(connection, way="one-statement")),
        "one-by-one": _Cycles(BareSide(connection, way="one-by-one")),
    }


def measure_cycles(
    server: Server, *, amounts: tuple[int, ...], pace: Pace, tell: Callable[[str], None]
) -> dict[str, float]:
    """Measure every side at every number of clients.

    Parameters:
        server: where; a database is made.
        amounts: numbers of clients.
        pace: how long and how often each side is measured.
        tell: is told how far it is.

    Returns: `held.c<clients>.…`: medians of cycles a second, and the ratios: the median of what each
    round of the kernel did beside the bare round next to it.
    """
    make_database(server, DBNAME)
    make_bare_tables(server, DBNAME)
    numbers: dict[str, float] = {}
    with running_clients(as_service(server, DBNAME), max(amounts), make_sides) as clients:
        for side in SIDES:
            clients.round(side, max(amounts), pace.seconds)
        for amount in amounts:
            figures = clients.compare(
                SIDES, amount, pace, telling(tell, f"held operations, {amount} clients")
            )
            for side, name in MEASURES.items():
                numbers[f"held.c{amount}.{name}"] = median(figures[side])
            for side, name in RATIOS.items():
                numbers[f"held.c{amount}.{name}"] = ratio(figures, "kernel", side)
    return numbers | _outbox(server)


def _outbox(server: Server) -> dict[str, float]:
    """What the cycles left in the outbox: how fast it is read, and what reading leaves behind."""
    with psycopg.connect(as_service(server, DBNAME), autocommit=True) as service:
        service.execute("select underseal.register_consumer('bench')")
        begin = time.perf_counter()
        events = drain(service)
        taken = time.perf_counter() - begin
        times = []
        for _ in range(50):
            begin = time.perf_counter()
            service.execute("select outcome from underseal.read_outbox('bench')").fetchall()
            times.append(time.perf_counter() - begin)
    return {
        "held.outbox.events": events,
        "held.outbox.read_events_per_s": events / taken,
        "held.outbox.empty_poll_after_us": median(times) * 1e6,
    }
