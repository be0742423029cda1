"""What the kernel's own files say should be in the database: functions, triggers, constraints and indexes.

The files are ours and written in one style (a function's body between `$$`, or one `return` expression), which is
what lets a few patterns read them; a test compares everything read here with a fresh installation.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from underseal.foundation.kernel import Kernel

_FUNCTION: Final = re.compile(
    r"^create or replace function underseal\.(?P<name>\w+)\s*\((?P<head>.*?)"
    r"(?:^as \$\$(?P<body>.*?)\$\$;|^return (?P<expression>.*?);\n)",
    re.DOTALL | re.MULTILINE,
)
_SETTING: Final = re.compile(r"^set (\w+) = (.*)$", re.MULTILINE)
_VIEW: Final = re.compile(
    r"^create or replace view underseal\.(?P<name>\w+) as\n(?P<query>.*?);\n", re.DOTALL | re.MULTILINE
)
_TRIGGER: Final = re.compile(
    r"^create (?:or replace )?(?P<constraint>constraint )?trigger (?P<name>\w+)\s+"
    r"(?P<moment>before|after) (?P<events>.*?)\s+on underseal\.(?P<table>\w+)(?P<options>.*?)"
    r"execute function underseal\.(?P<function>\w+)\((?:'(?P<argument>[^']*)')?\);",
    re.DOTALL | re.MULTILINE,
)
_ALWAYS: Final = re.compile(r"^alter table underseal\.(\w+) enable always trigger (\w+);", re.MULTILINE)
_TABLE: Final = re.compile(
    r"^create table underseal\.(?P<table>\w+) \((?P<body>.*?)^\)", re.DOTALL | re.MULTILINE
)
_ROWS: Final = re.compile(r"\(([^()]*)\) is distinct from \(([^()]*)\)")
_CONSTRAINT: Final = re.compile(r"^  constraint (\w+)", re.MULTILINE)
_INDEX: Final = re.compile(r"^create (?:unique )?index (\w+) on underseal\.(\w+)", re.MULTILINE)

# Bits of pg_trigger.tgtype.
_ROW, _BEFORE, _INSERT, _DELETE, _UPDATE, _TRUNCATE = 1, 2, 4, 8, 16, 32
_EVENT_BITS: Final = {"insert": _INSERT, "delete": _DELETE, "update": _UPDATE, "truncate": _TRUNCATE}


@dataclass(frozen=True, slots=True)
class Function:
    """One function as its file has it.

    Attributes:
        name: without the schema.
        source: the body between the quotes; None for an SQL-standard body, whose statement is then in `statement`.
        definer: SECURITY DEFINER.
        settings: what `set` fixes for its calls, as in the catalog: `search_path=pg_catalog, pg_temp`.
        statement: the whole `create` statement.
    """

    name: str
    source: str | None
    definer: bool
    settings: tuple[str, ...]
    statement: str


@dataclass(frozen=True, slots=True)
class Trigger:
    """One trigger as its file has it; attributes as in the catalog `pg_trigger`."""

    table: str
    name: str
    function: str
    argument: str | None
    kind: int
    columns: tuple[str, ...]
    when: str | None
    deferred: bool
    always: bool


def condition(text: str | None) -> str | None:
    """A trigger's condition without what Postgres makes of it: case, parentheses, spaces, casts, rows as one.

    Parameters:
        text: as written, or as Postgres prints it.
    """
    return None if text is None else re.sub(r"[\s()]|::text", "", _ROWS.sub(_expanded, text.lower()))


def _expanded(match: re.Match[str]) -> str:
    pairs = zip(match[1].split(","), match[2].split(","), strict=True)
    return " or ".join(f"{left} is distinct from {right}" for left, right in pairs)


class Expected:
    """Everything a kernel's files say, read once.

    Parameters:
        kernel: whose files.
    """

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    @cached_property
    def _repeatables(self) -> str:
        return "\n".join(path.read_text() for path in self._kernel.repeatables())

    @cached_property
    def _tables(self) -> str:
        return "\n".join(
            path.read_text() for path in sorted((self._kernel.root / "sql").glob("*/tables.sql"))
        )

    @cached_property
    def functions(self) -> dict[str, Function]:
        """The functions, by name; no two of ours share one."""
        return {match["name"]: _function(match) for match in _FUNCTION.finditer(self._repeatables)}

    @cached_property
    def views(self) -> dict[str, str]:
        """The views' queries, by name."""
        return {match["name"]: match["query"] for match in _VIEW.finditer(self._repeatables)}

    @cached_property
    def triggers(self) -> dict[tuple[str, str], Trigger]:
        """The triggers, by table and name."""
        always = set(_ALWAYS.findall(self._repeatables))
        found = [_trigger(match, always) for match in _TRIGGER.finditer(self._repeatables)]
        return {(one.table, one.name): one for one in found}

    @cached_property
    def tables(self) -> set[str]:
        """The tables' names."""
        return {match["table"] for match in _TABLE.finditer(self._tables)}

    @cached_property
    def constraints(self) -> set[tuple[str, str]]:
        """Pairs of table and constraint."""
        tables = _TABLE.finditer(self._tables)
        return {(match["table"], name) for match in tables for name in _CONSTRAINT.findall(match["body"])}

    @cached_property
    def indexes(self) -> set[tuple[str, str]]:
        """Pairs of table and index; those behind constraints are not named."""
        return {(table, name) for name, table in _INDEX.findall(self._tables)}


def _function(match: re.Match[str]) -> Function:
    head = match["head"]
    return Function(
        name=match["name"],
        source=match["body"],
        definer="security definer" in head,
        settings=tuple(f"{name}={value}" for name, value in _SETTING.findall(head)),
        statement=match[0],
    )


def _trigger(match: re.Match[str], always: set[tuple[str, str]]) -> Trigger:
    events, _, columns = match["events"].partition(" of ")
    kind = sum(_EVENT_BITS[event.strip()] for event in events.split(" or "))
    kind |= _ROW if "for each row" in match["options"] else 0
    kind |= _BEFORE if match["moment"] == "before" else 0
    when = re.search(r"when \((.*)\)", match["options"], re.DOTALL)
    return Trigger(
        table=match["table"],
        name=match["name"],
        function=match["function"],
        argument=match["argument"],
        kind=kind,
        columns=tuple(name.strip() for name in columns.split(",")) if columns else (),
        when=condition(when[1]) if when else None,
        deferred="initially deferred" in match["options"],
        always=(match["table"], match["name"]) in always,
    )
