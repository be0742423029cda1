"""Who waits long behind another's lock is hit as by a slow call: what had to be renewed meanwhile was not."""

from __future__ import annotations

import pytest

from tests.simulation.staff import tell
from underseal.testing.simulation import CALM, Fault, Node, Plan, Scenario, Simulation, Stage, simulate


@pytest.mark.clause("T2d")
@pytest.mark.parametrize(("seconds", "hit"), [(0.5, {"first#1"}), (3.0, {"first#1", "then#1"})])
def test_a_life_is_hit_by_waiting_long_for_a_lock(stage: Stage, seconds: float, hit: set[str]) -> None:
    runs: list[Simulation] = []

    async def main(node: Node) -> None:
        await tell(node, "select pg_advisory_xact_lock(%s)", [1])

    def build(sim: Simulation) -> None:
        runs.append(sim)
        sim.node("first", main)
        sim.node("then", main, after=0.1)

    plan = Plan(1, (Fault("slow-commit", "first", 1, seconds),), CALM)
    report = simulate(Scenario("waits", build, lambda *_: []), stage, plan)
    assert report.faults == []
    assert runs[0].hit == hit
