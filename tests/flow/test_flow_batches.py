"""Group commit: what gathers while a call is under way, and who is told what (clause E2)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest

from tests.flow.nodes import until
from underseal.flow.batches import Batcher, Journal


class Client:
    """Writes items, one after another, and remembers what became of them."""

    def __init__(self, journal: Journal, *items: str) -> None:
        self.items = list(items)
        self.told: list[Any] = []
        self.journal = journal
        self.breaks = False
        journal.submit(self)

    def take(self) -> str | None:
        """The next item."""
        return self.items.pop(0) if self.items else None

    def answered(self, row: dict[str, Any]) -> None:
        """Take the answer, and go on."""
        self.told.append(row)
        if self.breaks:
            raise ZeroDivisionError
        if self.items:
            self.journal.submit(self)

    def uncertain(self) -> None:
        """Nobody knows."""
        self.told.append("uncertain")

    def impossible(self, error: Exception) -> None:
        """It cannot be written."""
        self.told.append(error)


class Disk:
    """Takes batches, as slowly as it is told."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.go = asyncio.Event()
        self.go.set()
        self.fails: Callable[[Sequence[str]], BaseException | None] = lambda _: None

    async def write(self, items: Sequence[str]) -> list[dict[str, Any]]:
        """Take one."""
        self.batches.append(list(items))
        await self.go.wait()
        error = self.fails(items)
        if error is not None:
            raise error
        return [{"item": item} for item in items]


@asynccontextmanager
async def running(journal: Any) -> AsyncIterator[Any]:
    """While it works."""
    task = asyncio.create_task(journal.run())
    try:
        yield journal
    finally:
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            task.result()


async def test_what_comes_while_a_call_is_under_way_goes_together() -> None:
    disk = Disk()
    async with running(Journal(disk.write, lanes=1)) as journal:
        disk.go.clear()
        first = Client(journal, "a")
        await until(lambda: disk.batches)
        rest = [Client(journal, f"b{number}") for number in range(5)]
        await asyncio.sleep(0.01)
        assert disk.batches == [["a"]]
        disk.go.set()
        await until(lambda: all(one.told for one in [first, *rest]))
    assert disk.batches == [["a"], ["b0", "b1", "b2", "b3", "b4"]]
    assert [one.told for one in rest] == [[{"item": f"b{number}"}] for number in range(5)]


async def test_a_call_is_so_long_and_so_big_at_most() -> None:
    disk = Disk()
    journal = Journal(disk.write, lanes=1, most_items=3, most_bytes=100)
    clients = [Client(journal, "x") for _ in range(4)] + [Client(journal, "y" * 90) for _ in range(3)]
    clients.insert(2, Client(journal))
    async with running(journal):
        await until(lambda: all(one.told for one in clients if one is not clients[2]))
    assert [len(batch) for batch in disk.batches] == [3, 3, 1]
    assert clients[2].told == []


async def test_free_lanes_share_what_waits_and_a_few_items_are_not_worth_two_calls() -> None:
    disk = Disk()
    async with running(Journal(disk.write, lanes=3)) as journal:
        disk.go.clear()
        many = [Client(journal, f"m{number}") for number in range(120)]
        await until(lambda: len(disk.batches) == 3)
        assert [len(batch) for batch in disk.batches] == [40, 40, 40]
        disk.go.set()
        await until(lambda: all(one.told for one in many))
        disk.batches.clear()
        few = [Client(journal, f"f{number}") for number in range(20)]
        await until(lambda: all(one.told for one in few))
        assert [len(batch) for batch in disk.batches] == [20]


@pytest.mark.clause("E2f")
async def test_an_item_that_breaks_the_call_harms_none_beside_it() -> None:
    disk = Disk()
    disk.fails = lambda items: psycopg.DataError("no") if "bad" in items else None
    journal = Journal(disk.write, lanes=1)
    clients = [Client(journal, item) for item in ("a", "bad", "b")]
    async with running(journal):
        await until(lambda: all(one.told for one in clients))
    assert disk.batches == [["a", "bad", "b"], ["a"], ["bad"], ["b"]]
    assert [clients[0].told, clients[2].told] == [[{"item": "a"}], [{"item": "b"}]]
    assert isinstance(clients[1].told[0], psycopg.DataError)


@pytest.mark.clause("E2f")
async def test_what_has_its_answer_is_in_no_doubt() -> None:
    disk = Disk()

    def fails(items: Sequence[str]) -> BaseException | None:
        if len(items) > 1:
            return psycopg.DataError("no")
        return psycopg.OperationalError("away") if items == ["b"] else None

    disk.fails = fails
    journal = Journal(disk.write, lanes=1)
    clients = [Client(journal, item) for item in ("a", "b", "c")]
    async with running(journal):
        await until(lambda: all(one.told for one in clients))
    assert [one.told for one in clients] == [[{"item": "a"}], ["uncertain"], ["uncertain"]]


@pytest.mark.clause("E2f")
async def test_one_that_cannot_go_on_stops_no_other() -> None:
    disk = Disk()
    journal = Journal(disk.write, lanes=1)
    clients = [Client(journal, item) for item in ("a", "b", "c")]
    clients[0].breaks = True
    async with running(journal):
        await until(lambda: clients[2].told)
        late = Client(journal, "late")
        await until(lambda: late.told)
    assert clients[0].told == [{"item": "a"}, "uncertain"]
    assert clients[1].told == [{"item": "b"}]


async def test_who_makes_new_work_waits_while_too_much_waits() -> None:
    disk = Disk()
    journal = Journal(disk.write, lanes=1, most_waiting=4, most_items=1)
    clients = [Client(journal, str(number)) for number in range(4)]
    room = asyncio.create_task(journal.room())
    await asyncio.sleep(0.01)
    assert not room.done()
    async with running(journal):
        await until(room.done)
        await until(lambda: all(one.told for one in clients))


async def test_questions_go_together_and_errors_are_told_to_all() -> None:
    asked: list[list[int]] = []

    async def ask(things: Sequence[int]) -> list[int]:
        asked.append(list(things))
        if 0 in things:
            raise LookupError("zero")
        return [thing * 2 for thing in things]

    batcher: Batcher[int, int] = Batcher(ask, most=4)
    questions = [asyncio.create_task(batcher.get(number)) for number in range(1, 7)]
    await asyncio.sleep(0)
    questions[1].cancel()
    async with running(batcher):
        answers = await asyncio.gather(*questions, return_exceptions=True)
        assert [one for one in answers if isinstance(one, int)] == [2, 6, 8, 10, 12]
        errors = await asyncio.gather(batcher.get(0), batcher.get(9), return_exceptions=True)
    assert [type(error) for error in errors] == [LookupError, LookupError]
    assert asked == [[1, 2, 3, 4], [5, 6], [0, 9]]
