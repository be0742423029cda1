"""docs/sql-reference.md says what the catalog says."""

from __future__ import annotations

from tools.sql_reference import REFERENCE, render
from underseal.foundation.kernel import installed_kernel
from underseal.testing import DictConnection


def test_the_reference_is_up_to_date(db: DictConnection) -> None:
    assert REFERENCE.read_text() == render(db, installed_kernel()), "run `make docs`"


def test_the_reference_names_every_public_function_and_view(db: DictConnection) -> None:
    page = render(db, installed_kernel())
    public = db.execute(
        "select p.proname as name from pg_proc p where p.pronamespace = 'underseal'::regnamespace"
        " and p.proname not like '\\_%' union"
        " select c.relname from pg_class c where c.relnamespace = 'underseal'::regnamespace and c.relkind = 'v'"
    ).fetchall()
    assert public
    assert [row["name"] for row in public if f"`{row['name']}`\n" not in page] == []
