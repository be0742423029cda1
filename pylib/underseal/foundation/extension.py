"""The kernel as a Postgres extension, for those who install with CREATE EXTENSION."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from underseal._version import __version__
from underseal.foundation.environment import executing
from underseal.foundation.install import revisions
from underseal.foundation.kernel import Kernel, installed_kernel
from underseal.foundation.repeatables import GRANT, files_script, store_bundle

_CONTROL: Final = """\
comment = 'Held operations and durable executions'
default_version = '{version}'
schema = underseal
relocatable = false
superuser = false
"""

VERSION: Final = """\
create table underseal.alembic_version (
  version_num varchar(32) not null,
  constraint alembic_version_pkc primary key (version_num)
);
insert into underseal.alembic_version (version_num) values ('{head}');
"""

# pg_dump leaves out what an extension's tables hold unless the extension says otherwise. What this script itself
# has inserted is left out, since CREATE EXTENSION inserts it again before the data is restored.
_DUMP: Final = """\
do $$
declare
  thing record;
begin
  for thing in
    select c.oid, case when c.relname = 'setting' then
             'where key not in (''bundle.digest'', ''schema.usable'')' else '' end as rows
      from pg_catalog.pg_class c
     where c.relnamespace = 'underseal'::pg_catalog.regnamespace and c.relkind in ('r', 'p', 'S')
       and c.relname <> 'alembic_version'
       and not exists (  -- a sequence of an identity column goes with its table
         select from pg_catalog.pg_depend d
          where d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass and d.objid = c.oid and d.deptype = 'i')
  loop
    perform pg_catalog.pg_extension_config_dump(thing.oid, thing.rows);
  end loop;
end
$$;
"""


def extension_script(*, dumped: bool = True, kernel: Kernel | None = None) -> str:
    """The body of `underseal--VERSION.sql`.

    Parameters:
        dumped: end with what only `create extension` may say: that pg_dump is to write the tables' data.
        kernel: whose files; this package's by default.
    """
    kernel = kernel or installed_kernel()
    steps = revisions(kernel)
    tables: list[str] = []
    with executing(tables.append):
        for step in steps:
            step.module.upgrade()
    head = steps[-1].revision
    return "\n".join(
        [
            '\\echo Use "create extension underseal" to load this file. \\quit',
            VERSION.format(head=head),
            *tables,
            *files_script(kernel),
            GRANT,
            store_bundle(kernel, head),
            _DUMP if dumped else "",
        ]
    )


def write_extension(directory: Path, *, kernel: Kernel | None = None) -> list[Path]:
    """Write the two files that belong into the server's extension directory.

    Parameters:
        directory: where to; `pg_config --sharedir` names the server's own, under `extension`.
        kernel: whose files; this package's by default.

    Returns: what was written.
    """
    control = directory / "underseal.control"
    script = directory / f"underseal--{__version__}.sql"
    control.write_text(_CONTROL.format(version=__version__))
    script.write_text(extension_script(kernel=kernel))
    return [control, script]
