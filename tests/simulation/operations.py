"""Scenarios of held operations: asked for, approved, run and ended by several processes, whatever happens to them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from pydantic import SecretStr

from tests.simulation.office import RITA, RITAS_KEY, RON, Card, Office, Order, Payment
from tests.simulation.office_audit import at_rest, judge
from tests.simulation.office_stage import prepare
from tests.simulation.people import approver, device, requester
from tests.simulation.staff import (
    arms,
    confused,
    consumer,
    disarms,
    dismisses,
    drifts,
    hand,
    moves,
    removes,
    runner,
    sweeper,
    waits,
    worker,
)
from underseal import Principal
from underseal.testing.simulation import Scenario, Simulation, Stage


def payments(
    *names: str, who: Principal = RITA, kind: str = "payout.send", after: float = 0.2
) -> tuple[Order, ...]:
    """Orders of these names."""
    return tuple(
        Order(Payment(order=name, cents=number), who, kind, after) for number, name in enumerate(names, 1)
    )


def cards(*names: str, who: Principal = RITA) -> tuple[Order, ...]:
    """Cards of these names."""
    return tuple(
        Order(Card(order=name, pin=SecretStr(f"pin of {name}")), who, "card.issue") for name in names
    )


_OFTEN: Final = ("w1", "w1", "w1", "w2", "w2")
"""What goes wrong goes wrong most often with who runs operations."""


class _Scene:
    """A scenario whose audit knows the office of the run before it."""

    def __init__(self, orders: tuple[Order, ...], build: Callable[[Simulation, Office], None]) -> None:
        self.orders = orders
        self._build = build
        self._office: Office

    def build(self, simulation: Simulation) -> None:
        self._office = Office(simulation, self.orders)
        self._build(simulation, self._office)

    def audit(self, _: Simulation, stage: Stage) -> list[str]:
        return judge(self._office, stage)


def _scenario(
    name: str, orders: tuple[Order, ...], build: Callable[[Simulation, Office], None], **options: Any
) -> Scenario:
    scene = _Scene(orders, build)
    given: dict[str, Any] = {"calls": 60, "most": 8, "longest": 14.0, "calm_after": 40.0, "at_most": 300.0}
    return Scenario(
        name,
        scene.build,
        scene.audit,
        prepare=partial(prepare, orders=orders),
        rest=at_rest,
        **(given | options),
    )


def _payouts(sim: Simulation, office: Office) -> None:
    sim.node("w1", worker(office), serves=True)
    sim.node("w2", worker(office, stops=6.0), serves=True, after=0.1)
    sim.node("desk", requester(office))
    sim.node("ann", approver(office, "ann"), serves=True, after=0.4)
    sim.node("bob", approver(office, "bob", runs=True), serves=True, after=0.5)
    sim.node("cy", approver(office, "cy", pause=0.9), serves=True, after=0.5)
    sim.node("confused", confused(office), serves=True, after=1.0)


PAYOUTS: Final = _scenario(
    "payouts",
    payments(
        "plain-1", "slow-1", "failing-1", "halting-1", "mistaken-1", "halting-2", "rejected-1", "halting-3",
        "disputed-1", "withdrawn-1",
    ),
    _payouts,
    nodes=(*_OFTEN, "desk", "ann", "bob", "bob", "cy"),
    optional=("w1", "w2", "cy", "confused"),
)  # fmt: skip
"""Payouts that two of three approve, who race; one of them runs what he approves, workers run the rest, of which one is
told to stop now and then; and somebody says of runs that are not theirs that they failed."""


def _runners(sim: Simulation, office: Office) -> None:
    for number, name in enumerate(_RUNNERS):
        sim.node(name, runner(office), serves=True, after=number / 10)
    sim.node("desk", requester(office))
    sim.node("ann", approver(office, "ann"), serves=True, after=0.4)
    sim.node("bob", approver(office, "bob"), serves=True, after=0.5)
    sim.node("sweep", sweeper(office, 20.0), serves=True)


_RUNNERS: Final = ("run1", "run2", "run3")

RUNNERS: Final = _scenario(
    "runners",
    payments(
        "halting-1", "halting-2", "slow-1", "halting-3", "failing-1", "halting-4", "halting-5", "halting-6"
    ),
    _runners,
    nodes=(*_RUNNERS, *_RUNNERS, "desk", "ann", "bob"),
    optional=("run2", "run3", "sweep"),
    longest=45.0,
)
"""Payouts that three run as soon as they see them, all of them at once, though sweeps are rare: somebody who comes back
after a lease finds the run as it was."""


def _requesters(sim: Simulation, office: Office) -> None:
    sim.node("phone", device(office, RITA, RITAS_KEY))
    sim.node("laptop", device(office, RITA), after=0.2)
    sim.node("other", device(office, RON), after=0.3)
    sim.node("ann", approver(office, "ann"), serves=True, after=0.4)
    sim.node("bob", approver(office, "bob"), serves=True, after=0.4)
    sim.node("w1", worker(office), serves=True)


REQUESTERS: Final = _scenario(
    "requesters",
    (
        *cards("plain-1", "bound-1", "halting-1", "failing-1", "rejected-1", "slow-1", "halting-2"),
        *cards("plain-1", who=RON),
    ),
    _requesters,
    nodes=("phone", "phone", "phone", "laptop", "laptop", "other", "ann", "bob", "w1"),
    optional=("laptop", "other", "bob"),
)
"""Cards that requesters are given by their own calls: somebody calls from two devices at once, one with a token, and
somebody else asks for the same."""


def _sql(sim: Simulation, office: Office) -> None:
    sim.node("w1", worker(office, sql=True), serves=True)
    sim.node("w2", worker(office, sql=True), serves=True, after=0.1)
    sim.node("desk", requester(office))
    sim.node("ann", approver(office, "ann"), serves=True, after=0.4)
    sim.node("bob", approver(office, "bob", runs=True), serves=True, after=0.5)
    sim.node("hand", hand(office, waits(1.0), moves("moving-1"), waits(0.7), moves("moving-2")))


SQL: Final = _scenario(
    "sql",
    (
        *payments("plain-1", "failing-1", "moving-1", "foreign-1", "moving-2", "disputed-1", kind="account.pay"),
        *payments("plain-2", "plain-3", who=RON, kind="account.pay"),
    ),
    _sql,
    nodes=(*_OFTEN, "desk", "ann", "bob", "bob", "hand"),
    optional=("w1", "w2", "bob", "hand"),
)  # fmt: skip
"""Payments that SQL functions make, in the requesters' roles: with their end, or not at all."""


def _sweeps(sim: Simulation, office: Office) -> None:
    sim.node("w1", worker(office, poll=0.5, idle=4.0), serves=True)
    sim.node("w2", worker(office, poll=0.5, idle=4.0), serves=True, after=0.3)
    sim.node("sweep1", sweeper(office, 0.8), serves=True)
    sim.node("sweep2", sweeper(office, 0.8), serves=True, after=0.1)
    sim.node("desk", requester(office))
    sim.node("ann", approver(office, "ann", pause=0.8, thinks=0.25), serves=True, after=0.4)
    sim.node("bob", approver(office, "bob", pause=1.0, thinks=0.3), serves=True, after=0.5)
    sim.node("books", consumer(office), serves=True)


SWEEPS: Final = _scenario(
    "sweeps",
    payments(
        "plain-1", "ignored-1", "slow-1", "halting-1", "halting-2", "ignored-2", "halting-3", "slow-2",
        kind="payout.soon",
    ),
    _sweeps,
    nodes=("w1", "w1", "w1", "w2", "sweep1", "sweep2", "desk", "ann", "books", "books"),
    optional=("w2", "sweep1", "sweep2", "bob", "books"),
)  # fmt: skip
"""Payouts for which there is little time, so that many expire, with several who sweep, and a consumer of the outbox."""


def _switches(sim: Simulation, office: Office) -> None:
    sim.node("w1", worker(office, idle=2.5), serves=True)
    sim.node("w2", worker(office, idle=3.0), serves=True, after=0.1)
    sim.node("desk", requester(office))
    for number, name in enumerate(("cy", "ann", "bob")):
        sim.node(name, approver(office, name, pause=0.3), serves=True, after=0.3 + number / 10)
    sim.node(
        "hand",
        hand(
            office, waits(0.9), drifts("drifting-1"), waits(0.3), disarms("payout.send"), waits(0.3), removes("cy"),
            waits(1.0), drifts("drifting-2"), arms("payout.send"), waits(2.5), dismisses("ron"),
        ),
    )  # fmt: skip


SWITCHES: Final = _scenario(
    "switches",
    (
        *payments("drifting-1", "plain-1"),
        *payments("plain-2", "plain-3", kind="refund.send"),
        *payments("drifting-2", "plain-4", who=RON),
        *payments("plain-5", "plain-6", kind="refund.send", who=RON),
    ),
    _switches,
    nodes=(*_OFTEN, "desk", "ann", "bob", "cy", "hand", "hand"),
    optional=("w1", "w2", "bob"),
)
"""Payouts and refunds around which everything changes: states, the types' switches, who approves, who may act."""

ALL: Final = (PAYOUTS, RUNNERS, REQUESTERS, SQL, SWEEPS, SWITCHES)
