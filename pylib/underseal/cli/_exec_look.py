"""`underseal exec list`, `show` and `events`: which executions there are, and what happened to each."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING

import click
from rich.text import Text

from underseal.cli._exec_input import command
from underseal.cli._exec_session import exact, executions, print_exact
from underseal.cli._exec_words import in_full, status, wait_words
from underseal.cli._render import console, print_table, said, wide
from underseal.cli._session import options, principal_option
from underseal.cli._session import principal as needed_principal
from underseal.cli._times import absolute, relative

if TYPE_CHECKING:
    from underseal.cli._exec_session import Here
    from underseal.log.follow import Following
    from underseal.log.model import ExecutionInfo, LogEvent

OPEN = ("pending", "running", "suspended")
ENDED = ("completed", "failed", "cancelled", "continued")
_SHORT_ID = 40
_ROWS = 60


@click.command("list")
@click.option(
    "--status", "statuses", multiple=True, type=click.Choice(OPEN + ENDED, case_sensitive=False),
    help="May be repeated; by default the open ones.",
)  # fmt: skip
@click.option("--all", "everything", is_flag=True, help="Ended ones too.")
@click.option("--flow", help="Only executions of this flow.")
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1, 1000), help="At most so many.")
@click.option("--after", metavar="CURSOR", help="Go on where a page ended, which says how.")
@options(principal_option)
def list_executions(
    dsn: str | None,
    principal: str | None,
    statuses: tuple[str, ...],
    everything: bool,
    flow: str | None,
    limit: int,
    after: str | None,
    as_json: bool,
) -> None:
    """List the executions that you may read, the newest first."""
    if statuses and everything:
        raise click.UsageError("expected --status or --all, found both")
    who = needed_principal(principal)
    wanted = None if everything else statuses or OPEN
    with executions(dsn) as here:
        found = here.executions.list(who, statuses=wanted, flow=flow, limit=limit, after=after)
    if as_json:
        print_exact(found)
        return
    _print_list(found, here.now)
    if len(found) == limit:
        chosen = ["--all"] if everything else [word for one in statuses for word in ("--status", one)]
        more = [
            *(("--flow", flow) if flow is not None else ()),
            "--limit",
            limit,
            "--after",
            found[-1].cursor,
        ]
        words = command("underseal", "exec", "list", "--principal", who, *chosen, *more)
        console().print(Text("there may be more: ", style="dim").append(words), soft_wrap=True)


def _print_list(found: list[ExecutionInfo], now: datetime) -> None:
    """Everything where there is room; on a narrow terminal what one chooses by, `show` has the rest."""
    whole = (
        {"execution", "status"} if all(len(one.execution_id) <= _SHORT_ID for one in found) else {"status"}
    )
    names = ("execution", "flow", "status", "owner", "last event")
    rows = [
        (
            said(one.execution_id),
            said(f"{one.flow} v{one.flow_version}", "bold"),
            _state(one),
            said(one.owner),
            relative(one.changed_at, now),
        )
        for one in found
    ]
    empty = "no such execution that you may read"
    if not wide():
        print_table(names, rows, empty=empty, whole=whole)
        return
    print_table(
        (*names, "started", "waits for"),
        ((*row, absolute(one.started_at), _waits(one, now)) for row, one in zip(rows, found, strict=True)),
        empty=empty,
        whole=whole,
    )


def _state(one: ExecutionInfo) -> Text:
    shown = status(one.status)
    return shown.append(", to be cancelled", "yellow") if one.cancel_requested and not one.ended else shown


def _waits(one: ExecutionInfo, now: datetime) -> Text:
    if one.continued_by is not None:
        return Text("goes on as ").append(said(one.continued_by))
    return Text("; ").join(wait_words(wait["arms"], now) for wait in one.waits)


@click.command()
@click.argument("execution_id", metavar="ID")
@click.option(
    "--last", default=40, show_default=True, type=click.IntRange(1, 10000), help="So many last events."
)
@options(principal_option)
def show(dsn: str | None, principal: str | None, execution_id: str, last: int, as_json: bool) -> None:
    """Show one execution: its timeline, what it waits for, and what would wake it.

    Where it waits for a person, the command that answers stands there to be copied. Fence, recoveries and wakes are
    shown to logins with worker or operator access.
    """
    from underseal.cli._exec_show import print_view
    from underseal.cli._exec_view import view

    with executions(dsn) as here:
        seen = view(here, execution_id, needed_principal(principal), last)
    if as_json:
        print_exact({**seen.as_json(), "events": seen.events and [as_json_event(one) for one in seen.events]})
    else:
        print_view(seen)


def as_json_event(event: LogEvent) -> dict[str, object]:
    """An event for `--json`: exact, but of what is sealed no ciphertext.

    Parameters:
        event: the event.
    """
    sealed = event.sealed or "seal" in (event.metadata or {})
    return {
        "execution_id": event.execution_id,
        "seq": event.seq,
        "type": event.type,
        "recorded_at": event.recorded_at,
        "sealed": sealed,
        "metadata": event.metadata,
        "data": None if sealed else event.data,
    }


@click.command()
@click.argument("execution_id", metavar="ID")
@click.option("--after", default=-1, type=click.IntRange(-1), metavar="SEQ", help="Only after this number.")
@click.option(
    "--limit", default=100, show_default=True, type=click.IntRange(1, 10000), help="At most so many."
)
@click.option("--follow", "-f", is_flag=True, help="Go on as the log grows, until the execution has ended.")
@options(principal_option)
def events(
    dsn: str | None,
    principal: str | None,
    execution_id: str,
    after: int,
    limit: int,
    follow: bool,
    as_json: bool,
) -> None:
    """Show the events of one execution with their data.

    With --json the data is exactly what was recorded, and with --follow one JSON object a line. --follow knows no
    --limit, and ends at Ctrl-C.
    """
    who = needed_principal(principal)
    with executions(dsn) as here:
        if follow:
            _follow(here, execution_id, who, after, as_json)
            return
        found = here.executions.events(execution_id, who, after_seq=after, limit=limit)
    if as_json:
        print_exact([as_json_event(one) for one in found])
        return
    _print_events(found, here.now)
    if len(found) == limit:
        words = command("underseal", "exec", "events", execution_id, "--principal", who,
                        "--limit", limit, "--after", found[-1].seq)  # fmt: skip
        console().print(Text("there may be more: ", style="dim").append(words), soft_wrap=True)


def _print_events(found: list[LogEvent], now: datetime) -> None:
    from underseal.cli._exec_timeline import Timeline

    out = console()
    if not found:
        out.print(Text("nothing after this number", style="dim"))
    timeline = Timeline(out, in_full, _ROWS, now)
    for event in found:
        timeline.add(event)


def _follow(here: Here, execution_id: str, principal: str, after: int, as_json: bool) -> None:
    from underseal.cli._exec_timeline import Timeline

    timeline = Timeline(console(), in_full, _ROWS, None)
    try:
        with here.executions.follow(execution_id, principal, after_seq=after) as following, _ends(following):
            for event in following:
                if as_json:
                    click.echo(exact(as_json_event(event)))
                else:
                    timeline.add(event)
    except KeyboardInterrupt:  # before it began, or pressed again
        return


@contextmanager
def _ends(following: Following) -> Iterator[None]:
    """Let Ctrl-C end the following between two looks; pressed again, it interrupts.

    An exception that is raised just anywhere can fall into a finalizer, where Python drops it, or into a statement.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    before = signal.getsignal(signal.SIGINT)

    def end(*_: object) -> None:
        signal.signal(signal.SIGINT, before)
        # not here: whoever waits may hold the lock that closing needs
        threading.Thread(target=following.close, name="underseal-close").start()

    signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
