"""A picture of the schema in a database, for comparing one way of installing with another."""

from __future__ import annotations

from collections.abc import Iterable

import psycopg


def _privileges(acl: str, kind: str, owner: str) -> str:
    # no list of privileges means the default one
    return (
        "(select string_agg(x::text, ' ' order by x::text)"
        f" from unnest(coalesce({acl}, acldefault({kind}, {owner}))) x)"
    )


_OF_RELATION = _privileges(
    "c.relacl", "case when c.relkind = 'S' then 's' else 'r' end::\"char\"", "c.relowner"
)
_OF_ROUTINE = _privileges("p.proacl", "'f'", "p.proowner")
_OF_SCHEMA = _privileges("n.nspacl", "'n'", "n.nspowner")

# Each query gives (what it is, what it is like). What differs by chance (oids, order of creation) is left out.
_QUERIES: Iterable[str] = (
    """
    select format('column %s.%s', a.attrelid::regclass, a.attname),
           concat_ws(' ', a.attnum, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attgenerated, a.attidentity,
                     a.attcollation::regcollation, a.attstorage, pg_get_expr(d.adbin, d.adrelid),
                     col_description(a.attrelid, a.attnum))
      from pg_attribute a join pg_class c on c.oid = a.attrelid
      left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
     where c.relnamespace = 'underseal'::regnamespace and a.attnum > 0 and not a.attisdropped
       and c.relkind in ('r', 'v', 'p', 'S')
    """,
    f"""
    select format('relation %s', c.oid::regclass),
           concat_ws(' ', c.relkind, c.relowner::regrole, c.reloptions, {_OF_RELATION}, c.relpersistence,
                     obj_description(c.oid, 'pg_class'), case when c.relkind = 'v' then pg_get_viewdef(c.oid) end)
      from pg_class c where c.relnamespace = 'underseal'::regnamespace and c.relkind in ('r', 'v', 'p', 'S')
    """,
    """
    select format('constraint %s on %s', k.conname, k.conrelid::regclass), pg_get_constraintdef(k.oid)
      from pg_constraint k where k.connamespace = 'underseal'::regnamespace
    """,
    """
    select format('index %s', i.indexrelid::regclass), pg_get_indexdef(i.indexrelid)
      from pg_index i join pg_class c on c.oid = i.indrelid where c.relnamespace = 'underseal'::regnamespace
    """,
    f"""
    select format('routine %s', p.oid::regprocedure),
           concat_ws(' ', p.proowner::regrole, {_OF_ROUTINE}, obj_description(p.oid, 'pg_proc'),
                     pg_get_functiondef(p.oid))
      from pg_proc p where p.pronamespace = 'underseal'::regnamespace
    """,
    """
    select format('trigger %s on %s', t.tgname, t.tgrelid::regclass),
           concat_ws(' ', t.tgenabled, obj_description(t.oid, 'pg_trigger'), pg_get_triggerdef(t.oid))
      from pg_trigger t join pg_class c on c.oid = t.tgrelid
     where c.relnamespace = 'underseal'::regnamespace and not t.tgisinternal
    """,
    """
    select format('type %s', t.oid::regtype), concat_ws(' ', t.typtype, obj_description(t.oid, 'pg_type'))
      from pg_type t where t.typnamespace = 'underseal'::regnamespace and t.typtype in ('d', 'e', 'c')
    """,
    f"""
    select 'schema', concat_ws(' ', n.nspowner::regrole, {_OF_SCHEMA}, obj_description(n.oid, 'pg_namespace'))
      from pg_namespace n where n.nspname = 'underseal'
    """,
)


def catalog(conninfo: str) -> dict[str, str]:
    """Everything in the schema underseal, by name.

    Parameters:
        conninfo: the database; roles' names are part of the picture.
    """
    with psycopg.connect(conninfo) as connection:
        connection.execute("set search_path = pg_catalog")
        return {
            str(name): str(text)
            for query in _QUERIES
            for name, text in connection.execute(query.encode()).fetchall()
        }
