"""Fixtures of the crash tests: one database, one warm process to fork from, and undisturbed runs to compare with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_postgresql.executors import NoopExecutor

from tests.crash import witness
from tests.crash.flows import Pay, Payment, principal
from tests.crash.nursery import Nursery
from tests.crash.stage import Stage
from tests.databases import own_database
from underseal import FileKeyRing, Principal, Underseal
from underseal.foundation.server import Server
from underseal.testing import OWNER, TestDatabase


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    """The process that others are forked from."""
    with Nursery() as nursery:
        yield nursery


@pytest.fixture(scope="session")
def crash_keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key ring that the processes share."""
    path = tmp_path_factory.mktemp("crash") / "keys"
    ring = FileKeyRing(path)
    for purpose in ("payload", "decision", "fingerprint"):
        ring.generate(purpose)
    return path


@pytest.fixture(scope="session")
def crash_database(postgres: Server, template: NoopExecutor, crash_keys: Path) -> Iterator[TestDatabase]:
    """The database that all crash tests share, with witnesses in it."""
    with own_database(postgres, template, "crash") as database:
        database.connect().execute(witness.INSTALL)
        with Underseal(
            database.conninfo_as(OWNER), keys=FileKeyRing(crash_keys), principals=principal
        ) as client:

            @client.gate(Pay())
            def pay(who: Principal, params: Payment) -> None:
                """Never called: only its type is registered here."""

            client.register()
        yield database


@pytest.fixture(scope="session")
def stage(crash_database: TestDatabase, nursery: Nursery, crash_keys: Path) -> Stage:
    """Where it is played."""
    return Stage(crash_database, nursery, crash_keys)
