"""What must hold whatever a writer did: nothing ran that was not approved as sealed, and nothing ran twice.

The audit knows what honest people did, from their own memory: what a requester asked for, and what an approver saw when
they said yes. It compares that with what the service's method did, and believes no column.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from uuid import UUID

from tests.held.python.worlds import REQUESTER, PayoutParams, World

from underseal import Held, Operation, UndersealError


@dataclass
class Audit:
    """Honest people and their memory.

    Attributes:
        asked: amount of each operation, as its requester asked for it; each amount is used once.
        agreed: operations that an approver agreed to, by the amount they saw.
    """

    world: World
    asked: dict[UUID, int] = field(default_factory=dict)
    agreed: set[int] = field(default_factory=set)

    def hold(self) -> Held:
        """An honest request for an amount that no other has."""
        amount = 100 + len(self.asked)
        held = self.world.hold(cents=amount)
        self.asked[held.operation_id] = amount
        return held

    def approve(self, held: Held, approver: str = "ann") -> str:
        """An honest approver looks and agrees to what they see, if they see anything they can understand."""
        voter = self.world.client(run_on_approval=False)
        try:
            shown = voter.get(held, approver)
            if shown is None or shown.state != "HELD":
                return "nothing to decide"
            outcome = voter.approve(shown, approver).outcome
            if outcome in ("approved", "recorded"):
                self.agreed |= _amounts(shown)
            return str(outcome)
        except (UndersealError, ValueError):
            return "not understood"
        finally:
            voter.close()

    def push(self, held: Held) -> None:
        """Let everybody do what they can to have it run: approvers, workers, the sweep."""
        for approver in ("ann", "bob"):
            self.approve(held, approver)
        for _ in range(2):
            self.world.us.run(held)
            self.world.us.run_approved(10)
        self.world.us.sweep()

    def check(self) -> None:
        """Compare what was done with what was asked and agreed."""
        done = Counter(params.cents for _, _, params in self.world.service.done)
        for type_, principal, params in self.world.service.done:
            assert type_ == "payout.send"
            assert principal == REQUESTER.id, f"ran as {principal}"
            assert isinstance(params, PayoutParams)
            assert params.order == "o-1"
            assert params.cents in self.asked.values(), f"{params.cents} was never asked for"
            assert params.cents in self.agreed, f"nobody agreed to {params.cents}"
        assert all(times == 1 for times in done.values()), f"something ran twice: {done}"


def _amounts(shown: Operation) -> set[int]:
    """The amount that parameters and effect both say; a person who sees two different ones agrees to neither."""
    said = (json.loads(shown.redacted).get("cents"), json.loads(shown.effect).get("pays"))
    return {said[0]} if said[0] == said[1] else set()
