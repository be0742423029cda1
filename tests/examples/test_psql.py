"""examples/psql/executions.sql does what its comments say: as psql runs it, and statement by statement."""

from __future__ import annotations

import re
import shutil
import subprocess
from itertools import groupby
from pathlib import Path

import pytest

from tests.examples.script import run
from underseal.testing import TestDatabase

SCRIPT = Path(__file__).parents[2] / "examples" / "psql" / "executions.sql"
OUTCOMES = [
    "started", "sent", "claimed", "appended", "answered", "parked", "resumed", "claimed", "delivered", "none",
    "appended", "saved", "continued", "cancelled", "event", "found", "recorded",
]  # fmt: skip


def test_every_statement_does_what_it_is_there_for(database: TestDatabase, logins: dict[str, str]) -> None:
    done = list(run(SCRIPT.read_text(), database.connect, **logins))
    assert [rows[0]["outcome"] for _, rows in done if rows and "outcome" in rows[0]] == OUTCOMES

    by_verb = {found[1]: rows for said, rows in done if (found := re.search(r"from underseal\.(\w+)", said))}
    assert [row["type"] for row in by_verb["read_events"]] == [
        "EXECUTION_STARTED", "STEP_COMPLETED", "EXECUTION_SUSPENDED", "MESSAGE_CONSUMED", "EXECUTION_SUSPENDED",
        "MESSAGE_CONSUMED", "REPORTED", "EXECUTION_CONTINUED",
    ]  # fmt: skip
    assert [row["status"] for row in by_verb["list_executions"]] == ["cancelled", "continued"]
    assert {row["status"] for row in by_verb["executions_by_state"]} == {"cancelled", "continued"}


def test_it_may_be_run_again(database: TestDatabase, logins: dict[str, str]) -> None:
    for _ in range(2):
        done = list(run(SCRIPT.read_text(), database.connect, **logins))
        assert [rows[0]["outcome"] for _, rows in done if rows and "outcome" in rows[0]] == OUTCOMES


@pytest.mark.skipif(shutil.which("psql") is None, reason="no psql here")
def test_psql_runs_it(database: TestDatabase, logins: dict[str, str]) -> None:
    ran = subprocess.run(
        [
            "psql", database.conninfo_as(logins["client"]), "--no-psqlrc", "--csv", "-t", "-v", "ON_ERROR_STOP=1",
            *(f"-v{access}={login}" for access, login in logins.items()), "-f", str(SCRIPT),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stderr) == (0, "")
    first_cells = [cell for line in ran.stdout.splitlines() if (cell := line.partition(",")[0]) in OUTCOMES]
    # one of each answer's rows; what goes into variables is not printed: the start, the claims, the second append
    printed = [*(word for word in OUTCOMES[:10] if word not in ("started", "claimed")), *OUTCOMES[11:]]
    assert [cell for cell, _ in groupby(first_cells)] == printed
