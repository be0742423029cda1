"""What is shipped: the wheel, the extension's files, the commands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg
import pytest
from click.testing import CliRunner
from psycopg import sql

from tests.upgrade.catalog import catalog
from underseal._version import __version__
from underseal.cli import main
from underseal.foundation.extension import extension_script, write_extension
from underseal.foundation.install import current_revision, migrate
from underseal.foundation.kernel import installed_kernel
from underseal.foundation.repeatables import CREATE_SCHEMA
from underseal.testing import OWNER, TestDatabase, unique_name

ROOT = Path(__file__).parents[2]
HAS_CONTROL_PATH = 180000


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from this checkout and unpacked."""
    directory = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(directory)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=120)
    (wheel,) = directory.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(directory / "site")
    return directory / "site"


def test_the_wheel_carries_the_kernel(unpacked: Path) -> None:
    carried = unpacked / "underseal" / "_kernel"
    for folder in ("sql", "triggers", "migrations"):
        files = {
            path.relative_to(ROOT): path.read_bytes()
            for path in (ROOT / folder).rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        }
        assert files == {
            p.relative_to(carried): p.read_bytes() for p in (carried / folder).rglob("*") if p.is_file()
        }
    assert (unpacked / "underseal" / "py.typed").is_file()


def test_the_wheel_installs_what_the_checkout_installs(
    unpacked: Path, database: TestDatabase, owner: str, empty_database: TestDatabase, tmp_path: Path
) -> None:
    code = (
        "from underseal.foundation import install, kernel; import sys;"
        "print(kernel.installed_kernel().root); install.migrate(sys.argv[1])"
    )
    environment = {**os.environ, "PYTHONPATH": str(unpacked), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code, owner],
        cwd=tmp_path,
        env=environment,
        text=True,
        capture_output=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout.strip()) == (0, str(unpacked / "underseal" / "_kernel")), done.stderr
    assert mine(empty_database, owner) == catalog(database.conninfo)


def mine(database: TestDatabase, owner: str) -> dict[str, str]:
    """The catalog as if the usual owner had installed it."""
    with psycopg.connect(owner) as connection:
        role = connection.info.user
    return {name: text.replace(role, OWNER) for name, text in catalog(database.conninfo).items()}


@contextmanager
def offered(database: TestDatabase) -> Iterator[bool]:
    """Let the server find the extension's files; whether it does.

    Postgres 18 can be pointed at a directory. An older server is given them if its own directory can be written.
    """
    admin = database.connect()
    row = admin.execute("select setting from pg_config where name = 'SHAREDIR'").fetchone()
    assert row is not None
    own = Path(row["setting"]) / "extension"
    with TemporaryDirectory(prefix="underseal-extension-") as name:
        if admin.info.server_version >= HAS_CONTROL_PATH:
            Path(name).chmod(0o755)
            own = Path(name) / "extension"
            own.mkdir(mode=0o755)
            admin.execute(
                sql.SQL("alter database {} set extension_control_path = {}").format(
                    sql.Identifier(database.name), sql.Literal(f"{name}:$system")
                )
            )
        if not os.access(own, os.W_OK):
            yield False
            return
        files = write_extension(own)
        for path in files:
            path.chmod(0o644)
        yield True
        for path in files:
            path.unlink()


def test_the_extension_is_the_same_schema_whose_data_is_dumped_and_that_migrations_leave_alone(
    database: TestDatabase, empty_database: TestDatabase, owner: str
) -> None:
    with offered(empty_database) as found, psycopg.connect(owner, autocommit=True) as connection:
        if not found:
            connection.execute(CREATE_SCHEMA.encode())
            connection.execute(extension_script(dumped=False).partition("\n")[2].encode())
        else:
            connection.execute("create extension underseal")
            version = connection.execute(
                "select extversion from pg_extension where extname = 'underseal'"
            ).fetchone()
            undumped = connection.execute(
                "select c.relname from pg_class c, pg_extension e where c.relnamespace = 'underseal'::regnamespace"
                " and e.extname = 'underseal' and c.relkind = 'r' and c.oid <> all (e.extconfig)"
            ).fetchall()
            assert version == (__version__,)
            assert undumped == [("alembic_version",)]
            with pytest.raises(RuntimeError, match="ALTER EXTENSION underseal UPDATE"):
                migrate(owner)
    assert mine(empty_database, owner) == catalog(database.conninfo)


def test_the_extension_script_is_refused_outside_of_create_extension() -> None:
    first = extension_script().splitlines()[0]
    assert first == '\\echo Use "create extension underseal" to load this file. \\quit'


def test_the_commands_install_print_and_remove(owner: str) -> None:
    run = CliRunner().invoke
    dry = run(main, ["migrate", "--dsn", owner, "--dry-run"])
    assert (dry.exit_code, dry.output.startswith("BEGIN;")) == (0, True)
    assert current_revision(owner) is None
    done = run(main, ["migrate", "--json"], env={"UNDERSEAL_DSN": owner})
    head = current_revision(owner)
    assert (done.exit_code, json.loads(done.output)) == (0, {"before": None, "after": head})
    back = run(main, ["migrate", "--dsn", owner, "--to", "base"], input="y\n")
    assert (back.exit_code, current_revision(owner)) == (2, head), "only a person at a terminal is asked"
    assert run(main, ["migrate", "--dsn", owner, "--to", "base", "--dry-run"]).exit_code == 2
    gone = run(main, ["migrate", "--dsn", owner, "--to", "base", "--yes"])
    assert (gone.exit_code, gone.output) == (0, "Underseal is not in this database any more.\n")
    assert current_revision(owner) is None
    failed = run(main, ["migrate", "--dsn", owner, "--to", "nowhere"])
    assert (
        failed.exit_code,
        f"expected --to as one of head, base, {head}, found nowhere" in failed.output,
    ) == (2, True)


@pytest.mark.parametrize(
    ("dsn", "code", "words"),
    [
        ("host db password hunter2", 2, "expected --dsn to be a libpq connection string"),
        ("host=/nowhere dbname=x password=hunter2", 1, "expected a database that answers"),
    ],
)
def test_a_wrong_connection_string_is_told_and_not_quoted(dsn: str, code: int, words: str) -> None:
    done = CliRunner().invoke(main, ["migrate", "--dsn", dsn])
    assert (done.exit_code, words in done.output) == (code, True)
    assert "hunter2" not in done.output
    assert "sqlalche" not in done.output


def test_a_role_that_may_not_create_the_schema_is_told_what_it_takes(
    empty_database: TestDatabase,
) -> None:
    stranger = empty_database.conninfo_as(empty_database.create_role())
    done = CliRunner().invoke(main, ["migrate", "--json", "--dsn", stranger])
    said = json.loads(done.output)
    assert (done.exit_code, said["outcome"], said["reason"]) == (5, "denied", "no-access")
    assert "grant create on database" in said["message"]


def test_the_sql_command_prints_the_script_or_writes_the_extension(tmp_path: Path) -> None:
    run = CliRunner().invoke
    printed = run(main, ["sql"])
    assert printed.exit_code == 0
    assert printed.output.startswith("BEGIN;")
    assert "COMMIT;" in printed.output
    written = run(main, ["sql", "--extension", str(tmp_path / "new")])
    assert written.output.split() == [
        str(tmp_path / "new" / "underseal.control"),
        str(tmp_path / "new" / f"underseal--{__version__}.sql"),
    ]


def test_the_checkout_is_its_own_kernel() -> None:
    assert installed_kernel().root == ROOT


def test_names_of_test_databases_never_repeat() -> None:
    assert unique_name("a") != unique_name("a")
