"""The ids of docs/clauses.md, which tests and mutants name."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CLAUSES = ROOT / "docs" / "clauses.md"

_BULLET = re.compile(r"^- \*\*([^*]*)\*\* \S", re.MULTILINE)
_ID = re.compile(r"([A-Z][0-9]+(?:\.[0-9]+)?)([a-z]?)")


def clause_ids(path: Path = CLAUSES) -> list[str]:
    """The ids in the order of the page.

    Parameters:
        path: the page, one bullet `- **id** text` a clause.

    Errors:
        ValueError: an id has another form than H4.6 or H4.1a, is listed twice, or stands beside parts of
            itself.
    """
    ids: list[str] = _BULLET.findall(path.read_text(encoding="utf-8"))
    wrong = [clause for clause in ids if not _ID.fullmatch(clause)]
    twice = sorted({clause for clause in ids if ids.count(clause) > 1})
    split = {base_of(clause) for clause in ids if clause not in wrong and clause != base_of(clause)}
    both = sorted(split.intersection(ids))
    for problem, culprits in (
        ("expected ids like H4.6 or H4.1a, found", wrong),
        ("listed twice", twice),
        ("listed beside its own parts", both),
    ):
        if culprits:
            raise ValueError(f"{path}: {problem}: {', '.join(culprits)}")
    return ids


def base_of(clause: str) -> str:
    """The clause that a part belongs to: H1.6 for H1.6a; a clause that is not split is its own.

    Errors:
        ValueError: this is no clause id.
    """
    match = _ID.fullmatch(clause)
    if match is None:
        raise ValueError(f"{clause!r} is no clause id: expected one like H4.6 or H4.1a")
    return match.group(1)


def within(clause: str, parts: Iterable[str]) -> bool:
    """Whether a clause lies in one of the parts of the page.

    Parameters:
        clause: its id.
        parts: each like H, H6, H6.1 or H6.1a; none stand for the whole page.
    """
    chosen = list(parts)
    return not chosen or any(
        clause == part
        or (clause.startswith(part) and not (part[-1].isdigit() and clause[len(part)].isdigit()))
        for part in chosen
    )
