"""Reading one execution and listing them (clauses E1, E2, E12, M8)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.log.logs import FLOW, OPENS, SEAL, Logs
from underseal.testing import OWNER, DictConnection, TestClock, TestDatabase, in_background, wait_blocked


@pytest.fixture
def own(db: DictConnection) -> Logs:
    """The schema's owner."""
    return Logs(db)


def seqs(rows: list[dict[str, Any]]) -> list[int]:
    """Their numbers."""
    assert {row["outcome"] for row in rows} <= {"event"}
    return [row["seq"] for row in rows]


def test_an_execution_is_shown_as_its_log_folds(own: Logs, clock: TestClock) -> None:
    begun = clock.now()
    own.start("x", steps=1)
    clock.advance(seconds=5)
    own.write(
        {
            "verb": "park",
            "execution_id": "x",
            "fence": 1,
            "waits": [{"wait": "w", "arms": [{"topic": "news"}]}],
        }
    )
    row = own.call("get_execution", "x", "ann")
    assert row.pop("incarnation") == own.call("head", "x")["incarnation"]
    assert row == {
        "outcome": "found", "reason": None, "message": None, "execution_id": "x", "flow": FLOW, "flow_version": 1,
        "owner": "ann", "status": "suspended", "head": 2, "log_start": 1,
        "waits": [{"wait": "w", "arms": [{"topic": "news"}]}], "cancel_requested": False, "continued_by": None,
        "started_at": begun, "changed_at": clock.now(),
    }  # fmt: skip


@pytest.mark.clause("E6d")
def test_a_continued_execution_names_its_successor(own: Logs) -> None:
    own.start("x", "y")
    own.write({"verb": "continue", "execution_id": "x", "fence": 1})
    own.write({"verb": "continue", "execution_id": "x~2", "fence": 1})
    found = [own.call("get_execution", one, "ann") for one in ("x", "x~2", "x~3", "y")]
    assert [(row["status"], row["continued_by"]) for row in found] == [
        ("continued", "x~2"),
        ("continued", "x~3"),
        ("pending", None),
        ("pending", None),
    ]


@pytest.mark.clause("E2c")
def test_a_worker_observes_the_head(own: Logs, database: TestDatabase) -> None:
    own.start("x", steps=3)
    role = database.create_role("worker")
    own.call("grant_access", role, "worker")
    worker = Logs(database.connect(role))
    row = worker.call("head", "x")
    row.pop("incarnation")
    assert row == {
        "outcome": "found",
        "reason": None,
        "message": None,
        "head": 3,
        "fence": 1,
        "status": "running",
    }
    absent = worker.call("head", "x~2")
    assert (absent["outcome"], absent["head"], absent["incarnation"]) == ("not-found", None, None)


@pytest.mark.clause("E1b")
def test_events_are_read_in_order_and_in_pages(own: Logs) -> None:
    own.start("x", "x2", steps=12)
    assert seqs(own.calls("read_events", "x", "ann")) == list(range(13))
    for size in range(1, 15):
        got: list[int] = []
        while page := seqs(own.calls("read_events", "x", "ann", got[-1] if got else -1, size)):
            assert len(page) <= size
            got += page
        assert got == list(range(13))
    assert own.calls("read_events", "x", "ann", 12) == []
    assert own.calls("read_events", "x", "ann", 5, 0) == []
    assert seqs(own.calls("read_events", "x", "ann", None, None)) == list(range(13))
    first = own.calls("read_events", "x", "ann")[0]
    assert (first["type"], first["data"]["owner"], first["metadata"]) == ("EXECUTION_STARTED", "ann", None)


@pytest.mark.clause("E1a")
def test_data_comes_as_the_text_that_was_recorded(own: Logs) -> None:
    own.start("x")
    text = '{"a": 1.50, "b": 1e400, "a": 12345678901234567890123}'
    own.rows("select underseal.append('x', 1, %s::json)", f'[{{"type": "STEP_COMPLETED", "data": {text}}}]')
    assert own.value("select data::text from underseal.read_events('x', 'ann', 0)") == text


@pytest.mark.clause("M8", "M16", "E12c")
def test_a_log_that_does_not_open_is_denied_whole(own: Logs) -> None:
    own.start("x", steps=2)
    own.seal("x")
    own.append("x", steps=2)
    denied = own.call("read_events", "x", "mallory")
    assert denied["outcome"] == "denied"
    for capability in (None, {}, {"ciphers": OPENS["ciphers"]}, {**OPENS, "covers": ["A.b"]}):
        given = None if capability is None else Jsonb(capability)
        assert own.calls("read_events", "x", "ann", -1, 1000, given) == [denied]
    # who declares nothing gets no part of it either
    assert own.calls("read_events", "x", "ann", -1, 2) == [denied]
    assert own.calls("read_events", "x", "ann", 4, 2) == [denied]
    assert own.causes() == ["sealed"] * 6 + ["foreign"]
    opened = own.calls("read_events", "x", "ann", -1, 1000, Jsonb(OPENS))
    assert seqs(opened) == list(range(6))
    assert [row["metadata"] for row in opened] == [None, None, None, {"seal": SEAL}, None, None]
    # whose it is, is in the tables, which hold no payload
    assert own.call("get_execution", "x", "ann")["status"] == "running"


@pytest.mark.clause("M2", "M16")
def test_a_marker_of_another_version_opens_for_nobody(own: Logs) -> None:
    own.start("x")
    own.seal("x", {**SEAL, "v": 2})
    assert own.call("read_events", "x", "ann", -1, 1000, Jsonb(OPENS))["outcome"] == "denied"


@pytest.mark.clause("E12c", "T4b")
@pytest.mark.parametrize("call", ["read_events", "get_execution"])
def test_what_is_read_is_what_was_judged(
    own: Logs, admin: DictConnection, database: TestDatabase, call: str
) -> None:
    """While the policy thinks, the execution is deleted, and somebody else takes its id."""
    own.start("x", steps=1)
    host = database.create_role("host")
    admin.execute("create schema host")
    admin.execute(f"grant usage on schema host to {OWNER}")
    admin.execute(
        """create function host.may(text, text, text, text, text) returns boolean language sql security definer
           return pg_advisory_xact_lock_shared(7) is not null"""
    )
    admin.execute(f'grant all on schema host to "{host}"')
    admin.execute(f'alter function host.may owner to "{host}"')
    own.call("set_access_policy", "host.may(text,text,text,text,text)")
    assert own.calls(call, "x", "ann")[0]["outcome"] in ("event", "found")

    admin.execute("select pg_advisory_lock(7)")
    reading = in_background(own.calls, call, "x", "ann")
    wait_blocked(admin, own.connection.info.backend_pid)
    with admin.transaction():
        for table in ("execution", "event"):
            admin.execute(f"alter table underseal.{table} disable trigger all")
        admin.execute("update underseal.execution set owner = 'bob', incarnation = gen_random_uuid()")
        admin.execute("""update underseal.event set data = '{"input": "secret"}'""")
    admin.execute("select pg_advisory_unlock(7)")
    assert [row for row in reading.result(10) if row["outcome"] != "denied"] == []


# -- listing --------------------------------------------------------------------------------------------


def ids(rows: list[dict[str, Any]]) -> list[str]:
    """Their ids."""
    assert {row["outcome"] for row in rows} <= {"found"}
    return [row["execution_id"] for row in rows]


@pytest.fixture
def many(own: Logs, clock: TestClock) -> Logs:
    """Nine executions, three at an instant, of two owners and two flows."""
    for number in range(9):
        own.start(
            f"x{number}", owner="bob" if number % 3 == 2 else "ann", flow="odd" if number % 2 else "even"
        )
        if number % 3 == 2:
            clock.advance(minutes=1)
    own.write({"verb": "complete", "execution_id": "x4", "fence": 1})
    return own


@pytest.mark.clause("E12a", "E12b")
def test_a_list_holds_what_the_principal_may_read(many: Logs, database: TestDatabase) -> None:
    assert ids(many.calls("list_executions", "ann")) == ["x7", "x6", "x4", "x3", "x1", "x0"]
    assert ids(many.calls("list_executions", "bob")) == ["x8", "x5", "x2"]
    assert many.calls("list_executions", "mallory") == []
    role = database.create_role("operator")
    many.call("grant_access", role, "operator")
    many.call("map_login", role, "olga")
    operator = Logs(database.connect(role))
    assert ids(operator.calls("list_executions", "olga")) == [f"x{number}" for number in range(8, -1, -1)]
    assert operator.call("list_executions", "ann")["reason"] == "no-principal"
    assert len(many.calls("list_executions", None)) == 9
    assert many.causes() == []


def test_a_list_may_be_narrowed(many: Logs) -> None:
    assert ids(many.calls("list_executions", "ann", None, "even")) == ["x6", "x4", "x0"]
    assert ids(many.calls("list_executions", "ann", ["completed"])) == ["x4"]
    assert ids(many.calls("list_executions", "ann", ["pending", "completed"], "odd")) == ["x7", "x3", "x1"]
    assert many.calls("list_executions", "ann", []) == []
    row = many.calls("list_executions", "ann", ["completed"])[0]
    shown = many.call("get_execution", "x4", "ann")
    assert {name: row[name] for name in shown} == shown


@pytest.mark.parametrize("principal", ["ann", None])
def test_pages_of_a_list_make_the_list(many: Logs, clock: TestClock, principal: str | None) -> None:
    whole = ids(many.calls("list_executions", principal))
    for size in range(1, 11):
        got: list[str] = []
        cursor = None
        while page := many.calls("list_executions", principal, None, None, cursor, size):
            assert len(page) <= size
            got += ids(page)
            cursor = page[-1]["cursor"]
            # what begins or ends meanwhile moves nothing
            clock.advance(seconds=1)
            many.start(f"new-{size}-{len(got)}")
        assert got == whole
        whole = ids(many.calls("list_executions", principal, None, None, None, 1000))


@pytest.mark.parametrize(
    "cursor", ["", "x", "1", "1/", "1//", "1/a b/c", "1.5//x", "99999999999999999999//x", "//x"]
)
def test_a_malformed_cursor_of_a_list_is_refused(many: Logs, cursor: str) -> None:
    row = many.call("list_executions", "ann", None, None, cursor)
    assert (row["outcome"], row["reason"]) == ("refused", "malformed-cursor")


def test_a_cursor_may_hold_whatever_an_id_may(own: Logs, clock: TestClock) -> None:
    for one in ("a/b", "//", "ü/é", "'; drop", "1//x"):
        own.start(one)
    own.write(
        {"verb": "start", "execution_id": "a/b~kid", "flow": "f", "flow_version": 1, "principal": "ann"}
    )
    whole = ids(own.calls("list_executions", "ann"))
    got = []
    cursor = None
    while page := own.calls("list_executions", "ann", None, None, cursor, 1):
        got += ids(page)
        cursor = page[0]["cursor"]
    assert got == whole
    assert len(got) == 6


def test_a_call_looks_at_so_many_and_says_where_to_go_on(own: Logs, admin: DictConnection) -> None:
    own.start("first", flow="rare")
    admin.execute("alter table underseal.execution disable trigger all")
    admin.execute(
        """insert into underseal.execution (chain_id, member, line, flow, flow_version, owner, status, head, fence,
             started_at, changed_at)
           select 'n' || n, '', '', 'common', 1, 'ann', 'running', 0, 1, underseal.clock() + n * interval '1 ms',
             underseal.clock()
           from generate_series(1, 20005) n"""
    )
    for principal in ("ann", None):
        more = own.call("list_executions", principal, None, "rare")
        assert (more["outcome"], more["execution_id"]) == ("more", None)
        again = own.call("list_executions", principal, None, "rare", more["cursor"])
        assert again["outcome"] == "more"
        assert ids(own.calls("list_executions", principal, None, "rare", again["cursor"])) == ["first"]
        # none is left behind the last row
        assert len(own.calls("list_executions", principal, None, None, None, 5)) == 5


# -- views ----------------------------------------------------------------------------------------------


def test_views_tell_how_many_and_how_old(
    own: Logs, clock: TestClock, database: TestDatabase, connect: Callable[..., DictConnection]
) -> None:
    waits = [{"wait": "w", "arms": [{"gate": "ok"}]}]
    own.start("a", "b", "c", "d")
    for one in ("b", "a"):
        clock.advance(seconds=30)
        own.write({"verb": "park", "execution_id": one, "fence": 1, "waits": waits})
    clock.advance(seconds=60)
    role = database.create_role("reader")
    own.call("grant_access", role, "reader")
    reader = Logs(connect(role))
    states = reader.rows(
        "select flow, status, executions, cancel_requested from underseal.executions_by_state"
    )
    assert [tuple(row.values()) for row in states] == [(FLOW, "pending", 2, 0), (FLOW, "suspended", 2, 0)]
    parks = reader.rows(
        "select execution_id, parked_seconds::integer as age, waits from underseal.oldest_parks"
    )
    told = [{"wait": "w", "arms": [{"topic": "$gate/ok"}]}]
    assert [tuple(row.values()) for row in parks] == [("b", 90, told), ("a", 60, told)]
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        reader.rows("select * from underseal.execution")


@pytest.mark.clause("M6")
def test_few_functions_read_what_events_say(own: Logs) -> None:
    """Whoever else reads data from the log hands it out unjudged."""
    readers = own.rows(
        r"""select p.proname as name from pg_proc p
            where p.pronamespace = 'underseal'::regnamespace and p.prosrc ~ '(from|join|using)\s+underseal\.event\M'"""
    )
    assert {row["name"] for row in readers} >= {"_read_at_rest", "_follow"}
