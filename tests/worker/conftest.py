"""Fixtures of the worker's tests: a service with gated methods and flows, over either client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.worker.works import Works
from underseal.testing import DictConnection, TestDatabase


@pytest.fixture(params=["sync", "async"])
def asynchronous(request: pytest.FixtureRequest) -> bool:
    """Over which client it is built; every test that takes it runs over both."""
    return bool(request.param == "async")


def _works(
    database: TestDatabase, owner: DictConnection, asynchronous: bool
) -> Iterator[Callable[..., Works]]:
    made: list[Works] = []

    def make(**options: Any) -> Works:
        made.append(Works(database, owner, asynchronous, **options))
        return made[-1]

    yield make
    for works in made:
        works.close()


@pytest.fixture
def works(database: TestDatabase, db: DictConnection, asynchronous: bool) -> Iterator[Works]:
    """A service, over both clients in turn."""
    for make in _works(database, db, asynchronous):
        yield make()


@pytest.fixture
def make_works(
    database: TestDatabase, db: DictConnection, asynchronous: bool
) -> Iterator[Callable[..., Works]]:
    """Build one with options of the client's."""
    yield from _works(database, db, asynchronous)


@pytest.fixture
def sync_works(database: TestDatabase, db: DictConnection) -> Iterator[Works]:
    """The same over the sync client alone."""
    for make in _works(database, db, False):
        yield make()


@pytest.fixture
def async_works(database: TestDatabase, db: DictConnection) -> Iterator[Works]:
    """The same over the async client alone."""
    for make in _works(database, db, True):
        yield make()
