"""What docs/threat-model.md must tell: the reader decides by it who gets which key."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from underseal.seal import PURPOSES

_PAGE = Path(__file__).parents[2] / "docs" / "threat-model.md"
_HEADING = "## What each key is worth to somebody with full table rights"


@pytest.mark.clause("H2.11e")
def test_the_threat_model_tells_what_the_holder_of_each_key_can_do() -> None:
    section = _PAGE.read_text(encoding="utf-8").partition(_HEADING)[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.+?) \| (.+?) \|$", section, re.MULTILINE)
    told = {frozenset(re.findall(r"`(\w+)`", keys)): worth for keys, worth in rows}
    assert set(told) == {*(frozenset({purpose}) for purpose in PURPOSES), frozenset({"payload", "decision"})}
    assert "read the parameters of open operations, and seal requests" in told[frozenset({"payload"})]
    assert "seal decisions in any approver's name" in told[frozenset({"decision"})]
    assert "test guesses of the parameters of open operations" in told[frozenset({"fingerprint"})]
    assert "make up an approved operation that runs" in told[frozenset({"payload", "decision"})]
