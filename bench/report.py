"""The table and the file that a run leaves."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

AT_LEAST: Final = {
    "held.c16.vs_bare": 0.6,
    "append.c16.vs_raw": 0.5,
    "append_batch.rows.vs_raw": 0.4,
    "flow1.c64.vs_raw3": 1.0,
    "flow1.c64.vs_absurd": 10,
    "flow1.c64.vs_dbos": 20,
    "flow10.c64.steps.vs_absurd": 8,
    "flow1.worker.vs_own": 0.6,
    "drain.flat": 0.8,
    "flow1.past.vs_empty": 0.9,
    "drain.past.vs_empty": 0.9,
}
AT_MOST: Final = {
    "flow1.commits": 0.1,
    "flow1.wal_bytes.vs_raw3": 2.5,
    "flow1.table_bytes.vs_raw3": 4,
    "flow1.idle_p50.vs_dbos": 0.5,
    "flow1.worker.idle_p50_ms": 8,
    "send.idle_p50_ms": 8,
    "worker.idle_commits_per_s": 2,
    "replay.x10.ratio": 12,
}
BELOW: Final = {
    "held.big.claim_ratio": 1.5,
    "held.big.list_ratio": 1.5,
    "held.big.sweep_ratio": 1.5,
    "held.outbox.empty_poll_ratio": 1.5,
}


def target(name: str, value: float) -> str:
    """What was aimed at, and whether it was reached; empty where nothing was."""
    if name in AT_LEAST:
        return f"at least {AT_LEAST[name]}: {'yes' if value >= AT_LEAST[name] else 'NO'}"
    if name in AT_MOST:
        return f"at most {AT_MOST[name]}: {'yes' if value <= AT_MOST[name] else 'NO'}"
    if name in BELOW:
        return f"below {BELOW[name]}: {'yes' if value < BELOW[name] else 'NO'}"
    return ""


def show(numbers: Mapping[str, float], console: Console) -> None:
    """Print one line a number, with its target where it has one."""
    table = Table("measure", "value", "target", title="Held operations, the log, flows")
    table.columns[1].justify = "right"
    for name, value in numbers.items():
        table.add_row(name, f"{value:,.2f}" if value < 100 else f"{value:,.0f}", target(name, value))
    console.print(table)


def write(numbers: Mapping[str, float], path: Path) -> None:
    """Write the numbers as one flat JSON object."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({name: round(value, 4) for name, value in numbers.items()}, indent=2) + "\n")
