"""Functions, views and triggers are always exactly what the files say (the tiny kernel stands in for ours)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from psycopg.rows import dict_row

from tests.upgrade.scratch import FILES, ScratchKernel
from underseal.foundation.environment import LOCK, engine_for
from underseal.foundation.install import current_revision, downgrade, migrate, upgrade_within
from underseal.testing import TestDatabase

ROOT = Path(__file__).parents[2]

GREET_TWO = """
create or replace function underseal.greet(name text, tone text) returns jsonb
language sql as $$ select jsonb_build_object(tone, name) $$;
"""
GREET_RESULT = """
create or replace function underseal.greet(whom text) returns integer language sql as $$ select length(whom) $$;
"""


def rows(conninfo: str, query: str) -> list[dict[str, Any]]:
    with psycopg.connect(conninfo, row_factory=dict_row) as connection:
        return connection.execute(query.encode()).fetchall()


def functions(conninfo: str) -> list[str]:
    query = (
        "select p.oid::regprocedure::text as f from pg_proc p"
        " where pronamespace = 'underseal'::regnamespace order by 1"
    )
    return [row["f"] for row in rows(conninfo, query)]


def row_versions(conninfo: str) -> list[dict[str, Any]]:
    return rows(
        conninfo,
        "select oid, ctid::text from pg_proc where pronamespace = 'underseal'::regnamespace order by 1",
    )


def grant(database: TestDatabase, owner: str, kernel: ScratchKernel) -> str:
    role = database.create_role("client")
    with psycopg.connect(owner) as connection:
        connection.execute("insert into underseal.access_grant values (%s)", [role])
        connection.execute("select underseal._regrant_all()")
    return database.conninfo_as(role)


@pytest.mark.parametrize(
    ("greet", "call", "answer"),
    [
        (GREET_TWO, "select underseal.greet('ann', 'loud') as a", {"loud": "ann"}),
        (GREET_RESULT, "select underseal.greet('ann') as a", 3),
    ],
    ids=["arguments changed", "result and argument name changed"],
)
def test_a_function_of_another_shape_replaces_the_old_one_and_keeps_its_grants(
    empty_database: TestDatabase, owner: str, kernel: ScratchKernel, greet: str, call: str, answer: object
) -> None:
    migrate(owner, kernel=kernel)
    client = grant(empty_database, owner, kernel)
    assert rows(client, "select underseal.greet('ann') as a") == [{"a": "hello ann"}]
    kernel.write(
        greet=greet, things="create or replace view underseal.things as select t.name from underseal.thing t;"
    )
    migrate(owner, kernel=kernel)
    assert rows(client, call) == [{"a": answer}]
    assert len([name for name in functions(owner) if "greet" in name]) == 1


def test_what_leaves_the_manifest_is_dropped(owner: str, kernel: ScratchKernel) -> None:
    migrate(owner, kernel=kernel)
    kernel.write(things=None, trigger_thing=None)
    migrate(owner, kernel=kernel)
    assert functions(owner) == ["underseal._regrant_all()", "underseal.greet(text)"]
    assert rows(owner, "select tgname from pg_trigger where not tgisinternal") == []
    assert (
        rows(
            owner,
            "select relname from pg_class where relkind = 'v' and relnamespace = 'underseal'::regnamespace",
        )
        == []
    )


def test_a_trigger_stays_always_enabled_after_a_new_application(owner: str, kernel: ScratchKernel) -> None:
    migrate(owner, kernel=kernel)
    kernel.write(greet=FILES["sql/foundation/greet.sql"].replace("hello", "hallo"))
    migrate(owner, kernel=kernel)
    assert rows(owner, "select tgname, tgenabled from pg_trigger where not tgisinternal") == [
        {"tgname": "check_thing", "tgenabled": "A"}
    ]


def test_unchanged_files_are_not_applied_again(owner: str, kernel: ScratchKernel) -> None:
    migrate(owner, kernel=kernel)
    before = row_versions(owner)
    migrate(owner, kernel=kernel)
    assert row_versions(owner) == before
    kernel.write(greet=FILES["sql/foundation/greet.sql"].replace("hello", "hallo"))
    migrate(owner, kernel=kernel)
    assert row_versions(owner) != before


def test_nothing_is_left_to_public(owner: str, kernel: ScratchKernel) -> None:
    migrate(owner, kernel=kernel)
    everybody = "select proname from pg_proc p, aclexplode(p.proacl) a where a.grantee = 0"
    assert rows(owner, f"{everybody} and p.pronamespace = 'underseal'::regnamespace") == []
    unprotected = (
        "select proname from pg_proc where proacl is null and pronamespace = 'underseal'::regnamespace"
    )
    assert rows(owner, unprotected) == []


def test_a_stop_at_an_older_revision_leaves_nothing_to_call_until_the_next_migrate(
    empty_database: TestDatabase, owner: str, kernel: ScratchKernel
) -> None:
    migrate(owner, kernel=kernel)
    client = grant(empty_database, owner, kernel)
    kernel.add_revision(2, "alter table underseal.thing add column size integer")
    kernel.add_revision(3, "alter table underseal.thing add column weight integer")
    migrate(owner, "0002", kernel=kernel)
    assert current_revision(owner) == "0002"
    assert functions(owner) == ["underseal._check_thing()"]
    assert rows(owner, "select value from underseal.setting where key = 'schema.usable'") == [
        {"value": "false"}
    ]
    with pytest.raises(psycopg.errors.UndefinedFunction):
        rows(client, "select underseal.greet('ann')")
    with pytest.raises(psycopg.errors.RaiseException, match="a thing has a name"):
        rows(owner, "insert into underseal.thing values (1, '') returning id")
    migrate(owner, kernel=kernel)
    assert rows(client, "select underseal.greet('ann') as a") == [{"a": "hello ann"}]
    assert rows(owner, "select value from underseal.setting where key = 'schema.usable'") == [
        {"value": "true"}
    ]
    downgrade(owner, "0002", kernel=kernel)
    assert functions(owner) == ["underseal._check_thing()"]


def test_a_failing_file_leaves_everything_as_it_was(owner: str, kernel: ScratchKernel) -> None:
    migrate(owner, kernel=kernel)
    before = row_versions(owner)
    kernel.add_revision(2, "alter table underseal.thing add column size integer")
    kernel.write(
        things="create or replace view underseal.things as select t.no_such_column from underseal.thing t;"
    )
    with pytest.raises(psycopg.errors.UndefinedColumn):
        migrate(owner, kernel=kernel)
    assert (current_revision(owner), row_versions(owner)) == ("0001", before)


def test_inside_a_savepoint_of_the_host_nothing_is_taken_for_left_over(
    owner: str, kernel: ScratchKernel
) -> None:
    with engine_for(owner).connect() as connection, connection.begin():
        with connection.begin_nested():
            upgrade_within(connection, kernel=kernel)
        kernel.write(greet=GREET_RESULT)
        with connection.begin_nested():
            upgrade_within(connection, kernel=kernel)
        assert connection.scalar(sa.text("select underseal.greet('ann')")) == 3
    assert len(functions(owner)) == 3


def test_a_writer_who_holds_a_table_makes_it_give_up_with_nothing_changed(
    empty_database: TestDatabase, owner: str, kernel: ScratchKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    migrate(owner, kernel=kernel)
    monkeypatch.setattr("underseal.foundation.environment.LOCK", LOCK.replace("15s", "50ms"))
    kernel.write(greet=GREET_RESULT)
    writer = empty_database.connect(autocommit=False)
    writer.execute("insert into underseal.thing values (1, 'one')")
    with pytest.raises(psycopg.errors.LockNotAvailable):
        migrate(owner, kernel=kernel)
    assert rows(owner, "select underseal.greet('ann') as a") == [{"a": "hello ann"}]


def test_asking_for_the_current_revision_makes_nothing(owner: str) -> None:
    assert current_revision(owner) is None
    environment = {"UNDERSEAL_DSN": owner, "PATH": ""}
    subprocess.run(
        [sys.executable, "-m", "alembic", "current"],
        check=True,
        env=environment,
        capture_output=True,
        timeout=60,
    )
    assert rows(owner, "select from pg_namespace where nspname = 'underseal'") == []


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("sql/foundation/greet.sql\n", "named twice: sql/foundation/greet.sql"),
        ("sql/foundation/gone.sql\n", "named but not on disk: sql/foundation/gone.sql"),
    ],
)
def test_a_wrong_manifest_is_refused(kernel: ScratchKernel, line: str, problem: str) -> None:
    kernel.manifest.write_text(kernel.manifest.read_text() + line)
    with pytest.raises(ValueError, match=problem):
        kernel.repeatables()


def test_the_manifest_may_have_comments(kernel: ScratchKernel) -> None:
    kernel.manifest.write_text("# greetings\nsql/foundation/greet.sql # the only one\n\n")
    assert [path.name for path in kernel.repeatables()] == ["greet.sql"]
