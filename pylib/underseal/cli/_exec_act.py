"""`underseal exec start`, `resume`, `outcome`, `cancel`, `migrate`, `fork` and `delete`."""

from __future__ import annotations

from datetime import timedelta
from typing import IO, TYPE_CHECKING

import click

from underseal.cli._exec_input import command, json_options, json_value, length
from underseal.cli._exec_session import executions
from underseal.cli._exec_words import GATE
from underseal.cli._json import print_json
from underseal.cli._outcome import conclude
from underseal.cli._session import confirm, options, principal_option
from underseal.cli._session import principal as needed_principal
from underseal.cli._visible import visible

if TYPE_CHECKING:
    from underseal.cli._exec_session import Here


@click.command()
@click.argument("flow")
@json_options("--input", "What the flow takes")
@click.option(
    "--id", "execution_id", help="An id of your choice; given twice, it starts once: then it is a conflict."
)
@click.option(
    "--flow-version", default=1, show_default=True, type=click.IntRange(1), help="Of the flow's code."
)
@click.option("--in", "after", callback=length, metavar="TIME", help="Begin after this time: 15min, 2h.")
@options(principal_option)
def start(
    dsn: str | None,
    principal: str | None,
    flow: str,
    file: IO[bytes] | None,
    text: str | None,
    execution_id: str | None,
    flow_version: int,
    after: timedelta | None,
    as_json: bool,
) -> None:
    """Start an execution of FLOW, which belongs to you; a worker that serves the flow drives it.

    FILE holds its input as JSON; `-` is the standard input. Without any the input is null.
    """
    value = json_value(text, file, "--input", needed=False)
    who = needed_principal(principal)
    with executions(dsn) as here:
        started = here.executions.start(
            flow, who, value, execution_id=execution_id, flow_version=flow_version, after=after
        )
    if as_json:
        print_json({"outcome": "started", "execution_id": started})
        return
    click.echo(f"Started: {visible(started)}")
    click.echo(f"  {command('underseal', 'exec', 'show', started, '--principal', who)}")


@click.command()
@click.argument("execution_id", metavar="ID")
@click.argument("gate")
@json_options("--answer", "The answer")
@options(principal_option)
def resume(
    dsn: str | None,
    principal: str | None,
    execution_id: str,
    gate: str,
    file: IO[bytes] | None,
    text: str | None,
    as_json: bool,
) -> None:
    """Answer the gate GATE of an execution, once; also before the execution has come to it.

    FILE holds the answer as JSON; `-` is the standard input.
    """
    answer = json_value(text, file, "--answer", needed=True)
    who = needed_principal(principal)
    with executions(dsn) as here:
        elsewhere = None if as_json else _elsewhere(here, execution_id, gate, who)
        done = here.executions.resume(execution_id, gate, answer, who)
    conclude(done, as_json, f"Answered: gate {visible(gate)}, as message {done.inbox_seq} of the inbox.")
    if elsewhere is not None:
        click.echo(f"  {elsewhere}")


def _elsewhere(here: Here, execution_id: str, gate: str, principal: str) -> str | None:
    """That the execution does not wait at this gate, and at which it does; None if it does, or cannot be looked at."""
    from underseal.errors import ExecutionDeniedError

    try:
        info = here.executions.get(execution_id, principal)
    except ExecutionDeniedError:
        return None
    topics = [str(arm.get("topic", "")) for one in info.waits for arm in one["arms"]]
    gates = [topic.removeprefix(GATE) for topic in topics if topic.startswith(GATE)]
    if gate in gates or info.continued_by is not None:
        return None
    at = f", but at {', '.join(map(visible, gates))}" if gates else ""
    back = command("underseal", "inbox", "discard", execution_id, GATE + gate)
    return f"It did not wait at this gate{at}; the answer is kept for when it does. An operator takes it back: {back}"


@click.command()
@click.argument("execution_id", metavar="ID")
@json_options("--value", "The outcome")
@options(principal_option)
def outcome(
    dsn: str | None,
    principal: str | None,
    execution_id: str,
    file: IO[bytes] | None,
    text: str | None,
    as_json: bool,
) -> None:
    """Write into an execution's log what became of it in the world, also after its end.

    FILE holds the outcome as JSON; `-` is the standard input.
    """
    value = json_value(text, file, "--value", needed=True)
    with executions(dsn) as here:
        done = here.executions.record_outcome(execution_id, value, needed_principal(principal))
    conclude(done, as_json, f"Recorded as event {done.seq}.")


@click.command()
@click.argument("execution_id", metavar="ID")
@click.option("--reason", help="Why; it stays in the log.")
@click.option("--force", is_flag=True, help="End it now, without its driver cleaning up.")
@click.option("--yes", is_flag=True, help="Do not ask before --force.")
@options(principal_option)
def cancel(
    dsn: str | None,
    principal: str | None,
    execution_id: str,
    reason: str | None,
    force: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Cancel an execution: its driver is asked to clean up and end it.

    One that has not begun ends at once. With --force so does any: whoever drives it can write nothing more, and what it
    left half done stays so.
    """
    who = needed_principal(principal)
    if force and not yes:
        confirm(f"End {visible(execution_id)} now, with nothing cleaned up?")
    with executions(dsn) as here:
        done = here.executions.cancel(execution_id, who, reason, force=force)
    conclude(done, as_json)


@click.command()
@click.argument("execution_id", metavar="ID")
@click.option(
    "--to", "flow_version", required=True, type=click.IntRange(1), help="The version of the flow's code."
)
@options(principal_option)
def migrate(
    dsn: str | None, principal: str | None, execution_id: str, flow_version: int, as_json: bool
) -> None:
    """Move an execution that has not ended to another version of its flow, a later or an earlier one.

    Whoever drives it can write nothing more. It is due at once for workers that serve the other version, also where it
    is parked; what it waits for keeps its instants.
    """
    with executions(dsn) as here:
        done = here.executions.migrate(execution_id, flow_version, needed_principal(principal))
    conclude(done, as_json)


@click.command()
@click.argument("execution_id", metavar="ID")
@click.argument("seq", type=click.IntRange(0))
@click.option("--id", "new_id", help="An id of your choice for the new one.")
@options(principal_option)
def fork(
    dsn: str | None, principal: str | None, execution_id: str, seq: int, new_id: str | None, as_json: bool
) -> None:
    """Start another execution from a copy of the log of ID up to event SEQ; it goes on from there.

    The new one belongs to the same owner and gets none of the messages that wait.
    """
    who = needed_principal(principal)
    with executions(dsn) as here:
        forked = here.executions.fork(execution_id, seq, who, new_id=new_id)
    if as_json:
        print_json({"outcome": "forked", "execution_id": forked})
        return
    click.echo(f"Forked at event {seq}: {visible(forked)}")
    click.echo(f"  {command('underseal', 'exec', 'show', forked, '--principal', who)}")


@click.command()
@click.argument("chain_id", metavar="ID")
@click.option("--yes", is_flag=True, help="Do not ask.")
@options(principal_option)
def delete(dsn: str | None, principal: str | None, chain_id: str, yes: bool, as_json: bool) -> None:
    """Delete a whole chain that has ended, by the id of its first execution: logs, inboxes, snapshots, content.

    Takes operator access.
    """
    who = needed_principal(principal)
    if not yes:
        confirm(f"Delete {visible(chain_id)} with everything that continues it and its children, for good?")
    with executions(dsn) as here:
        done = here.executions.delete_chain(chain_id, who)
    conclude(done, as_json, f"{visible(chain_id)} is deleted.")
