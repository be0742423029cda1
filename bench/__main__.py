"""`python -m bench`: measure held operations on a Postgres of its own, with durable settings."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click
from rich.console import Console

from bench.cycles import measure_cycles
from bench.past import measure_past
from bench.report import show, write
from bench.setting import measured_server

OUT = Path(__file__).parent / "out" / "latest.json"


@click.command()
@click.option("--quick", is_flag=True, help="A few seconds, to see that it runs; its figures mean nothing.")
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), default=OUT, help="Where the figures go."
)
def main(quick: bool, out: Path) -> None:
    """Measure held operations; docs/benchmarks.md says what is compared with what."""
    console = Console()
    with (
        tempfile.TemporaryDirectory(prefix="underseal-bench-", ignore_cleanup_errors=True) as directory,
        measured_server(Path(directory)) as server,
        console.status("starting") as status,
    ):
        numbers = measure_cycles(
            server,
            amounts=(1, 4) if quick else (1, 16),
            seconds=0.1 if quick else 0.7,
            rounds=1 if quick else 7,
            tell=status.update,
        )
        status.update("a long past")
        numbers |= measure_past(
            server,
            ended=2_000 if quick else 1_000_000,
            opened=1_000 if quick else 10_000,
            calls=4 if quick else 60,
        )
    show(numbers, console)
    write(numbers, out)
    console.print(f"written to {out}")


if __name__ == "__main__":
    main()
