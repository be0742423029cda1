"""`underseal inbox`: messages to executions."""

from __future__ import annotations

from datetime import timedelta
from typing import IO, TYPE_CHECKING

import click

from underseal.cli._exec_input import json_options, json_value, length
from underseal.cli._exec_session import executions
from underseal.cli._json import print_json
from underseal.cli._outcome import conclude
from underseal.cli._render import print_table, said, wide
from underseal.cli._session import confirm, options, principal_option
from underseal.cli._session import principal as needed_principal
from underseal.cli._times import both, relative
from underseal.cli._visible import visible

if TYPE_CHECKING:
    from datetime import datetime

    from underseal.inbox.model import InboxMessage


@click.group()
def inbox() -> None:
    """Send messages to executions, and look at what waits for them."""


@inbox.command()
@click.argument("execution_id", metavar="ID")
@click.argument("topic")
@json_options("--payload", "What it says")
@click.option("--message-id", help="An id of yours: sent twice under it, the message is delivered once.")
@click.option(
    "--expires-in", callback=length, metavar="TIME", help="How long it may wait: 15min, 2h. [for ever]"
)
@options(principal_option)
def send(
    dsn: str | None,
    principal: str | None,
    execution_id: str,
    topic: str,
    file: IO[bytes] | None,
    text: str | None,
    message_id: str | None,
    expires_in: timedelta | None,
    as_json: bool,
) -> None:
    """Send a message to an execution, or to the one that goes on with it by now.

    FILE holds what it says as JSON; `-` is the standard input.
    """
    payload = json_value(text, file, "--payload", needed=True)
    who = needed_principal(principal)
    with executions(dsn) as here:
        done = here.executions.send(
            execution_id, topic, payload, who, message_id=message_id, expires_in=expires_in
        )
    again = " Sent before: nothing is changed." if done.outcome == "duplicate" else ""
    conclude(done, as_json, f"Message {done.inbox_seq} on {visible(topic)}.{again}")


@inbox.command("list")
@click.argument("execution_id", metavar="ID")
@click.option("--after", default=0, type=click.IntRange(0), metavar="NUMBER", help="Only after this number.")
@click.option(
    "--limit", default=100, show_default=True, type=click.IntRange(1, 10000), help="At most so many."
)
@options(principal_option)
def list_inbox(
    dsn: str | None, principal: str | None, execution_id: str, after: int, limit: int, as_json: bool
) -> None:
    """List what waits in an execution's inbox, without what it says; a topic's first is delivered first."""
    with executions(dsn) as here:
        found = here.executions.inbox(execution_id, needed_principal(principal), after_seq=after, limit=limit)
    if as_json:
        print_json(found)
        return
    _print_inbox(found, here.now)
    if len(found) == limit:
        click.echo(f"there may be more: --after {found[-1].inbox_seq}")


def _print_inbox(found: list[InboxMessage], now: datetime) -> None:
    empty = "nothing waits"
    rows = [(str(one.inbox_seq), said(one.topic, "bold"), said(one.sender)) for one in found]
    if not wide():
        print_table(
            ("number", "topic", "sender", "bytes", "sent", "expires"),
            (
                (*row, str(one.bytes), relative(one.sent_at, now), _expiry(one, now))
                for row, one in zip(rows, found, strict=True)
            ),
            empty=empty,
            whole={"number"},
        )
        return
    print_table(
        ("number", "topic", "sender", "message id", "bytes", "sent", "expires"),
        (
            (*row, said(one.message_id), str(one.bytes), both(one.sent_at, now), both(one.expires_at, now))
            for row, one in zip(rows, found, strict=True)
        ),
        empty=empty,
        whole={"number"},
    )


def _expiry(one: InboxMessage, now: datetime) -> str:
    return "–" if one.expires_at is None else relative(one.expires_at, now)


@inbox.command()
@click.argument("execution_id", metavar="ID")
@click.argument("topic")
@click.option("--reason", help="Why; it stays in the log.")
@click.option(
    "--number", "inbox_seq", type=click.IntRange(1), help="Only this message, the first of its topic."
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@options(principal_option)
def discard(
    dsn: str | None,
    principal: str | None,
    execution_id: str,
    topic: str,
    reason: str | None,
    inbox_seq: int | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Discard what waits on a topic of an execution's inbox. Takes operator access.

    The log keeps who sent what was discarded and who discarded it why, and nothing of what it said.
    """
    who = needed_principal(principal)
    if not yes:
        what = f"message {inbox_seq}" if inbox_seq is not None else "everything that waits"
        confirm(f"Discard {what} on {visible(topic)} of {visible(execution_id)}? It will never be delivered")
    with executions(dsn) as here:
        done = here.executions.discard(execution_id, topic, who, reason, inbox_seq=inbox_seq)
    number = f"{done.discarded} message{'' if done.discarded == 1 else 's'}"
    gone = f"Discarded {number}." if done.discarded else f"Nothing waited on {visible(topic)}."
    conclude(done, as_json, gone)


COMMANDS = (inbox,)
