"""Flows under everything that goes wrong: they come to what they come to undisturbed, and the books are right."""

from __future__ import annotations

import pytest

from tests.simulation.scenes.cancels import CANCELS
from tests.simulation.scenes.families import FAMILIES
from tests.simulation.scenes.mail import MAIL
from tests.simulation.scenes.messages import MESSAGES
from tests.simulation.scenes.relay import RELAY
from tests.simulation.scenes.schedules import SCHEDULES
from tests.simulation.scenes.steps import STEPS
from tests.simulation.scenes.versions import VERSIONS
from tests.simulation.seeds import check, chunks, soaked
from underseal.testing.simulation import Scenario, Stage, simulate

pytestmark = pytest.mark.clause("T2b")


@pytest.mark.parametrize("seeds", chunks("steps", 30))
def test_steps_are_recorded_once_whatever_happens(stage: Stage, seeds: range) -> None:
    check(STEPS, stage, seeds)


@pytest.mark.parametrize("seeds", chunks("messages", 30))
def test_messages_arrive_once_and_in_order_whatever_happens(stage: Stage, seeds: range) -> None:
    check(MESSAGES, stage, seeds)


@pytest.mark.parametrize("seeds", chunks("mail", 20))
def test_no_message_that_comes_as_its_reader_parks_is_overlooked(stage: Stage, seeds: range) -> None:
    check(MAIL, stage, seeds)


@pytest.mark.parametrize("seeds", chunks("relay", 30))
def test_a_rescue_and_the_completion_that_it_races_are_one_result(stage: Stage, seeds: range) -> None:
    check(RELAY, stage, seeds)


@pytest.mark.parametrize("seeds", chunks("families", 30))
def test_families_and_held_operations_tell_each_other_once_whatever_happens(
    stage: Stage, seeds: range
) -> None:
    check(FAMILIES, stage, seeds)


@pytest.mark.parametrize("seeds", chunks("cancels", 30))
def test_what_is_cancelled_ends_once_and_tidied_up_whatever_happens(stage: Stage, seeds: range) -> None:
    check(CANCELS, stage, seeds)


@pytest.mark.parametrize("seeds", chunks("versions", 20))
def test_what_is_migrated_goes_on_as_the_newer_version_whatever_happens(stage: Stage, seeds: range) -> None:
    check(VERSIONS, stage, seeds)


@pytest.mark.parametrize("seeds", chunks("schedules", 20))
def test_schedules_start_each_instant_once_whatever_happens(stage: Stage, seeds: range) -> None:
    check(SCHEDULES, stage, seeds)


test_steps_in_a_long_run = soaked(STEPS)
test_messages_in_a_long_run = soaked(MESSAGES)
test_mail_in_a_long_run = soaked(MAIL)
test_relays_in_a_long_run = soaked(RELAY)
test_families_in_a_long_run = soaked(FAMILIES)
test_cancels_in_a_long_run = soaked(CANCELS)
test_versions_in_a_long_run = soaked(VERSIONS)
test_schedules_in_a_long_run = soaked(SCHEDULES)


@pytest.mark.clause("T2c")
@pytest.mark.parametrize(
    "scenario",
    [STEPS, MESSAGES, MAIL, RELAY, FAMILIES, CANCELS, VERSIONS, SCHEDULES],
    ids=lambda one: one.name,
)
def test_a_seed_gives_the_same_run_again(stage: Stage, scenario: Scenario) -> None:
    first = simulate(scenario, stage, 7)
    rows = stage.digest()
    again = simulate(scenario, stage, 7)
    assert str(again) == str(first)
    assert stage.digest() == rows
