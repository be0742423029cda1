"""What must hold whatever a writer did: nothing ran that was not approved as sealed, and nothing ran twice.

The audit knows what honest people did, from their own memory: what a requester asked for, and what approvers saw when
they said yes. It compares that with what the service's method did, and believes no column.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple
from uuid import UUID

import psycopg

from tests.held.python.worlds import HOUR, REQUESTER, PayoutParams, PayoutSend, World
from underseal import Held, Operation, Policy, Principal, UndersealError

APPROVERS = ("ann", "bob", "cy")


class Deed(NamedTuple):
    """A payout: what it is, whose, how much."""

    type: str
    requester: str
    cents: int


class PairSend(PayoutSend):
    """A payout that two people must agree to."""

    type = "payout.pair"
    policy = Policy(votes_required=2, approvers=APPROVERS, hold_for=HOUR, run_within=HOUR)


class Audit:
    """Honest people and their memory.

    Attributes:
        send: the gated method that needs two approvals.
        asked: what was asked for; each amount is used once.
        held: the operation of each request.
        agreed: what approvers agreed to, as they saw it, and who did.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.send = world.gate(world.us, PairSend(world.service))
        world.register()
        self.voter = world.client(run_on_approval=False)
        self.asked: list[Deed] = []
        self.held: list[UUID] = []
        self.agreed: defaultdict[Deed, set[str]] = defaultdict(set)

    def close(self) -> None:
        """Close what was opened here."""
        self.voter.close()

    def hold(self, requester: Principal = REQUESTER) -> Held:
        """An honest request for an amount that no other has."""
        self.asked.append(Deed("payout.pair", requester.id, 100 + len(self.asked)))
        held = self.send(requester, PayoutParams(order="o-1", cents=self.asked[-1].cents))
        assert isinstance(held, Held)
        self.held.append(held.operation_id)
        return held

    def was_done(self, held: Held) -> bool:
        """Whether the payout of an operation was made."""
        deed = self.asked[self.held.index(held.operation_id)]
        return any(params.cents == deed.cents for _, _, params in self.world.service.done)

    def approve(self, held: Held, approver: str) -> str:
        """An honest approver looks and agrees to what they see, if they see anything they can understand."""
        try:
            shown = self.voter.get(held, approver)
            if shown is None or shown.state != "HELD":
                return "nothing to decide"
            deed = _deed(shown)
            if deed is None:
                return "not understood"
            outcome = str(self.voter.approve(shown, approver).outcome)
        except (UndersealError, psycopg.Error, AttributeError, TypeError, ValueError):
            return "not understood"
        if outcome in ("approved", "recorded"):
            self.agreed[deed].add(approver)
        return outcome

    def push(self, operations: Iterable[Held]) -> None:
        """Let everybody do what they can to have these run: approvers, workers, the sweep."""
        operations = list(operations)
        for held in operations:
            for approver in ("bob", "ann"):
                self.approve(held, approver)
            self.world.us.run(held)
        self.world.us.run_approved(1000)
        self.world.us.sweep()

    def check(self) -> None:
        """Compare what was done with what was asked and agreed."""
        done = Counter(Deed(kind, who, params.cents) for kind, who, params in self.world.service.done)
        for deed, times in done.items():
            assert deed in self.asked, f"{deed} was never asked for"
            assert len(self.agreed[deed]) >= 2, f"{deed} was agreed to by {self.agreed[deed] or 'nobody'}"
            assert times == 1, f"{deed} was done {times} times"
        assert all(params.order == "o-1" for _, _, params in self.world.service.done)


def _deed(shown: Operation) -> Deed | None:
    """What the screen says; a person who reads two different amounts, or none, agrees to nothing."""
    redacted, effect = (_amount(shown.redacted, "cents"), _amount(shown.effect, "pays"))
    if redacted != effect or not isinstance(redacted, int):
        return None
    return Deed(shown.type, shown.requester, redacted)


def _amount(text: str | None, name: str) -> Any:
    value = json.loads(text or "null")
    return value.get(name) if isinstance(value, dict) else None
