"""`underseal migrate` and `underseal sql`: put the kernel into a database, or print what would."""

from __future__ import annotations

import json
from pathlib import Path

import click


@click.command()
@click.option(
    "--dsn", envvar="UNDERSEAL_DSN", required=True, help="Database, as the schema's owner. [UNDERSEAL_DSN]"
)
@click.option(
    "--to", default="head", show_default=True, help="A revision, 'head', or 'base' to remove everything."
)
@click.option("--dry-run", is_flag=True, help="Print the SQL and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask before a step back that loses data.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def migrate(dsn: str, to: str, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Install the kernel, upgrade it, or take it out again.

    Everything happens in one transaction. The role needs CREATE on the database for the first time only, and never
    superuser. Two processes may do this at once.
    """
    from underseal.foundation import install

    try:
        before = install.current_revision(dsn)
        back = install.is_back(before, to)
        if dry_run:
            if back:
                raise click.UsageError("--dry-run prints upgrades; a step back has nothing to print")
            click.echo(install.migrate(dsn, to, dry_run=True))
            return
        if back:
            if not yes:
                click.confirm(
                    f"Go back from {before} to {to}? What the newer tables hold is lost", abort=True
                )
            install.downgrade(dsn, to)
        else:
            install.migrate(dsn, to)
        after = install.current_revision(dsn)
    except install.FAILURES as error:
        raise click.ClickException(str(error)) from error
    if as_json:
        click.echo(json.dumps({"before": before, "after": after}))
    else:
        click.echo(f"{before or 'nothing'} → {after or 'nothing'}")


@click.command("sql")
@click.option(
    "--extension",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write underseal.control and underseal--VERSION.sql into this directory instead.",
)
def print_sql(extension: Path | None) -> None:
    """Print the whole installation as one script for psql, which runs it in one transaction."""
    from underseal.foundation import extension as files
    from underseal.foundation import install

    if extension is None:
        click.echo(install.install_script())
        return
    extension.mkdir(parents=True, exist_ok=True)
    for path in files.write_extension(extension):
        click.echo(path)


COMMANDS = (migrate, print_sql)
