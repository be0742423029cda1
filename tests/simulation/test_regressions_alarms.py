"""What the simulation has found to be told to operators though it is not so."""

from __future__ import annotations

import pytest

from tests.simulation.scenes.messages import MESSAGES
from underseal.testing.simulation import Fault, Plan, Stage, Weather, simulate


@pytest.mark.clause("E5b")
def test_whoever_has_lost_an_execution_does_not_say_that_its_code_has_diverged(stage: Stage) -> None:
    # a's claim runs out behind locks; it then reads what b wrote since, beside what it began itself
    plan = Plan(141, (Fault("crash-after", "b", 7, 2.327),), Weather(20, 1.0, 50))

    report = simulate(MESSAGES, stage, plan)

    assert report.faults == []
    assert ("a#1", "read_logs m-1") in [(line.who, line.what) for line in report.trace.entries]
    assert not [line for line in report.trace.entries if "has diverged" in line.outcome]
