"""The worker: what it runs, what it ends, how it stops, what it survives."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.held.python.test_sql_provider import Bank
from tests.held.python.worlds import REQUESTER, PayoutParams, PayoutSend, Service, World
from underseal import FileKeyRing, MemoryKeyRing, Principal, Underseal, Worker, restricted
from underseal.foundation.server import THROWAWAY, embedded_server
from underseal.held import kernel
from underseal.held.pace import Pace
from underseal.seal import PURPOSES
from underseal.testing import DictConnection, TestClock, TestDatabase, in_background, install, wait_until

SOON = timedelta(milliseconds=20)


@contextmanager
def working(world: World, client: Any = None, **options: Any) -> Iterator[Worker]:
    """A worker that is stopped at the end, whose end is waited for."""
    options = {"poll_every": SOON, "idle_poll_every": SOON, "grace": timedelta(seconds=20), **options}
    client = client or world.us
    worker: Worker = client.worker(**options)
    if world.loop is None:
        ended: Any = in_background(worker.run)
    else:
        ended = asyncio.run_coroutine_threadsafe(worker.serve(), world.loop.loop)
    try:
        yield worker
    finally:
        worker.stop()
        ended.result(timeout=60)


def state(world: World, held: Any) -> str:
    """The state of an operation."""
    return str(world.row(held)["state"])


@pytest.mark.clause("H5.3a", "H5.2b", "H7.1")
def test_it_runs_what_nobody_started(world: World) -> None:
    held = [world.approved(cents) for cents in (1, 2, 3)]
    with working(world):
        wait_until(lambda: {state(world, one) for one in held} == {"SUCCEEDED"})
    assert sorted(params.cents for _, _, params in world.service.done) == [1, 2, 3]


@pytest.mark.clause("H5.3a")
def test_it_runs_what_is_approved_meanwhile(world: World) -> None:
    with working(world):
        held = world.approved()
        wait_until(lambda: state(world, held) == "SUCCEEDED")


def test_it_runs_no_more_at_once_than_it_is_told(world: World) -> None:
    gate, now, most = threading.Semaphore(0), [0], [0]
    lock = threading.Lock()

    def body(principal: Principal, params: Any) -> None:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        assert gate.acquire(timeout=20)
        with lock:
            now[0] -= 1

    world.service.body = body
    held = [world.approved(cents) for cents in (1, 2, 3, 4)]
    with working(world, concurrency=2):
        wait_until(lambda: now[0] == 2)
        for _ in held:
            gate.release()
        wait_until(lambda: {state(world, one) for one in held} == {"SUCCEEDED"})
    assert most[0] == 2


def test_it_runs_sql_functions_too(world: World) -> None:
    bank = Bank(world)
    held = bank.approved()
    with working(world):
        wait_until(lambda: state(world, held) == "SUCCEEDED")
    assert bank.closed() == [1]


@pytest.mark.clause("H7.2e")
def test_it_leaves_by_requester_alone(world: World) -> None:
    held = world.issue(REQUESTER, {"name": "ci", "password": "hunter2"})
    world.approve(held)
    other = world.approved()
    with working(world):
        wait_until(lambda: state(world, other) == "SUCCEEDED")
    assert state(world, held) == "APPROVED"


@pytest.mark.clause("H5.4", "H8.2a", "H8.2b")
def test_it_ends_what_time_has_ended(world: World, clock: TestClock) -> None:
    expired, missed, lost = world.hold(1), world.approved(2), world.approved(3)
    core = world.us._core
    rows = world.owner.execute(
        "select * from underseal.claim_runs('gone', %s, %s, %s, 1, %s)",
        [["payout.send"], [1], core.key_ids(), lost.operation_id],
    ).fetchall()
    assert rows[0]["outcome"] == "claimed"
    clock.advance(minutes=61)
    with working(world):
        wait_until(
            lambda: (
                [state(world, one) for one in (expired, missed, lost)]
                == ["EXPIRED", "EXPIRED", "OUTCOME_UNKNOWN"]
            )
        )
    assert world.service.done == []


@pytest.mark.clause("H5.3b", "H5.1c")
def test_two_workers_share_the_work(world: World) -> None:
    held = [world.approved(cents) for cents in range(1, 9)]
    other = world.client()
    world.gate(other, PayoutSend(world.service))
    with working(world), working(world, other):
        wait_until(lambda: {state(world, one) for one in held} == {"SUCCEEDED"})
    assert sorted(params.cents for _, _, params in world.service.done) == list(range(1, 9))
    other.close()


@pytest.mark.clause("H5.5c", "H5.5d")
def test_it_reports_what_it_cannot_run(world: World, caplog: pytest.LogCaptureFixture) -> None:
    held = world.approved()
    bare = world.client(keys=MemoryKeyRing.with_all())
    world.gate(bare, PayoutSend(world.service))
    with caplog.at_level(logging.WARNING, "underseal.worker"), working(world, bare):
        wait_until(lambda: str(held.operation_id) in caplog.text)
    assert state(world, held) == "APPROVED"
    bare.close()


@pytest.mark.clause("H8.2c")
def test_a_run_may_end_within_the_grace(world: World) -> None:
    inside, go = threading.Event(), threading.Event()

    def body(principal: Principal, params: Any) -> str:
        inside.set()
        assert go.wait(20)
        return "done"

    world.service.body = body
    held, waiting = world.approved(1), world.approved(2)
    world.edit(waiting, run_deadline=world.row(waiting)["run_deadline"] + timedelta(seconds=30))
    with working(world, concurrency=1) as worker:
        assert inside.wait(20)
        worker.stop()
        go.set()
    assert (world.row(held)["state"], world.row(held)["result"]) == ("SUCCEEDED", "done")
    assert state(world, waiting) == "APPROVED"


@pytest.mark.clause("H8.2c", "H8.2b")
def test_a_run_that_outlasts_the_grace_ends_unknown(world: World) -> None:
    inside, go = threading.Event(), threading.Event()

    def body(principal: Principal, params: Any) -> None:
        inside.set()
        go.wait(20)

    world.service.body = body
    held = world.approved()
    with working(world, grace=SOON) as worker:
        assert inside.wait(20)
        worker.stop()
        wait_until(lambda: state(world, held) == "OUTCOME_UNKNOWN")
    assert world.row(held)["outcome_reason"] == "interrupted"
    go.set()
    wait_until(lambda: world.us._core.runs == {})
    assert state(world, held) == "OUTCOME_UNKNOWN"


@pytest.mark.clause("H2.11d")
@pytest.mark.parametrize("purpose", ["payload", "decision", "fingerprint"])
def test_it_says_which_key_it_lacks(
    sync_world: World, caplog: pytest.LogCaptureFixture, purpose: Any
) -> None:
    others: list[Any] = [one for one in PURPOSES if one != purpose]
    lacking = sync_world.client(keys=restricted(sync_world.ring, others))
    with caplog.at_level(logging.WARNING, "underseal.worker"), working(sync_world, lacking):
        wait_until(lambda: f"has no {purpose} key" in caplog.text)
    assert all(f"has no {one} key" not in caplog.text for one in others)
    lacking.close()


def test_one_failed_look_ends_no_worker(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep, calls = kernel.sweep_operations, []

    def broken(*args: Any) -> Any:
        calls.append(args)
        if len(calls) < 3:
            raise RuntimeError("this look failed")
        return sweep(*args)

    monkeypatch.setattr(kernel, "sweep_operations", broken)
    held = world.approved()
    with working(world):
        wait_until(lambda: state(world, held) == "SUCCEEDED" and len(calls) >= 3)


def test_one_failed_run_ends_no_worker(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    issue, calls = kernel.issue_ticket, []

    def broken(*args: Any) -> Any:
        calls.append(args)
        if len(calls) == 1:
            raise SystemError("a bug")
        return issue(*args)

    monkeypatch.setattr(kernel, "issue_ticket", broken)
    first, second = world.approved(1), world.approved(2)
    with working(world, concurrency=1):
        wait_until(lambda: {state(world, one) for one in (first, second)} == {"SUCCEEDED", "FAILED"})


def test_connections_that_are_cut_are_replaced(world: World) -> None:
    with working(world):
        held = world.approved(1)
        wait_until(lambda: state(world, held) == "SUCCEEDED")
        world.admin.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where usename = %s", [world.login]
        )
        held = world.approved(2)
        wait_until(lambda: state(world, held) == "SUCCEEDED")


def test_a_pace_is_short_with_work_and_long_without() -> None:
    pace = Pace(0.5, 4.0)
    assert [pace.idled(), pace.idled(), pace.idled(), pace.idled()] == [1.0, 2.0, 4.0, 4.0]
    assert pace.worked() == 0.5
    assert [pace.failed(), pace.failed()] == [1.0, 2.0]


def test_a_worker_without_principals_only_sweeps(world: World) -> None:
    held, expired = world.approved(1), world.hold(2)
    world.edit(expired, expires_at="2020-01-01T00:00:00Z")
    sweeper = world.client(principals=None)
    with working(world, sweeper):
        wait_until(lambda: state(world, expired) == "EXPIRED")
    assert state(world, held) == "APPROVED"
    sweeper.close()


# -- processes and servers --------------------------------------------------------------------------

PROGRAM = """
import sys, time
from datetime import timedelta
from pathlib import Path
from tests.held.python.worlds import PayoutSend, Service
from underseal import FileKeyRing, Underseal
conninfo, keys, seconds, grace = sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])
service = Service()
us = Underseal(conninfo, keys=FileKeyRing(keys), principals=service.principal)
def send(principal, params):
    print("inside", flush=True)
    time.sleep(seconds)
us.gate(PayoutSend(service))(send)
soon = timedelta(milliseconds=20)
us.worker(poll_every=soon, idle_poll_every=soon, grace=timedelta(seconds=grace)).run()
print("ended", flush=True)
"""


def start(world: World, keys: Path, seconds: float, grace: float) -> subprocess.Popen[str]:
    """A worker process whose runs take so many seconds."""
    root = Path(__file__).parents[3]
    conninfo = world.database.conninfo_as(world.login)
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, conninfo, str(keys), str(seconds), str(grace)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=root,
        env={**os.environ, "PYTHONPATH": f"{root / 'pylib'}:{root}"},
    )


def next_line(process: subprocess.Popen[str]) -> str:
    """What it says next, before long."""
    assert process.stdout is not None
    return in_background(process.stdout.readline).result(timeout=60)


@pytest.fixture
def file_ring(tmp_path: Path) -> FileKeyRing:
    """A ring that another process can read."""
    ring = FileKeyRing(tmp_path / "keys")
    for purpose in ("payload", "decision", "fingerprint"):
        ring.generate(purpose)
    return ring


@pytest.mark.clause("H8.2c")
@pytest.mark.parametrize(
    ("seconds", "grace", "end", "number"),
    [
        (0.3, 20, "SUCCEEDED", signal.SIGTERM), (600, 0.1, "OUTCOME_UNKNOWN", signal.SIGTERM),
        (0.3, 20, "SUCCEEDED", signal.SIGINT),
    ],
)  # fmt: skip
def test_a_signal_stops_it(
    make_sync_world: Callable[..., World], file_ring: FileKeyRing, tmp_path: Path, seconds: float, grace: float,
    end: str, number: signal.Signals,
) -> None:  # fmt: skip
    world = make_sync_world(keys=file_ring)
    held = world.approved()
    process = start(world, tmp_path / "keys", seconds, grace)
    try:
        assert next_line(process) == "inside\n"
        process.send_signal(number)
        assert process.wait(30) == 0
        assert next_line(process) == "ended\n"
    finally:
        process.kill()
        process.communicate()
    assert state(world, held) == end


@pytest.mark.clause("H8.2a", "H8.2b")
def test_a_worker_that_is_killed_leaves_an_outcome_unknown(
    make_sync_world: Callable[..., World], file_ring: FileKeyRing, tmp_path: Path, clock: TestClock
) -> None:
    world = make_sync_world(keys=file_ring)
    held = world.approved()
    process = start(world, tmp_path / "keys", 600, 20)
    try:
        assert next_line(process) == "inside\n"
    finally:
        process.kill()
        process.communicate()
    assert (state(world, held), world.us.run_approved(), world.us.sweep()) == ("EXECUTING", [], [])
    clock.advance(minutes=16)
    assert [one.outcome for one in world.us.sweep()] == ["outcome-unknown"]
    assert "Ask again" in world.row(held)["outcome_detail"]
    assert world.us.run_approved() == []
    assert world.service.done == []


@pytest.fixture
def server_directory() -> Iterator[Path]:
    """Where a server of this test's own lives: not below pytest's directories, which only their owner may enter."""
    with tempfile.TemporaryDirectory(prefix="underseal-restart-") as directory:
        yield Path(directory) / "data"


def test_it_survives_a_restart_of_the_database(server_directory: Path) -> None:
    with embedded_server(server_directory, THROWAWAY) as server:
        install(server, "postgres")
        database = TestDatabase(server, "postgres")
        owner: DictConnection = database.connect("underseal_owner")
        service = Service()
        us = Underseal(
            database.conninfo_as("underseal_owner"), keys=MemoryKeyRing.with_all(), principals=service.principal,
            run_on_approval=False,
        )  # fmt: skip
        send = us.gate(PayoutSend(service))(
            lambda principal, params: service.act("payout.send", principal, params)
        )
        us.register(connection=owner)
        worker = us.worker(poll_every=SOON, idle_poll_every=timedelta(milliseconds=100))
        ended = in_background(worker.run)
        hold(us, send, 1)
        wait_until(lambda: len(service.done) == 1, timeout=20)
        database.close_connections()
    with embedded_server(server_directory, THROWAWAY):
        wait_until(lambda: attempt(lambda: hold(us, send, 2)), timeout=30)
        wait_until(lambda: len(service.done) == 2, timeout=30)
        worker.stop()
        ended.result(timeout=60)
        us.close()


def hold(us: Underseal, send: Any, cents: int) -> bool:
    """Hold and approve a payout."""
    shown = us.get(send(REQUESTER, PayoutParams(order="o-1", cents=cents)), "ann")
    assert shown is not None
    return us.approve(shown, "ann").outcome == "approved"


def attempt(work: Callable[[], bool]) -> bool:
    """Whether it works already."""
    try:
        return work()
    except psycopg.OperationalError:
        return False
