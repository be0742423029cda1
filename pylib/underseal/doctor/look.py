"""How doctor looks at a database: every query in a transaction that is read-only or rolled back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import psycopg
from psycopg.rows import dict_row

from underseal.doctor.expected import Expected
from underseal.foundation.kernel import Kernel

Row = dict[str, Any]


class CannotCheckError(Exception):
    """A check lacks something: an access, a key ring, an application."""


class Look:
    """One examination's view of a database.

    Parameters:
        connection: an idle connection; nothing of it is changed that outlives a query.
        kernel: what should be installed.
    """

    def __init__(self, connection: psycopg.Connection[Any], kernel: Kernel) -> None:
        self._connection = connection
        self.kernel = kernel
        self.expected = Expected(kernel)

    @property
    def connection(self) -> psycopg.Connection[Any]:
        """The connection itself."""
        return self._connection

    def rows(self, query: str, params: Sequence[Any] = ()) -> list[Row]:
        """The rows of a query, read in a read-only transaction.

        Parameters:
            query: the query.
            params: what is bound to it.
        """
        with self._connection.transaction(), self._connection.cursor(row_factory=dict_row) as cursor:
            cursor.execute("set transaction isolation level read committed, read only")
            cursor.execute(query.encode(), params or None)
            return cursor.fetchall()

    @contextmanager
    def undone(self) -> Iterator[psycopg.Cursor[Row]]:
        """A cursor in a transaction that is rolled back whatever happens in it."""
        with (
            self._connection.transaction(force_rollback=True),
            self._connection.cursor(row_factory=dict_row) as cursor,
        ):
            yield cursor

    def facts(self, kind: str) -> list[tuple[str, str]]:
        """What `underseal.examine_schema` says of one kind: pairs of subject and detail.

        Parameters:
            kind: as that function names it.

        Errors:
            CannotCheckError: this login may not ask.
        """
        return [(row["subject"], row["detail"]) for row in self._facts if row["kind"] == kind]

    @cached_property
    def _facts(self) -> list[Row]:
        try:
            return self.rows("select * from underseal.examine_schema()")
        except psycopg.errors.InsufficientPrivilege:
            denied = True
        assert denied
        raise CannotCheckError("it takes operator or reader access, or the schema's owner")

    @cached_property
    def server(self) -> Row:
        """The one row of `underseal.server_info`."""
        return self.rows("select * from underseal.server_info()")[0]

    @cached_property
    def settings(self) -> dict[str, str]:
        """Our settings.

        Errors:
            CannotCheckError: this login may not read them.
        """
        return dict(self.facts("setting"))
