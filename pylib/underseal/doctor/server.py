"""What the server is set to: its clock against ours, isolation, and whether a commit survives a crash."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

from underseal.doctor.look import Look
from underseal.doctor.model import Finding

SKEW: Final = timedelta(seconds=5)
"""How far a client's clock may be from the database's before that is worth a word."""


def check_clock(look: Look) -> Iterator[Finding]:
    """The kernel's clock is the server's, and near this machine's. A client's clock decides nothing (H9.2)."""
    asked = datetime.now(UTC)
    row = look.rows("select s.now as ours, clock_timestamp() as theirs from underseal.server_info() s")[0]
    answered = datetime.now(UTC)
    if abs(row["ours"] - row["theirs"]) > timedelta(seconds=1):
        yield Finding(
            "error", "clock", "clock-replaced", "underseal.clock()",
            f"expected underseal.clock() to be the server's clock, found it {row['ours'] - row['theirs']} away",
            "only a test database may have another clock; see the finding on the function",
        )  # fmt: skip
    # The question and the answer take time; only what that cannot explain is skew.
    skew = max(asked - row["ours"], row["ours"] - answered, timedelta(0))
    if skew > SKEW:
        yield Finding(
            "warning", "clock", "clock-skew", "this machine",
            f"expected this machine's clock within {SKEW.seconds} s of the database's, "
            f"found them {int(skew.total_seconds())} s apart; no deadline is affected, what people read may be",
            "let both machines keep time by NTP",
        )  # fmt: skip


def check_settings(look: Look) -> Iterator[Finding]:
    """Commits survive a crash; the default isolation costs nobody a retry."""
    row = look.rows(
        "select current_setting('fsync') as fsync,"
        " (select s.setting from pg_catalog.pg_settings s where s.name = 'default_transaction_isolation') as isolation"
    )[0]
    # synchronous_commit is no matter: what must not be forgotten raises it for its own transaction.
    if row["fsync"] == "off":
        yield Finding(
            "warning", "settings", "commit-not-durable", "fsync",
            "expected commits that survive a crash, found fsync = off: a claim that a crash loses is claimed "
            "again, perhaps after its effect",
            "set fsync = on for this server",
        )  # fmt: skip
    if row["isolation"] != "read committed":
        yield Finding(
            "note", "settings", "default-isolation", row["isolation"],
            f"the default isolation of this login is {row['isolation']}; the kernel's functions need READ COMMITTED",
            "nothing for our clients, which ask for it; in psql: begin isolation level read committed",
        )  # fmt: skip
