"""`underseal list`, `show` and `log`: what is held, and what happened to it."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

from underseal.cli._exits import DENIED, Stop
from underseal.cli._json import embedded, plain, print_json
from underseal.cli._render import print_operation, print_table, print_timeline, said, state, wide
from underseal.cli._session import options, principal_option, session
from underseal.cli._session import principal as needed_principal
from underseal.cli._times import both, relative
from underseal.cli._visible import members

if TYPE_CHECKING:
    from underseal import Operation, Underseal

OPEN = ("HELD", "APPROVED", "EXECUTING")
ENDED = ("REJECTED", "CANCELLED", "EXPIRED", "SUCCEEDED", "FAILED", "REFUSED", "OUTCOME_UNKNOWN")


def found(us: Underseal, operation_id: UUID, principal: str) -> Operation:
    """An operation that this principal may see.

    Parameters:
        us: the client.
        operation_id: which.
        principal: who looks.

    Errors:
        Stop: there is none, or none to see; strangers cannot tell which (clause H4.7).
    """
    operation = us.get(operation_id, principal)
    if operation is None:
        raise Stop(
            DENIED, "not-found", None,
            f"Expected an operation {operation_id} that {principal} asked for or may decide, found none. "
            "Check the id and --principal.",
        )  # fmt: skip
    return operation


def as_json_value(operation: Operation) -> dict[str, Any]:
    """An operation for `--json`: effect and redacted parameters as the values they stand for.

    Parameters:
        operation: the operation.
    """
    shown = {"effect": embedded(operation.effect), "redacted": embedded(operation.redacted)}
    return {**plain(operation), **shown}


@click.command("list")
@click.option(
    "--state", "states", multiple=True, type=click.Choice(OPEN + ENDED, case_sensitive=False),
    help="May be repeated; by default the open ones.",
)  # fmt: skip
@click.option("--all", "everything", is_flag=True, help="Ended ones too.")
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1, 1000), help="At most so many.")
@click.option("--after", type=click.UUID, help="Go on after this operation.")
@options(principal_option)
def list_operations(
    dsn: str | None,
    principal: str | None,
    states: tuple[str, ...],
    everything: bool,
    limit: int,
    after: UUID | None,
    as_json: bool,
) -> None:
    """List what you asked for or may decide, the newest first."""
    if states and everything:
        raise click.UsageError("expected --state or --all, found both")
    who = needed_principal(principal)
    wanted = OPEN + ENDED if everything else states or None
    with session(dsn) as here:
        operations = here.us.list(who, states=wanted, limit=limit, after=after)
        now = here.now
    if as_json:
        print_json([as_json_value(one) for one in operations])
        return

    _print_list(operations, now)


def _print_list(operations: list[Operation], now: datetime) -> None:
    """Everything where there is room; on a narrow terminal what one chooses by, `show` has the rest."""
    names = ("operation", "type", "state", "requester", "deadline")
    rows = [
        (
            str(one.operation_id),
            said(f"{one.type} v{one.version}", "bold"),
            state(one.state),
            said(one.requester),
        )
        for one in operations
    ]
    due = [one.ended_at or one.run_deadline or one.expires_at for one in operations]
    empty = "nothing that you asked for or may decide"
    if not wide():
        print_table(
            names, ((*row, relative(end, now)) for row, end in zip(rows, due, strict=True)), empty=empty
        )
        return
    print_table(
        (*names, "requested", "what it would do"),
        (
            (*row, both(end, now), both(one.requested_at, now), _gist(one))
            for row, end, one in zip(rows, due, operations, strict=True)
        ),
        empty=empty,
    )


def _gist(operation: Operation) -> str:
    return ", ".join(f"{place} {value}" for place, value in members(operation.effect))


@click.command()
@click.argument("operation_id", metavar="ID", type=click.UUID)
@options(principal_option)
def show(dsn: str | None, principal: str | None, operation_id: UUID, as_json: bool) -> None:
    """Show one operation, what you may do about it and, if nothing, why."""
    with session(dsn) as here:
        operation = found(here.us, operation_id, needed_principal(principal))
    if as_json:
        print_json({**as_json_value(operation), "echo": operation.echo.token()})
    else:
        print_operation(operation)


@click.command()
@click.argument("operation_id", metavar="ID", type=click.UUID)
@options(principal_option)
def log(dsn: str | None, principal: str | None, operation_id: UUID, as_json: bool) -> None:
    """Show the timeline of one operation: who did what, when, from which state to which."""
    with session(dsn) as here:
        who = needed_principal(principal)
        operation = found(here.us, operation_id, who)
        events = here.us.events(operation_id, who) or []
    if as_json:
        print_json(events)
    else:
        print_timeline(operation, events)


COMMANDS = (list_operations, show, log)
