"""Taking the kernel out of a database without taking anything of the host's with it."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa

# What `drop schema … cascade` would drop, followed through pg_depend, less what lives in our schema: objects of the
# host's that were built upon ours (a view, a foreign key, a trigger, a column, a policy, a function).
_HOST_OBJECTS: Final = """
with recursive doomed(classid, objid, objsubid) as (
  select 'pg_catalog.pg_namespace'::pg_catalog.regclass::oid, n.oid, 0
    from pg_catalog.pg_namespace n where n.nspname = 'underseal'
  union
  select d.classid, d.objid, d.objsubid
    from doomed x
    join pg_catalog.pg_depend d on d.refclassid = x.classid and d.refobjid = x.objid
     and (x.objsubid = 0 or x.objsubid = d.refobjsubid)
   where d.deptype in ('n', 'a', 'i', 'P', 'S')
)
select distinct case when r.oid is null then pg_catalog.pg_describe_object(x.classid, x.objid, x.objsubid)
                     -- a view depends by its rule, which nobody knows by name
                     else pg_catalog.pg_describe_object('pg_catalog.pg_class'::pg_catalog.regclass, r.ev_class, 0) end
  from doomed x
  left join pg_catalog.pg_rewrite r on x.classid = 'pg_catalog.pg_rewrite'::pg_catalog.regclass and r.oid = x.objid
  left join pg_catalog.pg_trigger t on x.classid = 'pg_catalog.pg_trigger'::pg_catalog.regclass and t.oid = x.objid
  left join pg_catalog.pg_attrdef f on x.classid = 'pg_catalog.pg_attrdef'::pg_catalog.regclass and f.oid = x.objid
  left join pg_catalog.pg_policy l on x.classid = 'pg_catalog.pg_policy'::pg_catalog.regclass and l.oid = x.objid
  left join pg_catalog.pg_class c on c.oid = coalesce(r.ev_class, t.tgrelid, f.adrelid, l.polrelid,
    case when x.classid = 'pg_catalog.pg_class'::pg_catalog.regclass then x.objid end)
  left join pg_catalog.pg_proc p on x.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass and p.oid = x.objid
  left join pg_catalog.pg_type y on x.classid = 'pg_catalog.pg_type'::pg_catalog.regclass and y.oid = x.objid
  left join pg_catalog.pg_constraint k
    on x.classid = 'pg_catalog.pg_constraint'::pg_catalog.regclass and k.oid = x.objid
 where coalesce(c.relnamespace, p.pronamespace, y.typnamespace, k.connamespace)
       not in (select n.oid from pg_catalog.pg_namespace n where n.nspname in ('underseal', 'pg_toast'))
 order by 1
"""


def drop_schema(connection: sa.Connection) -> None:
    """Drop the schema `underseal` with all it holds, unless something of the host's would go with it.

    Parameters:
        connection: in a transaction of the schema's owner.

    Errors:
        RuntimeError: an object outside the schema is built upon one inside; the message names each.
    """
    theirs = list(connection.scalars(sa.text(_HOST_OBJECTS)))
    if theirs:
        raise RuntimeError(
            f"the schema underseal is not dropped, because these would be dropped with it: {'; '.join(theirs)}. "
            "Drop or change them first"
        )
    connection.exec_driver_sql("drop schema if exists underseal cascade")
