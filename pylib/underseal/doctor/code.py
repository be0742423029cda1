"""Are functions, views and triggers what the kernel's files say, and is nothing of them switched off?"""

from __future__ import annotations

from collections.abc import Iterator

from underseal.doctor.expected import Function, Trigger, condition
from underseal.doctor.look import Look, Row
from underseal.doctor.model import Finding
from underseal.doctor.release import REPAIR, demand_same

_FUNCTIONS = """
  select p.proname as name, p.prosrc as source, p.prosecdef as definer, coalesce(p.proconfig, '{}') as config,
    p.proowner = n.nspowner as ours
  from pg_catalog.pg_proc p join pg_catalog.pg_namespace n on n.oid = p.pronamespace
  where n.nspname = 'underseal'
"""

_TRIGGERS = """
  select c.relname as "table", t.tgname as name, f.proname as function, fn.nspname = 'underseal' as ours,
    t.tgenabled::text as enabled, t.tgtype::integer as kind, t.tgdeferrable and t.tginitdeferred as deferred,
    array(select a.attname::text from unnest(t.tgattr::int2[]) as k (number)
      join pg_catalog.pg_attribute a on a.attrelid = t.tgrelid and a.attnum = k.number) as columns,
    nullif(replace(encode(t.tgargs, 'escape'), '\\000', ''), '') as argument,
    substring(pg_catalog.pg_get_triggerdef(t.oid) from ' WHEN \\((.*)\\) EXECUTE ') as condition
  from pg_catalog.pg_trigger t
  join pg_catalog.pg_class c on c.oid = t.tgrelid
  join pg_catalog.pg_proc f on f.oid = t.tgfoid
  join pg_catalog.pg_namespace fn on fn.oid = f.pronamespace
  where c.relnamespace = 'underseal'::regnamespace and not t.tgisinternal
"""

_STATES = {
    "A": "ENABLE ALWAYS",
    "O": "enabled at the origin",
    "R": "enabled on a replica only",
    "D": "disabled",
}


def check_functions(look: Look) -> Iterator[Finding]:
    """Every function is there, with its own body, its rights, its search_path and its owner."""
    demand_same(look)
    installed = {row["name"]: row for row in look.rows(_FUNCTIONS)}
    for name, wanted in look.expected.functions.items():
        found = installed.pop(name, None)
        if found is None:
            yield _fault("function-missing", name, f"expected function underseal.{name}, found none")
            continue
        yield from _function_faults(wanted, found)
    for name in sorted(installed):
        yield Finding(
            "warning", "functions", "function-unknown", name,
            f"expected only the kernel's functions in schema underseal, found underseal.{name}",
            "move it to a schema of your own; a release may remove it",
        )  # fmt: skip


def _function_faults(wanted: Function, found: Row) -> Iterator[Finding]:
    name = wanted.name
    if wanted.source is not None and found["source"] != wanted.source:
        yield _changed(name)
    if found["definer"] != wanted.definer:
        right = "SECURITY DEFINER" if wanted.definer else "SECURITY INVOKER"
        yield _fault("function-rights", name, f"expected underseal.{name} to be {right}, found the other")
    if tuple(found["config"]) != wanted.settings:
        yield _fault(
            "function-settings", name,
            f"expected underseal.{name} with {'; '.join(wanted.settings) or 'no setting'}, "
            f"found {'; '.join(found['config']) or 'no setting'}",
        )  # fmt: skip
    if not found["ours"]:
        yield _fault(
            "function-owner",
            name,
            f"expected underseal.{name} to belong to the schema's owner, found another",
        )


def check_parsed(look: Look) -> Iterator[Finding]:
    """What Postgres keeps parsed (views, SQL-standard bodies) is compared with a fresh copy that is rolled back."""
    demand_same(look)
    with look.undone() as cursor:
        for name, query in look.expected.views.items():
            cursor.execute("select to_regclass(%s) as here", [f"underseal.{name}"])
            if cursor.fetchone() == {"here": None}:
                yield _fault("view-missing", name, f"expected view underseal.{name}, found none")
                continue
            cursor.execute(f"create temp view {name} as {query}".encode())
            cursor.execute(
                "select pg_get_viewdef(%s::regclass) = pg_get_viewdef(%s::regclass) as same",
                [f"underseal.{name}", f"pg_temp.{name}"],
            )
            if cursor.fetchone() != {"same": True}:
                yield _fault(
                    "view-changed", name, f"expected view underseal.{name} as its file has it, found another"
                )
        for name, function in look.expected.functions.items():
            if function.source is None:
                cursor.execute(function.statement.replace(f"underseal.{name}", f"pg_temp.{name}", 1).encode())
                cursor.execute(
                    "select count(distinct pg_get_function_sqlbody(p.oid)) as bodies from pg_proc p"
                    " where p.proname = %s and p.pronamespace in ('underseal'::regnamespace, pg_my_temp_schema())",
                    [name],
                )
                if cursor.fetchone() != {"bodies": 1}:
                    yield _changed(name)


def check_triggers(look: Look) -> Iterator[Finding]:
    """Every trigger is there, fires as it should, also for a replica, and is followed by none of somebody else's."""
    demand_same(look)
    installed = {(row["table"], row["name"]): row for row in look.rows(_TRIGGERS)}
    for place, wanted in look.expected.triggers.items():
        found = installed.pop(place, None)
        label, named = ".".join(place), f"trigger {wanted.name} on underseal.{wanted.table}"
        if found is None:
            yield _fault("trigger-missing", label, f"expected {named}, found none")
            continue
        state = "A" if wanted.always else "O"
        if found["enabled"] != state:
            right, wrong = _STATES[state], _STATES[found["enabled"]]
            yield _fault("trigger-disabled", label, f"expected {named} {right}, found it {wrong}")
        if not _same_trigger(wanted, found):
            yield _fault("trigger-changed", label, f"expected {named} as its file has it, found another")
    for table, name in sorted(installed):
        yield Finding(
            "warning", "triggers", "trigger-unknown", f"{table}.{name}",
            f"expected only the kernel's triggers on underseal.{table}, found {name}",
            f"look at what it does; to take it away: drop trigger {name} on underseal.{table}",
        )  # fmt: skip


def _same_trigger(wanted: Trigger, found: Row) -> bool:
    return bool(found["ours"]) and (
        wanted.function, wanted.argument, wanted.kind, sorted(wanted.columns), wanted.when, wanted.deferred
    ) == (
        found["function"], found["argument"], found["kind"], sorted(found["columns"]), condition(found["condition"]),
        found["deferred"],
    )  # fmt: skip


def _changed(name: str) -> Finding:
    return _fault(
        "function-changed", name, f"expected underseal.{name} as its file has it, found another body"
    )


def _fault(what: str, subject: str, found: str) -> Finding:
    check = "triggers" if what.startswith("trigger") else "functions"
    return Finding("error", check, what, subject, found, REPAIR)
