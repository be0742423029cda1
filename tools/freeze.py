"""Write migrations/versions/0001_initial.sql from sql/*/tables.sql. Only while 0.1.0 is unreleased.

Usage: python tools/freeze.py            writes the file
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("foundation", "audit", "held", "log", "inbox", "wake", "snapshot", "seal")
FROZEN = ROOT / "migrations" / "versions" / "0001_initial.sql"


def frozen_text() -> str:
    """The tables of every room, in the order in which they depend on each other."""
    return "\n".join((ROOT / "sql" / room / "tables.sql").read_text() for room in ROOMS)


if __name__ == "__main__":
    FROZEN.write_text(frozen_text())
