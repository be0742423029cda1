"""Runs and words that are longer than they should be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.held.python.test_sql_provider import Bank
from tests.held.python.worlds import World
from underseal import Principal
from underseal.testing import TestClock


@pytest.mark.clause("H6.10g")
def test_a_run_of_sql_functions_that_outlasts_its_lease_has_no_effect(
    make_world: Callable[..., World], clock: TestClock
) -> None:
    bank = Bank(make_world())
    held = bank.approved()
    late = [True]

    def rebuild(id: str, auth_kind: str, token_id: str | None) -> Principal:  # noqa: A002
        if late:
            late.pop()
            clock.advance(minutes=16)
        return Principal(id, auth_kind, token_id)

    bank.world.us._core.rebuild = rebuild
    report = bank.run(held)
    assert (report.outcome, report.reason, bank.closed()) == ("failed", "too-long", [])
    assert bank.world.row(held)["outcome_reason"] == "too-long"


@pytest.mark.clause("H8.2c")
def test_a_run_that_is_interrupted_after_a_long_mark_is_ended_by_its_owner(sync_world: World) -> None:
    held = sync_world.approved()

    def body(*_: Any) -> None:
        assert sync_world.us.progress("é" * 20_000).outcome == "recorded"
        raise KeyboardInterrupt

    sync_world.service.body = body
    with pytest.raises(KeyboardInterrupt):
        sync_world.us.run(held)
    row = sync_world.row(held)
    assert (row["state"], row["outcome_reason"]) == ("OUTCOME_UNKNOWN", "interrupted")
