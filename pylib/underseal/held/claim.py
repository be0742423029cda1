"""A claimed run: the columns as the database had them when it gave the run away."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Self
from uuid import UUID


@dataclass(frozen=True, slots=True)
class ClaimedVote:
    """One vote's row: what the columns say, and the seal that is believed instead."""

    approver: str
    decision: str
    params_hash: str
    row_version: int
    cast_at: datetime
    sealed_decision: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Claim:
    """One row of `claim_runs` or `claim_resubmission`.

    Attributes:
        run_token: lets its holder renew and finish the run; in no repr.
        claimed_at: the database's clock at the claim; what the sealed deadlines are judged by.
        current_version: the version of the type that is in force.
        policy_in_force: canonical text.
        eligible: those who voted and may still approve.
        The others are the columns of the row.
    """

    operation_id: UUID
    run_id: UUID
    run_token: bytes = field(repr=False)
    claimed_at: datetime
    type: str
    version: int
    current_version: int
    armed: bool
    mode: str
    requester: str
    auth_kind: str
    token_id: str | None
    params_hash: bytes
    policy_digest: bytes
    policy_in_force: str
    eligible: frozenset[str]
    state_key: str
    effect: str
    redacted: str
    row_version: int
    requested_at: datetime
    expires_at: datetime
    approved_at: datetime
    run_deadline: datetime
    sealed_payload: Mapping[str, Any] = field(repr=False)
    votes: tuple[ClaimedVote, ...]

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """Read a claimed row."""
        votes = tuple(
            ClaimedVote(
                vote["approver"],
                vote["decision"],
                vote["params_hash"],
                vote["row_version"],
                datetime.fromisoformat(vote["cast_at"]),
                vote["sealed_decision"],
            )
            for vote in row["votes"]
        )
        resubmitted = "held_id" in row
        return cls(
            operation_id=row["held_id" if resubmitted else "operation_id"],
            auth_kind=row["held_auth_kind" if resubmitted else "auth_kind"],
            token_id=row["held_token_id" if resubmitted else "token_id"],
            eligible=frozenset(row["eligible"]),
            votes=votes,
            **{name: row[name] for name in _AS_THEY_ARE},
        )


_AS_THEY_ARE = (
    "run_id", "run_token", "claimed_at", "type", "version", "current_version", "armed", "mode", "requester",
    "params_hash", "policy_digest", "policy_in_force", "state_key", "effect", "redacted", "row_version",
    "requested_at", "expires_at", "approved_at", "run_deadline", "sealed_payload",
)  # fmt: skip
