"""Where a command gets its database, its keys, its principal and its application from."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import os
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from underseal.cli._exits import FAILED, USAGE, Stop, friendly, no_connection

if TYPE_CHECKING:
    import psycopg

    from underseal import AsyncUnderseal, FileSpentRegister, KeyRing, Principal, Underseal

F = TypeVar("F", bound=Callable[..., Any])

_CONNECT_SECONDS = 10
_KEYS = "UNDERSEAL_KEYS"

dsn_option = click.option(
    "--dsn", envvar="UNDERSEAL_DSN", help="Database, a libpq connection string. [UNDERSEAL_DSN]"
)
keyring_option = click.option(
    "--keyring",
    envvar="UNDERSEAL_KEYRING",
    type=click.Path(path_type=Path),
    help="Directory of the key ring; without it the keys are read from UNDERSEAL_KEYS. [UNDERSEAL_KEYRING]",
)
principal_option = click.option(
    "--principal", envvar="UNDERSEAL_PRINCIPAL", help="Whom you act for. [UNDERSEAL_PRINCIPAL]"
)
app_option = click.option(
    "--app",
    envvar="UNDERSEAL_APP",
    help="The application, as module:attribute: a client with its gated methods, or what makes one. [UNDERSEAL_APP]",
)
spent_option = click.option(
    "--spent",
    envvar="UNDERSEAL_SPENT",
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory of a spent register; an --app brings its own. [UNDERSEAL_SPENT]",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


def options(*more: Callable[[Any], Any]) -> Callable[[F], F]:
    """A command that needs a database, says its errors well, and knows `--json`.

    Parameters:
        more: further options, the first one first in the help.
    """

    def decorate(command: F) -> F:
        decorated: Any = friendly(command)
        for option in (json_option, *reversed(more), dsn_option):
            decorated = option(decorated)
        return decorated  # type: ignore[no-any-return]

    return decorate


def connect(dsn: str | None) -> psycopg.Connection[Any]:
    """A connection in autocommit mode.

    Parameters:
        dsn: a libpq connection string.

    Errors:
        Stop: there is none, it is malformed, or nothing answers. Nothing of it is shown: it may hold a password.
    """
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    try:
        given = conninfo_to_dict(
            needed(dsn, "--dsn", "UNDERSEAL_DSN", "host=db.example dbname=app user=app_admin")
        )
    except psycopg.ProgrammingError:
        given = None
    if given is None:
        raise Stop(
            USAGE, "error", "dsn",
            "expected --dsn to be a libpq connection string or a postgresql:// URL, found neither "
            "(not shown: it may hold a password)",
        )  # fmt: skip
    patience = int(given.get("connect_timeout") or _CONNECT_SECONDS)
    try:
        return psycopg.connect(dsn or "", autocommit=True, connect_timeout=patience)
    except psycopg.OperationalError as error:
        stop = no_connection(error)
    raise stop


def needed(value: str | None, option: str, variable: str, example: str) -> str:
    """The value of an option that this command cannot do without.

    Parameters:
        value: what was given.
        option, variable: where it could have been given.
        example: what it looks like.

    Errors:
        click.UsageError: it was not given.
    """
    if not value:
        raise click.UsageError(
            f"expected {option} or {variable}, found neither; for example {option} '{example}'"
        )
    return value


def key_ring(path: Path | None) -> KeyRing | None:
    """The key ring that was named, if one was.

    Parameters:
        path: its directory; without it UNDERSEAL_KEYS counts.

    Errors:
        KeyRingError: the variable is not what docs/seal.md says.
    """
    from underseal.seal import EnvKeyRing, FileKeyRing

    if path is not None:
        return FileKeyRing(path)
    return EnvKeyRing(_KEYS) if _KEYS in os.environ else None


def needed_ring(path: Path | None) -> KeyRing:
    """The key ring, which this command cannot do without.

    Parameters:
        path: as in `key_ring`.

    Errors:
        click.UsageError: none was named.
    """
    ring = key_ring(path)
    if ring is None:
        raise click.UsageError(
            "expected --keyring, UNDERSEAL_KEYRING or UNDERSEAL_KEYS, found none; "
            "for example --keyring ~/.underseal/keys, made by: underseal keys generate"
        )
    return ring


def spent_register(path: Path | None) -> FileSpentRegister | None:
    """The spent register that was named, if one was.

    Parameters:
        path: its directory.
    """
    from underseal import FileSpentRegister

    return None if path is None else FileSpentRegister(path)


@dataclass(frozen=True)
class Session:
    """A client, and the database's clock when the command began."""

    us: Underseal
    now: datetime


@contextmanager
def session(
    dsn: str | None, ring: KeyRing | None = None, *, runs: bool = False, spent: Any = None
) -> Iterator[Session]:
    """A client of one command.

    Parameters:
        dsn: the database.
        ring: the keys, where the command takes some.
        runs: whether it may run operations of SQL functions; then every requester may act whom a role is mapped to.
        spent: a spent register.

    Errors:
        Stop: no database, no Underseal in it, or an unusable one.
    """
    from underseal import MemoryKeyRing, Principal, Underseal

    with connect(dsn) as connection:
        now = demand_usable(connection)
    client = Underseal(
        dsn or "",
        keys=ring or MemoryKeyRing(),
        principals=Principal if runs else None,
        spent=spent,
        max_connections=4,
    )
    with client:
        yield Session(client, now)


def demand_usable(connection: psycopg.Connection[Any]) -> datetime:
    """The database's clock, where Underseal is installed and usable.

    Parameters:
        connection: a connection to it.

    Errors:
        Stop: the schema stopped at an older revision.
        psycopg.Error: it is not there, or this login has no access at all.
    """
    row = connection.execute("select i.usable, i.now from underseal.server_info() i").fetchone()
    usable, now = row or (False, None)
    if not usable:
        raise Stop(
            FAILED, "error", "schema-unusable",
            "expected Underseal's schema at the head revision, found an older one; run: underseal migrate",
        )  # fmt: skip
    return now  # type: ignore[return-value]


def principal(name: str | None) -> str:
    """Whom the caller acts for.

    Parameters:
        name: what `--principal` says.

    Errors:
        click.UsageError: nothing.
    """
    return needed(name, "--principal", "UNDERSEAL_PRINCIPAL", "ann")


def load_app(name: str) -> Underseal | AsyncUnderseal:
    """The application's client.

    Parameters:
        name: `module:attribute`; the attribute is a client, or takes no argument and returns one. The current
            directory is looked in first.

    Errors:
        Stop: there is no such thing, or its code cannot be read. What the application itself raises is not caught here.
    """
    from underseal import AsyncUnderseal, Underseal

    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise _no_app(f"expected --app as module:attribute, found {name}")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    found: Any = _imported(module)
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise _no_app(f"expected module {module} to have {attribute}, found no such name")
        found = getattr(found, part)
    if callable(found) and not isinstance(found, Underseal | AsyncUnderseal):
        found = found()
    if not isinstance(found, Underseal | AsyncUnderseal):
        raise _no_app(
            f"expected {name} to be a client (Underseal), or to return one, found {type(found).__name__}"
        )
    return found


def _imported(module: str) -> Any:
    """The module; what is said of one that cannot be imported is names of modules, files and lines, never values."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None:
            raise
        if module == error.name or module.startswith(f"{error.name}."):
            stop = _no_app(f"expected a module {module} that can be imported from here, found none")
        else:
            stop = _broken_app(module, f"it imports {error.name}, which is not installed here")
    except ImportError as error:
        # only "cannot import name … from …" has both
        if error.name is None or error.path is None:
            raise
        stop = _broken_app(module, f"{error.msg}")
    except SyntaxError as error:
        stop = _broken_app(module, f"{error.filename}, line {error.lineno}: {type(error).__name__}")
    raise stop


def _broken_app(module: str, found: str) -> Stop:
    return Stop(USAGE, "error", "app", f"expected module {module} to be importable, found: {found}")


def _no_app(message: str) -> Stop:
    return Stop(USAGE, "error", "app", f"{message}; for example --app accounts.service:us")


def ask(app: Underseal | AsyncUnderseal, question: Callable[[Any], Any]) -> Any:
    """Call an application's client, sync or async, and close it.

    Parameters:
        app: the client.
        question: what to call; its answer is awaited where that is needed.
    """

    async def asked() -> Any:
        answer: Any = question(app)
        try:
            return await answer if inspect.isawaitable(answer) else answer
        finally:
            closed = app.close()
            if isinstance(closed, Awaitable):
                await closed

    from underseal import AsyncUnderseal

    if isinstance(app, AsyncUnderseal):
        return asyncio.run(asked())
    with app:
        return question(app)


def as_principal(name: str | None, auth_kind: str, token_id: str | None) -> Principal:
    """The caller, as a request names them.

    Parameters:
        name: whom they act for.
        auth_kind, token_id: how they were authenticated.

    Errors:
        click.UsageError: no name was given.
    """
    from underseal import Principal

    return Principal(principal(name), auth_kind, token_id)


identity_options = (
    principal_option,
    click.option(
        "--auth-kind",
        default="cli",
        show_default=True,
        help="How you were authenticated; sealed into the request.",
    ),
    click.option("--token-id", help="Token that the request is bound to."),
)
"""Options of commands in which somebody asks."""


def confirm(question: str) -> None:
    """Ask a person at a terminal.

    Parameters:
        question: a whole question.

    Errors:
        click.UsageError: nobody is there to be asked.
    """
    if not sys.stdin.isatty():
        raise click.UsageError(
            "this asks before it acts, and nobody is at a terminal; give --yes (see --help)"
        )
    click.confirm(question, abort=True, err=True)
