"""The exported suites: on Postgres, on stores in memory, and on stores with a fault, which they must find."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.conformance import cases_of, pinned
from tests.log.broken_stores import BROKEN_EVENTS, BROKEN_SNAPSHOTS
from tests.log.memory_store import MemoryEventStore, MemorySnapshotStore
from underseal.testing import OWNER, TestDatabase
from underseal.testing.conformance import (
    EventStoreConformance,
    PostgresEventStore,
    PostgresSnapshotStore,
    SnapshotStoreConformance,
)


@pinned("T1a")
class TestPostgresEvents(EventStoreConformance):
    @pytest.fixture
    def store(self, database: TestDatabase) -> Iterator[PostgresEventStore]:
        store = PostgresEventStore(database.conninfo_as(OWNER))
        yield store
        store.close()


@pinned("T1c")
class TestPostgresSnapshots(SnapshotStoreConformance):
    @pytest.fixture
    def store(self, database: TestDatabase) -> Iterator[PostgresSnapshotStore]:
        store = PostgresSnapshotStore(database.conninfo_as(OWNER))
        yield store
        store.close()


class TestMemoryEvents(EventStoreConformance):
    @pytest.fixture
    def store(self) -> MemoryEventStore:
        return MemoryEventStore()


class TestMemorySnapshots(SnapshotStoreConformance):
    @pytest.fixture
    def store(self) -> MemorySnapshotStore:
        return MemorySnapshotStore()


@pytest.mark.clause("T1a")
@pytest.mark.parametrize(("broken", "test"), BROKEN_EVENTS)
def test_the_suite_finds_a_broken_event_store(broken: Callable[[], Any], test: str) -> None:
    with pytest.raises((AssertionError, KeyError, IndexError)):
        getattr(EventStoreConformance(), test)(broken())


@pytest.mark.clause("T1c")
@pytest.mark.parametrize(("broken", "test"), BROKEN_SNAPSHOTS)
def test_the_suite_finds_a_broken_snapshot_store(broken: Callable[[], Any], test: str) -> None:
    with pytest.raises(AssertionError):
        getattr(SnapshotStoreConformance(), test)(broken())


def test_every_test_of_the_suites_finds_something() -> None:
    for suite, broken in (
        (EventStoreConformance, BROKEN_EVENTS),
        (SnapshotStoreConformance, BROKEN_SNAPSHOTS),
    ):
        assert set(cases_of(suite)) == {test for _, test in broken}
