"""Flows under everything that goes wrong: they come to what they come to undisturbed, and the books are right."""

from __future__ import annotations

import pytest

from tests.simulation.scenes.messages import MESSAGES
from tests.simulation.scenes.steps import STEPS
from tests.simulation.seeds import check, chunks, soaked
from underseal.testing.simulation import Stage

pytestmark = pytest.mark.clause("T2b")


@pytest.mark.parametrize("seeds", chunks("steps", 40))
def test_steps_are_recorded_once_whatever_happens(stage: Stage, seeds: range) -> None:
    check(STEPS, stage, seeds)


@pytest.mark.parametrize("seeds", chunks("messages", 40))
def test_messages_arrive_once_and_in_order_whatever_happens(stage: Stage, seeds: range) -> None:
    check(MESSAGES, stage, seeds)


test_steps_in_a_long_run = soaked(STEPS)
test_messages_in_a_long_run = soaked(MESSAGES)
