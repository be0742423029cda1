"""Executions from Python: both kinds of clients, their answers and their errors."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

import underseal
from tests.log.both import Clients
from tests.log.logs import OPENS, Logs
from underseal import (
    AccessDenied,
    AsyncExecutionDriver,
    AsyncExecutions,
    ExecutionAlreadyExistsError,
    ExecutionDeniedError,
    ExecutionDriver,
    ExecutionRefusedError,
    Executions,
    InboxFullError,
    InboxMessageRefusedError,
    MemoryKeyRing,
    Principal,
    Underseal,
    batch,
)
from underseal.foundation.calls import interval_text, json_text
from underseal.foundation.steps import Row, Steps
from underseal.log import kernel
from underseal.testing import OWNER, DictConnection, TestClock, TestDatabase

TWINS = [
    (sync, twin, name)
    for sync, twin in ((Executions, AsyncExecutions), (ExecutionDriver, AsyncExecutionDriver))
    for name in vars(sync)
    if not name.startswith("_")
]
ROOT = Path(__file__).parents[2]
ANN = Principal("ann")


@pytest.fixture(params=["sync", "async"])
def clients(request: pytest.FixtureRequest, database: TestDatabase) -> Iterator[Clients]:
    """Clients that log in as the schema's owner, of either kind."""
    made = Clients(database.conninfo_as(OWNER), request.param == "async")
    yield made
    made.close()


@pytest.fixture
def ex(clients: Clients) -> Any:
    """What callers do."""
    return clients.executions


@pytest.fixture
def dr(clients: Clients) -> Any:
    """What drivers do."""
    return clients.driver


def begin(dr: Any, execution_id: str = "c") -> int:
    """Start one as its driver: the fence."""
    (started,) = dr.append_batch([batch.start_item(execution_id, "f", "ann", {"n": 1})])
    assert started.outcome == "started"
    fence: int = started.fence
    return fence


# -- shapes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("sync", "twin", "name"), TWINS)
def test_the_async_clients_are_twins(sync: type, twin: type, name: str) -> None:
    one, other = getattr(sync, name), getattr(twin, name)
    assert one.__doc__
    assert other.__doc__ == one.__doc__
    mine, its = inspect.signature(one).parameters, inspect.signature(other).parameters
    assert [(p.name, p.kind, p.default) for p in mine.values()] == [
        (p.name, p.kind, p.default) for p in its.values()
    ]


@pytest.mark.parametrize(
    ("sync", "twin"), [(Executions, AsyncExecutions), (ExecutionDriver, AsyncExecutionDriver)]
)
def test_the_async_clients_have_no_method_of_their_own(sync: type, twin: type) -> None:
    assert [name for name in vars(sync) if not name.startswith("_")] == [
        name for name in vars(twin) if not name.startswith("_")
    ]


@pytest.mark.parametrize("room", ["log", "inbox", "snapshot"])
def test_each_function_is_called_from_one_place(room: str) -> None:
    made = set()
    for path in (ROOT / "sql" / room).glob("*.sql"):
        made |= set(re.findall(r"create or replace function underseal\.([a-z]\w*)", path.read_text()))
    called = [
        name
        for path in (ROOT / "pylib" / "underseal").rglob("*.py")
        for name in re.findall(r"from underseal\.([a-z]\w*)\(", path.read_text())
        if name in made
    ]
    assert sorted(called) == sorted(made)


def test_durations_are_told_in_seconds() -> None:
    assert interval_text(timedelta(days=2, microseconds=5)) == "172800.000005 seconds"


def test_what_json_cannot_say_is_refused_here() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        json_text({"n": float("nan")})


# -- starting and looking -----------------------------------------------------------------------------


@pytest.mark.clause("E3")
def test_a_taken_id_is_told_by_an_error(ex: Any) -> None:
    assert ex.start("f", ANN, {"n": 1}, execution_id="c") == "c"
    with pytest.raises(ExecutionAlreadyExistsError) as caught:
        ex.start("g", "bob", execution_id="c")
    assert (caught.value.code, caught.value.execution_id) == ("execution-exists", "c")
    assert ex.get("c", "ann").flow == "f"


def test_an_execution_is_started_and_looked_at(ex: Any) -> None:
    name = ex.start("f", ANN, {"n": [1, None, "ü"]}, flow_version=3)
    found = ex.get(name, ANN)
    assert (found.execution_id, found.flow, found.flow_version, found.owner) == (name, "f", 3, "ann")
    assert (found.status, found.head, found.ended, found.waits) == ("pending", 0, False, ())
    (event,) = ex.events(name, "ann")
    assert (event.seq, event.type, event.data["input"]) == (0, "EXECUTION_STARTED", {"n": [1, None, "ü"]})
    assert "ü" not in repr(event)


def test_a_start_that_cannot_be_is_refused(ex: Any) -> None:
    for flow, more, reason in (
        ("", {}, "malformed-flow"),
        ("f", {"execution_id": "a\nb"}, "malformed-id"),
        ("f", {"after": timedelta(days=-1)}, "malformed-delay"),
        ("f", {"value": "x" * 1048577}, "too-large"),
    ):
        with pytest.raises(ExecutionRefusedError) as caught:
            ex.start(flow, "ann", **more)
        assert caught.value.reason == reason


def test_no_answer_is_mistaken_for_a_start(database: TestDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    def answers(*_: Any) -> Steps[Row]:
        yield from ()
        return {"outcome": "not-found", "reason": None, "message": "no such chain", "execution_id": "a~b"}

    monkeypatch.setattr(kernel, "start_execution", answers)
    monkeypatch.setattr(kernel, "fork_execution", answers)
    with Executions(database.conninfo_as(OWNER)) as executions:
        calls: list[Callable[[], str]] = [
            lambda: executions.start("f", "ann"),
            lambda: executions.fork("c", 0, "ann"),
        ]
        for call in calls:
            with pytest.raises(ExecutionRefusedError) as caught:
                call()
            assert caught.value.reason == "not-found"


@pytest.mark.clause("E12c")
def test_who_may_not_look_is_told_as_if_there_were_nothing(ex: Any) -> None:
    ex.start("f", "ann", execution_id="c")
    told = []
    for execution_id in ("c", "nothing"):
        for call in (ex.get, ex.events, ex.inbox, ex.cancel):
            with pytest.raises(ExecutionDeniedError) as caught:
                call(execution_id, "bob")
            assert caught.value.execution_id == execution_id
            told.append((caught.value.op, caught.value.reason, caught.value.code, str(caught.value)))
    assert told[:4] == told[4:]
    assert {op for op, *_ in told} == {"read", "cancel"}


def test_a_login_that_may_not_act_for_somebody_is_told(database: TestDatabase, db: DictConnection) -> None:
    role = database.create_role("client")
    db.execute("select underseal.grant_access(%s, 'client', 'login')", [role])
    db.execute("select underseal.map_login(%s, 'ann')", [role])
    with Executions(database.conninfo_as(role)) as executions:
        executions.start("f", "ann", execution_id="c")
        with pytest.raises(AccessDenied):
            executions.start("f", "bob")
        assert [one.execution_id for one in executions.list("ann")] == ["c"]


def test_a_list_has_pages(ex: Any) -> None:
    for number in range(5):
        ex.start("f" if number % 2 else "g", "ann", execution_id=f"c{number}")
    first = ex.list("ann", limit=2)
    second = ex.list("ann", limit=2, after=first[-1])
    third = ex.list("ann", limit=2, after=second[-1].cursor)
    assert [one.execution_id for one in (*first, *second, *third)] == ["c4", "c3", "c2", "c1", "c0"]
    assert [one.execution_id for one in ex.list("ann", flow="f")] == ["c3", "c1"]
    assert ex.list("ann", statuses=["failed"]) == []
    with pytest.raises(ExecutionRefusedError):
        ex.list("ann", after="nonsense")


def test_a_list_goes_on_where_a_call_has_looked_at_enough(
    database: TestDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = kernel.list_executions
    asked: list[Any] = []

    def patient(principal: str, statuses: Any, flow: Any, before: Any, most: int) -> Steps[list[Row]]:
        asked.append((before, most))
        if len(asked) == 1:
            found = yield from read(principal, statuses, flow, before, 1)
            return [*found, {"outcome": "more", "cursor": found[-1]["cursor"]}]
        return (yield from read(principal, statuses, flow, before, most))

    monkeypatch.setattr(kernel, "list_executions", patient)
    with Executions(database.conninfo_as(OWNER)) as executions:
        for number in range(3):
            executions.start("f", "ann", execution_id=f"c{number}")
        found = executions.list("ann", limit=3)
    assert [one.execution_id for one in found] == ["c2", "c1", "c0"]
    assert asked[1] == (found[0].cursor, 2)


# -- a whole story ------------------------------------------------------------------------------------


@pytest.mark.clause("E6b", "I1a")
def test_an_execution_from_its_start_to_its_end(ex: Any, dr: Any) -> None:
    fence = begin(dr)
    waits = [
        batch.wait("w", batch.topic("order"), batch.gate("ok"), batch.sleep(timedelta(days=1))),
    ]
    (parked,) = dr.append_batch([batch.park_item("c", fence, waits, [batch.event("STEP", n=1)])])
    assert (parked.outcome, parked.status, parked.done) == ("parked", "suspended", True)
    assert [arm.get("topic") for arm in ex.get("c", "ann").waits[0]["arms"]] == ["order", "$gate/ok", None]
    sent = ex.send("c", "order", {"pay": 5}, "ann", message_id="m1")
    assert (sent.outcome, sent.inbox_seq) == ("sent", 1)
    assert ex.send("c", "order", {"pay": 5}, "ann", message_id="m1").outcome == "duplicate"
    (waiting,) = ex.inbox("c", "ann")
    assert (waiting.topic, waiting.sender, waiting.message_id) == ("order", "ann", "m1")
    found = dr.next_message("c", fence)
    assert (found.outcome, found.wait, found.arm, found.payload) == ("message", "w", 0, {"pay": 5})
    assert "pay" not in repr(found)
    consumed = dr.consume_message("c", fence, found)
    assert consumed.outcome == "consumed"
    assert dr.consume_message("c", fence, found).outcome == "conflict"
    (done,) = dr.append_batch([batch.complete_item("c", fence, {"paid": 5})])
    assert done.outcome == "completed"
    assert ex.record_outcome("c", {"good": True}, "ann").seq == 5
    assert [event.type for event in dr.events("c")] == [
        "EXECUTION_STARTED", "STEP", "EXECUTION_SUSPENDED", "MESSAGE_CONSUMED", "EXECUTION_COMPLETED",
        "OUTCOME_RECORDED",
    ]  # fmt: skip
    assert ex.send("c", "order", 1, "ann").reason == "ended"
    assert ex.verify("c").outcome == "verified"


def test_one_call_delivers_what_is_there(ex: Any, dr: Any) -> None:
    fence = begin(dr)
    ex.send("c", "t", 1, "ann")
    ex.send("c", "t", 2, "ann")
    (answered,) = dr.append_batch([batch.park_item("c", fence, [batch.wait("a", batch.topic("t"))])])
    assert answered.outcome == "answered"
    dr.append_batch([batch.park_item("c", fence, [batch.wait("b", batch.topic("u"))])])
    ex.send("c", "u", 3, "ann")
    assert dr.deliver("c", fence + 7).reason == "stale-fence"
    delivered = dr.deliver("c", fence)
    assert (delivered.outcome, delivered.answered, delivered.held) == ("delivered", 1, False)
    assert ex.discard("c", "t", "ann", "not wanted").discarded == 1


def test_one_call_delivers_to_many(ex: Any, dr: Any) -> None:
    for name in ("c", "d"):
        begin(dr, name)
        dr.append_batch([batch.park_item(name, 1, [batch.wait("a", batch.topic("t"))])])
    ex.send("d", "t", 3, "ann")
    one, other, none = dr.deliver_batch([("c", 1), ("d", 1), ("nothing", 1)])
    assert (one.outcome, one.answered, one.item, one.status, one.head) == ("none", 0, 1, "suspended", 1)
    assert (other.outcome, other.answered, other.held, other.execution_id) == ("delivered", 1, False, "d")
    assert (other.status, other.head) == ("running", 2)
    assert (none.outcome, none.execution_id, none.status) == ("not-found", "nothing", None)
    assert dr.deliver_batch([]) == []
    with pytest.raises(ExecutionRefusedError) as caught:
        dr.deliver_batch([(f"x{n}", 1) for n in range(1001)])
    assert caught.value.reason == "too-many"


@pytest.mark.clause("M8")
def test_from_python_there_is_an_answer_for_each(dr: Any, db: DictConnection) -> None:
    own = Logs(db)
    own.start("a", "b", "s", steps=2)
    own.seal("s")
    one, sealed, none, other = dr.read_logs([("a", 0), ("s", -1), ("nothing", -1), ("b", 2)], limit=1)
    assert (one.outcome, one.execution_id, [event.seq for event in one.events]) == ("found", "a", [1])
    assert (one.events[0].type, one.events[0].data) == ("STEP_COMPLETED", {"output": 0})
    assert (sealed.outcome, sealed.reason, sealed.execution_id, sealed.events) == (
        "denied",
        "execution",
        "s",
        (),
    )
    assert (none.outcome, none.execution_id) == ("not-found", "nothing")
    assert (other.outcome, other.execution_id, other.events) == ("found", "b", ())
    (opened,) = dr.read_logs([("s", -1)], capability=OPENS)
    assert len(opened.events) == 4
    assert dr.read_logs([]) == []


def test_moving_to_another_version(ex: Any, dr: Any) -> None:
    fence = begin(dr)
    assert dr.report_divergence("c", fence, "expected a, found b").outcome == "reported"
    assert dr.report_divergence("c", fence + 1, "x").reason == "stale-fence"
    assert dr.report_divergence("c", fence, "x" * 1001).reason == "too-large"
    assert ex.migrate("c", 2, "ann").outcome == "migrated"
    assert ex.migrate("c", 2, ANN).outcome == "unchanged"
    assert ex.get("c", "ann").flow_version == 2
    with pytest.raises(ExecutionRefusedError) as refused:
        ex.migrate("c", 0, "ann")
    assert refused.value.reason == "malformed-version"
    with pytest.raises(ExecutionDeniedError) as denied:
        ex.migrate("c", 3, "bob")
    assert denied.value.op == "migrate"
    ex.cancel("c", "ann", force=True)
    assert ex.migrate("c", 3, "ann").reason == "ended"


def test_a_gate_is_answered_once(ex: Any, dr: Any) -> None:
    begin(dr)
    assert ex.resume("c", "ok", {"yes": True}, "ann").outcome == "resumed"
    again = ex.resume("c", "ok", {"yes": False}, "ann")
    assert (again.outcome, again.reason) == ("conflict", "already-answered")


@pytest.mark.clause("G13")
def test_a_message_that_cannot_be_sent_is_told_by_an_error(ex: Any, dr: Any) -> None:
    begin(dr)
    for topic, payload, more, reason in (
        ("$gate/x", 1, {}, "malformed-topic"),
        ("t", 1, {"message_id": ""}, "malformed-id"),
        ("t", 1, {"expires_in": timedelta(0)}, "malformed-expiry"),
        ("t", "x" * 65536, {}, "too-large"),
        ("t", {"a": {"__loomEnc": "x"}}, {}, "envelope"),
    ):
        with pytest.raises(InboxMessageRefusedError) as caught:
            ex.send("c", topic, payload, "ann", **more)
        assert (caught.value.reason, caught.value.topic) == (reason, topic)
        assert not isinstance(caught.value, InboxFullError)
    with pytest.raises(InboxMessageRefusedError) as caught:
        ex.resume("c", "g", {"__loomEnc": "x"}, "ann")
    assert (caught.value.reason, caught.value.topic) == ("envelope", "$gate/g")
    assert ex.inbox("c", "ann") == []


@pytest.mark.clause("I4")
def test_a_full_topic_is_told_by_an_error(ex: Any, dr: Any, db: DictConnection) -> None:
    begin(dr)
    db.execute("insert into underseal.setting (key, value) values ('inbox.backlog', '1')")
    ex.send("c", "t", 1, "ann")
    with pytest.raises(InboxFullError) as caught:
        ex.send("c", "t", 2, "ann")
    assert (caught.value.code, caught.value.execution_id, caught.value.topic) == ("inbox-full", "c", "t")
    assert ex.send("c", "u", 2, "ann").outcome == "sent"


def test_cancelling(ex: Any, dr: Any) -> None:
    ex.start("f", "ann", execution_id="new")
    assert ex.cancel("new", "ann").outcome == "cancelled"
    fence = begin(dr)
    dr.append("c", fence, [batch.event("STEP")])
    assert ex.cancel("c", "ann", "enough").outcome == "requested"
    assert ex.cancel("c", "ann").outcome == "unchanged"
    assert dr.append("c", fence, [batch.event("CLEANED")]).cancel_requested is True
    assert ex.cancel("c", "ann", force=True).outcome == "cancelled"
    assert ex.cancel("c", "ann").reason == "ended"
    assert dr.append("c", fence, [batch.event("STEP")]).done is False


# -- driving ------------------------------------------------------------------------------------------


@pytest.mark.clause("E2a", "E2c", "E8a")
def test_fences_and_recovery(dr: Any) -> None:
    first = begin(dr)
    seen = dr.head("c")
    assert (seen.outcome, seen.fence, seen.head, seen.status) == ("found", first, 0, "pending")
    taken = dr.acquire_fence_if("c", seen)
    assert (taken.outcome, taken.fence) == ("acquired", first + 1)
    assert dr.append("c", first, [batch.event("STEP")]).reason == "stale-fence"
    assert dr.append_if_unchanged("c", seen, [batch.event("STEP")]).reason == "stale-fence"
    assert dr.append_if_unchanged("c", dr.head("c"), [batch.event("STEP")]).outcome == "appended"
    recovered = dr.recover("c", dr.head("c"), "w2", timedelta(seconds=30))
    assert (recovered.outcome, recovered.fence) == ("recovered", first + 2)
    assert dr.acquire_fence("nothing").outcome == "not-found"
    with pytest.raises(ValueError, match="expected an observation"):
        dr.acquire_fence_if("c", dr.head("nothing"))


def test_a_batch_of_every_kind(ex: Any, dr: Any) -> None:
    fences = {name: begin(dr, name) for name in ("a", "b", "c", "d", "e")}
    seen = dr.head("a")
    answers = dr.append_batch(
        [
            batch.append_item("a", fences["a"], [batch.event("STEP")], head=seen.head, incarnation=seen.incarnation),
            batch.fail_item("b", fences["b"], {"why": 1}),
            batch.cancelled_item("c", fences["c"], "asked"),
            batch.continue_item("d", fences["d"], {"n": 2}, flow="g", flow_version=2),
            batch.start_item("e", "f", "ann"),
            batch.start_item("x", "f", "ann", worker="w", lease=timedelta(seconds=30), events=[batch.event("STEP")]),
            batch.start_item("y", "f", "ann", after=timedelta(hours=1)),
        ]
    )  # fmt: skip
    assert [one.outcome for one in answers] == [
        "appended", "failed", "cancelled", "continued", "exists", "started", "started",
    ]  # fmt: skip
    assert [one.item for one in answers] == list(range(1, 8))
    assert answers[4].done is False
    assert (ex.get("d", "ann").continued_by, ex.get("d~2", "ann").flow_version) == ("d~2", 2)
    with pytest.raises(TypeError, match="expected head or incarnation"):
        batch.append_item("a", 1, [], heads=1)


@pytest.mark.clause("E9b", "E9a", "E10a")
def test_snapshots_compaction_and_content(ex: Any, dr: Any) -> None:
    fence = begin(dr)
    dr.append("c", fence, [batch.event("STEP", n=n) for n in range(1, 4)])
    assert dr.load_snapshot("c") is None
    assert dr.save_snapshot("c", fence, 3, {"sum": 6}).outcome == "saved"
    found = dr.load_snapshot("c")
    assert (found.seq, found.state) == (3, {"sum": 6})
    assert ex.compact("c", 5, "ann").reason == "beyond-head"
    done = ex.compact("c", 3, "ann")
    assert (done.outcome, done.log_start, done.removed) == ("truncated", 3, 2)
    stored = dr.put_content("c", {"big": "x" * 100}, fence)
    assert stored.outcome == "stored"
    assert dr.get_content("c", stored.digest) == {"big": "x" * 100}
    assert dr.get_content("c", b"\0" * 32) is None
    (swept,) = dr.sweep_content(grace=timedelta(0))
    assert (swept.outcome, swept.chain_id, swept.removed) == ("swept", "c", 1)


@pytest.mark.clause("E6f")
def test_forking_and_deleting(ex: Any, dr: Any) -> None:
    fence = begin(dr)
    dr.append("c", fence, [batch.event("STEP", n=1), batch.event("STEP", n=2)])
    forked = ex.fork("c", 1, "ann")
    assert [event.type for event in ex.events(forked, "ann")] == ["EXECUTION_STARTED", "STEP"]
    assert ex.fork("c", 0, "ann", new_id="d") == "d"
    with pytest.raises(ExecutionAlreadyExistsError):
        ex.fork("c", 0, "ann", new_id="d")
    with pytest.raises(ExecutionRefusedError) as caught:
        ex.fork("c", 99, "ann")
    assert caught.value.reason == "beyond-head"
    assert ex.delete_chain("c", "ann").reason == "open"
    dr.append_batch([batch.complete_item("c", fence)])
    assert ex.delete_chain("c", "ann").deleted == 1
    ex.cancel("d", "ann", force=True)
    assert [(one.outcome, one.chain_id) for one in ex.purge(timedelta(0))] == [("purged", "d")]
    with pytest.raises(ExecutionDeniedError):
        ex.get("c", "ann")
    assert ex.sweep_denials() == 0


def test_expired_messages_are_disposed_of(ex: Any, dr: Any, database: TestDatabase) -> None:
    clock = TestClock(database)
    begin(dr)
    ex.send("c", "t", 1, "ann", expires_in=timedelta(seconds=5))
    clock.advance(seconds=6)
    assert dr.expire_inbox() == 1
    assert ex.inbox("c", "ann") == []


@pytest.mark.clause("E12d")
def test_a_policy_of_the_hosts(ex: Any, dr: Any, database: TestDatabase, admin: DictConnection) -> None:
    begin(dr)
    host = database.create_role("host", "nologin")
    admin.execute("create schema policy")
    admin.execute(
        "create function policy.may(op text, principal text, owner text, execution_id text, flow text)"
        " returns boolean language sql security definer set search_path = pg_catalog, pg_temp"
        " as $$ select principal = 'bob' $$"
    )
    admin.execute(f"alter function policy.may owner to {host}".encode())
    admin.execute(f"grant usage on schema policy to {OWNER}".encode())
    assert ex.set_access_policy("policy.may(text, text, text, text, text)").outcome == "set"
    assert ex.get("c", "bob").owner == "ann"
    with pytest.raises(ExecutionDeniedError):
        ex.get("c", "ann")
    assert ex.set_access_policy(None).outcome == "unset"
    assert ex.get("c", "ann").owner == "ann"


def test_cursors_of_another_history(ex: Any, dr: Any) -> None:
    begin(dr)
    _, cursor = dr.read_all()
    foreign = cursor[:2] + "0" * 16 + cursor[18:]
    with pytest.raises(ExecutionRefusedError) as caught:
        dr.read_all(foreign)
    assert caught.value.reason == "foreign-cursor"
    assert ex.adopt_cursor(foreign) == cursor
    with pytest.raises(ExecutionRefusedError):
        ex.adopt_cursor("nonsense")
    assert ex.adopt_log() == 0


# -- whose transaction --------------------------------------------------------------------------------


def test_an_execution_exists_if_the_callers_transaction_commits(database: TestDatabase) -> None:
    us = Underseal(database.conninfo_as(OWNER), keys=MemoryKeyRing())
    with psycopg.connect(database.conninfo_as(OWNER)) as conn:
        us.executions.start("f", "ann", execution_id="a", connection=conn)
        with us.using(conn):
            us.executions.start("f", "ann", execution_id="b")
            us.driver.append("b", 1, [batch.event("STEP")])
        conn.rollback()
        assert us.executions.list("ann") == []
        with us.using(conn):
            us.executions.start("f", "ann", execution_id="b")
        conn.commit()
    assert [one.execution_id for one in us.executions.list("ann")] == ["b"]
    us.close()


def test_everything_a_user_needs_is_importable() -> None:
    assert {"Executions", "ExecutionDriver", "batch", "LogEvent"} <= set(underseal.__all__)


@pytest.mark.parametrize("client", [Executions, ExecutionDriver, AsyncExecutions, AsyncExecutionDriver])
def test_a_malformed_connection_string_is_refused_at_once_and_not_quoted(client: Any) -> None:
    with pytest.raises(ValueError, match="expected a libpq connection string") as refused:
        client("hunter2 dbname=x")
    assert "hunter2" not in str(refused.value)
    assert refused.value.__cause__ is refused.value.__context__ is None


def test_what_is_no_principal_is_said_so(ex: Any) -> None:
    for nobody in (None, 7, b"ann"):
        with pytest.raises(TypeError, match="expected a Principal or its id as a text"):
            ex.start("f", nobody)


@pytest.mark.clause("E11b")
def test_a_number_of_any_length_stops_nobody_who_reads(
    database: TestDatabase, clients: Clients, db: DictConnection
) -> None:
    digits = "7" * 5000
    db.execute("select underseal.start_execution('f', 'ann', %s::json, 'long')", [digits])
    clients.executions.start("f", "ann", execution_id="next")
    read = [event.data["input"] for event in clients.driver.read_all()[0] if event.data]
    assert [str(value) for value in read] == [digits, "None"]
