"""What must not be forgotten by a crash waits for the disk, whatever the host has set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.held.sql.kernel import Kernel


def commits(k: Kernel, setting: str, act: Callable[[], Any]) -> str:
    """How a transaction that does this will commit, under a setting of the host's."""
    with k.connection.transaction():
        k.connection.execute(f"set local synchronous_commit = {setting}")
        act()
        row = k.connection.execute("select current_setting('synchronous_commit') as kept").fetchone()
        assert row is not None
        return str(row["kept"])


@pytest.mark.clause("H8.2b")
def test_a_claim_is_on_disk_before_its_effect(k: Kernel) -> None:
    operation = k.hold()
    k.approve(operation)
    assert commits(k, "off", lambda: k.claims(only=operation)) == "local"


@pytest.mark.clause("H4.1a")
def test_a_vote_is_on_disk_before_it_is_told(k: Kernel) -> None:
    operation = k.hold()
    assert commits(k, "off", lambda: k.reject(operation)) == "local"


@pytest.mark.clause("H8.2b")
def test_a_cancellation_is_on_disk_before_it_is_told(k: Kernel) -> None:
    operation = k.hold()
    assert commits(k, "off", lambda: k.cancel(operation)) == "local"


def test_a_stricter_setting_is_left(k: Kernel) -> None:
    operation = k.hold()
    assert commits(k, "remote_apply", lambda: k.cancel(operation)) == "remote_apply"
