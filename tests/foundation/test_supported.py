"""Which Postgres it is for, and that the suite runs on both ends of that."""

from __future__ import annotations

from pathlib import Path

import pytest

from underseal.testing import DictConnection

ROOT = Path(__file__).parents[2]


@pytest.mark.clause("T8")
def test_the_suite_runs_on_the_oldest_and_the_newest(admin: DictConnection) -> None:
    """This run is on one of the supported servers; CI runs the whole suite on the embedded one, then on the oldest."""
    assert 15 <= admin.info.server_version // 10000 <= 18
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    assert any(line.startswith("make test") for line in lines)
    assert any("postgresql-15" in line for line in lines)
    assert any(line.startswith("UNDERSEAL_TEST_DSN=") and "pytest -n 2" in line for line in lines)
