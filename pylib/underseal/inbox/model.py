"""What the inbox answers with: small immutable values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any, Self

from underseal.held.model import Outcome


@dataclass(frozen=True, slots=True)
class Sent(Outcome):
    """What became of a message, or of an answer to a gate.

    Attributes:
        outcome: `sent`, for a gate `resumed`; `duplicate` (this sender sent this id before); `conflict` (`ended`;
            for a gate also `already-answered`).
        inbox_seq: its number in the inbox, of a duplicate that of the first.
    """

    inbox_seq: int | None = None


@dataclass(frozen=True, slots=True)
class NextMessage(Outcome):
    """What could be delivered next. Nothing was changed.

    Attributes:
        outcome: `message`; `timer` (an instant that is due, which `deliver` answers); `none`; `held` (a message that
            this capability does not open; operators are told); `not-found`; `conflict` (`stale-fence`, `ended`).
        wait, arm: which wait it answers, and which of its arms, from 0.
        topic, inbox_seq, message_key, message_id, sender: which message; to be handed to `consume_message`.
        payload: the message; in no repr.
        metadata: what the kernel notes beside it; None mostly.
    """

    wait: str | None = None
    arm: int | None = None
    topic: str | None = None
    inbox_seq: int | None = None
    message_key: bytes | None = None
    message_id: str | None = None
    sender: str | None = None
    payload: Any = field(default=None, repr=False)
    metadata: Mapping[str, Any] | None = None

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """Read a row of `next_message`."""
        known = {one.name: row[one.name] for one in fields(cls)}
        key = known["message_key"]
        return cls(**{**known, "message_key": None if key is None else bytes(key)})


@dataclass(frozen=True, slots=True)
class Consumed(Outcome):
    """What became of consuming a message.

    Attributes:
        outcome: `consumed`; `not-found`; `conflict` (`stale-fence`, `ended`; `stale`: something else comes first
            now, or the wait is answered).
        seq: number of the event in the log.
    """

    seq: int | None = None


@dataclass(frozen=True, slots=True)
class Delivered(Outcome):
    """What one call could deliver.

    Attributes:
        outcome: `delivered`; `held`; `none`; `not-found`; `conflict` (`stale-fence`, `ended`; in a batch also
            `same-execution`).
        answered: how many waits were answered.
        held: whether a message that may be sealed holds up the rest; it takes `next_message` and `consume_message`.
        item, execution_id, status, head: in a batch, its place from 1, and the execution as it is then.
    """

    answered: int | None = None
    held: bool | None = None
    item: int | None = None
    execution_id: str | None = None
    status: str | None = None
    head: int | None = None


@dataclass(frozen=True, slots=True)
class Discarded(Outcome):
    """What became of discarding messages.

    Attributes:
        outcome: `discarded`; `unchanged` (nothing waited); `conflict` (`moved`: another message is at the head).
        discarded: how many.
    """

    discarded: int | None = None


@dataclass(frozen=True, slots=True)
class InboxMessage:
    """A message that waits, without what it says.

    Attributes:
        topic: its topic.
        inbox_seq: its number in the inbox; the lowest of a topic is delivered first.
        sender, message_id: who sent it, under which id.
        bytes: how long its payload is.
        sent_at: database instant.
        expires_at: database instant; None for never.
    """

    topic: str
    inbox_seq: int
    sender: str
    message_id: str
    bytes: int
    sent_at: datetime
    expires_at: datetime | None

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """Read a row of `list_inbox`."""
        return cls(**{one.name: row[one.name] for one in fields(cls)})
