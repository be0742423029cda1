"""Following all executions: every event once and in its log's order, whatever order transactions commit in (E11)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.log.logs import OPENS, Logs, Reader, well_ordered
from underseal.foundation.server import Server
from underseal.testing import OWNER, DictConnection, TestDatabase, in_background, wait_blocked

CUTS = [1, 2, 4096]


@pytest.fixture
def own(db: DictConnection) -> Logs:
    """The schema's owner."""
    return Logs(db)


@pytest.fixture
def session(database: TestDatabase) -> Callable[[], Logs]:
    """Another session of the schema's owner; who waits long for a lock fails."""
    return lambda: Logs(database.connect(OWNER, options="-c lock_timeout=8s"))


def cut_at(own: Logs, size: int) -> None:
    """Let differences be cut at so many events."""
    own.rows(
        f"create or replace function underseal._cut_size() returns integer language sql immutable return {size}"
    )


def reader(own: Logs, size: int = 1000, cursor: str | None = None) -> Reader:
    """One from the beginning, or from a cursor."""
    return Reader(own, cursor, size)


def late_commits(own: Logs, session: Callable[[], Logs]) -> Iterator[None]:
    """Write so that numbers of transactions, commits and executions all differ in order; yields between the steps."""
    early, late = session(), session()
    own.start("a", "b", "c")
    yield
    with early.connection.transaction():
        early.rows("select pg_current_xact_id()")
        with late.connection.transaction():
            late.append("b", steps=2)
            own.append("a")
            yield
            # a host that has its number for long, and locks only now what a younger one has written
            early.append("a", "c")
            yield
        own.append("b")
        yield
    yield
    # one that is younger and commits first
    with early.connection.transaction():
        early.append("c", steps=3)
        with late.connection.transaction():
            late.append("b", "a")
        yield
    own.append("a", "b", "c")
    yield


@pytest.mark.clause("E11b", "T4b")
@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_a_reader_in_the_middle_misses_nothing(
    own: Logs, session: Callable[[], Logs], size: int, cut: int
) -> None:
    cut_at(own, cut)
    everywhere = Reader(session(), None, size)
    slow = Reader(session(), None, size)
    for _ in late_commits(own, session):
        everywhere.drain()
        slow.page()
    for follower in (everywhere, slow):
        follower.drain()
        well_ordered(follower.seen)
        assert sorted(follower.seen) == own.keys()


@pytest.mark.clause("E11b", "T4b")
@pytest.mark.parametrize("cut", CUTS)
def test_any_page_size_gives_what_one_page_gives(own: Logs, session: Callable[[], Logs], cut: int) -> None:
    cut_at(own, cut)
    start = reader(own)
    own.start("old", steps=3)
    start.drain()
    for _ in late_commits(own, session):
        pass
    expected = sorted(set(own.keys()) - set(start.seen))
    for size in range(1, len(expected) + 3):
        for cursor, wanted in ((start.cursor, expected), (None, own.keys())):
            follower = reader(own, size, cursor)
            got = follower.drain()
            assert len(got) == len(wanted)
            assert sorted(got) == wanted
            well_ordered(got if cursor is None else start.seen + got)
            if cut > 1000:
                assert got == wanted


@pytest.mark.clause("E11b", "T4b")
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_what_cannot_be_cut_is_read_along_the_key(own: Logs, session: Callable[[], Logs], size: int) -> None:
    """A host has its number for long, and writes last what all the others were writing to."""
    own.start("a", "b", steps=2)
    cut_at(own, 1)
    follower = reader(own, size)
    follower.drain()
    early, running = session(), session()
    with running.connection.transaction():
        running.append("b")
        with early.connection.transaction():
            early.rows("select pg_current_xact_id()")
            own.start("c")
            for _ in range(9):
                own.append("a")
            early.append("a")
        past = str(follower.cursor).split("/")[2]
        how = own.value(
            "select how from underseal._next_difference(%s::pg_snapshot, underseal._present_snapshot())", past
        )
        assert how == "key"
        got = follower.drain()
    assert got == [*(("a", seq) for seq in range(3, 13)), ("c", 0)]
    assert follower.drain() == [("b", 3)]


@pytest.mark.clause("E11b")
def test_every_row_has_the_cursor_to_go_on_after_it(own: Logs, session: Callable[[], Logs]) -> None:
    start = reader(own)
    start.drain()
    for _ in late_commits(own, session):
        pass
    for begin in (None, start.cursor):
        whole = reader(own, cursor=begin)
        whole.drain()
        for place, row in enumerate(whole.rows):
            assert reader(own, cursor=row["cursor"]).drain() == whole.seen[place + 1 :]


@pytest.mark.clause("E11b")
def test_a_cursor_is_a_place_for_ever(own: Logs) -> None:
    """Reading from it again gives the same again, then what came since."""
    own.start("a", "b", steps=2)
    first = reader(own, size=3)
    first.page()
    kept = first.cursor
    rest = reader(own, cursor=kept).drain()
    own.append("a", "b")
    again = reader(own, cursor=kept).drain()
    assert again == [*rest, ("a", 3), ("b", 3)]


@pytest.mark.clause("E11b")
def test_now_is_after_everything_committed(own: Logs, session: Callable[[], Logs]) -> None:
    own.start("a", steps=2)
    late = session()
    with late.connection.transaction():
        late.append("a")
        own.start("younger")
        now = own.call("read_all", "now")
        assert re.search(r"/\d+:\d+:\d+[,/]", now["cursor"])
        assert (now["outcome"], now["execution_id"], now["data"]) == ("end", None, None)
    # what ran then came later
    follower = reader(own, cursor=now["cursor"])
    assert follower.drain() == [("a", 3)]
    own.start("b")
    assert follower.drain() == [("b", 0)]
    assert reader(own, cursor=now["cursor"]).drain() == [("a", 3), ("b", 0)]


@pytest.mark.clause("E11b")
def test_an_empty_log_has_an_end(own: Logs) -> None:
    row = own.call("read_all")
    assert row["outcome"] == "end"
    own.start("a")
    assert reader(own, cursor=row["cursor"]).drain() == [("a", 0)]


@pytest.mark.clause("E11b")
def test_one_that_was_rolled_back_never_was(own: Logs, session: Callable[[], Logs]) -> None:
    own.start("a")
    follower = reader(own)
    other = session()
    with other.connection.transaction(force_rollback=True):
        other.append("a", steps=3)
        other.start("b")
        follower.drain()
    with other.connection.transaction():
        with other.connection.transaction(force_rollback=True):
            other.append("a", steps=2)
        with other.connection.transaction():
            other.append("a")
        follower.drain()
    follower.drain()
    assert follower.seen == own.keys() == [("a", 0), ("a", 1)]


@pytest.mark.clause("E11b")
@pytest.mark.parametrize("numbered_first", [False, True])
@pytest.mark.parametrize("rolled_back", [False, True])
def test_a_reader_does_not_see_what_its_own_transaction_wrote(
    own: Logs, session: Callable[[], Logs], numbered_first: bool, rolled_back: bool
) -> None:
    """Until it is committed, whether or not a younger one has committed meanwhile: more may come in it."""
    own.start("a", "b")
    follower = Reader(session())
    follower.drain()
    with follower.logs.connection.transaction(force_rollback=rolled_back):
        follower.logs.append("a")
        if numbered_first:
            own.append("b")
        assert follower.drain() == ([("b", 1)] if numbered_first else [])
        follower.logs.append("a")
        assert follower.drain() == []
    assert follower.drain() == ([] if rolled_back else [("a", 1), ("a", 2)])


@contextmanager
def idle_writer(conninfo: str) -> Iterator[None]:
    """A transaction that has its number and does nothing."""
    with psycopg.connect(conninfo) as connection:
        connection.execute("create temporary table held (x integer)")
        assert connection.execute("select pg_current_xact_id_if_assigned()").fetchone() != (None,)
        yield
        connection.rollback()


@pytest.mark.clause("E11b")
@pytest.mark.parametrize("cut", CUTS)
def test_an_idle_transaction_holds_nobody_up(
    own: Logs, database: TestDatabase, postgres: Server, cut: int
) -> None:
    cut_at(own, cut)
    own.start("a")
    follower = reader(own, 2)
    with idle_writer(database.conninfo_as(OWNER)), idle_writer(postgres.conninfo()):
        for number in range(1, 6):
            own.append("a")
            assert follower.drain()[-1] == ("a", number)
            own.start(f"b{number}")
            assert follower.drain() == [(f"b{number}", 0)]
    assert follower.drain() == []
    assert sorted(follower.seen) == own.keys()


@pytest.mark.clause("E11b", "T4b")
def test_a_reader_waits_for_no_lock(own: Logs, session: Callable[[], Logs]) -> None:
    own.start("a", steps=1)
    other = session()
    with own.connection.transaction():
        own.append("a")
        own.rows("select from underseal.execution for update")
        assert Reader(other).drain() == [("a", 0), ("a", 1)]


@pytest.mark.clause("E11b", "T4b")
@pytest.mark.parametrize("cut", CUTS)
def test_one_that_waited_for_an_execution_comes_after_the_one_it_waited_for(
    own: Logs, session: Callable[[], Logs], admin: DictConnection, cut: int
) -> None:
    cut_at(own, cut)
    own.start("a")
    follower, waiter = reader(own, 1), session()
    with own.connection.transaction():
        own.append("a")
        waiting = in_background(waiter.append, "a")
        wait_blocked(admin, waiter.connection.info.backend_pid)
        Reader(session()).drain()
    waiting.result(10)
    assert follower.drain() == [("a", 0), ("a", 1), ("a", 2)]


@pytest.mark.clause("E11b")
@pytest.mark.parametrize("cut", CUTS)
def test_a_deleted_id_that_is_taken_again_begins_again(own: Logs, admin: DictConnection, cut: int) -> None:
    cut_at(own, cut)
    own.start("a", "b", steps=2)
    follower = reader(own, 2)
    follower.page()
    halfway = follower.cursor
    follower.drain()
    own.write({"verb": "complete", "execution_id": "a", "fence": 1})
    admin.execute("delete from underseal.execution where chain_id = 'a'")
    own.start("a", steps=1)
    assert follower.drain() == [("a", 0), ("a", 1)]
    assert sorted(reader(own, 2, halfway).drain()) == [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2)]


@pytest.mark.clause("M18", "E11b")
def test_what_does_not_open_comes_as_a_stub_in_its_place(own: Logs) -> None:
    own.start("a", "b", steps=1)
    own.seal("a")
    own.append("a")
    closed, open_ = reader(own, 2), Reader(own, None, 2, OPENS)
    assert closed.drain() == open_.drain() == own.keys()
    stub, whole = closed.rows[2], open_.rows[2]
    assert (stub["execution_id"], stub["seq"], stub["sealed"]) == ("a", 2, True)
    assert (stub["type"], stub["data"]) == (None, None)
    assert stub["recorded_at"] == whole["recorded_at"]
    assert (whole["type"], whole["data"], whole["sealed"]) == ("STEP_COMPLETED", {"output": "secret"}, False)
    assert [row["sealed"] for row in closed.rows].count(True) == 1
    # a cursor also tells which of the server's transactions ran when it was made
    plain = [[{**row, "cursor": None} for row in some.rows[:2]] for some in (closed, open_)]
    assert plain[0] == plain[1]
    assert all(row["data"] is not None for row in closed.rows if not row["sealed"])


# -- cursors that are not ours --------------------------------------------------------------------------


def refusal(own: Logs, cursor: str | None) -> str:
    """Why a cursor is refused."""
    row = own.call("read_all", cursor)
    assert row["outcome"] == "refused"
    assert row["cursor"] is None
    reason: str = row["reason"]
    return reason


@pytest.mark.clause("E11b")
def test_a_malformed_cursor_is_refused(own: Logs) -> None:
    own.start("a", steps=3)
    follower = reader(own, 2)
    follower.page()
    own.append("a")
    between = str(follower.cursor)
    follower.drain()
    end = str(follower.cursor)
    assert reader(own, cursor=end).drain() == []
    tag = between.split("/")[1]
    for wrong in (
        "", "NOW", "now ", "1", "2" + end[1:], end[:-1], end + "x", " " + end, between[:-1] + "\n",
        end.replace(tag, tag[:-1]), end.replace(tag, tag.upper() + "G"),
        re.sub(r"\d+:\d+:", "9:1:", end), re.sub(r"\d+:\d+:", "1:1", end), re.sub(r"\d+:\d+:", "1:5:7", end),
        re.sub(r"\d+:\d+:", "1:9:3,2", end), re.sub(r"\d+:\d+:", "", end),
        between.replace("/key/", "/txn/"), between.replace("/key/", "//"), between.replace("/key/", "/any/"),
        between.replace("/1//a", "/99999999999999999999//a"), between.replace("/1//a", "///a"),
        f"1/{tag}/9:9:/5:5:/txn/1//a",
    ):  # fmt: skip
        assert refusal(own, wrong) == "malformed-cursor", wrong


@pytest.mark.clause("E11b")
def test_a_cursor_of_another_history_is_refused(
    own: Logs, database: TestDatabase, postgres: Server, admin: DictConnection
) -> None:
    own.start("a", steps=1)
    follower = reader(own, 1)
    follower.page()
    cursor = str(follower.cursor)
    tag = cursor.split("/")[1]
    assert refusal(own, cursor.replace(tag, "0123456789abcdef")) == "foreign-cursor"
    # one of this cluster, but of a time to come: the disk was put back
    ahead = int(own.value("select pg_snapshot_xmax(pg_current_snapshot())::text")) + 1000
    assert refusal(own, f"1/{tag}/{ahead}:{ahead}://///") == "foreign-cursor"
    assert refusal(own, f"1/{tag}/5:5:/{ahead}:{ahead}:/txn/0//a") == "foreign-cursor"
    # a copy of the database goes on by itself
    copy = f"{database.name}_copy"
    database.close_connections()
    with psycopg.connect(postgres.conninfo(), autocommit=True) as server:
        server.execute(f'create database "{copy}" template "{database.name}"')
        try:
            with psycopg.connect(
                postgres.conninfo(copy), autocommit=True, row_factory=psycopg.rows.dict_row
            ) as connection:
                there = Logs(connection)
                assert refusal(there, cursor) == "foreign-cursor"
                assert Reader(there).drain() == [("a", 0), ("a", 1)]
                # whoever knows that nothing was lost may go on
                adopted = there.call("adopt_cursor", cursor)
                assert adopted["outcome"] == "adopted"
                assert Reader(there, adopted["cursor"]).drain() == [("a", 1)]
                assert there.call("adopt_cursor", "x")["reason"] == "malformed-cursor"
                assert there.call("adopt_cursor", None)["reason"] == "malformed-cursor"
        finally:
            server.execute(f'drop database "{copy}" with (force)')


@pytest.mark.clause("E11b")
def test_only_read_committed_can_follow(own: Logs) -> None:
    for level in ("repeatable read", "serializable"):
        with own.connection.transaction():
            own.rows(f"set transaction isolation level {level}")
            with pytest.raises(psycopg.Error) as caught, own.connection.transaction():
                own.calls("read_all")
            assert caught.value.sqlstate == "US008"


@pytest.mark.clause("E11b", "E12a")
def test_workers_and_operators_follow_everything(own: Logs, database: TestDatabase) -> None:
    own.start("a")
    for access in ("client", "approver", "worker", "operator", "sealer", "reader"):
        role = database.create_role(access)
        own.call("grant_access", role, access)
        session = Logs(database.connect(role))
        if access in ("worker", "operator"):
            assert Reader(session).drain() == [("a", 0)]
        else:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                session.calls("read_all")
        for verb in ("adopt_log()", "adopt_cursor('x')"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                session.rows(f"select * from underseal.{verb}")


# -- a log that was restored into another cluster -------------------------------------------------------


def restored(own: Logs, admin: DictConnection, ahead: int = 1_000_000) -> None:
    """Make it so: some events have numbers that this cluster has not reached."""
    fixed = own.value("select tgenabled::text from pg_trigger where tgname = 'event_fixed'")
    with admin.transaction():
        admin.execute("alter table underseal.event disable trigger event_fixed")
        admin.execute(
            """update underseal.event set txn = (txn::text::numeric + %s)::text::xid8
               where seq < 2 or chain_id = 'b'""",
            [ahead],
        )
        always = "always" if fixed == "A" else ""
        admin.execute(f"alter table underseal.event enable {always} trigger event_fixed")


@pytest.mark.clause("E11b")
def test_a_restored_log_is_adopted_before_it_is_followed(own: Logs, admin: DictConnection) -> None:
    own.start("a", "b", steps=3)
    now = own.call("read_all", "now")["cursor"]
    restored(own, admin)
    own.append("a")
    for cursor in (None, now, "now"):
        assert refusal(own, cursor) == "not-adopted"
    answer = own.call("adopt_log")
    assert (answer["outcome"], answer["adopted"]) == ("adopted", 6)
    assert own.call("adopt_log")["adopted"] == 0
    follower = reader(own, 2)
    follower.drain()
    assert follower.seen == own.keys()
    own.append("b")
    assert follower.drain() == [("b", 4)]


@pytest.mark.clause("E11b")
def test_writing_before_reading_is_no_restore(own: Logs) -> None:
    """The own events of a transaction that has its number for longer than anybody else's was committed."""
    own.start("a")
    with own.connection.transaction():
        own.append("a")
        assert own.call("adopt_log")["adopted"] == 0
        assert reader(own).drain() == [("a", 0)]


@pytest.mark.clause("E1a", "E11b")
def test_an_event_is_never_changed(own: Logs, admin: DictConnection, database: TestDatabase) -> None:
    own.start("a", steps=2)
    restored(own, admin)
    changes = {
        "seq": "9", "type": "'OTHER'", "data": "'{}'", "metadata": "'{}'", "recorded_at": "underseal.clock()",
        "chain_id": "'c'", "member": "'m'", "txn": "pg_current_xact_id()",
    }  # fmt: skip
    for role in ("origin", "replica"):
        admin.execute(f"set session_replication_role = {role}")
        for column, value in changes.items():
            # what was written here has a number that is behind, what was restored has not
            for seq in (1, 2):
                for more in ("", ", txn = pg_current_xact_id()"):
                    if column == "txn" and (more or seq == 1):
                        continue
                    with pytest.raises(psycopg.Error) as caught:
                        admin.execute(
                            f"update underseal.event set {column} = {value}{more} where seq = {seq}"
                        )
                    assert caught.value.sqlstate == "US004", (column, seq)
        for txn in ("'5'", "(txn::text::numeric + 1)::text::xid8", "txn"):
            with pytest.raises(psycopg.Error) as caught:
                admin.execute(f"update underseal.event set txn = {txn} where seq = 1")
            assert caught.value.sqlstate == "US004", txn
        for statement in (
            "truncate underseal.event",
            "delete from underseal.event where seq = 1",
            "delete from underseal.event",
        ):
            with pytest.raises(psycopg.Error) as caught:
                admin.execute(statement)
            assert caught.value.sqlstate == "US004", statement
    assert own.call("adopt_log")["adopted"] == 2
    assert own.keys() == [("a", 0), ("a", 1), ("a", 2)]


@pytest.mark.clause("E1a")
def test_only_what_was_compacted_or_is_gone_may_be_deleted(own: Logs, admin: DictConnection) -> None:
    own.start("a", "b", steps=5)
    with admin.transaction():
        admin.execute("alter table underseal.execution disable trigger all")
        admin.execute("update underseal.execution set log_start = 3 where chain_id = 'a'")
    for statement in ("seq = 0", "seq = 3", "seq > 0", "chain_id = 'b' and seq = 1"):
        with pytest.raises(psycopg.Error) as caught:
            admin.execute(f"delete from underseal.event where {statement}")
        assert caught.value.sqlstate == "US004", statement
    assert admin.execute("delete from underseal.event where chain_id = 'a' and seq in (1, 2)").rowcount == 2
    assert [row["seq"] for row in own.calls("read_events", "a", "ann")] == [0, 3, 4, 5]
    follower = reader(own, 2)
    assert follower.drain() == own.keys()
    with admin.transaction():
        admin.execute("delete from underseal.execution where chain_id = 'b'")
        assert admin.execute("delete from underseal.event where chain_id = 'b'").rowcount == 6


def answers(own: Logs, name: str, *arguments: Any) -> Any:
    """What a private function gives."""
    places = ", ".join(["%s"] * len(arguments))
    return own.value(f"select underseal.{name}({places})::text", *arguments)


@pytest.mark.clause("E11b")
@pytest.mark.parametrize(
    ("snapshot", "txn", "cut"),
    [
        ("5:9:5,7", "8", "5:8:5,7"), ("5:9:5,7", "7", "5:7:5"), ("5:9:5,7", "6", "5:6:5"), ("5:9:5,7", "5", "5:5:"),
        ("5:9:5,7", "9", "5:9:5,7"), ("5:9:5,7", "20", "5:9:5,7"), ("9:9:", "4", "4:4:"), ("8:9:8", "3", "3:3:"),
    ],
)  # fmt: skip
def test_a_snapshot_is_cut(own: Logs, snapshot: str, txn: str, cut: str) -> None:
    assert own.value("select underseal._cut_snapshot(%s::pg_snapshot, %s::xid8)::text", snapshot, txn) == cut


@pytest.mark.clause("E11b")
def test_data_of_other_shapes_is_given_as_it_is(own: Logs) -> None:
    own.start("ä/1", "z z")
    own.write(
        {"verb": "start", "execution_id": "ä/1~kid", "flow": "f", "flow_version": 1, "principal": "ann"}
    )
    for size in (1, 2, 5):
        assert Reader(own, None, size).drain() == own.keys() == [("z z", 0), ("ä/1", 0), ("ä/1~kid", 0)]
    assert reader(own, 0).logs.calls("read_all", None, 0)[0]["seq"] == 0
    assert own.calls("read_all", None, None, Jsonb({})) != []
