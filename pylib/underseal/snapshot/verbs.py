"""What can be done with snapshots and stored content, as steps."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from underseal.foundation.calls import json_text
from underseal.foundation.steps import Steps
from underseal.held.model import Outcome
from underseal.log.verbs import allowed, outcome_of
from underseal.snapshot import kernel
from underseal.snapshot.model import ContentSwept, Snapshot, Stored


def save(execution_id: str, fence: int, seq: int, state: Any) -> Steps[Outcome]:
    """Save a snapshot."""
    return outcome_of((yield from kernel.save_snapshot(execution_id, fence, seq, json_text(state))))


def load(
    execution_id: str, principal: str | None, capability: Mapping[str, Any] | None
) -> Steps[Snapshot | None]:
    """Load the newest snapshot."""
    row = allowed(
        (yield from kernel.load_snapshot(execution_id, principal, capability)), "read", execution_id
    )
    return None if row["seq"] is None else Snapshot(execution_id, row["seq"], row["state"])


def put_content(execution_id: str, body: Any, fence: int) -> Steps[Stored]:
    """Store a large value."""
    row = yield from kernel.put_content(execution_id, body, fence)
    digest = row["hash"]
    return Stored(row["outcome"], row["reason"], row["message"], None if digest is None else bytes(digest))


def get_content(
    execution_id: str, digest: bytes, principal: str | None, capability: Mapping[str, Any] | None
) -> Steps[Any]:
    """Read a large value; None where there is none."""
    row = yield from kernel.get_content(execution_id, digest, principal, capability)
    return allowed(row, "read", execution_id)["body"]


def sweep_content(limit: int, grace: timedelta) -> Steps[list[ContentSwept]]:
    """Remove content that nothing refers to."""
    rows = yield from kernel.sweep_content(limit, grace)
    return [
        ContentSwept(row["outcome"], row["reason"], row["message"], row["chain_id"], row["removed"])
        for row in rows
        if row["chain_id"] is not None
    ]
