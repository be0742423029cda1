"""`underseal worker`: operations, flows, schedules and sweeps, until it is told to stop."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click
from click.core import ParameterSource

from underseal.cli._exec_input import length
from underseal.cli._exits import DENIED, FAILED, USAGE, Stop
from underseal.cli._session import (
    app_option,
    connect,
    demand_usable,
    keyring_option,
    load_app,
    needed_ring,
    options,
    spent_option,
    spent_register,
)
from underseal.cli._watch import logging_to, watching

if TYPE_CHECKING:
    import psycopg

    from underseal import AsyncUnderseal, Underseal

_CONNECT_SECONDS = 10
_SECOND = timedelta(seconds=1)
_HOUR = timedelta(hours=1)


@click.command()
@click.argument("application", metavar="[MODULE:APP]", required=False)
@click.option("--name", help="Name under which runs are claimed; by default one that is never used again.")
@click.option(
    "--concurrency", default=4, show_default=True, type=click.IntRange(1, 1000),
    help="Most runs of operations at once.",
)  # fmt: skip
@click.option(
    "--executions", default=1000, show_default=True, type=click.IntRange(1, 100_000),
    help="Most executions of flows driven at once.",
)  # fmt: skip
@click.option(
    "--lease", default="30s", show_default=True, callback=length, metavar="TIME",
    help="How long after a crash another worker takes an execution; 1s to 1h.",
)  # fmt: skip
@click.option(
    "--grace", default=30, show_default=True, type=click.IntRange(0),
    help="Seconds a run or a step may take after SIGTERM.",
)  # fmt: skip
@click.option("--hint", is_flag=True, help="Listen for notifications, and look at once instead of soon.")
@click.option("--verbose", "-v", is_flag=True, help="Log every operation and execution, not only trouble.")
@options(app_option, keyring_option, spent_option)
def worker(
    dsn: str | None,
    application: str | None,
    app: str | None,
    keyring: Path | None,
    spent: Path | None,
    name: str | None,
    concurrency: int,
    executions: int,
    lease: timedelta,
    grace: int,
    hint: bool,
    verbose: bool,
    as_json: bool,
) -> None:
    """Run approved operations, drive flows, fire schedules and end what time has ended, until SIGTERM or SIGINT.

    MODULE:APP (or --app) is the application: its gated methods and the flows it serves, with its keys and on its
    database. Without one it runs the operations of SQL functions.

    At a terminal one line says what is under way. The log goes to stderr; with --json, one JSON object a line.
    """
    from underseal import Limits, Principal, Underseal
    from underseal.worker.collector import calm_collector

    if not _SECOND <= lease <= _HOUR:
        raise click.UsageError("expected --lease between 1s and 1h, found another")
    client: Underseal | AsyncUnderseal
    app = _named(application, app)
    if app is not None:
        if name is not None:
            raise click.UsageError(
                "expected --name without an application, found both; its client has a name of its own"
            )
        client = load_app(app)
        _demand_work(client, app)
    else:
        ring = needed_ring(keyring)
        # A worker survives a database that goes away, but should not begin with a wrong one.
        with connect(dsn) as connection:
            demand_usable(connection)
            _demand_access(connection)
        client = Underseal(
            dsn or "",
            keys=ring,
            principals=Principal,
            worker_name=name,
            spent=spent_register(spent),
            max_connections=concurrency + 2,
        )
    here = client.worker(
        concurrency=concurrency,
        grace=timedelta(seconds=grace),
        limits=Limits(executions=executions),
        lease=lease,
        hint=hint or None,
    )
    calm_collector()
    with logging_to(as_json, verbose) as console, watching(console, lambda: here.progress):
        here.run()


def _named(application: str | None, app: str | None) -> str | None:
    """The application by its argument, its option or the environment, in this order."""
    if application is None:
        return app
    given = click.get_current_context().get_parameter_source("app")
    if given is ParameterSource.COMMANDLINE and app != application:
        raise click.UsageError("expected one application, found an argument and --app that differ")
    return application


def _demand_work(client: Underseal | AsyncUnderseal, app: str) -> None:
    """That the application's database is there, and that there is something to do.

    Parameters:
        client: the application's.
        app: what it is called.

    Errors:
        Stop: it is not.
    """
    import psycopg

    idle = not len(client._flows) and not client._core.served()
    place = client._source.place
    if place is not None:  # a pool of the host's that makes its conninfo is believed
        conninfo, more = place
        told = {"connect_timeout": _CONNECT_SECONDS, **more, "autocommit": True}
        try:
            connection = psycopg.connect(conninfo, **told)
        except psycopg.OperationalError as error:
            raise _no_answer(app, error) from None
        with connection:
            demand_usable(connection)
            _demand_access(connection)
            idle = idle and not _sql_types(connection)
    if idle:
        raise Stop(
            USAGE, "error", "app",
            f"expected {app} to have flows (us.serve) or gated methods (us.gate), found neither. Name the client that "
            "your application gives them to, in a module that does so when it is imported",
        )  # fmt: skip


def _demand_access(connection: psycopg.Connection[object]) -> None:
    """That this login may claim; one that may not would look and be refused for ever.

    Parameters:
        connection: the login's.

    Errors:
        Stop: it has no worker access.
    """
    row = connection.execute(
        "select quote_literal(current_user), bool_or(has_function_privilege(p.oid, 'execute'))"
        " from pg_catalog.pg_proc p where p.pronamespace = 'underseal'::regnamespace and p.proname = 'claim_due'"
    ).fetchone()
    login, may = cast(tuple[str, bool | None], row)
    if not may:
        raise Stop(
            DENIED, "denied", "no-access",
            f"expected a login with worker access, found that {login} has none. "
            f"As the schema's owner run: select * from underseal.grant_access({login}, 'worker')",
        )  # fmt: skip


def _no_answer(app: str, error: psycopg.Error) -> Stop:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return Stop(
        FAILED, "error", "no-connection",
        f"expected the database of {app} to answer, found: {lines[0] if lines else type(error).__name__}",
    )  # fmt: skip


def _sql_types(connection: psycopg.Connection[object]) -> bool:
    row = connection.execute(
        "select from underseal.list_operation_types() t where t.sql_run is not null and t.current limit 1"
    ).fetchone()
    return row is not None


COMMANDS = (worker,)
