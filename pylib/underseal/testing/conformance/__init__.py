"""Conformance suites: what every store of events, snapshots or keys must do, as tests to inherit (clause T1).

A suite is a class whose tests take a fixture named `store`; docs/testing.md shows the three lines that run one.
"""

import pytest

pytest.register_assert_rewrite(
    "underseal.testing.conformance.event_store",
    "underseal.testing.conformance.key_store",
    "underseal.testing.conformance.snapshot_store",
)

from underseal.testing.conformance.event_store import EventStore, EventStoreConformance  # noqa: E402
from underseal.testing.conformance.key_store import KeyStoreConformance, KeyStoreHarness  # noqa: E402
from underseal.testing.conformance.postgres import PostgresEventStore, PostgresSnapshotStore  # noqa: E402
from underseal.testing.conformance.promises import promises_of  # noqa: E402
from underseal.testing.conformance.snapshot_store import SnapshotStore, SnapshotStoreConformance  # noqa: E402

__all__ = [
    "EventStore",
    "EventStoreConformance",
    "KeyStoreConformance",
    "KeyStoreHarness",
    "PostgresEventStore",
    "PostgresSnapshotStore",
    "SnapshotStore",
    "SnapshotStoreConformance",
    "promises_of",
]
