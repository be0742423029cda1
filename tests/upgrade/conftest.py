"""Fixtures of the installer's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.upgrade.hosts import Host, make_host
from tests.upgrade.scratch import ScratchKernel, make_kernel
from underseal.testing import TestDatabase


@pytest.fixture
def host(empty_database: TestDatabase, tmp_path: Path) -> Host:
    """A database with tables and an Alembic history of its own, and a role that has only CREATE."""
    return make_host(empty_database, tmp_path / "host")


@pytest.fixture
def kernel(tmp_path: Path) -> ScratchKernel:
    """A tiny kernel that the test may change."""
    return make_kernel(tmp_path / "kernel")


@pytest.fixture
def owner(empty_database: TestDatabase) -> str:
    """Connection string of a role that has only CREATE on an otherwise empty database."""
    role = empty_database.create_role("owner")
    empty_database.connect().execute(f'grant create on database "{empty_database.name}" to "{role}"'.encode())
    return empty_database.conninfo_as(role)
