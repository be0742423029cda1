"""`underseal exec result`: what an execution comes to."""

from __future__ import annotations

from datetime import timedelta

import click

from underseal.cli._exec_input import length
from underseal.cli._exec_session import exact, executions
from underseal.cli._exits import FAILED, Stop
from underseal.cli._json import print_json
from underseal.cli._session import options, principal_option
from underseal.cli._session import principal as needed_principal


@click.command()
@click.argument("execution_id", metavar="ID")
@click.option(
    "--timeout", callback=length, metavar="TIME",
    help="Wait at most so long: 30s, 15min; 0s looks once. Without it, until it has ended.",
)  # fmt: skip
@options(principal_option)
def result(
    dsn: str | None, principal: str | None, execution_id: str, timeout: timedelta | None, as_json: bool
) -> None:
    """Wait until an execution has ended, and print its output, which is JSON.

    One that was continued is followed to the one that goes on in its place. Exit code 0 means that it completed,
    1 that it failed, was cancelled, or has not ended in time.
    """
    from underseal.errors import ExecutionFailed

    who = needed_principal(principal)
    with executions(dsn) as here:
        try:
            output = here.executions.result(execution_id, who, timeout=timeout)
        except TimeoutError as error:
            raise Stop(FAILED, "error", "timeout", str(error)) from None
        except ExecutionFailed as error:
            if not as_json:
                kind = None if error.error is None else str(error.error.get("type"))
                raise Stop(FAILED, error.status, kind, _said(error)) from None
            print_json({"outcome": error.status, "execution_id": error.execution_id, "error": error.error})
            raise click.exceptions.Exit(FAILED) from None
    click.echo(exact({"outcome": "completed", "output": output}) if as_json else exact(output))


def _said(error: Exception) -> str:
    told = getattr(error, "error", None) or {}
    return str(told.get("message") or error)
