"""The command line on a database with a registered application."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.flows import Flows
from tests.cli.shop import Shop
from underseal.testing import TestDatabase


@pytest.fixture
def shop(database: TestDatabase, tmp_path: Path) -> Shop:
    """An application, its keys and a command line."""
    shop = Shop(database, tmp_path / "keys")
    done = shop.run("types", "register", "--app", "tests.cli.shop:make", "--dsn", shop.owner_dsn)
    assert done.code == 0, done
    return shop


@pytest.fixture
def flows(shop: Shop) -> Iterator[Flows]:
    """The same, with executions that are driven by hand."""
    flows = Flows(shop)
    yield flows
    flows.close()
