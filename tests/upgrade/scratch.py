"""A tiny kernel that tests may change: what is tested with it is the machinery, not the kernel."""

from __future__ import annotations

import shutil
from pathlib import Path

from underseal.foundation.kernel import Kernel, installed_kernel

_TABLES = """
create table underseal.setting (key text primary key, value text not null);
create table underseal.access_grant (grantee text primary key);
create table underseal.thing (id bigint primary key, name text);
"""

FILES = {
    "sql/foundation/regrant.sql": """
create or replace function underseal._regrant_all() returns void language plpgsql as $$
declare g record;
begin
  for g in select a.grantee, p.oid::regprocedure as verb from underseal.access_grant a, pg_proc p
            where p.pronamespace = 'underseal'::regnamespace and p.proname = 'greet' loop
    execute format('grant usage on schema underseal to %I', g.grantee);
    execute format('grant execute on function %s to %I', g.verb, g.grantee);
  end loop;
end $$;
""",
    "sql/foundation/greet.sql": """
create or replace function underseal.greet(name text) returns text language sql as $$ select 'hello ' || name $$;
""",
    "sql/foundation/things.sql": """
create or replace view underseal.things as select t.id, underseal.greet(t.name) as greeting from underseal.thing t;
""",
    "triggers/thing.sql": """
create or replace function underseal._check_thing() returns trigger language plpgsql as $$
begin
  if new.name = '' then raise exception 'a thing has a name'; end if;
  return new;
end $$;
create or replace trigger check_thing before insert or update on underseal.thing
  for each row execute function underseal._check_thing();
alter table underseal.thing enable always trigger check_thing;
""",
}


class ScratchKernel(Kernel):
    """A kernel in a directory of the test's own."""

    def write(self, **changes: str | None) -> None:
        """Change files and write the manifest anew.

        Parameters:
            changes: the end of a path, with dots for slashes and without .sql, to the new text, or None to remove it.
        """
        files = [path for path in FILES if (self.root / path).exists()] or list(FILES)
        for path in files:
            target = self.root / path
            target.parent.mkdir(parents=True, exist_ok=True)
            name = target.stem if path.startswith("sql") else f"trigger_{target.stem}"
            text = changes.pop(name, "" if not target.exists() else target.read_text())
            if text is None:
                target.unlink()
            else:
                target.write_text(text or FILES[path])
        assert not changes, f"no such file: {changes}"
        self.manifest.write_text("".join(f"{path}\n" for path in FILES if (self.root / path).exists()))

    def add_revision(self, number: int, upgrade: str) -> str:
        """Add a revision after the last one.

        Parameters:
            number: its own; the one before it is number - 1.
            upgrade: SQL.

        Returns: its name.
        """
        name = f"{number:04}"
        (self.migrations / "versions" / f"{name}.py").write_text(
            "from underseal.foundation.environment import execute_script\n"
            f"revision = {name!r}\ndown_revision = '{number - 1:04}'\n"
            f"def upgrade():\n    execute_script({upgrade!r})\n"
            "def downgrade():\n    pass\n"
        )
        return name


def make_kernel(directory: Path) -> ScratchKernel:
    """Write the tiny kernel.

    Parameters:
        directory: where to.
    """
    kernel = ScratchKernel(directory)
    real = installed_kernel().migrations
    (kernel.migrations / "versions").mkdir(parents=True)
    for name in ("env.py", "script.py.mako", "versions/0001_initial.py"):
        shutil.copy(real / name, kernel.migrations / name)
    (kernel.migrations / "versions" / "0001_initial.sql").write_text(_TABLES)
    kernel.write()
    return kernel
