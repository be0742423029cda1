"""`underseal types`: what may be held."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from underseal.cli._exits import exit_code_of
from underseal.cli._json import embedded, plain, print_json
from underseal.cli._outcome import conclude
from underseal.cli._render import print_table, said, wide
from underseal.cli._session import app_option, connect, load_app, needed, options, principal_option, session
from underseal.cli._times import duration

if TYPE_CHECKING:
    from underseal import OperationType


@click.group("types", invoke_without_command=True)
@click.pass_context
@options()
def types(context: click.Context, dsn: str | None, as_json: bool) -> None:
    """List the registered types; register, arm and disarm them."""
    if context.invoked_subcommand is not None:
        return
    with session(dsn) as here:
        found = here.us.types()
    if as_json:
        print_json([{**plain(one), "policy": embedded(one.policy)} for one in found])
        return
    print_table(
        _COLUMNS if wide() else _NARROW,
        (_row(one) if wide() else _short_row(one) for one in found),
        empty="no type is registered; see: underseal types register --help",
    )


_COLUMNS = (
    "type", "version", "mode", "provider", "armed", "in force", "approvals", "held for", "run within", "approvers",
)  # fmt: skip
_NARROW = ("type", "mode", "armed", "in force", "approvals", "approvers")


def _row(one: OperationType) -> list[Text | str]:
    policy = embedded(one.policy)
    return [
        said(one.type, "bold"),
        str(one.version),
        one.mode,
        "in a service" if one.sql_run is None else said(one.sql_run),
        *_switches(one),
        str(policy["votes_required"]),
        duration(timedelta(seconds=policy["hold_for"])),
        duration(timedelta(seconds=policy["run_within"])),
        _approvers(policy),
    ]


def _short_row(one: OperationType) -> list[Text | str]:
    policy = embedded(one.policy)
    return [
        said(f"{one.type} v{one.version}", "bold"),
        one.mode,
        *_switches(one),
        str(policy["votes_required"]),
        _approvers(policy),
    ]


def _switches(one: OperationType) -> list[Text | str]:
    return ["yes" if one.armed else said("no", "red"), "yes" if one.current else said("no", "dim")]


def _approvers(policy: Any) -> Text:
    hook = [policy["approver_hook"] + "()"] if "approver_hook" in policy else []
    return said(", ".join([*policy.get("approvers", ()), *hook]))


@types.command("register")
@options(app_option)
def register(dsn: str | None, app: str | None, as_json: bool) -> None:
    """Register the types of an application's gated methods, or bring their policies up to date.

    The login must own the schema: whoever registers says who may approve.
    """
    from underseal.foundation.steps import drive
    from underseal.held.verbs import register as steps

    client = load_app(needed(app, "--app", "UNDERSEAL_APP", "accounts.service:us"))
    with connect(dsn) as connection:
        done = drive(connection, steps(client._core))
    if as_json:
        print_json(done)
    else:
        print_table(
            ("type", "version", "outcome", "message"),
            ([said(one.type, "bold"), str(one.version), one.outcome, said(one.message)] for one in done),
            empty="the application gates nothing",
        )
    worst = max((exit_code_of(one.outcome) for one in done), default=0)
    click.get_current_context().exit(worst)


def _switch(name: str, armed: bool, does: str) -> click.Command:
    @click.command(name, help=f"{does} Takes operator access, or the schema's owner.")
    @click.argument("type_", metavar="TYPE")
    @click.argument("version", type=int)
    @options(principal_option)
    def switch(dsn: str | None, principal: str | None, type_: str, version: int, as_json: bool) -> None:
        with session(dsn) as here:
            done = here.us.set_armed(type_, version, armed, principal)
        conclude(done, as_json)

    return switch


types.add_command(_switch("arm", True, "Let requests and runs of a type through again."))
types.add_command(
    _switch(
        "disarm",
        False,
        "Refuse new requests and runs of a type; no gated call ever runs unheld because of it.",
    )
)

COMMANDS = (types,)
