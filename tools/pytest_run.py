"""Runs pytest in a process of its own and says what became of each test."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

RECORDER = "tests.plugins.clauses"
REPORT_VARIABLE = "UNDERSEAL_TEST_REPORT"


@dataclass(frozen=True)
class Run:
    """How a run of pytest went.

    Parameters:
        exit: pytest's exit code, or None where the time was up.
        tests: by node id: `outcome`, `clauses` and `seconds`, as tests/plugins/clauses.py writes them.
        output: what pytest printed.
    """

    exit: int | None
    tests: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    output: str = ""

    def clauses(self) -> dict[str, list[str]]:
        """By node id, the clauses a test is marked with."""
        return {test: result["clauses"] for test, result in self.tests.items()}


def run_pytest(
    root: Path,
    arguments: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    timeout: float | None = None,
) -> Run:
    """Run pytest on a copy of the repository, with that copy's own code.

    Parameters:
        root: the copy.
        arguments: options and node ids.
        environment: variables to set for it.
        timeout: seconds after which the run and the processes it started are killed.
    """
    with (
        tempfile.TemporaryDirectory(prefix="underseal-report-") as folder,
        tempfile.TemporaryFile() as output,
    ):
        report = Path(folder) / "report.json"
        code = _execute(
            [sys.executable, "-m", "pytest", "-p", RECORDER, "-p", "no:cacheprovider", *arguments],
            root,
            {**_inherited(), **search_path(root), REPORT_VARIABLE: str(report), **(environment or {})},
            output,
            timeout,
        )
        output.seek(0)
        text = output.read().decode(errors="replace")
        tests = json.loads(report.read_text(encoding="utf-8"))["tests"] if report.exists() else {}
        return Run(code, tests, text)


def _inherited() -> dict[str, str]:
    # pytest rewrites the plugins it loads, and a run that may not keep the result does it again: a third of a short run
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def search_path(root: Path) -> dict[str, str]:
    """The environment in which Python takes package, tests and tools from one copy of the repository."""
    return {"PYTHONPATH": os.pathsep.join((str(root / "pylib"), str(root)))}


def _execute(
    command: list[str], root: Path, environment: Mapping[str, str], output: IO[bytes], timeout: float | None
) -> int | None:
    process = subprocess.Popen(
        command,
        cwd=root,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,
    )
    try:
        return process.wait(timeout)
    except subprocess.TimeoutExpired:
        return None
    finally:
        # its own session: what a test started and left behind goes with it
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
