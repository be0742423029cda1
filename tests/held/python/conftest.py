"""Fixtures of the tests of held operations in Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.held.python.worlds import World
from underseal.testing import DictConnection, TestDatabase


@pytest.fixture(params=["sync", "async"])
def asynchronous(request: pytest.FixtureRequest) -> bool:
    """Over which client the world is built; every test that takes it runs over both."""
    return bool(request.param == "async")


def _worlds(
    database: TestDatabase, owner: DictConnection, asynchronous: bool
) -> Iterator[Callable[..., World]]:
    made: list[World] = []

    def make(**options: Any) -> World:
        made.append(World(database, owner, asynchronous, **options))
        return made[-1]

    yield make
    for world in made:
        world.close()


@pytest.fixture
def make_world(
    database: TestDatabase, db: DictConnection, asynchronous: bool
) -> Iterator[Callable[..., World]]:
    """Build a world with options of the client's."""
    yield from _worlds(database, db, asynchronous)


@pytest.fixture
def make_sync_world(database: TestDatabase, db: DictConnection) -> Iterator[Callable[..., World]]:
    """The same over the sync client alone, for what does not depend on the client."""
    yield from _worlds(database, db, False)


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    """A service with gated methods and a client of it."""
    return make_world()


@pytest.fixture
def sync_world(make_sync_world: Callable[..., World]) -> World:
    """The same over the sync client alone."""
    return make_sync_world()


@pytest.fixture
def async_world(database: TestDatabase, db: DictConnection) -> Iterator[World]:
    """The same over the async client alone."""
    for make in _worlds(database, db, True):
        yield make()
