"""What every snapshot store must do: keep the newest state of each execution, bound to its place."""

from __future__ import annotations

from typing import Any, Protocol

from underseal.held.model import Outcome
from underseal.snapshot.model import Snapshot
from underseal.testing.conformance.promises import promise


class SnapshotStore(Protocol):
    """What the suite asks of a store. Sync, for the reason that `EventStore` gives."""

    def begin(self, execution_id: str) -> int:
        """Let there be an execution whose log is event 0 alone: its fence. A store that knows no logs counts itself."""
        ...

    def advance(self, execution_id: str, fence: int) -> int:
        """Let its log grow by one event: the number of it."""
        ...

    def take_over(self, execution_id: str) -> int:
        """Let somebody else take its fence: the new one."""
        ...

    def save(self, execution_id: str, fence: int, seq: int, state: Any) -> Outcome:
        """Save the state as of the last event. `saved`; `not-found`; `conflict` (`stale-fence`, `moved`)."""
        ...

    def load(self, execution_id: str) -> Snapshot | None:
        """The newest, or None."""
        ...

    def delete(self, execution_id: str) -> None:
        """End the execution and delete it with all of its snapshots."""
        ...


class SnapshotStoreConformance:
    """The suite. Inherit from it under a name that begins with Test, and give the fixture `store`: an empty store."""

    @promise("E9a")
    def test_there_is_none_at_first(self, store: SnapshotStore) -> None:
        store.begin("a")
        assert store.load("a") is None

    @promise("E9a")
    def test_what_was_saved_is_loaded(self, store: SnapshotStore) -> None:
        fence = store.begin("a")
        state: Any = {
            "text": "日本 𝄞",
            "numbers": [0, -1.5, 2**60, 10**30],
            "null": None,
            "nested": {"b": [], "a": {}},
        }
        seq = store.advance("a", fence)
        assert store.save("a", fence, seq, state).outcome == "saved"
        assert store.load("a") == Snapshot("a", seq, state)

    @promise("E9a")
    def test_any_json_is_a_state(self, store: SnapshotStore) -> None:
        fence = store.begin("a")
        state: Any
        for state in (None, "", 0, False, [], {}):
            seq = store.advance("a", fence)
            store.save("a", fence, seq, state)
            found = store.load("a")
            assert found is not None
            assert (found.seq, found.state) == (seq, state)

    @promise("E9a")
    def test_the_newest_is_loaded(self, store: SnapshotStore) -> None:
        fence = store.begin("a")
        for _ in range(5):
            seq = store.advance("a", fence)
            assert store.save("a", fence, seq, {"seq": seq}).outcome == "saved"
            assert store.load("a") == Snapshot("a", seq, {"seq": seq})

    @promise("E9a")
    def test_executions_do_not_mix(self, store: SnapshotStore) -> None:
        for name in ("a", "ab", "b"):
            fence = store.begin(name)
            store.save(name, fence, 0, {"of": name})
        assert [store.load(name) for name in ("a", "ab", "b")] == [
            Snapshot(name, 0, {"of": name}) for name in ("a", "ab", "b")
        ]
        store.begin("abc")
        assert store.load("abc") is None

    @promise("E9a")
    def test_a_snapshot_is_of_the_last_event(self, store: SnapshotStore) -> None:
        fence = store.begin("a")
        seq = store.advance("a", fence)
        store.save("a", fence, seq, {"seq": seq})
        store.advance("a", fence)
        for other in (seq, seq + 2):
            answer = store.save("a", fence, other, {"seq": "another"})
            assert (answer.outcome, answer.reason) == ("conflict", "moved")
        assert store.load("a") == Snapshot("a", seq, {"seq": seq})

    @promise("E2a", "E9a")
    def test_a_stale_driver_saves_nothing(self, store: SnapshotStore) -> None:
        fence = store.begin("a")
        store.save("a", fence, 0, "first")
        newer = store.take_over("a")
        answer = store.save("a", fence, 0, "stale")
        assert (answer.outcome, answer.reason) == ("conflict", "stale-fence")
        assert store.load("a") == Snapshot("a", 0, "first")
        assert store.save("a", newer, store.advance("a", newer), "second").outcome == "saved"

    @promise("E9a")
    def test_nothing_is_saved_where_nothing_is(self, store: SnapshotStore) -> None:
        assert store.save("nobody", 1, 0, {}).outcome == "not-found"

    @promise("E9a")
    def test_a_deleted_execution_takes_its_snapshots_along(self, store: SnapshotStore) -> None:
        fence = store.begin("a")
        store.save("a", fence, 0, "old")
        store.delete("a")
        store.begin("a")
        assert store.load("a") is None
