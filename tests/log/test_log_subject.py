"""Whose data a chain holds, and whose a key is (clauses X1, X2, X7, X12)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.foundation.test_access import role
from tests.held.sql.kernel import Kernel, outcome
from tests.inbox.box import Box, box
from tests.log.seals import envelope, events, key_of, last, marker, sealed_event, sealing_box, subject

START: dict[str, Any] = {"flow": "f", "flow_version": 1, "principal": "ann"}


def subjects(k: Kernel, *ids: str) -> list[str | None]:
    """Whose data the chains of executions hold."""
    rows = k.calls("get_subjects", list(ids))
    assert [row["execution_id"] for row in rows] == list(ids)
    assert [row["outcome"] for row in rows] == [
        "none" if row["subject"] is None else "subject" for row in rows
    ]
    return [row["subject"] for row in rows]


@pytest.mark.clause("X1")
def test_a_chain_has_the_subject_it_was_started_with(k: Kernel) -> None:
    rows = [
        k.call("start_execution", "f", "ann", None, "one", 1, None, "subject-a"),
        *k.calls("start_executions", json.dumps([
            {"flow": "f", "principal": "ann", "execution_id": "two", "subject": "subject-b"},
            {"flow": "f", "principal": "ann", "execution_id": "three"},
        ])),
        *k.calls("append_batch", json.dumps([
            {"verb": "start", "execution_id": "four", **START, "subject": "subject-a"},
            {"verb": "start", "execution_id": "five", **START, "subject": None, "input": {"subject": "x"}},
        ])),
    ]  # fmt: skip
    assert {row["outcome"] for row in rows} == {"started"}
    assert subjects(k, "two", "one", "three", "four", "five", "none", "two~2") == [
        "subject-b", "subject-a", None, "subject-a", None, None, "subject-b",
    ]  # fmt: skip
    assert [events(Box(k, one))[0]["data"].get("subject") for one in ("one", "three", "five")] == [
        "subject-a",
        None,
        None,
    ]
    assert events(Box(k, "one"))[0]["data"] == {
        "flow": "f", "flow_version": 1, "owner": "ann", "input": None, "subject": "subject-a",
    }  # fmt: skip


@pytest.mark.clause("X1")
@pytest.mark.parametrize("wrong", ["", "x" * 201, "a\nb", "\x7f", 7, ["x"], {"x": 1}, True])
def test_what_is_no_subject_is_refused(k: Kernel, wrong: object) -> None:
    item = {"verb": "start", "execution_id": "n", **START, "subject": wrong}
    (row,) = k.calls("append_batch", json.dumps([item]))
    assert outcome(row) == ("refused", "malformed-subject")
    assert row["message"].startswith("Expected a subject of 1 to 200 characters")
    (row,) = k.calls("start_executions", json.dumps([{**item, "flow": "f"}]))
    assert outcome(row) == ("refused", "malformed-subject")
    assert k.call("head", "n")["outcome"] == "not-found"
    assert k.value("select count(*) from underseal.chain_subject") == 0
    if isinstance(wrong, str):
        assert outcome(k.call("register_subject_key", wrong, "k", 1)) == ("refused", "malformed-subject")


@pytest.mark.clause("X1", "E3")
def test_an_id_that_is_taken_keeps_its_subject(k: Kernel) -> None:
    b, kid = sealing_box(k)
    (whose,) = subjects(k, b.id)
    other = subject(k)
    assert k.call("start_execution", "f", "ann", None, b.id, 1, None, other)["outcome"] == "exists"
    sealed = json.dumps(envelope(key_of(other)))
    row = k.call("start_execution", "f", "bob", sealed, b.id, 1, None, other, ["/input"])
    assert row["outcome"] == "exists"
    assert subjects(k, b.id) == [whose]
    plain = box(k)
    assert k.call("start_execution", "f", "ann", None, plain.id, 1, None, other)["outcome"] == "exists"
    assert subjects(k, plain.id) == [None]
    assert outcome(b.write("append", events=[sealed_event(kid)])) == ("appended", None)


@pytest.mark.clause("X1")
def test_continuations_and_children_share_their_chains(k: Kernel) -> None:
    b, kid = sealing_box(k)
    (whose,) = subjects(k, b.id)
    child = {"verb": "start", "execution_id": f"{b.id}~pay", **START}
    for other in (subject(k), "nobody"):
        (row,) = k.calls("append_batch", json.dumps([{**child, "subject": other}]))
        assert outcome(row) == ("refused", "other-subject")
    foreign = {**child, "input": envelope("foreign"), "sealed": ["/input"]}
    assert outcome(k.calls("append_batch", json.dumps([foreign]))[0]) == ("refused", "foreign-key")
    (row,) = k.calls("append_batch", json.dumps([{**child, "input": envelope(kid), "sealed": ["/input"]}]))
    assert outcome(row) == ("started", None)
    pay = Box(k, f"{b.id}~pay")
    assert last(pay)["metadata"] == marker("EXECUTION_STARTED.input")
    (row,) = k.calls(
        "append_batch", json.dumps([{**child, "execution_id": f"{b.id}~ship", "subject": whose}])
    )
    assert outcome(row) == ("started", None)
    assert outcome(pay.write("append", events=[sealed_event(kid)])) == ("appended", None)
    b.go_on()
    assert outcome(b.write("append", events=[sealed_event(kid)])) == ("appended", None)
    assert subjects(k, b.id, pay.id) == [whose, whose]
    assert k.value("select count(*) from underseal.chain_subject") == 1
    # a chain without one never gets one
    plain = box(k)
    (row,) = k.calls(
        "append_batch", json.dumps([{**child, "execution_id": f"{plain.id}~pay", "subject": whose}])
    )
    assert outcome(row) == ("refused", "other-subject")


@pytest.mark.clause("X1", "M1")
def test_a_fork_holds_its_origins(k: Kernel) -> None:
    b, kid = sealing_box(k)
    (whose,) = subjects(k, b.id)
    b.write("append", events=[sealed_event(kid)])
    b.write("continue", input=envelope(kid), sealed=["/input"])
    for source in (b.id, f"{b.id}~2"):
        row = k.call("fork_execution", source, 0, "ann")
        assert row["outcome"] == "forked"
        fork = Box(k, row["execution_id"])
        assert subjects(k, fork.id) == [whose]
        assert last(fork)["data"]["subject"] == whose
        assert outcome(fork.write("append", events=[sealed_event(kid)])) == ("appended", None)
        (row,) = k.calls(
            "append_batch", json.dumps([{"verb": "start", "execution_id": f"{fork.id}~pay", **START}])
        )
        assert row["outcome"] == "started"
    assert events(fork)[0]["metadata"] == marker("EXECUTION_STARTED.input")
    again = k.call("fork_execution", fork.id, 1, "ann")["execution_id"]
    assert subjects(k, again) == [whose]
    assert [one["metadata"] for one in events(Box(k, again))] == [
        marker("EXECUTION_STARTED.input"), marker("NOTED.output"),
    ]  # fmt: skip
    plain = k.call("fork_execution", box(k).id, 0, "ann")["execution_id"]
    assert subjects(k, plain) == [None]


@pytest.mark.clause("X2")
def test_nothing_is_forked_of_a_subject_that_is_being_erased(k: Kernel) -> None:
    b, kid = sealing_box(k)
    (whose,) = subjects(k, b.id)
    b.write("append", events=[sealed_event(kid)])
    k.do("insert into underseal.subject_fence values (%s, underseal.clock(), 'erasing')", whose)
    row = k.call("fork_execution", b.id, 1, "ann")
    assert outcome(row) == ("refused", "subject-erasing")
    assert row["message"].startswith("Expected a subject that is not being erased")


@pytest.mark.clause("X7")
def test_the_note_goes_with_its_chain(k: Kernel) -> None:
    b, kid = sealing_box(k)
    other, _ = sealing_box(k)
    b.write("complete", output=envelope(kid), sealed=["/output"])
    assert k.call("delete_chain", b.id, "op")["outcome"] == "deleted"
    assert subjects(k, b.id) == [None]
    assert subjects(k, other.id) != [None]
    # the id may be another subject's then; the keys stay whose they are
    whose = subject(k)
    assert k.call("start_execution", "f", "ann", None, b.id, 1, None, whose)["outcome"] == "started"
    assert subjects(k, b.id) == [whose]
    assert k.value("select count(*) from underseal.subject_key where key_id = %s", kid) == 1


# -- the registry ------------------------------------------------------------------------------------


@pytest.mark.clause("X1", "X11", "X12")
def test_a_key_is_one_subjects_for_good(k: Kernel) -> None:
    def register(whose: str, key: str | None, epoch: int | None) -> tuple[str, str | None]:
        row = k.call("register_subject_key", whose, key, epoch)
        assert (row["message"] is None) == (row["reason"] is None)
        return outcome(row)

    assert register("a", "key-1", 1) == ("registered", None)
    assert register("a", "key-1", 1) == ("unchanged", None)
    assert register("a", "key-2", 2) == ("registered", None)
    assert register("b", "key-1", 1) == ("conflict", "foreign-key")
    assert register("a", "key-1", 3) == ("conflict", "foreign-key")
    assert register("a", "key-3", 2) == ("conflict", "epoch-taken")
    assert register("b", "key-3", 2) == ("registered", None)
    k.do("update underseal.subject_key set destroyed_at = underseal.clock() where key_id = 'key-1'")
    assert register("a", "key-1", 1) == ("refused", "key-destroyed")
    for key in ("", "a b", "é", "k" * 129, None):
        assert register("a", key, 4) == ("refused", "malformed-key")
    for epoch in (0, -1, None):
        assert register("a", "key-4", epoch) == ("refused", "malformed-epoch")
    assert register("x" * 200, "k" * 128, 2147483647) == ("registered", None)


@pytest.mark.clause("X1")
def test_only_sealers_register_and_ask(k: Kernel) -> None:
    sealer = role(k, "sealer")
    with k.login(sealer):
        assert outcome(k.call("register_subject_key", "a", "key-1", 1)) == ("registered", None)
        assert k.calls("get_subjects", ["x"])[0]["outcome"] == "none"
    with k.login(role(k, "worker")):
        k.refused("42501", "select * from underseal.register_subject_key('a', 'key-2', 2)")


# -- who writes the tables ---------------------------------------------------------------------------


@pytest.mark.clause("X1", "X2", "X12", "T5c")
@pytest.mark.parametrize("replica", [False, True])
def test_nobody_moves_what_is_kept(k: Kernel, replica: bool) -> None:
    b, _ = sealing_box(k)
    plain = box(k)
    (whose,) = subjects(k, b.id)
    k.do("insert into underseal.subject_fence values ('gone', underseal.clock(), 'erased')")
    k.do("insert into underseal.subject_key values ('old', 'x', 1, underseal.clock(), underseal.clock())")
    refused = (
        ("US005", f"insert into underseal.chain_subject values ('{plain.id}', '{whose}', underseal.clock())"),
        ("US005", "insert into underseal.chain_subject values ('nothing', 'x', underseal.clock())"),
        ("US004", "update underseal.chain_subject set subject = 'other'"),
        ("US004", "update underseal.chain_subject set set_at = set_at"),
        ("US007", "delete from underseal.chain_subject"),
        ("US004", "truncate underseal.chain_subject"),
        ("US003", "update underseal.subject_key set subject = 'other'"),
        ("US003", "update underseal.subject_key set key_id = 'other' where key_id = 'old'"),
        ("US003", "update underseal.subject_key set epoch = 9 where key_id = 'old'"),
        ("US003", "update underseal.subject_key set registered_at = underseal.clock() - interval '1 day'"),
        ("US003", "update underseal.subject_key set destroyed_at = null where key_id = 'old'"),
        (
            "US003",
            "update underseal.subject_key set destroyed_at = destroyed_at + interval '1 day' where key_id = 'old'",
        ),
        ("US004", "delete from underseal.subject_key"),
        ("US004", "truncate underseal.subject_key"),
        ("US002", "insert into underseal.subject_key values ('new', 'gone', 1, underseal.clock())"),
        ("US003", "update underseal.subject_fence set state = 'erasing'"),
        ("US003", "update underseal.subject_fence set subject = 'other'"),
        ("US003", "update underseal.subject_fence set began_at = began_at - interval '1 day'"),
        ("US004", "delete from underseal.subject_fence"),
        ("US004", "truncate underseal.subject_fence"),
        ("23514", "insert into underseal.subject_fence values ('y', underseal.clock(), 'over')"),
    )
    with k.login(None, "replica" if replica else "origin"):
        for code, statement in refused:
            k.refused(code, statement)
    assert subjects(k, b.id, plain.id) == [whose, None]
