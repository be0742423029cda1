"""Reading many logs in one call (clauses E11, E14, M5, M8)."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.log.logs import OPENS, SEAL, Logs
from underseal.testing import DictConnection, TestDatabase


@pytest.fixture
def own(db: DictConnection) -> Logs:
    """The schema's owner."""
    return Logs(db)


@pytest.fixture
def worker(database: TestDatabase, db: DictConnection) -> Logs:
    """A worker's login."""
    role = database.create_role("worker")
    db.execute("select underseal.grant_access(%s, 'worker')", [role])
    return Logs(database.connect(role))


def read(
    logs: Logs, *asked: tuple[str, int | None], most: int | None = 1000, capability: object = None
) -> list[dict[str, Any]]:
    """Read."""
    given = json.dumps([{"execution_id": one, "after": after} for one, after in asked])
    return logs.calls("read_logs", given, most, None if capability is None else Jsonb(capability))


def places(rows: list[dict[str, Any]]) -> list[tuple[int, str, int]]:
    """Of events: which item, of whom, which number."""
    assert {row["outcome"] for row in rows} <= {"event"}
    return [(row["item"], row["execution_id"], row["seq"]) for row in rows]


@pytest.mark.clause("E11a", "E14c")
def test_each_log_gives_what_read_events_gives(own: Logs, worker: Logs) -> None:
    own.start("b", "a", steps=3)
    own.start("a~pay", steps=3)
    own.start("c", owner="bob")
    asked = (("b", -1), ("a", 1), ("a~pay", None), ("c", 0), ("a", 2), ("b", 99))
    rows = read(worker, *asked)
    assert places(rows) == [
        *((1, "b", seq) for seq in range(4)),
        (2, "a", 2), (2, "a", 3),
        *((3, "a~pay", seq) for seq in range(4)),
        (5, "a", 3),
    ]  # fmt: skip
    for place, (execution_id, after) in enumerate(asked, 1):
        alone = worker.calls("read_events", execution_id, None, after)
        assert [{name: row[name] for name in alone[0]} for row in rows if row["item"] == place] == alone
    assert read(worker) == []


@pytest.mark.clause("E11a")
def test_of_each_the_first_so_many(own: Logs) -> None:
    own.start("a", "b", steps=4)
    assert places(read(own, ("a", -1), ("b", 1), most=2)) == [
        (1, "a", 0),
        (1, "a", 1),
        (2, "b", 2),
        (2, "b", 3),
    ]
    assert read(own, ("a", -1), most=0) == read(own, ("a", -1), most=-1) == []
    assert len(read(own, ("a", -1), most=None)) == 5


def test_what_is_not_there_is_told(own: Logs) -> None:
    own.start("a")
    rows = read(own, ("missing", -1), ("a", -1), ("a~2", -1), ("", -1))
    assert [(row["item"], row["outcome"], row["execution_id"], row["seq"]) for row in rows] == [
        (1, "not-found", "missing", None), (2, "event", "a", 0), (3, "not-found", "a~2", None),
        (4, "not-found", "", None),
    ]  # fmt: skip
    assert all(row["message"] for row in rows if row["outcome"] == "not-found")
    assert own.causes() == []


@pytest.mark.clause("M5", "M8", "M16")
@pytest.mark.parametrize(
    "capability", [None, {}, {"ciphers": OPENS["ciphers"]}, {**OPENS, "covers": ["A.b"]}], ids=str
)
def test_a_log_that_does_not_open_is_denied_whole_and_no_other(own: Logs, capability: object) -> None:
    own.start("sealed", "plain", steps=1)
    own.seal("sealed")
    own.append("sealed", steps=1)
    rows = read(own, ("sealed", -1), ("plain", 0), capability=capability)
    (denied,) = own.calls(
        "read_events", "sealed", None, -1, 1000, None if capability is None else Jsonb(capability)
    )
    assert rows[0] == {**denied, "item": 1, "execution_id": "sealed"}
    assert denied["outcome"] == "denied"
    assert all(rows[0][name] is None for name in ("seq", "recorded_at", "type", "data", "metadata"))
    assert places(rows[1:]) == [(2, "plain", 1)]
    assert own.rows("select op, execution_id, principal, cause from underseal.execution_denials") == [
        {"op": "read", "execution_id": "sealed", "principal": None, "cause": "sealed"}
    ] * 2  # fmt: skip


@pytest.mark.clause("M16")
def test_who_declares_nothing_gets_no_part_of_it(own: Logs) -> None:
    own.start("x", steps=2)
    own.seal("x")
    own.append("x", steps=2)
    for after, most in ((-1, 2), (4, 2)):
        assert [row["outcome"] for row in read(own, ("x", after), most=most)] == ["denied"]


@pytest.mark.clause("M3")
def test_who_opens_it_reads_it(own: Logs) -> None:
    own.start("x", steps=1)
    own.seal("x")
    rows = read(own, ("x", 0), capability=OPENS)
    assert places(rows) == [(1, "x", 1), (1, "x", 2)]
    assert rows[1]["metadata"] == {"seal": SEAL}
    assert own.causes() == []


@pytest.mark.clause("E12a", "E14c")
@pytest.mark.parametrize("access", ["client", "approver", "operator", "sealer", "reader"])
def test_only_a_worker_reads_in_nobodys_name(
    database: TestDatabase, db: DictConnection, own: Logs, access: str
) -> None:
    own.start("a")
    role = database.create_role(access)
    db.execute("select underseal.grant_access(%s, %s)", [role, access])
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        read(Logs(database.connect(role)), ("a", -1))


@pytest.mark.parametrize("given", ["{}", "1", "null", None])
def test_what_is_no_array_is_an_error(own: Logs, given: str | None) -> None:
    with pytest.raises(psycopg.Error) as caught:
        own.calls("read_logs", given)
    assert caught.value.sqlstate == "US001"


@pytest.mark.clause("E1a")
def test_data_comes_as_the_text_that_was_recorded(own: Logs) -> None:
    own.start("x")
    text = '{"a": 1.50, "b": 1e400, "a": 12345678901234567890123}'
    own.rows("select underseal.append('x', 1, %s::json)", f'[{{"type": "STEP_COMPLETED", "data": {text}}}]')
    assert (
        own.value("""select data::text from underseal.read_logs('[{"execution_id": "x", "after": 0}]')""")
        == text
    )


@pytest.mark.clause("M6")
def test_what_is_stored_is_read_through_one_function_by_those_who_judge(own: Logs) -> None:
    readers = own.rows(
        r"""select p.proname as name from pg_proc p
            where p.pronamespace = 'underseal'::regnamespace and p.prosrc ~ 'underseal\._read_at_rest\('"""
    )
    assert {row["name"] for row in readers} == {"read_events", "read_logs"}
