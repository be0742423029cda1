"""`underseal exec export` and `restore`: an execution's state as a file, and executions that go on from one."""

from __future__ import annotations

from typing import IO

import click

from underseal.cli._exec_input import command, json_value
from underseal.cli._exec_session import exact, executions
from underseal.cli._json import print_json
from underseal.cli._session import options, principal_option
from underseal.cli._session import principal as needed_principal
from underseal.cli._visible import visible


@click.command()
@click.argument("execution_id", metavar="ID")
@options(principal_option)
def export(dsn: str | None, principal: str | None, execution_id: str, as_json: bool) -> None:  # noqa: ARG001 -- it is JSON
    """Print what an execution of a flow has come to, as a document that `exec restore` goes on from.

    It holds the input and every recorded result as they are: direct it into a file of your own. What is said beside it
    goes to the standard error.
    """
    who = needed_principal(principal)
    with executions(dsn) as here:
        state = here.executions.export_state(execution_id, who)
    click.echo(exact(state))
    for one in state["not_carried"]:
        for kind, which in one.items():
            click.echo(f"not carried over: {kind} {visible(which)} has not told its end", err=True)


@click.command()
@click.argument("file", type=click.File("rb"))
@click.option("--id", "execution_id", help="An id of your choice for the new one.")
@options(principal_option)
def restore(
    dsn: str | None, principal: str | None, file: IO[bytes], execution_id: str | None, as_json: bool
) -> None:
    """Start an execution that goes on from the state in FILE, which belongs to you; `-` is the standard input.

    Its waits begin anew. Children and held operations that had not told their end stay with the execution that was
    exported; the new one is told so where it waits for them.
    """
    state = json_value(None, file, "--state", needed=True)
    who = needed_principal(principal)
    with executions(dsn) as here:
        restored = here.executions.restore_from_state(state, who, execution_id=execution_id)
    if as_json:
        print_json({"outcome": "restored", "execution_id": restored})
        return
    click.echo(f"Restored: {visible(restored)}")
    click.echo(f"  {command('underseal', 'exec', 'show', restored, '--principal', who)}")
