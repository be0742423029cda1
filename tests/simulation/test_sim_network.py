"""Between a node and the database: on the way there, inside, and on the way back."""

from __future__ import annotations

import asyncio
import os
import subprocess
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from tests.simulation.toys import ask, count, lines, play, read, words, write
from underseal.testing import wait_until
from underseal.testing.simulation import CALM, Fault, Node, Stage, Weather
from underseal.testing.simulation.brake import Brake

GOLDEN = """\
toy, seed 1: nothing is wrong
weather: Weather(late=0, longest=0.0, open=0)
what went wrong on purpose:
  slow-reply of reader at call 1, 2 s

    0.0000  hello#1      begins
    0.0000  reader#1     begins
    0.0015  hello#1      insert into toy.word values (%s, 0) hello
    0.5000  reader#1     SLOW-REPLY                                                   2 s, select word from toy.word
    0.5016  reader#1     select word from toy.word                                    1 row
    1.0036  hello#1      insert into toy.word values (%s, 0) hello                    UniqueViolation 23505
    1.0039  hello#1      ends
    2.5034  reader#1     does saw
    2.5034  reader#1     ends"""


def ours(stage: Stage) -> bool:
    """Whether the server's processes are this machine's and may be stopped, found out in another way than `Brake`'s."""
    (found,) = stage.ask("select pg_backend_pid() as pid")
    try:
        os.kill(found["pid"], 0)
        return Path(f"/proc/{found['pid']}/comm").read_text(encoding="utf-8").startswith("postgres")
    except OSError:
        return False


@pytest.mark.clause("T2a")
def test_a_trace_says_who_did_what_when_and_what_came_of_it(stage: Stage) -> None:
    async def hello(node: Node) -> None:
        await write(node, "hello")
        await asyncio.sleep(1)
        with suppress(psycopg.errors.UniqueViolation):
            await write(node, "hello")

    async def reader(node: Node) -> None:
        await asyncio.sleep(0.5)
        node.simulation.effect("saw", await read(node))

    report = play(stage, (Fault("slow-reply", "reader", 1, 2.0),), hello=hello, reader=reader)

    # The wording of a trace is for people; it is pinned here once so that it stays one that they can read.
    assert str(report) == GOLDEN


@pytest.mark.clause("T2a")
def test_each_exchange_of_a_transaction_is_a_point_where_others_may_go_on(stage: Stage) -> None:
    async def main(node: Node) -> None:
        assert node.pool is not None
        async with node.pool.connection() as connection, connection.transaction():
            await connection.execute("insert into toy.word values (%s, 0)", [node.name])
            await connection.execute("select 1")

    report = play(stage, a=main, b=main)

    assert report.calls == 8
    assert [what for _, what, _ in lines(report, "a")] == [
        "begins", "enter", "insert into toy.word values (%s, 0) a", "select 1", "exit", "ends",
    ]  # fmt: skip
    who = [line[0] for line in lines(report)]
    assert who != sorted(who), "they take turns"


@pytest.mark.clause("T2a")
def test_a_call_takes_time_there_and_back(stage: Stage) -> None:
    seen: list[float] = []

    async def main(node: Node) -> None:
        before = node.simulation.loop.now
        await write(node, "a")
        seen.append(node.simulation.loop.now - before)

    play(stage, (Fault("slow-call", "a", 1, 2.0), Fault("slow-reply", "a", 1, 3.0)), a=main)

    assert 5 < seen[0] < 5.01


@pytest.mark.clause("T2a")
def test_the_database_shows_its_clock_whenever_anything_moves_there(stage: Stage) -> None:
    shown: list[float] = []

    async def main(node: Node) -> None:
        for _ in range(3):
            await asyncio.sleep(10)
            ((at,),) = await ask(node, "select extract(epoch from underseal.clock())::float8")
            shown.append(at - 1_900_000_000)

    play(stage, (Fault("slow-call", "a", 2, 5.0), Fault("database-clock", "", 3, -20.0)), a=main)

    assert [round(one) for one in shown] == [10, 25, 15]


@pytest.mark.clause("T2a")
def test_what_is_not_yet_committed_is_seen_by_nobody(stage: Stage) -> None:
    seen: dict[float, list[str]] = {}

    async def reader(node: Node) -> None:
        for _ in range(4):
            seen[round(node.simulation.loop.now)] = await read(node)
            await asyncio.sleep(1)

    report = play(
        stage,
        (Fault("slow-commit", "writer", 1, 2.5),),
        writer=lambda node: write(node, "late"),
        reader=reader,
    )

    assert seen == {0: [], 1: [], 2: [], 3: ["late"]}
    assert report.faults == []


@pytest.mark.clause("T2d")
def test_whoever_waits_for_a_lock_goes_on_when_its_holder_commits(stage: Stage) -> None:
    async def holder(node: Node) -> None:
        await write(node, "one")
        await count(node, "one")

    async def second(node: Node) -> None:
        await asyncio.sleep(1)
        await count(node, "one")

    report = play(stage, (Fault("slow-commit", "holder", 2, 3.0),), holder=holder, second=second)

    assert words(stage) == [("one", 2)]
    told = "update toy.word set n = n + 1 where word = %s one"
    assert [line for line in lines(report) if line[1] == told] == [
        ("second#1", told, "waits for a lock"),
        ("holder#1", told, ""),
        ("second#1", told, ""),
    ]
    waited = [one.at for one in report.trace.entries if one.who == "second#1" and one.what == told]
    assert 1 < waited[0] < 1.1
    assert 3 < waited[1] < 3.1


@pytest.mark.clause("T2d")
def test_those_who_wait_for_each_other_in_a_row_go_on_in_turn(stage: Stage) -> None:
    if not ours(stage):
        pytest.skip("the server runs elsewhere, or as somebody whose processes we may not stop")

    async def main(node: Node, after: float) -> None:
        await asyncio.sleep(after)
        await count(node, "one")

    async def holder(node: Node) -> None:
        await write(node, "one")
        await count(node, "one")

    for _ in range(10):  # left to themselves, c and d go on in either order
        report = play(
            stage,
            (
                Fault("slow-commit", "a", 2, 3.0),
                Fault("slow-commit", "b", 1, 0.5),
                Fault("slow-commit", "c", 1, 0.5),
            ),
            a=holder,
            b=lambda node: main(node, 1),
            c=lambda node: main(node, 2),
            d=lambda node: main(node, 2.5),
        )

        assert words(stage) == [("one", 4)]
        said = [(who, out) for who, what, out in lines(report) if what.startswith("update")]
        assert said == [
            *[(who, "waits for a lock") for who in ("b#1", "c#1", "d#1")],
            *[(who, "") for who in ("a#1", "b#1", "c#1", "d#1")],
        ]


@pytest.mark.clause("T2c", "T2d")
@pytest.mark.parametrize("seed", range(1, 6))
def test_of_two_who_deadlock_the_one_that_closed_the_circle_is_ended(stage: Stage, seed: int) -> None:
    async def main(node: Node, first: str, second: str, after: float) -> None:
        assert node.pool is not None
        try:
            async with node.pool.connection() as connection, connection.transaction():
                await connection.execute("update toy.word set n = n + 1 where word = %s", [first])
                await asyncio.sleep(after)
                await connection.execute("update toy.word set n = n + 1 where word = %s", [second])
        except psycopg.errors.DeadlockDetected:
            node.simulation.effect("gave up")

    async def early(node: Node) -> None:
        await write(node, "x")
        await write(node, "y")
        await main(node, "x", "y", 2)

    async def late(node: Node) -> None:
        await asyncio.sleep(1)
        await main(node, "y", "x", 2)

    report = play(stage, seed=seed, early=early, late=late)

    assert words(stage) == [("x", 1), ("y", 1)]
    assert [(who, what) for who, what, _ in lines(report) if what.startswith("does")] == [
        ("late#1", "does gave up")
    ]
    assert ("early#1", "update toy.word set n = n + 1 where word = %s y", "waits for a lock") in lines(report)


@pytest.mark.clause("T2b")
def test_what_reached_the_database_goes_on_though_nobody_waits_for_it(stage: Stage) -> None:
    async def main(node: Node) -> None:
        task = asyncio.create_task(write(node, "orphan"))
        await asyncio.sleep(1)
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            node.simulation.effect("cancelled", await read(node))
        await asyncio.sleep(3)

    report = play(stage, (Fault("slow-commit", "a", 1, 2.0),), a=main)

    assert words(stage) == [("orphan", 0)]
    said = [what for _, what, _ in lines(report) if what.startswith(("does", "insert"))]
    assert said == ["does cancelled", "insert into toy.word values (%s, 0) orphan"]


@pytest.mark.clause("T2b")
def test_a_transaction_whose_node_is_killed_ends_and_frees_its_locks(stage: Stage) -> None:
    async def holder(node: Node) -> None:
        assert node.pool is not None
        if node.lives > 1:
            return
        await write(node, "one")
        async with node.pool.connection() as connection, connection.transaction():
            await connection.execute("update toy.word set n = 100 where word = 'one'")
            await asyncio.sleep(2)
            await connection.execute("select 1")

    async def second(node: Node) -> None:
        await asyncio.sleep(1)
        await count(node, "one")
        node.simulation.effect("counted")

    report = play(stage, (Fault("crash-before", "holder", 4, 1.0),), holder=holder, second=second)

    assert words(stage) == [("one", 1)]
    counted = next(one.at for one in report.trace.entries if one.what == "does counted")
    assert 2 < counted < 2.1, "and not only when somebody calls next"


@pytest.mark.clause("T2a")
def test_a_connection_left_in_the_middle_of_a_transaction_is_not_used_again(stage: Stage) -> None:
    async def main(node: Node) -> None:
        assert node.pool is not None
        try:
            async with node.pool.connection() as connection:
                await connection.execute("begin")
                await connection.execute("insert into toy.word values ('gone', 0)")
                raise KeyError
        except KeyError:
            await write(node, "kept")

    play(stage, a=main)

    assert words(stage) == [("kept", 0)]


def test_calm_weather_leaves_nothing_open_and_is_never_late(stage: Stage) -> None:
    async def main(node: Node) -> None:
        for number in range(10):
            await write(node, f"{node.name}{number}")

    calm = play(stage, weather=CALM, a=main, b=main)
    rough = play(stage, weather=Weather(late=50, longest=2.0, open=50), a=main, b=main)

    assert len(words(stage)) == 20
    ended = [max(one.at for one in report.trace.entries if one.what == "ends") for report in (calm, rough)]
    assert ended[0] < 0.1
    assert ended[1] > 1


@pytest.mark.clause("T2d")
def test_nothing_but_a_backend_of_the_database_is_ever_held(stage: Stage) -> None:
    if not ours(stage):
        pytest.skip("the server runs elsewhere, or as somebody whose processes we may not stop")
    (found,) = stage.ask("select pg_backend_pid() as pid, current_database() as name")
    with subprocess.Popen(["sleep", "600"]) as other:
        backend = Brake(found["pid"], found["name"])
        nobody = Brake(2**22 + 1, found["name"])
        sleeper = Brake(other.pid, found["name"])
        other.terminate()

    assert [backend.works, nobody.works, sleeper.works] == [True, False, False]


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="what a process does is read there")
def test_who_is_held_stands_still_until_all_are_let_go(stage: Stage) -> None:
    with subprocess.Popen(["sleep", "600"]) as other:
        (found,) = stage.ask("select pg_backend_pid() as pid, current_database() as name")
        brake = Brake(found["pid"], found["name"])
        brake.works = True
        brake.hold(other.pid)
        wait_until(lambda: _state(other.pid) == "T")
        brake.release_all()
        wait_until(lambda: _state(other.pid) == "S")
        brake.release(other.pid)
        other.terminate()


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
