"""`underseal request`: ask for an operation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from underseal.cli._exits import REFUSED, Stop
from underseal.cli._json import plain, print_json
from underseal.cli._session import (
    app_option,
    as_principal,
    ask,
    identity_options,
    keyring_option,
    load_app,
    needed_ring,
    options,
    session,
)
from underseal.cli._times import absolute

if TYPE_CHECKING:
    from underseal import Held, KeyRing, Principal


@click.command()
@click.argument("type_", metavar="TYPE")
@click.argument("file", required=False, type=click.File("rb"))
@click.option(
    "--param",
    "-p",
    "given",
    multiple=True,
    metavar="NAME=TEXT|NAME:=JSON",
    help="One parameter; may be repeated.",
)
@options(*identity_options, app_option, keyring_option)
def request(
    dsn: str | None,
    principal: str | None,
    auth_kind: str,
    token_id: str | None,
    app: str | None,
    keyring: Path | None,
    type_: str,
    file: IO[bytes] | None,
    given: tuple[str, ...],
    as_json: bool,
) -> None:
    """Ask for an operation of TYPE; it is held until somebody else approves it.

    FILE holds the parameters as one JSON object; `-` is the standard input. `--param to=ann` gives a text,
    `--param cents:=500` any JSON value. A secret belongs in a file or in the standard input: the arguments of a
    process can be seen by others.

    A type of SQL functions needs no --app. Asking again for what is open already gives the open operation.
    """
    params = _parameters(file, given)
    who = as_principal(principal, auth_kind, token_id)
    if app is not None:
        held = ask(load_app(app), lambda us: us.request(type_, who, params))
    else:
        held = _request_sql(dsn, needed_ring(keyring), type_, who, params)
    if as_json:
        print_json({"outcome": "duplicate" if held.duplicate else "held", **plain(held)})
        return
    click.echo(f"{'Open already' if held.duplicate else 'Held'}: {held.operation_id}")
    click.echo(f"  hash     {held.params_hash.hex()}")
    click.echo(f"  state    {held.state}")
    click.echo(f"  expires  {absolute(held.expires_at)}")


def _request_sql(dsn: str | None, ring: KeyRing, type_: str, who: Principal, params: dict[str, Any]) -> Held:
    from underseal import RequestRefused

    with session(dsn, ring) as here:
        try:
            return here.us.request(type_, who, params)
        except RequestRefused as error:
            if error.reason != "unknown-type":
                raise
    raise Stop(
        REFUSED, "refused", "unknown-type",
        f"expected a type that SQL functions do, found {type_}; a type that a service gates takes --app "
        "(see: underseal types)",
    )  # fmt: skip


def _parameters(file: IO[bytes] | None, given: tuple[str, ...]) -> dict[str, Any]:
    params: dict[str, Any] = {}
    if file is not None:
        params = _object(file.read())
    for one in given:
        name, value = _parameter(one)
        if name in params:
            raise click.UsageError(f"expected each parameter once, found {name} twice")
        params[name] = value
    return params


def _object(content: bytes) -> dict[str, Any]:
    try:
        value = json.loads(content.decode(), object_pairs_hook=_once)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise click.UsageError(
            "expected FILE to hold one JSON object in UTF-8, each name once, found something else (not shown)"
        )
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({name for name, _ in pairs}) != len(pairs):
        raise ValueError("a name occurs twice")
    return dict(pairs)


def _parameter(text: str) -> tuple[str, Any]:
    name, found, value = text.partition("=")
    if not found or not name.strip(":"):
        raise click.UsageError(
            "expected --param as name=text or name:=json, found something else (not shown)"
        )
    if not name.endswith(":"):
        return name, value
    try:
        return name[:-1], json.loads(value, object_pairs_hook=_once)
    except (ValueError, RecursionError):
        parsed = False
    assert not parsed
    raise click.UsageError(
        f"expected JSON after {name}=, found something else (not shown); a text goes after {name[:-1]}="
    )


COMMANDS = (request,)
