"""tests/mutants.toml, and what is wrong with a list of mutants."""

from pathlib import Path

import pytest

from tools.clause_list import ROOT, clause_ids
from tools.mutant_list import Mutant, flaws, load, mutated, named
from tools.pytest_run import run_pytest

GOOD = """
[[mutant]]
name = "code: odd"
file = "code.py"
find = "odd"
replace = "even"
tests = ["tests/test_code.py::test_odd"]
clauses = ["H1.1a"]
"""


def test_every_mutant_can_be_tried() -> None:
    tests = run_pytest(ROOT, ["--collect-only", "-q", "-n0"]).clauses()
    assert tests
    ids = set(clause_ids())
    found = {mutant.name: list(flaws(mutant, ROOT, ids, tests)) for mutant in load()}
    assert {name: wrong for name, wrong in found.items() if wrong} == {}


def test_an_entry_is_read(tmp_path: Path) -> None:
    path = tmp_path / "mutants.toml"
    path.write_text(GOOD)
    assert load(path) == [
        Mutant("code: odd", "code.py", "odd", "even", ("tests/test_code.py::test_odd",), ("H1.1a",))
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (GOOD.replace('find = "odd"', ""), "'code: odd': lacks find"),
        (GOOD + 'reason = "because"', "has the unknown key reason"),
        (GOOD + 'kills = "everything"', "kills: expected one of test, install"),
        (GOOD.replace('["H1.1a"]', '"H1.1a"'), "clauses: expected a list of texts"),
        (GOOD.replace('"odd"', "1"), "find: expected a text"),
        (GOOD + "timeout = 'long'", "timeout: expected seconds"),
        (GOOD + GOOD, "names used twice: code: odd"),
        ("[[mutant]]\n", "'without a name': lacks file"),
    ],
)
def test_a_malformed_entry_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "mutants.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=problem):
        load(path)


@pytest.mark.parametrize(
    ("source", "find", "replace", "problem"),
    [
        ("a b", "c", "d", "found it 0 times"),
        ("a a", "a", "d", "found it 2 times"),
        ("a b", "", "d", "found it 0 times"),
        ("a b", "a", "a", "the same"),
    ],
)
def test_an_edit_that_is_not_one_is_refused(source: str, find: str, replace: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        mutated(Mutant("m", "f", find, replace, ("t",)), source)


def test_flaws_are_told(tmp_path: Path) -> None:
    mutant = Mutant("m", "none.py", "a", "b", ("t.py::test_b",), ("H9",))
    missing_file, missing_test, missing_clause = flaws(mutant, tmp_path, {"H1.1a"}, {"t.py::test_a": []})
    assert "none.py" in missing_file
    assert "t.py::test_b, which does not exist" in missing_test
    assert "H9, which docs/clauses.md does not list" in missing_clause


def test_a_mutant_names_tests(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a")
    assert list(flaws(Mutant("m", "f", "a", "b", ()), tmp_path, (), {})) == ["names no tests"]


@pytest.mark.parametrize(
    ("marks", "found"),
    [({"t::a": ["H1.1a"], "t::b": []}, False), ({"t::a": [], "u::c": ["H1.1a"]}, True)],
)
def test_a_clause_takes_a_mark_on_a_named_test(
    tmp_path: Path, marks: dict[str, list[str]], found: bool
) -> None:
    (tmp_path / "f").write_text("a")
    mutant = Mutant("m", "f", "a", "b", ("t",), ("H1.1a",))
    told = list(flaws(mutant, tmp_path, {"H1.1a"}, marks))
    assert told == ["names the clause H1.1a, with which none of its tests is marked"] * found


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("tests/test_a.py::test_x[1]", True),
        ("tests/test_a.py::test_x", True),
        ("tests/test_a.py", True),
        ("tests", True),
        ("tests/", True),
        ("tests/test_a.py::test", False),
        ("tests/test", False),
    ],
)
def test_a_test_is_found_by_its_own_name_and_by_what_holds_it(name: str, found: bool) -> None:
    assert named("tests/test_a.py::test_x[1]", name) is found


def test_the_digest_changes_with_the_entry() -> None:
    one = Mutant("m", "f", "a", "b", ("t",))
    assert one.digest == Mutant("m", "f", "a", "b", ("t",)).digest
    assert one.digest != Mutant("m", "f", "a", "c", ("t",)).digest
