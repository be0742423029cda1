"""`python -m bench`: measure the kernel on a Postgres of its own, with durable settings."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click
from rich.console import Console

from bench.appends import measure_appends
from bench.costs import measure_fold, measure_written
from bench.cycles import measure_cycles
from bench.flows_idle import measure_idle
from bench.flows_past import measure_flows_with_past
from bench.flows_rate import measure_rate
from bench.flows_replay import measure_replay
from bench.flows_worker import measure_drain, measure_worker
from bench.flows_written import measure_written_by_flows
from bench.messages import measure_messages
from bench.one_step import measure_one_step
from bench.past import measure_past
from bench.report import show, write
from bench.setting import measured_server
from bench.turns import Pace
from underseal.foundation.server import Server

OUT = Path(__file__).parent / "out" / "latest.json"


@dataclass(frozen=True)
class Run:
    """What a part of the measurements needs.

    Parameters:
        server: where it measures.
        directory: an existing directory for its files.
        quick: only to see that it runs.
        tell: is told how far it is.
    """

    server: Server
    directory: Path
    quick: bool
    tell: Callable[[str], None]

    @property
    def amounts(self) -> tuple[int, ...]:
        """Numbers of clients."""
        return (1, 4) if self.quick else (1, 16)

    def pace(self, seconds: float, rounds: int) -> Pace:
        """How long one side is measured at a time and how often, unless it is quick."""
        return Pace(0.1, 1) if self.quick else Pace(seconds, rounds)


def _cycles(run: Run) -> dict[str, float]:
    return measure_cycles(run.server, amounts=run.amounts, pace=run.pace(0.6, 7), tell=run.tell)


def _past(run: Run) -> dict[str, float]:
    run.tell("a long past")
    return measure_past(
        run.server,
        ended=2_000 if run.quick else 300_000,
        opened=1_000 if run.quick else 10_000,
        calls=4 if run.quick else 60,
    )


def _appends(run: Run) -> dict[str, float]:
    return measure_appends(run.server, amounts=run.amounts, pace=run.pace(0.6, 7), tell=run.tell)


def _costs(run: Run) -> dict[str, float]:
    return measure_written(run.server, events=200 if run.quick else 3_000, tell=run.tell) | measure_fold(
        run.server, singles=10 if run.quick else 50, rounds=1 if run.quick else 7, tell=run.tell
    )


def _messages(run: Run) -> dict[str, float]:
    return measure_messages(run.server, amounts=run.amounts, pace=run.pace(0.5, 3), tell=run.tell)


def _one_step(run: Run) -> dict[str, float]:
    return measure_one_step(run.server, run.directory, pace=run.pace(1.0, 5), tell=run.tell)


def _flows(run: Run) -> dict[str, float]:
    return measure_rate(run.server, run.directory, pace=run.pace(1.5, 5), tell=run.tell)


def _flows_written(run: Run) -> dict[str, float]:
    return measure_written_by_flows(
        run.server, run.directory, flows=500 if run.quick else 20_000, tell=run.tell
    )


def _flows_worker(run: Run) -> dict[str, float]:
    return measure_worker(run.server, pace=run.pace(2.0, 5), tell=run.tell)


def _flows_idle(run: Run) -> dict[str, float]:
    quick = run.quick
    return measure_idle(
        run.server,
        amount=3 if quick else 60,
        rounds=1 if quick else 5,
        seconds=1.0 if quick else 20.0,
        tell=run.tell,
    )


def _flows_drain(run: Run) -> dict[str, float]:
    few, many = (100, 400) if run.quick else (5_000, 80_000)
    return measure_drain(run.server, few=few, many=many, rounds=2 if run.quick else 6, tell=run.tell)


def _flows_past(run: Run) -> dict[str, float]:
    return measure_flows_with_past(
        run.server,
        parked=200 if run.quick else 100_000,
        events=1_000 if run.quick else 1_000_000,
        backlog=50 if run.quick else 3_000,
        pace=run.pace(1.5, 7),
        tell=run.tell,
    )


def _flows_replay(run: Run) -> dict[str, float]:
    return measure_replay(
        run.server, events=50 if run.quick else 1_000, rounds=1 if run.quick else 15, tell=run.tell
    )


PARTS: Final[dict[str, Callable[[Run], dict[str, float]]]] = {
    "cycles": _cycles,
    "past": _past,
    "appends": _appends,
    "costs": _costs,
    "messages": _messages,
    "one-step": _one_step,
    "flows": _flows,
    "flows-written": _flows_written,
    "flows-worker": _flows_worker,
    "flows-idle": _flows_idle,
    "flows-drain": _flows_drain,
    "flows-past": _flows_past,
    "flows-replay": _flows_replay,
}


@click.command()
@click.option("--quick", is_flag=True, help="A few seconds, to see that it runs; its figures mean nothing.")
@click.option(
    "--part", "parts", multiple=True, type=click.Choice(list(PARTS)), help="Only this; may be repeated."
)
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), default=OUT, help="Where the figures go."
)
def main(quick: bool, parts: tuple[str, ...], out: Path) -> None:
    """Measure held operations (cycles, past), the log (appends, costs, messages, one-step) and flows (flows…);
    docs/benchmarks.md says what is compared with what."""
    console = Console()
    numbers: dict[str, float] = {}
    with (
        tempfile.TemporaryDirectory(prefix="underseal-bench-", ignore_cleanup_errors=True) as directory,
        measured_server(Path(directory)) as server,
        console.status("starting") as status,
    ):
        run = Run(server, Path(directory), quick, status.update)
        for name, measure in PARTS.items():
            if not parts or name in parts:
                numbers |= measure(run)
    show(numbers, console)
    write(numbers, out)
    console.print(f"written to {out}")


if __name__ == "__main__":
    main()
