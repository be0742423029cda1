"""The flows that are killed. Each scenario has its own, so that its processes take nothing of another's."""

from __future__ import annotations

import asyncio
import os
import signal
from datetime import timedelta
from typing import Any

from pydantic import BaseModel

from tests.crash.witness import Effects
from underseal import Effect, Policy, Principal, Provider
from underseal.errors import ChildFailed, StepError
from underseal.flow.context import FlowContext
from underseal.flow.definition import Flow, Retry, flow
from underseal.flow.step import current_step

OWNER = "ann"
APPROVER = "bob"
PAY = "crash.pay"
TICK = timedelta(milliseconds=10)
LATER = timedelta(seconds=6)
"""A back-off that is waited for in a park; the clock is moved on past it."""


class Payment(BaseModel):
    """What is held."""

    chain: str
    cents: int


class Pay(Provider[Payment]):
    """A payment that bob approves."""

    type = PAY
    version = 1
    params = Payment
    policy = Policy(approvers=(APPROVER,), hold_for=timedelta(hours=9), run_within=timedelta(hours=9))

    def estimate(self, principal: Principal, params: Payment) -> Effect:
        """What it would do."""
        return Effect({"pays": params.cents}, "open")


def principal(id: str, auth_kind: str, token_id: str | None) -> Principal:  # noqa: A002
    """Everybody may be rebuilt."""
    return Principal(id, auth_kind, token_id)


def make(tag: str, effects: Effects) -> list[Flow]:  # noqa: C901 -- flows, one beside the other
    """The flows of one scenario.

    Parameters:
        tag: stands in their names.
        effects: does what the steps do.
    """

    async def plain(value: Any) -> Any:
        return await effects.do_async(value)

    def threaded(value: Any) -> Any:
        return effects.do(value)

    def fails_first(value: Any) -> Any:
        done = effects.do(value)
        if current_step().attempt == 1:
            raise LookupError("not yet")
        return done

    def fails(value: Any) -> Any:
        effects.do(value)
        raise KeyError("never")

    async def kills(value: Any) -> Any:
        await effects.do_async(value)
        os.kill(os.getpid(), signal.SIGKILL)

    async def fails_often(value: int) -> Any:
        done = await effects.do_async(value)
        await asyncio.sleep(0.01)
        if current_step().attempt < value:
            raise LookupError("not yet")
        return done

    async def run(ctx: FlowContext, name: str, function: Any, value: Any, **how: Any) -> Any:
        """What a step gave, without the number of the effect."""
        return (await ctx.run(name, function, value, **how))["value"]

    @flow(f"below.{tag}")
    async def below(ctx: FlowContext, value: int) -> int:
        got: int = await run(ctx, "dig", plain, value)
        await ctx.sleep(TICK)
        return got * 2

    @flow(f"doomed.{tag}")
    async def doomed(ctx: FlowContext, value: int) -> None:
        await run(ctx, "try", threaded, value)
        raise ValueError("doomed")

    @flow(f"child.{tag}")
    async def child(ctx: FlowContext, value: int) -> list[Any]:
        laid = await run(ctx, "lay", threaded, value)
        return [laid, await ctx.child(below, value + 1, name="below")]

    async def first_round(ctx: FlowContext) -> None:
        seen: list[Any] = []
        drawn = {"uuid": str(ctx.uuid()), "random": ctx.random(), "now": (await ctx.now()).isoformat()}
        seen.append(await run(ctx, "plan", plain, 1))
        await run(ctx, "spend", threaded, drawn)
        seen += await asyncio.gather(
            run(ctx, "left", threaded, 2), run(ctx, "right", plain, 3),
            run(ctx, "flaky", fails_first, 4, retry=Retry(attempts=3, first=TICK)),
        )  # fmt: skip
        seen.append(await run(ctx, "later", fails_first, 5, retry=Retry(attempts=2, first=LATER)))
        try:
            await run(ctx, "fails", fails, 6)
        except StepError as error:
            seen.append(str(error.error["type"]))
        await ctx.sleep(TICK)
        seen += [await ctx.receive("orders"), await ctx.receive("orders")]
        timer = await ctx.select(ctx.receive("never"), ctx.sleep(TICK))
        message = await ctx.select(ctx.receive("never"), ctx.sleep(days=30), ctx.receive("answer"))
        seen += [timer.index, message.index, message.value, await ctx.gate("sign")]
        first, second = ctx.child(child, 10, name="child"), ctx.child(doomed, 20, name="doomed")
        seen.append(await first)
        try:
            await second
        except ChildFailed as error:
            seen.append(str(error.error))
        seen.append(await ctx.hold(PAY, {"chain": ctx.execution_id, "cents": 7}))
        ctx.continue_as_new({"round": 2, "seen": seen, "drawn": drawn})

    @flow(f"all.{tag}")
    async def everything(ctx: FlowContext, value: dict[str, Any]) -> dict[str, Any]:
        if value["round"] == 1:
            await first_round(ctx)
        seen = [await ctx.receive("orders"), await run(ctx, "last", plain, "last")]
        return {"seen": value["seen"] + seen, "drawn": value["drawn"]}

    @flow(f"waits.{tag}")
    async def waits(ctx: FlowContext, value: int) -> None:
        try:
            await ctx.receive("never")
        except asyncio.CancelledError:
            await run(ctx, "tidy", plain, value)
            raise

    @flow(f"undone.{tag}")
    async def undone(ctx: FlowContext) -> None:
        await run(ctx, "open", plain, 1)
        kept = ctx.child(waits, 2, name="kept")
        asked = ctx.hold(PAY, {"chain": ctx.execution_id, "cents": 8})
        try:
            await ctx.select(ctx.receive("never"), kept, asked)
        except asyncio.CancelledError:
            await run(ctx, "close", threaded, 3)
            await ctx.sleep(TICK)
            await run(ctx, "sweep", plain, 4)
            raise

    @flow(f"dropped.{tag}")
    async def dropped(ctx: FlowContext) -> None:
        kept = ctx.child(waits, 2, name="kept")
        asked = ctx.hold(PAY, {"chain": ctx.execution_id, "cents": 9})
        await ctx.select(ctx.receive("never"), kept, asked)

    @flow(f"lethal.{tag}")
    async def lethal(ctx: FlowContext, value: int) -> str:
        await run(ctx, "before", plain, value)
        await run(ctx, "kills", kills if value else plain, value)
        return "lived"

    @flow(f"long.{tag}")
    async def long(ctx: FlowContext, value: int) -> Any:
        return await run(
            ctx, "again", fails_often, value, retry=Retry(attempts=value, first=3 * TICK, factor=1)
        )

    return [below, doomed, child, everything, waits, undone, dropped, lethal, long]
