"""`underseal access`: who may do what (docs/access.md). For the schema's owner."""

from __future__ import annotations

from typing import Any

import click

from underseal.cli._json import print_json
from underseal.cli._outcome import conclude
from underseal.cli._render import print_table, said
from underseal.cli._session import connect, options

ACCESSES = ("client", "approver", "worker", "operator", "sealer", "reader")


@click.group("access")
def access() -> None:
    """Say which roles may do what, and whom logins act for. For the schema's owner."""


def _rows(dsn: str | None, query: str, *params: Any) -> list[dict[str, Any]]:
    from psycopg.rows import dict_row

    with connect(dsn) as connection, connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(query.encode(), params or None).fetchall()


def _do(dsn: str | None, as_json: bool, query: str, *params: Any) -> None:
    from underseal import Outcome
    from underseal.foundation.sources import raise_ours

    with raise_ours():
        done = _rows(dsn, query, *params)[0]
    conclude(Outcome(done["outcome"], done["reason"], done["message"]), as_json)


@access.command("list")
@options()
def list_grants(dsn: str | None, as_json: bool) -> None:
    """List which role has which access, and whether it names its principal or is bound to its login."""
    grants = _rows(dsn, "select g.grantee, g.access, g.principal from underseal.access_grants g")
    if as_json:
        print_json(grants)
        return
    print_table(
        ("role", "access", "principal"),
        ([said(one["grantee"], "bold"), one["access"], one["principal"]] for one in grants),
        empty="nobody but the owner may do anything",
    )


@access.command()
@click.argument("role")
@click.argument("access_", metavar="ACCESS", type=click.Choice(ACCESSES))
@click.option(
    "--principal", "bound", type=click.Choice(("asserted", "login")),
    help="asserted: the role says for whom it acts; login: map-login says it. [login for approver and operator]",
)  # fmt: skip
@options()
def grant(dsn: str | None, role: str, access_: str, bound: str | None, as_json: bool) -> None:
    """Give a role an access."""
    _do(dsn, as_json, "select * from underseal.grant_access(%s, %s, %s)", role, access_, bound)


@access.command()
@click.argument("role")
@click.argument("access_", metavar="ACCESS", type=click.Choice(ACCESSES))
@options()
def revoke(dsn: str | None, role: str, access_: str, as_json: bool) -> None:
    """Take an access from a role again."""
    _do(dsn, as_json, "select * from underseal.revoke_access(%s, %s)", role, access_)


@access.command("map-login")
@click.argument("login")
@click.argument("principal", required=False)
@options()
def map_login(dsn: str | None, login: str, principal: str | None, as_json: bool) -> None:
    """Say which PRINCIPAL a database LOGIN is; without one, that it is nobody."""
    _do(dsn, as_json, "select * from underseal.map_login(%s, %s)", login, principal)


@access.command("map-role")
@click.argument("principal")
@click.argument("role", required=False)
@options()
def map_role(dsn: str | None, principal: str, role: str | None, as_json: bool) -> None:
    """Say under which ROLE operations of SQL functions run for a PRINCIPAL; without one, under none."""
    _do(dsn, as_json, "select * from underseal.map_role(%s, %s)", principal, role)


COMMANDS = (access,)
