"""Every character: what Unicode 14 assigns has one NFC everywhere, and nothing else is accepted."""

from __future__ import annotations

import re
import sys
import unicodedata
from pathlib import Path

import pytest

from underseal.canonical.unicode14 import UNASSIGNED_RANGES, has_unassigned
from underseal.testing import DictConnection

SURROGATES = range(0xD800, 0xE000)
RANGES = [
    (int(low, 16), int(high or low, 16))
    for low, _, high in (item.partition("-") for item in UNASSIGNED_RANGES.split())
]
CHARACTERS = [chr(code) for code in range(1, sys.maxunicode + 1) if code not in SURROGATES]


@pytest.mark.clause("H1.4a")
def test_sql_and_python_refuse_the_same_characters(db: DictConnection) -> None:
    # The lists are one (below): the edges of their ranges, and all that lies outside, tell whether both read it alike.
    edges = {code + step for low, high in RANGES for code in (low, high) for step in (-1, 0, 1)}
    asked = [
        chr(code) for code in sorted(edges) if code in range(1, sys.maxunicode + 1) and code not in SURROGATES
    ]
    accepted = "".join(char for char in CHARACTERS if not has_unassigned(char))
    rows = db.execute(
        "select given.char from unnest(%s::text[]) as given (char) where underseal._has_unassigned(given.char)",
        [[*asked, accepted]],
    ).fetchall()
    assert [row["char"] for row in rows] == [char for char in asked if has_unassigned(char)]


@pytest.mark.clause("H1.4a")
def test_what_is_assigned_later_than_unicode_14_is_refused() -> None:
    unassigned = {char for char in CHARACTERS if unicodedata.category(char) == "Cn"}
    assert unassigned <= {char for char in CHARACTERS if has_unassigned(char)}
    assert len(unassigned) > 800_000
    assert sum(high - low + 1 for low, high in RANGES) == 829_834


@pytest.mark.clause("H1.1g", "H1.4a")
def test_nfc_of_every_character(db: DictConnection) -> None:
    accepted = [char for char in CHARACTERS if not has_unassigned(char)]
    # Between two others that it may compose with, as well as alone.
    each = [f"{char} a{char} {char}\u0301 \u1100{char} " for char in accepted]
    texts = ["".join(each[at : at + 100]) for at in range(0, len(each), 100)]
    rows = db.execute(
        "select underseal._canonical_text(given.string, '') as nfc"
        " from unnest(%s::text[]) with ordinality as given (string, at) order by given.at",
        [texts],
    ).fetchall()
    assert [row["nfc"] for row in rows] == [unicodedata.normalize("NFC", text) for text in texts]


@pytest.mark.clause("H1.4a")
def test_the_two_lists_are_one() -> None:
    sql = Path(__file__).parents[2].joinpath("sql", "canonical", "unassigned.sql").read_text(encoding="utf-8")
    bounds = re.findall(r"\\(?:u([0-9A-F]{4})|U([0-9A-F]{8}))(-?)", sql)
    written = "".join(f"{int(short or long, 16):04X}{dash or ' '}" for short, long, dash in bounds)
    assert written.split() == UNASSIGNED_RANGES.split()
