"""Held operations under whatever goes wrong: each seed is another order of things, and other faults.

What must hold is in `office_audit` and in the audit of runs: a body runs at most once for each operation, over all
processes; only from an approval by enough people who may; as the requester and with what was sealed; a run whose
process died is told as unknown; and everything comes to rest.
"""

from __future__ import annotations

from typing import Final

import pytest

from tests.simulation.operations import PAYOUTS, REQUESTERS, RUNNERS, SQL, SWEEPS, SWITCHES
from tests.simulation.seeds import check, chunks, soaked
from underseal.testing.simulation import Stage

SEEDS: Final = 20


@pytest.mark.clause("T2b", "H4.2a", "H4.2c", "H5.1c", "H8.1b", "H8.2b", "H8.3a")
@pytest.mark.parametrize("seeds", chunks("payouts", SEEDS))
def test_payouts_are_run_once_by_who_claimed_them_or_told_as_unknown(stage: Stage, seeds: range) -> None:
    check(PAYOUTS, stage, seeds)


@pytest.mark.clause("T2b", "H5.1a", "H8.3a", "H8.3b")
@pytest.mark.parametrize("seeds", chunks("runners", SEEDS))
def test_of_many_who_run_what_they_see_approved_one_does(stage: Stage, seeds: range) -> None:
    check(RUNNERS, stage, seeds)


@pytest.mark.clause("T2b", "H7.2a", "H7.2d", "H7.2e", "H7.3b")
@pytest.mark.parametrize("seeds", chunks("requesters", SEEDS))
def test_cards_are_given_to_their_own_requesters_call_once(stage: Stage, seeds: range) -> None:
    check(REQUESTERS, stage, seeds)


@pytest.mark.clause("T2b", "H6.10b", "H6.10g")
@pytest.mark.parametrize("seeds", chunks("sql", SEEDS))
def test_what_sql_functions_do_is_there_with_its_end_or_not_at_all(stage: Stage, seeds: range) -> None:
    check(SQL, stage, seeds)


@pytest.mark.clause("T2b", "H3.7a", "H3.7b", "H4.2b", "H5.4", "H8.2a")
@pytest.mark.parametrize("seeds", chunks("sweeps", SEEDS))
def test_what_time_ends_is_ended_and_read_in_the_outbox_in_order(stage: Stage, seeds: range) -> None:
    check(SWEEPS, stage, seeds)


@pytest.mark.clause("T2b", "H2.12h", "H6.1a", "H6.3", "H6.4")
@pytest.mark.parametrize("seeds", chunks("switches", SEEDS))
def test_nothing_is_run_after_what_it_was_approved_under_has_changed(stage: Stage, seeds: range) -> None:
    check(SWITCHES, stage, seeds)


test_payouts_in_a_long_run = soaked(PAYOUTS)
test_runners_in_a_long_run = soaked(RUNNERS)
test_cards_in_a_long_run = soaked(REQUESTERS)
test_sql_functions_in_a_long_run = soaked(SQL)
test_sweeps_in_a_long_run = soaked(SWEEPS)
test_switches_in_a_long_run = soaked(SWITCHES)
