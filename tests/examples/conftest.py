"""Logins such as docs/install.md has an operator make."""

from __future__ import annotations

import pytest

from underseal.testing import DictConnection, TestDatabase

ACCESSES = ("client", "worker", "operator", "reader")


@pytest.fixture
def logins(database: TestDatabase, db: DictConnection) -> dict[str, str]:
    """One login for each access, by its name; the operator's is bound to a principal."""
    found = {access: database.create_role(access) for access in ACCESSES}
    for access, login in found.items():
        db.execute("select underseal.grant_access(%s, %s)", [login, access])
    db.execute("select underseal.map_login(%s, 'fay@shop.example')", [found["operator"]])
    return found
