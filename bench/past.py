"""What a million ended operations cost those who look for open ones: each call on a database with them and on one
without, in turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import quantiles
from typing import Any, Final

import psycopg

from bench.history import add_history
from bench.setting import TYPE, as_service, make_database
from underseal.foundation.server import Server

_Service = psycopg.Connection[Any]

CLAIM: Final = "select outcome from underseal.claim_runs('bench', %s, '{1}', '{bench-key}', 1)"
CALLS: Final[dict[str, Callable[[_Service], list[tuple[Any, ...]]]]] = {
    "claim": lambda service: service.execute(CLAIM, [[TYPE]], prepare=True).fetchall(),
    "list": lambda service: service.execute(
        "select outcome from underseal.list_operations('bob')", prepare=True
    ).fetchall(),
    "list_own": lambda service: service.execute(
        "select outcome from underseal.list_operations('user7')", prepare=True
    ).fetchall(),
    "sweep": lambda service: service.execute(
        "select outcome from underseal.sweep_operations(5)", prepare=True
    ).fetchall(),
    "poll": lambda service: service.execute(
        "select outcome from underseal.read_outbox('bench')", prepare=True
    ).fetchall(),
}
"""Each of them finds something but the poll, which finds nothing new."""


_WARM: Final = """
  select count(*)
  from underseal.held_operation o
  join underseal.held_operation p on p.operation_id = o.operation_id
  join underseal.audit_entry a on a.operation_id = o.operation_id and a.id = o.request_audit_id
  join underseal.held_event e on e.operation_id = o.operation_id
  where o.ended_at is null
"""


def _settle(admin: psycopg.Connection[Any]) -> None:
    """Let the disk finish with the past, and memory hold what is open, as if it had been written lately."""
    admin.execute("checkpoint")
    for other in ("hashjoin", "mergejoin", "seqscan", "bitmapscan"):
        admin.execute(f"set enable_{other} = off")
    admin.execute(_WARM)


@contextmanager
def _service(server: Server, dbname: str) -> Iterator[_Service]:
    with psycopg.connect(as_service(server, dbname), autocommit=True) as service:
        # the wait for the disk would hide what the search for the rows costs
        service.execute("set synchronous_commit = off")
        service.execute("select underseal.register_consumer('bench', false)")
        yield service


def _microseconds(name: str, service: _Service) -> float:
    begin = time.perf_counter()
    rows = CALLS[name](service)
    taken = time.perf_counter() - begin
    if bool(rows) is (name == "poll"):
        raise RuntimeError(f"expected the opposite of {rows} from {name}: nothing was measured")
    return taken * 1e6


def drain(service: _Service) -> int:
    """Read and acknowledge the whole outbox.

    Parameters:
        service: an autocommit connection; its consumer is called bench.

    Returns: how many events there were.
    """
    total = 0
    while rows := service.execute("select position from underseal.read_outbox('bench', 1000)").fetchall():
        service.execute("select underseal.ack_outbox('bench', %s)", [rows[-1][0]])
        total += len(rows)
    return total


def _compare(name: str, small: _Service, big: _Service, calls: int) -> tuple[float, float]:
    # the first calls make the plans and read their first pages
    for _ in range(calls // 4):
        _microseconds(name, small)
        _microseconds(name, big)
    in_small: list[float] = []
    in_big: list[float] = []
    for turn in range(calls):
        for service, taken in ((small, in_small), (big, in_big))[:: 1 if turn % 2 else -1]:
            taken.append(_microseconds(name, service))
    # the lower quartile: what a call costs that nothing else on the machine interrupted
    return quantiles(in_small)[0], quantiles(in_big)[0]


def measure_past(server: Server, *, ended: int, opened: int, calls: int) -> dict[str, float]:
    """Compare a database with a past with one without.

    Parameters:
        server: where; two databases are made.
        ended: ended operations in the one with a past.
        opened: open operations in both.
        calls: how often each call is made in each; a sweep ends 15 rows each time.

    Returns: for each call `held.small.<call>_us` and `held.big.<call>_us` (lower quartiles, microseconds, with the
    round trip) and `held.big.<call>_ratio` (`held.outbox.empty_poll_ratio` for the poll).
    """
    for dbname, past in (("small", 0), ("big", ended)):
        make_database(server, dbname)
        with psycopg.connect(server.conninfo(dbname), autocommit=True) as admin:
            add_history(admin, ended=past, opened=opened)
            _settle(admin)
    numbers: dict[str, float] = {}
    with _service(server, "small") as small, _service(server, "big") as big:
        for name in CALLS:
            if name == "poll":
                drain(small)
                drain(big)
            in_small, in_big = _compare(name, small, big, calls)
            numbers[f"held.small.{name}_us"] = in_small
            numbers[f"held.big.{name}_us"] = in_big
            numbers["held.outbox.empty_poll_ratio" if name == "poll" else f"held.big.{name}_ratio"] = (
                in_big / in_small
            )
    return numbers
