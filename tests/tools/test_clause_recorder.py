"""The pytest plugin that notes which clauses the tests pin."""

import json
from pathlib import Path
from typing import Any

import pytest

from tools.pytest_run import run_pytest

EVEN = "tests/test_code.py::test_even"


def recorded(repository: Path) -> Any:
    return json.loads((repository / ".local" / "clauses.json").read_text())


def run(repository: Path, *arguments: str) -> int | None:
    """A run whose record goes where that of an ordinary run goes."""
    return run_pytest(repository, arguments, environment={"UNDERSEAL_TEST_REPORT": ""}).exit


@pytest.mark.parametrize("processes", ["-n0", "-n2"])
def test_a_full_run_leaves_a_record_of_every_test(repository: Path, processes: str) -> None:
    assert run(repository, processes) == 0
    record = recorded(repository)
    assert record["full"] is True
    assert {test: (result["outcome"], result["clauses"]) for test, result in record["tests"].items()} == {
        "tests/test_code.py::test_odd": ("passed", ["H1.1a"]),
        f"{EVEN}[2]": ("passed", ["H1.1b", "H1.2"]),
        f"{EVEN}[4]": ("passed", ["H1.1b", "H1.2"]),
        "tests/test_code.py::test_fixture": ("passed", ["E1"]),
    }


@pytest.mark.parametrize(
    "selection",
    [
        ["-k", "odd"],
        ["-m", "clause"],
        [EVEN],
        ["tests/test_code.py"],
        ["--deselect", EVEN],
        ["--collect-only"],
    ],
)
def test_a_run_of_some_tests_leaves_no_record(repository: Path, selection: list[str]) -> None:
    run(repository, *selection)
    assert not (repository / ".local").exists()


def test_a_run_that_names_the_whole_suite_is_full(repository: Path) -> None:
    assert run(repository, "tests", "-m", "not soak") == 0
    assert recorded(repository)["full"] is True


def test_a_run_that_stopped_at_a_failure_leaves_no_record(repository: Path) -> None:
    (repository / "pylib" / "code_under_test.py").write_text("def halve(number): return number")
    assert run(repository, "-x") in (1, 2)
    assert not (repository / ".local").exists()


def test_failures_skips_and_broken_fixtures_are_told_apart(repository: Path) -> None:
    (repository / "tests" / "test_code.py").write_text(
        """
import pytest

@pytest.fixture
def broken():
    raise RuntimeError

@pytest.fixture
def untidy():
    yield
    raise RuntimeError

def test_failed(): assert False
def test_error(broken): pass
def test_untidy(untidy): pass
def test_skipped(): pytest.skip("here")
@pytest.mark.xfail
def test_xfailed(): assert False
@pytest.mark.xfail
def test_xpassed(): pass
"""
    )
    assert run(repository) == 1
    outcomes = {
        test.partition("::")[2]: result["outcome"] for test, result in recorded(repository)["tests"].items()
    }
    assert outcomes == {
        "test_failed": "failed",
        "test_error": "error",
        "test_untidy": "error",
        "test_skipped": "skipped",
        "test_xfailed": "skipped",
        "test_xpassed": "skipped",
    }


def test_a_test_that_names_an_unknown_clause_fails(repository: Path) -> None:
    path = repository / "tests" / "test_code.py"
    path.write_text(path.read_text().replace('"H1.1a"', '"H1.1"'))
    result = run_pytest(repository, ["-q"])
    assert result.exit == 1
    assert "unknown clause H1.1: clauses.md lists no such id" in result.output
    assert result.tests["tests/test_code.py::test_odd"]["outcome"] == "error"
