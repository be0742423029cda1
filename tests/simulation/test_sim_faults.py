"""What goes wrong on purpose: each kind of fault does what it says, to whom it says, at the call that it says."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import psycopg
import pytest
from psycopg_pool import PoolTimeout

from tests.simulation.toys import ask, lines, play, read, words, write
from underseal.testing.simulation import CALM, Fault, Node, Plan, Report, Stage


async def three(node: Node) -> None:
    """Write three words; which are there already is asked first, as code must that may be killed."""
    for number in range(1, 4):
        if f"{node.name}{number}" not in await node.patiently(lambda: read(node)):
            await node.patiently(lambda n=number: write(node, f"{node.name}{n}"))  # type: ignore[misc]


async def one(node: Node) -> None:
    """Write one word, and note what one heard of it."""
    try:
        await write(node, node.name)
        node.simulation.effect("heard that it is there")
    except psycopg.OperationalError:
        node.simulation.effect("lost the connection")
        node.simulation.effect("finds", await read(node))


def heard(report: Report, name: str = "a") -> list[tuple[str, object]]:
    """What a node noted."""
    return [(effect.name, effect.value) for effect in report.effects if effect.who.startswith(name)]


@pytest.mark.clause("T2b")
def test_a_node_that_crashes_before_its_call_has_done_nothing_and_begins_again(stage: Stage) -> None:
    async def main(node: Node) -> None:
        try:
            if node.lives == 1:
                await write(node, "first")
        finally:
            node.simulation.effect(f"ends life {node.lives}")
            await write(node, f"finally {node.lives}")

    report = play(stage, (Fault("crash-before", "a", 1, 3.0),), a=main)

    assert words(stage) == [("finally 2", 0)]
    assert heard(report) == [("ends life 2", None)]
    began = [(line.who, line.at) for line in report.trace.entries if line.what == "begins"]
    assert began == [("a#1", 0.0), ("a#2", 3.0)]


@pytest.mark.clause("T2b")
def test_a_node_that_crashes_after_its_call_never_learns_that_it_was_carried_out(stage: Stage) -> None:
    async def main(node: Node) -> None:
        if node.lives == 1:
            await one(node)
        else:
            node.simulation.effect("finds", await read(node))

    report = play(stage, (Fault("crash-after", "a", 1, 3.0),), a=main)

    assert heard(report) == [("finds", ["a"])]
    assert [what for who, what, _ in lines(report) if who == "a#1"][-1] == "is killed"


@pytest.mark.clause("T2b")
@pytest.mark.parametrize(("kind", "there"), [("lost-call", []), ("lost-reply", ["a"])])
def test_whoever_loses_a_call_or_a_reply_cannot_tell_which(stage: Stage, kind: str, there: list[str]) -> None:
    report = play(stage, (Fault(kind, "a", 1),), a=one)  # type: ignore[arg-type]

    assert heard(report) == [("lost the connection", None), ("finds", there)]


@pytest.mark.clause("T2b")
def test_a_fault_hits_the_call_that_it_names_and_no_other(stage: Stage) -> None:
    for call in range(1, 7):
        report = play(stage, (Fault("lost-reply", "a", call),), a=three, b=three)

        calls = [line for line in lines(report, "a") if line[1].startswith(("insert", "select"))]
        lost = [place for place, line in enumerate(calls, 1) if line[2] == "its reply is lost"]
        assert lost == [call + 1], "said right after the call itself"
        assert not [line for line in lines(report, "b") if "lost" in line[2]]


@pytest.mark.clause("T2b")
def test_a_fault_that_no_call_reaches_changes_nothing(stage: Stage) -> None:
    calm = play(stage, a=three, b=three)
    late = play(
        stage, (Fault("crash-before", "a", 100, 1.0), Fault("stall", "none", 1, 1.0)), a=three, b=three
    )

    assert calm.trace.digest == late.trace.digest


@pytest.mark.clause("T2b")
def test_a_node_that_stands_still_gets_its_replies_late(stage: Stage) -> None:
    ticks: list[float] = []

    async def main(node: Node) -> None:
        async def tick() -> None:
            while True:
                await asyncio.sleep(0.5)
                ticks.append(node.simulation.loop.now)

        task = asyncio.create_task(tick())
        await asyncio.sleep(1.1)
        await write(node, "a")
        node.simulation.effect("heard", round(node.simulation.loop.now, 1))
        await asyncio.sleep(1)
        task.cancel()

    report = play(stage, (Fault("stall", "a", 1, 4.0),), a=main)

    assert heard(report) == [("heard", 5.1)]
    assert [round(at, 1) for at in ticks] == [0.5, 1.0, 5.1, 5.6]
    done = next(line for line in report.trace.entries if line.what.startswith("insert"))
    assert done.at < 1.2, "what was on its way goes on"


@pytest.mark.clause("T2b")
def test_a_node_cut_off_reaches_nothing_and_the_others_do(stage: Stage) -> None:
    async def main(node: Node) -> None:
        for _ in range(8):
            await asyncio.sleep(1)
            try:
                await read(node)
                node.simulation.effect("reached", round(node.simulation.loop.now))
            except (psycopg.OperationalError, PoolTimeout) as error:
                node.simulation.effect(type(error).__name__, round(node.simulation.loop.now))

    report = play(stage, (Fault("partition", "a", 2, 7.0),), a=main, b=main)

    # the call under way fails; then no connection is had for 4 s; then one is, as soon as the way is free
    assert heard(report) == [
        ("reached", 1),
        ("OperationalError", 2),
        ("PoolTimeout", 7),
        ("reached", 9),
        *[("reached", at) for at in range(10, 14)],
    ]
    assert heard(report, "b") == [("reached", at) for at in range(1, 9)]


@pytest.mark.clause("T2b")
def test_the_clocks_of_a_node_and_of_the_database_are_set_apart_from_each_other(stage: Stage) -> None:
    async def main(node: Node) -> None:
        for _ in range(3):
            ((at,),) = await ask(node, "select extract(epoch from underseal.clock())::float8")
            shown = round(at - 1_900_000_000), round(asyncio.get_running_loop().time()) % 1000
            node.simulation.effect("shown", shown)
            await asyncio.sleep(10)

    report = play(
        stage, (Fault("node-clock", "a", 2, 100.0), Fault("database-clock", "", 5, -5.0)), a=main, b=main
    )

    assert [value for _, value in heard(report)] == [(0, 0), (10, 110), (15, 120)]
    assert [value for _, value in heard(report, "b")] == [(0, 0), (10, 10), (15, 20)]


@pytest.mark.clause("T2b")
def test_a_restart_of_the_database_ends_what_is_not_committed(stage: Stage) -> None:
    async def holder(node: Node) -> None:
        assert node.pool is not None
        async with node.pool.connection() as connection:
            await connection.execute("insert into toy.word values ('committed', 0)")
        try:
            async with node.pool.connection() as connection, connection.transaction():
                await connection.execute("insert into toy.word values ('open', 0)")
                await asyncio.sleep(5)
                await connection.execute("select 1")
        except psycopg.OperationalError:
            node.simulation.effect("lost the connection", round(node.simulation.loop.now))

    async def waiter(node: Node) -> None:
        await asyncio.sleep(0.5)
        try:
            await write(node, "open")
            node.simulation.effect("wrote")
        except psycopg.OperationalError:
            node.simulation.effect("lost the connection", round(node.simulation.loop.now))

    async def other(node: Node) -> None:
        await asyncio.sleep(1)
        try:
            await read(node)
        except psycopg.OperationalError:
            node.simulation.effect("finds", await read(node))
            node.simulation.effect("by then", round(node.simulation.loop.now))

    report = play(stage, (Fault("database-restart", "", 5, 2.0),), a=holder, b=waiter, c=other)

    assert words(stage) == [("committed", 0)]
    assert ("b#1", "insert into toy.word values (%s, 0) open", "is cut off") in lines(report)
    assert heard(report, "b") == [("lost the connection", 1)], "the holder's end does not let it go on"
    assert heard(report, "a") == [("lost the connection", 5)]
    assert heard(report, "c") == [("finds", ["committed"]), ("by then", 3)]


@pytest.mark.clause("T2b")
def test_when_it_is_calm_nothing_goes_wrong_any_more(stage: Stage) -> None:
    async def main(node: Node) -> None:
        await asyncio.sleep(41)
        await write(node, "a")

    report = play(stage, (Fault("crash-before", "a", 1, 3.0),), a=main)

    assert words(stage) == [("a", 0)]
    assert not [what for _, what, _ in lines(report) if what == "CRASH-BEFORE"]


def test_a_node_that_ends_by_an_error_of_its_own_is_a_finding_and_begins_again(stage: Stage) -> None:
    async def main(node: Node) -> None:
        if node.lives == 1:
            raise KeyError("mine")
        if node.lives == 2:
            raise psycopg.OperationalError("the database is away")

    report = play(stage, a=main)

    assert report.faults == ["a#1 ended with KeyError: 'mine'"]
    assert [who for who, what, _ in lines(report) if what == "begins"] == ["a#1", "a#2", "a#3"]


@pytest.mark.clause("T2c")
def test_an_error_in_a_task_that_nobody_waits_for_is_a_finding(stage: Stage) -> None:
    async def fails() -> None:
        raise KeyError("mine")

    async def main(node: Node) -> None:
        task = asyncio.create_task(fails())
        await asyncio.sleep(1)
        del task

    report = play(stage, a=main)

    assert report.faults == ["a#1 left an error that nobody waited for: KeyError: 'mine'"]


def test_plans_are_python_that_can_be_pasted_into_a_test() -> None:
    drawn = [Plan.draw(seed, ["a", "b"], calls=80, most=6, longest=6.0) for seed in range(50)]
    drawn.append(Plan(7, (), CALM, frozenset(["b", "a"])))

    from underseal.testing.simulation import Weather

    known = {"Plan": Plan, "Fault": Fault, "Weather": Weather}
    assert [eval(repr(plan), known) for plan in drawn] == drawn
    assert (
        repr(drawn[-1]) == "Plan(7, (), Weather(late=0, longest=0.0, open=0), without=frozenset(['a', 'b']))"
    )
    assert {len(plan.faults) for plan in drawn} == set(range(7))


@pytest.mark.parametrize(
    ("kind", "node", "said"),
    [
        ("explosion", "a", "expected a kind of fault, found 'explosion'"),
        ("database-clock", "a", "expected database-clock to have no node"),
        ("stall", "", "expected stall to have a node"),
    ],
)
def test_a_fault_that_no_simulation_knows_is_refused(kind: str, node: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Fault(kind, node, 1, 1.0)  # type: ignore[arg-type]


def test_nothing_here_takes_as_long_as_it_says(stage: Stage) -> None:
    report = play(stage, a=lambda node: asyncio.sleep(timedelta(minutes=3).total_seconds()))

    assert report.seconds >= 180
