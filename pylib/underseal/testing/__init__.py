"""Help for testing against a real Postgres: databases, a clock moved by hand, waiting for locks."""

from underseal.testing.clock import TestClock
from underseal.testing.database import (
    OWNER,
    DictConnection,
    TestDatabase,
    ensure_owner,
    in_memory,
    install,
    unique_name,
)
from underseal.testing.waiting import in_background, wait_blocked, wait_until

__all__ = [
    "OWNER",
    "DictConnection",
    "TestClock",
    "TestDatabase",
    "ensure_owner",
    "in_background",
    "in_memory",
    "install",
    "unique_name",
    "wait_blocked",
    "wait_until",
]
