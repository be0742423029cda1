"""The hostile tests work on the same small service as the tests of the Python side."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.held.python.conftest import make_sync_world, sync_world
from tests.held.python.worlds import World
from tests.hostile.audit import Audit
from tests.hostile.writer import Writer

__all__ = ["audit", "make_sync_world", "sync_world", "writer"]


@pytest.fixture
def audit(sync_world: World) -> Iterator[Audit]:
    """Honest people in a service whose payouts need two approvals."""
    audit = Audit(sync_world)
    yield audit
    audit.close()


@pytest.fixture
def writer(sync_world: World) -> Writer:
    """A writer with every right on its tables."""
    return Writer(sync_world.admin)
