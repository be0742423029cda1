"""`underseal approve`, `reject` and `cancel`: decide on exactly what was shown."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

from underseal.cli._exits import CONFLICT, Stop, demand_done, say
from underseal.cli._json import plain, print_json
from underseal.cli._outcome import conclude
from underseal.cli._render import print_operation
from underseal.cli._session import confirm, keyring_option, needed_ring, options, principal_option, session
from underseal.cli._session import principal as needed_principal
from underseal.cli._visible import visible
from underseal.cli.look import found

if TYPE_CHECKING:
    from underseal import Echo, Operation
    from underseal.held.model import Decision

_HASH = re.compile(r"[0-9a-f]{64}")


def _hash(_context: click.Context, _option: click.Parameter, value: str | None) -> str | None:
    if value is not None and not _HASH.fullmatch(value):
        raise click.BadParameter("expected the 64 hex digits that `show` gives, found something else")
    return value


_vote_options = (
    principal_option,
    keyring_option,
    click.option("--yes", is_flag=True, help="Do not ask; needs --hash and --row-version, as you saw them."),
    click.option("--hash", "seen_hash", callback=_hash, metavar="HEX", help="The hash that you saw."),
    click.option("--row-version", "seen_version", type=int, help="The row version that you saw."),
)


@click.command()
@click.argument("operation_id", metavar="ID", type=click.UUID)
@click.option("--note", help="Why; the requester reads it.")
@options(*_vote_options)
def approve(note: str | None, **given: Any) -> None:
    """Approve an operation: it is shown, and your vote counts for exactly what was shown.

    At a terminal you are asked. A script gives --yes with the --hash and --row-version that it looked at (`show
    --json` has both): if the operation has changed since, nothing is approved.
    """
    _vote("approve", note, **given)


@click.command()
@click.argument("operation_id", metavar="ID", type=click.UUID)
@click.option("--reason", required=True, help="Why; the requester reads it.")
@options(*_vote_options)
def reject(reason: str, **given: Any) -> None:
    """Reject an operation, and say why: it is shown, and your vote counts for exactly what was shown."""
    if not reason.strip():
        raise click.BadParameter(
            "expected a reason, found none; the requester will read it", param_hint="--reason"
        )
    _vote("reject", reason, **given)


def _vote(
    decision: Decision,
    why: str | None,
    *,
    dsn: str | None,
    principal: str | None,
    keyring: Path | None,
    operation_id: UUID,
    yes: bool,
    seen_hash: str | None,
    seen_version: int | None,
    as_json: bool,
) -> None:
    if yes and (seen_hash is None or seen_version is None):
        raise click.UsageError(
            "expected --hash and --row-version beside --yes: a vote is for exactly what you saw"
        )
    if as_json and not yes:
        raise click.UsageError("expected --yes beside --json: there is nobody to ask")
    who = needed_principal(principal)
    with session(dsn, needed_ring(keyring)) as here:
        operation = found(here.us, operation_id, who)
        if not as_json:
            print_operation(operation)
        echo = _echo(operation, seen_hash, seen_version)
        if not yes:
            _ask(decision, operation, echo)
        done = here.us.vote(echo, who, decision, why)
    demand_done(done.outcome, done.reason, done.message)
    if as_json:
        shown = {
            "operation_id": echo.operation_id,
            "params_hash": echo.params_hash,
            "row_version": echo.row_version,
        }
        print_json({**plain(done), **plain(shown)})
    else:
        say(done.message)
        click.echo(f"  hash {echo.params_hash.hex()}, row version {echo.row_version}")


def _echo(operation: Operation, seen_hash: str | None, seen_version: int | None) -> Echo:
    """What the vote is for: what was on the screen, or what a script says that it saw. The database compares."""
    from dataclasses import replace

    echo = operation.echo
    if seen_hash is not None:
        echo = replace(echo, params_hash=bytes.fromhex(seen_hash))
    if seen_version is not None:
        echo = replace(echo, row_version=seen_version)
    return echo


def _ask(decision: Decision, operation: Operation, echo: Echo) -> None:
    if "vote" not in operation.can:
        raise Stop(CONFLICT, "conflict", "no-vote", operation.why or "You may not vote on it now.")
    confirm(
        f"{decision.capitalize()} exactly this, {visible(operation.type)} for {visible(operation.requester)}, "
        f"hash {echo.params_hash.hex()}, row version {echo.row_version}?"
    )


@click.command()
@click.argument("operation_id", metavar="ID", type=click.UUID)
@click.option("--note", help="Why; it stays on the timeline.")
@click.option(
    "--as-operator", is_flag=True, help="Cancel what somebody else asked for; takes operator access."
)
@options(principal_option)
def cancel(
    dsn: str | None,
    principal: str | None,
    operation_id: UUID,
    note: str | None,
    as_operator: bool,
    as_json: bool,
) -> None:
    """Cancel what you asked for, before it runs."""
    with session(dsn) as here:
        done = here.us.cancel(operation_id, needed_principal(principal), note, as_operator=as_operator)
    conclude(done, as_json)


COMMANDS = (approve, reject, cancel)
