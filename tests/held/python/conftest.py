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


@pytest.fixture
def make_world(database: TestDatabase, db: DictConnection, asynchronous: bool) -> Iterator[Callable[..., World]]:
    """Build a world with options of the client's."""
    made: list[World] = []

    def make(**options: Any) -> World:
        made.append(World(database, db, asynchronous, **options))
        return made[-1]

    yield make
    for world in made:
        world.close()


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    """A service with gated methods and a client of it."""
    return make_world()


@pytest.fixture
def sync_world(database: TestDatabase, db: DictConnection) -> Iterator[World]:
    """The same over the sync client alone, for what does not depend on the client."""
    world = World(database, db, asynchronous=False)
    yield world
    world.close()
