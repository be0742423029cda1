"""Are the tables as they were made: constraints, indexes, no rules upon them, no rights on them?"""

from __future__ import annotations

from collections.abc import Iterator

from underseal.doctor.look import Look
from underseal.doctor.model import Finding
from underseal.doctor.release import demand_same

_RELATIONS = """
  select c.relname as name, c.relpersistence::text as persistence, c.relowner = n.nspowner as ours,
    c.relhasrules as ruled
  from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
  where n.nspname = 'underseal' and c.relkind in ('r', 'p')
"""

# Before 18 there is no column conenforced; what is not there counts as enforced.
_CONSTRAINTS = """
  select c.relname as "table", o.conname as name,
    o.convalidated and coalesce((to_jsonb(o) ->> 'conenforced')::boolean, true) as holds
  from pg_catalog.pg_constraint o join pg_catalog.pg_class c on c.oid = o.conrelid
  where c.relnamespace = 'underseal'::regnamespace
"""

_INDEXES = """
  select c.relname as "table", i.relname as name, x.indisvalid and x.indisready as holds
  from pg_catalog.pg_index x
  join pg_catalog.pg_class i on i.oid = x.indexrelid
  join pg_catalog.pg_class c on c.oid = x.indrelid
  where c.relnamespace = 'underseal'::regnamespace
"""


def check_tables(look: Look) -> Iterator[Finding]:
    """Tables, constraints and indexes are there and hold; nothing rewrites a statement; a crash loses no table."""
    demand_same(look)
    installed = {row["name"]: row for row in look.rows(_RELATIONS)}
    for name in sorted(look.expected.tables):
        found = installed.get(name)
        if found is None:
            yield _fault(
                "table-missing",
                name,
                f"expected table underseal.{name}, found none",
                "restore it from a backup",
            )
            continue
        if found["persistence"] != "p":
            yield _fault(
                "table-unlogged", name, f"expected table underseal.{name} to survive a crash, found it unlogged",
                f"run: alter table underseal.{name} set logged",
            )  # fmt: skip
        if not found["ours"]:
            yield _fault(
                "table-owner", name, f"expected table underseal.{name} to belong to the schema's owner, found another",
                "give it back with alter table … owner to",
            )  # fmt: skip
        if found["ruled"]:
            yield _fault(
                "table-ruled", name, f"expected no rule on table underseal.{name}, found one that rewrites statements",
                "drop the rule",
            )  # fmt: skip
    for kind, wanted, query in (
        ("constraint", look.expected.constraints, _CONSTRAINTS),
        ("index", look.expected.indexes, _INDEXES),
    ):
        holding = {(row["table"], row["name"]) for row in look.rows(query) if row["holds"]}
        for table, name in sorted(wanted - holding):
            yield _fault(
                f"{kind}-missing", f"{table}.{name}",
                f"expected {kind} {name} on underseal.{table}, found none that holds",
                "make it again as sql/*/tables.sql has it, in the order given there",
            )  # fmt: skip


def _fault(what: str, subject: str, found: str, fix: str) -> Finding:
    return Finding("error", "tables", what, subject, found, fix)
