"""Databases, roles and connections for one test, all gone when it ends."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from shutil import disk_usage
from typing import Any, Final

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo
from psycopg.rows import DictRow, dict_row

from underseal.foundation.install import migrate
from underseal.foundation.server import Server

OWNER: Final = "underseal_owner"
DictConnection = psycopg.Connection[DictRow]

_numbers = count(1)

_MEMORY: Final = Path("/dev/shm")  # a directory of the system's, in which others make theirs
_ROOM_NEEDED: Final = 2 * 1024**3


def in_memory() -> Path | None:
    """A place in memory for the data of a throwaway server, None where there is none or less than 2 GiB are free.

    A clone of a database is three hundred files: 20 ms in memory, fifteen times as long on a slow disk.
    """
    usable = _MEMORY.is_dir() and os.access(_MEMORY, os.W_OK) and disk_usage(_MEMORY).free > _ROOM_NEEDED
    return _MEMORY if usable else None


def unique_name(prefix: str) -> str:
    """A name for a database or a role that no other test process on the server has."""
    return f"{prefix}_{os.getpid()}_{next(_numbers)}"


def ensure_owner(server: Server) -> None:
    """Make the role that owns the schema: a login and nothing more. Roles are the whole server's, so several test
    processes come here at once."""
    with psycopg.connect(server.conninfo()) as connection:
        connection.execute("select pg_advisory_xact_lock(hashtextextended('underseal.testing', 0))")
        if connection.execute("select from pg_roles where rolname = %s", [OWNER]).fetchone() is None:
            connection.execute(sql.SQL("create role {} login").format(sql.Identifier(OWNER)))


def install(server: Server, dbname: str) -> None:
    """Install the kernel into a database through the migrations, as a role that is no superuser and has nothing but
    CREATE on the database."""
    ensure_owner(server)
    with psycopg.connect(server.conninfo(dbname)) as connection:
        connection.execute(
            sql.SQL("grant create on database {} to {}").format(sql.Identifier(dbname), sql.Identifier(OWNER))
        )
    migrate(make_conninfo(server.conninfo(dbname), user=OWNER))


@dataclass
class TestDatabase:
    """One database of a test.

    Parameters:
        server: where it lives.
        name: what it is called.
    """

    __test__ = False

    server: Server
    name: str
    _connections: list[psycopg.Connection[Any]] = field(default_factory=list)
    _roles: list[str] = field(default_factory=list)

    @property
    def conninfo(self) -> str:
        """Connection string as the superuser."""
        return self.server.conninfo(self.name)

    def conninfo_as(self, role: str) -> str:
        """Connection string as another role."""
        return make_conninfo(self.conninfo, user=role)

    def connect(self, role: str | None = None, autocommit: bool = True, **kwargs: Any) -> DictConnection:
        """A connection whose rows are dicts; closed when the test ends.

        Parameters:
            role: who logs in; the superuser if None.
            autocommit: False to open transactions by hand.
            kwargs: passed to `psycopg.connect`.
        """
        conninfo = self.conninfo if role is None else self.conninfo_as(role)
        connection = psycopg.connect(conninfo, autocommit=autocommit, row_factory=dict_row, **kwargs)
        self._connections.append(connection)
        return connection

    def create_role(self, prefix: str = "role", attributes: str = "login") -> str:
        """Make a role that no other test has (roles are the whole server's); dropped when the test ends.

        Parameters:
            prefix: start of its name.
            attributes: what `create role` is told, such as "login" or "nologin".

        Returns: its name.
        """
        name = unique_name(prefix)
        with psycopg.connect(self.conninfo, autocommit=True) as connection:
            connection.execute(sql.SQL("create role {} {}").format(sql.Identifier(name), sql.SQL(attributes)))
        self._roles.append(name)
        return name

    def close_connections(self) -> None:
        """Close every connection the test has opened here."""
        for connection in self._connections:
            connection.close()
        self._connections.clear()

    def drop_roles(self) -> None:
        """Drop the roles the test has made. The database must be gone, since its grants would hold them."""
        with psycopg.connect(self.server.conninfo(), autocommit=True) as connection:
            for role in self._roles:
                connection.execute(sql.SQL("drop role if exists {}").format(sql.Identifier(role)))
        self._roles.clear()
