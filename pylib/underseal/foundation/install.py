"""Install, upgrade and remove the kernel.

Tables change by versioned migrations (Alembic, with its version table inside our schema); functions, views and
triggers are put back from their files after every migration to the head, in the same transaction. Two processes
may migrate at once: the second waits and finds nothing to do. The role needs CREATE on the database once, for the
schema; never superuser.
"""

from __future__ import annotations

import io
from typing import Final

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import Script, ScriptDirectory

from underseal.foundation.environment import (
    SCHEMA,
    VERSION_TABLE,
    engine_for,
    executing,
    prepare,
    raw_executor,
    settle,
)
from underseal.foundation.kernel import Kernel, installed_kernel

HEAD: Final = "head"
BASE: Final = "base"

_VERSION_TABLE: Final = {"version_table": VERSION_TABLE, "version_table_schema": SCHEMA}


def _config(kernel: Kernel, conninfo: str | None, output: io.StringIO | None = None) -> Config:
    config = Config(output_buffer=output, attributes={"kernel": kernel, "conninfo": conninfo})
    config.set_main_option("script_location", str(kernel.migrations).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def current_revision(conninfo: str) -> str | None:
    """The revision the tables of a database are at.

    Parameters:
        conninfo: a libpq connection string or URL.

    Returns: the revision, None where underseal is not installed.
    """
    with engine_for(conninfo).connect() as connection:
        return MigrationContext.configure(connection, opts=_VERSION_TABLE).get_current_revision()


def revisions(kernel: Kernel) -> list[Script]:
    """Every revision, the first one first.

    Parameters:
        kernel: whose.
    """
    return list(ScriptDirectory.from_config(_config(kernel, None)).walk_revisions())[::-1]


def is_back(at: str | None, to: str, *, kernel: Kernel | None = None) -> bool:
    """Whether going to a revision means going back.

    Parameters:
        at: where the tables are; None where there are none.
        to: a revision, "head" or "base".
        kernel: whose revisions; this package's by default.
    """
    order = [step.revision for step in revisions(kernel or installed_kernel())]
    if at is None or to == HEAD:
        return False
    return to == BASE or (to in order and at in order and order.index(to) < order.index(at))


def migrate(conninfo: str, to: str = HEAD, dry_run: bool = False, *, kernel: Kernel | None = None) -> str:
    """Upgrade the tables to a revision; at the head, put back every function, view and trigger.

    One transaction: all of it happens or nothing. An unchanged kernel is recognised by its digest and left alone. A
    stop at an older revision than the head leaves no function to call until the next `migrate`.

    Parameters:
        conninfo: a libpq connection string or URL of the role that owns (or will own) the schema.
        to: a revision, or "head".
        dry_run: change nothing; return the SQL that would run.
        kernel: whose files; this package's by default.

    Returns: the SQL in a dry run, else an empty string.

    Errors:
        RuntimeError: underseal is installed here as an extension.
        alembic.util.CommandError: there is no such revision, or the database is at one that this package lacks.
        sqlalchemy.exc.DBAPIError, psycopg.Error: what Postgres refused (a missing CREATE on the database; 55P03
            after waiting 15 seconds for a table that someone is using).
    """
    kernel = kernel or installed_kernel()
    if not dry_run:
        command.upgrade(_config(kernel, conninfo), to)
        return ""
    return _script(kernel, f"{current_revision(conninfo) or BASE}:{to}")


def downgrade(conninfo: str, to: str = BASE, *, kernel: Kernel | None = None) -> None:
    """Go back to an older revision; "base" removes the schema `underseal` and everything in it.

    Nothing outside the schema is touched: if an object of the host's is built upon one of ours, nothing happens.

    Parameters:
        conninfo: a libpq connection string or URL of the schema's owner.
        to: a revision, or "base".
        kernel: whose files; this package's by default.

    Errors:
        RuntimeError: something of the host's depends on the schema; the message names it.
    """
    command.downgrade(_config(kernel or installed_kernel(), conninfo), to)


def install_script(*, kernel: Kernel | None = None) -> str:
    """The whole installation into a database without underseal, as one script that psql runs in one transaction.

    Parameters:
        kernel: whose files; this package's by default.
    """
    return _script(kernel or installed_kernel(), f"{BASE}:{HEAD}")


def _script(kernel: Kernel, span: str) -> str:
    output = io.StringIO()
    command.upgrade(_config(kernel, None, output), span, sql=True)
    return output.getvalue()


def upgrade_within(connection: sa.Connection, *, kernel: Kernel | None = None) -> None:
    """Install or upgrade the kernel from inside a migration of the host's, in the host's transaction.

    For a host that wants one history: `upgrade_within(op.get_bind())`. Our version table stays in our schema, so
    that the two histories never mix.

    Parameters:
        connection: the host's, in a transaction.
        kernel: whose files; this package's by default.

    Errors:
        as `migrate`.
    """
    kernel = kernel or installed_kernel()
    script = ScriptDirectory.from_config(_config(kernel, None))
    prepare(connection)
    migrations = MigrationContext.configure(
        connection,
        opts={
            **_VERSION_TABLE,
            "script": script,
            "fn": lambda revision, _context: script._upgrade_revs(HEAD, revision),
        },
    )
    with executing(raw_executor(connection)):
        migrations.run_migrations()
    settle(connection, kernel, set(migrations.get_current_heads()), set(script.get_heads()))


def remove_within(connection: sa.Connection) -> None:
    """Remove the kernel from inside a migration of the host's: the way back of `upgrade_within`.

    Parameters:
        connection: the host's, in a transaction.

    Errors:
        RuntimeError: something of the host's depends on the schema; the message names it.
    """
    prepare(connection)
    settle(connection, installed_kernel(), set(), set())
