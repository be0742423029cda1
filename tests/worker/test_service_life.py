"""How a worker lives: its duties do not end each other, it idles quietly, stops at once, and outlives its database."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.worker.works import Works, next_line, program, settle, working
from underseal import MemoryKeyRing, Underseal, flow
from underseal.flow import runtime as runtimes
from underseal.foundation.server import THROWAWAY, embedded_server
from underseal.foundation.steps import query
from underseal.held import kernel as held_kernel
from underseal.inbox import kernel as inbox_kernel
from underseal.log import kernel as log_kernel
from underseal.testing import TestDatabase, in_background, install, wait_until
from underseal.wake import kernel as wake_kernel
from underseal.wake.client import Schedules
from underseal.worker import schedules, sweeps
from underseal.worker.connections import line_of

EVERY_SECOND = "* * * * * *"


def failing(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, times: int = 1) -> list[int]:
    """Let a call of the kernel fail so often; the list grows with each call."""
    real, calls = getattr(module, name), []

    def broken(*args: Any) -> Any:
        calls.append(1)
        if len(calls) <= times:
            raise RuntimeError("this look failed")
        return real(*args)

    monkeypatch.setattr(module, name, broken)
    return calls


# -- duties do not end each other -------------------------------------------------------------------


@pytest.mark.clause("E8a")
def test_a_poll_query_that_raises_once_ends_no_worker(works: Works, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = failing(monkeypatch, wake_kernel, "claim_due")
    started = works.start("plain", 1)
    with working(works):
        assert works.result(started) == [1, 1]
    assert len(calls) > 1


@pytest.mark.clause("E8a")
@pytest.mark.parametrize(
    ("module", "name"),
    [(wake_kernel, "next_due"), (held_kernel, "claim_runs"), (held_kernel, "sweep_operations")],
)
def test_a_duty_that_fails_leaves_the_others_alone(
    sync_works: Works, monkeypatch: pytest.MonkeyPatch, module: Any, name: str, caplog: pytest.LogCaptureFixture
) -> None:  # fmt: skip
    calls = failing(monkeypatch, module, name, times=1000)
    held = None if name == "claim_runs" else sync_works.approved()
    with working(sync_works):
        assert sync_works.result(sync_works.start("plain", 1)) == [1, 1]
        if held is not None:
            wait_until(lambda: sync_works.row(held)["state"] == "SUCCEEDED")
        wait_until(lambda: calls)
    assert "trying again" in caplog.text


@pytest.mark.clause("E8a")
def test_a_runtime_that_fails_is_made_anew(
    sync_works: Works, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    serve = runtimes.FlowRuntime.serve
    failed: list[Any] = []

    async def broken(self: Any) -> None:
        if not failed:
            failed.append(self)
            raise RuntimeError("a bug")
        await serve(self)

    monkeypatch.setattr(runtimes.FlowRuntime, "serve", broken)
    monkeypatch.setattr("underseal.worker.service._ANEW", 0.05)
    with working(sync_works) as worker:
        assert sync_works.result(sync_works.start("plain", 1)) == [1, 1]
        wait_until(lambda: worker.progress.flows.completed == 1)
    assert "beginning anew" in caplog.text


def test_it_does_everything_side_by_side(works: Works) -> None:
    timetable = Schedules(works.database.conninfo_as(works.login))
    timetable.add("tick", "plain", EVERY_SECOND, "rita", value=3)
    held = works.approved()
    with working(works) as worker:
        assert works.result(works.start("plain", 1)) == [1, 1]
        wait_until(lambda: works.row(held)["state"] == "SUCCEEDED")
        wait_until(lambda: worker.progress.scheduled >= 2)
        timetable.remove("tick", "rita")
        ticks = [one for one in works.executions.list("rita") if one.execution_id.startswith("tick@")]
        assert works.result(ticks[-1].execution_id) == [3, 3]
        wait_until(lambda: (worker.progress.driving, worker.progress.running) == (0, 0))
        assert worker.progress.operations == {"succeeded": 1}
    timetable.close()


def test_an_end_of_an_operation_is_looked_for_at_once(make_works: Callable[..., Works]) -> None:
    works = make_works(run_on_approval=False)
    with working(works) as worker:
        started = works.start("asks", 5)
        shown = wait_until(lambda: works.us.list("ann"))[0]
        wait_until(lambda: works.info(started).status == "suspended")
        settle(worker)
        assert works.us.approve(works.us.get(shown, "ann"), "ann").outcome == "approved"
        assert works.result(started, seconds=10) == {"ok": True}


# -- schedules --------------------------------------------------------------------------------------


def test_a_schedule_is_fired_once_however_many_look(sync_works: Works) -> None:
    timetable = Schedules(sync_works.database.conninfo_as(sync_works.login))
    timetable.add("tick", "plain", EVERY_SECOND, "rita")
    with working(sync_works) as one, working(sync_works, sync_works.client()) as other:
        wait_until(lambda: one.progress.scheduled + other.progress.scheduled >= 3)
        timetable.pause("tick", "rita")
    count = len([e for e in sync_works.executions.list("rita") if e.execution_id.startswith("tick@")])
    assert one.progress.scheduled + other.progress.scheduled == count
    timetable.close()


def test_what_is_late_is_looked_for_whatever_is_told(
    async_works: Works, monkeypatch: pytest.MonkeyPatch
) -> None:
    works, passes = async_works, []

    def fire(*_: Any) -> Any:
        passes.append(1)
        yield from query("select 1")
        return []

    monkeypatch.setattr("underseal.wake.schedules.fire_due_schedules", fire)

    async def looks() -> list[float]:
        line = line_of(works.us.client)
        duty = schedules.Schedules("w", line, timedelta(seconds=30), lambda: None)
        waits = [await duty.look(), await duty.look()]
        monkeypatch.setattr(schedules, "_ANYWAY", 0.0)
        duty._pass_due = 0.0
        waits.append(await duty.look())
        await line.close()
        return waits

    assert works.loop is not None
    assert works.loop.wait(looks())[1] == 10.0
    assert len(passes) == 2


# -- sweeps -----------------------------------------------------------------------------------------


def test_what_nobody_needs_is_removed(sync_works: Works, monkeypatch: pytest.MonkeyPatch) -> None:
    started = sync_works.start("waits")
    sync_works.executions.send(started, "other", 1, "rita", expires_in=timedelta(milliseconds=1))
    monkeypatch.setattr(sweeps.Seldom.__init__, "__defaults__", (0.05,))
    with working(sync_works):
        wait_until(lambda: not sync_works.executions.inbox(started, "rita"))


def test_a_sweep_that_fails_leaves_the_others_alone(
    sync_works: Works, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeps.Seldom.__init__, "__defaults__", (0.05,))
    failing(monkeypatch, inbox_kernel, "expire_inbox", times=1000)
    calls = failing(monkeypatch, log_kernel, "sweep_denials", times=0)
    with working(sync_works):
        wait_until(lambda: calls)


def test_full_batches_go_on(async_works: Works) -> None:
    works, left = async_works, [250]

    def batch(size: int) -> Any:
        yield from query("select 1")
        taken = min(size, left[0])
        left[0] -= taken
        return taken

    async def sweep() -> None:
        line = line_of(works.us.client)
        await sweeps.Seldom("w", line)._sweep(sweeps._Chore("things", batch, 100))
        await line.close()

    assert works.loop is not None
    works.loop.wait(sweep())
    assert left == [0]


# -- sleeping ---------------------------------------------------------------------------------------


@flow("naps")
async def naps(ctx: Any) -> Any:
    """Sleeps a little, three times."""
    for _ in range(3):
        await ctx.sleep(seconds=0.3)


@pytest.mark.clause("E6b")
def test_a_worker_that_looks_rarely_is_there_when_a_sleep_is_over(works: Works) -> None:
    works.us.serve(naps)
    with working(works) as worker:
        settle(worker)
        started = works.start("naps")
        settle(worker)
        assert works.result(started) is None
    times = [event.recorded_at for event in works.executions.events(started, "rita")]
    assert timedelta(seconds=0.9) <= times[-1] - times[0] < timedelta(seconds=8)


# -- idling -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("asynchronous", [True])
def test_an_idle_worker_makes_two_commits_a_second_at_most(make_works: Callable[..., Works]) -> None:
    works = make_works(hint=True)
    works.start("waits", after=timedelta(hours=1))
    Schedules(works.database.conninfo_as(works.login)).add("daily", "plain", "0 0 * * *", "rita")

    def made_in(seconds: int) -> int:
        before = works.commits()
        time.sleep(seconds)
        return works.commits() - before

    # the client's defaults, where the fixture's are short
    paces = {"poll_every": timedelta(milliseconds=500), "idle_poll_every": timedelta(seconds=5)}
    with working(works, **paces):
        begun = time.monotonic()
        # every duty looks ever more seldom; this test's own looks are among them
        while made_in(8) > 16:
            assert time.monotonic() < begun + 60


# -- stopping ---------------------------------------------------------------------------------------

PROGRAM = """
import asyncio, sys
from datetime import timedelta
from underseal import AsyncUnderseal, MemoryKeyRing, flow
conninfo, seconds, grace = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
async def step():
    print("inside", flush=True)
    await asyncio.sleep(seconds)
    return "done"
@flow("slow")
async def slow(ctx):
    return await ctx.run("step", step)
us = AsyncUnderseal(conninfo, keys=MemoryKeyRing.with_all())
us.serve(slow)
us.worker(grace=timedelta(seconds=grace), lease=timedelta(minutes=10)).run()
print("ended", flush=True)
"""


@flow("slow")
async def slow(ctx: Any) -> Any:
    """The same flow, whose step is over at once."""

    async def step() -> str:
        return "done elsewhere"

    return await ctx.run("step", step)


@pytest.mark.clause("E8b")
@pytest.mark.parametrize(
    ("seconds", "grace", "result"), [("0.5", "20", "done"), ("600", "0.2", "done elsewhere")]
)
def test_a_stop_gives_claims_back_at_once(sync_works: Works, seconds: str, grace: str, result: str) -> None:
    started = sync_works.start("slow")
    process = program(PROGRAM, sync_works.database.conninfo_as(sync_works.login), seconds, grace)
    try:
        assert next_line(process) == "inside"
        assert sync_works.claims() == [started]
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        ended = time.monotonic()
        assert next_line(process) == "ended"
    finally:
        process.kill()
        process.communicate()
    assert sync_works.claims() == []
    sync_works.us.serve(slow)
    with working(sync_works):
        assert sync_works.result(started) == result
    assert time.monotonic() - ended < 5  # and not when a lease of ten minutes has run out
    # given back is no crash: nobody had to recover it
    assert "EXECUTION_RECOVERED" not in sync_works.types(started)


@pytest.mark.clause("E8b")
def test_another_worker_has_within_a_second_what_one_gives_back(sync_works: Works) -> None:
    works = sync_works
    inside, elsewhere = [], works.client()

    async def hangs() -> None:
        inside.append(1)
        await asyncio.sleep(3600)

    async def at_once() -> str:
        return "here"

    @flow("moves")
    async def first(ctx: Any) -> Any:
        return await ctx.run("step", hangs)

    @flow("moves")
    async def second(ctx: Any) -> Any:
        return await ctx.run("step", at_once)

    works.us.serve(first)
    elsewhere.serve(second)
    started = works.start("moves")
    with working(works, grace=timedelta(milliseconds=100), lease=timedelta(minutes=10)) as worker:
        wait_until(lambda: inside)
        with working(works, elsewhere):
            worker.stop()
            stopped = time.monotonic()
            assert works.result(started) == "here"
            taken = time.monotonic() - stopped
    assert taken < 1.1 + 0.5, taken
    elsewhere.close()


def test_a_worker_that_is_stopped_before_it_begins_ends(works: Works) -> None:
    with working(works) as worker:
        worker.stop()


# -- a database that goes away ----------------------------------------------------------------------


@pytest.fixture
def server_directory() -> Iterator[Path]:
    """Where a server of this test's own lives: not below pytest's directories, which only their owner may enter."""
    with tempfile.TemporaryDirectory(prefix="underseal-flows-") as directory:
        yield Path(directory) / "data"


@flow("steady")
async def steady(ctx: Any, count: int) -> Any:
    """Takes some steps, each of a while, with sleeps in between."""
    done = []

    async def step(place: int) -> int:
        await asyncio.sleep(0.05)
        return place

    for place in range(count):
        done.append(await ctx.run(f"step-{place}", step, place))
        if place % 5 == 4:
            await ctx.sleep(seconds=0.1)
    return done


@pytest.mark.clause("E6a", "E8a")
def test_flows_in_flight_outlive_a_restart_of_the_database(
    server_directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    with embedded_server(server_directory, THROWAWAY) as server:
        install(server, "postgres")
        database = TestDatabase(server, "postgres")
        us = Underseal(database.conninfo_as("underseal_owner"), keys=MemoryKeyRing.with_all())
        us.serve(steady)
        worker = us.worker(lease=timedelta(seconds=5))
        ended = in_background(worker.run)
        started = [us.executions.start("steady", "rita", 40) for _ in range(50)]
        wait_until(lambda: worker.progress.flows.parked > 50, timeout=30)
        database.close_connections()
    time.sleep(1)  # as a restart takes
    with embedded_server(server_directory, THROWAWAY):
        for one in started:
            assert patiently(partial(us.executions.result, one, "rita")) == list(range(40))
        worker.stop()
        ended.result(timeout=60)
        events = [us.executions.events(one, "rita") for one in started]
        us.close()
    for log in events:
        steps = [event.data["name"] for event in log if event.type == "STEP_COMPLETED" and event.data]
        assert steps == [f"step-{place}" for place in range(40)]


def patiently(work: Callable[[], Any]) -> Any:
    """Ask until the database is back."""
    deadline = time.monotonic() + 60
    while True:
        with contextlib.suppress(psycopg.OperationalError):
            return work()
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.clause("E8a")
def test_connections_of_the_worker_that_are_cut_are_replaced(works: Works) -> None:
    with working(works):
        for value in range(3):
            assert works.result(works.start("plain", value)) == [value, value]
            works.admin.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where usename = %s and pid <> pg_backend_pid()",
                [works.login],
            )
            wait_until(partial(attempt, partial(works.start, "plain", value)))


def attempt(work: Callable[[], Any]) -> Any:
    """What it gives, if it works already."""
    try:
        return work()
    except psycopg.OperationalError:
        return None


# -- names ------------------------------------------------------------------------------------------


@pytest.mark.clause("E8a")
@pytest.mark.parametrize("name", [None, "node-1"])
def test_no_two_lives_claim_under_one_name(sync_works: Works, name: str | None) -> None:
    names, inside = set(), []

    async def step(life: int) -> None:
        inside.append(life)
        await asyncio.sleep(0.2)

    @flow("living")
    async def living(ctx: Any, life: int) -> None:
        await ctx.run("step", step, life)

    sync_works.us._worker_name = name
    sync_works.us.serve(living)
    for life in range(2):
        with working(sync_works):
            sync_works.start("living", life)
            wait_until(partial(inside.__contains__, life))
            row = sync_works.admin.execute("select claimed_by from underseal.wake").fetchone()
            assert row is not None
            names.add(row["claimed_by"])
    assert len(names) == 2
    assert all(one.startswith("node-1:") for one in names) is (name is not None)
