"""Full cycles a second, through the kernel and without it, in turns."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Final

import psycopg

from bench.clients import SIDES, running_clients
from bench.past import drain
from bench.setting import as_service, make_bare_tables, make_database
from underseal.foundation.server import Server

MEASURES: Final = {
    "kernel": "cycles_per_s",
    "kernel-by-id": "by_id_cycles_per_s",
    "pipeline": "bare_cycles_per_s",
    "one-statement": "bare_one_statement_cycles_per_s",
    "one-by-one": "bare_one_by_one_cycles_per_s",
}
RATIOS: Final = {
    "pipeline": "vs_bare",
    "one-statement": "vs_bare_one_statement",
    "one-by-one": "vs_bare_one_by_one",
}
DBNAME: Final = "cycles"


def measure_cycles(
    server: Server, *, amounts: tuple[int, ...], seconds: float, rounds: int, tell: Callable[[str], None]
) -> dict[str, float]:
    """Measure every side at every number of clients.

    Parameters:
        server: where; a database is made.
        amounts: numbers of clients.
        seconds: length of one round of one side.
        rounds: how many rounds of each side; their order alternates.
        tell: is told how far it is.

    Returns: `held.c<clients>.…`: medians of cycles a second, and the ratios: the median of what each
    round of the kernel did beside the bare round next to it.
    """
    make_database(server, DBNAME)
    make_bare_tables(server, DBNAME)
    numbers: dict[str, float] = {}
    with running_clients(as_service(server, DBNAME), max(amounts)) as clients:
        for side in SIDES:
            clients.round(side, max(amounts), seconds)
        for amount in amounts:
            rates: dict[str, list[float]] = {side: [] for side in SIDES}
            for turn in range(rounds):
                tell(f"{amount} clients, round {turn + 1} of {rounds}")
                for side in SIDES[:: 1 if turn % 2 else -1]:
                    rates[side].append(clients.round(side, amount, seconds))
            for side, name in MEASURES.items():
                numbers[f"held.c{amount}.{name}"] = median(rates[side])
            for side, name in RATIOS.items():
                numbers[f"held.c{amount}.{name}"] = median(
                    kernel / bare for kernel, bare in zip(rates["kernel"], rates[side], strict=True)
                )
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
