"""A writer with every right on the tables of executions, as their owner and on a replica (clause T5c)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, Final
from uuid import uuid4

import psycopg
import pytest
from psycopg.types.json import Json, Jsonb
from pytest_postgresql.executors import NoopExecutor

from tests.held.sql.kernel import Kernel
from tests.held.sql.shared import rolled_back, shared_kernel
from tests.inbox.box import Box, box
from underseal.foundation.server import Server
from underseal.testing import OWNER, unique_name

STATUSES: Final = ("pending", "running", "suspended", "completed", "failed", "cancelled", "continued")
ENDED: Final = STATUSES[3:]
OF_A_CHAIN: Final = (
    "event",
    "execution",
    "inbox_message",
    "inbox_cursor",
    "inbox_seen",
    "wake",
    "snapshot",
    "content",
    "chain_subject",
)
TABLES: Final = (*OF_A_CHAIN, "schedule", "fence_floor", "execution_denial", "subject_key", "subject_fence")

# What a writer may move without a word from the log, and only forwards: each is how the kernel itself moves it.
FORWARDS: Final = {
    "execution": {"fence", "last_inbox_seq", "log_start"},  # log_start below a snapshot, see below
    "inbox_cursor": {"inbox_seq"},
    "content": {"stored_at"},
    "fence_floor": {"fence"},
}
# What is no history: when something is due and who looks after it, and what a schedule starts.
FREE: Final = {
    "wake": {"wake_at", "claimed_by", "claimed_until", "attempts", "head", "holds"},
    "schedule": {
        "flow", "flow_version", "input", "cron", "time_zone", "missed", "paused", "last_id", "revision", "changed_at",
    },
    "subject_key": {"destroyed_at"},  # once
}  # fmt: skip

BY_TYPE: Final[dict[str, Callable[[Any], list[Any]]]] = {
    "boolean": lambda v: [not v],
    "integer": lambda v: [(v or 0) + 1, (v or 0) - 1, 0],
    "bigint": lambda v: [(v or 0) + 1, (v or 0) - 1, 0, (v or 0) + 1000],
    "xid8": lambda v: ["1"],
    "text": lambda v: [(v or "") + "x", "", "mallory"],
    "bytea": lambda v: [b"y" * 32],
    "uuid": lambda _: [uuid4()],
    "timestamp with time zone": lambda v: [v + timedelta(days=1), v - timedelta(days=1)] if v else ["now"],
    "json": lambda _: [Json({"x": 1})],
    "jsonb": lambda _: [Jsonb({"x": 1}), Jsonb([])],
}
BY_NAME: Final[dict[str, list[Any]]] = {
    "status": [*STATUSES],
    "member": ["2", "3", "pay"],
    "line": ["2", "pay"],
    "current_member": ["", "2", "3", "4", "pay"],
    "topic": ["b", "$gate/ok"],
    "kind": ["drive", "timer", "inbox", "refusal", "schedule"],
    "type": ["EXECUTION_COMPLETED", "STEP_COMPLETED"],
    "missed": ["skip", "latest", "all"],
}


@pytest.fixture(scope="module")
def shared(postgres: Server, template: NoopExecutor) -> Iterator[Kernel]:
    """One database for this file."""
    with shared_kernel(postgres, template.template_dbname) as kernel:
        yield kernel


@pytest.fixture
def k(shared: Kernel) -> Iterator[Kernel]:
    """The owner of the tables; undone afterwards."""
    with rolled_back(shared):
        yield shared


class _Tried(Exception):  # noqa: N818 -- it is no error
    """Undoes what was tried."""


def tried(k: Kernel, replica: bool, *statements: tuple[str, tuple[Any, ...]]) -> str | None:
    """What a writer's statements come to, together: None where all are taken, else the SQLSTATE. Undone either way."""
    try:
        with k.connection.transaction():
            if replica:
                k.connection.execute("set local session authorization default")
                k.connection.execute("set local session_replication_role = replica")
            try:
                for statement, values in statements:
                    if not k.connection.execute(statement, values).rowcount:
                        raise AssertionError(f"nothing to change: {statement}")
                raise _Tried
            finally:
                if replica and k.connection.info.transaction_status.name != "INERROR":
                    k.connection.execute("set local session_replication_role = origin")
                    k.connection.execute(f"set local session authorization {OWNER}")
    except _Tried:
        return None
    except psycopg.Error as error:
        return error.sqlstate


def full(k: Kernel) -> Box:
    """A chain of two executions with something in every table; the second one goes on."""
    b = Box(k, unique_name("e"))
    b.write("start", flow="f", flow_version=1, principal=b.owner, subject="ann's")
    b.put("a", message_id="m")
    b.park(w=["a"])
    hashed = b.k.call("put_content", b.id, '"large"', 1)["hash"]
    b.write("append", events=[{"type": "STEP_COMPLETED", "data": {"out": {"$content": bytes(hashed).hex()}}}])
    b.go_on()
    b.step()
    b.k.call("save_snapshot", b.id, 1, 1, "1")
    b.put("b")
    return b


def beside(k: Kernel) -> None:
    """A row in each of the tables that stand beside the chains."""
    gone = box(k, "gone")
    gone.write("complete")
    k.call("delete_chain", gone.id, "op")
    k.call("cancel_execution", "nothing", "ann")
    k.call("register_subject_key", "bob's", "key-1", 1)
    k.do("insert into underseal.subject_fence values ('carl''s', underseal.clock(), 'erasing')")
    k.do(
        "insert into underseal.schedule"
        " (name, flow, flow_version, input, owner, cron, time_zone, missed, created_at, changed_at)"
        " values ('s', 'f', 1, '1', 'ann', '* * * * *', 'UTC', 'skip', underseal.clock(), underseal.clock())"
    )


def columns(k: Kernel, table: str) -> dict[str, str]:
    """The columns of a table and their types."""
    rows = k.rows(
        "select column_name, data_type, udt_name from information_schema.columns"
        " where table_schema = 'underseal' and table_name = %s order by ordinal_position",
        table,
    )
    return {row["column_name"]: "xid8" if row["udt_name"] == "xid8" else row["data_type"] for row in rows}


@pytest.mark.clause("T5c", "E1a", "E2e")
@pytest.mark.parametrize("replica", [False, True])
@pytest.mark.parametrize("table", TABLES)
def test_no_column_is_edited(k: Kernel, table: str, replica: bool) -> None:
    full(k)
    beside(k)
    k.do("update underseal.wake set claimed_by = 'w1', claimed_until = underseal.clock()")
    k.do("update underseal.execution set fence = 5")  # with room below it
    k.do("update underseal.fence_floor set fence = 5")
    took: set[str] = set()
    for row in k.rows(f"select ctid::text, t.* from underseal.{table} t"):
        for column, kind in columns(k, table).items():
            now = row[column]
            for value in [*BY_NAME.get(column, []), *BY_TYPE[kind](now), None]:
                if value == now:
                    continue
                code = tried(
                    k,
                    replica,
                    (
                        f"update underseal.{table} set {column} = %s where ctid = %s::tid",
                        (value, row["ctid"]),
                    ),
                )
                if code is None:
                    took.add(column)
                    if column in FORWARDS.get(table, ()):
                        assert value > now, (column, now, value)
                else:
                    # ours, a constraint's, or a value that is none of the column's type; a generated column's own
                    assert code[:2] in ("US", "23", "22") or code == "428C9", (column, value, code)
    assert took == FORWARDS.get(table, set()) | FREE.get(table, set())


# -- statuses ----------------------------------------------------------------------------------------

LEADS: Final = {
    "EXECUTION_SUSPENDED": "suspended",
    "EXECUTION_COMPLETED": "completed",
    "EXECUTION_FAILED": "failed",
    "EXECUTION_CANCELLED": "cancelled",
    "EXECUTION_CONTINUED": "continued",
    "EXECUTION_CANCEL_REQUESTED": "running",
    "EXECUTION_RECOVERED": "running",
    "EXECUTION_MIGRATED": "running",
    "STEP_COMPLETED": "running",
    "TIMER_FIRED": "running",
    "MESSAGE_CONSUMED": "running",
    "OUTCOME_RECORDED": None,
    "PAYLOAD_SHREDDED": None,
}
LEAVE_A_PARK: Final = {
    "MESSAGE_CONSUMED", "TIMER_FIRED", "EXECUTION_CANCEL_REQUESTED", "EXECUTION_CANCELLED", "EXECUTION_MIGRATED",
}  # fmt: skip


def lawful(was: str, event: str, status: str) -> bool:
    """Whether an event may lead from one status to another."""
    leads = LEADS[event]
    if leads is None:
        return status == was
    return status == leads and was not in ENDED and (was != "suspended" or event in LEAVE_A_PARK)


def bring(k: Kernel, status: str) -> Box:
    """An execution in a status, through the verbs."""
    b = box(k)
    if status == "running":
        b.step()
    elif status == "suspended":
        b.park(w=["a"])
    elif status != "pending":
        b.write({"completed": "complete", "failed": "fail", "continued": "continue"}.get(status, status))
    assert b.status == status
    return b


@pytest.mark.clause("T5c", "E4a")
@pytest.mark.parametrize("replica", [False, True])
@pytest.mark.parametrize("was", STATUSES)
def test_no_status_changes_without_its_event(k: Kernel, was: str, replica: bool) -> None:
    b = bring(k, was)
    for status in STATUSES:
        for moves in ("", ", head = head + 1", ", head = head - 1"):
            code = tried(
                k, replica,
                (f"{SAY_ONLY}{moves} where chain_id = %s and member = ''", (status, b.chain)),
            )  # fmt: skip
            expected = None if status == was and not moves else "US005"
            if status in ENDED and b.execution()["waits"] is not None and code == "23514":
                continue  # what waits has not ended: a constraint says so before the trigger does
            assert code == expected, (status, moves)


INSERT: Final = (
    "insert into underseal.event (chain_id, member, seq, recorded_at, type, data)"
    " select chain_id, member, head + %s, underseal.clock(), %s, %s from underseal.execution"
    " where chain_id = %s and member = ''"
)
SAY: Final = (
    "update underseal.execution set head = head + %s, status = %s, waits = null"
    " where chain_id = %s and member = ''"
)
SAY_ONLY: Final = "update underseal.execution set status = %s"


@pytest.mark.clause("T5c", "E4a")
@pytest.mark.parametrize("was", STATUSES)
def test_an_event_that_no_fold_saw_leads_where_it_leads_and_nowhere_else(k: Kernel, was: str) -> None:
    """On a replica no fold runs: the writer brings events and says himself what came of them."""
    b = bring(k, was)
    data = json.dumps({"wait": "w", "topic": "a", "inbox_seq": 1, "key": "00"})
    k.do("set constraints all immediate")
    for event in LEADS:
        for status in STATUSES:
            code = tried(
                k, True,
                (INSERT, (1, event, data, b.chain)),
                (SAY, (1, status, b.chain)),
            )  # fmt: skip
            assert code == (None if lawful(was, event, status) else "US002"), (event, status)


@pytest.mark.clause("T5c", "E4a")
@pytest.mark.parametrize("was", STATUSES)
@pytest.mark.parametrize(
    "first", ["STEP_COMPLETED", "TIMER_FIRED", "EXECUTION_COMPLETED", "OUTCOME_RECORDED"]
)
def test_nor_do_two_of_them(k: Kernel, was: str, first: str) -> None:
    b = bring(k, was)
    for last in ("OUTCOME_RECORDED", "STEP_COMPLETED", "EXECUTION_FAILED"):
        for status in STATUSES:
            code = tried(
                k, True,
                (INSERT, (1, first, '{"wait": "w"}', b.chain)),
                (INSERT, (2, last, "{}", b.chain)),
                (SAY, (2, status, b.chain)),
            )  # fmt: skip
            told = LEADS[last] or LEADS[first]
            begins = first if LEADS[first] else last
            may = (
                status == was
                if told is None
                else status == told and was not in ENDED and (was != "suspended" or begins in LEAVE_A_PARK)
            )
            assert code == (None if may else "US002"), (last, status)


@pytest.mark.clause("T5c")
@pytest.mark.parametrize("column", ["sealed", "cancel_requested"])
def test_a_mark_is_not_taken_back(k: Kernel, column: str) -> None:
    b = bring(k, "running")
    if column == "sealed":
        k.do(
            "insert into underseal.event (chain_id, member, seq, recorded_at, type, data, metadata)"
            " values (%s, '', 2, underseal.clock(), 'STEP_COMPLETED', '{}', '{\"seal\": {}}')",
            b.chain,
        )
    else:
        k.call("cancel_execution", b.id, "ann")
    assert b.execution()[column]
    move = f"update underseal.execution set head = head + 1, {column} = %s where chain_id = %s"
    event = (INSERT, (1, "STEP_COMPLETED", "{}", b.chain))
    assert [tried(k, True, event, (move, (mark, b.chain))) for mark in (True, False)] == [None, "US002"]


@pytest.mark.clause("T5c", "E1b")
@pytest.mark.parametrize("replica", [False, True])
def test_a_head_is_the_last_event(k: Kernel, replica: bool) -> None:
    b = bring(k, "running")
    move = "update underseal.execution set head = head + %s where chain_id = %s"
    if replica:
        two = [(INSERT, (n, "STEP_COMPLETED", "{}", b.chain)) for n in (1, 2)]
        assert [tried(k, True, *two, (move, (n, b.chain))) for n in (1, 2, 3)] == ["US005", None, "US005"]
    assert [tried(k, replica, (move, (n, b.chain))) for n in (1, -1)] == ["US005"] * 2


MERGE: Final = "merge into underseal.execution e using (select 1) s on e.chain_id = %s when matched then"


@pytest.mark.clause("T5c", "E1a")
@pytest.mark.parametrize(
    "statement",
    [
        f"{MERGE} update set status = 'completed'",
        f"{MERGE} update set fence = 0",
        f"{MERGE} delete",
        "insert into underseal.execution select * from underseal.execution where chain_id = %s"
        " on conflict on constraint execution_pkey do update set owner = 'mallory'",
    ],
)
def test_other_ways_of_writing_are_no_ways_round(k: Kernel, statement: str) -> None:
    b = bring(k, "running")
    assert str(tried(k, False, (statement, (b.chain,))))[:2] == "US"


# -- what goes ---------------------------------------------------------------------------------------


@pytest.mark.clause("T5c", "E1a", "I6b")
@pytest.mark.parametrize("replica", [False, True])
@pytest.mark.parametrize("over", [False, True])
def test_nothing_of_a_chain_is_deleted_by_itself(k: Kernel, over: bool, replica: bool) -> None:
    b = full(k)
    beside(k)
    if over:
        b.write("complete")
    for table in TABLES:
        for row in k.rows(f"select ctid::text from underseal.{table}"):
            code = tried(k, replica, (f"delete from underseal.{table} where ctid = %s::tid", (row["ctid"],)))
            if table in ("wake", "schedule"):
                assert code is None
            else:
                assert code in ("US004", "US007"), table


@pytest.mark.clause("T5c", "I6b")
@pytest.mark.parametrize("replica", [False, True])
@pytest.mark.parametrize("status", ["pending", "running", "suspended"])
def test_an_open_execution_is_not_deleted(k: Kernel, status: str, replica: bool) -> None:
    b = bring(k, status)
    delete = "delete from underseal.execution where chain_id = %s"
    assert tried(k, replica, (delete, (b.chain,))) == "US007"
    b.k.call("cancel_execution", b.id, "ann", None, True)
    assert tried(k, replica, (delete, (b.chain,))) is None


@pytest.mark.clause("T5c")
@pytest.mark.parametrize("replica", [False, True])
def test_nothing_is_truncated(k: Kernel, replica: bool) -> None:
    full(k)
    with k.login(None if replica else OWNER, "replica" if replica else "origin"):
        for table in TABLES:
            k.refused("US004", f"truncate underseal.{table}")
        k.refused("US004", f"truncate {', '.join(f'underseal.{table}' for table in TABLES)}")


@pytest.mark.clause("T5c", "I6b", "E2e")
def test_an_ended_chain_goes_whole_whoever_deletes_it(k: Kernel) -> None:
    b = full(k)
    b.write("complete")
    for member in ("", "2"):
        code = tried(
            k,
            False,
            ("delete from underseal.execution where chain_id = %s and member = %s", (b.chain, member)),
        )
        assert code == "US007"
    assert k.do("delete from underseal.execution where chain_id = %s", b.chain) == 2
    for table in OF_A_CHAIN:
        assert k.value(f"select count(*) from underseal.{table} where chain_id = %s", b.chain) == 0
    assert k.value("select count(*) from underseal.fence_floor where chain_id = %s", b.chain) == 2


@pytest.mark.clause("T5c")
def test_a_denial_is_kept_for_thirty_days(k: Kernel) -> None:
    k.call("cancel_execution", "nothing", "ann")
    k.clock.advance(days=30, seconds=-1)
    k.refused("US007", "delete from underseal.execution_denial")
    k.clock.advance(seconds=1)
    assert k.do("delete from underseal.execution_denial") == 1


@pytest.mark.clause("T5c", "I2b")
def test_keys_are_forgotten_at_the_edge_of_the_window_alone(k: Kernel) -> None:
    b = box(k)
    b.put("a")
    b.park(w=["a"])
    add = (
        "insert into underseal.inbox_seen (chain_id, line, message_key, inbox_seq, turn)"
        " values (%s, '', sha256(%s), 2, %s)"
    )
    k.do(add, b.chain, "x", 1024)
    k.refused("US007", "delete from underseal.inbox_seen where inbox_seq = 1")
    k.do(add, b.chain, "y", 1025)
    k.refused("US007", "delete from underseal.inbox_seen")
    assert k.do("delete from underseal.inbox_seen where inbox_seq = 1") == 1


# -- what comes --------------------------------------------------------------------------------------


def start_row(k: Kernel, chain: str, **changes: Any) -> tuple[str, tuple[Any, ...]]:
    """The row that goes with a log of one event; `changes` are what a writer says instead."""
    row = {
        "chain_id": chain, "member": "", "line": "", "flow": "f", "flow_version": 1, "owner": "ann",
        "status": "pending", "head": 0, "fence": 9, "started_at": k.clock.now(), "changed_at": k.clock.now(), **changes,
    }  # fmt: skip
    return (
        f"insert into underseal.execution ({', '.join(row)}) values ({', '.join(['%s'] * len(row))})",
        tuple(row.values()),
    )


def start_event(chain: str, member: str = "", **data: Any) -> tuple[str, tuple[Any, ...]]:
    """The event that begins a log."""
    told = {"flow": "f", "flow_version": 1, "owner": "ann", "input": None, **data}
    return (
        "insert into underseal.event (chain_id, member, seq, recorded_at, type, data)"
        " values (%s, %s, 0, underseal.clock(), 'EXECUTION_STARTED', %s)",
        (chain, member, json.dumps(told)),
    )


@pytest.mark.clause("T5c", "E1b", "E1c")
def test_no_execution_comes_without_its_log(k: Kernel) -> None:
    assert tried(k, False, start_row(k, "new")) == "US005"
    assert tried(k, True, start_row(k, "new")) == "US005"
    assert tried(k, True, start_event("new"), start_row(k, "new")) is None
    changes: list[dict[str, Any]] = [
        {"head": 1}, {"status": "running"}, {"status": "completed"}, {"owner": "mallory"}, {"owner": None},
        {"flow": "g"}, {"line": "2"}, {"log_start": 2, "head": 1}, {"current_member": "2"},
    ]  # fmt: skip
    for change in changes:
        assert tried(k, True, start_event("new"), start_row(k, "new", **change)) == "US005", change
    step = (
        "insert into underseal.event (chain_id, member, seq, recorded_at, type, data)"
        " values ('new', '', 1, underseal.clock(), 'STEP_COMPLETED', '{}')",
        (),
    )
    for log_start, code in ((1, None), (2, "US005")):
        row = start_row(k, "new", head=1, status="running", log_start=log_start)
        assert tried(k, True, start_event("new"), step, row) == code
    carried = start_event("new", carried={"last_inbox_seq": 5})
    assert tried(k, True, carried, start_row(k, "new", last_inbox_seq=4)) == "US005"
    assert tried(k, True, carried, start_row(k, "new", last_inbox_seq=5)) is None


@pytest.mark.clause("T5c", "E2e")
def test_no_execution_begins_at_a_fence_that_was_issued(k: Kernel) -> None:
    b = box(k)
    b.take()
    b.write("complete")
    k.call("delete_chain", b.chain, "op")
    codes = [tried(k, True, start_event(b.chain), start_row(k, b.chain, fence=fence)) for fence in (1, 2, 3)]
    assert codes == ["US002", "US002", None]


@pytest.mark.clause("T5c")
@pytest.mark.parametrize(
    ("chain", "member", "flow", "code"),
    [
        ("a~b", "", "f", "US001"), ("", "", "f", "US001"), ("a\nb", "", "f", "US001"), ("x" * 201, "", "f", "US001"),
        ("x" * 200, "", "f", None), ("a", "2x", "f", "US001"), ("a", "pay.x", "f", "US001"), ("a", "02", "f", "US001"),
        ("a", "a~b", "f", "US001"), ("a", "p" * 121, "f", "US001"), ("a", "pay.2", "f", None), ("a", "2", "f", None),
        ("a", "pay:1", "f", None), ("a", "", "", "US001"), ("a", "", "x\ty", "US001"), ("a", "", "x" * 201, "US001"),
    ],
)  # fmt: skip
def test_ids_have_a_form(k: Kernel, chain: str, member: str, flow: str, code: str | None) -> None:
    line = k.value("select underseal._line_of(%s)", member)
    row = start_row(k, chain, member=member, line=line, flow=flow)
    assert tried(k, True, start_event(chain, member, flow=flow), row) == code


@pytest.mark.clause("T5c", "E1b")
@pytest.mark.parametrize("status", STATUSES)
def test_no_event_comes_out_of_its_place(k: Kernel, status: str) -> None:
    b = bring(k, status)
    for ahead in (0, 2, -b.execution()["head"] - 1):
        assert tried(k, False, (INSERT, (ahead, "STEP_COMPLETED", "{}", b.chain))) in (
            "US002",
            "23505",
            "23514",
        ), ahead
    assert tried(k, False, start_event(b.chain)) == "23505"
    code = tried(k, False, (INSERT, (1, "STEP_COMPLETED", "{}", b.chain)))
    assert code == (None if status in ("pending", "running") else "US002")


@pytest.mark.clause("T5c", "I1a", "I2a")
@pytest.mark.parametrize("replica", [False, True])
def test_a_message_has_a_number_that_was_given(k: Kernel, replica: bool) -> None:
    b = full(k)

    def put(number: int, topic: str = "b", chain: str | None = None, line: str = "") -> str | None:
        return tried(
            k, replica,
            ("insert into underseal.inbox_message"
             " (chain_id, line, inbox_seq, topic, message_key, sender, message_id, payload, sent_at)"
             " values (%s, %s, %s, %s, sha256('x'), 'x', 'x', '1', underseal.clock())",
             (chain or b.chain, line, number, topic)),
        )  # fmt: skip

    last = k.value(
        "select last_inbox_seq from underseal.execution where chain_id = %s and member = ''", b.chain
    )
    assert (last, b.cursors()) == (2, {"a": 1})
    assert put(last + 1) == "US002"
    assert put(1, "a") == "US002"
    assert put(1, "b") is None
    assert put(1, chain="nothing") == "US002"
    assert put(1, line="2") == "US002"


@pytest.mark.clause("T5c", "E9c")
@pytest.mark.parametrize("replica", [False, True])
def test_a_snapshot_is_of_the_head_and_says_what_the_log_says(k: Kernel, replica: bool) -> None:
    b = bring(k, "running")
    fold = k.value("select underseal._fold(%s, '')", b.chain)

    def put(seq: int, folded: Any = fold) -> str | None:
        return tried(
            k, replica,
            ("insert into underseal.snapshot (chain_id, member, seq, state, fold, saved_at)"
             " values (%s, '', %s, '1', %s, underseal.clock())", (b.chain, seq, Jsonb(folded))),
        )  # fmt: skip

    assert [put(seq) for seq in (0, 1, 2)] == ["US002", None, "US002"]
    assert put(1, {**fold, "status": "completed"}) == "US002"
    assert put(1, {}) == "US002"


@pytest.mark.clause("T5c", "E9b", "E1a", "E1c")
@pytest.mark.parametrize("replica", [False, True])
def test_nothing_is_truncated_that_no_snapshot_covers(k: Kernel, replica: bool) -> None:
    b = bring(k, "running")
    for _ in range(3):
        b.step()
    k.call("save_snapshot", b.id, 1, 4, "1")
    b.step()
    start = "update underseal.execution set log_start = %s where chain_id = %s"
    drop = "delete from underseal.event where chain_id = %s and seq between %s and %s"
    assert [tried(k, replica, (start, (n, b.chain))) for n in (5, 6)] == [None, "US002"]
    assert tried(k, replica, (start, (5, b.chain)), (start, (4, b.chain))) == "US002"
    assert tried(k, replica, (start, (5, b.chain)), (drop, (b.chain, 1, 4))) is None
    for first, last in ((0, 0), (0, 4), (1, 5), (5, 5)):
        assert tried(k, replica, (start, (5, b.chain)), (drop, (b.chain, first, last))) == "US004"
    assert tried(k, replica, (drop, (b.chain, 1, 1))) == "US004"


@pytest.mark.clause("T5c", "I6a")
@pytest.mark.parametrize("replica", [False, True])
def test_a_line_goes_on_with_its_successor_alone(k: Kernel, replica: bool) -> None:
    b = full(k).go_on()
    child = Box(k, f"{b.chain}~pay").start()
    move = "update underseal.execution set current_member = %s where chain_id = %s and member = %s"
    lies = (("", "4"), ("", "2"), ("", None), ("", "pay"), ("2", "3"), ("pay", "pay.2"), ("pay", "2"))
    for member, target in lies:
        assert tried(k, replica, (move, (target, b.chain, member))) == "US002", (member, target)
    # one that is there, and no other, is what comes next
    code = tried(
        k, True,
        start_event(b.chain, "pay.2"),
        start_row(k, b.chain, member="pay.2", line="pay"),
        (move, ("pay.2", b.chain, "pay")),
    )  # fmt: skip
    assert code is None
    assert child.execution()["current_member"] is None
