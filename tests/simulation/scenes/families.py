"""Parents, children and grandchildren, that complete, fail, are cancelled or go on, and operations held for flows."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, Final

from pydantic import BaseModel

from tests.simulation.scenes.play import MISSING, TICK, Caller, Play, scene, steps_of
from tests.simulation.switches import switch
from underseal import AsyncUnderseal, Effect, MemoryKeyRing, Policy, Principal, Provider, Underseal
from underseal.errors import ChildFailed, HoldEnded
from underseal.flow.context import FlowContext
from underseal.flow.definition import Flow, flow
from underseal.held.replay import running
from underseal.testing.simulation import Stage

BOSS: Final = "bob"
PAY: Final = "family.pay"
MINUTE: Final = timedelta(minutes=1)
RUN_LEASE: Final = "8 seconds"
"""Of a run of an operation, in this stage: a worker that was killed is not waited for until the run ends."""


class Payment(BaseModel):
    """What is held."""

    order: str


class Pay(Provider[Payment]):
    """A payment that bob approves."""

    type = PAY
    version = 1
    params = Payment
    policy = Policy(approvers=(BOSS,), hold_for=MINUTE, run_within=MINUTE)

    def estimate(self, principal: Principal, params: Payment) -> Effect:
        """What it would do."""
        return Effect({"pays": params.order}, "open")


def flows_of(play: Play) -> list[Flow]:  # noqa: C901 -- flows, one beside the other
    """The flows, whose steps are noted."""
    step = steps_of(play.sim)

    @flow("below")
    async def below(ctx: FlowContext, value: int) -> int:
        await ctx.sleep(TICK)
        return int(await step(ctx, "dig", value)) * 2

    @flow("doomed")
    async def doomed(ctx: FlowContext, value: int) -> None:
        await step(ctx, "try", value)
        raise ValueError("doomed")

    @flow("goes on")
    async def goes_on(ctx: FlowContext, value: int) -> int:
        if value < 3:
            ctx.continue_as_new(value + 1)
        return int(await ctx.child(below, value, name="last"))

    @flow("child")
    async def child(ctx: FlowContext, value: int) -> list[Any]:
        return [await step(ctx, "lay", value), await ctx.child(below, value + 1, name="below")]

    @flow("waits")
    async def waits(ctx: FlowContext, value: int) -> Any:
        try:
            return await ctx.receive("word")
        finally:
            await step(ctx, "tidy", value)

    @flow("parent")
    async def parent(ctx: FlowContext, value: int) -> list[Any]:
        first, second, third = (
            ctx.child(one, value + n, name="kid") for n, one in enumerate((child, doomed, goes_on))
        )
        meanwhile = await step(ctx, "meanwhile", value)
        told: list[Any] = [meanwhile, await first]
        try:
            await second
        except ChildFailed as error:
            told.append((error.error or {}).get("type"))
        return [*told, await third]

    @flow("keeps")
    async def keeps(ctx: FlowContext, value: int) -> Any:
        """Its child is told, or cancelled, or it is itself."""
        kept = ctx.child(waits, value, name="kept")
        try:
            return await kept
        except ChildFailed as error:
            return error.status

    @flow("pays")
    async def pays(ctx: FlowContext, value: str) -> Any:
        held = ctx.hold(PAY, {"order": value})
        beside = ctx.child(below, 1, name="beside")
        try:
            return [await held, await beside]
        except HoldEnded as ended:
            return ended.state

    return [below, doomed, goes_on, child, waits, parent, keeps, pays]


def served(play: Play) -> Any:
    """What a worker that runs payments does at the beginning of each life."""

    def setup(us: AsyncUnderseal) -> None:
        async def body(_: Principal, params: Payment) -> dict[str, str]:
            now = running.get()
            assert now is not None
            assert play.runs is not None
            play.runs.append(
                {
                    "operation_id": now.operation_id, "process": play.sim.who, "at": play.sim.server.noted(),
                    "params": params.model_dump(),
                }
            )  # fmt: skip
            play.sim.note(play.sim.who, f"pays {params.order}")
            return {"paid": params.order}

        us.gate(Pay())(body)

    return setup


async def decides(caller: Caller) -> None:
    """Bob approves what is asked for good orders, and rejects the others."""
    left = 2
    while left:
        for shown in await caller.node.patiently(lambda: caller.us.list(BOSS, states=["HELD"])):
            verb = caller.us.approve if "good" in str(shown.effect) else caller.us.reject
            await caller.node.patiently(lambda shown=shown, verb=verb: verb(shown, BOSS, "so it is"))  # type: ignore[misc]
        known = await caller.node.patiently(lambda: caller.us.list(BOSS, states=_DECIDED))
        left = 2 - len(known)
        await asyncio.sleep(0.3)


_DECIDED: Final = (
    "APPROVED", "REJECTED", "CANCELLED", "EXPIRED", "EXECUTING", "SUCCEEDED", "FAILED", "REFUSED", "OUTCOME_UNKNOWN",
)  # fmt: skip


def play(run: Play) -> None:
    """Two workers, who also run what was approved, one who asks, and one who decides."""
    flows = flows_of(run)
    run.runs = []
    options = {"setup": served(run), "principals": Principal, "renew_every": timedelta(seconds=1)}
    run.worker("a", flows, **options)
    run.worker("b", flows, after=0.3, **options)
    run.expect("f-0", output=[1, [1, 4], "ValueError", 6])
    run.expect("f-1", output="said")
    run.expect("f-2", output="cancelled")
    run.expect("f-3", "cancelled")
    run.expect("f-3~kept-1", "cancelled", MISSING)  # its parent may be cancelled before it has begun it
    # a worker that was cut off may fail before the payment, or leave open whether it paid
    run.expect("f-4", output=lambda got: got in ([{"paid": "good"}, 2], "OUTCOME_UNKNOWN", "FAILED"))
    run.expect("f-5", output="REJECTED")

    async def asks(caller: Caller) -> None:
        await caller.start("pays", "f-4", "good")
        await caller.start("pays", "f-5", "bad")
        await caller.start("parent", "f-0", 1)
        for name in ("f-1", "f-2", "f-3"):
            await caller.start("keeps", name, 7)
        await caller.until("f-1~kept-1")
        await caller.send("f-1~kept-1", "word", "said", "w1")
        await caller.until("f-2~kept-1")
        await caller.cancel("f-2~kept-1", force=run.chance("force").random() < 0.5)
        if run.chance("late").random() < 0.7:
            await caller.until("f-3~kept-1", "suspended")
        await caller.cancel("f-3")

    run.caller("asks", asks)
    run.caller("boss", decides, after=0.4)


def prepare(stage: Stage) -> None:
    """Register payments, and let leases of runs be short."""
    (now,) = stage.ask("select underseal._run_lease() = %s::interval as short", [RUN_LEASE])
    if not now["short"]:
        switch(stage, "underseal._run_lease()", "'15 minutes'", f"'{RUN_LEASE}'")
    with Underseal(stage.conninfo, keys=MemoryKeyRing()) as us:
        us.gate(Pay())(lambda *_: None)
        us.register(connection=stage.owner)


FAMILIES: Final = scene("families", play, optional=("b",), nodes=("a", "b", "asks", "boss"), prepare=prepare)
