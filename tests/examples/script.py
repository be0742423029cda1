"""A script for psql, run without psql: `\\connect - :login`, `\\gset`, and variables as `:name` and `:'name'`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from psycopg import sql

from underseal.testing import DictConnection

_COMMENT = re.compile(r"^--.*\n", re.MULTILINE)
_VARIABLE = re.compile(r"(?<!:):(?:'(\w+)'|([a-z_]\w*))")
_STEP = re.compile(r"\\connect - :(?P<login>\w+)\n|(?P<statement>[^;\\]+?)\s*(?P<end>;|\\gset\n)")


def run(
    script: str, connect: Callable[[str], DictConnection], **variables: str
) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Run a script one statement after the other.

    Parameters:
        script: its text.
        connect: gives a connection of a login.
        variables: what psql is told with `-v`.

    Returns: each statement and its rows.
    """
    connection: DictConnection | None = None
    text = _COMMENT.sub("", script).strip() + "\n"
    place = 0
    while place < len(text.rstrip()):
        step = _STEP.match(text, place)
        assert step, f"no statement: {text[place : place + 80]!r}"
        place = step.end()
        place += len(text[place:]) - len(text[place:].lstrip())
        if step["login"]:
            connection = connect(variables[step["login"]])
            continue
        assert connection is not None, "a statement before the first \\connect"
        statement = _filled(step["statement"], variables, connection)
        rows = connection.execute(statement.encode()).fetchall()
        if step["end"] != ";":
            assert len(rows) == 1, f"\\gset takes one row, found {len(rows)}: {statement}"
            variables |= {name: str(value) for name, value in rows[0].items() if value is not None}
        yield statement.strip(), rows


def _filled(statement: str, variables: dict[str, str], connection: DictConnection) -> str:
    def value(found: re.Match[str]) -> str:
        quoted, plain = found.groups()
        if plain is not None:
            return variables.get(plain, found[0])  # psql leaves alone what is no variable
        return sql.Literal(variables[quoted]).as_string(connection)

    return _VARIABLE.sub(value, statement)
