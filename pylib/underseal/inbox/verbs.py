"""What can be done with an inbox, as steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from underseal.errors import InboxFullError, InboxMessageRefusedError
from underseal.foundation.steps import Row, Steps
from underseal.inbox import kernel
from underseal.inbox.model import Consumed, Delivered, Discarded, InboxMessage, NextMessage, Sent
from underseal.log import kernel as log_kernel
from underseal.log.verbs import accepted, allowed


def send(
    execution_id: str, topic: str, payload: Any, principal: str, message_id: str | None, expires_in: timedelta | None
) -> Steps[Sent]:  # fmt: skip
    """Send a message."""
    row = yield from kernel.send(execution_id, topic, payload, principal, message_id, expires_in)
    return _sent(allowed(row, "send", execution_id), execution_id, topic)


def resume(execution_id: str, gate: str, answer: Any, principal: str) -> Steps[Sent]:
    """Answer a gate."""
    row = yield from log_kernel.resume_gate(execution_id, gate, answer, principal)
    return _sent(allowed(row, "resume", execution_id), execution_id, f"$gate/{gate}")


def _sent(row: Row, execution_id: str, topic: str) -> Sent:
    if row["outcome"] == "refused":
        error = InboxFullError if row["reason"] == "inbox-full" else InboxMessageRefusedError
        raise error(execution_id, topic, row["reason"], row["message"])
    return Sent(row["outcome"], row["reason"], row["message"], row["inbox_seq"])


def next_message(execution_id: str, fence: int, capability: Mapping[str, Any] | None) -> Steps[NextMessage]:
    """Look at what could be delivered next."""
    return NextMessage.from_row((yield from kernel.next_message(execution_id, fence, capability)))


def consume(execution_id: str, fence: int, found: NextMessage) -> Steps[Consumed]:
    """Consume what `next_message` found.

    Errors:
        ValueError: it found no message.
    """
    if found.wait is None or found.topic is None or found.inbox_seq is None or found.message_key is None:
        raise ValueError(f"expected what next_message found, a message; found {found.outcome}")
    row = yield from kernel.consume_message(
        execution_id, fence, found.wait, found.topic, found.inbox_seq, found.message_key
    )
    return Consumed(row["outcome"], row["reason"], row["message"], row["seq"])


def deliver(execution_id: str, fence: int) -> Steps[Delivered]:
    """Deliver whatever can be in one call."""
    row = yield from kernel.deliver(execution_id, fence)
    return Delivered(row["outcome"], row["reason"], row["message"], row["answered"], row["held"])


def deliver_batch(items: Iterable[tuple[str, int]]) -> Steps[list[Delivered]]:
    """Deliver to many."""
    asked = [{"execution_id": execution_id, "fence": fence} for execution_id, fence in items]
    rows = yield from kernel.deliver_batch(asked)
    return [
        Delivered(
            row["outcome"], row["reason"], row["message"], row["answered"], row["held"], row["item"],
            row["execution_id"], row["status"], row["head"],
        )
        for row in map(accepted, rows)
    ]  # fmt: skip


def discard(
    execution_id: str, topic: str, principal: str, reason: str | None, inbox_seq: int | None
) -> Steps[Discarded]:
    """Discard what waits."""
    row = yield from kernel.discard_inbox(execution_id, topic, principal, reason, inbox_seq)
    accepted(allowed(row, "discard", execution_id))
    return Discarded(row["outcome"], row["reason"], row["message"], row["discarded"])


def list_inbox(
    execution_id: str, principal: str, capability: Mapping[str, Any] | None, after_seq: int, limit: int
) -> Steps[list[InboxMessage]]:
    """Look at what waits."""
    rows = yield from kernel.list_inbox(execution_id, principal, capability, after_seq, limit)
    return [
        InboxMessage.from_row(row) for row in rows if allowed(row, "read", execution_id)["topic"] is not None
    ]


def expire(limit: int) -> Steps[int]:
    """Dispose of what has expired."""
    row = allowed((yield from kernel.expire_inbox(limit)), "expire", "")
    expired: int = row["expired"]
    return expired
