"""The measurements run, and leave every figure that is promised; what the figures are is for `make bench`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
SIDES: Final = ("cycles_per_s", "bare_cycles_per_s", "vs_bare")
CALLS: Final = ("claim_ratio", "list_ratio", "sweep_ratio")


@pytest.fixture(scope="module")
def figures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    """What a quick run wrote."""
    out = tmp_path_factory.mktemp("bench") / "out" / "latest.json"
    ran = subprocess.run(
        [sys.executable, "-m", "bench", "--quick", "--out", str(out)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    written: dict[str, float] = json.loads(out.read_text())
    return written


@pytest.mark.parametrize("name", SIDES)
def test_cycles_are_measured_beside_the_bare_writes(figures: dict[str, float], name: str) -> None:
    assert figures[f"held.c1.{name}"] > 0
    assert figures[f"held.c4.{name}"] > 0


@pytest.mark.parametrize("name", CALLS)
def test_a_long_past_is_measured(figures: dict[str, float], name: str) -> None:
    assert figures[f"held.big.{name}"] > 0


def test_the_outbox_is_measured(figures: dict[str, float]) -> None:
    assert figures["held.outbox.events"] > 0
    assert figures["held.outbox.empty_poll_ratio"] > 0


def test_the_file_is_flat(figures: dict[str, float]) -> None:
    assert all(isinstance(value, int | float) for value in figures.values())
