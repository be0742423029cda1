"""The audit of executions that were forked, or ended while a step was under way, or left messages undelivered."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pytest_postgresql.executors import NoopExecutor

from tests.databases import own_database
from tests.simulation.flow_house import FlowHouse
from underseal.foundation.server import Server
from underseal.testing.audit import Books, audit
from underseal.testing.audit.books import Row


@pytest.fixture(scope="module")
def sound(postgres: Server, template: NoopExecutor) -> Iterator[Books]:
    """Their books."""
    with own_database(postgres, template, "flows") as database:
        house = FlowHouse(database)

        async def live() -> None:
            async with house.open():
                await house.live()

        asyncio.run(live())
        yield house.books()


def test_the_audit_has_nothing_against_them(sound: Books) -> None:
    assert audit(sound) == []
    ways = {one["data"]["disposition"] for one in sound.events if one["type"] == "MESSAGE_CONSUMED"}
    assert ways == {"delivered", "discarded", "expired"}
    assert {(row["chain_id"], row["status"]) for row in sound.executions if not row["member"]} == {
        ("w-one", "completed"), ("w-two", "suspended"), ("w-fork", "completed"), ("hurries", "completed"),
        ("asks", "completed"),
    }  # fmt: skip
    assert len(sound.effects) == 7


def only(rows: list[Row], **values: Any) -> Row:
    """The one row that has these values."""
    (found,) = (row for row in rows if all(row[name] == value for name, value in values.items()))
    return found


def consumed(books: Books, chain: str, disposition: str) -> Row:
    """What became of a message."""
    (found,) = (
        event
        for event in books.events
        if event["type"] == "MESSAGE_CONSUMED"
        and (event["chain_id"], event["data"]["disposition"]) == (chain, disposition)
    )
    return found


def message_lost(books: Books) -> None:
    """A number that was given, and nothing that has it."""
    consumed(books, "w-one", "discarded")["data"]["inbox_seq"] = 99


def end_told_wrong(books: Books) -> None:
    """A parent is told of another error."""
    consumed(books, "asks", "delivered")["data"]["payload"]["error"]["message"] = "yes"


def child_gone(books: Books) -> None:
    """A parent is told of a child that nobody knows."""
    consumed(books, "asks", "delivered")["data"]["message_id"] = "nobody"


def unrecorded(execution: str, **changes: Any) -> Callable[[Books], None]:
    """Something more was done for an execution."""

    def change(books: Books) -> None:
        like = next(row for row in books.effects if row["execution"] == execution)
        books.effects.append({**like, "effect": 99, **changes})

    return change


def recorded_by_the_fork(books: Books) -> None:
    """A fork's own result is that of what its source did."""
    (event,) = (
        one
        for one in books.events
        if one["chain_id"] == "w-fork" and one["type"] == "STEP_COMPLETED" and one["data"]["name"] == "last"
    )
    event["data"]["output"]["effect"] = 1


def unseen(books: Books) -> None:
    """The witness missed an event."""
    books.written.remove(only(books.written, chain_id="w-two", seq=1))


def recovered_by_nobody(books: Books) -> None:
    """An event that says that somebody took over, and nobody has taken the fence since."""
    (event,) = (one for one in books.events if one["chain_id"] == "w-two" and one["seq"] == 1)
    event.update(type="EXECUTION_RECOVERED", data={"worker": "worker", "attempt": 1})


BROKEN: dict[str, tuple[Callable[[Books], None], str]] = {
    "message lost": (message_lost, "message 2 is neither in a log nor pending"),
    "end told wrong": (end_told_wrong, "ended with EXECUTION_FAILED, and its parent was told"),
    "child gone": (child_gone, "nobody ended with nothing"),
    "done again": (unrecorded("w-one"), "did step 1 in vain"),
    "done and forgotten": (unrecorded("w-two", step=9), "did step 9 in vain"),
    "failed again": (unrecorded("asks~fails-1", attempt=2), "did step 1 in vain"),
    "recorded by the fork": (recorded_by_the_fork, "is recorded before"),
    "unseen": (unseen, "nobody saw who wrote event 1"),
    "recovered by nobody": (recovered_by_nobody, "and None held the fence"),
}


@pytest.mark.clause("T3b")
@pytest.mark.parametrize("name", BROKEN)
def test_the_audit_finds_what_was_broken_by_hand_in_them(sound: Books, name: str) -> None:
    books = copy.deepcopy(sound)
    change, said = BROKEN[name]
    change(books)
    found = audit(books)
    assert any(said in fault for fault in found), found


def test_what_was_under_way_when_its_flow_ended_may_be_unrecorded(sound: Books) -> None:
    books = copy.deepcopy(sound)
    unrecorded("hurries", step=3)(books)
    assert audit(books) == []


def test_a_sender_that_was_told_nothing_may_have_sent(sound: Books) -> None:
    books = copy.deepcopy(sound)
    books.sent.append({**books.sent[0], "message_id": "perhaps", "outcome": "unknown", "inbox_seq": None})
    assert audit(books) == []


def test_a_child_that_ended_with_what_cannot_be_sent_is_told_as_failed(sound: Books) -> None:
    books = copy.deepcopy(sound)
    consumed(books, "asks", "delivered")["data"]["payload"]["error"] = {"type": "OutputTooLarge"}
    assert audit(books) == []
