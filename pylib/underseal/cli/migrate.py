"""`underseal migrate` and `underseal sql`: put the kernel into a database, or print what would."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from underseal.cli._exits import DENIED, FAILED, Stop, friendly
from underseal.cli._json import print_json
from underseal.cli._session import confirm, connect, options

if TYPE_CHECKING:
    import psycopg


@click.command()
@click.option(
    "--to", default="head", show_default=True, help="A revision, 'head', or 'base' to remove everything."
)
@click.option("--dry-run", is_flag=True, help="Print the SQL and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask before a step back that loses data.")
@options()
def migrate(dsn: str | None, to: str, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Install the kernel, upgrade it, or take it out again.

    Give the --dsn of the schema's owner. Everything happens in one transaction. The role needs CREATE on the database
    for the first time only, and never superuser. Two processes may do this at once.
    """
    from underseal.foundation import install
    from underseal.foundation.kernel import installed_kernel

    known = [install.HEAD, install.BASE, *(step.revision for step in install.revisions(installed_kernel()))]
    if to not in known:
        raise click.UsageError(f"expected --to as one of {', '.join(known)}, found {to}")
    # Alembic's own words about a wrong --dsn would quote it.
    connect(dsn).close()
    database = dsn or ""
    with _said_well():
        before = install.current_revision(database)
        back = install.is_back(before, to)
        if dry_run:
            if back:
                raise click.UsageError("--dry-run prints upgrades; a step back has nothing to print")
            click.echo(install.migrate(database, to, dry_run=True))
            return
        if back:
            if not yes:
                confirm(f"Go back from {before} to {to}? What the newer tables hold is lost")
            install.downgrade(database, to)
        else:
            install.migrate(database, to)
        after = install.current_revision(database)
    if as_json:
        print_json({"before": before, "after": after})
    else:
        click.echo(_done(before, after))


def _done(before: str | None, after: str | None) -> str:
    if after is None:
        return "Underseal is not in this database" + (" any more." if before else ".")
    if before is None:
        return f"Installed; the tables are at revision {after}."
    if before == after:
        return f"Up to date; the tables are at revision {after}, as before."
    return f"The tables went from revision {before} to {after}."


@contextmanager
def _said_well() -> Iterator[None]:
    """Turn what a migration may raise into expected, found and what to do."""
    import psycopg
    import sqlalchemy as sa
    from alembic.util import CommandError

    try:
        yield
    except (click.ClickException, click.exceptions.Exit, click.Abort):
        raise
    except CommandError as error:
        stop = Stop(
            FAILED, "error", "revision",
            f"expected a database at a revision that this release knows, found: {error}. "
            "Upgrade the package and run it again",
        )  # fmt: skip
    except RuntimeError as error:
        stop = Stop(FAILED, "error", "migration", str(error))
    except (sa.exc.DBAPIError, psycopg.Error) as error:
        cause = error.orig if isinstance(error, sa.exc.DBAPIError) else error
        if not isinstance(cause, psycopg.Error):
            raise
        stop = _refused(cause)
    else:
        return
    raise stop


def _refused(error: psycopg.Error) -> Stop:
    import psycopg

    said = error.diag.message_primary or type(error).__name__
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        return Stop(
            DENIED, "denied", "no-access",
            "expected the role that owns the schema underseal or, to install it, one with CREATE on the database, "
            f"found: {said}. Connect as that role, or: grant create on database … to … (docs/install.md)",
        )  # fmt: skip
    if isinstance(error, psycopg.errors.LockNotAvailable):
        return Stop(
            FAILED, "error", "busy",
            "expected every table of Underseal to be free within 15 seconds, found one that a transaction holds. "
            "Nothing has changed; run it again when that transaction has ended",
        )  # fmt: skip
    raise error


@click.command("sql")
@click.option(
    "--extension",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write underseal.control and underseal--VERSION.sql into this directory instead.",
)
@friendly
def print_sql(extension: Path | None) -> None:
    """Print the whole installation as one script for psql, which runs it in one transaction."""
    from underseal.foundation import extension as files
    from underseal.foundation import install

    if extension is None:
        click.echo(install.install_script())
        return
    try:
        extension.mkdir(parents=True, exist_ok=True)
        written = files.write_extension(extension)
    except OSError as error:
        raise click.UsageError(
            f"expected a directory that this user may write to, found {extension}: {error.strerror}"
        ) from error
    for path in written:
        click.echo(path)


COMMANDS = (migrate, print_sql)
