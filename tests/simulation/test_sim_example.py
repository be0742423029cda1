"""The example of docs/simulation.md is played as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from underseal.testing.simulation import Scenario, Stage, simulate

DOCS = Path(__file__).parents[2] / "docs" / "simulation.md"


@pytest.mark.clause("T2a")
def test_the_example_of_the_docs_finds_nothing_wrong(stage: Stage) -> None:
    found = re.search(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    assert found is not None
    names: dict[str, object] = {"__name__": "example"}
    exec(compile(found.group(1), str(DOCS), "exec"), names)
    scenario = names["SCENARIO"]
    assert isinstance(scenario, Scenario)
    for seed in range(1, 9):
        report = simulate(scenario, stage, seed)
        assert not report.faults, report
