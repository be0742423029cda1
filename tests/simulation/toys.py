"""Nodes that write words into a table: just enough to see what a simulated connection does."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

from underseal.testing.simulation import (
    CALM,
    Fault,
    Node,
    Plan,
    Report,
    Scenario,
    Simulation,
    Stage,
    Weather,
    simulate,
)

Main: TypeAlias = "Callable[[Node], Coroutine[Any, Any, None]]"
Line = tuple[str, str, str]


def play(
    stage: Stage, faults: tuple[Fault, ...] = (), weather: Weather = CALM, seed: int = 1, **mains: Main
) -> Report:
    """Play nodes that write words, with these faults.

    Parameters:
        stage: where.
        faults, weather, seed: the plan.
        mains: what each node does.
    """

    return simulate(toy(nodes(**mains)), stage, Plan(seed, faults, weather))


def nodes(**mains: Main) -> Callable[[Simulation], None]:
    """What `Scenario.build` asks for: these nodes.

    Parameters:
        mains: what each node does.
    """

    def build(simulation: Simulation) -> None:
        for name, main in mains.items():
            simulation.node(name, main)

    return build


def toy(build: Callable[[Simulation], None], **options: Any) -> Scenario:
    """A scenario that nothing is asked of but that it ends."""
    return Scenario("toy", build, lambda *_: [], prepare=prepare, **options)


def prepare(stage: Stage) -> None:
    """An empty table of words."""
    stage.change("create schema if not exists toy")
    stage.change(f"grant usage on schema toy to {stage.login}")
    stage.change("create table if not exists toy.word (word text primary key, n int)")
    stage.change("truncate toy.word")
    stage.change(f"grant select, insert, update on toy.word to {stage.login}")


async def write(node: Node, word: str) -> None:
    """Write a word, in one exchange."""
    await ask(node, "insert into toy.word values (%s, 0)", [word])


async def count(node: Node, word: str) -> None:
    """Count a word once more."""
    await ask(node, "update toy.word set n = n + 1 where word = %s", [word])


async def read(node: Node) -> list[str]:
    """What words there are."""
    return sorted(row[0] for row in await ask(node, "select word from toy.word"))


async def ask(node: Node, statement: str, params: Any = None) -> list[Any]:
    """One statement in a transaction of its own."""
    assert node.pool is not None
    async with node.pool.connection() as connection:
        cursor = await connection.execute(statement, params)
        return await cursor.fetchall() if cursor.description is not None else []


def words(stage: Stage) -> list[tuple[str, int]]:
    """What is in the table at the end: words, and how often they were counted."""
    return [(row["word"], row["n"]) for row in stage.ask("select word, n from toy.word order by word")]


def lines(report: Report, who: str = "") -> list[Line]:
    """The trace without its instants: of one node, or of all."""
    return [
        (one.who, one.what, one.outcome)
        for one in report.trace.entries
        if one.who.partition("#")[0] in (who, "") or not who
    ]
