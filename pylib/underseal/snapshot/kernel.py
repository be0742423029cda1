"""The SQL functions of snapshots and of stored content, each called from this one place."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from underseal.foundation.calls import interval_text, json_text, one_row, optional_json_text
from underseal.foundation.steps import Row, Steps, query


def save_snapshot(execution_id: str, fence: int, seq: int, state: str) -> Steps[Row]:
    """`underseal.save_snapshot`; the state as JSON."""
    return one_row(
        "select * from underseal.save_snapshot(%s, %s::bigint, %s::bigint, %s::json)",
        execution_id, fence, seq, state,
    )  # fmt: skip


def load_snapshot(
    execution_id: str, principal: str | None, capability: Mapping[str, Any] | None
) -> Steps[Row]:
    """`underseal.load_snapshot`."""
    return one_row(
        "select * from underseal.load_snapshot(%s, %s, %s::jsonb)",
        execution_id, principal, optional_json_text(capability),
    )  # fmt: skip


def put_content(execution_id: str, body: Any, fence: int) -> Steps[Row]:
    """`underseal.put_content`."""
    return one_row(
        "select * from underseal.put_content(%s, %s::json, %s::bigint)",
        execution_id, json_text(body), fence,
    )  # fmt: skip


def get_content(
    execution_id: str, digest: bytes, principal: str | None, capability: Mapping[str, Any] | None
) -> Steps[Row]:
    """`underseal.get_content`."""
    return one_row(
        "select * from underseal.get_content(%s, %s, %s, %s::jsonb)",
        execution_id, digest, principal, optional_json_text(capability),
    )  # fmt: skip


def sweep_content(max_chains: int, grace: timedelta) -> Steps[list[Row]]:
    """`underseal.sweep_content`."""
    return query(
        "select * from underseal.sweep_content(%s::integer, %s::interval)", (max_chains, interval_text(grace))
    )
