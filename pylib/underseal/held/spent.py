"""The spent register: which operations were run or cancelled, kept outside the database (H8.5).

A writer with all rights on the tables, or a restore to an earlier point in time, can bring a row back to
APPROVED inside its deadline. Nothing in that database can tell; a register elsewhere can. It is optional, and
off by default.
"""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Final, Protocol, runtime_checkable
from uuid import UUID

import psycopg
from psycopg import sql
from psycopg.rows import tuple_row
from psycopg_pool import ConnectionPool

from underseal.errors import UndersealError
from underseal.seal.private import PrivateDirectory


class SpentRegisterError(UndersealError):
    """A spent register cannot be used as it is. Whoever asked must not run the operation: fail closed."""

    code = "spent-register"


@runtime_checkable
class SpentRegister(Protocol):
    """Remembers operation ids. Calls are synchronous and safe from any thread: async callers use a thread."""

    def spend(self, operation_id: UUID, keep_for: timedelta) -> bool:
        """Remember ``operation_id``, durably, before this returns.

        Parameters:
            operation_id: the operation that is about to run or to be cancelled.
            keep_for: how long at least, longer than the sealed deadline is away (H8.5e).

        Returns:
            True the first time, False every other time, however many processes ask at once.

        Raises:
            Whatever the place raises. Then nothing is known and the operation must not run: at worst the id
            is spent already and the next try is refused.
        """
        ...


class FileSpentRegister:
    """A register in a private directory (mode 0700): one file an operation, named by its id.

    Put it on a disk that is not restored together with the database. All processes that run operations must
    see the same directory; on several machines use ``PostgresSpentRegister``.

    Parameters:
        path: the directory; made when first needed, refused if it is looser than 0700 or somebody else's.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)

    def spend(self, operation_id: UUID, keep_for: timedelta) -> bool:
        """Remember ``operation_id``; see ``SpentRegister.spend``.

        Raises:
            SpentRegisterError: the directory is loose, foreign or a symbolic link; ``keep_for`` is not
                positive.
            OSError: the disk said no.
        """
        _demand_positive(keep_for)
        until = int(time.time() + keep_for.total_seconds()) + 1
        with PrivateDirectory.open(self._path, SpentRegisterError, create=True) as directory:
            return directory.create(str(UUID(str(operation_id))), f"{until}\n".encode("ascii"))

    def prune(self, grace: timedelta = timedelta(days=1)) -> int:
        """Forget entries that this machine's clock says are over.

        The clock is the machine's and not a database's, so ``grace`` is added to every entry. An entry that a
        crash left without its date is kept.

        Parameters:
            grace: how much longer than asked for an entry is kept, zero or more.

        Returns:
            How many entries were removed.
        """
        if grace < timedelta(0):
            raise ValueError("grace must be zero or more")
        over = time.time() - grace.total_seconds()
        removed = 0
        with PrivateDirectory.open(self._path, SpentRegisterError, create=True) as directory:
            for name in directory.names():
                until = (directory.read(name) or b"").strip()
                if until.isdigit() and int(until) < over:
                    directory.remove(name)
                    removed += 1
            directory.sync()
        return removed

    def __repr__(self) -> str:
        return f"<FileSpentRegister {self._path}>"


DEFAULT_TABLE: Final = "underseal_spent"


class PostgresSpentRegister:
    """A register in a table of another Postgres, by that server's clock.

    Parameters:
        database: conninfo of the other database, or a pool of connections to it. It must not be restored
            together with the one that holds the operations, and no writer of that one should have rights
            here.
        table: name of the table, found along the login's search_path; ``create`` makes it.
    """

    def __init__(self, database: str | ConnectionPool, table: str = DEFAULT_TABLE) -> None:
        self._database = database
        self._table = sql.Identifier(table)

    def create(self) -> None:
        """Make the table where it is missing. The login needs CREATE on the schema for this, and only for this."""
        statement = sql.SQL(
            """create table if not exists {} (
              operation_id uuid primary key,
              spent_at timestamptz not null default clock_timestamp(),
              keep_until timestamptz not null
            )"""
        ).format(self._table)
        self._execute(statement, {})

    def spend(self, operation_id: UUID, keep_for: timedelta) -> bool:
        """Remember ``operation_id``; see ``SpentRegister.spend``. Needs INSERT on the table.

        Raises:
            SpentRegisterError: ``keep_for`` is not positive.
            psycopg.Error: the other database cannot be reached or said no.
        """
        _demand_positive(keep_for)
        statement = sql.SQL(
            "insert into {} (operation_id, keep_until) values (%(id)s, clock_timestamp() + %(keep_for)s)"
            " on conflict do nothing"
        ).format(self._table)
        return self._execute(statement, {"id": operation_id, "keep_for": keep_for}) == 1

    def prune(self) -> int:
        """Forget entries that are over by that server's clock; returns how many. Needs SELECT and DELETE."""
        statement = sql.SQL("delete from {} where keep_until < clock_timestamp()").format(self._table)
        return self._execute(statement, {})

    def __repr__(self) -> str:
        return f"<PostgresSpentRegister {self._table.as_string()}>"

    def _execute(self, statement: sql.Composed, parameters: dict[str, object]) -> int:
        if isinstance(self._database, str):
            with psycopg.connect(self._database) as connection:
                return _run(connection, statement, parameters)
        with self._database.connection() as connection:
            return _run(connection, statement, parameters)


def _run(connection: psycopg.Connection, statement: sql.Composed, parameters: dict[str, object]) -> int:
    with connection.transaction(), connection.cursor(row_factory=tuple_row) as cursor:
        # A server that is set up to answer before the disk does, or to serialise, must not be so here: the
        # answer "first time" has to survive a crash, and a concurrent first time has to be waited for.
        cursor.execute("set transaction isolation level read committed")
        cursor.execute("set local synchronous_commit to on")
        cursor.execute(statement, parameters)
        return cursor.rowcount


def _demand_positive(keep_for: timedelta) -> None:
    if keep_for <= timedelta(0):
        raise SpentRegisterError(f"keep_for must be longer than zero, and is {keep_for}")
