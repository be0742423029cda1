"""The script that puts the kernel's functions, views and triggers into a database whose tables are at the head.

It is one list of SQL texts, so that the migration, the dry run, a host's own migration and the script that
`underseal sql` prints all do exactly the same. It expects to run inside one transaction.

`create or replace` cannot change a result or an argument's name, and it leaves the old overload behind when the
arguments change. So everything that nothing else depends on is dropped first, and whatever is still the row that
stood there before is dropped afterwards: it has left the manifest. Grants on dropped functions are made again from
`underseal.access_grant`.
"""

from __future__ import annotations

from typing import Final

from underseal.foundation.kernel import Kernel

CREATE_SCHEMA: Final = """\
-- looked up first: "if not exists" would demand CREATE on the database even when the schema is there
do $$
begin
  if pg_catalog.current_setting('server_encoding') <> 'UTF8' then
    raise exception 'underseal expected a database with encoding UTF8, found %',
        pg_catalog.current_setting('server_encoding')
      using hint = 'Canonical JSON is hashed as UTF-8. Create the database with encoding ''UTF8''.';
  end if;
  if not exists (select from pg_catalog.pg_namespace n where n.nspname = 'underseal') then
    create schema underseal;
  end if;
end
$$;
"""

# Views and functions may use each other, so it goes round until nothing more can be dropped. What a trigger, a
# default, a check or an object of the host depends on stays and is replaced in place.
DROP_CALLABLES: Final = """\
do $$
declare
  statement text;
  dropped boolean := true;
begin
  while dropped loop
    dropped := false;
    for statement in
      select pg_catalog.format('drop view %s', c.oid::pg_catalog.regclass)
        from pg_catalog.pg_class c
       where c.relnamespace = 'underseal'::pg_catalog.regnamespace and c.relkind = 'v'
         and not exists (
           select from pg_catalog.pg_depend d
             left join pg_catalog.pg_rewrite r
               on d.classid = 'pg_catalog.pg_rewrite'::pg_catalog.regclass and r.oid = d.objid
            where d.deptype in ('n', 'a') and r.ev_class is distinct from c.oid
              and (d.refclassid, d.refobjid) in (('pg_catalog.pg_class'::pg_catalog.regclass, c.oid),
                                                 ('pg_catalog.pg_type'::pg_catalog.regclass, c.reltype)))
      union all
      select pg_catalog.format('drop routine %s', p.oid::pg_catalog.regprocedure)
        from pg_catalog.pg_proc p
       where p.pronamespace = 'underseal'::pg_catalog.regnamespace
         and not exists (
           select from pg_catalog.pg_depend d
            where d.deptype in ('n', 'a')
              and d.refclassid = 'pg_catalog.pg_proc'::pg_catalog.regclass and d.refobjid = p.oid)
    loop
      execute statement;
      dropped := true;
    end loop;
  end loop;
end
$$;
"""

# A replaced object keeps its oid and gets a new row version, so what still has its old ctid was not replaced.
# (Comparing xmin with this transaction's id would drop everything inside a savepoint of the host's.)
_REMEMBER: Final = """\
select pg_catalog.set_config('underseal.before', coalesce(pg_catalog.string_agg(o.mark, ' '), ''), true)
  from (select 'v' || c.oid || c.ctid from pg_catalog.pg_class c
         where c.relnamespace = 'underseal'::pg_catalog.regnamespace and c.relkind = 'v'
        union all
        select 'f' || p.oid || p.ctid from pg_catalog.pg_proc p
         where p.pronamespace = 'underseal'::pg_catalog.regnamespace
        union all
        select 't' || t.oid || t.ctid from pg_catalog.pg_trigger t
          join pg_catalog.pg_class c on c.oid = t.tgrelid
          join pg_catalog.pg_proc p on p.oid = t.tgfoid
         where c.relnamespace = 'underseal'::pg_catalog.regnamespace and not t.tgisinternal
           and p.pronamespace = 'underseal'::pg_catalog.regnamespace) o(mark);
"""

_DROP_LEFT_OVER: Final = """\
do $$
declare
  before text[] := pg_catalog.string_to_array(pg_catalog.current_setting('underseal.before'), ' ');
  statement text;
begin
  for statement in
    select pg_catalog.format('drop trigger %I on %s', t.tgname, t.tgrelid::pg_catalog.regclass)
      from pg_catalog.pg_trigger t where 't' || t.oid || t.ctid = any (before)
    union all
    select pg_catalog.format('drop view %s', c.oid::pg_catalog.regclass)
      from pg_catalog.pg_class c where 'v' || c.oid || c.ctid = any (before)
    union all
    select pg_catalog.format('drop routine %s', p.oid::pg_catalog.regprocedure)
      from pg_catalog.pg_proc p where 'f' || p.oid || p.ctid = any (before)
  loop
    execute statement;
  end loop;
end
$$;
"""

# Postgres grants EXECUTE to everybody on each new function, and default privileges in a schema cannot prevent it.
GRANT: Final = """\
comment on schema underseal is
  'Underseal: held operations and durable executions. The interface is its functions and views, not its tables.';
revoke all on schema underseal from public;
revoke all on all tables in schema underseal from public;
revoke all on all sequences in schema underseal from public;
revoke all on all routines in schema underseal from public;
select underseal._regrant_all();
"""

# The tables are at an older revision, for which these files were not written. Nothing is left to call but what the
# triggers need; the next migration to the head brings everything back.
MAKE_UNUSABLE: Final = (
    DROP_CALLABLES
    + """
do $$
begin
  if pg_catalog.to_regclass('underseal.setting') is not null then
    delete from underseal.setting s where s.key = 'bundle.digest';
    insert into underseal.setting (key, value) values ('schema.usable', 'false')
      on conflict (key) do update set value = excluded.value;
  end if;
end
$$;
"""
)


def files_script(kernel: Kernel) -> list[str]:
    """The repeatable files as they are, each under a line with its name."""
    return [
        f"-- {path.relative_to(kernel.root).as_posix()}\n{path.read_text()}" for path in kernel.repeatables()
    ]


def store_bundle(kernel: Kernel, revision: str) -> str:
    """SQL that notes which files these are, so that the next migration can tell that nothing has changed.

    Parameters:
        kernel: whose files.
        revision: the head revision, which the digest covers.
    """
    return f"""\
insert into underseal.setting (key, value)
values ('bundle.digest', '{kernel.digest(revision)}'), ('schema.usable', 'true')
on conflict (key) do update set value = excluded.value;
"""


def repeatable_script(kernel: Kernel, revision: str) -> list[str]:
    """The SQL texts that bring every function, view and trigger to what the files say.

    Parameters:
        kernel: whose files.
        revision: the head revision.

    Returns: the texts, in order.
    """
    return [
        DROP_CALLABLES,
        _REMEMBER,
        *files_script(kernel),
        _DROP_LEFT_OVER,
        GRANT,
        store_bundle(kernel, revision),
    ]
