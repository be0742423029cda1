"""What doctor reads in the kernel's files is what a fresh installation has, whole and nothing beside it."""

from __future__ import annotations

import re

from underseal.doctor.expected import Expected, condition
from underseal.foundation.kernel import installed_kernel
from underseal.testing import DictConnection


def names(db: DictConnection, query: str) -> set[tuple[str, ...]]:
    return {tuple(row.values()) for row in db.execute(query.encode()).fetchall()}


def test_every_function_and_view_is_read(db: DictConnection) -> None:
    expected = Expected(installed_kernel())
    ours = "p.pronamespace = 'underseal'::regnamespace"
    assert {(name,) for name in expected.functions} == names(
        db, f"select p.proname from pg_proc p where {ours}"
    )
    assert len(expected.functions) == db.execute(f"select 1 from pg_proc p where {ours}").rowcount
    views = "select c.relname from pg_class c where c.relnamespace = 'underseal'::regnamespace and c.relkind = 'v'"
    assert {(name,) for name in expected.views} == names(db, views)


def test_every_trigger_table_constraint_and_index_is_read(db: DictConnection) -> None:
    expected = Expected(installed_kernel())
    of = "c.relnamespace = 'underseal'::regnamespace and c.relname <> 'alembic_version'"
    assert set(expected.triggers) == names(
        db,
        "select c.relname, t.tgname from pg_trigger t join pg_class c on c.oid = t.tgrelid"
        f" where not t.tgisinternal and {of}",
    )
    assert {(name,) for name in expected.tables} == names(
        db, f"select c.relname from pg_class c where c.relkind = 'r' and {of}"
    )
    # Postgres 18 lists NOT NULL as constraints too.
    assert expected.constraints == names(
        db,
        "select c.relname, o.conname from pg_constraint o join pg_class c on c.oid = o.conrelid"
        f" where o.contype in ('p', 'u', 'c', 'f', 'x') and {of}",
    )
    assert expected.indexes == names(
        db,
        "select c.relname, i.relname as name from pg_index x join pg_class i on i.oid = x.indexrelid"
        " join pg_class c on c.oid = x.indrelid"
        f" where not exists (select from pg_constraint o where o.conindid = i.oid) and {of}",
    )


def test_conditions_are_compared_by_meaning() -> None:
    written = "(old.a, old.b) is distinct from (new.a, new.b)"
    printed = "((old.a IS DISTINCT FROM new.a) OR (old.b IS DISTINCT FROM new.b))"
    assert condition(written) == condition(printed)
    assert condition(None) is None
    assert condition("old.a = 1") != condition("old.a = 2")


def test_the_kernel_is_written_in_the_style_that_is_read() -> None:
    text = "\n".join(path.read_text() for path in installed_kernel().repeatables())
    assert len(re.findall(r"^create or replace function", text, re.MULTILINE)) == len(
        Expected(installed_kernel()).functions
    )
