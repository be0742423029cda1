"""Clients of executions for one command, which keep the text of every JSON object that they read.

`--json` is exact: a number of a log is printed with the digits that it was recorded with, however many.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import click

from underseal.cli._json import plain
from underseal.cli._session import connect, demand_usable

if TYPE_CHECKING:
    import psycopg

    from underseal.foundation.sources import PoolSource
    from underseal.log.client import ExecutionDriver, Executions

_NOT_PRINTABLE: Final = re.compile(r"[^\x20-\x7e]")


class Kept(dict[str, Any]):
    """A JSON object, and the text that it was read from.

    Attributes:
        text: the text.
        readable: whether it was parsed; a deeper one than Python reads is empty here.
    """

    def __init__(self, value: Mapping[str, Any], text: str, readable: bool = True) -> None:
        super().__init__(value)
        self.text = text
        self.readable = readable


def _loads(content: str | bytes | bytearray | memoryview) -> Any:
    text = content if isinstance(content, str) else bytes(content).decode()
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):  # thousands of levels, or of digits
        return Kept({}, text, readable=False)
    return Kept(value, text) if isinstance(value, dict) else value


@dataclass(frozen=True)
class Here:
    """What one command works with, and the database's clock when it began."""

    executions: Executions
    driver: ExecutionDriver
    source: PoolSource
    now: datetime


@contextmanager
def executions(dsn: str | None) -> Iterator[Here]:
    """Clients of one command.

    Parameters:
        dsn: the database.

    Errors:
        Stop: no database, no Underseal in it, or an unusable one.
    """
    from psycopg_pool import ConnectionPool

    from underseal.foundation.sources import PoolSource
    from underseal.log.client import ExecutionDriver, Executions

    with connect(dsn) as connection:
        now = demand_usable(connection)
    pool: ConnectionPool[psycopg.Connection[Any]] = ConnectionPool(
        dsn or "",
        min_size=0,
        max_size=2,
        open=False,
        check=ConnectionPool.check_connection,
        configure=_configure,
        kwargs={"autocommit": True},
        name="underseal",
    )
    with pool:
        yield Here(Executions(pool), ExecutionDriver(pool), PoolSource(pool), now)


def _configure(connection: psycopg.Connection[Any]) -> None:
    from psycopg.types.json import set_json_loads

    set_json_loads(_loads, connection)


def exact(value: Any) -> str:
    """A value as JSON, all ASCII and in one line, with what was read as the text it was.

    Parameters:
        value: whatever `_json.plain` takes.
    """
    if isinstance(value, Kept):
        return _NOT_PRINTABLE.sub(_escaped, value.text)
    if is_dataclass(value) and not isinstance(value, type):
        return exact({one.name: getattr(value, one.name) for one in fields(value)})
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(str(name))}: {exact(one)}" for name, one in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(exact, value)) + "]"
    return json.dumps(plain(value))


def _escaped(found: re.Match[str]) -> str:
    character = found[0]
    return " " if character in "\n\r\t" else json.dumps(character)[1:-1] if character != "\x7f" else "\\u007f"


def print_exact(value: Any) -> None:
    """Print one JSON document.

    Parameters:
        value: as for `exact`.
    """
    click.echo(exact(value))
