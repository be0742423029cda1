"""`underseal doctor`: what is wrong with an installation, and what to do about it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from underseal.cli._exits import FAILED
from underseal.cli._json import plain, print_json
from underseal.cli._session import app_option, connect, key_ring, keyring_option, load_app, options

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from underseal.doctor import Report

_STYLES = {"error": "bold red", "warning": "yellow", "note": "cyan"}


@click.command()
@options(keyring_option, app_option)
def doctor(dsn: str | None, keyring: Path | None, app: str | None, as_json: bool) -> None:
    """Examine an installation: kernel, grants, keys, stuck work, clocks. Changes nothing.

    It sees most as the schema's owner; a login with operator and reader access sees nearly as much, and what it could
    not look at is listed. --keyring: the ring of the workers, to see whether every key is there. --app: the
    application, to see whether its types are registered as it gates them.

    Exit code 1 if there is an error among the findings, else 0.
    """
    from underseal.doctor import examine

    kinds = None if app is None else load_app(app)._core.kinds
    with connect(dsn) as connection:
        report = examine(connection, ring=key_ring(keyring), kinds=kinds)
    if as_json:
        print_json({"healthy": report.healthy, **plain(report)})
    else:
        _print(report)
    click.get_current_context().exit(0 if report.healthy else FAILED)


def _print(report: Report) -> None:
    from rich.text import Text

    from underseal.cli._render import console, said

    out = console()
    for one in report.findings:
        line = Text(f"{one.severity:<8}", style=_STYLES[one.severity]).append(f"{one.what}  ", "bold")
        out.print(line.append(said(one.subject, "not bold")))
        out.print(_indented(("       ", said(one.found)), ("       →", said(one.fix))))
    for skipped in report.skipped:
        out.print(_indented(("skipped", Text(f"{skipped.check}: ").append(said(skipped.why)))))
    out.print(_sum(report))


def _indented(*rows: tuple[str, Text]) -> Table:
    """Texts that stay beside their marks where a terminal folds them."""
    from rich.table import Table

    grid = Table.grid(padding=(0, 1))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for row in rows:
        grid.add_row(*row)
    return grid


def _sum(report: Report) -> Text:
    from rich.text import Text

    counts = {name: sum(one.severity == name for one in report.findings) for name in _STYLES}
    parts = ", ".join(f"{number} {name}{'' if number == 1 else 's'}" for name, number in counts.items())
    skipped = f", {len(report.skipped)} skipped" if report.skipped else ""
    # What nobody looked at is not well: green is for the whole of it.
    style = "red" if not report.healthy else "yellow" if report.skipped else "green"
    return Text(f"{len(report.checked)} checks made{skipped}: {parts}", style=style)


COMMANDS = (doctor,)
