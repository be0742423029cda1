"""What the log writes beside a table made by hand (WAL, tables, commits), and what its fold costs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

import psycopg

from bench.appends import APPEND, KernelAppends, KernelBatches, RawAppends, RawBatches
from bench.clients import Side
from bench.log_setting import EVENT, Service, append_item, array, make_log_database, one, start
from bench.one_step import ThreeBatches, ThreeCommits, TwoBatches
from bench.setting import as_owner, as_service
from bench.turns import ratio, take_turns, telling
from underseal.foundation.server import Server

DBNAME: Final = "costs"
FOLDED: Final = "folded"
UNFOLDED: Final = "unfolded"
COUNTERS: Final = """
  select pg_current_wal_insert_lsn() - '0/0'::pg_lsn, d.xact_commit,
    (select sum(pg_total_relation_size(c.oid))
      from pg_class c where c.relnamespace = %s::regnamespace and c.relkind = 'r')
  from pg_stat_database d
  where d.datname = current_database()
"""


@dataclass(frozen=True)
class Written:
    """What some work wrote, for each thing that was done.

    Parameters:
        wal: bytes of WAL.
        commits: transactions that were committed.
        table: bytes by which the tables grew, their indexes included.
    """

    wal: float
    commits: float
    table: float


def each(before: tuple[float, ...], after: tuple[float, ...], done: int) -> Written:
    """The difference of two readings of the counters, divided by how much was done between them.

    Parameters:
        before, after: bytes of WAL, commits, bytes of tables.
        done: how much.
    """
    wal, commits, table = ((now - then) / done for then, now in zip(before, after, strict=True))
    return Written(wal, commits, table)


def _counters(service: Service, admin: psycopg.Connection[Any], schema: str) -> tuple[float, ...]:
    # the service reports its own commits, this one among them, at the latest now
    service.execute("select pg_stat_force_next_flush()")
    row = admin.execute(COUNTERS, [schema]).fetchone()
    assert row is not None
    wal, commits, table = row
    return float(wal), float(commits), float(table)


def _written(
    service: Service, admin: psycopg.Connection[Any], side: Side, schema: str, steps: int
) -> Written:
    side.prepare()
    side.step()
    before = _counters(service, admin, schema)
    # one commit is that of the flush itself
    before = (before[0], before[1] + 1, before[2])
    done = sum(side.step() for _ in range(steps))
    return each(before, _counters(service, admin, schema), done)


def measure_written(server: Server, *, events: int, tell: Callable[[str], None]) -> dict[str, float]:
    """What an event and a one-step execution write.

    Parameters:
        server: where; a database is made.
        events: how many events, or executions, are written by each side.
        tell: is told how far it is.

    Returns: `append.…`, `append_batch.…` (100 executions, one event each) and `one_step.…`: `wal_bytes`, and of the
    last two `table_bytes` (all tables that grew, with their indexes) and `commits`; the same of the raw sides.
    """
    make_log_database(server, DBNAME)
    kernel, raw = "underseal", "raw"
    with (
        psycopg.connect(as_service(server, DBNAME), autocommit=True) as service,
        psycopg.connect(server.conninfo(DBNAME), autocommit=True) as admin,
    ):
        admin.execute("set stats_fetch_consistency = none")
        sides: dict[str, tuple[Side, str, int]] = {
            "append": (KernelAppends(service), kernel, events),
            "append.raw": (RawAppends(service), raw, events),
            "append_batch": (KernelBatches(service, 100, 1), kernel, events // 100),
            "append_batch.raw": (RawBatches(service, 100, 1, "json"), raw, events // 100),
            "one_step": (ThreeBatches(service), kernel, events // 64),
            "one_step.two_batches": (TwoBatches(service), kernel, events // 64),
            "one_step.raw3": (ThreeCommits(service), raw, events),
        }
        written = {}
        for name, (side, schema, steps) in sides.items():
            tell(f"bytes of {name}")
            written[name] = _written(service, admin, side, schema, max(1, steps))
    numbers = {f"{under(name)}wal_bytes": cost.wal for name, cost in written.items()}
    for name in ("append_batch", "append_batch.raw", "one_step", "one_step.raw3"):
        numbers[f"{under(name)}table_bytes"] = written[name].table
    for name in ("one_step", "one_step.two_batches", "one_step.raw3"):
        numbers[f"{under(name)}commits"] = written[name].commits
    for name, other in (("append", "raw"), ("append_batch", "raw"), ("one_step", "raw3")):
        numbers[f"{name}.wal_bytes.vs_{other}"] = written[name].wal / written[f"{name}.{other}"].wal
    for name, other in (("append_batch", "raw"), ("one_step", "raw3")):
        numbers[f"{name}.table_bytes.vs_{other}"] = written[name].table / written[f"{name}.{other}"].table
    return numbers


def under(name: str) -> str:
    """`append.` and `append.raw_`, so that a side's figures stand beside the kernel's."""
    room, _, side = name.partition(".")
    return f"{room}.{side}_" if side else f"{room}."


class _Once:
    """Appends each of which goes to an execution of its own, since without the fold a log takes one append only."""

    def __init__(self, server: Server, dbname: str, *, singles: int, batches: int, rounds: int) -> None:
        make_log_database(server, dbname)
        self._singles = singles
        self._batches = batches
        self._service = psycopg.connect(as_service(server, dbname), autocommit=True)
        # what the disk takes is the same on both sides, and would hide what the fold takes
        self._service.execute("set synchronous_commit = off")
        self._ids = start(self._service, (singles + 100 * batches) * rounds)

    def close(self) -> None:
        self._service.close()

    def single(self) -> float:
        """Microseconds of one append."""
        events = array([EVENT])
        ids = [self._ids.pop() for _ in range(self._singles)]
        begin = time.perf_counter()
        for execution_id in ids:
            one(self._service, APPEND, "appended", execution_id, events)
        return (time.perf_counter() - begin) / len(ids) * 1e6

    def row(self) -> float:
        """Microseconds of one event in a batch of a hundred."""
        batches = [array([append_item(self._ids.pop(), 1) for _ in range(100)]) for _ in range(self._batches)]
        begin = time.perf_counter()
        for batch in batches:
            self._service.execute(
                "select outcome, reason, head from underseal.append_batch(%s)", [batch], prepare=True
            ).fetchall()
        return (time.perf_counter() - begin) / (100 * len(batches)) * 1e6


def measure_fold(
    server: Server, *, singles: int, rounds: int, tell: Callable[[str], None]
) -> dict[str, float]:
    """What part of an append the fold trigger takes: the same appends in a database whose trigger is disabled.

    Parameters:
        server: where; two databases are made.
        singles: single appends a round; a tenth as many batches.
        rounds: how many rounds.
        tell: is told how far it is.

    Returns: `append.us`, `append.without_fold_us` and `append.fold_share`, and the same for `append_batch`, an event.
    Without waiting for the disk, by one client.
    """
    batches = max(1, singles // 10)
    numbers: dict[str, float] = {}
    with ExitStack() as stack:
        pair = {}
        for name in (FOLDED, UNFOLDED):
            pair[name] = _Once(server, name, singles=singles, batches=batches, rounds=rounds + 1)
            stack.callback(pair[name].close)
        with as_owner(server, UNFOLDED) as owner:
            owner.execute("alter table underseal.event disable trigger event_fold")
        for room, measure in (("append", _Once.single), ("append_batch", _Once.row)):
            figures = _beside(pair, measure, rounds, telling(tell, f"the fold of {room}"))
            numbers[f"{room}.us"] = median(figures[FOLDED])
            numbers[f"{room}.without_fold_us"] = median(figures[UNFOLDED])
            numbers[f"{room}.fold_share"] = 1 - ratio(figures, UNFOLDED, FOLDED)
    return numbers


def _beside(
    pair: Mapping[str, _Once], measure: Callable[[_Once], float], rounds: int, tell: Callable[[str], None]
) -> dict[str, list[float]]:
    # the first calls make the plans
    for once in pair.values():
        measure(once)
    return take_turns(list(pair), rounds, lambda name: measure(pair[name]), tell)
