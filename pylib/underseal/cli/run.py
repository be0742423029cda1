"""`underseal run` and `underseal worker`: carry approved operations out."""

from __future__ import annotations

import logging
from datetime import timedelta
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
    connect,
    demand_usable,
    keyring_option,
    load_app,
    needed_ring,
    options,
    session,
)

if TYPE_CHECKING:
    from underseal import FileSpentRegister, RunReport

_spent_option = click.option(
    "--spent",
    envvar="UNDERSEAL_SPENT",
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory of a spent register; an --app brings its own. [UNDERSEAL_SPENT]",
)


@click.command()
@click.argument("operation_id", metavar="ID", type=click.UUID)
@options(app_option, keyring_option, _spent_option)
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
        with session(dsn, needed_ring(keyring), runs=True, spent=_register(spent)) as here:
            report = here.us.run(operation_id)
    if as_json:
        shown = {name: value for name, value in plain(report).items() if name not in ("value", "error")}
        print_json({**shown, "error": type(report.error).__name__ if report.error else None})
    else:
        _print_report(report)
    absent = report.reason == "not-found"
    click.get_current_context().exit(DENIED if absent else exit_code_of(report.outcome))


def _register(path: Path | None) -> FileSpentRegister | None:
    from underseal import FileSpentRegister

    return None if path is None else FileSpentRegister(path)


def _print_report(report: RunReport) -> None:
    from underseal.cli._render import console

    line = state(report.state) if report.state else said(report.outcome, "bold")
    message = report.message or ""
    if report.reason:
        line.append(" (").append(said(report.reason)).append(")")
        message = message.removeprefix(f"{report.reason}: ")
    console().print(line.append(": ").append(said(message)) if message else line)


@click.command()
@click.option("--name", help="Name under which runs are claimed; by default one that is never used again.")
@click.option(
    "--concurrency", default=4, show_default=True, type=click.IntRange(1, 1000), help="Most runs at once."
)
@click.option(
    "--grace",
    default=30,
    show_default=True,
    type=click.IntRange(0),
    help="Seconds a run may take after SIGTERM.",
)
@click.option("--verbose", "-v", is_flag=True, help="Log every operation, not only trouble.")
@options(app_option, keyring_option, _spent_option)
def worker(
    dsn: str | None,
    app: str | None,
    keyring: Path | None,
    spent: Path | None,
    name: str | None,
    concurrency: int,
    grace: int,
    verbose: bool,
    as_json: bool,
) -> None:
    """Run approved operations and end what time has ended, until SIGTERM or SIGINT.

    With --app it runs that application's gated methods, with its keys and on its database; without, the operations of
    SQL functions. The log goes to stderr; with --json, one JSON object a line.
    """
    from underseal import Principal, Underseal

    _log(as_json, logging.INFO if verbose else logging.WARNING)
    if app is not None:
        if name is not None:
            raise click.UsageError(
                "expected --name without --app, found both; an application's client has its own name"
            )
        client = load_app(app)
    else:
        ring = needed_ring(keyring)
        # A worker survives a database that goes away, but should not begin with a wrong one.
        with connect(dsn) as connection:
            demand_usable(connection)
        client = Underseal(
            dsn or "",
            keys=ring,
            principals=Principal,
            worker_name=name,
            spent=_register(spent),
            max_connections=concurrency + 2,
        )
    client.worker(concurrency=concurrency, grace=timedelta(seconds=grace)).run()


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        import json
        from datetime import UTC, datetime

        from underseal.cli._times import iso

        moment = datetime.fromtimestamp(record.created, UTC)
        return json.dumps(
            {"at": iso(moment), "level": record.levelname.lower(), "message": record.getMessage()}
        )


class _Visible(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        from datetime import UTC, datetime

        from underseal.cli._times import absolute
        from underseal.cli._visible import visible

        moment = datetime.fromtimestamp(record.created, UTC)
        return f"{absolute(moment)}  {record.levelname.lower():<7}  {visible(record.getMessage())}"


def _log(as_json: bool, level: int) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(_JsonLines() if as_json else _Visible())
    logger = logging.getLogger("underseal")
    logger.addHandler(handler)
    logger.setLevel(level)


COMMANDS = (run, worker)
