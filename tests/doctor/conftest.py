"""An installation with one registered application, to plant faults in."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.shop import Shop
from underseal.testing import TestDatabase


@pytest.fixture
def shop(database: TestDatabase, tmp_path: Path) -> Shop:
    """An application, its keys and a command line."""
    shop = Shop(database, tmp_path / "keys")
    done = shop.run("types", "register", "--app", "tests.cli.shop:make", "--dsn", shop.owner_dsn)
    assert done.code == 0, done
    return shop
