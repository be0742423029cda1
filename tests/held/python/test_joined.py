"""In a transaction of the caller's: what is done there leaves it as it was, and no run gets into it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.held.python.test_sql_provider import Bank
from tests.held.python.worlds import REQUESTER, World
from underseal.testing import in_background


@pytest.fixture
def conn(sync_world: World) -> Iterator[psycopg.Connection[Any]]:
    """A connection of the caller's own."""
    with psycopg.connect(sync_world.database.conninfo_as(sync_world.login)) as connection:
        yield connection


def test_a_request_of_sql_functions_leaves_the_callers_transaction_as_it_was(
    sync_world: World, conn: psycopg.Connection[Any]
) -> None:
    bank = Bank(sync_world)
    host = sync_world.database.create_role("host", "nologin")
    sync_world.admin.execute(f"grant {host} to {sync_world.login}")
    sync_world.owner.execute("select underseal.grant_access(%s, 'client')", [host])
    conn.execute(f"set local role {host}")
    conn.execute("declare mine cursor for select 1 as one")
    held = sync_world.us.request("account.close", REQUESTER, {"account": 1}, connection=conn)
    assert conn.execute("select current_user::text").fetchone() == (host,)
    assert conn.execute("fetch mine").fetchone() == (1,)
    conn.commit()
    assert (sync_world.look(held).state, bank.closed()) == ("HELD", [])


def test_an_estimate_of_sql_functions_changes_nothing(sync_world: World) -> None:
    bank = Bank(sync_world)
    bank.execute(
        "create or replace function app.estimate(params jsonb, principal text) returns jsonb language plpgsql as"
        ' $$ begin update app.account set closed = true; return \'{"effect": {}, "state_key": "s"}\'; end $$'
    )
    sync_world.us.request("account.close", REQUESTER, {"account": 1})
    assert bank.closed() == []


@pytest.mark.parametrize("how", ["run", "run_approved"])
def test_a_run_is_in_no_transaction_of_the_callers(
    sync_world: World, conn: psycopg.Connection[Any], how: str
) -> None:
    held = sync_world.approved()

    def run() -> Any:
        with sync_world.us.using(conn):
            return sync_world.us.run(held) if how == "run" else sync_world.us.run_approved()[0]

    assert in_background(run).result(20).outcome == "succeeded"
    assert conn.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
