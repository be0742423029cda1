"""Bad weather: calls that take so long that they cost a claim count as something that happened to whoever made them."""

from __future__ import annotations

import pytest

from underseal import MemoryKeyRing
from underseal.testing.simulation import Node, Plan, Scenario, Simulation, Stage, Weather, simulate

pytestmark = pytest.mark.clause("T2b")


@pytest.mark.parametrize(
    ("weather", "hit"),
    [(Weather(0, 60.0, 100), set()), (Weather(100, 0.5, 100), set()), (Weather(100, 60.0, 0), {"a#1"})],
    ids=["calm", "a little late", "very late"],
)
def test_a_life_is_hit_by_calls_that_are_very_late_and_by_no_others(
    stage: Stage, weather: Weather, hit: set[str]
) -> None:
    runs: list[Simulation] = []

    async def main(node: Node) -> None:
        us = node.client(keys=MemoryKeyRing.with_all())
        for _ in range(4):
            await us.executions.list("ann")

    def build(sim: Simulation) -> None:
        runs.append(sim)
        sim.node("a", main)

    report = simulate(Scenario("late", build, lambda *_: []), stage, Plan(1, weather=weather))
    assert report.faults == []
    assert runs[0].hit == hit
