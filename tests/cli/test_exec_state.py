"""Executions' states as files, and executions that go on from them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.flows import NASTY, SEEN, Flows
from underseal.log.batch import append_item, event


def begun(flows: Flows, execution_id: str, *more: dict[str, Any]) -> None:
    """An execution that has recorded a step."""
    flows.executions.start("order.pay", "ann", {"cents": 1.5}, execution_id=execution_id)
    fence = flows.driver.acquire_fence(execution_id).fence or 0
    flows.driver.append_batch(
        [append_item(execution_id, fence, [event("STEP_COMPLETED", op=1, name="quote", output="née"), *more])]
    )


@pytest.mark.clause("E6f")
def test_an_exported_file_is_restored(flows: Flows, tmp_path: Path) -> None:
    begun(flows, "o-77", event("CHILD_STARTED", op=2, name="c", flow="f", execution_id=NASTY))
    done = flows.run("exec", "export", "o-77", login="client")
    assert done.code == 0
    assert f"child {SEEN} has not told its end" in done.err
    state = json.loads(done.out)
    assert state == flows.executions.export_state("o-77", "ann")
    assert json.loads(flows.run("exec", "export", "o-77", "--json").out) == state
    assert done.out.isascii()
    file = tmp_path / "state.json"
    file.write_text(done.out)
    told = flows.run("exec", "restore", file, "--id", "o-78", who="bob", login="client")
    assert "Restored: o-78" in told.out
    assert "exec show o-78 --principal bob" in told.out
    assert flows.executions.get("o-78", "bob").flow == "order.pay"
    assert [one.type for one in flows.executions.events("o-78", "bob")] == [
        "EXECUTION_STARTED",
        "STATE_RESTORED",
    ]
    shown = flows.run("exec", "show", "o-78", who="bob").out
    assert "goes on from 2 events of another execution's state" in shown
    assert "stays with that one" in shown
    assert not set(NASTY) & {"\u202e", "\x1b"} & set(shown)
    again = flows.run("exec", "restore", file, "--id", "o-78", "--json", who="bob")
    assert (again.code, again.json["reason"]) == (3, "execution-exists")
    minted = flows.run("exec", "restore", "-", "--json", stdin=done.out)
    assert (minted.code, minted.json["outcome"]) == (0, "restored")


def test_what_cannot_be_exported_or_restored(flows: Flows, tmp_path: Path) -> None:
    begun(flows, "o-77")
    assert flows.run("exec", "export", "o-77", who="bob", login="client").code == 5
    assert flows.run("exec", "export", "o-78").code == 5
    file = tmp_path / "state.json"
    file.write_text('{"v": 1, "secret": 1}')
    refused = flows.run("exec", "restore", file, "--json")
    assert (refused.code, refused.json["reason"]) == (4, "malformed-state")
    assert "secret" not in refused.out
    file.write_text("{")
    assert flows.run("exec", "restore", file).code == 2
    assert flows.run("exec", "restore").code == 2
