"""A host: a database with tables and an Alembic history of its own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

from alembic import command
from alembic.config import Config

from underseal.testing import TestDatabase

_ENV = """
import psycopg
import sqlalchemy as sa
from alembic import context

engine = sa.create_engine(
    "postgresql+psycopg://",
    creator=lambda: psycopg.connect(context.config.attributes["conninfo"]),
    poolclass=sa.NullPool,
)
with engine.connect() as connection:
    context.configure(connection=connection, target_metadata=sa.MetaData())
    with context.begin_transaction():
        context.run_migrations()
"""

_FIRST = """
from alembic import op

revision = "host1"
down_revision = None


def upgrade():
    op.execute("create table account (id bigint primary key, owner text not null)")
    op.execute("insert into account values (1, 'ann'), (2, 'bob')")


def downgrade():
    op.execute("drop table account")
"""

_WITHIN = """
from alembic import op
from underseal.foundation.install import remove_within, upgrade_within

revision = "host2"
down_revision = "host1"


def upgrade():
    op.execute("alter table account add column before_us boolean")
    upgrade_within(op.get_bind())
    op.execute("alter table account add column after_us boolean")


def downgrade():
    remove_within(op.get_bind())
    op.execute("alter table account drop column before_us, drop column after_us")
"""


@dataclass(frozen=True)
class Host:
    """A host's database, at its own first revision.

    Parameters:
        database: where it is.
        role: owns the host's tables and has nothing but CREATE on the database and its schema public.
        config: of the host's own Alembic.
    """

    database: TestDatabase
    role: str
    config: Config

    @property
    def conninfo(self) -> str:
        """Connection string of the host's role."""
        return self.database.conninfo_as(self.role)

    def upgrade(self, to: str) -> None:
        """Run the host's own migrations."""
        command.upgrade(self.config, to)

    def downgrade(self, to: str) -> None:
        """Run the host's own way back."""
        command.downgrade(self.config, to)

    def everything(self) -> list[dict[str, object]]:
        """What a host has of its own: its relations with their columns, its rows, its version."""
        rows = self.database.connect().execute(
            "select c.relname, c.relkind, c.relacl::text, a.attname, a.atttypid::regtype::text as type"
            "  from pg_class c join pg_attribute a on a.attrelid = c.oid and not a.attisdropped"
            " where c.relnamespace = 'public'::regnamespace order by c.relname, a.attnum"
        )
        data = self.database.connect().execute(
            "select (select array_agg(a) from account a)::text as accounts"
        )
        version = self.database.connect().execute("select version_num from public.alembic_version")
        return [*rows.fetchall(), *data.fetchall(), *version.fetchall()]


def make_host(database: TestDatabase, directory: Path) -> Host:
    """Set up a host in an empty database.

    Parameters:
        database: empty.
        directory: where its migrations are written.
    """
    role = database.create_role("host")
    admin = database.connect()
    admin.execute(f'grant create on database "{database.name}" to "{role}"'.encode())
    admin.execute(f'grant create on schema public to "{role}"'.encode())
    (directory / "versions").mkdir(parents=True)
    for name, text in (("env.py", _ENV), ("versions/host1.py", _FIRST), ("versions/host2.py", _WITHIN)):
        (directory / name).write_text(dedent(text))
    config = Config(attributes={"conninfo": database.conninfo_as(role)})
    config.set_main_option("script_location", str(directory))
    config.set_main_option("path_separator", "os")
    host = Host(database, role, config)
    host.upgrade("host1")
    return host
