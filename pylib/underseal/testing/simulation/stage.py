"""The database that runs take place in, one after the other: seeded, emptied between them, without autovacuum."""

from __future__ import annotations

import hashlib
from typing import Any, Final

from underseal.testing.audit.witness import INSTALL as WITNESS
from underseal.testing.clock import TestClock
from underseal.testing.database import OWNER, TestDatabase
from underseal.testing.simulation.server import Server

BEGAN: Final = 1_900_000_000_000_000
"""What the database's clock shows at the beginning of a run, in microseconds since 1970."""

_SEEDED: Final = """
create sequence underseal.test_uuid;
create function underseal.test_uuid() returns uuid language sql volatile security definer set search_path = pg_catalog
as $$ select md5(nextval('underseal.test_uuid')::text)::uuid $$;

do $do$
declare
  f oid;
  c record;
begin
  for f in
    select p.oid from pg_proc p
    where p.pronamespace = 'underseal'::regnamespace and p.prosrc like '%gen_random_uuid()%'
  loop
    execute replace(pg_get_functiondef(f), 'gen_random_uuid()', 'underseal.test_uuid()');
  end loop;
  for c in
    select d.adrelid::regclass as place, a.attname as name
    from pg_attrdef d
    join pg_attribute a on a.attrelid = d.adrelid and a.attnum = d.adnum
    join pg_class r on r.oid = d.adrelid
    where r.relnamespace = 'underseal'::regnamespace and pg_get_expr(d.adbin, d.adrelid) like '%gen_random_uuid()%'
  loop
    execute format('alter table %s alter column %I set default underseal.test_uuid()', c.place, c.name);
  end loop;
  for c in
    select t.tgrelid::regclass as place, t.tgname as name
    from pg_trigger t
    join pg_class r on r.oid = t.tgrelid
    where r.relnamespace = 'underseal'::regnamespace and t.tgtype & 32 = 32 and not t.tgisinternal
  loop
    execute format('drop trigger %I on %s', c.name, c.place);
  end loop;
  for c in
    select r.oid::regclass as place from pg_class r
    where r.relnamespace = 'underseal'::regnamespace and r.relkind = 'r'
  loop
    execute format('alter table %s set (autovacuum_enabled = off, toast.autovacuum_enabled = off)', c.place);
  end loop;
end
$do$;
"""
"""Random ids come from a sequence, nothing is cleaned up by itself, and tables can be emptied between runs. All this is
in the test database alone."""

_TABLES: Final = """
select n.nspname || '.' || quote_ident(c.relname) as name from pg_class c
join pg_namespace n on n.oid = c.relnamespace
where n.nspname in ('underseal', 'witness') and c.relkind = 'r'
order by 1"""
_HEAD: Final = "underseal.outbox_head"
"""Has one row from the beginning, which only moves forward."""
_COLUMNS: Final = """
select quote_ident(a.attname) as name from pg_attribute a
where a.attrelid = %s::regclass and a.attnum > 0 and not a.attisdropped
  and a.atttypid not in ('xid8'::regtype, 'xid'::regtype, 'pg_snapshot'::regtype)
order by a.attnum"""


class Stage:
    """A database for simulations.

    Attributes:
        conninfo: as whom the audit reads.
        server: what nodes reach.
        owner: a connection as the schema's owner, for what a scenario registers.
    """

    def __init__(
        self,
        database: TestDatabase,
        *,
        accesses: tuple[str, ...] = ("client", "approver", "worker", "operator"),
    ):
        """Make it one.

        Parameters:
            database: a database with the kernel that nothing else uses.
            accesses: what the nodes' login may do.
        """
        self.conninfo = database.conninfo
        self._control = database.connect()
        self._control.execute(f"alter database {database.name} set deadlock_timeout = '2ms'".encode())
        self._control.execute(f"alter database {database.name} set synchronous_commit = 'off'".encode())
        TestClock(database)
        self._control.execute(_SEEDED.encode())
        self._control.execute(WITNESS.encode())
        self.owner = database.connect(OWNER)
        self.login = database.create_role("simulated")
        for access in accesses:
            self.owner.execute("select underseal.grant_access(%s, %s, 'asserted')", [self.login, access])
        self.server = Server(database.conninfo_as(self.login), self._control, BEGAN)
        self._tables = [row["name"] for row in self._control.execute(_TABLES.encode()).fetchall()]
        self._emptied = [name for name in self._tables if name == _HEAD or not self._rows(name)]
        self._sequences = [
            row["name"]
            for row in self._control.execute(
                "select quote_ident(relname) as name from pg_class"
                " where relnamespace = 'underseal'::regnamespace and relkind = 'S' and relname not like 'test_%'"
            ).fetchall()
        ]

    def _rows(self, table: str) -> int:
        (row,) = self._control.execute(f"select count(*) as n from {table}".encode()).fetchall()
        return int(row["n"])

    def empty(self, seed: int) -> None:
        """Begin another run.

        Parameters:
            seed: of the ids that the database draws.
        """
        self._control.execute(f"truncate {', '.join(self._emptied)} restart identity".encode())
        self._control.execute(f"insert into {_HEAD} default values".encode())
        for name in self._sequences:
            self._control.execute(f"alter sequence underseal.{name} restart".encode())
        self._control.execute("select setval('underseal.test_uuid', %s)", [1 + seed * 1_000_000 % 2**60])
        self.server.reset()
        self.server.show()

    def digest(self) -> str:
        """The same for the same rows: of the logs and of all that is folded from them."""
        found = hashlib.sha256()
        for table in self._emptied:
            columns = ", ".join(
                row["name"] for row in self._control.execute(_COLUMNS.encode(), [table]).fetchall()
            )
            rows = self._control.execute(f"select ({columns})::text as line from {table} order by 1".encode())
            for row in rows.fetchall():
                found.update(f"{table} {row['line']}\n".encode())
        return found.hexdigest()

    def ask(self, statement: str, params: Any = None) -> list[Any]:
        """Look into it."""
        return self._control.execute(statement.encode(), params).fetchall()

    def change(self, statement: str) -> None:
        """Change it, as its superuser: what a negative control switches off."""
        self._control.execute(statement.encode())
