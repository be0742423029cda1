"""What held operations are made of, as an embedder sees them: small immutable values."""

# `type` is what the column is called, in SQL and here.
# ruff: noqa: A002

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from typing import Any, Literal, Self
from uuid import UUID

from underseal.canonical import canonical_json, canonicalise

Mode = Literal["ON_APPROVAL", "BY_REQUESTER"]
Decision = Literal["approve", "reject"]
State = Literal[
    "HELD",
    "APPROVED",
    "EXECUTING",
    "REJECTED",
    "CANCELLED",
    "EXPIRED",
    "SUCCEEDED",
    "FAILED",
    "REFUSED",
    "OUTCOME_UNKNOWN",
]


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks, or as whom a run happens.

    Attributes:
        id: the service's own name for them.
        auth_kind: how they were authenticated, in the service's words; `session`, `token`…
        token_id: the token the call is bound to, if it is bound to one.
        attributes: whatever the service wants to have at hand; never stored, never sealed, in no repr.
    """

    id: str
    auth_kind: str = "session"
    token_id: str | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Policy:
    """Who must agree, and how long they have. Giving no approver and no hook is refused at registration.

    Attributes:
        votes_required: approvals needed, 1 or more. Never the requester's own.
        approvers: principals who may approve, by name; None leaves it to the hook alone.
        approver_hook: `schema.function` of the host that says who else may (docs/held.md).
        rejections_to_end: rejections that end the operation, 1 or more.
        hold_for: how long a request waits for its votes, whole seconds, up to 365 days.
        run_within: how long an approved operation waits for its run, whole seconds, up to 365 days.
    """

    votes_required: int = 1
    approvers: Sequence[str] | None = None
    approver_hook: str | None = None
    rejections_to_end: int = 1
    hold_for: timedelta = timedelta(days=7)
    run_within: timedelta = timedelta(days=1)

    def as_json(self) -> str:
        """The policy as `register_operation_type` takes it; durations in seconds."""
        return json.dumps(
            {
                "votes_required": self.votes_required,
                "rejections_to_end": self.rejections_to_end,
                "approvers": None if self.approvers is None else list(self.approvers),
                "approver_hook": self.approver_hook,
                "hold_for": int(self.hold_for.total_seconds()),
                "run_within": int(self.run_within.total_seconds()),
            }
        )


@dataclass(frozen=True, slots=True)
class Effect:
    """What a run would do, said so that a person can judge it.

    Neither member may depend on a hidden parameter (clause H1.7).

    Attributes:
        effect: shown to approvers; whatever has a canonical form (no floats: write amounts as
            integers or strings).
        state_key: stands for the state of the world the effect was estimated in; a run in another
            state is REFUSED `state-changed`.
    """

    effect: Mapping[str, Any]
    state_key: str


@dataclass(frozen=True, slots=True)
class Held:
    """A request that waits: what a gated call returns instead of its result.

    Attributes:
        operation_id: the operation, new or already open.
        state: its state; `HELD`, or that of a duplicate.
        duplicate: whether the same request was open already, or was made before under an id the caller chose.
        params_hash: the hash that binds the parameters.
        requested_at: database instant of the request.
        expires_at: database instant from which on nobody can vote.
        message: for people.
    """

    operation_id: UUID
    state: State
    duplicate: bool
    params_hash: bytes
    requested_at: datetime
    expires_at: datetime
    message: str


@dataclass(frozen=True, slots=True)
class Echo:
    """What an approver was shown, to be handed back with the vote.

    Attributes:
        operation_id: the operation.
        params_hash: its hash.
        row_version: its version.
        shown: hex digest over the requester, the type, the redacted copy and the effect that were on the screen.
    """

    operation_id: UUID
    params_hash: bytes
    row_version: int
    shown: str

    def token(self) -> str:
        """The same as one string, for a form field or a link."""
        return f"{self.operation_id}:{self.params_hash.hex()}:{self.row_version}:{self.shown}"

    @classmethod
    def parse(cls, token: str) -> Self:
        """Read `token()` back.

        Parameters:
            token: the string.

        Errors:
            ValueError: it is none.
        """
        if not re.fullmatch(r"[0-9a-f-]{36}:[0-9a-f]{64}:[0-9]{1,18}:[0-9a-f]{64}", token):
            raise ValueError(
                "expected the token of an Echo, <id>:<hash>:<version>:<digest>; found another string"
            )
        operation_id, params_hash, row_version, shown = token.split(":")
        return cls(UUID(operation_id), bytes.fromhex(params_hash), int(row_version), shown)


@dataclass(frozen=True, slots=True)
class Vote:
    """One vote as the database shows it; reasons are the approvers' own words."""

    approver: str
    decision: Decision
    reason: str | None
    row_version: int
    cast_at: datetime

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """Read one element of `get_operation`'s `votes`."""
        return cls(
            row["approver"],
            row["decision"],
            row.get("reason"),
            row["row_version"],
            datetime.fromisoformat(row["cast_at"]),
        )


@dataclass(frozen=True, slots=True)
class Operation:
    """One held operation as somebody may see it; nothing in it is secret.

    Attributes:
        operation_id, type, version, mode, state: what it is, and where it stands.
        requester: who asked.
        params_hash: hash that binds the parameters.
        row_version: counts what an approver can see; a vote echoes it.
        effect: what the estimate said, canonical JSON.
        redacted: the parameters as approvers see them, canonical JSON.
        requested_at, expires_at, run_deadline, ended_at: database instants.
        outcome_reason: why it ended as it did.
        votes_required: how many approvals it takes.
        auth_kind, approved_at, outcome_detail, result, run_worker, run_lease_until, votes: more,
            which `list` leaves out.
        can: what the principal who asked may do now: `vote`, `cancel`, `run`; only from `get`.
        why: why not more; only from `get`.
        now: the database's clock when it was read; only from `get`.
    """

    operation_id: UUID
    type: str
    version: int
    mode: Mode
    state: State
    requester: str
    params_hash: bytes
    row_version: int
    effect: str
    redacted: str
    requested_at: datetime
    expires_at: datetime
    auth_kind: str | None = None
    approved_at: datetime | None = None
    run_deadline: datetime | None = None
    ended_at: datetime | None = None
    outcome_reason: str | None = None
    outcome_detail: str | None = None
    result: Any = None
    run_worker: str | None = None
    run_lease_until: datetime | None = None
    votes_required: int = 1
    votes: tuple[Vote, ...] = ()
    can: tuple[str, ...] = ()
    why: str | None = None
    now: datetime | None = None

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """Read a row of `get_operation` or `list_operations`."""
        known = {one.name: row[one.name] for one in fields(cls) if one.name in row}
        known["votes"] = tuple(Vote.from_row(vote) for vote in row.get("votes") or ())
        known["can"] = tuple(row.get("can") or ())
        return cls(**known)

    @property
    def shown(self) -> str:
        """Hex digest over what an approver decides by, as a vote seals it (clause H2.2)."""
        return shown_digest(self.type, self.version, self.mode, self.requester, self.redacted, self.effect)

    @property
    def echo(self) -> Echo:
        """What a vote on exactly this must hand back."""
        return Echo(self.operation_id, self.params_hash, self.row_version, self.shown)


def shown_digest(type: str, version: int, mode: str, requester: str, redacted: str, effect: str) -> str:
    """Hex SHA-256 over what an approver decides by: who asked for what, the redacted copy and the effect.

    Who asked and for which type is in the payload's seal as well; but an approver cannot open that, and a writer
    who showed them another requester could put the true one back before the run.

    Parameters:
        type, version, mode, requester: as the row has them.
        redacted: JSON text.
        effect: JSON text.

    Errors:
        CanonicalError: one of them has no canonical form.
    """
    asked = canonical_json({"mode": mode, "requester": requester, "type": type, "version": version})
    text = f"underseal-shown-v1\n{asked}\n{canonicalise(redacted)}\n{canonicalise(effect)}"
    return hashlib.sha256(text.encode()).hexdigest()


def effect_text(effect: Mapping[str, Any]) -> str:
    """Canonical JSON of an effect.

    Parameters:
        effect: what an `Effect` holds.

    Errors:
        CanonicalError: it has none, because of a float for instance.
    """
    return canonical_json(dict(effect))


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a timeline.

    Attributes:
        seq: its place, from 1.
        type: what happened: `requested`, `voted`, `approved`, `claimed`, `succeeded`…
        actor: who did it.
        from_state, to_state: states before and after; before is None for the request.
        reason: why, where there is a reason.
        detail: more, never a parameter.
        recorded_at: database instant.
    """

    seq: int
    type: str
    actor: str
    from_state: str | None
    to_state: str
    reason: str | None
    detail: Any
    recorded_at: datetime


@dataclass(frozen=True, slots=True)
class OutboxEvent:
    """One event as a consumer of the outbox reads it; positions run from 1 without a gap.

    Attributes are those of `Event`, and the operation's id and type.
    """

    position: int
    operation_id: UUID
    seq: int
    type: str
    operation_type: str
    actor: str
    from_state: str | None
    to_state: str
    reason: str | None
    detail: Any
    recorded_at: datetime


@dataclass(frozen=True, slots=True)
class Outcome:
    """An answer of the database where a "no" is as ordinary as a "yes".

    Attributes:
        outcome: one word; which ones, the method says.
        reason: for a conflict or a refusal, why, in one hyphenated word.
        message: the same for people.
    """

    outcome: str
    reason: str | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Awaited(Outcome):
    """Whether an execution will be told of an operation's end.

    Attributes:
        outcome: `awaited`; `unchanged` (it was awaited before); `told` (it has ended, and the message is in the inbox);
            `not-found`; `conflict` (`stale-fence`, `ended`); `refused` (`foreign`, `by-requester`).
        state: the operation's state now, where it is awaited or told.
    """

    state: State | None = None


@dataclass(frozen=True, slots=True)
class VoteOutcome(Outcome):
    """What became of a vote.

    Attributes:
        outcome: `recorded` (more votes are needed), `approved`, `rejected`, `conflict`, `refused`,
            `not-found` or `denied`.
        state: the operation's state, for those who may see it.
        votes, votes_required: approvals so far, and how many it takes.
        cast_at: database instant of the vote.
        run: what became of the run, where this process started it at once (clause H5.2).
    """

    state: State | None = None
    votes: int | None = None
    votes_required: int | None = None
    cast_at: datetime | None = None
    run: RunReport | None = None


@dataclass(frozen=True, slots=True)
class RunReport(Outcome):
    """What became of a run.

    Attributes:
        outcome: the state it ended in, in lower case with a hyphen (`succeeded`, `failed`,
            `refused`, `outcome-unknown`); `conflict` if nothing was claimed or the lease was lost;
            `not-found`, `denied`, `refused` of the claim pass through.
        operation_id: the operation.
        state: the state it ended in; None if this call did not end it.
        value: what the method returned, for the caller alone; in no repr, since it may be secret.
        error: the exception of the method, for the caller alone, where it failed.
    """

    operation_id: UUID | None = None
    state: State | None = None
    value: Any = field(default=None, repr=False, compare=False)
    error: BaseException | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Swept:
    """One operation that a sweep brought to its end.

    Attributes:
        outcome: `expired`, `missed`, `outcome-unknown` or `failed` (this one could not be swept now).
        operation_id: the operation.
    """

    outcome: str
    operation_id: UUID


@dataclass(frozen=True, slots=True)
class OperationType:
    """One registered version of a type.

    Attributes:
        type, version: which.
        mode: `ON_APPROVAL` or `BY_REQUESTER`.
        armed: whether requests and runs are let through.
        current: whether it is the version in force.
        parameters: JSON Schema.
        policy: canonical text.
        salted: whether its hashes are salted.
        sql_run: the function that does it, for a type of SQL functions.
    """

    type: str
    version: int
    mode: Mode
    armed: bool
    current: bool
    parameters: Mapping[str, Any]
    policy: str
    salted: bool
    sql_run: str | None

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """Read a row of `list_operation_types`."""
        return cls(**{one.name: row[one.name] for one in fields(cls)})


@dataclass(frozen=True, slots=True)
class KeyUse:
    """A key that open operations need.

    Attributes:
        key_id: the key.
        purpose: `payload`, `decision` or `fingerprint`.
        open_rows: how many seals or fingerprints of open operations are under it.
    """

    key_id: str
    purpose: str
    open_rows: int


@dataclass(frozen=True, slots=True)
class Registration(Outcome):
    """What became of registering one type.

    Attributes:
        outcome: `registered`, `updated`, `unchanged` or `refused`.
        type, version: which.
    """

    type: str = ""
    version: int = 0


@dataclass(frozen=True, slots=True)
class RewrapProgress:
    """How far `rewrap` got.

    Attributes:
        payloads, decisions: seals made anew so far.
        moved_on: rows that ended or were re-sealed by somebody else meanwhile.
        unopened: operations that stay as they are: a seal of theirs did not open here, or another open
            operation has the fingerprint they would get. Decide or cancel one of the two, then try again.
    """

    payloads: int
    decisions: int
    moved_on: int
    unopened: tuple[UUID, ...]
