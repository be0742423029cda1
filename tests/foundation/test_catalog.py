"""The conventions of the schema, read from the catalog. An exception is listed here with its reason, or it is a bug."""

from __future__ import annotations

from typing import Any

import pytest

from underseal.testing import DictConnection, TestDatabase

PINNED = "search_path=pg_catalog, pg_temp"

# Without a pinned search_path, which would keep them from being inlined. `clock` is not SECURITY DEFINER either.
INLINED = {
    "_append_conflict": "judged for every item of a batch",
    "_append_outcome": "said for every item of a batch",
    "_chain_of": "read of every id of a batch",
    "_dedupe_window": "a constant",
    "_event_flaw": "judged for every event",
    "_event_limit": "a constant",
    "_execution_id": "written for every row of an answer",
    "_is_ended": "a comparison with constants, for every event and every row",
    "_is_fact": "judged for every event",
    "_line_of": "read of every member of a batch",
    "_member_of": "read of every id of a batch",
    "_parent_line_of": "read of every item of a batch that ends a child",
    "_start_flaw": "judged for every start of a batch",
    "_status_after": "read of every event",
    "_utc_text": "written for every instant of a park",
    "_value_flaw": "judged for every value of a batch",
    "_content_limit": "a constant",
    "_leaves_a_park": "a comparison with constants, for every event that meets a parked execution",
    "clock": "read in predicates of every row",
    "_current_version": "read for every row of a claim",
    "_is_envelope": "judged for every row of a claim; an SQL-standard body, whose names are bound when it is made",
    "_depth_limit": "a constant",
    "_longest_distance": "a constant",
    "_random_token": "no name to resolve but built-in ones, called within pinned functions",
    "_retention": "a constant",
    "_fires_limit": "a constant",
    "_is_claimed": "judged for every due timer and message",
    "_is_within": "judged for every due wake of a flow whose newer versions are left to others",
    "_is_readable": "a comparison with constants, five for every claim",
    "_run_lease": "a constant",
    "_with_seals": "made for every start",
    "_serves": "judged for every row of a claim",
    "_cut_size": "a constant",
    "_list_cursor": "written for every row of a list",
    "_read_at_rest": "read for every log of a call",
    "_shown": "written for every row of a list",
    "seal_opens": "judged for every event; an SQL-standard body, whose names are bound when it is made",
}
NOT_DEFINER = {"clock", "seal_opens"}

# A row type whose first column is the outcome.
ANSWERS = "underseal.appended"

# What does not answer with an outcome, because it is asked for a value and not to do something.
VALUES = {
    "canonical_json": "a pure function",
    "clock": "an instant",
    "list_operation_types": "open to every access, so there is no denial to tell",
    "normalise_params": "a pure function",
    "params_hash": "a pure function",
    "redact_params": "a pure function",
    "seal_opens": "a pure function",
    "server_info": "open to every access, so there is no denial to tell",
}

# Unique indexes that something else leads than the aggregate's key, the operation's id or the chain's.
KEY_EXCEPTIONS = {
    "setting_pkey": "reference table: the same on every shard",
    "access_grant_pkey": "reference table: the same on every shard",
    "principal_login_pkey": "reference table: the same on every shard",
    "principal_role_pkey": "reference table: the same on every shard",
    "operation_type_pkey": "reference table: the same on every shard",
    "subject_key_pkey": "reference table: the same on every shard",
    "subject_key_epoch": "reference table: the same on every shard",
    "subject_fence_pkey": "reference table: the same on every shard",
    "schedule_pkey": "a schedule is an aggregate of its own: its name leads",
    "wake_floor_pkey": "floors belong to the shard whose index they spare",
    "operator_report_pkey": "reports belong to the shard that made them",
    "held_operation_open_fingerprint": "finds an open duplicate; on shards, only within one",
    "held_event_position_position_key": "positions are given by a shard's own outbox",
    "execution_denial_pkey": "denials belong to the shard that made them",
    "outbox_head_pkey": "one row: a shard's own outbox",
    "outbox_consumer_pkey": "cursors into a shard's own outbox",
}

# Triggers that write: at the origin only, so that a logical replica does not write twice.
ORIGIN_ONLY = {
    "event_child_end": "puts the message into the parent's inbox",
    "event_fold": "folds the log into everything else",
    "execution_delete_rest": "deletes what hangs on the executions",
    "held_event_queue": "queues the event for the outbox",
    "held_operation_record_insert": "writes the event",
    "held_operation_record_update": "writes the event",
    "held_operation_tell": "puts the message into the inboxes of who waits",
}


def names(connection: DictConnection, query: str, *args: object) -> set[str]:
    return {str(row["name"]) for row in connection.execute(query.encode(), args or None).fetchall()}


def functions(connection: DictConnection) -> list[dict[str, Any]]:
    query = """
        select p.proname as name, p.prosecdef as definer, coalesce(p.proconfig, '{}') as config, p.prosrc as source,
               p.prorettype::regtype::text as returns, p.provolatile::text as volatility, p.proargnames as args,
               p.proargmodes::text[] as modes
          from pg_proc p where p.pronamespace = 'underseal'::regnamespace order by 1
    """
    return connection.execute(query).fetchall()


def public(function: dict[str, Any]) -> bool:
    return not function["name"].startswith("_") and function["returns"] != "trigger"


def test_public_functions_are_security_definer(db: DictConnection) -> None:
    found = {f["name"] for f in functions(db) if public(f) and not f["definer"]}
    assert found == NOT_DEFINER


def test_every_function_has_its_search_path_pinned(db: DictConnection) -> None:
    found = {f["name"] for f in functions(db) if PINNED not in f["config"]}
    assert found == set(INLINED)


def test_only_the_owner_may_execute_anything_until_access_is_granted(db: DictConnection) -> None:
    query = """
        select p.oid::regprocedure::text as name from pg_proc p
          left join lateral aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a on a.grantee <> p.proowner
         where p.pronamespace = 'underseal'::regnamespace and a.grantee is not null
    """
    assert names(db, query) == set()


def test_no_relation_is_granted_to_anybody(db: DictConnection) -> None:
    query = """
        select c.oid::regclass::text as name from pg_class c, aclexplode(c.relacl) a
         where c.relnamespace = 'underseal'::regnamespace and a.grantee <> c.relowner
        union all
        select format('%s.%s', a.attrelid::regclass, a.attname)
          from pg_attribute a join pg_class c on c.oid = a.attrelid
         where c.relnamespace = 'underseal'::regnamespace and a.attacl is not null
    """
    assert names(db, query) == set()


@pytest.mark.parametrize("access", ["client", "approver", "worker", "operator", "sealer", "reader"])
def test_no_access_opens_a_table_or_a_private_function(
    database: TestDatabase, db: DictConnection, access: str
) -> None:
    role = database.create_role(access)
    db.execute("select * from underseal.grant_access(%s, %s)", [role, access])
    tables = """
        select c.oid::regclass::text as name from pg_class c
         where c.relnamespace = 'underseal'::regnamespace and c.relkind in ('r', 'p')
           and has_any_column_privilege(%s, c.oid, 'select, insert, update, references')
    """
    assert names(db, tables, role) == set()
    private = """
        select p.oid::regprocedure::text as name from pg_proc p
         where p.pronamespace = 'underseal'::regnamespace and has_function_privilege(%s, p.oid, 'execute')
           and (p.proname like '\\_%%' or p.prorettype = 'trigger'::regtype)
    """
    assert names(db, private, role) == set()


def test_everything_has_a_comment(db: DictConnection) -> None:
    query = """
        select 'schema ' || n.nspname as name from pg_namespace n
         where n.nspname = 'underseal' and obj_description(n.oid, 'pg_namespace') is null
        union all
        select format('relation %s', c.oid::regclass) from pg_class c
         where c.relnamespace = 'underseal'::regnamespace and c.relkind in ('r', 'p', 'v')
           and c.relname <> 'alembic_version'
           and obj_description(c.oid, 'pg_class') is null
        union all
        select format('column %s.%s', a.attrelid::regclass, a.attname)
          from pg_attribute a join pg_class c on c.oid = a.attrelid
         where c.relnamespace = 'underseal'::regnamespace and c.relkind in ('r', 'p', 'v')
           and c.relname <> 'alembic_version'
           and a.attnum > 0 and not a.attisdropped and col_description(a.attrelid, a.attnum) is null
        union all
        select format('function %s', p.oid::regprocedure) from pg_proc p
         where p.pronamespace = 'underseal'::regnamespace and obj_description(p.oid, 'pg_proc') is null
        union all
        select format('trigger %s on %s', t.tgname, t.tgrelid::regclass)
          from pg_trigger t join pg_class c on c.oid = t.tgrelid
         where c.relnamespace = 'underseal'::regnamespace and not t.tgisinternal
           and obj_description(t.oid, 'pg_trigger') is null
        union all
        select format('type %s', t.oid::regtype) from pg_type t left join pg_class c on c.oid = t.typrelid
         where t.typnamespace = 'underseal'::regnamespace and t.typcategory <> 'A'
           and (t.typtype in ('d', 'e') or c.relkind = 'c') and obj_description(t.oid, 'pg_type') is null
    """
    assert names(db, query) == set()


def test_the_key_of_the_aggregate_leads_every_unique_index(db: DictConnection) -> None:
    query = """
        select x.relname as name
          from pg_index i join pg_class c on c.oid = i.indrelid join pg_class x on x.oid = i.indexrelid
         where c.relnamespace = 'underseal'::regnamespace and i.indisunique and c.relname <> 'alembic_version'
           and pg_get_indexdef(i.indexrelid, 1, true) not in ('operation_id', 'chain_id')
    """
    assert names(db, query) == set(KEY_EXCEPTIONS)


def test_triggers_fire_whoever_writes(db: DictConnection) -> None:
    query = """
        select t.tgname as name from pg_trigger t join pg_class c on c.oid = t.tgrelid
         where c.relnamespace = 'underseal'::regnamespace and not t.tgisinternal and t.tgenabled <> 'A'
    """
    assert names(db, query) == set(ORIGIN_ONLY)


@pytest.mark.clause("H9.1a")
def test_nothing_but_clock_reads_the_time(db: DictConnection) -> None:
    reads = (
        r"\m(now|clock_timestamp|transaction_timestamp|statement_timestamp|timeofday)\s*\("
        r"|\mcurrent_(timestamp|date|time)\M|\mlocaltime"
    )
    query = """
        select p.proname as name from pg_proc p
         where p.pronamespace = 'underseal'::regnamespace and p.prosrc ~* %s
        union all
        select c.relname from pg_class c
         where c.relnamespace = 'underseal'::regnamespace and c.relkind = 'v' and pg_get_viewdef(c.oid) ~* %s
        union all
        select c.relname from pg_attrdef d join pg_class c on c.oid = d.adrelid
         where c.relnamespace = 'underseal'::regnamespace and pg_get_expr(d.adbin, d.adrelid) ~* %s
    """
    assert names(db, query, reads, reads, reads) == {"clock"}


def test_tables_of_results_begin_with_the_outcome(db: DictConnection) -> None:
    found = set()
    for function in functions(db):
        modes = function["modes"] or []
        results = [name for name, mode in zip(function["args"] or [], modes, strict=False) if mode == "t"]
        if public(function) and results[:1] != ["outcome"] and function["returns"] != ANSWERS:
            found.add(function["name"])
    assert found == set(VALUES)


def test_arguments_have_plain_names(db: DictConnection) -> None:
    found = {
        f["name"]
        for f in functions(db)
        if any(str(a).startswith(("p_", "_", "in_")) for a in f["args"] or [])
    }
    assert found == set()
