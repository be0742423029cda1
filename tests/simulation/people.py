"""Who asks for operations and who decides about them: nodes of the scenarios of held operations."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial
from typing import Any, Final

from tests.simulation.office import RITA, Office, Order, Payment
from underseal import (
    AsyncUnderseal,
    Held,
    Operation,
    OutcomeUnknown,
    Principal,
    RequestRefused,
)
from underseal.flow.batches import AWAY
from underseal.held.pace import Pace
from underseal.testing.simulation import Node

Main = Callable[[Node], Coroutine[Any, Any, None]]

ENDS: Final = ("REJECTED", "CANCELLED", "EXPIRED", "SUCCEEDED", "FAILED", "REFUSED", "OUTCOME_UNKNOWN")
_LOOK: Final = 1.0
_WAITS: Final = 2.0
_THOUGHT_BETTER: Final = 0.5
_TRIES: Final = 3
"""So often somebody asks for the same."""


def requester(office: Office) -> Main:
    """Asks for every order, withdraws some, waits until all have ended, and asks again for what nobody knows."""

    async def main(node: Node) -> None:
        us, gated = office.full(node)
        for order in office.orders:
            if order.key not in office.sent:
                await asyncio.sleep(order.after)
                await _ask(node, office, us, gated, order)
        await _withdraw(node, office, us)
        people = list(dict.fromkeys(order.who.id for order in office.orders))
        await _until_all_ended(node, us, people)
        for order in office.orders:
            if order.who.id not in office.gone:
                await _again(node, office, us, gated, order)
        await _until_all_ended(node, us, people)

    return main


async def _ask(
    node: Node, office: Office, us: AsyncUnderseal, gated: dict[str, Any], order: Order
) -> None:  # fmt: skip
    async def act() -> Held:
        if order.type in gated:
            held: Held = await gated[order.type](order.who, order.params)
            return held
        return await us.request(order.type, order.who, order.params)

    while True:
        try:
            office.held(order, await node.patiently(act))
            return
        except RequestRefused as refused:
            if refused.reason not in ("provider-disarmed", "policy-changed"):
                raise
            await asyncio.sleep(_LOOK)


async def _withdraw(node: Node, office: Office, us: AsyncUnderseal) -> None:
    await asyncio.sleep(_THOUGHT_BETTER)
    named = {row["params"]["order"]: one for one, row in office.asked.items()}
    for order in office.orders:
        if order.name.startswith("withdrawn") and order.name in named:
            await node.patiently(partial(us.cancel, named[order.name], order.who))


async def _until_all_ended(node: Node, us: AsyncUnderseal, people: list[str]) -> None:
    for who in people:
        while True:
            if not await node.patiently(partial(us.list, who)):
                break
            await asyncio.sleep(_WAITS)


async def _again(
    node: Node, office: Office, us: AsyncUnderseal, gated: dict[str, Any], order: Order
) -> None:  # fmt: skip
    """As the operation's end says: ask again, once somebody knows how far it got."""
    if f"{order.key}-again" in office.sent:
        return
    ended = await node.patiently(lambda: us.list(order.who, states=("OUTCOME_UNKNOWN",), limit=200))
    if isinstance(order.params, Payment) and any(
        json.loads(one.redacted)["order"] == order.name for one in ended
    ):
        params = Payment(order=f"{order.name}-again", cents=order.params.cents)
        await _ask(node, office, us, gated, replace(order, params=params))


def approver(
    office: Office, name: str, *, runs: bool = False, pause: float = 0.6, thinks: float = 0.0
) -> Main:
    """Votes on what waits for votes, as the name of the order says, until the end of the world.

    Parameters:
        office: the world.
        name: who votes.
        runs: whether what this approver approves is run at once, by the same process.
        pause: seconds between two looks; up to four times as long where there is nothing new.
        thinks: seconds between what is shown and the vote.
    """

    async def main(node: Node) -> None:
        us = office.full(node)[0] if runs else office.approving(node)
        done: dict[Any, bool] = {}
        pace = Pace(pause, 4 * pause)
        while True:
            found = await node.patiently(lambda: us.list(name, states=("HELD",), limit=200))
            new = [one for one in found if one.operation_id not in done and one.requester != name]
            for one in new:
                done[one.operation_id] = True
                await _decide(node, office, us, name, one, thinks)
            await asyncio.sleep(pace.worked() if new else pace.idled())

    return main


async def _decide(
    node: Node, office: Office, us: AsyncUnderseal, name: str, one: Operation, thinks: float
) -> None:  # fmt: skip
    order = json.loads(one.redacted)["order"]
    if order.startswith("ignored"):
        return
    shown = await node.patiently(lambda: us.get(one, name))
    if shown is None:
        return  # it is not this one's to decide any more
    await asyncio.sleep(thinks)
    if order.startswith("mistaken") and name == "ann":
        await _mistake(node, office, us, name, shown)
    if order.startswith("rejected"):
        said = await node.patiently(lambda: us.reject(shown, name, "no"))
    else:
        said = await node.patiently(lambda: us.approve(shown, name))
    if said.outcome not in ("recorded", "approved", "rejected", "conflict", "not-found"):
        office.simulation.wrong(f"{name} voted on {order} and was told {said.outcome} {said.reason}")


async def _mistake(
    node: Node, office: Office, us: AsyncUnderseal, name: str, shown: Operation
) -> None:  # fmt: skip
    """Vote on what was not shown, and on what it was before."""
    for echo in (
        replace(shown.echo, params_hash=bytes(32)),
        replace(shown.echo, row_version=shown.row_version + 1),
        replace(shown.echo, shown="0" * 64),
    ):
        said = await node.patiently(partial(us.approve, echo, name))
        if said.outcome not in ("conflict", "not-found"):
            office.simulation.wrong(
                f"{name} voted on something that was not shown and was told {said.outcome}"
            )


def device(office: Office, who: Principal = RITA, token: Principal | None = None) -> Main:
    """Somebody's device: calls the gated method again and again until it gives what was asked for, or never will.

    Parameters:
        office: the world; what was given to any device is known to all of them.
        who: who calls.
        token: who calls where the order says that a token is used.
    """

    async def main(node: Node) -> None:
        us, gated = office.full(node)
        mine = [order for order in office.orders if order.who.id == who.id]
        while waiting := [order for order in mine if order.key not in office.given]:
            for order in waiting:
                caller = token if token is not None and order.name.startswith("bound") else who
                await _call(node, office, gated[order.type], order, caller)
            await asyncio.sleep(_LOOK)
        await _until_all_ended(node, us, [who.id])

    return main


async def _call(node: Node, office: Office, method: Any, order: Order, who: Principal) -> None:
    key = order.key
    try:
        answer = await method(who, order.params)
    except AWAY:
        return
    except OutcomeUnknown:
        office.given[key] = "unknown"
    except LookupError:
        office.given[key] = "failed"
    except RequestRefused as refused:
        office.given[key] = refused.reason
    else:
        if isinstance(answer, Held):
            office.held(order, answer)
            if office.sent.get(key, 0) >= _TRIES:
                office.given.setdefault(key, "given up")
        elif answer != {"done": order.name}:
            office.simulation.wrong(f"{node.name} asked for {order.name} and was given {answer}")
        else:
            office.given[key] = answer
