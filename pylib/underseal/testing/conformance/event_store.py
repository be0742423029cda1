"""What every event store must do: logs under fences, forks, truncation, one subscription over all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any, Protocol

from underseal.log.model import Appended, LogEvent, Observed
from underseal.testing.conformance.promises import promise

Events = Sequence[Mapping[str, Any]]


class EventStore(Protocol):
    """What the suite asks of a store. Its methods may be called from several threads at once.

    It is sync: whether an implementation awaits is its own affair, and what is promised here (order, fences, one
    winner) does not depend on it. An async store is wrapped with `asyncio.run_coroutine_threadsafe`.

    An event goes in as `{"type": …, "data": …}`. A no is an answer, not an exception: `Appended` and `Observed`
    say which `outcome` and `reason` there are.
    """

    def start(self, execution_id: str) -> Appended:
        """Start an execution; event 0 is EXECUTION_STARTED. `started` with the first fence, or `exists`."""
        ...

    def append(self, execution_id: str, fence: int, events: Events) -> Appended:
        """Append all of the events or none. `appended`; `not-found`; `conflict` (`stale-fence`, `ended`);
        `refused` (`reserved-type`)."""
        ...

    def append_if_unchanged(self, execution_id: str, seen: Observed, events: Events) -> Appended:
        """Append only if head, fence and incarnation are as observed; otherwise `conflict` (`moved`,
        `stale-fence`, `gone`) or `not-found`."""
        ...

    def append_batch(self, items: Sequence[tuple[str, int, Events]]) -> Sequence[Appended]:
        """Append to several executions, each item (id, fence, events) for itself; outcomes in the items' order."""
        ...

    def complete(self, execution_id: str, fence: int) -> Appended:
        """End an execution: `completed`, by one more event."""
        ...

    def head(self, execution_id: str) -> Observed:
        """Observe: `found` or `not-found`."""
        ...

    def acquire_fence(self, execution_id: str) -> Observed:
        """Take a fence above every one given out before: `acquired`."""
        ...

    def acquire_fence_if(self, execution_id: str, seen: Observed) -> Observed:
        """The same only if nothing has changed since the observation; otherwise as `append_if_unchanged`."""
        ...

    def read(self, execution_id: str, after_seq: int = -1) -> Sequence[LogEvent]:
        """The events after a number, in order, however many; none for an unknown id."""
        ...

    def fork(self, execution_id: str, through_seq: int, new_id: str) -> str:
        """Start another execution from a copy of the first events: `forked` or `exists`."""
        ...

    def truncate(self, execution_id: str, fence: int, before_seq: int) -> None:
        """Drop the events between 0 and a number; a store that demands a snapshot first saves one here."""
        ...

    def delete(self, execution_id: str) -> None:
        """Delete an execution that has ended, so that its id is free again."""
        ...

    def read_all(self, cursor: str | None, limit: int) -> tuple[Sequence[LogEvent], str | None]:
        """Read on over all executions: at most so many events, each with a `cursor` after which reading goes on,
        and the cursor after them all. No events means that there is nothing new now."""
        ...


def step(number: int) -> dict[str, Any]:
    """An application's event."""
    return {"type": "STEP_DONE", "data": {"number": number}}


def numbers(events: Sequence[LogEvent]) -> list[int]:
    """The sequence numbers."""
    return [event.seq for event in events]


def at_once(*calls: Callable[[], Any]) -> list[Any]:
    """Call all of them at the same time, each in a thread of its own: what they returned."""
    barrier = Barrier(len(calls))

    def one(work: Callable[[], Any]) -> Any:
        barrier.wait(10)
        return work()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(one, calls))


def fence_of(answer: Appended | Observed) -> int:
    """The fence in an answer."""
    assert answer.fence is not None, answer
    return answer.fence


def drain(store: EventStore, cursor: str | None = None, limit: int = 3) -> list[LogEvent]:
    """Everything a subscription gives from a cursor on, page by page."""
    found: list[LogEvent] = []
    while True:
        page, cursor = store.read_all(cursor, limit)
        assert len(page) <= limit
        if not page:
            return found
        found += page


class EventStoreConformance:
    """The suite. Inherit from it under a name that begins with Test, and give the fixture `store`: an empty store."""

    # -- logs --------------------------------------------------------------------------------------

    @promise("E1b", "E1c")
    def test_a_log_begins_with_its_start(self, store: EventStore) -> None:
        assert store.start("a").outcome == "started"
        assert [(event.seq, event.type) for event in store.read("a")] == [(0, "EXECUTION_STARTED")]

    @promise("E1b")
    def test_numbers_have_no_hole(self, store: EventStore) -> None:
        fence = fence_of(store.start("a"))
        store.append("a", fence, [step(1), step(2), step(3)])
        answer = store.append("a", fence, [step(4)])
        assert (answer.outcome, answer.head) == ("appended", 4)
        events = store.read("a")
        assert numbers(events) == [0, 1, 2, 3, 4]
        assert [(event.data or {}).get("number") for event in events[1:]] == [1, 2, 3, 4]

    @promise("E1b")
    def test_data_comes_back_as_it_went_in(self, store: EventStore) -> None:
        data = {
            "text": 'naïve "quoted" \\ 日本 𝄞',
            "numbers": [0, -1, 1.5, 1e300, 2**53 + 1, 10**30],
            "null": None,
            "empty": [{}, [], ""],
            "nested": {"b": 1, "a": {"": False}},
        }
        store.append("a", fence_of(store.start("a")), [{"type": "STEP_DONE", "data": data}])
        assert store.read("a")[1].data == data

    @promise("E1b")
    def test_reading_goes_on_after_a_number(self, store: EventStore) -> None:
        fence = fence_of(store.start("a"))
        store.append("a", fence, [step(n) for n in range(1, 6)])
        assert numbers(store.read("a", 2)) == [3, 4, 5]
        assert numbers(store.read("a", 5)) == []

    @promise("E1b")
    def test_logs_do_not_mix(self, store: EventStore) -> None:
        for name in ("a", "ab", "b"):
            store.append(name, fence_of(store.start(name)), [step(len(name))])
        assert [numbers(store.read(name)) for name in ("a", "ab", "b")] == [[0, 1]] * 3
        assert (store.read("ab")[1].data or {}) == {"number": 2}

    @promise("E1b")
    def test_what_is_written_elsewhere_is_not_taken_from_a_caller(self, store: EventStore) -> None:
        fence = fence_of(store.start("a"))
        answer = store.append("a", fence, [step(1), {"type": "EXECUTION_COMPLETED", "data": {}}])
        assert (answer.outcome, answer.reason) == ("refused", "reserved-type")
        assert numbers(store.read("a")) == [0]

    @promise("E1b")
    def test_nothing_follows_an_end(self, store: EventStore) -> None:
        fence = fence_of(store.start("a"))
        assert store.complete("a", fence).outcome == "completed"
        answer = store.append("a", fence, [step(1)])
        assert (answer.outcome, answer.reason) == ("conflict", "ended")
        assert numbers(store.read("a")) == [0, 1]

    @promise("E1c", "E9b")
    def test_truncation_keeps_number_0_and_what_is_not_below(self, store: EventStore) -> None:
        fence = fence_of(store.start("a"))
        store.append("a", fence, [step(n) for n in range(1, 6)])
        store.truncate("a", fence, 4)
        assert numbers(store.read("a")) == [0, 4, 5]
        assert store.read("a")[0].type == "EXECUTION_STARTED"
        assert store.append("a", fence, [step(6)]).head == 6

    # -- fences ------------------------------------------------------------------------------------

    @promise("E2a", "E2b")
    def test_only_the_fence_in_force_appends(self, store: EventStore) -> None:
        first = fence_of(store.start("a"))
        second = fence_of(store.acquire_fence("a"))
        assert second > first
        for wrong in (first, second + 1):
            answer = store.append("a", wrong, [step(1)])
            assert (answer.outcome, answer.reason) == ("conflict", "stale-fence")
        assert numbers(store.read("a")) == [0]
        assert store.append("a", second, [step(1)]).outcome == "appended"

    @promise("E2a")
    def test_nothing_is_appended_where_nothing_is(self, store: EventStore) -> None:
        assert store.head("a").outcome == "not-found"
        assert store.append("a", 1, [step(1)]).outcome == "not-found"
        assert numbers(store.read("a")) == []

    @promise("E2b")
    def test_each_fence_is_given_to_one(self, store: EventStore) -> None:
        store.start("a")
        taken = [fence_of(one) for one in at_once(*[lambda: store.acquire_fence("a")] * 6)]
        assert len(set(taken)) == len(taken)
        assert fence_of(store.head("a")) == max(taken)

    @promise("E2c")
    def test_a_conditional_append_needs_the_head_and_the_fence_that_were_observed(
        self, store: EventStore
    ) -> None:
        fence = fence_of(store.start("a"))
        seen = store.head("a")
        store.append("a", fence, [step(1)])
        moved = store.append_if_unchanged("a", seen, [step(2)])
        assert (moved.outcome, moved.reason) == ("conflict", "moved")
        seen = store.head("a")
        store.acquire_fence("a")
        stale = store.append_if_unchanged("a", seen, [step(2)])
        assert (stale.outcome, stale.reason) == ("conflict", "stale-fence")
        assert numbers(store.read("a")) == [0, 1]
        assert store.append_if_unchanged("a", store.head("a"), [step(2)]).outcome == "appended"

    @promise("E2c")
    def test_one_of_many_conditional_appends_wins(self, store: EventStore) -> None:
        store.start("a")
        seen = store.head("a")
        answers = at_once(*[lambda: store.append_if_unchanged("a", seen, [step(1)])] * 6)
        assert sorted(one.outcome for one in answers) == ["appended", *["conflict"] * 5]
        assert numbers(store.read("a")) == [0, 1]

    @promise("E2c")
    def test_a_conditional_fence_needs_the_head_and_the_fence_that_were_observed(
        self, store: EventStore
    ) -> None:
        fence = fence_of(store.start("a"))
        seen = store.head("a")
        store.append("a", fence, [step(1)])
        moved = store.acquire_fence_if("a", seen)
        assert (moved.outcome, moved.reason) == ("conflict", "moved")
        seen = store.head("a")
        answers = at_once(*[lambda: store.acquire_fence_if("a", seen)] * 6)
        assert sorted(one.outcome for one in answers) == ["acquired", *["conflict"] * 5]
        assert {one.reason for one in answers} == {None, "stale-fence"}

    @promise("E2d", "E2e")
    def test_a_new_execution_of_an_old_id_is_another(self, store: EventStore) -> None:
        store.start("a")
        last = fence_of(store.acquire_fence("a"))
        before = store.head("a")
        store.complete("a", last)
        store.delete("a")
        assert numbers(store.read("a")) == []
        again = store.start("a")
        assert again.outcome == "started"
        assert fence_of(again) > last
        for answer in (
            store.append_if_unchanged("a", before, [step(1)]),
            store.acquire_fence_if("a", before),
        ):
            assert (answer.outcome, answer.reason) == ("conflict", "gone")
        assert numbers(store.read("a")) == [0]

    @promise("E2f")
    def test_the_items_of_a_batch_are_independent(self, store: EventStore) -> None:
        fences = {name: fence_of(store.start(name)) for name in "abcd"}
        store.acquire_fence("b")
        store.complete("c", fences["c"])
        answers = store.append_batch(
            [
                ("d", fences["d"], [step(1), step(2)]),
                ("b", fences["b"], [step(1)]),
                ("nobody", 1, [step(1)]),
                ("c", fences["c"], [step(1)]),
                ("a", fences["a"], [step(1)]),
            ]
        )
        assert [(one.outcome, one.reason) for one in answers] == [
            ("appended", None),
            ("conflict", "stale-fence"),
            ("not-found", None),
            ("conflict", "ended"),
            ("appended", None),
        ]
        assert {name: numbers(store.read(name)) for name in "abcd"} == {
            "a": [0, 1],
            "b": [0],
            "c": [0, 1],
            "d": [0, 1, 2],
        }

    @promise("E2f")
    def test_batches_in_opposite_orders_all_arrive(self, store: EventStore) -> None:
        names = [f"e{number}" for number in range(8)]
        items = [(name, fence_of(store.start(name)), [step(1)]) for name in names]
        at_once(*[lambda turn=turn: store.append_batch(items[:: 1 if turn % 2 else -1]) for turn in range(6)])
        assert [numbers(store.read(name)) for name in names] == [list(range(7))] * len(names)

    # -- ids ---------------------------------------------------------------------------------------

    @promise("E3")
    def test_a_taken_id_is_refused(self, store: EventStore) -> None:
        fence = fence_of(store.start("a"))
        store.append("a", fence, [step(1)])
        assert store.start("a").outcome == "exists"
        store.complete("a", fence)
        assert store.start("a").outcome == "exists"
        assert numbers(store.read("a")) == [0, 1, 2]

    @promise("E3")
    def test_one_of_many_starts_wins(self, store: EventStore) -> None:
        answers = at_once(*[lambda: store.start("a")] * 6)
        assert sorted(one.outcome for one in answers) == [*["exists"] * 5, "started"]
        assert numbers(store.read("a")) == [0]

    # -- forks -------------------------------------------------------------------------------------

    @promise("E6f")
    def test_a_fork_is_a_copy_of_a_prefix_and_goes_its_own_way(self, store: EventStore) -> None:
        fence = fence_of(store.start("a"))
        store.append("a", fence, [step(1), step(2), step(3)])
        assert store.fork("a", 2, "b") == "forked"
        copied = store.read("b")
        assert [(e.seq, e.type) for e in copied] == [(e.seq, e.type) for e in store.read("a")[:3]]
        assert [e.data for e in copied[1:]] == [{"number": 1}, {"number": 2}]
        store.append("b", fence_of(store.acquire_fence("b")), [step(9)])
        assert [(e.data or {}).get("number") for e in store.read("b")[1:]] == [1, 2, 9]
        assert [(e.data or {}).get("number") for e in store.read("a")[1:]] == [1, 2, 3]
        assert store.append("a", fence, [step(4)]).head == 4

    @promise("E3")
    def test_a_fork_takes_no_taken_id(self, store: EventStore) -> None:
        for name in "ab":
            store.start(name)
        assert store.fork("a", 0, "b") == "exists"
        assert numbers(store.read("b")) == [0]

    # -- one subscription over all -----------------------------------------------------------------

    @promise("E11b")
    def test_a_subscription_gives_every_event_once_and_in_its_logs_order(self, store: EventStore) -> None:
        fences = {name: fence_of(store.start(name)) for name in "abc"}
        for number in range(1, 5):
            for name in "cab":
                store.append(name, fences[name], [step(number)])
        for limit in (1, 4, 100):
            found = drain(store, limit=limit)
            for name in "abc":
                assert numbers([event for event in found if event.execution_id == name]) == [0, 1, 2, 3, 4]
            assert len(found) == 15

    @promise("E11b")
    def test_a_subscription_goes_on_after_any_event(self, store: EventStore) -> None:
        fence = fence_of(store.start("a"))
        store.append("a", fence, [step(n) for n in range(1, 6)])
        store.append("b", fence_of(store.start("b")), [step(1)])
        found = drain(store)
        for place, event in enumerate(found):
            rest = drain(store, event.cursor)
            assert [(e.execution_id, e.seq) for e in rest] == [
                (e.execution_id, e.seq) for e in found[place + 1 :]
            ]

    @promise("E11b")
    def test_a_subscription_that_has_caught_up_hears_of_what_comes(self, store: EventStore) -> None:
        fence = fence_of(store.start("a"))
        page, cursor = store.read_all(None, 100)
        assert numbers(page) == [0]
        page, cursor = store.read_all(cursor, 100)
        assert numbers(page) == []
        store.append("a", fence, [step(1)])
        page, cursor = store.read_all(cursor, 100)
        assert numbers(page) == [1]

    @promise("E11b")
    def test_a_subscription_misses_nothing_while_many_write(self, store: EventStore) -> None:
        names = [f"e{number}" for number in range(6)]
        fences = {name: fence_of(store.start(name)) for name in names}
        found: list[LogEvent] = []

        def write(name: str) -> None:
            for number in range(1, 21):
                assert store.append(name, fences[name], [step(number)]).outcome == "appended"

        def read() -> None:
            cursor: str | None = None
            while len(found) < len(names) * 21:
                page, cursor = store.read_all(cursor, 7)
                found.extend(page)

        at_once(read, *[lambda name=name: write(name) for name in names])
        for name in names:
            assert numbers([event for event in found if event.execution_id == name]) == list(range(21))
        assert drain(store, found[-1].cursor) == []
