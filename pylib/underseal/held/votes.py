"""A vote: sealed over what was on the approver's screen, cast as one conditional update (clauses H2.2, H2.9, H4)."""

from __future__ import annotations

from underseal.errors import RequestRefused
from underseal.foundation.steps import Steps, Undo, atomic
from underseal.held import kernel
from underseal.held.core import Core
from underseal.held.model import Decision, Echo, VoteOutcome, shown_digest
from underseal.held.payload import DecisionSeal
from underseal.held.request import STALE

_TRIES = 5


def vote_steps(
    core: Core, echo: Echo, approver: str, decision: Decision, reason: str | None
) -> Steps[VoteOutcome]:
    """Cast a vote on exactly what was shown.

    Parameters:
        core: the client's state; a decision key is needed, no other.
        echo: what the approver was shown.
        approver: who votes.
        decision: `approve` or `reject`.
        reason: why; a rejection needs one.

    Errors:
        SealError: the decision key is missing.
        RequestRefused: `stale-seal`, if the vote took more than 30 seconds to arrive, five times.
    """

    def block() -> Steps[VoteOutcome | None]:
        seen = yield from kernel.get_operation(echo.operation_id, approver)
        if seen["outcome"] != "found":
            return VoteOutcome(seen["outcome"], seen["reason"], seen["message"])
        now = shown_digest(
            seen["type"], seen["version"], seen["mode"], seen["requester"], seen["redacted"], seen["effect"]
        )
        if now != echo.shown:
            return VoteOutcome("conflict", "version-mismatch", _CHANGED, state=seen["state"])
        sealed = DecisionSeal(
            operation_id=echo.operation_id,
            approver=approver,
            decision=decision,
            reason=reason,
            params_hash=echo.params_hash.hex(),
            row_version=echo.row_version,
            shown=echo.shown,
            cast_at=seen["now"],
        ).sealed(core.keys)
        row = yield from kernel.vote(
            echo.operation_id, approver, decision, reason, echo.params_hash, echo.row_version, sealed
        )
        if row["cast_at"] is not None and abs(row["cast_at"] - seen["now"]) > STALE:
            raise Undo(None)
        return VoteOutcome(
            row["outcome"], row["reason"], row["message"], row["state"], row["votes"], row["votes_required"],
            row["cast_at"],
        )  # fmt: skip

    for _ in range(_TRIES):
        outcome = yield from atomic(block)
        if outcome is not None:
            return outcome
    raise RequestRefused(
        "stale-seal", f"the vote took more than {STALE.seconds} seconds to reach the database"
    )


_CHANGED = (
    "Expected what you were shown, found that the requester, the type, the redacted parameters or the effect "
    "have changed. Look at it again, then decide."
)
