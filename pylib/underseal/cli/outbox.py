"""`underseal outbox`: what happened, in order and without a gap, for consumers."""

from __future__ import annotations

import click

from underseal.cli._json import print_json
from underseal.cli._outcome import conclude
from underseal.cli._render import print_table, said, state, wide
from underseal.cli._session import options, session
from underseal.cli._times import both, relative


@click.group()
def outbox() -> None:
    """Read the events of all operations, and acknowledge them. Takes worker or operator access."""


@outbox.command()
@click.argument("consumer")
@click.option("--limit", default=100, show_default=True, type=click.IntRange(1), help="At most so many.")
@options()
def read(dsn: str | None, consumer: str, limit: int, as_json: bool) -> None:
    """Read what CONSUMER has not acknowledged. Reading again gives the same until `ack`."""
    with session(dsn) as here:
        events, now = here.us.read_outbox(consumer, limit), here.now
    if as_json:
        print_json(events)
        return
    empty = f"nothing new for {consumer}"
    if not wide():
        print_table(
            ("position", "operation", "event", "who", "when"),
            ([str(one.position), str(one.operation_id), said(one.type), said(one.actor),
              relative(one.recorded_at, now)] for one in events),
            empty=empty,
        )  # fmt: skip
        return
    print_table(
        ("position", "operation", "type", "event", "who", "to", "when"),
        ([str(one.position), str(one.operation_id), said(one.operation_type, "bold"), said(one.type), said(one.actor),
          state(one.to_state), both(one.recorded_at, now)] for one in events),
        empty=empty,
    )  # fmt: skip


@outbox.command()
@click.argument("consumer")
@click.argument("position", type=click.IntRange(0))
@options()
def ack(dsn: str | None, consumer: str, position: int, as_json: bool) -> None:
    """Acknowledge every event up to POSITION; what nobody has to read any more may be purged."""
    with session(dsn) as here:
        done = here.us.ack_outbox(consumer, position)
    conclude(done, as_json, f"{consumer} has read up to {position}.")


@outbox.command()
@click.argument("consumer")
@click.option(
    "--from-now", is_flag=True, help="Begin with what happens from now on, not with the first event."
)
@options()
def register(dsn: str | None, consumer: str, from_now: bool, as_json: bool) -> None:
    """Register CONSUMER: from now on no event is purged that it has not acknowledged."""
    with session(dsn) as here:
        done = here.us.register_consumer(consumer, from_start=not from_now)
    conclude(done, as_json)


@outbox.command()
@click.argument("consumer")
@options()
def drop(dsn: str | None, consumer: str, as_json: bool) -> None:
    """Forget CONSUMER: what only it had still to read may be purged. Takes operator access."""
    with session(dsn) as here:
        done = here.us.drop_consumer(consumer)
    conclude(done, as_json)


COMMANDS = (outbox,)
