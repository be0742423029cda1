"""The SQL functions of the inbox, each called from this one place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from underseal.foundation.calls import json_text, one_row, optional_interval_text, optional_json_text
from underseal.foundation.steps import Row, Steps, query


def send(
    execution_id: str, topic: str, payload: Any, principal: str | None, message_id: str | None,
    expires_in: timedelta | None,
) -> Steps[Row]:  # fmt: skip
    """`underseal.send`."""
    return one_row(
        "select * from underseal.send(%s, %s, %s::json, %s, %s, %s::interval)",
        execution_id, topic, json_text(payload), principal, message_id, optional_interval_text(expires_in),
    )  # fmt: skip


def next_message(execution_id: str, fence: int, capability: Mapping[str, Any] | None) -> Steps[Row]:
    """`underseal.next_message`."""
    return one_row(
        "select * from underseal.next_message(%s, %s::bigint, %s::jsonb)",
        execution_id, fence, optional_json_text(capability),
    )  # fmt: skip


def consume_message(
    execution_id: str, fence: int, wait: str, topic: str, inbox_seq: int, message_key: bytes
) -> Steps[Row]:
    """`underseal.consume_message`."""
    return one_row(
        "select * from underseal.consume_message(%s, %s::bigint, %s, %s, %s::bigint, %s)",
        execution_id, fence, wait, topic, inbox_seq, message_key,
    )  # fmt: skip


def deliver(execution_id: str, fence: int) -> Steps[Row]:
    """`underseal.deliver`."""
    return one_row("select * from underseal.deliver(%s, %s::bigint)", execution_id, fence)


def deliver_batch(items: Sequence[Mapping[str, Any]]) -> Steps[list[Row]]:
    """`underseal.deliver_batch`; an item is `{"execution_id", "fence"}`."""
    return query("select * from underseal.deliver_batch(%s::json)", (json_text(items),))


def discard_inbox(
    execution_id: str, topic: str, principal: str | None, reason: str | None, inbox_seq: int | None
) -> Steps[Row]:
    """`underseal.discard_inbox`."""
    return one_row(
        "select * from underseal.discard_inbox(%s, %s, %s, %s, %s::bigint)",
        execution_id, topic, principal, reason, inbox_seq,
    )  # fmt: skip


def list_inbox(
    execution_id: str, principal: str | None, capability: Mapping[str, Any] | None, after_seq: int, max_messages: int
) -> Steps[list[Row]]:  # fmt: skip
    """`underseal.list_inbox`."""
    return query(
        "select * from underseal.list_inbox(%s, %s, %s::jsonb, %s::bigint, %s::integer)",
        (execution_id, principal, optional_json_text(capability), after_seq, max_messages),
    )


def expire_inbox(max_messages: int) -> Steps[Row]:
    """`underseal.expire_inbox`."""
    return one_row("select * from underseal.expire_inbox(%s::integer)", max_messages)
