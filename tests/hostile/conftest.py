"""The hostile tests work on the same small service as the tests of the Python side."""

from __future__ import annotations

from tests.held.python.conftest import make_sync_world, sync_world

__all__ = ["make_sync_world", "sync_world"]
