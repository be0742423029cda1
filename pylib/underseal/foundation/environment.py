"""What happens around the migrations: the lock, the schema, the repeatable files, the end at nothing.

`migrations/env.py` calls `run`; a host that keeps our history inside its own calls the functions of
`underseal.foundation.install`, which lead here too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

import psycopg
import sqlalchemy as sa
from alembic.runtime.environment import EnvironmentContext
from alembic.script import ScriptDirectory

from underseal.foundation.kernel import Kernel, installed_kernel
from underseal.foundation.removal import drop_schema
from underseal.foundation.repeatables import CREATE_SCHEMA, MAKE_UNUSABLE, repeatable_script

VERSION_TABLE: Final = "alembic_version"
SCHEMA: Final = "underseal"

# The wait for another migrator is unbounded on purpose: it ends when that one commits. Only then is the patience
# with ordinary writers limited, so that a long transaction of the host's is not queued behind us for ever.
LOCK: Final = """\
select pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('underseal.migrate', 0));
set local lock_timeout = '15s';
"""

Executor = Callable[[str], None]

_execute: ContextVar[Executor] = ContextVar("underseal_migration_execute")


def execute_script(script: str) -> None:
    """Run (or, in a dry run, print) SQL text as it stands. Migrations call this instead of `op.execute`, which
    would read `:x` as a parameter and double every `%` when printing.

    Parameters:
        script: one or more statements.

    Errors:
        LookupError: called outside a migration.
    """
    _execute.get()(script)


@contextmanager
def executing(execute: Executor) -> Iterator[None]:
    """Name what `execute_script` does while migrations run."""
    token = _execute.set(execute)
    try:
        yield
    finally:
        _execute.reset(token)


def raw_executor(connection: sa.Connection) -> Executor:
    """An executor that hands SQL to the driver without SQLAlchemy reading it."""

    def execute(script: str) -> None:
        driver = connection.connection.driver_connection
        assert driver is not None
        with driver.cursor() as cursor:
            cursor.execute(script)

    return execute


def engine_for(conninfo: str) -> sa.Engine:
    """An engine for one migration. READ COMMITTED: under a stricter default of the host's, the second of two
    migrators would still see the catalog from before the first one's commit.

    Parameters:
        conninfo: a libpq connection string or URL.
    """
    return sa.create_engine(
        "postgresql+psycopg://",
        creator=lambda: psycopg.connect(conninfo),
        isolation_level="READ COMMITTED",
        poolclass=sa.NullPool,
    )


def setting(connection: sa.Connection, key: str) -> str | None:
    """A row of `underseal.setting`, None where it (or the table) is not there."""
    if connection.scalar(sa.text("select pg_catalog.to_regclass('underseal.setting')")) is None:
        return None
    value = connection.scalar(
        sa.text("select s.value from underseal.setting s where s.key = :key"), {"key": key}
    )
    return None if value is None else str(value)


def settle(connection: sa.Connection, kernel: Kernel, at: set[str], heads: set[str]) -> None:
    """Bring functions, views and triggers to what belongs to the revision that was reached.

    Parameters:
        connection: in the migration's transaction.
        kernel: whose files.
        at: the revisions the tables are at now; empty means none.
        heads: the newest revisions there are.
    """
    execute = raw_executor(connection)
    if not at:
        drop_schema(connection)
    elif at != heads:
        execute(MAKE_UNUSABLE)
    elif setting(connection, "bundle.digest") != kernel.digest(min(heads)):
        for text in repeatable_script(kernel, min(heads)):
            execute(text)


def run(context: Any) -> None:
    """The body of `env.py`, for a database and for a printed script.

    Parameters:
        context: Alembic's `context` module, which stands for the running `EnvironmentContext`.
    """
    environment: EnvironmentContext = context
    kernel = environment.config.attributes.get("kernel") or installed_kernel()
    if environment.is_offline_mode():
        _print(environment, kernel)
    else:
        conninfo = environment.config.attributes.get("conninfo") or os.environ.get("UNDERSEAL_DSN", "")
        with engine_for(conninfo).connect() as connection, connection.begin():
            _migrate(environment, kernel, connection)


def _changes_something(environment: EnvironmentContext) -> bool:
    # `alembic current`, `check` and `history` run env.py too; they have no destination
    try:
        environment.get_revision_argument()
    except KeyError:
        return False
    return True


def _migrate(environment: EnvironmentContext, kernel: Kernel, connection: sa.Connection) -> None:
    changing = _changes_something(environment)
    if changing:
        prepare(connection)
    environment.configure(
        connection=connection,
        transaction_per_migration=False,
        version_table=VERSION_TABLE,
        version_table_schema=SCHEMA,
    )
    with executing(raw_executor(connection)):
        environment.run_migrations()
    if changing:
        at = set(environment.get_context().get_current_heads())
        settle(connection, kernel, at, set(ScriptDirectory.from_config(environment.config).get_heads()))


def prepare(connection: sa.Connection) -> None:
    """Take the lock that lets one migrator in at a time, and see that the schema is there.

    Errors:
        RuntimeError: the schema belongs to the extension, which has its own way of being upgraded.
    """
    execute = raw_executor(connection)
    execute(LOCK)
    if connection.scalar(sa.text("select true from pg_catalog.pg_extension e where e.extname = 'underseal'")):
        raise RuntimeError(
            "underseal is installed here as an extension, which migrations must not touch: "
            "use ALTER EXTENSION underseal UPDATE"
        )
    execute(CREATE_SCHEMA)


def _print(environment: EnvironmentContext, kernel: Kernel) -> None:
    destination = environment.get_revision_argument() or ()
    script = ScriptDirectory.from_config(environment.config)
    environment.configure(
        dialect_name="postgresql",
        transaction_per_migration=False,
        version_table=VERSION_TABLE,
        version_table_schema=SCHEMA,
    )
    execute = environment.get_context().impl.static_output
    with environment.begin_transaction(), executing(execute):
        execute("set transaction isolation level read committed;")
        execute(LOCK)
        execute(CREATE_SCHEMA)
        environment.run_migrations()
        if set(script.get_revisions(destination)) == set(script.get_revisions("heads")):
            for text in repeatable_script(kernel, min(script.get_heads())):
                execute(text)
        else:
            execute(MAKE_UNUSABLE)
