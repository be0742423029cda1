"""What single histories fold to, in SQL and in the reference fold, inserted at once and one by one (clause E4)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import psycopg
import pytest

from tests.held.sql.kernel import Kernel
from tests.log.histories import BEGAN, History
from tests.log.test_log_fold_property import agrees, folded, insert, undone
from underseal.log.fold import IllegalHistory, fold, line_of, member_of
from underseal.log.model import LogEvent

Told = tuple[str, dict[str, Any]]

START: Told = ("EXECUTION_STARTED", {"flow": "f", "flow_version": 1, "owner": "ann", "input": None})
STEP: Told = ("STEP_DONE", {})
TAKEN: Told = ("EXECUTION_RECOVERED", {"worker": "w", "attempt": 1})
ASKED: Told = ("EXECUTION_CANCEL_REQUESTED", {"principal": "ann", "reason": None})
FAILED: Told = ("EXECUTION_FAILED", {"error": 1})
SAID: Told = ("OUTCOME_RECORDED", {"outcome": 1, "principal": "ann"})
A, B = ({"wait": name, "arms": [{"topic": "t"}]} for name in "ab")
DUE = {"wait": "d", "arms": [{"topic": "t"}, {"due": "2030-01-02T00:00:00.000000Z"}]}


def park(*waits: dict[str, Any]) -> Told:
    """A park."""
    return "EXECUTION_SUSPENDED", {"waits": list(waits)}


def fired(wait: str) -> Told:
    """A timer's answer."""
    return "TIMER_FIRED", {"wait": wait, "arm": 1}


def key(name: str) -> str:
    """A message's key."""
    return hashlib.sha256(name.encode()).hexdigest()


def message(number: int, name: str, wait: str | None = None, topic: str = "t") -> Told:
    """A message, delivered to a wait or disposed of."""
    data = {"topic": topic, "inbox_seq": number, "key": key(name), "message_id": name, "sender": "ann"}
    if wait is None:
        return "MESSAGE_CONSUMED", {**data, "disposition": "discarded"}
    return "MESSAGE_CONSUMED", {**data, "wait": wait, "arm": 0, "disposition": "delivered", "payload": 1}


def history(told: Sequence[Told]) -> History:
    """One execution's history; all of it at one instant."""
    made = History("c")
    for kind, data in told:
        made.add(kind, data)
    return made


def insert_all(kernel: Kernel, statements: Sequence[Sequence[LogEvent]]) -> None:
    """Insert in several statements."""
    for statement in statements:
        insert(kernel, statement)


CASES: dict[str, tuple[Sequence[Told], dict[str, Any]]] = {
    "start": ([START], {"status": "pending", "head": 0, "line": "", "owner": "ann"}),
    "step": ([START, STEP], {"status": "running", "head": 1}),
    "park": ([START, STEP, park(A, DUE)], {"status": "suspended", "waits": [A, DUE]}),
    "park on nothing": ([START, park()], {"status": "suspended", "waits": []}),
    "answer": ([START, park(A, B), message(1, "m", "a")], {"status": "running", "waits": [B]}),
    "every answer": ([START, park(A, DUE), message(1, "m", "a"), fired("d")], {"waits": None}),
    "answer to nothing": ([START, park(A), fired("x")], {"status": "running", "waits": [A]}),
    "waits stay while it runs": ([START, park(A, B), fired("b"), STEP, SAID], {"waits": [A]}),
    "parked again": ([START, park(A, B), fired("b"), STEP, park(DUE)], {"waits": [DUE]}),
    "parked again on what was answered": (
        [START, park(A, B), fired("a"), STEP, park(A)],
        {"status": "suspended", "waits": [A]},
    ),
    "the same, apart from the start": (
        [START, STEP, STEP, STEP, park(A, B), fired("a"), STEP, park(A)],
        {"status": "suspended", "waits": [A]},
    ),
    "discarded while parked": ([START, park(A), message(1, "m")], {"status": "suspended", "waits": [A]}),
    "asked to cancel": (
        [START, park(A), ASKED],
        {"status": "running", "cancel_requested": True, "waits": None},
    ),
    "asked, then parked": ([START, ASKED, park(A)], {"cancel_requested": True, "waits": [A]}),
    "cancelled while parked": (
        [START, park(A), ("EXECUTION_CANCELLED", {})],
        {"status": "cancelled", "waits": None},
    ),
    "ended with waits": (
        [START, park(A, B), fired("b"), ("EXECUTION_FAILED", {})],
        {"status": "failed", "waits": None},
    ),
    "completed": ([START, ("EXECUTION_COMPLETED", {"output": 1}), SAID], {"status": "completed", "head": 2}),
    "discarded after the end": (
        [START, ("EXECUTION_COMPLETED", {}), message(4, "m")],
        {"status": "completed", "inbox": {"cursors": {"t": 4}, "seen": [[key("m"), 4]]}},
    ),
    "taken over": ([START, STEP, TAKEN, TAKEN], {"status": "running", "recoveries": 2}),
    "taken over, then asked": ([START, TAKEN, ASKED], {"recoveries": 1}),
    "taken over, then outcome": ([START, TAKEN, SAID], {"recoveries": 1}),
    "taken over, then progress": ([START, TAKEN, TAKEN, STEP], {"recoveries": 0}),
    "progress, then taken over": ([START, TAKEN, STEP, TAKEN], {"recoveries": 1}),
    "migrated": (
        [START, ("EXECUTION_MIGRATED", {"flow_version": 2}), ("EXECUTION_MIGRATED", {"flow_version": 5})],
        {"flow_version": 5, "status": "running"},
    ),
    "migrated while parked": (
        [START, TAKEN, park(A, DUE), ("EXECUTION_MIGRATED", {"flow_version": 2})],
        {"flow_version": 2, "status": "running", "waits": [A, DUE], "recoveries": 0},
    ),
    "migrated while parked, answered, parked again": (
        [START, park(A, B), ("EXECUTION_MIGRATED", {"flow_version": 2}), fired("a"), STEP, park(B)],
        {"flow_version": 2, "status": "suspended", "waits": [B]},
    ),
    "migrated, then taken over": (
        [START, TAKEN, ("EXECUTION_MIGRATED", {"flow_version": 2}), TAKEN],
        {"recoveries": 1},
    ),
    "cursors only rise": (
        [START, message(7, "a"), message(3, "b"), message(5, "c", topic="u")],
        {"inbox": {"cursors": {"t": 7, "u": 5}, "seen": [[key("a"), 7], [key("b"), 3], [key("c"), 5]]}},
    ),
    "a key twice": (
        [START, message(3, "a"), message(7, "b"), message(9, "a")],
        {"inbox": {"cursors": {"t": 9}, "seen": [[key("a"), 3], [key("b"), 7]]}},
    ),
    "a full window": (
        [START, *[message(n, str(n)) for n in range(1, 1025)]],
        {"inbox": {"cursors": {"t": 1024}, "seen": [[key(str(n)), n] for n in range(1, 1025)]}},
    ),
    "behind the window": (
        [START, *[message(n, str(n)) for n in range(1, 1025)], message(1025, "2"), message(1026, "x")],
        {
            "inbox": {
                "cursors": {"t": 1026},
                "seen": [*[[key(str(n)), n] for n in range(2, 1025)], [key("x"), 1026]],
            }
        },
    ),
    "carried over": (
        [
            (
                START[0],
                {**START[1], "carried": {"last_inbox_seq": 9, "cursors": {"t": 5}, "seen": [[key("a"), 5]]}},
            ),
            message(3, "b", topic="u"),
        ],
        {"inbox": {"cursors": {"t": 5, "u": 3}, "seen": [[key("a"), 5], [key("b"), 3]]}},
    ),
}

IMPOSSIBLE: dict[str, tuple[Sequence[Told], Told]] = {
    "after the end": ([START, ("EXECUTION_COMPLETED", {})], STEP),
    "an answer after the end": ([START, park(A), ("EXECUTION_CANCELLED", {})], fired("a")),
    "another end": ([START, FAILED], ("EXECUTION_CANCELLED", {})),
    "a step while parked": ([START, park(A)], STEP),
    "a migration after the end": (
        [START, ("EXECUTION_COMPLETED", {})],
        ("EXECUTION_MIGRATED", {"flow_version": 2}),
    ),
    "an end while parked": ([START, park(A)], ("EXECUTION_COMPLETED", {})),
    "a recovery while parked": ([START, park(A)], TAKEN),
    "a second start": ([START], START),
    "no start": ([], STEP),
}


@pytest.fixture
def kernel(log_kernel: Kernel) -> Iterator[Kernel]:
    """The schema owner's view, undone afterwards."""
    with undone(log_kernel) as kernel:
        yield kernel


@pytest.mark.clause("E4a", "I2a", "I2b")
@pytest.mark.parametrize("statements", [1, 2, 99])
@pytest.mark.parametrize("name", CASES)
def test_a_history_folds_to_what_it_says(kernel: Kernel, name: str, statements: int) -> None:
    told, expected = CASES[name]
    made = history(told)
    size = -(-len(made.events) // statements)
    for first in range(0, len(made.events), size):
        insert(kernel, made.events[first : first + size])
    agrees(kernel, [made])
    result: Any = folded(kernel, made)
    assert {member: result[member] for member in expected} == expected


@pytest.mark.clause("E1a", "E1b", "E4a")
@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_what_cannot_follow_is_refused(kernel: Kernel, name: str, at_once: bool) -> None:
    told, (kind, data) = IMPOSSIBLE[name]
    made = history(told)
    with pytest.raises(IllegalHistory):
        made.add(kind, data)
    wrong = LogEvent("c", len(made.events), kind, data, BEGAN)
    if made.events and not at_once:
        insert(kernel, made.events)
    with pytest.raises(psycopg.Error) as caught, kernel.connection.transaction():
        insert(kernel, [*(made.events if at_once else []), wrong])
    assert caught.value.sqlstate in {"US002", "US005", "23514"}


@pytest.mark.clause("E1b")
def test_a_hole_is_refused(kernel: Kernel) -> None:
    made = history([START, STEP, STEP])
    with pytest.raises(IllegalHistory):
        fold([made.events[0], made.events[2]], "c")
    for statements in ([[0, 2]], [[0], [2]], [[0], [1], [1]]):
        with pytest.raises(psycopg.Error), kernel.connection.transaction(force_rollback=True):
            insert_all(kernel, [[made.events[seq] for seq in statement] for statement in statements])


@pytest.mark.clause("E4a")
@pytest.mark.parametrize("first", [3, 2, 1])
def test_instants_are_the_first_events_and_the_last_ones(kernel: Kernel, first: int) -> None:
    made = History("c")
    made.add(*START)
    made.add(*STEP, None, 5)
    made.add(*STEP, None, -3)
    for part in filter(None, (made.events[:first], made.events[first:])):
        insert(kernel, part)
    agrees(kernel, [made])
    at = int(BEGAN.timestamp()) * 10**6
    result: Any = folded(kernel, made)
    assert (result["started_at"], result["changed_at"]) == (at, at + 2)


def test_members_and_lines() -> None:
    ids = {
        "c": ("", ""),
        "c~2": ("2", ""),
        "c~pay": ("pay", "pay"),
        "c~pay.12": ("pay.12", "pay"),
        "c~a2": ("a2", "a2"),
    }
    assert {name: (member_of(name), line_of(member_of(name))) for name in ids} == ids


DONE: Told = ("EXECUTION_COMPLETED", {"output": 1})
SEALED: dict[str, Any] = {"seal": {"v": 1, "cipher": "loom/aes-256-gcm", "covers": ["STEP_DONE.x"]}}


def several(*told: Sequence[Told]) -> list[History]:
    """Histories of executions of chains of their own, or of one chain."""
    made = [History(name) for name in ("c", "d", "e~kid")[: len(told)]]
    for one, events in zip(made, told, strict=True):
        for kind, data in events:
            one.add(kind, data)
    return made


@pytest.mark.clause("E4a")
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([START], [[STEP], [STEP], [STEP]]),
        ([START], [[STEP], [DONE], [FAILED]]),
        ([START], [[STEP, STEP], [STEP, DONE], [FAILED]]),
        ([START, TAKEN, TAKEN], [[STEP], [DONE], [FAILED]]),
        ([START, TAKEN, TAKEN], [[STEP, STEP], [STEP, DONE], [STEP, FAILED]]),
        ([START, park(A, B), fired("a")], [[STEP], [DONE], [FAILED]]),
        ([START, park(A, B), fired("a")], [[STEP, STEP], [STEP, DONE], [STEP, FAILED]]),
        ([START, ASKED], [[STEP], [DONE], [STEP, FAILED]]),
    ],
)
def test_many_executions_fold_in_one_statement_as_one_by_one(
    kernel: Kernel, before: list[Told], after: list[list[Told]]
) -> None:
    made = several(*([*before, *more] for more in after))
    insert(kernel, [event for one in made for event in one.events[:1]])
    if before[1:]:
        insert(kernel, [event for one in made for event in one.events[1 : len(before)]])
    insert(kernel, [event for one in made for event in one.events[len(before) :]])
    for one in made:
        agrees(kernel, [one])
    left = kernel.rows("select chain_id, kind from underseal.wake order by chain_id")
    assert left == [
        {"chain_id": one.place[0], "kind": "drive"} for one in made if folded_status(kernel, one) == "running"
    ]


def folded_status(kernel: Kernel, made: History) -> str:
    """The status in the tables."""
    (row,) = kernel.rows(
        "select status from underseal.execution where chain_id = %s and member = %s", *made.place
    )
    status: str = row["status"]
    return status


@pytest.mark.clause("E4a")
@pytest.mark.parametrize("kinds", [[STEP, STEP], [STEP, DONE], [FAILED, STEP]])
def test_a_marker_seals_its_execution_alone(kernel: Kernel, kinds: list[Told]) -> None:
    first, second = several([START], [START])
    insert(kernel, [*first.events, *second.events])
    first.add(*kinds[0], SEALED)
    second.add(*kinds[1])
    insert(kernel, [first.events[1], second.events[1]])
    agrees(kernel, [first])
    agrees(kernel, [second])


@pytest.mark.clause("E1a", "E1b", "E4a")
@pytest.mark.parametrize(
    ("before", "wrong"),
    [
        ([START], [STEP, STEP]),
        ([START, DONE], [STEP]),
        ([START, DONE], [DONE]),
        ([START, park(A)], [STEP]),
        ([START, park(A)], [FAILED]),
        ([START, DONE], [STEP, DONE]),
        ([START], [DONE, STEP]),
        ([START], [FAILED, DONE]),
        ([START], [DONE, DONE]),
        ([START, park(A)], [STEP, STEP]),
    ],
)
@pytest.mark.parametrize("hole", [False, True])
def test_one_that_cannot_follow_refuses_the_statement(
    kernel: Kernel, before: list[Told], wrong: list[Told], hole: bool
) -> None:
    good = several([START, STEP])[0]
    insert(kernel, good.events[:1])
    for seq, (kind, data) in enumerate(before):
        insert(kernel, [LogEvent("d", seq, kind, data, BEGAN)])
    place = len(before) + (hole or (before == [START] and wrong == [STEP, STEP]))
    bad = [LogEvent("d", place + n, kind, data, BEGAN) for n, (kind, data) in enumerate(wrong)]
    with pytest.raises(psycopg.Error) as caught, kernel.connection.transaction():
        insert(kernel, [good.events[1], *bad])
    assert caught.value.sqlstate in {"US002", "US005"}


@pytest.mark.clause("E1c", "E4a")
def test_a_crowd_of_starts_folds_as_each_alone(kernel: Kernel) -> None:
    made = several([START], [("EXECUTION_STARTED", {**START[1], "owner": None, "flow_version": 3})], [START])
    insert(kernel, [event for one in made for event in one.events])
    for one in made:
        agrees(kernel, [one])
    assert [row["kind"] for row in kernel.rows("select kind from underseal.wake")] == ["drive"] * 3


@pytest.mark.clause("E1b")
def test_a_hole_in_one_log_refuses_those_of_others(kernel: Kernel) -> None:
    good, bad = several([START, STEP], [START, STEP, STEP])
    insert(kernel, [good.events[0], bad.events[0]])
    with pytest.raises(psycopg.Error) as caught, kernel.connection.transaction():
        insert(kernel, [good.events[1], bad.events[2]])
    assert caught.value.sqlstate == "US002"


@pytest.mark.clause("E4a")
def test_a_line_goes_on_with_what_says_that_it_continues_it(kernel: Kernel) -> None:
    insert(kernel, history([START, ("EXECUTION_CONTINUED", {"successor": "c~2"})]).events)
    insert(kernel, [LogEvent("c~2", 0, START[0], {**START[1], "continued_from": "c"}, BEGAN)])
    assert kernel.value("select current_member from underseal.execution where member = ''") == "2"


@pytest.mark.clause("E4a")
def test_a_log_that_names_another_topic_takes_no_message_along(kernel: Kernel) -> None:
    parent, child = history([START]), History("c~pay")
    child.add(*START)
    child.add("EXECUTION_COMPLETED", {})
    insert_all(kernel, [parent.events, child.events])
    parent.add(*message(1, "m", topic="order"))
    insert(kernel, parent.events[1:])
    agrees(kernel, [parent, child])
    assert kernel.rows("select topic, inbox_seq from underseal.inbox_message") == [
        {"topic": "$child/pay", "inbox_seq": 1}
    ]
