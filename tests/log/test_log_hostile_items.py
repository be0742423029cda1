"""What one item of a batch, or one caller's value, must not do to others."""

from __future__ import annotations

import json
import secrets
from typing import Any

import psycopg
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


NO_EVENTS = ["3", '"x"', "{}", "[3]", "[null]", '[{"type": "A"}, 3]', '[{"type": "A"}, ["B"]]']


@pytest.mark.clause("E2f")
@pytest.mark.parametrize("events", NO_EVENTS)
def test_an_item_whose_events_are_none_is_refused_alone(logs: Logs, events: str) -> None:
    logs.start("a", "b")
    broken = f'{{"verb": "complete", "execution_id": "b", "fence": 1, "events": {events}}}'
    second, first = logs.calls("append_batch", f"[{broken}, {item('a', '{}')}]")
    assert (first["outcome"], first["reason"]) == ("appended", None)
    assert (second["execution_id"], second["outcome"], second["reason"]) == (
        "b",
        "refused",
        "malformed-events",
    )
    assert second["message"].startswith("Expected an array of objects")
    assert logs.value("select count(*) from underseal.event where chain_id = 'b'") == 1


@pytest.mark.clause("E2f")
@pytest.mark.parametrize(
    "broken",
    [
        "3",
        "null",
        "[]",
        '{"verb": "append", "execution_id": "b", "fence": "first", "events": []}',
        '{"verb": "append", "execution_id": "b", "fence": 1e30, "events": []}',
        '{"verb": "append", "execution_id": "b", "fence": 1, "incarnation": "b", "events": []}',
        '{"verb": "start", "execution_id": "b", "flow": "f", "flow_version": 1.5, "principal": "ann"}',
        '{"verb": "start", "execution_id": "b", "flow": "f", "flow_version": 1, "principal": "ann", "after": "soon"}',
    ],
)
def test_an_item_of_another_form_is_refused_alone(logs: Logs, broken: str) -> None:
    logs.start("a")
    first, second = logs.calls("append_batch", f"[{item('a', '{}')}, {broken}]")
    assert (first["outcome"], first["reason"]) == ("appended", None)
    assert second["execution_id"] == ("b" if '"b"' in broken else None)
    assert (second["outcome"], second["reason"]) == ("refused", "malformed-item")
    assert second["message"].startswith("Expected an item")


@pytest.mark.clause("E2f")
@pytest.mark.parametrize("events", [one for one in NO_EVENTS if one.startswith("[")])
def test_events_that_are_none_are_a_refusal(logs: Logs, events: str) -> None:
    logs.start("a")
    answer = logs.call("append", "a", 1, events)
    assert (answer["outcome"], answer["reason"], answer["head"]) == ("refused", "malformed-events", 0)
    assert logs.value("select head from underseal.execution") == 0


@pytest.mark.clause("E1a")
@pytest.mark.parametrize("data", ['"data": null', '"data": {}', '"other": 1', '"data": 3, "data": {}'])
def test_one_event_and_several_are_read_alike(logs: Logs, data: str) -> None:
    logs.start("a", "b", "c")
    event = f'{{"type": "A", {data}}}'
    assert logs.call("append", "a", 1, f"[{event}]")["outcome"] == "appended"
    assert logs.call("append", "b", 1, f"[{event}, {event}]")["head"] == 2
    assert logs.calls(
        "append_batch", f'[{{"verb": "append", "execution_id": "c", "fence": 1, "events": [{event}]}}]'
    )
    assert logs.value("select count(distinct data::text) from underseal.event where seq > 0") == 1
    assert logs.call("append", "a", 1, "[]")["head"] == 1


@pytest.mark.clause("E2f")
@pytest.mark.parametrize("batch", ["3", '"x"', "{}", "null", None])
def test_a_batch_is_an_array(logs: Logs, batch: str | None) -> None:
    with pytest.raises(psycopg.Error, match="expected a JSON array of items") as caught:
        logs.calls("append_batch", batch)
    assert caught.value.sqlstate == "US001"


@pytest.mark.clause("E2f")
def test_one_execution_under_two_spellings_is_one(logs: Logs) -> None:
    logs.start("a")
    spelled = {"verb": "append", "fence": 1, "events": [{"type": "A"}]}
    items = [{**spelled, "execution_id": "a"}, {**spelled, "execution_id": "a~"}]
    first, second = logs.calls("append_batch", json.dumps(items))
    assert (first["outcome"], second["outcome"], second["reason"]) == (
        "appended",
        "conflict",
        "same-execution",
    )
    assert second["head"] == 1


@pytest.mark.clause("E2f")
@pytest.mark.parametrize("owner", ["ann", "bob"])
def test_of_what_a_start_was_not_judged_by_nothing_is_said(logs: Logs, owner: str) -> None:
    logs.start("a", owner=owner)
    start = {"verb": "start", "execution_id": "a", "flow": "", "flow_version": 1, "principal": "ann"}
    (answer,) = logs.calls("append_batch", json.dumps([start]))
    assert (answer["outcome"], answer["reason"]) == ("refused", "malformed-flow")
    assert [answer[name] for name in ("status", "head", "fence", "cancel_requested")] == [None] * 4


@pytest.mark.clause("E3")
@pytest.mark.parametrize(("flow", "principal"), [("", "ann"), ("f", None)])
def test_a_start_that_is_refused_names_no_execution(logs: Logs, flow: str, principal: str | None) -> None:
    (answer,) = logs.rows("select * from underseal.start_execution(%s, %s)", flow, principal)
    assert answer["outcome"] in ("refused", "denied")
    assert answer["execution_id"] is None
    (chosen,) = logs.rows("select * from underseal.start_execution(%s, %s, null, 'mine')", flow, principal)
    assert chosen["execution_id"] == "mine"


@pytest.mark.clause("E2f", "E7a")
@pytest.mark.parametrize(
    ("waits", "outcome"),
    [
        ('[{"wait": "w", "arms": [{"for": 1e400}]}]', "parked"),
        ('[{"wait": "w", "arms": [{"for": 1e-400}]}]', "answered"),
        (f'[{{"wait": "w", "arms": [{{"for": {"9" * 400}}}]}}]', "parked"),
        (f'[{{"wait": "w", "arms": [{{"for": 0.{"0" * 400}1}}]}}]', "answered"),
        ('[{"wait": "w", "arms": [{"for": 1e999999}]}]', "refused"),
        (f'[{{"wait": "w", "arms": [{{"for": {"9" * 140_000}}}]}}]', "refused"),
        (f'[{{"wait": "w", "arms": [{{"for": -{"9" * 400}}}]}}]', "refused"),
        ('[{"wait": "w", "arms": [{"for": "soon"}]}]', "refused"),
        ('[{"wait": "w", "arms": [{"for": "NaN"}]}]', "refused"),
        ('[{"wait": "w", "arms": [{"for": "1"}]}]', "refused"),
        ('[{"wait": "w\\u0041", "arms": [{"topic": "t"}]}]', "parked"),
        ('["w"]', "refused"),
        ('"w"', "refused"),
    ],
)
def test_no_wait_breaks_the_batch_it_is_in(logs: Logs, waits: str, outcome: str) -> None:
    logs.start("a", "b")
    park = f'{{"verb": "park", "execution_id": "b", "fence": 1, "waits": {waits}}}'
    first, second = logs.calls("append_batch", f"[{item('a', '{}')}, {park}]")
    assert (first["outcome"], second["outcome"]) == ("appended", outcome)
    assert (second["reason"] == "malformed-waits") == (outcome == "refused")


@pytest.mark.clause("G13")
@pytest.mark.parametrize("neighbour", ["{}", '{"text": "__loomEnc"}'])
def test_an_envelope_in_escapes_is_an_envelope(logs: Logs, neighbour: str) -> None:
    logs.start("a", "b", "c")
    data = '{"card": {"\\u005f_loomEnc": "loom/aes-256-gcm"}}'
    first, second = logs.calls("append_batch", f"[{item('a', neighbour)}, {item('b', data)}]")
    assert (first["outcome"], second["outcome"], second["reason"]) == ("appended", "refused", "envelope")
    assert logs.call("append", "c", 1, f'[{{"type": "A", "data": {data}}}]')["reason"] == "envelope"
