"""The audit itself: it finds what is broken by hand in books that it had nothing against."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from tests.crash import witness
from tests.crash.stage import Stage
from tests.crash.test_crash_storm import Weather
from underseal.testing.audit import Books, audit
from underseal.testing.audit.books import Row, id_of

ROOTS = 28


@pytest.fixture(scope="module")
def sound(stage: Stage) -> Books:
    """Books of a small storm."""

    async def blow() -> Weather:
        async with stage.open():
            weather = Weather(stage, "small", ROOTS)
            await weather.blow(1)
        return weather

    weather = asyncio.run(blow())
    return witness.read(stage.database.conninfo, "small-", weather.dead)


def of(books: Books, kind: str, **data: Any) -> list[Row]:
    """Events of a type whose data have these values, in the order of the logs."""
    found = [
        event
        for event in books.events
        if event["type"] == kind and all(event["data"].get(name) == value for name, value in data.items())
    ]
    assert found, (kind, data)
    return sorted(found, key=lambda event: (event["chain_id"], event["member"], event["seq"]))


def log_of(books: Books, event: Row) -> list[Row]:
    """The whole log of an event."""
    return sorted(
        (one for one in books.events if id_of(one) == id_of(event)), key=lambda one: int(one["seq"])
    )


def execution_of(books: Books, event: Row) -> Row:
    """The execution of an event."""
    (found,) = (row for row in books.executions if id_of(row) == id_of(event))
    return found


def insert_after(books: Books, event: Row, **changes: Any) -> Row:
    """Put a copy of an event, with changes, behind it."""
    for other in log_of(books, event):
        if other["seq"] > event["seq"]:
            other["seq"] += 1
    for row in sorted(books.written, key=lambda row: -int(row["seq"])):
        if id_of(row) == id_of(event) and row["seq"] > event["seq"]:
            row["seq"] += 1
    (written,) = (row for row in books.written if id_of(row) == id_of(event) and row["seq"] == event["seq"])
    books.written.append({**written, "seq": event["seq"] + 1})
    execution_of(books, event)["head"] += 1
    made = {**copy.deepcopy(event), "seq": event["seq"] + 1, **changes}
    books.events.append(made)
    return made


def letters(books: Books) -> tuple[Row, Row]:
    """Two messages of one topic that one execution consumed, one after the other."""
    for first in of(books, "MESSAGE_CONSUMED", disposition="delivered", topic="a"):
        for second in log_of(books, first):
            if second["seq"] > first["seq"] and second["data"].get("topic") == "a":
                return first, second
    raise AssertionError("nobody got two letters")


def delivered_twice(books: Books) -> None:
    """The same message, with another number."""
    first, second = letters(books)
    second["data"] |= {name: first["data"][name] for name in ("key", "message_id", "payload")}


def delivered_again(books: Books) -> None:
    """The same message, with the same number."""
    first, second = letters(books)
    second["data"] = {**first["data"], "wait": second["data"]["wait"]}


def order_swapped(books: Books) -> None:
    """The second message before the first."""
    first, second = letters(books)
    first["data"], second["data"] = (
        {**second["data"], "wait": first["data"]["wait"]},
        {**first["data"], "wait": second["data"]["wait"]},
    )


def step_recorded_twice(books: Books) -> None:
    """A result again."""
    insert_after(books, of(books, "STEP_COMPLETED")[0])


def child_started_twice(books: Books) -> None:
    """A child again, in another operation."""
    event = of(books, "CHILD_STARTED")[0]
    insert_after(books, event, data={**event["data"], "op": 999})


def gap(books: Books) -> None:
    """An event is gone."""
    books.events.remove(of(books, "STEP_COMPLETED")[0])


def two_ends(books: Books) -> None:
    """It ends again."""
    insert_after(books, of(books, "EXECUTION_COMPLETED")[0])


def goes_on_after_the_end(books: Books) -> None:
    """Something behind the end."""
    insert_after(
        books, of(books, "EXECUTION_COMPLETED")[0], type="STEP_COMPLETED", data={"op": 99, "output": None}
    )


def answered_twice(books: Books) -> None:
    """A timer of a wait that was answered."""
    event = of(books, "TIMER_FIRED")[0]
    insert_after(books, event)


def by_another_topic(books: Books) -> None:
    """A message answers an arm of another topic."""
    event = of(books, "MESSAGE_CONSUMED", topic="$gate/sign")[0]
    event["data"]["topic"] = "$gate/other"


def message_lost(books: Books) -> None:
    """What was sent is nowhere."""
    one = next(one for one in books.sent if one["outcome"] == "sent")
    books.sent.append({**one, "message_id": "lost", "inbox_seq": 10**6})


def message_altered(books: Books) -> None:
    """Something else was said."""
    letters(books)[0]["data"]["payload"] = "forged"


def wake_lost(books: Books) -> None:
    """One that waits for an instant, and nothing that wakes it."""
    row = next(row for row in books.executions if row["status"] == "suspended")
    row["waits"][0]["arms"].append({"due": "2026-01-01T00:00:00Z"})


def left_waiting(books: Books) -> None:
    """What it waits for is there, and it is not given it."""
    row = next(row for row in books.executions if row["status"] == "suspended")
    topic = row["waits"][0]["arms"][0]["topic"]
    books.messages.append(
        {
            "chain_id": row["chain_id"],
            "line": row["line"],
            "topic": topic,
            "inbox_seq": row["last_inbox_seq"] + 1,
        }
    )


def running_unwoken(books: Books) -> None:
    """It was being driven, and nothing is there to drive it."""
    row = next(row for row in books.executions if row["status"] == "completed")
    row["status"] = "running"
    books.events.remove(log_of(books, row)[-1])
    row["head"] -= 1


def parent_told_wrong(books: Books) -> None:
    """A child's end is not what its parent was told."""
    event = next(one for one in of(books, "MESSAGE_CONSUMED") if one["data"]["topic"].startswith("$child/"))
    event["data"]["payload"]["output"] = "forged"


def effect_after_the_fence(books: Books) -> None:
    """A process did something when another had taken the fence."""
    effect = books.effects[-1]
    last = max(row["fence"] for row in books.fences if id_of(row) == effect["execution"])
    books.fences.append(
        {
            **next(row for row in books.fences if id_of(row) == effect["execution"]),
            "fence": last + 1,
            "process": "other",
            "number": 10**9,
            "at": effect["began"] - timedelta(microseconds=1),
        }
    )


def written_without_the_fence(books: Books) -> None:
    """An event of a process that never had the fence."""
    event = of(books, "STEP_COMPLETED")[0]
    for row in books.written:
        if id_of(row) == id_of(event) and row["seq"] == event["seq"]:
            row["process"] = "other"


def fence_given_twice(books: Books) -> None:
    """Two processes with one fence."""
    books.fences.append({**books.fences[0], "process": "other"})


def effect_of_another(books: Books) -> None:
    """A result that another process computed."""
    event = of(books, "STEP_COMPLETED")[0]
    (effect,) = (row for row in books.effects if row["effect"] == event["data"]["output"]["effect"])
    effect["process"] = "other"


def effect_in_vain(books: Books) -> None:
    """A step that was done twice, by a process that nothing happened to."""
    cancelled = {id_of(event) for event in of(books, "EXECUTION_CANCEL_REQUESTED")}
    effect = next(
        row
        for row in books.effects
        if row["process"] not in books.excused and row["step"] > 0 and row["execution"] not in cancelled
    )
    books.effects.append({**effect, "effect": 10**9})


BROKEN: dict[Callable[[Books], None], str] = {
    delivered_twice: "is delivered 2 times",
    delivered_again: "is there 2 times",
    order_swapped: "comes after",
    step_recorded_twice: "is recorded 2 times",
    child_started_twice: "is started 2 times",
    gap: "expected events 0 to",
    two_ends: "2 terminal events",
    goes_on_after_the_end: "is not the end of",
    answered_twice: "which is not open",
    by_another_topic: "answers an arm of",
    message_lost: "neither delivered nor pending",
    message_altered: "came from",
    wake_lost: "waits for an instant and nothing wakes it",
    left_waiting: "are pending",
    running_unwoken: "is running and nothing wakes it",
    parent_told_wrong: "and its parent was told",
    effect_after_the_fence: "held the fence",
    written_without_the_fence: "held the fence",
    fence_given_twice: "were not taken in their order",
    effect_of_another: "is recorded with the effect of",
    effect_in_vain: "in vain",
}


def test_it_has_nothing_against_sound_books(sound: Books) -> None:
    assert audit(sound) == []
    assert len(sound.executions) > ROOTS
    assert len({row["process"] for row in sound.fences}) >= 3


@pytest.mark.clause("T3b")
@pytest.mark.parametrize("break_it", BROKEN, ids=lambda one: one.__name__)
def test_it_finds_what_was_broken_by_hand(sound: Books, break_it: Callable[[Books], None]) -> None:
    books = copy.deepcopy(sound)
    break_it(books)
    found = audit(books)
    assert any(BROKEN[break_it] in fault for fault in found), found
