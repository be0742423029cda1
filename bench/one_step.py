"""A one-step execution in three batches, beside one in three one-row commits: an early look at what flows will cost."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Final

from bench.clients import Side, running_clients
from bench.log_setting import (
    DATA,
    EVENT,
    FLOW,
    INPUT,
    OUTPUT,
    Service,
    append_item,
    array,
    item,
    make_log_database,
    new_id,
    start_item,
    write_batch,
)
from bench.setting import SERVICE, as_service
from bench.turns import Pace, ratio, take_turns, telling
from underseal.foundation.server import Server, binaries

DBNAME: Final = "one_step"
AT_ONCE: Final = 64
"""Executions in a batch, and clients of the raw side."""
RAW_START: Final = "insert into raw.execution (id, flow, status, input) values (%s, %s, 'running', %s)"
RAW_STEP: Final = "insert into raw.step (id, seq, data) values (%s, 1, %s)"
RAW_END: Final = "update raw.execution set status = 'completed', output = %s where id = %s"


def script() -> str:
    """The three statements as pgbench wants them."""
    drawn = "lpad(:number, 32, '0')"
    # pgbench would take a word right after a colon for a variable
    texts = {text: f"'{text.replace(':', ': ')}'" for text in (FLOW, INPUT, DATA, OUTPUT)}
    lines = ["\\set number random(1, 9000000000000000000)"]
    for query, values in (
        (RAW_START, (drawn, texts[FLOW], texts[INPUT])),
        (RAW_STEP, (drawn, texts[DATA])),
        (RAW_END, (texts[OUTPUT], drawn)),
    ):
        lines.append(f"{query % values};")
    return "\n".join(lines) + "\n"


class ThreeBatches:
    """Start as its driver, record a step, complete: three batches of many executions each."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def prepare(self) -> None:
        pass

    def step(self) -> int:
        ids = [new_id() for _ in range(AT_ONCE)]
        write_batch(self._service, array([start_item(each, worker="bench") for each in ids]), "started")
        write_batch(self._service, array([append_item(each, 1) for each in ids]), "appended")
        ends = [item("complete", each, f'"output": {OUTPUT}') for each in ids]
        write_batch(self._service, array(ends), "completed")
        return AT_ONCE


class ThreeCommits:
    """By hand: a row each for the execution and its step, and the row again with its end."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def prepare(self) -> None:
        pass

    def step(self) -> int:
        execution_id = new_id()
        for query, values in (
            (RAW_START, [execution_id, FLOW, INPUT]),
            (RAW_STEP, [execution_id, DATA]),
            (RAW_END, [OUTPUT, execution_id]),
        ):
            self._service.execute(query, values, prepare=True)
        return 1


class TwoBatches(ThreeBatches):
    """The same, its step recorded with its end."""

    def step(self) -> int:
        ids = [new_id() for _ in range(AT_ONCE)]
        write_batch(self._service, array([start_item(each, worker="bench") for each in ids]), "started")
        ends = [item("complete", each, f'"events": [{EVENT}], "output": {OUTPUT}') for each in ids]
        write_batch(self._service, array(ends), "completed")
        return AT_ONCE


def make_sides(service: Service) -> dict[str, Side]:
    """The sides of one client."""
    return {"three": ThreeBatches(service), "two": TwoBatches(service)}


def raw_executions(server: Server, file: Path, seconds: float, dbname: str = DBNAME) -> float:
    """Executions a second in three one-row commits, by pgbench.

    Parameters:
        server: where.
        file: with what `script` gives.
        seconds: for how long, at least one.
        dbname: a database of bench.log_setting.
    """
    ran = subprocess.run(
        [
            binaries() / "pgbench",
            *("--no-vacuum", "--protocol=prepared", f"--client={AT_ONCE}", "--jobs=2"),
            *(f"--time={max(1, round(seconds))}", f"--file={file}"),
            *(f"--host={server.host}", f"--port={server.port}", f"--username={SERVICE}", dbname),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode:
        raise RuntimeError(
            f"expected pgbench to run, found that it ended with {ran.returncode}: {ran.stderr}"
        )
    return read_tps(ran.stdout)


def read_tps(output: str) -> float:
    """The transactions a second that pgbench tells of; one transaction is one run of the script.

    Errors:
        RuntimeError: it tells of none, or of failures.
    """
    tps = re.search(r"^tps = ([0-9.]+)", output, re.MULTILINE)
    failed = re.search(r"^number of failed transactions: ([0-9]+)", output, re.MULTILINE)
    if tps is None or (failed is not None and failed[1] != "0"):
        raise RuntimeError(f"expected transactions a second and no failure from pgbench, found {output!r}")
    return float(tps[1])


def measure_one_step(
    server: Server, directory: Path, *, pace: Pace, tell: Callable[[str], None]
) -> dict[str, float]:
    """Measure one client that sends batches beside many that commit row by row.

    Parameters:
        server: where; a database is made.
        directory: an existing directory for pgbench's script.
        pace: how long and how often.
        tell: is told how far it is.

    Returns: `one_step.…`: medians of executions a second, and their ratios to the raw ones beside them.
    """
    make_log_database(server, DBNAME)
    file = directory / "three_commits.sql"
    file.write_text(script())
    with running_clients(as_service(server, DBNAME), 1, make_sides) as clients:

        def measure(side: str) -> float:
            if side == "raw":
                return raw_executions(server, file, pace.seconds)
            return clients.round(side, 1, pace.seconds)

        for side in ("three", "two"):
            measure(side)
        figures = take_turns(
            ("three", "raw", "two"), pace.rounds, measure, telling(tell, "one-step executions")
        )
    return {
        "one_step.per_s": median(figures["three"]),
        "one_step.two_batches_per_s": median(figures["two"]),
        "one_step.raw3_per_s": median(figures["raw"]),
        "one_step.vs_raw3": ratio(figures, "three", "raw"),
        "one_step.two_batches_vs_raw3": ratio(figures, "two", "raw"),
    }
