"""Snapshots and stored content, as a driver and a reader see them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from underseal.held.model import Outcome


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A flow's state as of an event of its log.

    Attributes:
        execution_id: whose.
        seq: the last event it covers; replay goes on at the next.
        state: the state; in no repr.
    """

    execution_id: str
    seq: int
    state: Any = field(repr=False)


@dataclass(frozen=True, slots=True)
class Stored(Outcome):
    """What became of storing content.

    Attributes:
        outcome: `stored`; `not-found`; `conflict` (`stale-fence`); `refused` (`too-large`, `envelope`).
        digest: SHA-256 of the body's text; an event refers to it by `{"$content": digest.hex()}`.
    """

    digest: bytes | None = None


@dataclass(frozen=True, slots=True)
class ContentSwept(Outcome):
    """What a sweep of unreferenced content did with one chain.

    Attributes:
        outcome: `swept`; `skipped`, with the reason why its references cannot be read here.
        chain_id: the chain.
        removed: how many bodies were removed.
    """

    chain_id: str | None = None
    removed: int | None = None
