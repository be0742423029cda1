"""Following from Python: events as they come, in order, through closing, waiting and a database that is away."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import psycopg
import pytest

from tests.log.both import Clients
from underseal import ExecutionDeniedError, ExecutionDriver, Executions, LogEvent, batch
from underseal.foundation.steps import Steps
from underseal.log.follow import LONGEST, PAGE, SHORTEST, AsyncFollowing, Following
from underseal.testing import OWNER, DictConnection, TestDatabase, in_background

pytestmark = pytest.mark.clause("E11a")


@pytest.fixture(params=["sync", "async"])
def clients(request: pytest.FixtureRequest, database: TestDatabase) -> Iterator[Clients]:
    """Clients that log in as the schema's owner, of either kind."""
    made = Clients(database.conninfo_as(OWNER), request.param == "async")
    yield made
    made.close()


@pytest.fixture
def driver(database: TestDatabase) -> Iterator[ExecutionDriver]:
    """Somebody else, who writes."""
    with ExecutionDriver(database.conninfo_as(OWNER)) as driver:
        yield driver


def begin(driver: ExecutionDriver, execution_id: str = "c") -> int:
    """Start one: its fence."""
    return driver.append_batch([batch.start_item(execution_id, "f", "ann")])[0].fence or 0


def step(number: int) -> dict[str, Any]:
    """An event."""
    return batch.event("STEP", n=number)


def take(events: Any, count: int) -> list[LogEvent]:
    """The next few events."""
    return list(islice(iter(events), count))


# -- one execution ------------------------------------------------------------------------------------


def test_a_log_is_followed_to_its_end(clients: Clients, driver: ExecutionDriver) -> None:
    fence = begin(driver)
    driver.append("c", fence, [step(1)])
    following = clients.executions.follow("c", "ann")
    seen = [next(iter(following)).seq]

    def later() -> None:
        driver.append("c", fence, [step(2)])
        driver.append_batch([batch.complete_item("c", fence)])

    writing = in_background(later)
    seen += [event.seq for event in following]
    writing.result(timeout=10)
    assert seen == [0, 1, 2, 3]


def test_following_goes_on_after_a_number(clients: Clients, driver: ExecutionDriver) -> None:
    fence = begin(driver)
    driver.append("c", fence, [step(n) for n in range(1, 5)])
    driver.append_batch([batch.complete_item("c", fence)])
    assert [event.seq for event in clients.executions.follow("c", "ann", after_seq=2)] == [3, 4, 5]
    assert [event.seq for event in clients.executions.follow("c", "ann", after_seq=5)] == []


def test_what_comes_after_the_end_is_followed_if_asked(clients: Clients, driver: ExecutionDriver) -> None:
    fence = begin(driver)
    driver.append_batch([batch.complete_item("c", fence)])
    following = clients.executions.follow("c", "ann", until_ended=False)
    assert len(take(following, 2)) == 2
    clients.executions.record_outcome("c", {"good": True}, "ann")
    (event,) = take(following, 1)
    assert event.type == "OUTCOME_RECORDED"


def test_a_stranger_follows_nothing(clients: Clients, driver: ExecutionDriver) -> None:
    begin(driver)
    for execution_id in ("c", "nothing"):
        with pytest.raises(ExecutionDeniedError):
            take(clients.executions.follow(execution_id, "bob"), 1)


def test_a_long_log_is_followed_to_its_last_event(clients: Clients, driver: ExecutionDriver) -> None:
    fence = begin(driver)
    # its end is the last event of a page, and something follows it
    driver.append("c", fence, [step(n) for n in range(1, 2 * PAGE - 1)])
    driver.append_batch([batch.complete_item("c", fence)])
    clients.executions.record_outcome("c", 1, "ann")
    assert [event.seq for event in clients.executions.follow("c", "ann")] == list(range(2 * PAGE + 1))


# -- all of them --------------------------------------------------------------------------------------


@pytest.mark.clause("E11b")
def test_all_logs_are_followed_and_gone_on_with(clients: Clients, driver: ExecutionDriver) -> None:
    fences = {name: begin(driver, name) for name in "ab"}
    first = take(clients.driver.follow_all(), 2)
    assert [event.seq for event in first] == [0, 0]
    following = clients.driver.follow_all(first[-1].cursor)

    def later() -> None:
        for number in range(1, 4):
            for name, fence in fences.items():
                driver.append(name, fence, [step(number)])

    writing = in_background(later)
    seen = take(following, 6)
    writing.result(timeout=10)
    for name in "ab":
        assert [event.seq for event in seen if event.execution_id == name] == [1, 2, 3]
    driver.append("a", fences["a"], [step(4)])
    assert [(e.execution_id, e.seq) for e in take(following, 1)] == [("a", 4)]
    # gone back to, it gives the same events again, which by now may come together with a later one
    rest = take(clients.driver.follow_all(seen[3].cursor), 3)
    assert sorted((e.execution_id, e.seq) for e in rest) == sorted(
        [*((e.execution_id, e.seq) for e in seen[4:]), ("a", 4)]
    )


@pytest.mark.clause("E11b")
def test_following_outlasts_a_lost_connection(
    clients: Clients, driver: ExecutionDriver, admin: DictConnection
) -> None:
    fence = begin(driver)
    following = clients.executions.follow("c", "ann")
    assert len(take(following, 1)) == 1
    admin.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where datname = current_database() and pid <> pg_backend_pid()"
    )
    driver.append("c", fence, [step(1)])
    assert [event.seq for event in take(following, 1)] == [1]


# -- waiting and closing ------------------------------------------------------------------------------


def event(seq: int) -> LogEvent:
    """An event of no log."""
    return LogEvent("c", seq, "STEP", {}, datetime.now(UTC))


def settled(found: list[LogEvent]) -> Steps[list[LogEvent]]:
    """Steps that need nothing."""
    yield from ()
    return found


class Scripted:
    """A feed that answers as it is told: events, or an error to raise."""

    def __init__(self, *answers: list[LogEvent] | Exception) -> None:
        self.answers = list(answers)
        self.over = False

    def batch(self) -> Steps[list[LogEvent]]:
        """The next answer."""
        answer = self.answers.pop(0)
        self.over = not self.answers
        if isinstance(answer, Exception):
            raise answer
        return (yield from settled(answer))


class Waits:
    """In place of an event that would be waited for: notes how long, and waits not at all."""

    def __init__(self) -> None:
        self.asked: list[float] = []

    def wait(self, seconds: float) -> None:
        """Note it."""
        self.asked.append(seconds)

    def is_set(self) -> bool:
        """Never."""
        return False


def run(steps: Steps[list[LogEvent]]) -> list[LogEvent]:
    """Carry out steps that need nothing."""
    try:
        next(steps)
    except StopIteration as stop:
        found: list[LogEvent] = stop.value
        return found
    raise AssertionError("expected steps without a command")


def test_the_wait_grows_while_nothing_happens_and_starts_anew_with_news() -> None:
    feed = Scripted([event(0)], *[[] for _ in range(8)], [event(1)], [], [event(2)])
    following = Following(feed, run)
    waits = Waits()
    following._closed = waits  # type: ignore[assignment]
    assert [one.seq for one in following] == [0, 1, 2]
    assert waits.asked == [*[min(SHORTEST * 2**n, LONGEST) for n in range(8)], SHORTEST]


def test_a_database_that_goes_away_is_waited_for_and_one_that_never_was_is_told() -> None:
    away = psycopg.OperationalError("away")
    following = Following(Scripted([event(0)], away, away, [event(1)]), run)
    following._closed = Waits()  # type: ignore[assignment]
    assert [one.seq for one in following] == [0, 1]
    with pytest.raises(psycopg.OperationalError):
        next(Following(Scripted(away, [event(0)]), run))


def test_another_error_is_told() -> None:
    wrong = psycopg.errors.InsufficientPrivilege("no")
    following = Following(Scripted([event(0)], wrong, [event(1)]), run)
    assert next(following).seq == 0
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        next(following)


def test_closing_ends_a_wait(driver: ExecutionDriver, database: TestDatabase) -> None:
    begin(driver)
    with Executions(database.conninfo_as(OWNER)) as executions, executions.follow("c", "ann") as following:
        assert next(following).seq == 0
        waiting = in_background(lambda: list(following))
        following.close()
        assert waiting.result(timeout=5) == []
        assert list(following) == []


async def test_closing_ends_an_awaited_wait() -> None:
    looked = asyncio.Event()

    async def read(steps: Steps[list[LogEvent]]) -> list[LogEvent]:
        found = run(steps)
        if not found:
            looked.set()
        return found

    feed = Scripted([event(0)], *[[] for _ in range(1000)])
    async with AsyncFollowing(feed, read, 60) as following:
        assert (await anext(following)).seq == 0
        waiting = asyncio.create_task(anext(following, None))
        async with asyncio.timeout(5):
            await looked.wait()
        await following.close()
        async with asyncio.timeout(5):
            assert await waiting is None


def test_a_follower_waits_without_being_busy(driver: ExecutionDriver, database: TestDatabase) -> None:
    begin(driver)
    with Executions(database.conninfo_as(OWNER)) as executions, executions.follow("c", "ann") as following:
        assert next(following).seq == 0
        looks: list[int] = []
        read = following._read

        def counted(steps: Steps[list[LogEvent]]) -> list[LogEvent]:
            looks.append(1)
            return read(steps)

        following._read = counted
        waiting = in_background(lambda: list(following))
        threading.Event().wait(1.0)
        following.close()
        waiting.result(timeout=5)
    assert 2 <= len(looks) <= 8
