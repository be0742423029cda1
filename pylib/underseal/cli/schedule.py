"""`underseal schedule`: flows that start again and again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import IO, TYPE_CHECKING, Any, Final, cast
from zoneinfo import ZoneInfo

import click
from rich.text import Text

from underseal.cli._exec_input import json_options, json_value
from underseal.cli._exits import DENIED, USAGE, Stop, demand_done, say
from underseal.cli._json import plain, print_json
from underseal.cli._outcome import conclude
from underseal.cli._render import print_table, said, wide
from underseal.cli._session import connect, demand_usable, options, principal_option
from underseal.cli._session import principal as needed_principal
from underseal.cli._times import absolute, relative
from underseal.errors import AccessDenied

if TYPE_CHECKING:
    from underseal.wake.client import Schedules
    from underseal.wake.cron import Missed
    from underseal.wake.model import Schedule, ScheduleOutcome

_SHOWN: Final = 3  # instants that are shown before one trusts a schedule
_WHOLE: Final = frozenset({"schedule", "cron"})

as_operator_option = click.option(
    "--as-operator", is_flag=True, help="Act on what belongs to somebody else; takes operator access."
)


@click.group()
def schedule() -> None:
    """Start flows by the clock, again and again."""


@contextmanager
def _schedules(dsn: str | None, as_operator: bool) -> Iterator[Schedules]:
    """The schedules of one command.

    Parameters:
        dsn: the database.
        as_operator: whether that was asked; who is denied without it is told of it.

    Errors:
        Stop: no database, no Underseal in it, or an unusable one; an expression or a zone that is none.
    """
    from underseal.wake.client import Schedules
    from underseal.wake.cron import ScheduleRefusedError

    with connect(dsn) as connection:
        demand_usable(connection)
    try:
        with Schedules(dsn or "", max_connections=2) as client:
            yield client
    except ScheduleRefusedError as refusal:
        stop = Stop(USAGE, "refused", refusal.reason, str(refusal))
    except (AccessDenied, Stop) as refusal:
        if as_operator or getattr(refusal, "reason", None) != "no-principal":
            raise
        stop = Stop(DENIED, "denied", "no-principal", f"{refusal} With operator access, add --as-operator.")
    else:
        return
    raise stop


@schedule.command()
@click.argument("name")
@click.argument("flow")
@click.argument("cron")
@json_options("--input", "The input of each execution")
@click.option("--zone", default="UTC", show_default=True, help="IANA time zone in which CRON is read.")
@click.option(
    "--flow-version", default=1, show_default=True, type=click.IntRange(1), help="Version of the flow."
)
@click.option(
    "--missed", default="latest", show_default=True, type=click.Choice(["skip", "latest", "all"]),
    help="What becomes of instants that no worker was there for: nothing, one execution for the last, or one each.",
)  # fmt: skip
@options(principal_option, as_operator_option)
def add(
    dsn: str | None,
    principal: str | None,
    name: str,
    flow: str,
    cron: str,
    file: IO[bytes] | None,
    text: str | None,
    zone: str,
    flow_version: int,
    missed: str,
    as_operator: bool,
    as_json: bool,
) -> None:
    """Start FLOW by the clock, as schedule NAME; or change the schedule of that name.

    CRON has five fields, minute, hour, day of the month, month and day of the week: '30 2 * * MON-FRI'. With six,
    seconds come first. FILE holds the input as JSON; `-` is the standard input. What it starts is called
    NAME@2026-11-30T16:20:05Z.
    """
    value = json_value(text, file, "--input", needed=False)
    who = needed_principal(principal)
    with _schedules(dsn, as_operator) as client:
        done = client.add(
            name, flow, cron, who, time_zone=zone, value=value, flow_version=flow_version,
            missed=cast("Missed", missed), as_operator=as_operator,
        )  # fmt: skip
        _conclude(client, name, who, as_operator, done, as_json)


@schedule.command("list")
@options(principal_option, as_operator_option)
def list_schedules(dsn: str | None, principal: str | None, as_operator: bool, as_json: bool) -> None:
    """List your schedules, or everybody's, and when each is due next, in its own zone and in UTC."""
    who = needed_principal(principal)
    with _schedules(dsn, as_operator) as client:
        found = client.list(who, as_operator=as_operator)
    if as_json:
        print_json([_as_json_value(one) for one in found])
        return
    empty = "no schedule; see: underseal schedule add --help"
    if not wide():
        print_table(
            ("schedule", "flow", "cron", "next", ""),
            ((said(one.name, "bold"), said(one.flow), said(one.cron), *_next(one)) for one in found),
            empty=empty,
            whole=_WHOLE,
        )
        return
    print_table(
        ("schedule", "flow", "cron", "zone", "missed", "owner", "next", "", "started last"),
        (
            (said(one.name, "bold"), said(f"{one.flow} v{one.flow_version}"), said(one.cron), said(one.time_zone),
             one.missed, said(one.owner), *_next(one), said(one.last_id))
            for one in found
        ),
        empty=empty,
        whole=_WHOLE,
    )  # fmt: skip


def _next(one: Schedule) -> tuple[Text | str, Text | str]:
    if one.due_at is None:
        return said("paused", "yellow"), ""
    return _in_both(one.due_at, one.time_zone), relative(one.due_at, one.now)


def _in_both(instant: datetime, zone: str) -> Text:
    """An instant as the schedule's zone has it, and in UTC where that differs; in UTC alone if the zone is unknown."""
    utc = absolute(instant, ZoneInfo("UTC"))
    try:
        local = absolute(instant, ZoneInfo(zone))
    except (KeyError, ValueError, OSError):
        return Text(utc)
    return Text(local) if local == utc else Text(local).append(f"  {utc}", "dim")


def _upcoming(one: Schedule) -> list[datetime]:
    """The next instants of a schedule: none while it is paused, the planned one where it cannot be read here."""
    from underseal.wake.cron import Calendar, ScheduleRefusedError

    if one.due_at is None:
        return []
    try:
        return [one.due_at, *Calendar.read(one.cron, one.time_zone).upcoming(one.due_at, _SHOWN - 1)]
    except ScheduleRefusedError:
        return [one.due_at]


def _as_json_value(one: Schedule) -> dict[str, Any]:
    # as the option and the column are called
    named = {"input" if name == "value" else name: value for name, value in plain(one).items()}
    return {**named, "upcoming": plain(_upcoming(one))}


def _conclude(
    client: Schedules, name: str, who: str, as_operator: bool, done: ScheduleOutcome, as_json: bool
) -> None:
    """Say what became of it, and show the next instants."""
    demand_done(done.outcome, done.reason, done.message)
    found = client.get(name, who, as_operator=as_operator)
    if as_json:
        print_json({**plain(done), "upcoming": [] if found is None else _upcoming(found)})
        return
    say(done.message)
    if found is not None:
        _print_upcoming(found, _upcoming(found))


def _print_upcoming(one: Schedule, instants: Sequence[datetime]) -> None:
    print_table(
        ("next", ""),
        ((_in_both(instant, one.time_zone), relative(instant, one.now)) for instant in instants),
        empty="paused: nothing is due",
    )


@schedule.command()
@click.argument("name")
@options(principal_option, as_operator_option)
def pause(dsn: str | None, principal: str | None, name: str, as_operator: bool, as_json: bool) -> None:
    """Let NAME start nothing for now. What would have come meanwhile is not made up for."""
    with _schedules(dsn, as_operator) as client:
        conclude(client.pause(name, needed_principal(principal), as_operator=as_operator), as_json)


@schedule.command()
@click.argument("name")
@options(principal_option, as_operator_option)
def resume(dsn: str | None, principal: str | None, name: str, as_operator: bool, as_json: bool) -> None:
    """Let NAME run again, from its next instant on."""
    who = needed_principal(principal)
    with _schedules(dsn, as_operator) as client:
        done = client.resume(name, who, as_operator=as_operator)
        _conclude(client, name, who, as_operator, done, as_json)


@schedule.command()
@click.argument("name")
@options(principal_option, as_operator_option)
def remove(dsn: str | None, principal: str | None, name: str, as_operator: bool, as_json: bool) -> None:
    """Remove NAME; what it has started goes on."""
    with _schedules(dsn, as_operator) as client:
        conclude(client.remove(name, needed_principal(principal), as_operator=as_operator), as_json)


COMMANDS = (schedule,)
