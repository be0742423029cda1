"""`make clauses`: which promises are kept."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tools.clauses import standings
from tools.mutant_list import Mutant

IDS = ["H1.1a", "H1.1b", "H1.2", "E1"]
MUTANT = Mutant("m", "f.py", "a", "b", ("t.py::test_a",), ("H1.1a", "H1.2"))


def result(outcome: str, *clauses: str) -> dict[str, Any]:
    return {"outcome": outcome, "clauses": list(clauses)}


def words(tests: dict[str, Any], results: list[Any], mutants: list[Mutant]) -> dict[str, tuple[str, int]]:
    found = standings(IDS, tests, results, mutants)
    return {standing.clause: (standing.word, len(standing.passed)) for standing in found}


def test_kept_takes_a_passed_test_and_a_killed_mutant() -> None:
    tests = {"t.py::test_a": result("passed", "H1.1a"), "t.py::test_b": result("passed", "H1.1b")}
    assert words(tests, [{"digest": MUTANT.digest, "killed": True}], [MUTANT]) == {
        "H1.1a": ("kept", 1),
        "H1.1b": ("unproved", 1),
        "H1.2": ("open", 0),
        "E1": ("open", 0),
    }


def test_a_mutant_that_survived_proves_nothing() -> None:
    tests = {"t.py::test_a": result("passed", "H1.1a")}
    assert words(tests, [{"digest": MUTANT.digest, "killed": False}], [MUTANT])["H1.1a"] == ("unproved", 1)


def test_a_result_of_an_entry_that_has_changed_since_proves_nothing() -> None:
    tests = {"t.py::test_a": result("passed", "H1.1a")}
    changed = Mutant("m", "f.py", "a", "c", ("t.py::test_a",), ("H1.1a",))
    assert words(tests, [{"digest": MUTANT.digest, "killed": True}], [changed])["H1.1a"] == ("unproved", 1)


@pytest.mark.parametrize("outcome", ["failed", "error", "skipped", "not-run"])
def test_a_test_that_did_not_pass_leaves_its_clause_open(outcome: str) -> None:
    tests = {"t.py::test_a": result(outcome, "H1.1a")}
    assert words(tests, [{"digest": MUTANT.digest, "killed": True}], [MUTANT])["H1.1a"] == ("open", 0)


def test_a_parametrised_test_counts_once_and_only_if_every_case_passed() -> None:
    tests = {
        "t.py::test_a[1]": result("passed", "H1.1a"),
        "t.py::test_a[2]": result("passed", "H1.1a", "H1.1b"),
        "t.py::test_a[3]": result("failed", "H1.1b"),
    }
    assert words(tests, [], []) == {
        "H1.1a": ("unproved", 1),
        "H1.1b": ("open", 0),
        "H1.2": ("open", 0),
        "E1": ("open", 0),
    }


def test_an_unknown_clause_in_a_test_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"no such clause: H1\.1 \(in t\.py::test_a\)"):
        words({"t.py::test_a": result("passed", "H1.1")}, [], [])


def test_an_unknown_clause_in_a_mutant_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"no such clause: H9 \(in mutant 'm'\)"):
        words({}, [], [Mutant("m", "f.py", "a", "b", ("t.py",), ("H9",))])


def table(repository: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(repository / "tools" / "clauses.py"), *arguments]
    return subprocess.run(command, cwd=repository, capture_output=True, text=True, check=False)


def records(repository: Path) -> None:
    (repository / "tests" / "mutants.toml").write_text("")
    (repository / ".local").mkdir()
    (repository / ".local" / "clauses.json").write_text(
        json.dumps({"full": True, "tests": {"t.py::test_a": result("passed", "H1.1a")}})
    )
    (repository / ".local" / "mutants.json").write_text(json.dumps({"mutants": []}))


def test_the_table_has_a_line_a_clause_and_a_sum(repository: Path) -> None:
    records(repository)
    printed = table(repository)
    assert printed.returncode == 0
    assert printed.stdout.splitlines() == [
        "unproved H1.1a 1",
        "open H1.1b 0",
        "open H1.2 0",
        "open E1 0",
        "0 kept, 1 unproved, 3 open",
    ]


def test_a_part_can_be_shown_alone_with_its_tests(repository: Path) -> None:
    records(repository)
    assert table(repository, "--part", "H1.1", "--verbose").stdout.splitlines() == [
        "unproved H1.1a 1",
        "    passed: t.py::test_a",
        "open H1.1b 0",
        "0 kept, 1 unproved, 1 open",
    ]


def test_without_records_it_names_the_command(repository: Path) -> None:
    (repository / "tests" / "mutants.toml").write_text("")
    printed = table(repository, "--no-run")
    assert printed.returncode == 2
    assert printed.stdout == ""
    assert "run `make test` first" in printed.stderr


def test_a_clone_without_records_makes_them_first(repository: Path) -> None:
    (repository / "tests" / "mutants.toml").write_text("")
    (repository / ".local").mkdir()
    (repository / ".local" / "mutants.json").write_text(json.dumps({"mutants": []}))
    printed = table(repository, "--part", "H")
    assert printed.stdout.splitlines() == [
        "unproved H1.1a 1",
        "unproved H1.1b 1",
        "unproved H1.2 1",
        "0 kept, 3 unproved, 0 open",
    ]
