"""What one item of a batch, or one caller's value, must not do to others."""

from __future__ import annotations

import json
import secrets
from typing import Any

import pytest

from tests.log.logs import FLOW, Logs
from underseal.testing import OWNER, DictConnection, TestDatabase

SECRET = "4111-1111"
UNREADABLE = [
    '{"card": "4111-1111\\u0000"}',
    '{"card": "4111-1111", "half": "\\ud83d"}',
    '{"half": "\\ude00"}',
    '{"text": "\\\\u0000", "card": "4111-1111\\u0000"}',
]
READABLE = ['{"smile": "\\ud83d\\ude00"}', '{"text": "\\\\u0000 and \\\\ud83d"}']


@pytest.fixture
def logs(db: DictConnection) -> Logs:
    """The verbs in an autocommit session of the schema's owner."""
    return Logs(db)


def item(execution_id: str, data: str) -> str:
    """An append of one event, as text, since data may be what no encoder writes."""
    return (
        f'{{"verb": "append", "execution_id": "{execution_id}", "fence": 1,'
        f' "events": [{{"type": "A", "data": {data}}}]}}'
    )


@pytest.mark.clause("E2f")
@pytest.mark.parametrize("data", UNREADABLE)
def test_an_item_that_cannot_be_read_takes_no_neighbour_along(logs: Logs, data: str) -> None:
    logs.start("a", "b")
    batch = f"[{item('a', '{}')}, {item('b', data)}]"
    first, second = logs.calls("append_batch", batch)
    assert (first["outcome"], first["reason"]) == ("appended", None)
    assert (second["execution_id"], second["outcome"], second["reason"]) == ("b", "refused", "unreadable")
    assert logs.value("select count(*) from underseal.event where chain_id = 'b'") == 1


@pytest.mark.clause("E2f")
@pytest.mark.parametrize("data", READABLE)
def test_escapes_that_stand_for_characters_are_kept_byte_for_byte(logs: Logs, data: str) -> None:
    logs.start("a", "b")
    (first, second) = logs.calls("append_batch", f"[{item('a', data)}, {item('b', UNREADABLE[0])}]")
    assert first["outcome"] == "appended"
    assert second["reason"] == "unreadable"
    assert logs.value("select data::text from underseal.event where chain_id = 'a' and seq = 1") == data
    assert logs.call("append", "a", 1, f'[{{"type": "A", "data": {data}}}]')["outcome"] == "appended"


@pytest.mark.clause("E2f")
@pytest.mark.parametrize("data", UNREADABLE)
def test_what_cannot_be_read_is_refused_and_never_quoted(logs: Logs, data: str) -> None:
    logs.start("a")
    answers: list[Any] = [
        logs.call("append", "a", 1, f'[{{"type": "A", "data": {data}}}]'),
        *logs.rows("select * from underseal.start_execution('f', 'ann', %s::json)", data),
    ]
    for answer in answers:
        assert (answer["outcome"], answer["reason"]) == ("refused", "unreadable")
        assert SECRET not in str(answer)


@pytest.mark.clause("E2f")
def test_a_reason_and_waits_are_no_longer_than_an_event_may_be(logs: Logs) -> None:
    logs.start("a", "b", "c")
    long = "x" * 1_100_000
    items = [
        {"verb": "cancelled", "execution_id": "a", "fence": 1, "reason": long},
        {
            "verb": "park", "execution_id": "b", "fence": 1,
            "waits": [{"wait": "w", "arms": [{"topic": "t", "comment": long}]}],
        },
        {"verb": "complete", "execution_id": "c", "fence": 1},
    ]  # fmt: skip
    answers = logs.calls("append_batch", json.dumps(items))
    assert [(one["outcome"], one["reason"]) for one in answers] == [
        ("refused", "too-large"), ("refused", "too-large"), ("completed", None)
    ]  # fmt: skip


@pytest.mark.clause("E11b")
@pytest.mark.parametrize(("levels", "outcome"), [(512, "recorded"), (520, "refused"), (14_000, "refused")])
def test_nobody_stores_what_is_too_deep_for_those_who_follow(logs: Logs, levels: int, outcome: str) -> None:
    logs.start("a")
    deep = "[" * levels + '"' + "x" * 1000 + '"' + "]" * levels
    (row,) = logs.rows("select * from underseal.record_outcome('a', %s::json, 'ann')", deep)
    assert row["outcome"] == outcome
    assert [one["seq"] for one in logs.calls("read_all")][-1] in (0, 1, None)


@pytest.mark.clause("E12c")
@pytest.mark.parametrize("taken", ["theirs", "theirs~child"])
def test_who_starts_an_execution_holds_nothing_of_anybody_elses(
    database: TestDatabase, logs: Logs, taken: str
) -> None:
    role = database.create_role("client")
    logs.call("grant_access", role, "client")
    logs.start("theirs")
    stranger = database.connect(role, autocommit=False)
    (row,) = stranger.execute(
        "select * from underseal.start_execution('f', 'mallory', execution_id => %s)", [taken]
    ).fetchall()
    assert row["outcome"] == ("not-found" if "~" in taken else "exists")
    driver = Logs(database.connect(OWNER, options="-c lock_timeout=2s"))
    assert driver.call("acquire_fence", "theirs")["outcome"] == "acquired"
    if "~" in taken:  # and nothing tells it from a chain that is not there
        (row,) = stranger.execute("select pg_current_xact_id_if_assigned() as xid").fetchall()
        assert row["xid"] is None
    stranger.rollback()


@pytest.mark.clause("E2f")
def test_an_owner_who_gives_a_chain_a_child_holds_the_chain(database: TestDatabase, logs: Logs) -> None:
    logs.start("mine")
    owner = database.connect(OWNER, autocommit=False)
    owner.execute("select * from underseal.start_execution('f', 'ann', execution_id => 'mine~child')")
    (row,) = logs.rows(
        "select (select count(*) from (select from underseal.execution where chain_id = 'mine' and member = ''"
        " for no key update skip locked) x) as free"
    )
    assert row["free"] == 0
    owner.rollback()


@pytest.mark.clause("E2f")
def test_a_principal_too_long_for_the_indexes_is_nobody(logs: Logs) -> None:
    start = {"verb": "start", "flow": FLOW, "flow_version": 1}
    items = [
        {**start, "execution_id": "a", "principal": secrets.token_hex(3000)},
        {**start, "execution_id": "b", "principal": "€" * 400},
    ]
    answers = logs.calls("append_batch", json.dumps(items))
    assert [(one["outcome"], one["reason"]) for one in answers] == [
        ("denied", "no-principal"),
        ("started", None),
    ]
