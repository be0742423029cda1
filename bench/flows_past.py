"""Flows in a database that has a past and much that waits, beside an empty one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from statistics import median
from typing import Any, Final, LiteralString

import psycopg
from psycopg import sql

from bench.flows_setting import OWNER, Driver, calling, driver, driving, until
from bench.flows_worker import drained, preload, worker
from bench.history import past_triggers
from bench.log_setting import make_log_database
from bench.nodes import Node, running_node
from bench.setting import as_service
from bench.turns import Pace, ratio, take_turns, telling
from underseal.flow.runtime import FlowRuntime
from underseal.foundation.server import Server

AT_ONCE: Final = 64
EVENTS: Final = 50
"""Of an execution that has ended."""
TABLES: Final[tuple[LiteralString, ...]] = ("execution", "event", "wake")
_COLUMNS: Final = """
  select a.attname from pg_attribute a
  where a.attrelid = %s::regclass and a.attnum > 0 and not a.attisdropped and a.attgenerated = ''
    and a.attname <> 'chain_id'
"""
_COPIES: Final = """
  insert into underseal.{table} (chain_id, {columns})
  select md5(t.chain_id || n), {columns}
  from underseal.{table} t, generate_series(1, {amount}) n
  where t.chain_id = {model}
"""


class Models(Driver):
    """Makes one execution of each kind that is copied."""

    def __init__(self, runtime: FlowRuntime) -> None:
        super().__init__(runtime)
        self._runtime = runtime

    async def models(self) -> tuple[str, str, str]:
        """One that has ended, one that waits for a message, one that sleeps."""
        ended = await self._runtime.start("long", OWNER, EVENTS - 2)
        await self._runtime.result(ended)
        parked = [await self._runtime.start(name, OWNER) for name in ("wait", "doze")]
        await until(lambda: self._runtime.counts.parked >= len(parked), 0.01)
        return ended, parked[0], parked[1]


@asynccontextmanager
async def models(conninfo: str) -> AsyncIterator[Models]:
    """A process that makes what is copied."""
    async with calling(conninfo) as gateway, driving(gateway, claims=False) as runtime:
        yield Models(runtime)


def _copy(admin: psycopg.Connection[Any], model: str, amount: int) -> None:
    """So many executions like one, with all their rows, under ids of their own."""
    for table in TABLES:
        names = admin.execute(_COLUMNS, [f"underseal.{table}"]).fetchall()
        admin.execute(
            sql.SQL(_COPIES).format(
                table=sql.Identifier(table),
                columns=sql.SQL(", ").join(sql.Identifier(name) for (name,) in names),
                amount=sql.Literal(amount),
                model=sql.Literal(model),
            )
        )


def add_past(server: Server, dbname: str, *, parked: int, events: int) -> None:
    """Put executions into a database.

    Parameters:
        server, dbname: a database of bench.log_setting.
        parked: how many wait, half of them for a message and half for an instant a month away.
        events: of executions that have ended, in all.
    """
    with running_node(models, as_service(server, dbname)) as node:
        ended, waiting, dozing = node.ask("models")
    with psycopg.connect(server.conninfo(dbname), autocommit=True) as admin:
        with past_triggers(admin, TABLES):
            _copy(admin, ended, events // EVENTS)
            _copy(admin, waiting, parked // 2)
            _copy(admin, dozing, parked // 2)
        for table in TABLES:
            admin.execute(sql.SQL("vacuum (analyze) underseal.{}").format(sql.Identifier(table)))
        later = admin.execute(
            "select count(*) from underseal.wake where wake_at > clock_timestamp() + interval '1 day'"
        ).fetchone()
        if later is None or later[0] < parked // 2:
            raise RuntimeError(f"expected a wake for each that sleeps, found {later}: nothing was measured")
        # what writing the past left to the disk is not to fall into a round
        admin.execute("checkpoint")


def measure_flows_with_past(
    server: Server, *, parked: int, events: int, backlog: int, pace: Pace, tell: Callable[[str], None]
) -> dict[str, float]:
    """Measure flows driven in one process, and a backlog drained by a worker, in a database with a past and in one
    without, in turns.

    Parameters:
        server: where; two databases are made.
        parked, events: what the past holds.
        backlog: executions that are drained in a round.
        pace: how long and how often flows are measured.
        tell: is told how far it is.

    Returns: `flow1.past.vs_empty` and `drain.past.vs_empty`, and flows a second of each.
    """
    names = {"empty": "flows_empty", "past": "flows_past"}
    for dbname in names.values():
        make_log_database(server, dbname)
    tell("writing a past")
    add_past(server, names["past"], parked=parked, events=events)
    with ExitStack() as stack:
        drivers: dict[str, Node] = {}
        workers: dict[str, Node] = {}
        for side, dbname in names.items():
            drivers[side] = stack.enter_context(running_node(driver, as_service(server, dbname)))
            workers[side] = stack.enter_context(running_node(worker, as_service(server, dbname)))

        def drive(side: str) -> float:
            return float(drivers[side].ask("rate", "one", AT_ONCE, pace.seconds).rate)

        def drain(side: str) -> float:
            preload(server, names[side], backlog)
            return drained(workers[side], backlog)

        for side in names:
            drive(side)
            drain(side)
        driven = take_turns(list(names), pace.rounds, drive, telling(tell, "flows beside a past"))
        claimed = take_turns(list(names), pace.rounds, drain, telling(tell, "backlogs beside a past"))
    return {
        "flow1.past.vs_empty": ratio(driven, "past", "empty"),
        "flow1.past.per_s": median(driven["past"]),
        "flow1.past.empty_per_s": median(driven["empty"]),
        "drain.past.vs_empty": ratio(claimed, "past", "empty"),
        "drain.past.per_s": median(claimed["past"]),
        "drain.past.empty_per_s": median(claimed["empty"]),
    }
