"""What the simulation of flows has found, each as the smallest plan that showed it."""

from __future__ import annotations

import pytest

from tests.simulation.scenes.messages import MESSAGES
from underseal.testing.simulation import Fault, Plan, Scenario, Stage, Weather, simulate

pytestmark = pytest.mark.clause("T2b")

PLANS = {
    # a park that was answered at once put back the claim that it had read before a renewal (see tests/races, too)
    "a renewal is undone by a park": (
        MESSAGES,
        Plan(
            30078,
            (
                Fault("crash-after", "other", 4, 0.042),
                Fault("slow-commit", "a", 9, 1.26),
                Fault("stall", "a", 56, 1.681),
            ),
            Weather(20, 1.0, 50),
        ),
    ),
}


@pytest.mark.parametrize("name", PLANS)
def test_what_was_found_once_is_not_found_again(stage: Stage, name: str) -> None:
    scenario: Scenario
    scenario, plan = PLANS[name]
    assert simulate(scenario, stage, plan).faults == []
