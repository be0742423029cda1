"""`make mutants`, run on a small repository."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools.clause_list import ROOT
from tools.mutant_list import Mutant
from tools.mutant_runner import Verdict
from tools.mutants import record, remaining, select

ENTRY = """
[[mutant]]
name = "{name}"
file = "pylib/code_under_test.py"
find = "{find}"
replace = "{replace}"
tests = ["tests/test_code.py::{test}"]
clauses = ["{clause}"]
"""
KILLED = ENTRY.format(name="odd", find="number % 2", replace="False", test="test_odd", clause="H1.1a")
SURVIVED = ENTRY.format(name="even", find="// 2", replace="// 2 ", test="test_even", clause="H1.2")
HUNG = ENTRY.format(
    name="hung",
    find="if number % 2:",
    replace="while number % 2: pass\\n    if 0:",
    test="test_odd",
    clause="H1.1a",
)
UNTRIED = ENTRY.format(name="lost", find="nowhere", replace="", test="test_odd", clause="H1.1a")
UNPARSED = ENTRY.format(name="unparsed", find="def", replace="deaf", test="test_odd", clause="H1.1a")
FIXTURE = ENTRY.format(name="fixture", find="// 2", replace="// 0", test="test_fixture", clause="E1")


def mutants(repository: Path, entries: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (repository / "tests" / "mutants.toml").write_text(entries)
    # no test of the small repository uses the server, so none is started
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "pylib"), "UNDERSEAL_TEST_DSN": "host=/nowhere"}
    command = [sys.executable, str(repository / "tools" / "mutants.py"), *arguments]
    return subprocess.run(
        command, cwd=repository, env=environment, capture_output=True, text=True, check=False, timeout=120
    )


def outcomes(repository: Path) -> dict[str, str]:
    entries = json.loads((repository / ".local" / "mutants.json").read_text())["mutants"]
    return {entry["name"]: entry["outcome"] for entry in entries}


def test_each_outcome_is_told_and_recorded(repository: Path) -> None:
    before = (repository / "pylib" / "code_under_test.py").read_text()
    entries = KILLED + SURVIVED + HUNG + "timeout = 3\n" + UNTRIED + UNPARSED + FIXTURE
    printed = mutants(repository, entries)
    assert outcomes(repository) == {
        "odd": "killed",
        "even": "survived",
        "hung": "timeout",
        "lost": "error",
        "unparsed": "error",
        "fixture": "error",
    }
    assert printed.stdout.splitlines()[-1] == "6 mutants, 2 killed, 4 survived"
    assert printed.returncode == 1
    assert "error    lost: expected `find` exactly once" in printed.stdout
    assert "error    fixture: a fixture of tests/test_code.py::test_fixture failed" in printed.stdout
    assert (repository / "pylib" / "code_under_test.py").read_text() == before


def test_an_edit_may_be_meant_to_break_the_install(repository: Path) -> None:
    entries = KILLED + FIXTURE + 'kills = "install"\n' + UNPARSED + 'kills = "install"\n'
    printed = mutants(repository, entries)
    assert printed.stdout.splitlines()[-1] == "3 mutants, 3 killed, 0 survived"
    assert printed.returncode == 0


def test_an_edit_whose_tests_fail_anyway_is_not_killed(repository: Path) -> None:
    path = repository / "tests" / "test_code.py"
    path.write_text(path.read_text().replace("halve(3)", "halve(4)"))
    printed = mutants(repository, KILLED)
    assert "without the edit, too, tests/test_code.py::test_odd does not pass" in printed.stdout
    assert printed.stdout.splitlines()[-1] == "1 mutants, 0 killed, 1 survived"


def test_a_choice_of_mutants_keeps_the_other_results(repository: Path) -> None:
    mutants(repository, KILLED + SURVIVED)
    printed = mutants(repository, KILLED + SURVIVED, "--only", "odd")
    assert printed.stdout.splitlines()[-1] == "1 mutants, 1 killed, 0 survived"
    assert outcomes(repository) == {"odd": "killed", "even": "survived"}


def test_a_malformed_list_is_refused(repository: Path) -> None:
    printed = mutants(repository, "[[mutant]]\n")
    assert printed.returncode == 2
    assert "lacks file" in printed.stderr


def test_shards_share_the_list_out() -> None:
    every = [Mutant(f"m{number}", "f.py", "a", "b", ("t",)) for number in range(7)]
    shards = [select(every, None, (part, 3)) for part in (1, 2, 3)]
    assert sorted(mutant.name for shard in shards for mutant in shard) == [mutant.name for mutant in every]
    assert {len(shard) for shard in shards} == {2, 3}


@pytest.mark.parametrize("only", [["m1"], ["/g.py"]])
def test_a_name_or_a_file_chooses(only: list[str]) -> None:
    every = [Mutant("m0", "x/f.py", "a", "b", ("t",)), Mutant("m1", "x/g.py", "a", "b", ("t",))]
    assert [mutant.name for mutant in select(every, only, (1, 1))] == ["m1"]


def test_results_of_entries_that_are_gone_or_changed_are_dropped(tmp_path: Path) -> None:
    path = tmp_path / "mutants.json"
    old, kept = Mutant("old", "f", "a", "b", ("t",)), Mutant("kept", "f", "a", "c", ("t",))
    record([old, kept], {"old": Verdict("killed", ""), "kept": Verdict("killed", "")}, path)
    assert remaining([old, kept], path) == []
    changed = Mutant("old", "f", "a", "d", ("t",))
    assert remaining([changed, kept], path) == [changed]
    record([changed, kept], {}, path)
    assert [entry["name"] for entry in json.loads(path.read_text())["mutants"]] == ["kept"]
