"""Whether what a claimed row says is what was sealed (clauses H2.5, H2.10, H2.12, H9.3).

No I/O and no clock: the seals, the keys, and the instants that the claim returned.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import datetime, timedelta

from underseal.canonical import params_hash
from underseal.errors import SealError, UndersealError
from underseal.held.claim import Claim, ClaimedVote
from underseal.held.kinds import Kind
from underseal.held.model import shown_digest
from underseal.held.payload import DecisionSeal, Payload
from underseal.held.refusal import Refusal
from underseal.seal import KeyRing

TOLERANCE = timedelta(seconds=60)
"""How far a column may be from the instant that was sealed just before it was written."""


@dataclass(frozen=True, slots=True)
class Sealed:
    """What the seals of an operation say, once they have been found to agree with its row.

    Attributes:
        payload: the opened request.
        approvers: who approved, by the seals.
        rejections: how many rejected, by the seals.
        last_cast_at: when the last approval was cast, by the seals.
        run_deadline: derived from the seals alone.
    """

    payload: Payload
    approvers: frozenset[str]
    rejections: int
    last_cast_at: datetime
    run_deadline: datetime


def check_integrity(claim: Claim, kind: Kind, ring: KeyRing) -> Sealed:
    """Open every seal of a claimed operation and compare it with the row.

    Parameters:
        claim: the row, as the claim returned it.
        kind: the type, as it is known here; of another version it cannot redact, and the run is
            refused for that a little later.
        ring: the keys; those for payloads and decisions are needed.

    Errors:
        Refusal: `integrity`; or `key-unavailable`, if a seal names a key that this ring has not,
            which a claim never hands out unless somebody wrote to the row by hand.
    """
    try:
        payload = Payload.opened(claim.sealed_payload, ring, claim.operation_id)
        _check_identity(claim, payload)
        _check_hash(payload)
        sealed = _check_decisions(claim, payload, ring)
        _check_deadlines(claim, sealed)
        _check_functions(claim, kind, payload)
        _check_redaction(claim, kind, payload)
        return sealed
    except SealError as error:
        reason = error.reason if error.reason in ("key-unavailable", "key-destroyed") else "integrity"
        detail = f"a seal of this operation was refused: {error.reason}"
    except Refusal:
        raise
    except UndersealError as error:
        reason, detail = "integrity", f"a column has no canonical form: {error.code}"
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        reason, detail = (
            "integrity",
            f"a seal or a column has an unexpected shape: {error.__class__.__name__}",
        )
    # Outside the handlers: nothing that was opened is chained to the refusal.
    raise Refusal(reason, detail)


def _differs(what: str) -> Refusal:
    return Refusal("integrity", f"{what} is not what was sealed")


def _check_identity(claim: Claim, payload: Payload) -> None:
    """The columns that never change must say what the seal says (clause H2.5)."""
    pairs = {
        "operation_id": (claim.operation_id, payload.operation_id),
        "type": (claim.type, payload.type),
        "version": (claim.version, payload.version),
        "mode": (claim.mode, payload.mode),
        "params_hash": (claim.params_hash.hex(), payload.params_hash),
        "requester": (claim.requester, payload.requester),
        "auth_kind": (claim.auth_kind, payload.auth_kind),
        "token_id": (claim.token_id, payload.token_id),
        "policy_digest": (claim.policy_digest.hex(), payload.policy_digest),
        "state_key": (claim.state_key, payload.state_key),
    }
    for column, (found, sealed) in pairs.items():
        if found != sealed:
            raise _differs(f"column {column}")


def _check_hash(payload: Payload) -> None:
    """The hash, and the policy's digest, are computed again from what was opened."""
    if (
        params_hash(payload.type, payload.version, payload.canonical, payload.salt).hex()
        != payload.params_hash
    ):
        raise Refusal("integrity", "the hash of the opened parameters is not the sealed one")
    if hashlib.sha256(payload.policy.encode()).hexdigest() != payload.policy_digest:
        raise Refusal("integrity", "the digest of the sealed policy is not the sealed one")


def _check_decisions(claim: Claim, payload: Payload, ring: KeyRing) -> Sealed:
    """Every decision opens and is about exactly this; enough of them, by others, approve (clause H2.12)."""
    policy = json.loads(payload.policy)
    shown = shown_digest(claim.type, claim.version, claim.mode, claim.requester, claim.redacted, claim.effect)
    opened = [
        DecisionSeal.opened(vote.sealed_decision, ring, claim.operation_id, vote.approver)
        for vote in claim.votes
    ]
    for vote, decision in zip(claim.votes, opened, strict=True):
        _check_decision(claim, payload, vote, decision)
        if decision.shown != shown:
            raise Refusal("integrity", f"what {vote.approver} was shown is not what the row shows")
    approvals = [decision for decision in opened if decision.decision == "approve"]
    rejections = sum(decision.decision == "reject" for decision in opened)
    if len(approvals) + rejections != len(opened) or rejections >= policy["rejections_to_end"]:
        raise Refusal("integrity", "a decision does not say approve")
    approvers = frozenset(decision.approver for decision in approvals)
    if payload.requester in approvers:
        raise Refusal("integrity", "the requester is among the approvers")
    if len(approvers) < policy["votes_required"]:
        needed = policy["votes_required"]
        raise Refusal("integrity", f"the sealed policy demands {needed} approvals, {len(approvers)} found")
    last_cast_at = max(decision.cast_at for decision in approvals)
    deadline = last_cast_at + timedelta(seconds=payload.run_within)
    return Sealed(payload, approvers, rejections, last_cast_at, deadline)


def _check_decision(claim: Claim, payload: Payload, vote: ClaimedVote, decision: DecisionSeal) -> None:
    pairs = {
        "operation": (decision.operation_id, claim.operation_id),
        "approver": (decision.approver, vote.approver),
        "decision": (decision.decision, vote.decision),
        "hash": (decision.params_hash, payload.params_hash),
        "hash in the row": (vote.params_hash, payload.params_hash),
        "version": (decision.row_version, claim.row_version),
        "version in the row": (vote.row_version, claim.row_version),
    }
    for what, (found, expected) in pairs.items():
        if found != expected:
            raise Refusal("integrity", f"the decision of {vote.approver} is for another {what}")
    if abs(vote.cast_at - decision.cast_at) > TOLERANCE:
        raise _differs(f"the instant of {vote.approver}'s vote")
    expires_at = payload.sealed_at + timedelta(seconds=payload.hold_for)
    if not payload.sealed_at - TOLERANCE <= decision.cast_at <= expires_at + TOLERANCE:
        raise Refusal("integrity", f"{vote.approver} voted outside the time that the request was held for")


def _check_deadlines(claim: Claim, sealed: Sealed) -> None:
    """Columns agree with the sealed instants and durations, and the claim was in time by those (clause H9.3)."""
    payload = sealed.payload
    expected = {
        "requested_at": (claim.requested_at, payload.sealed_at),
        "expires_at": (claim.expires_at, payload.sealed_at + timedelta(seconds=payload.hold_for)),
        "approved_at": (claim.approved_at, sealed.last_cast_at),
        "run_deadline": (claim.run_deadline, sealed.run_deadline),
    }
    for column, (found, derived) in expected.items():
        if abs(found - derived) > TOLERANCE:
            raise _differs(f"column {column}")
    if claim.claimed_at >= sealed.run_deadline + TOLERANCE:
        raise Refusal("integrity", "the run was claimed past the sealed run deadline")


def _check_functions(claim: Claim, kind: Kind, payload: Payload) -> None:
    """What does it is what the seal says does it: the table that names the functions is only a table."""
    if kind.version == claim.version and json.loads(payload.policy).get("functions") != kind.functions:
        raise Refusal("integrity", "the functions that do it are not those that were sealed")


def _check_redaction(claim: Claim, kind: Kind, payload: Payload) -> None:
    """The redacted copy, made again, is the one that approvers saw (clause H2.10)."""
    if kind.version != claim.version:
        return
    if kind.redacted(payload.canonical) != claim.redacted:
        raise Refusal(
            "integrity", "the redacted copy made from the opened parameters is not the one in the row"
        )
