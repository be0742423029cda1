"""`underseal run`: carry one approved operation out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

import click

from underseal.cli._exits import DENIED, exit_code_of
from underseal.cli._json import plain, print_json
from underseal.cli._render import said, state
from underseal.cli._session import (
    app_option,
    ask,
    keyring_option,
    load_app,
    needed_ring,
    options,
    session,
    spent_option,
    spent_register,
)

if TYPE_CHECKING:
    from underseal import RunReport


@click.command()
@click.argument("operation_id", metavar="ID", type=click.UUID)
@options(app_option, keyring_option, spent_option)
def run(
    dsn: str | None,
    app: str | None,
    keyring: Path | None,
    spent: Path | None,
    operation_id: UUID,
    as_json: bool,
) -> None:
    """Run one approved operation now, and wait for its end.

    It runs as its requester, once; a worker would do the same in its own time. An operation of SQL functions needs no
    --app: whoever has a role (underseal access map-role) may act. What its requester must run themselves is run by
    asking again in their own session, not here.

    Exit code 0 means that it succeeded, 1 that it failed or that nobody knows, 4 that it was refused.
    """
    if app is not None:
        report: RunReport = ask(load_app(app), lambda us: us.run(operation_id))
    else:
        with session(dsn, needed_ring(keyring), runs=True, spent=spent_register(spent)) as here:
            report = here.us.run(operation_id)
    if as_json:
        shown = {name: value for name, value in plain(report).items() if name not in ("value", "error")}
        print_json({**shown, "error": type(report.error).__name__ if report.error else None})
    else:
        _print_report(report)
    absent = report.reason == "not-found"
    click.get_current_context().exit(DENIED if absent else exit_code_of(report.outcome))


def _print_report(report: RunReport) -> None:
    from underseal.cli._render import console

    line = state(report.state) if report.state else said(report.outcome, "bold")
    message = report.message or ""
    if report.reason:
        line.append(" (").append(said(report.reason)).append(")")
        message = message.removeprefix(f"{report.reason}: ")
    console().print(line.append(": ").append(said(message)) if message else line)


COMMANDS = (run,)
