"""Which functions do it is sealed with the request."""

from __future__ import annotations

import json

import pytest

from tests.held.python.test_sql_provider import Bank
from tests.held.python.worlds import World
from underseal.canonical import canonicalise


@pytest.mark.clause("H2.5c", "T5a")
@pytest.mark.parametrize("column", ["sql_estimate", "sql_check_run", "sql_run"])
def test_an_operation_is_not_done_by_another_function(sync_world: World, column: str) -> None:
    """A writer with every right names another function in the table of types."""
    bank = Bank(sync_world)
    bank.execute(
        "create function app.other(params jsonb, principal text) returns jsonb language plpgsql as $$ begin"
        ' update app.account set closed = true; return \'{"effect": {"closes": 1}, "state_key": "1"}\';'
        " end $$"
    )
    held = bank.approved()
    with sync_world.triggers_off():
        bank.execute(
            f"update underseal.operation_type set {column} = 'app.other(jsonb,text)' where type = 'account.close'"
        )
    report = bank.run(held)
    assert (report.outcome, report.reason, bank.closed()) == ("refused", "integrity", [])


@pytest.mark.clause("H2.5c")
def test_what_does_it_is_part_of_the_policy(sync_world: World) -> None:
    bank = Bank(sync_world)
    (row,) = bank.execute("select policy from underseal.operation_type where type = 'account.close'")
    assert json.loads(row["policy"])["functions"] == [
        "app.estimate(jsonb,text)", "app.check_run(jsonb,text)", "app.close(jsonb,text)",
    ]  # fmt: skip
    assert canonicalise(row["policy"]) == row["policy"]
