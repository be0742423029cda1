"""Which seeds a scenario is played with, and what is said of one that fails.

    @pytest.mark.parametrize("seeds", chunks("orders", 100))
    def test_orders_are_paid_once_whatever_happens(stage, seeds):
        check(ORDERS, stage, seeds)

    test_orders_are_paid_once_in_a_long_run = soaked(ORDERS)

In the environment, UNDERSEAL_SIM_SEED picks one seed, UNDERSEAL_SIM_SEEDS another number of them, and
UNDERSEAL_SIM_FROM the first.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from time import monotonic
from typing import Final

import pytest

from underseal.testing.simulation import Plan, Report, Scenario, Stage, simulate
from underseal.testing.simulation.faults import shrink

ONE: Final = "UNDERSEAL_SIM_SEED"
MANY: Final = "UNDERSEAL_SIM_SEEDS"
FROM: Final = "UNDERSEAL_SIM_FROM"

_SOAKED: Final = 1000
_SOAKED_FROM: Final = 100_001
"""Other seeds than the suite's."""
_SHRINKS: Final = 60.0
"""Seconds for which a failing plan is made smaller."""


def chunks(name: str, count: int, size: int = 10, start: int = 1) -> list[object]:
    """The seeds of a scenario, for `parametrize("seeds", …)`: a range in each.

    Parameters:
        name: the scenario's; each id begins with it.
        count: how many seeds, if the environment does not say.
        size: how many in a chunk: what one process of a run takes.
        start: the first, if the environment does not say.
    """
    if ONE in os.environ:
        first, count = int(os.environ[ONE]), 1
    else:
        first, count = int(os.environ.get(FROM, start)), int(os.environ.get(MANY, count))
    found = [range(one, min(one + size, first + count)) for one in range(first, first + count, size)]
    return [
        pytest.param(one, id=f"{name}-{one[0]}" if len(one) == 1 else f"{name}-{one[0]}-{one[-1]}")
        for one in found
    ]


def soaked(scenario: Scenario, count: int = _SOAKED) -> Callable[..., None]:
    """A test for `make soak` alone, with many seeds: `test_something_in_a_long_run = soaked(SCENARIO)`.

    Parameters:
        scenario: which.
        count: how many seeds, if the environment does not say.
    """

    @pytest.mark.soak
    @pytest.mark.parametrize("seeds", chunks(scenario.name, count, 25, _SOAKED_FROM))
    def test_in_a_long_run(stage: Stage, seeds: range) -> None:
        check(scenario, stage, seeds)

    return test_in_a_long_run


def check(scenario: Scenario, stage: Stage, seeds: range) -> None:
    """Play a scenario with each seed; at the first that fails, make it smaller and fail with what a person needs.

    Parameters:
        scenario: which.
        stage: where.
        seeds: of `chunks`.
    """
    for seed in seeds:
        report = simulate(scenario, stage, seed)
        if report.faults:
            pytest.fail(_told(report, _smallest(scenario, stage, report)), pytrace=False)


def _smallest(scenario: Scenario, stage: Stage, report: Report) -> Report:
    """The report of the smallest plan that was found in a bounded time."""
    until = monotonic() + _SHRINKS
    best = report

    def fails(plan: Plan) -> bool:
        nonlocal best
        if monotonic() > until:
            return False
        found = simulate(scenario, stage, plan)
        if found.faults:
            best = found
        return bool(found.faults)

    shrink(report.plan, fails, scenario.optional)
    return best


def _told(report: Report, smallest: Report) -> str:
    test = os.environ.get("PYTEST_CURRENT_TEST", "").partition("[")[0].partition(" (")[0]
    return "\n".join(
        [
            str(smallest),
            "",
            f"first seen with seed {report.plan.seed}, {len(report.plan.faults)} faults; as a plan now:",
            "",
            repr(smallest.plan),
            "",
            "to see it again:",
            "",
            f"{ONE}={report.plan.seed} .venv/bin/pytest -n 0 -m 'soak or not soak' {test}",
        ]
    )
