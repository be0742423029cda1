"""docs/clauses.md lists every clause once, in the form that the tools read."""

import os
import re
from pathlib import Path

import pytest

from tools.clause_list import ROOT, base_of, clause_ids, within

# How many clauses each part, or section of part H, has; so the ids are known without the list they come from.
SECTIONS = {"H1": 7, "H2": 12, "H3": 9, "H4": 7, "H5": 5, "H6": 11, "H7": 4, "H8": 5, "H9": 3}
PARTS = {"E": 15, "G": 16, "I": 6, "M": 20, "S": 11, "Q": 20, "W": 9, "L": 26, "X": 12, "T": 8}
FROZEN = {f"{section}.{number + 1}" for section, count in SECTIONS.items() for number in range(count)} | {
    f"{part}{number + 1}" for part, count in PARTS.items() for number in range(count)
}


def original() -> Path:
    """The list that docs/clauses.md restates, where it is at hand."""
    return Path(os.environ.get("UNDERSEAL_CLAUSES", ROOT.parent / "shared" / "CLAUSES.md"))


def test_the_page_covers_exactly_the_frozen_ids() -> None:
    assert {base_of(clause) for clause in clause_ids()} == FROZEN


def test_the_frozen_ids_are_those_of_the_original_list() -> None:
    if original().exists():
        text = original().read_text(encoding="utf-8")
        assert set(re.findall(r"^- ([A-Z][0-9]+(?:\.[0-9]+)?) ", text, re.MULTILINE)) == FROZEN
    assert len(FROZEN) == 206


def test_parts_of_a_clause_are_lettered_without_a_hole() -> None:
    letters: dict[str, str] = {}
    for clause in clause_ids():
        base = base_of(clause)
        letters[base] = letters.get(base, "") + clause.removeprefix(base)
    for base, found in letters.items():
        assert found == "abcdefghijklmnopqrstuvwxyz"[: len(found)], base
        assert len(found) != 1, f"{base} has a single part"


def test_clauses_that_go_beyond_the_records_are_marked() -> None:
    text = (ROOT / "docs" / "clauses.md").read_text(encoding="utf-8")
    marked = {base_of(clause) for clause in re.findall(r"^- \*\*([^*]+)\*\* \(ours\) ", text, re.MULTILINE)}
    assert marked == {"H1.7", "H2.10", "H2.11", "H2.12", "H4.6", "H5.5", "H6.10", "H8.5", "E13", "E15"}


@pytest.mark.parametrize(
    ("bullets", "problem"),
    [
        (["H1.1x2"], "expected ids like"),
        (["H1.1", "H1.1"], "listed twice: H1.1"),
        (["H1.1", "H1.1a"], "beside its own parts: H1.1"),
    ],
)
def test_a_malformed_page_is_refused(tmp_path: Path, bullets: list[str], problem: str) -> None:
    page = tmp_path / "clauses.md"
    page.write_text("".join(f"- **{clause}** text\n" for clause in bullets))
    with pytest.raises(ValueError, match=problem):
        clause_ids(page)


def test_a_malformed_id_has_no_base() -> None:
    with pytest.raises(ValueError, match="no clause id"):
        base_of("h1")


@pytest.mark.parametrize(
    ("clause", "parts", "inside"),
    [
        ("H1.1a", [], True),
        ("H1.1a", ["H"], True),
        ("H1.1a", ["H1"], True),
        ("H1.1a", ["H1.1"], True),
        ("H1.10a", ["H1.1"], False),
        ("E13a", ["E1"], False),
        ("E13a", ["H", "E13"], True),
        ("H4.6", ["H4.6"], True),
    ],
)
def test_a_part_of_the_page_can_be_chosen(clause: str, parts: list[str], inside: bool) -> None:
    assert within(clause, parts) is inside
