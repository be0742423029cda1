"""What docs/threat-model.md must tell: the reader decides by it who gets which key."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from underseal.seal import PURPOSES
from underseal.testing import DictConnection, TestDatabase

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
    assert "with the files of the key store" in told[frozenset({"master"})]
    assert "make up an approved operation that runs" in told[frozenset({"payload", "decision"})]


@pytest.mark.parametrize(
    ("access", "cannot"),
    [
        ("client", {"append", "append_batch", "acquire_fence", "deliver", "claim_due", "read_all", "delete_chain"}),
        ("worker", {"resume_gate", "discard_inbox", "cancel_execution", "migrate_execution", "fork_execution"}),
        ("worker", {"delete_chain"}),
        ("operator", {"start_execution", "send", "resume_gate", "append", "append_batch", "acquire_fence"}),
        ("reader", {"get_execution", "list_executions", "read_events", "read_all", "list_inbox", "get_content"}),
    ],
)  # fmt: skip
def test_what_no_login_of_an_access_can_do_to_executions(
    database: TestDatabase, db: DictConnection, access: str, cannot: set[str]
) -> None:
    login = database.create_role(access)
    db.execute("select underseal.grant_access(%s, %s)", [login, access])
    shut = {
        row["name"]
        for row in db.execute(
            "select p.proname as name from pg_proc p where p.pronamespace = 'underseal'::regnamespace"
            " and not has_function_privilege(%s, p.oid, 'execute')",
            [login],
        )
    }
    assert cannot <= shut


def test_a_table_writer_can_answer_a_gate_and_nothing_shows_it(
    database: TestDatabase, db: DictConnection
) -> None:
    """It cannot be helped while nothing is signed; the page says so, and what to do."""
    from underseal import ExecutionDriver, Executions, batch

    with Executions(database.conninfo) as executions, ExecutionDriver(database.conninfo) as driver:
        executions.start("f", "ann", execution_id="e")
        driver.append_batch([batch.park_item("e", 1, [batch.wait("w", batch.gate("ok"))])])
        with db.transaction():
            db.execute("update underseal.execution set last_inbox_seq = 1 where chain_id = 'e'")
            db.execute(
                "insert into underseal.inbox_message"
                " (chain_id, line, inbox_seq, topic, message_key, sender, message_id, payload, sent_at)"
                " values ('e', '', 1, '$gate/ok', sha256('x'), 'ann', 'x', 'true', underseal.clock())"
            )
        assert driver.deliver("e", 1).answered == 1
        assert executions.verify("e", None).outcome == "verified"
    page = " ".join(_PAGE.read_text(encoding="utf-8").split())
    assert "answer a gate in its owner's name" in page
    assert "let the step behind the gate request a held operation" in page
