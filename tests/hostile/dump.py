"""Everything that the schema's tables and views hold, as one text: what somebody with a dump has."""

from __future__ import annotations

from underseal.testing import DictConnection


def dump(admin: DictConnection) -> str:
    """Every row of every table and view of the schema; bytes as hex."""
    names = [
        row["name"]
        for row in admin.execute(
            "select c.oid::regclass::text as name from pg_class c"
            " where c.relnamespace = 'underseal'::regnamespace and c.relkind in ('r', 'v', 'm', 'p') order by 1"
        )
    ]
    assert "underseal.held_operation" in names
    assert "underseal.operation_timeline" in names
    lines = [
        f"{name} {row['line']}"
        for name in names
        for row in admin.execute(f"select to_jsonb(t)::text as line from {name} t")
    ]
    return "\n".join(lines)
