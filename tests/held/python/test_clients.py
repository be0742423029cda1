"""The two clients: the same methods, pools and connections of any kind, the caller's transactions."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg_pool import AsyncConnectionPool, ConnectionPool

import underseal
from tests.held.python.worlds import REQUESTER, PayoutParams, World
from underseal import AccessDenied, AsyncUnderseal, Held, KernelError, Underseal, UnknownConsumer
from underseal.foundation.steps import Steps
from underseal.held import kernel

METHODS = [name for name in vars(Underseal) if not name.startswith("_")]


@pytest.mark.parametrize("name", METHODS)
def test_the_async_client_is_a_twin(name: str) -> None:
    sync, twin = getattr(Underseal, name), getattr(AsyncUnderseal, name)
    assert twin.__doc__ == sync.__doc__
    assert sync.__doc__
    mine, its = inspect.signature(sync).parameters, inspect.signature(twin).parameters
    assert [(one.name, one.kind, one.default) for one in mine.values()] == [
        (one.name, one.kind, one.default) for one in its.values()
    ]


def test_the_async_client_has_but_one_method_of_its_own() -> None:
    methods = [name for name in vars(AsyncUnderseal) if not name.startswith("_")]
    assert [name for name in methods if name != "runtime"] == METHODS
    parameters = [list(inspect.signature(one).parameters) for one in (Underseal, AsyncUnderseal)]
    assert parameters[0] == parameters[1]


def test_everything_public_is_importable_and_documented() -> None:
    for name in underseal.__all__:
        assert getattr(underseal, name).__doc__, name


# -- whose connection -------------------------------------------------------------------------------


@pytest.fixture
def conn(sync_world: World) -> Iterator[psycopg.Connection[Any]]:
    """A connection of the caller's own, with a table of its own."""
    with psycopg.connect(sync_world.database.conninfo_as(sync_world.login)) as connection:
        sync_world.admin.execute("create table public.note (text text)")
        sync_world.admin.execute("grant all on public.note to public")
        yield connection


def notes(world: World) -> int:
    """How many rows of the caller's there are."""
    return len(world.admin.execute("select from public.note").fetchall())


@pytest.mark.parametrize("commit", [True, False])
def test_a_request_and_the_callers_rows_commit_together(
    sync_world: World, conn: psycopg.Connection[Any], commit: bool
) -> None:
    conn.execute("insert into public.note values ('x')")
    held = sync_world.us.request("payout.send", REQUESTER, {"order": "o-1", "cents": 5}, connection=conn)
    assert sync_world.us.get(held, "rita") is None
    assert sync_world.us.get(held, "rita", connection=conn).state == "HELD"
    conn.commit() if commit else conn.rollback()
    assert (sync_world.us.get(held, "rita") is not None, notes(sync_world)) == (commit, int(commit))


def test_a_gated_call_joins_too(sync_world: World, conn: psycopg.Connection[Any]) -> None:
    with sync_world.us.using(conn):
        conn.execute("insert into public.note values ('x')")
        held = sync_world.send(REQUESTER, PayoutParams(order="o-1", cents=5))
    conn.rollback()
    assert (sync_world.us.get(held, "rita"), notes(sync_world)) == (None, 0)
    assert isinstance(sync_world.hold(), Held)


def test_a_vote_in_the_callers_transaction_is_not_run_there(
    sync_world: World, conn: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    claims: list[Any] = []

    def watched(*args: Any) -> Steps[Any]:
        claims.append(args)
        raise psycopg.OperationalError("it would wait for the caller for ever")

    monkeypatch.setattr(kernel, "claim_runs", watched)
    held = sync_world.hold()
    outcome = sync_world.us.approve(sync_world.us.get(held, "ann"), "ann", connection=conn)
    assert (outcome.outcome, outcome.run, sync_world.look(held).state) == ("approved", None, "HELD")
    conn.commit()
    assert (sync_world.look(held).state, claims) == ("APPROVED", [])


async def test_the_async_client_joins_too(sync_world: World) -> None:
    conninfo = sync_world.database.conninfo_as(sync_world.login)
    async with (
        AsyncUnderseal(conninfo, keys=sync_world.ring) as us,
        await psycopg.AsyncConnection.connect(conninfo) as conn,
    ):
        from tests.held.python.worlds import PayoutSend

        @us.gate(PayoutSend(sync_world.service))
        async def send(principal: Any, params: Any) -> None: ...

        with us.using(conn):
            held = await send(REQUESTER, PayoutParams(order="o-1", cents=5))
        assert isinstance(held, Held)
        await conn.rollback()
        assert await us.get(held, "rita") is None


def test_a_callers_transaction_at_another_isolation_is_told(
    sync_world: World, conn: psycopg.Connection[Any]
) -> None:
    conn.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
    with pytest.raises(KernelError) as error:
        sync_world.us.request("payout.send", REQUESTER, {"order": "o-1", "cents": 5}, connection=conn)
    assert error.value.sqlstate == "US008"


@pytest.mark.parametrize("level", ["serializable", "repeatable read", "read committed"])
def test_a_server_with_any_default_isolation_will_do(world: World, level: str) -> None:
    world.admin.execute(f"alter role {world.login} set default_transaction_isolation = '{level}'")
    fresh = world.client()
    held = world.hold()
    assert fresh.approve(fresh.get(held, "ann"), "ann").outcome == "approved"
    assert fresh.sweep() == []
    assert world.us.run(held).outcome == "succeeded"
    fresh.close()


@pytest.mark.parametrize("autocommit", [True, False])
def test_a_pool_of_the_hosts_stays_the_hosts(sync_world: World, autocommit: bool) -> None:
    conninfo = sync_world.database.conninfo_as(sync_world.login)
    kwargs = {"autocommit": autocommit, "prepare_threshold": None}
    with ConnectionPool(conninfo, min_size=1, max_size=2, kwargs=kwargs) as pool:
        with Underseal(pool, keys=sync_world.ring) as us:
            assert us.list("rita") == []
            assert us.sweep() == []
        with pool.connection() as connection:
            assert connection.isolation_level is None
            assert connection.autocommit is autocommit


@pytest.mark.parametrize("autocommit", [True, False])
async def test_an_async_pool_of_the_hosts_stays_the_hosts(sync_world: World, autocommit: bool) -> None:
    conninfo = sync_world.database.conninfo_as(sync_world.login)
    kwargs = {"autocommit": autocommit, "prepare_threshold": None}
    async with AsyncConnectionPool(conninfo, min_size=1, max_size=2, kwargs=kwargs, open=False) as pool:
        async with AsyncUnderseal(pool, keys=sync_world.ring) as us:
            assert await us.list("rita") == []
            assert await us.sweep() == []
        async with pool.connection() as connection:
            assert connection.isolation_level is None


def test_nothing_is_prepared_behind_pgbouncer(sync_world: World) -> None:
    conninfo = sync_world.database.conninfo_as(sync_world.login)
    with Underseal(conninfo, keys=sync_world.ring, prepare_threshold=None, max_connections=1) as us:
        for _ in range(8):
            us.list("rita")
        with us._source.connection() as connection:
            assert connection.execute("select count(*) from pg_prepared_statements").fetchone() == (0,)


def test_a_connection_that_was_lost_is_replaced(world: World) -> None:
    world.hold(5)
    world.admin.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity where usename = %s", [world.login]
    )
    assert world.hold(6).state == "HELD"


@pytest.mark.clause("H4.6")
def test_a_login_that_may_not_act_for_somebody_is_told(world: World) -> None:
    for access in ("client", "approver"):
        world.owner.execute("select underseal.grant_access(%s, %s, 'login')", [world.login, access])
    world.owner.execute("select underseal.map_login(%s, 'rita')", [world.login])
    held = world.hold()
    assert world.look(held).state == "HELD"
    for method, given in (("get", [held, "ann"]), ("list", ["ann"]), ("events", [held, "ann"])):
        with pytest.raises(AccessDenied) as denied:
            getattr(world.us, method)(*given)
        assert denied.value.reason == "no-principal"
    assert world.us.approve(world.look(held), "ann").outcome == "denied"


# -- the rest of the client -------------------------------------------------------------------------


@pytest.mark.clause("H3.7a", "H3.7b")
def test_a_consumer_reads_until_it_acknowledges(world: World) -> None:
    assert world.us.register_consumer("mailer").outcome == "registered"
    assert world.us.register_consumer("mailer").outcome == "unchanged"
    held = world.hold()
    world.approve(held)
    first = world.us.read_outbox("mailer", 2)
    assert [(event.position, event.type) for event in first] == [(1, "requested"), (2, "approved")]
    assert world.us.read_outbox("mailer", 2) == first
    assert first[0].operation_type == "payout.send"
    assert world.us.ack_outbox("mailer", 2).outcome == "acknowledged"
    assert [(event.position, event.type) for event in world.us.read_outbox("mailer")] == [
        (3, "claimed"),
        (4, "succeeded"),
    ]
    assert world.us.ack_outbox("mailer", 9).reason == "beyond-end"
    assert world.us.drop_consumer("mailer").outcome == "dropped"
    with pytest.raises(UnknownConsumer):
        world.us.read_outbox("mailer")
    with pytest.raises(UnknownConsumer):
        world.us.ack_outbox("mailer", 1)


def test_the_types_are_listed(world: World) -> None:
    types = {one.type: one for one in world.us.types()}
    assert set(types) == {"payout.send", "token.issue"}
    assert (types["token.issue"].mode, types["token.issue"].salted, types["payout.send"].armed) == (
        "BY_REQUESTER", True, True,
    )  # fmt: skip


def test_registering_again_changes_nothing(sync_world: World) -> None:
    again = sync_world.us.register(connection=sync_world.owner)
    assert {(one.type, one.outcome) for one in again} == {
        ("payout.send", "unchanged"),
        ("token.issue", "unchanged"),
    }


def test_the_keys_in_use_are_listed(world: World) -> None:
    world.hold()
    uses = {use.purpose: use for use in world.us.key_uses()}
    assert (uses["payload"].key_id, uses["payload"].open_rows) == (world.ring.active("payload").id, 1)
    assert set(uses) == {"payload", "fingerprint"}


@pytest.mark.clause("H9.1b")
def test_a_sweep_ends_what_time_has_ended(world: World) -> None:
    held = world.hold()
    world.edit(held, expires_at="2020-01-01T00:00:00Z")
    swept = world.us.sweep()
    assert [(one.outcome, one.operation_id) for one in swept] == [("expired", held.operation_id)]
    assert world.us.sweep() == []
