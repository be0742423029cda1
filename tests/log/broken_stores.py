"""Stores with one fault each, and the tests of the suites that must find it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tests.log.memory_store import MemoryEventStore, MemorySnapshotStore, Row, locked
from underseal.held.model import Outcome
from underseal.log.model import Appended, LogEvent, Observed
from underseal.snapshot.model import Snapshot
from underseal.testing.conformance.event_store import Events


class ForgetsTheStart(MemoryEventStore):
    def read(self, execution_id: str, after_seq: int = -1) -> list[LogEvent]:
        return [event for event in super().read(execution_id, after_seq) if event.seq > 0]


class LeavesHoles(MemoryEventStore):
    def write(self, execution_id: str, row: Row, kind: str, data: Any) -> None:
        super().write(execution_id, row, kind, data)
        if row.head == 3:
            row.events[-1] = replace(row.events[-1], seq=4)


class RoundsNumbers(MemoryEventStore):
    def write(self, execution_id: str, row: Row, kind: str, data: Any) -> None:
        rounded = {
            name: [float(n) for n in value] if name == "numbers" else value for name, value in data.items()
        }
        super().write(execution_id, row, kind, rounded)


class ReadsFromTheNumberOn(MemoryEventStore):
    def read(self, execution_id: str, after_seq: int = -1) -> list[LogEvent]:
        return super().read(execution_id, after_seq - 1)


class MixesPrefixes(MemoryEventStore):
    def read(self, execution_id: str, after_seq: int = -1) -> list[LogEvent]:
        names = [name for name in sorted(self.rows) if name.startswith(execution_id)]
        return [event for name in names for event in super(MixesPrefixes, self).read(name, after_seq)]


class TakesFacts(MemoryEventStore):
    @locked
    def append(self, execution_id: str, fence: int, events: Events) -> Appended:
        plain = [event for event in events if not event["type"].startswith("EXECUTION_")]
        return super().append(execution_id, fence, plain)


class GoesOnAfterTheEnd(MemoryEventStore):
    def conflict(self, row: Row, fence: int) -> str | None:
        reason = super().conflict(row, fence)
        return None if reason == "ended" else reason


class TruncatesEverything(MemoryEventStore):
    @locked
    def truncate(self, execution_id: str, fence: int, before_seq: int) -> None:
        row = self.rows[execution_id]
        row.events = [event for event in row.events if event.seq >= before_seq]


class TakesAnyFence(MemoryEventStore):
    def conflict(self, row: Row, fence: int) -> str | None:
        return "ended" if row.ended else None


class TakesHigherFences(MemoryEventStore):
    def conflict(self, row: Row, fence: int) -> str | None:
        return super().conflict(row, min(fence, row.fence))


class WritesWhereNothingIs(MemoryEventStore):
    @locked
    def append(self, execution_id: str, fence: int, events: Events) -> Appended:
        if execution_id not in self.rows:
            self.start(execution_id)
            fence = self.rows[execution_id].fence
        return super().append(execution_id, fence, events)


class GivesOneFenceTwice(MemoryEventStore):
    @locked
    def acquire_fence(self, execution_id: str) -> Observed:
        row = self.rows[execution_id]
        row.fence = 2
        return self.observed(row, "acquired")


class AppendsThoughMoved(MemoryEventStore):
    @locked
    def append_if_unchanged(self, execution_id: str, seen: Observed, events: Events) -> Appended:
        return self.append(execution_id, seen.fence or 0, events)


class ComparesTheHeadAlone(MemoryEventStore):
    def unlike(self, row: Row, seen: Observed) -> str | None:
        return "moved" if seen.head != row.head else None


class ForgetsTheHead(MemoryEventStore):
    def unlike(self, row: Row, seen: Observed) -> str | None:
        reason = super().unlike(row, seen)
        return None if reason == "moved" else reason


class ForgetsIncarnations(MemoryEventStore):
    def unlike(self, row: Row, seen: Observed) -> str | None:
        reason = super().unlike(row, seen)
        return "stale-fence" if reason == "gone" else reason


class RestartsFences(MemoryEventStore):
    @locked
    def delete(self, execution_id: str) -> None:
        super().delete(execution_id)
        self.floors.clear()


class StopsABatchAtAFault(MemoryEventStore):
    @locked
    def append_batch(self, items: Sequence[tuple[str, int, Events]]) -> list[Appended]:
        done: list[Appended] = []
        for item in items:
            failed = bool(done) and done[-1].outcome != "appended"
            done.append(Appended("conflict", "aborted") if failed else self.append(*item))
        return done


class SortsABatchsOutcomes(MemoryEventStore):
    @locked
    def append_batch(self, items: Sequence[tuple[str, int, Events]]) -> list[Appended]:
        return [self.append(*item) for item in sorted(items, key=lambda item: item[0])]


class LosesBackwardBatches(MemoryEventStore):
    @locked
    def append_batch(self, items: Sequence[tuple[str, int, Events]]) -> list[Appended]:
        return [self.append(*item) for item in items] if items[0][0] <= items[-1][0] else []


class StartsAgain(MemoryEventStore):
    @locked
    def start(self, execution_id: str) -> Appended:
        self.rows.pop(execution_id, None)
        return super().start(execution_id)


class ForksOver(MemoryEventStore):
    @locked
    def fork(self, execution_id: str, through_seq: int, new_id: str) -> str:
        self.rows.pop(new_id, None)
        return super().fork(execution_id, through_seq, new_id)


class ForksEverything(MemoryEventStore):
    @locked
    def fork(self, execution_id: str, through_seq: int, new_id: str) -> str:
        return super().fork(execution_id, 10**9, new_id)


class SubscribesBackwards(MemoryEventStore):
    @locked
    def read_all(self, cursor: str | None, limit: int) -> tuple[list[LogEvent], str | None]:
        page, after = super().read_all(cursor, limit)
        return page[::-1], after


class SkipsWhileReading(MemoryEventStore):
    @locked
    def read_all(self, cursor: str | None, limit: int) -> tuple[list[LogEvent], str | None]:
        page, after = super().read_all(cursor, limit)
        return page, after if len(page) < limit else str(int(after or 0) + 1)


class RemembersNoPlace(MemoryEventStore):
    @locked
    def read_all(self, cursor: str | None, limit: int) -> tuple[list[LogEvent], str | None]:
        page, _ = super().read_all(cursor, limit)
        return page, page[-1].cursor if page else str(len(self.all) + 1)


BROKEN_EVENTS: Sequence[tuple[Callable[[], MemoryEventStore], str]] = [
    (ForgetsTheStart, "test_a_log_begins_with_its_start"),
    (LeavesHoles, "test_numbers_have_no_hole"),
    (RoundsNumbers, "test_data_comes_back_as_it_went_in"),
    (ReadsFromTheNumberOn, "test_reading_goes_on_after_a_number"),
    (MixesPrefixes, "test_logs_do_not_mix"),
    (TakesFacts, "test_what_is_written_elsewhere_is_not_taken_from_a_caller"),
    (GoesOnAfterTheEnd, "test_nothing_follows_an_end"),
    (TruncatesEverything, "test_truncation_keeps_number_0_and_what_is_not_below"),
    (TakesAnyFence, "test_only_the_fence_in_force_appends"),
    (TakesHigherFences, "test_only_the_fence_in_force_appends"),
    (WritesWhereNothingIs, "test_nothing_is_appended_where_nothing_is"),
    (GivesOneFenceTwice, "test_each_fence_is_given_to_one"),
    (AppendsThoughMoved, "test_a_conditional_append_needs_the_head_and_the_fence_that_were_observed"),
    (ForgetsTheHead, "test_one_of_many_conditional_appends_wins"),
    (ComparesTheHeadAlone, "test_a_conditional_fence_needs_the_head_and_the_fence_that_were_observed"),
    (ForgetsIncarnations, "test_a_new_execution_of_an_old_id_is_another"),
    (RestartsFences, "test_a_new_execution_of_an_old_id_is_another"),
    (StopsABatchAtAFault, "test_the_items_of_a_batch_are_independent"),
    (SortsABatchsOutcomes, "test_the_items_of_a_batch_are_independent"),
    (LosesBackwardBatches, "test_batches_in_opposite_orders_all_arrive"),
    (StartsAgain, "test_a_taken_id_is_refused"),
    (StartsAgain, "test_one_of_many_starts_wins"),
    (ForksEverything, "test_a_fork_is_a_copy_of_a_prefix_and_goes_its_own_way"),
    (ForksOver, "test_a_fork_takes_no_taken_id"),
    (SubscribesBackwards, "test_a_subscription_gives_every_event_once_and_in_its_logs_order"),
    (SkipsWhileReading, "test_a_subscription_goes_on_after_any_event"),
    (RemembersNoPlace, "test_a_subscription_that_has_caught_up_hears_of_what_comes"),
    (SubscribesBackwards, "test_a_subscription_misses_nothing_while_many_write"),
]
"""A store with a fault, and a test of the suite that finds it; every test of the suite is here."""


class InventsOne(MemorySnapshotStore):
    def load(self, execution_id: str) -> Snapshot | None:
        return super().load(execution_id) or Snapshot(execution_id, 0, None)


class RoundsStates(MemorySnapshotStore):
    def save(self, execution_id: str, fence: int, seq: int, state: Any) -> Outcome:
        rounded = {**state, "numbers": [float(n) for n in state["numbers"]]}
        return super().save(execution_id, fence, seq, rounded)


class TakesNothingForNone(MemorySnapshotStore):
    def load(self, execution_id: str) -> Snapshot | None:
        found = super().load(execution_id)
        return found if found is not None and found.state else None


class KeepsTheFirst(MemorySnapshotStore):
    def save(self, execution_id: str, fence: int, seq: int, state: Any) -> Outcome:
        return (
            Outcome("saved") if execution_id in self.newest else super().save(execution_id, fence, seq, state)
        )


class MixesSnapshots(MemorySnapshotStore):
    def load(self, execution_id: str) -> Snapshot | None:
        return self.newest.get(execution_id[0])


class SavesAnyNumber(MemorySnapshotStore):
    def save(self, execution_id: str, fence: int, seq: int, state: Any) -> Outcome:
        self.newest[execution_id] = Snapshot(execution_id, seq, state)
        return Outcome("saved")


class SavesUnderAnyFence(MemorySnapshotStore):
    def save(self, execution_id: str, fence: int, seq: int, state: Any) -> Outcome:
        return super().save(execution_id, self.events.head(execution_id).fence or 0, seq, state)


class KeepsTheDeleted(MemorySnapshotStore):
    def delete(self, execution_id: str) -> None:
        self.events.delete(execution_id)


BROKEN_SNAPSHOTS: Sequence[tuple[Callable[[], MemorySnapshotStore], str]] = [
    (InventsOne, "test_there_is_none_at_first"),
    (RoundsStates, "test_what_was_saved_is_loaded"),
    (TakesNothingForNone, "test_any_json_is_a_state"),
    (KeepsTheFirst, "test_the_newest_is_loaded"),
    (MixesSnapshots, "test_executions_do_not_mix"),
    (SavesAnyNumber, "test_a_snapshot_is_of_the_last_event"),
    (SavesUnderAnyFence, "test_a_stale_driver_saves_nothing"),
    (SavesAnyNumber, "test_nothing_is_saved_where_nothing_is"),
    (KeepsTheDeleted, "test_a_deleted_execution_takes_its_snapshots_along"),
]
"""The same for the other suite."""
