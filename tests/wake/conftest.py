"""Fixtures of the tests of wakes and schedules."""

from __future__ import annotations

import pytest

from tests.wake.wakes import Wakes
from underseal.testing import OWNER, DictConnection, TestClock, TestDatabase


@pytest.fixture
def w(db: DictConnection, clock: TestClock) -> Wakes:
    """The verbs in an autocommit session of the schema's owner, on a clock that stands still."""
    return Wakes(db, clock)


@pytest.fixture
def v(w: Wakes, database: TestDatabase, clock: TestClock) -> Wakes:
    """The same in a second session. Who waits for a lock longer than a moment fails: nothing here may wait."""
    return Wakes(database.connect(OWNER, options="-c lock_timeout=2s"), clock)
