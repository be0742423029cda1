"""What flows leave behind: commits, WAL, bytes of tables, beside raw executions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import psycopg

from bench.costs import COUNTERS, Written, each
from bench.flows_setting import STEPS, driver
from bench.log_setting import make_log_database
from bench.nodes import running_node
from bench.one_step import raw_executions, script
from bench.setting import as_service
from underseal.foundation.server import Server

DBNAME: Final = "flows_written"
SIDES: Final = {"flow1": ("one", 64), "flow1.c256": ("one", 256), "flow10": ("ten", 64)}
"""Which flow, and how many at once."""


def measure_written_by_flows(
    server: Server, directory: Path, *, flows: int, tell: Callable[[str], None]
) -> dict[str, float]:
    """What a flow writes, from the start of a process to its end, so that whatever that does besides counts too.

    Parameters:
        server: where; a database is made.
        directory: an existing directory for pgbench's script.
        flows: how many.
        tell: is told how far it is.

    Returns: `flow1.wal_bytes` and `flow1.table_bytes` (with indexes) of one-step flows 64 at once and their ratios to
    those of raw executions, `flow1.commits` of 256 at once, and the rest of what was counted.
    """
    make_log_database(server, DBNAME)
    file = directory / "written_three_commits.sql"
    file.write_text(script())
    numbers: dict[str, float] = {}
    with psycopg.connect(server.conninfo(DBNAME), autocommit=True) as admin:
        admin.execute("set stats_fetch_consistency = none")

        def written(schema: str, work: Callable[[], int]) -> Written:
            before = _counters(admin, schema)
            done = work()
            return each(before, _counters(admin, schema), done)

        def drive(flow: str, at_once: int) -> int:
            amount = flows // STEPS if flow == "ten" else flows
            with running_node(driver, as_service(server, DBNAME)) as node:
                node.ask("amount", flow, at_once, amount)
            return amount

        def raw() -> int:
            before = _executions(admin)
            raw_executions(server, file, max(1.0, flows / 5_000), DBNAME)
            return _executions(admin) - before

        tell("what raw executions write")
        by_hand = written("raw", raw)
        for name, (flow, at_once) in SIDES.items():
            tell(f"what flow {flow} writes, {at_once} at once")
            cost = written("underseal", partial(drive, flow, at_once))
            numbers[f"{name}.commits"] = cost.commits
            numbers[f"{name}.wal_bytes"] = cost.wal
            numbers[f"{name}.table_bytes"] = cost.table
    return numbers | {
        "flow1.commits": numbers.pop("flow1.c256.commits"),
        "flow1.c64.commits": numbers["flow1.commits"],
        "flow1.wal_bytes.vs_raw3": numbers["flow1.wal_bytes"] / by_hand.wal,
        "flow1.table_bytes.vs_raw3": numbers["flow1.table_bytes"] / by_hand.table,
        "flow1.raw3_commits": by_hand.commits,
        "flow1.raw3_wal_bytes": by_hand.wal,
        "flow1.raw3_table_bytes": by_hand.table,
    }


def _counters(admin: psycopg.Connection[Any], schema: str) -> tuple[float, ...]:
    """Bytes of WAL, commits and bytes of tables. Whoever wrote has gone, and has told of its commits."""
    row = admin.execute(COUNTERS, [schema]).fetchone()
    assert row is not None
    return tuple(float(value) for value in row)


def _executions(admin: psycopg.Connection[Any]) -> int:
    row = admin.execute("select count(*) from raw.execution where status = 'completed'").fetchone()
    assert row is not None
    return int(row[0])
