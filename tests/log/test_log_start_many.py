"""Starting many executions in one call (clauses E2, E3, E12)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from tests.log.both import Clients
from tests.log.logs import Logs
from underseal import AccessDenied, AsyncUnderseal, ExecutionRefusedError, MemoryKeyRing, Start, Underseal
from underseal.testing import OWNER, DictConnection, TestDatabase

COMMON = ("outcome", "reason", "message", "execution_id")


@pytest.fixture
def logs(db: DictConnection) -> Logs:
    """The verbs in an autocommit session of the schema's owner."""
    return Logs(db)


@pytest.fixture(params=["sync", "async"])
def ex(request: pytest.FixtureRequest, database: TestDatabase) -> Iterator[Any]:
    """What callers do, over either kind of connections."""
    clients = Clients(database.conninfo_as(OWNER), request.param == "async")
    yield clients.executions
    clients.close()


def start(logs: Logs, *items: object) -> list[dict[str, Any]]:
    """Start; an item that is a text stands for itself, since it may be what no encoder writes."""
    told = ", ".join(one if isinstance(one, str) else json.dumps(one) for one in items)
    return logs.calls("start_executions", f"[{told}]")


def answers(rows: list[dict[str, Any]]) -> list[tuple[str, str | None, str | None]]:
    """Outcome, reason and id of each, which must come in the order of the items."""
    assert [row["item"] for row in rows] == list(range(1, len(rows) + 1))
    return [(row["outcome"], row["reason"], row["execution_id"]) for row in rows]


def asked(
    execution_id: str | None = None, flow: str | None = "f", principal: str = "ann", **more: Any
) -> Any:
    """An item."""
    named = {} if execution_id is None else {"execution_id": execution_id}
    return {"flow": flow, "principal": principal, **named, **more}


@pytest.mark.clause("E2f", "E3")
def test_each_is_answered_as_a_start_of_its_own(logs: Logs) -> None:
    logs.start("taken", "mine", owner="ann")
    logs.start("theirs", owner="bob")
    items: list[dict[str, Any]] = [
        asked("b", input={"n": [1.50, None, "ü\n"]}, flow_version=3, after="90 minutes"),
        asked("taken"),
        asked("theirs"),
        asked("mine~child", input=None),
        asked("theirs~child"),
        asked("a\x01b"),
        asked("c", flow=""),
        asked("d", flow_version=0),
        asked("e", after="-1 second"),
        asked("g", input="x" * 1_048_577),
        asked("h", input={"__loomEnc": "x"}),
        asked("i", principal=""),
        asked("a"),
    ]
    rows = start(logs, *items)
    assert answers(rows) == [
        ("started", None, "b"),
        ("exists", None, "taken"),
        ("exists", None, "theirs"),
        ("started", None, "mine~child"),
        ("not-found", None, "theirs~child"),
        ("refused", "malformed-id", "a\x01b"),
        ("refused", "malformed-flow", "c"),
        ("refused", "malformed-flow", "d"),
        ("refused", "malformed-delay", "e"),
        ("refused", "too-large", "g"),
        ("refused", "envelope", "h"),
        ("denied", "no-principal", "i"),
        ("started", None, "a"),
    ]
    for row, item in zip(rows, items, strict=True):
        if row["outcome"] != "started":
            (alone,) = logs.rows(
                "select * from underseal.start_execution(%s, %s, %s::json, %s, %s, %s::interval)",
                item["flow"], item["principal"], json.dumps(item.get("input")), item["execution_id"],
                item.get("flow_version", 1), item.get("after"),
            )  # fmt: skip
            assert {name: row[name] for name in COMMON} == alone
    (first,) = logs.calls("read_events", "b", "ann")
    assert first["data"] == {
        "flow": "f", "flow_version": 3, "owner": "ann", "input": {"n": [1.50, None, "ü\n"]}, "after": 5400
    }  # fmt: skip


@pytest.mark.clause("E2f")
def test_what_is_not_said_is_as_in_a_start(logs: Logs) -> None:
    rows = start(
        logs, asked(), asked(input=[1], flow_version=None, after=None, execution_id=None), '{"flow": "f"}'
    )
    (one, two, three) = answers(rows)
    assert (one[:2], two[:2]) == (("started", None), ("started", None))
    assert three == ("denied", "no-principal", None)
    assert one[2] is not None
    assert two[2] is not None
    assert one[2] < two[2] or one[2][:12] == two[2][:12]
    for row, value in ((one, None), (two, [1])):
        (event,) = logs.calls("read_events", row[2], "ann")
        assert event["data"] == {"flow": "f", "flow_version": 1, "owner": "ann", "input": value}
    assert start(logs) == []


@pytest.mark.clause("E2f")
def test_what_was_minted_for_nothing_names_nothing(logs: Logs) -> None:
    assert answers(start(logs, asked(flow=""), asked(), asked("c", flow=""), asked(principal=""))) == [
        ("refused", "malformed-flow", None),
        ("started", None, logs.value("select chain_id from underseal.execution")),
        ("refused", "malformed-flow", "c"),
        ("denied", "no-principal", None),
    ]


@pytest.mark.clause("E3")
def test_an_id_starts_once_in_a_call_and_ever(logs: Logs) -> None:
    rows = start(logs, asked("a", input=1), asked("b"), asked("a", input=2))
    assert answers(rows) == [
        ("started", None, "a"), ("started", None, "b"), ("conflict", "same-execution", "a"),
    ]  # fmt: skip
    assert logs.calls("read_events", "a", "ann")[0]["data"]["input"] == 1
    assert answers(start(logs, asked("a"), asked("c"))) == [("exists", None, "a"), ("started", None, "c")]


@pytest.mark.clause("E2f", "E12a")
def test_nothing_but_a_start_can_be_smuggled_in(logs: Logs) -> None:
    logs.start("other")
    smuggled = {
        "verb": "complete", "fence": 1, "head": 0, "output": 1, "minted": True, "worker": "w", "lease": "1 hour",
        "events": [{"type": "STEP_COMPLETED", "data": {}}], "waits": [], "incarnation": "x", "owner": "bob",
    }  # fmt: skip
    # beside something that cannot be read, too: then items are read one by one
    for beside in (asked(), "3"):
        rows = start(logs, {**asked("other"), **smuggled}, {**asked(), **smuggled}, beside)
        (one, (outcome, _, started), _) = answers(rows)
        assert one == ("exists", None, "other")
        assert outcome == "started"
        (event,) = logs.calls("read_events", started, "ann")
        assert event["data"] == {"flow": "f", "flow_version": 1, "owner": "ann", "input": None}
        assert logs.rows("select claimed_by from underseal.wake where chain_id = %s", started) == [
            {"claimed_by": None}
        ]
    assert logs.value("select status from underseal.execution where chain_id = 'other'") == "pending"


@pytest.mark.clause("E2f")
@pytest.mark.parametrize(
    ("bad", "reason", "named"),
    [
        ('{"flow": "f", "principal": "ann", "execution_id": "x", "input": "4111\\u0000"}', "unreadable", "x"),
        ('{"flow": "f", "principal": "ann", "input": {"4111": "\\ud83d"}}', "unreadable", None),
        ('{"flow": "f", "principal": "4111\\ude00", "execution_id": "x"}', "unreadable", "x"),
        ('{"flow": "f", "principal": "ann", "verb": "start", "other": "4111\\u0000"}', "unreadable", None),
        ("4111", "malformed-item", None),
        ("null", "malformed-item", None),
        ('[{"flow": "f", "principal": "ann"}]', "malformed-item", None),
        ('{"flow": "f", "principal": "ann", "flow_version": "4111x"}', "malformed-item", None),
        ('{"flow": "f", "principal": "ann", "execution_id": "x", "after": "4111x"}', "malformed-item", "x"),
    ],
)
def test_a_bad_item_takes_no_neighbour_along(logs: Logs, bad: str, reason: str, named: str | None) -> None:
    rows = start(logs, asked("a", input="\\u0000 ü"), bad, asked())
    ((*first, _), second, (outcome, _, minted)) = answers(rows)
    assert (first, outcome) == (["started", None], "started")
    assert second == ("refused", reason, named)
    assert "4111" not in str(rows)
    assert logs.calls("read_events", "a", "ann")[0]["data"]["input"] == "\\u0000 ü"
    assert {one["id"] for one in logs.rows("select chain_id as id from underseal.execution")} == {"a", minted}


@pytest.mark.parametrize("starts", ["{}", "3", "null", None])
def test_what_is_no_array_is_an_error(logs: Logs, starts: str | None) -> None:
    with pytest.raises(psycopg.Error, match="start_executions expected a JSON array") as caught:
        logs.calls("start_executions", starts)
    assert caught.value.sqlstate == "US001"


def test_a_call_has_an_end(logs: Logs) -> None:
    (row,) = start(logs, *[asked()] * 1001)
    assert (row["outcome"], row["reason"], row["item"], row["execution_id"]) == (
        "refused", "too-many", None, None,
    )  # fmt: skip
    assert logs.value("select count(*) from underseal.execution") == 0
    rows = start(logs, *[asked()] * 1000)
    assert {row["outcome"] for row in rows} == {"started"}
    assert len({row["execution_id"] for row in rows}) == 1000


@pytest.mark.clause("E12a")
@pytest.mark.parametrize("access", ["client", "worker"])
def test_each_item_is_of_somebody_the_login_may_act_for(
    database: TestDatabase, logs: Logs, access: str
) -> None:
    role = database.create_role(access)
    logs.call("grant_access", role, access, "login")
    logs.call("map_login", role, "ann")
    login = Logs(database.connect(role))
    assert answers(start(login, asked("a"), asked("b", principal="bob"), asked("c"))) == [
        ("started", None, "a"), ("denied", "no-principal", "b"), ("started", None, "c"),
    ]  # fmt: skip
    owners = logs.rows("select chain_id as id, owner from underseal.execution order by 1")
    assert owners == [{"id": "a", "owner": "ann"}, {"id": "c", "owner": "ann"}]


@pytest.mark.clause("E12c")
def test_who_starts_many_holds_nothing_of_anybody_elses(database: TestDatabase, logs: Logs) -> None:
    role = database.create_role("client")
    logs.call("grant_access", role, "client")
    logs.start("theirs")
    stranger = Logs(database.connect(role, autocommit=False))
    rows = start(stranger, asked("theirs", principal="mallory"), asked("theirs~child", principal="mallory"))
    assert [one[0] for one in answers(rows)] == ["exists", "not-found"]
    driver = Logs(database.connect(OWNER, options="-c lock_timeout=2s"))
    assert driver.call("acquire_fence", "theirs")["outcome"] == "acquired"
    stranger.connection.rollback()


def test_many_from_python(ex: Any) -> None:
    answers = ex.start_many("f", "ann", ({"n": n} for n in range(3)), flow_version=2, after=timedelta(days=1))
    assert [one.outcome for one in answers] == ["started"] * 3
    assert {type(one) for one in answers} == {Start}
    for n, one in enumerate(answers):
        (event,) = ex.events(one.execution_id, "ann")
        assert event.data == {
            "flow": "f", "flow_version": 2, "owner": "ann", "input": {"n": n}, "after": 86400
        }  # fmt: skip
    assert ex.start_many("f", "ann", []) == []


@pytest.mark.clause("E2f")
def test_from_python_each_has_an_outcome(ex: Any) -> None:
    one, other, last = ex.start_many("f", "ann", [1, "x" * 1_048_577, "\0"])
    assert one.outcome == "started"
    assert (other.outcome, other.reason, other.execution_id) == ("refused", "too-large", None)
    assert (last.outcome, last.reason, last.execution_id) == ("refused", "unreadable", None)
    assert [shown.execution_id for shown in ex.list("ann")] == [one.execution_id]
    (alone,) = ex.start_many("", "ann", [1])
    assert (alone.outcome, alone.reason, alone.execution_id) == ("refused", "malformed-flow", None)


@pytest.mark.clause("E12a")
def test_from_python_a_call_that_starts_nothing_is_an_error(
    database: TestDatabase, db: DictConnection, ex: Any
) -> None:
    with pytest.raises(ExecutionRefusedError) as caught:
        ex.start_many("f", "ann", [1] * 1001)
    assert caught.value.reason == "too-many"
    with pytest.raises(AccessDenied):
        ex.start_many("f", "", [1, 2])
    assert ex.list("ann") == []


def test_many_join_a_transaction_of_the_callers(database: TestDatabase, logs: Logs) -> None:
    conninfo = database.conninfo_as(OWNER)
    with Underseal(conninfo, keys=MemoryKeyRing()) as us, psycopg.connect(conninfo) as mine:
        us.executions.start_many("f", "ann", [1, 2], connection=mine)
        with us.using(mine):
            us.executions.start_many("f", "ann", [3])
        mine.rollback()
    assert logs.value("select count(*) from underseal.execution") == 0


async def test_one_hint_for_all(database: TestDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int] = []
    with Underseal(database.conninfo_as(OWNER), keys=MemoryKeyRing()) as us:
        monkeypatch.setattr(us.executions, "_hint", lambda: told.append(1))
        us.executions.start_many("f", "ann", [1, 2, 3])
        assert told == [1]
    async with AsyncUnderseal(database.conninfo_as(OWNER), keys=MemoryKeyRing()) as them:
        monkeypatch.setattr(them.executions, "_hint", lambda: told.append(2))
        await them.executions.start_many("f", "ann", [1, 2, 3])
        assert told == [1, 2]
