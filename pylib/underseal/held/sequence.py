"""The run, from the claim to its end: one sequence for every caller (clause H6.11).

The order is fixed: integrity, (spent,) armed, version, approval, principal, state key, effect,
check_run, ticket, run. The first refusal wins and is the one recorded. No I/O happens here: what
must be asked of the world is yielded (foundation/steps.py).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

from underseal.errors import ReplayRefused
from underseal.foundation.steps import Steps, call
from underseal.held.claim import Claim
from underseal.held.hidden import hidden_texts, tells
from underseal.held.integrity import TOLERANCE, Sealed, check_integrity
from underseal.held.kinds import Kind
from underseal.held.model import Principal, State, effect_text
from underseal.held.refusal import Refusal
from underseal.held.replay import RunLost
from underseal.seal import KeyRing

Rebuild = Callable[[str, str, str | None], Any]
"""(id, auth_kind, token_id) → `Principal`, or None if they may not act any more; sync or async."""

Spend = Callable[[UUID, timedelta], Any]
"""A spent register's `spend`."""

_KEEP_SPENT = timedelta(days=1)
_COUNTED = ("votes_required", "rejections_to_end", "hold_for", "run_within")


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run ended, to be recorded.

    Attributes:
        state: SUCCEEDED, FAILED or REFUSED.
        reason, detail: why, for the record; never a parameter.
        value: what the method returned.
        error: the exception it raised.
        told: whether the value repeats a hidden parameter, and must not be stored.
    """

    state: State
    reason: str | None = None
    detail: str | None = None
    value: Any = field(default=None, repr=False)
    error: BaseException | None = field(default=None, repr=False)
    told: bool = False


def run_sequence(
    claim: Claim, kind: Kind, ring: KeyRing, rebuild: Rebuild, spend: Spend | None
) -> Steps[Ended]:
    """Judge a claimed run and, if nothing refuses it, do it.

    Parameters:
        claim: the claimed row.
        kind: its type as it is known here.
        ring: the keys.
        rebuild: gives the requester's principal, or None.
        spend: a spent register's, where the id is spent at the claim.

    Errors:
        RunLost: the run is not ours any more; nothing may be recorded.
    """
    try:
        sealed = check_integrity(claim, kind, ring)
        yield from _check_unspent(claim, sealed, spend)
        _check_armed(claim)
        _check_version(claim, kind)
        _check_approval(claim, sealed)
        principal = yield from _rebuilt(claim, rebuild)
        arguments = kind.arguments(sealed.payload.canonical)

        def as_requester() -> Steps[Any]:
            effect = yield from kind.estimate(principal, arguments)
            _check_state_key(sealed, effect.state_key)
            _check_effect(claim, effect_text(effect.effect), kind.drifting)
            _check_run((yield from kind.check_run(principal, arguments)))
            return (yield from kind.run(claim, principal, arguments, sealed.payload.canonical))

        value = yield from kind.as_requester(principal, as_requester, keep=True)
    except Refusal as refusal:
        return Ended("REFUSED", refusal.reason, refusal.detail)
    except ReplayRefused as refused:
        reason = "ticket" if refused.reason == "ticket-refused" else "integrity"
        return Ended("REFUSED", reason, f"the method was not let run: {refused.reason}", error=refused)
    except RunLost:
        raise
    except Exception as error:  # noqa: BLE001 -- whatever a provider raises ends its run
        state, reason, detail = kind.failure(error)
        return Ended(state, reason, detail, error=error)
    hidden = hidden_texts(sealed.payload.canonical, claim.redacted) if kind.salted else frozenset()
    return Ended("SUCCEEDED", value=value, told=tells(value, hidden))


def keep_spent(claim: Claim, sealed: Sealed) -> timedelta:
    """How long a spent id must be remembered: past the sealed deadline, whatever the columns say (clause H8.5).

    Parameters:
        claim: the claimed row.
        sealed: what its seals say.
    """
    return max(sealed.run_deadline - claim.claimed_at, timedelta(0)) + TOLERANCE + _KEEP_SPENT


def _check_unspent(claim: Claim, sealed: Sealed, spend: Spend | None) -> Steps[None]:
    if spend is None:
        return
    try:
        first = yield from call(spend, claim.operation_id, keep_spent(claim, sealed))
    except Exception as error:  # noqa: BLE001 -- no answer is no permission
        name = error.__class__.__name__
        raise Refusal("register-unavailable", f"the spent register did not answer: {name}") from None
    if not first:
        raise Refusal("spent", "the spent register has this operation: it was run or cancelled before")


def _check_armed(claim: Claim) -> None:
    if not claim.armed:
        raise Refusal("provider-disarmed", f"{claim.type} is switched off")


def _check_version(claim: Claim, kind: Kind) -> None:
    if claim.version != claim.current_version or kind.version != claim.version:
        raise Refusal(
            "version-changed",
            f"{claim.type} is at version {claim.current_version}, requested was {claim.version}: request again",
        )


def _check_approval(claim: Claim, sealed: Sealed) -> None:
    """The policy in force now must be met too, by approvers who are still eligible (clause H2.12)."""
    policy = _numbers(claim.policy_in_force)
    gone = sealed.approvers - claim.eligible
    if gone:
        raise Refusal("approval-lapsed", f"no longer eligible: {', '.join(sorted(gone))}")
    if len(sealed.approvers) < policy["votes_required"]:
        raise Refusal("approval-lapsed", f"the policy now demands {policy['votes_required']} approvals")
    if sealed.rejections >= policy["rejections_to_end"]:
        raise Refusal("approval-lapsed", "the policy now ends at fewer rejections than there are")
    if sealed.last_cast_at > sealed.payload.sealed_at + timedelta(seconds=policy["hold_for"]) + TOLERANCE:
        raise Refusal("approval-lapsed", "the policy now holds for less time than the approval took")
    if claim.claimed_at > sealed.last_cast_at + timedelta(seconds=policy["run_within"]) + TOLERANCE:
        raise Refusal("approval-lapsed", "the policy now gives a run less time than has passed")


def _numbers(policy: str) -> dict[str, int]:
    try:
        whole = json.loads(policy)
        return {name: int(whole[name]) for name in _COUNTED}
    except (KeyError, TypeError, ValueError):
        raise Refusal("approval-lapsed", "the policy in force cannot be read") from None


def _rebuilt(claim: Claim, rebuild: Rebuild) -> Steps[Principal]:
    try:
        principal = yield from call(rebuild, claim.requester, claim.auth_kind, claim.token_id)
    except Exception as error:  # noqa: BLE001 -- no answer is no permission
        raise Refusal(
            "requester-unavailable",
            f"the service could not rebuild the requester: {error.__class__.__name__}",
        ) from None
    if principal is None:
        raise Refusal("requester-unavailable", "the service knows no such requester who may act now")
    if not isinstance(principal, Principal) or principal.id != claim.requester:
        raise Refusal("requester-unavailable", "the service gave another principal than the requester")
    return principal


def _check_state_key(sealed: Sealed, state_key: str) -> None:
    if state_key != sealed.payload.state_key:
        raise Refusal(
            "state-changed", "the state that the effect was estimated in has changed since the request"
        )


def _check_effect(claim: Claim, effect: str, drifting: frozenset[str]) -> None:
    before, now = json.loads(claim.effect), json.loads(effect)
    changed = sorted(
        name
        for name in (before.keys() | now.keys()) - drifting
        if before.get(name, ...) != now.get(name, ...)
    )
    if changed:
        raise Refusal("effect-changed", f"the effect is estimated otherwise now: {', '.join(changed)}")


def _check_run(reason: str | None) -> None:
    if reason is not None:
        raise Refusal(reason, "the provider's check_run did not agree")
