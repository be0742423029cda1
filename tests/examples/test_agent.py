"""The agent's demo as a stranger runs it: it kills three workers, and demands one refund, one mail, one answer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from examples.agent.brain import plan

ROOT = Path(__file__).parents[2]


@pytest.mark.clause("E6a", "E6b", "E8a")
def test_the_agent_survives_its_workers() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "examples.agent.demo"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "pylib")])},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "1200 cents are on their way." in done.stdout
    assert "one refund, one mail, one answer" in done.stdout


def test_a_refusal_reaches_the_customer() -> None:
    ticket: dict[str, Any] = {"from": "dana", "order": "o-77", "text": "twice!"}
    transcript = [
        ticket,
        {"tool": "find_payments", "result": [{"id": "p-1", "cents": 1200}]},
        {"from": "person", "text": "p-1"},
        {"tool": "refund.pay", "result": {"refused": "REJECTED"}},
    ]
    assert plan(transcript) == {"answer": "I may not pay that back: REJECTED."}
