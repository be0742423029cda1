"""The latency hint: heard at once, never needed, at most so often, never within somebody's transaction."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg_pool import ConnectionPool

from tests.worker.works import Works, settle, waits, working
from underseal import FlowError, Underseal
from underseal.held.pace import Pace
from underseal.testing import DictConnection, TestDatabase, wait_until
from underseal.worker.hint import CHANNEL, Hinter, hint_place

RARELY = {"poll_every": timedelta(seconds=30), "idle_poll_every": timedelta(seconds=60)}


@pytest.fixture
def hinting(make_works: Callable[..., Works]) -> Works:
    """A service whose client hints."""
    return make_works(hint=True)


@pytest.fixture
def listener(database: TestDatabase) -> DictConnection:
    """A session that hears hints."""
    connection = database.connect()
    connection.execute(f"listen {CHANNEL}")
    return connection


def test_what_is_started_is_looked_for_at_once(hinting: Works) -> None:
    with working(hinting, **RARELY) as worker:
        settle(worker)
        assert hinting.result(hinting.start("plain", 1), seconds=5) == [1, 1]


def test_what_is_sent_answered_and_cancelled_is_looked_for_at_once(hinting: Works) -> None:
    with working(hinting, **RARELY) as worker:
        one, two = hinting.start("waits"), hinting.start("waits")
        wait_until(lambda: {hinting.info(each).status for each in (one, two)} == {"suspended"})
        settle(worker)
        hinting.executions.send(one, "word", "hello", "rita")
        assert hinting.result(one, seconds=5) == "hello"
        hinting.executions.cancel(two, "rita")
        wait_until(lambda: hinting.info(two).status == "cancelled", timeout=5)


def test_a_vote_lets_a_worker_run_at_once(make_works: Callable[..., Works]) -> None:
    works = make_works(hint=True, run_on_approval=False)
    with working(works, **RARELY) as worker:
        started = works.start("asks", 5)
        shown = wait_until(lambda: works.us.list("ann"))[0]
        wait_until(lambda: works.info(started).status == "suspended")
        settle(worker)
        assert works.us.approve(works.us.get(shown, "ann"), "ann").outcome == "approved"
        assert works.result(started, seconds=10) == {"ok": True}


def test_a_runtime_of_this_process_hears_hints(make_works: Callable[..., Works]) -> None:
    works = make_works(hint=True)
    if works.loop is None:
        return  # runtimes are of the async client alone

    async def work() -> object:
        client = works.us.client
        async with client.runtime(idle_poll_every=timedelta(seconds=60)) as here:
            here._pace = Pace(60, 60)
            here.look()
            await asyncio.sleep(0.5)
            started = await client.executions.start("plain", "rita", 1)
            return await client.executions.result(started, "rita", timeout=timedelta(seconds=5))

    assert works.loop.wait(work()) == [1, 1]


def test_a_worker_needs_no_hint(make_works: Callable[..., Works]) -> None:
    works = make_works(hint="host=/nowhere")
    with working(works, idle_poll_every=timedelta(milliseconds=200)):
        assert works.result(works.start("plain", 1)) == [1, 1]


def test_hints_are_off_if_nobody_asks(works: Works, listener: DictConnection) -> None:
    works.start("plain", 1)
    assert list(listener.notifies(timeout=0.3, stop_after=1)) == []


def test_nothing_is_said_of_what_is_not_committed(
    make_works: Callable[..., Works], listener: DictConnection
) -> None:
    works = make_works(hint=True)
    if works.loop is not None:
        return  # the caller's transaction is the sync twin's here
    with psycopg.connect(works.database.conninfo_as(works.login)) as mine:
        works.us.executions.start("plain", "rita", connection=mine)
        with works.us.using(mine):
            works.us.executions.start("plain", "rita")
        assert list(listener.notifies(timeout=0.3, stop_after=1)) == []
    works.us.executions.start("plain", "rita")
    assert len(list(listener.notifies(timeout=5, stop_after=1))) == 1


def test_many_hints_are_few_notifications(database: TestDatabase, listener: DictConnection) -> None:
    hinter = Hinter((database.conninfo, {}), every=0.1)
    hinter.hint()
    wait_until(lambda: hinter.sent == 1)
    deadline = time.monotonic() + 0.45
    while time.monotonic() < deadline:
        hinter.hint()
    time.sleep(0.3)
    hinter.close()
    assert 3 <= hinter.sent <= 6
    heard = list(listener.notifies(timeout=0.5))
    assert len(heard) == hinter.sent


def test_the_last_hint_is_said_too(database: TestDatabase, listener: DictConnection) -> None:
    hinter = Hinter((database.conninfo, {}), every=0.2)
    hinter.hint()
    wait_until(lambda: hinter.sent == 1)
    hinter.hint()
    wait_until(lambda: hinter.sent == 2, timeout=2)
    hinter.close()


def test_a_connection_that_is_cut_is_opened_again(hinting: Works) -> None:
    with working(hinting, **RARELY) as worker:
        settle(worker)
        hinting.admin.execute(
            # of this database alone: other tests on the server have hints too
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = current_database() and (query ilike %s or query ilike %s)",
            [f"listen {CHANNEL}", f"notify {CHANNEL}"],
        )
        time.sleep(1)
        # the hint that finds its connection cut is lost; one after it is heard
        waiting = [hinting.start("plain", 1)]
        wait_until(lambda: attempt(hinting, waiting), timeout=15)


def attempt(works: Works, waiting: list[str]) -> bool:
    """Start another, and see whether any has ended."""
    waiting.append(works.start("plain", 1))
    return any(works.info(one).ended for one in waiting)


def test_a_hinter_gives_up_what_it_cannot_say(database: TestDatabase) -> None:
    hinter = Hinter(("host=/nowhere", {}))
    began = time.monotonic()
    for _ in range(1000):
        hinter.hint()
    assert time.monotonic() - began < 1
    assert hinter.sent == 0
    hinter.close()
    hinter.hint()


def test_a_pool_of_the_hosts_tells_where(works: Works) -> None:
    if works.loop is not None:
        return
    with ConnectionPool(works.database.conninfo_as(works.login), min_size=0, max_size=1, open=False) as pool:
        us = Underseal(pool, keys=works.ring, hint=True)
        us.serve(waits)
        place = hint_place(us._source, True)
        assert place is not None
        assert place[0] == works.database.conninfo_as(works.login)
        us.close()
    hidden: Any = ConnectionPool(lambda: "host=/nowhere", min_size=0, max_size=1, open=False)
    with pytest.raises(FlowError, match="hint='conninfo'"):
        Underseal(hidden, keys=works.ring, hint=True)
    assert Underseal(hidden, keys=works.ring, hint="host=/nowhere")._hinter is not None
