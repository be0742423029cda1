"""What lies outside the processes of the scenarios of held operations: what was asked, what bodies did, who may act.

An office is made anew for each run. All nodes of the run share it: it is the disks, the users' memory and the systems
of others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from pydantic import BaseModel, SecretStr

from underseal import AsyncUnderseal, Effect, Held, MemoryKeyRing, Policy, Principal, Provider
from underseal.flow.batches import AWAY
from underseal.held.replay import running
from underseal.testing.simulation import Node, Simulation

LEASE: Final = 10.0
"""Seconds that the lease of a run lasts in these scenarios."""
RENEWED: Final = timedelta(seconds=1)
LONG: Final = timedelta(seconds=25)
MEDIUM: Final = timedelta(seconds=8)
SHORT: Final = timedelta(seconds=3)

RITA: Final = Principal("rita")
RON: Final = Principal("ron")
RITAS_KEY: Final = Principal("rita", "token", "t-1")
"""Rita again, by a token of hers."""


class Payment(BaseModel):
    """Nothing secret. What an order is called, up to the hyphen, says what becomes of it."""

    order: str
    cents: int


class Card(BaseModel):
    """Something secret."""

    order: str
    pin: SecretStr


@dataclass(frozen=True)
class Order:
    """What somebody will ask for.

    Attributes:
        params: what exactly.
        who: who asks.
        type: for which type.
        after: seconds since the order before.
    """

    params: Payment | Card
    who: Principal = RITA
    type: str = "payout.send"
    after: float = 0.2

    @property
    def name(self) -> str:
        """What it is called."""
        return self.params.order

    @property
    def key(self) -> str:
        """Whose it is, and what it is called."""
        return f"{self.who.id} {self.name}"


@dataclass
class Switch:
    """Something that was changed while operations were under way, after which they must not be run.

    Attributes:
        what: what was changed.
        forbids: whether it concerns an operation, given as a row of the books.
        since: the witness's number from which on it surely held.
        until: up to which number it surely held.
    """

    what: str
    forbids: Callable[[dict[str, Any]], bool]
    since: int
    until: float = float("inf")


class PayoutSend(Provider[Payment]):
    """An ON_APPROVAL type that two of three approve."""

    type = "payout.send"
    version = 1
    params = Payment
    policy = Policy(approvers=("ann", "bob", "cy"), votes_required=2, hold_for=LONG, run_within=LONG)
    safe_errors = (LookupError,)

    def __init__(self, office: Office | None) -> None:
        self.office = office

    def estimate(self, principal: Principal, params: Payment) -> Effect:
        """What it would do, in the state that the order is in."""
        assert self.office is not None
        return Effect({"pays": params.cents}, self.office.states.get(params.order, "open"))

    def check_run(self, principal: Principal, params: Payment) -> str | None:
        """Some are disputed."""
        return "disputed" if params.order.startswith("disputed") else None


class PayoutSoon(PayoutSend):
    """One that one of two approves, and that has little time for everything."""

    type = "payout.soon"
    policy = Policy(approvers=("ann", "bob"), hold_for=SHORT, run_within=SHORT)


class Refund(PayoutSend):
    """One of which the host says who approves it."""

    type = "refund.send"
    policy = Policy(approver_hook="app.may_approve", votes_required=2, hold_for=LONG, run_within=LONG)


class CardIssue(Provider[Card]):
    """A BY_REQUESTER type with a secret that either of two approves."""

    type = "card.issue"
    version = 1
    params = Card
    mode = "BY_REQUESTER"
    policy = Policy(approvers=("ann", "bob"), hold_for=LONG, run_within=MEDIUM)
    safe_errors = (LookupError,)

    def __init__(self, office: Office | None) -> None:
        self.office = office

    def estimate(self, principal: Principal, params: Card) -> Effect:
        """What it would do."""
        return Effect({"issues": params.order}, "open")


PROVIDERS: Final = (PayoutSend, PayoutSoon, Refund, CardIssue)


def provider(kind: Any, office: Office | None) -> Provider[Any]:
    """One of them, in an office, or to be registered."""
    made: Provider[Any] = kind(office)
    return made


@dataclass
class Office:
    """The world around the nodes of one run.

    Attributes:
        simulation: the run.
        orders: what is to be asked for, in this order.
        asked: the operations that their requesters know of, and what they asked for.
        sent: how often each order was held anew, by its key; those that were not asked for are missing.
        given: what requesters were given by their own calls, by the order's key.
        states: the state of an order, where it is not `open`.
        gone: who may not act any more.
        switches: what was changed meanwhile.
        outbox: what a consumer has read, by position.
    """

    simulation: Simulation
    orders: tuple[Order, ...]
    asked: dict[UUID, dict[str, Any]] = field(default_factory=dict)
    sent: dict[str, int] = field(default_factory=dict)
    given: dict[str, Any] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)
    gone: dict[str, bool] = field(default_factory=dict)
    switches: dict[str, Switch] = field(default_factory=dict)
    outbox: dict[int, tuple[str, int, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Mint the keys; those who only approve have one of them."""
        self.ring = MemoryKeyRing.with_all()
        self.approvers_ring = MemoryKeyRing(self.ring.live("decision"))

    # -- clients -----------------------------------------------------------------------------------

    def full(self, node: Node, **options: Any) -> tuple[AsyncUnderseal, dict[str, Any]]:
        """A client with all keys that can run everything, and its gated methods by type."""
        us = node.client(keys=self.ring, principals=self.principal, renew_every=RENEWED, **options)
        body = self._body(us)
        return us, {one.type: us.gate(provider(one, self))(body) for one in PROVIDERS}

    def approving(self, node: Node) -> AsyncUnderseal:
        """A client that can vote, and nothing else."""
        return node.client(keys=self.approvers_ring, serve_sql=False)

    def principal(self, name: str, kind: str, token: str | None) -> Principal | None:
        """Rebuild who asked, if they may act still."""
        return None if name in self.gone else Principal(name, kind, token)

    # -- what bodies do ----------------------------------------------------------------------------

    def _body(self, us: AsyncUnderseal) -> Any:
        async def body(who: Principal, params: Any) -> dict[str, str]:
            return await self._do(us, who, params)

        return body

    async def _do(self, us: AsyncUnderseal, who: Principal, params: Payment | Card) -> dict[str, str]:
        now = running.get()
        if now is None:
            self.simulation.wrong(f"the body of {params.order} was run outside of a run")
            return {}
        row = {
            "operation_id": now.operation_id,
            "params": plain(params),
            "principal": who.id,
            "token": who.token_id,
        }
        self.simulation.effect("run", row)
        await self._work(us, params.order.partition("-")[0])
        self.simulation.effect("ran", row)
        if params.order.startswith("failing"):
            raise LookupError("no such account")
        return {"done": params.order}

    async def _work(self, us: AsyncUnderseal, how: str) -> None:
        if how not in ("slow", "halting"):
            await asyncio.sleep(0.05)
            return
        # longer than a lease; or with a moment in which it may well be stopped
        parts, each = (5, LEASE / 4) if how == "slow" else (5, 0.4)
        for part in range(parts):
            await asyncio.sleep(each)
            try:
                await us.progress(f"{part + 1} of {parts}")
            except AWAY:
                continue

    # -- what is noted -----------------------------------------------------------------------------

    def held(self, order: Order, held: Held) -> None:
        """A requester was told that it is held."""
        if not held.duplicate:
            self.sent[order.key] = self.sent.get(order.key, 0) + 1
        else:
            self.sent.setdefault(order.key, 0)
        self.asked[held.operation_id] = {"operation_id": held.operation_id, "params": plain(order.params)}

    def switch(self, what: str, forbids: Callable[[dict[str, Any]], bool]) -> None:
        """Something was changed, just now or before."""
        self.switches.setdefault(what, Switch(what, forbids, self.simulation.server.noted()))
        self.simulation.note(self.simulation.who, what)

    def switch_back(self, what: str) -> None:
        """It is about to be changed back."""
        found = self.switches[what]
        found.until = min(found.until, self.simulation.server.noted())


def plain(params: Payment | Card) -> dict[str, Any]:
    """Parameters as they are compared."""
    if isinstance(params, Card):
        return {"order": params.order, "pin": params.pin.get_secret_value()}
    return params.model_dump()
