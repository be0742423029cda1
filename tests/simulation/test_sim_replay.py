"""The same plan is the same run again: in any process, after any other run, down to the last random byte."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.simulation.operations import PAYOUTS
from tests.simulation.replayed import digests
from tests.simulation.seeds import check, chunks, soaked
from tests.simulation.toys import count, nodes, prepare, toy, words, write
from underseal import MemoryKeyRing
from underseal.foundation.server import Server
from underseal.seal.entropy import random_bytes
from underseal.testing import TestDatabase
from underseal.testing.simulation import (
    CALM,
    Fault,
    Node,
    Plan,
    Scenario,
    Simulation,
    Stage,
    Weather,
    shrink,
    simulate,
)

ROOT = Path(__file__).parents[2]
SEEDS = [3, 11]
DRAWN = {
    "ids": "select operation_id as drawn from underseal.held_operation",
    "salts": "select sealed_decision ->> 'salt' as drawn from underseal.held_vote",
    "IVs": "select sealed_decision ->> 'iv' as drawn from underseal.held_vote",
    "tickets": "select ticket_hash as drawn from underseal.replay_ticket",
    "the database's own ids": "select request_audit_id as drawn from underseal.held_operation",
}


@pytest.mark.clause("T2c")
def test_a_seed_gives_the_same_trace_and_tables_in_another_process_with_another_order_of_hashes(
    stage: Stage, database: TestDatabase, postgres: Server
) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "tests.simulation.replayed", json.dumps(asdict(postgres)), database.name]
        + [str(seed) for seed in reversed(SEEDS)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'pylib'}:{ROOT}", "PYTHONHASHSEED": "4711"},
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        here = digests(stage, SEEDS)
        assert other.stdout is not None
        there = json.loads(other.stdout.read())

    assert sorted(there) == sorted(here)
    assert len({trace for _, _, trace, _ in here}) == len(here), "and each seed another"


@pytest.mark.clause("T2c")
def test_ids_salts_ivs_and_tickets_come_from_the_seed(stage: Stage) -> None:
    def drawn(seed: int) -> dict[str, set[str]]:
        simulate(PAYOUTS, stage, Plan(seed, weather=CALM))
        return {what: {str(row["drawn"]) for row in stage.ask(query)} for what, query in DRAWN.items()}

    first, other, again = drawn(1), drawn(2), drawn(1)

    assert again == first
    for what in DRAWN:
        assert first[what], what
        assert first[what].isdisjoint(other[what]), what


def test_random_bytes_are_those_of_the_seed_while_a_run_lasts_and_no_longer(stage: Stage) -> None:
    found: list[bytes] = []

    async def main(node: Node) -> None:
        found.append(random_bytes(16))

    scenario = toy(nodes(a=main))
    for seed in (1, 1, 2):
        simulate(scenario, stage, Plan(seed))

    assert found[0] == found[1] != found[2]
    assert random_bytes(16) not in found


async def careless(node: Node) -> None:
    """Count a word, and once more whenever it is not known whether it was counted."""
    await node.patiently(lambda: count(node, "word"))


def _careless(simulation: Simulation) -> None:
    async def first(node: Node) -> None:
        if node.lives == 1:
            await write(node, "word")

    simulation.node("first", first)
    simulation.node("a", careless, after=0.5)
    simulation.node("b", careless, after=0.5)
    simulation.node("c", careless, after=0.7)


def _counted_once(simulation: Simulation, stage: Stage) -> list[str]:
    nodes = sum(name not in simulation.plan.without for name in "abc")
    (found,) = [times for _, times in words(stage)] or [0]
    return [] if found <= nodes else [f"expected at most {nodes} counts, found {found}"]


CARELESS = Scenario(
    "careless", _careless, _counted_once, prepare=prepare, nodes=("a", "b", "c"), optional=("a", "b", "c")
)
FAILS = Plan(
    5,
    (
        Fault("stall", "a", 1, 2.0),
        Fault("lost-call", "a", 1),
        Fault("slow-commit", "c", 1, 0.5),
        Fault("lost-reply", "b", 1),
        Fault("node-clock", "c", 1, -3.0),
        Fault("database-restart", "", 9, 1.0),
    ),
    Weather(20, 1.0, 50),
)


@pytest.mark.clause("T2c")
def test_a_plan_shrinks_to_the_one_fault_that_matters(stage: Stage) -> None:
    assert simulate(CARELESS, stage, FAILS).faults == ["expected at most 3 counts, found 4"]

    smallest = shrink(CARELESS, stage, FAILS)

    assert smallest.plan == Plan(5, (Fault("lost-reply", "b", 1),), CALM, frozenset("ac"))
    assert smallest.faults == ["expected at most 1 counts, found 2"]


def test_whoever_plays_many_seeds_is_told_the_smallest_plan_and_how_to_see_it_again(stage: Stage) -> None:
    failing = next(seed for seed in range(1, 200) if simulate(CARELESS, stage, seed).faults)

    with pytest.raises(pytest.fail.Exception) as told:
        check(CARELESS, stage, range(1, 200))

    text = str(told.value)
    assert text.startswith(
        f"careless, seed {failing}: 1 thing is wrong\n  expected at most 1 counts, found 2\n"
    )
    assert "its reply is lost" in text
    assert f"\nPlan({failing}, (\n    Fault(kind='" in text
    assert text.endswith(
        f"UNDERSEAL_SIM_SEED={failing} .venv/bin/pytest -n 0 -m 'soak or not soak' tests/simulation/test_sim_replay.py"
        "::test_whoever_plays_many_seeds_is_told_the_smallest_plan_and_how_to_see_it_again"
    )


def test_seeds_come_in_chunks_that_the_environment_may_change(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(count: int) -> list[tuple[str, range]]:
        return [(one.id, one.values[0]) for one in chunks("toy", count)]  # type: ignore[attr-defined]

    for name in ("UNDERSEAL_SIM_SEED", "UNDERSEAL_SIM_SEEDS", "UNDERSEAL_SIM_FROM"):
        monkeypatch.delenv(name, raising=False)
    assert found(21) == [
        ("toy-1-10", range(1, 11)), ("toy-11-20", range(11, 21)), ("toy-21", range(21, 22))
    ]  # fmt: skip
    monkeypatch.setenv("UNDERSEAL_SIM_SEEDS", "5")
    monkeypatch.setenv("UNDERSEAL_SIM_FROM", "100")
    assert found(21) == [("toy-100-104", range(100, 105))]
    monkeypatch.setenv("UNDERSEAL_SIM_SEED", "17")
    assert found(21) == [("toy-17", range(17, 18))]
    marks = {mark.name for mark in soaked(CARELESS).pytestmark}  # type: ignore[attr-defined]
    assert marks == {"soak", "parametrize"}


@pytest.mark.clause("T2a")
def test_a_run_that_never_comes_to_rest_is_told(stage: Stage) -> None:
    async def sleeps(node: Node) -> None:
        await node.patiently(lambda: write(node, "word"))
        await node.simulation.loop.create_future()

    async def start(node: Node) -> None:
        us = node.client(keys=MemoryKeyRing.with_all())
        await us.executions.start("orphan", "ann", None, execution_id="o")

    endless = toy(nodes(a=sleeps), at_most=30.0)
    unserved = toy(nodes(a=start), at_most=30.0)

    assert simulate(endless, stage, Plan(1)).faults == [
        "expected rest after 30 s, found that a had not ended"
    ]
    assert simulate(unserved, stage, Plan(1)).faults == [
        "expected rest after 30 s, found that there were 1 executions under way, 1 wakes due"
    ]


def test_warnings_are_in_the_trace_and_nowhere_else(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    async def main(node: Node) -> None:
        logging.getLogger("underseal.flow").warning("something is %s", "odd")
        logging.getLogger("underseal.flow").info("nothing is")

    scenario = toy(nodes(a=main))
    report = simulate(scenario, stage, Plan(1, weather=CALM))
    logging.getLogger("underseal.flow").warning("after it")

    said = [(line.who, line.what, line.outcome) for line in report.trace.entries if "logs" in line.what]
    assert said == [("a#1", "logs warning", "something is odd")]
    assert caplog.messages == ["after it"]


@pytest.mark.clause("T2c")
def test_what_the_dead_do_when_they_are_cleared_away_is_not_heard(stage: Stage) -> None:
    async def main(node: Node) -> None:
        life = node.lives
        try:
            await write(node, f"life {life}")
        finally:
            if life == 1:
                node.simulation.effect("a finally block")
                node.simulation.wrong("a finally block")
                logging.getLogger("underseal.flow").warning("a finally block")

    scenario = toy(nodes(a=main))
    report = simulate(scenario, stage, Plan(1, (Fault("crash-after", "a", 1, 1.0),), CALM))

    assert words(stage) == [("life 1", 0), ("life 2", 0)]
    assert report.faults == []
    assert report.effects == []
    assert "finally" not in str(report.trace)
