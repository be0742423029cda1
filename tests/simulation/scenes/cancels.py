"""Cancellation at any moment, asked for and forced, of what sleeps, works, waits and keeps children; forks of it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, Final

from tests.simulation.scenes.play import TICK, Caller, Play, scene, steps_of
from underseal.errors import ExecutionAlreadyExistsError, ExecutionDeniedError, ExecutionRefusedError
from underseal.flow.context import FlowContext
from underseal.flow.definition import Flow, flow

STEPS: Final = 5
KINDS: Final = ("works", "sleeps", "opens", "asks", "works", "opens", "sleeps")
FORKED: Final = (0, 1, 4)
"""Only what keeps no children: a copy of a parent waits for children that are not its own."""


def flows_of(play: Play) -> list[Flow]:
    """The flows, whose steps are noted."""
    sim = play.sim
    step = steps_of(sim)

    async def lasts(value: Any) -> Any:
        done = sim.effect("lasts", value)
        await asyncio.sleep(0.2)
        return done

    @flow("works")
    async def works(ctx: FlowContext, value: int) -> list[Any]:
        done = []
        try:
            for number in range(STEPS):
                done.append(await step(ctx, f"step {number}", value + number, lasts))  # noqa: PERF401 -- undone
        except asyncio.CancelledError:
            await step(ctx, "undo", done)
            raise
        return done

    @flow("sleeps", snapshot_every=1)
    async def sleeps(ctx: FlowContext, value: int) -> Any:
        for _ in range(2):
            await ctx.sleep(seconds=0.4)
            await step(ctx, "woken", value)
        return value

    @flow("waits")
    async def waits(ctx: FlowContext, value: int) -> None:
        try:
            await ctx.receive("never")
        finally:
            await step(ctx, "tidy", value)

    @flow("opens")
    async def opens(ctx: FlowContext, value: int) -> None:
        await step(ctx, "open", value)
        kept = ctx.child(waits, value, name="kept")
        try:
            await ctx.select(ctx.receive("never"), kept)
        finally:
            await step(ctx, "close", value)
            await ctx.sleep(TICK)
            await step(ctx, "sweep", value)

    @flow("asks")
    async def asks(ctx: FlowContext) -> Any:
        return await ctx.gate("sign")

    return [works, sleeps, waits, opens, asks]


async def fork(caller: Caller, number: int) -> None:
    """Copy a part of an execution, as far as it has come, and have the copy go on."""
    chance = caller.play.chance(f"fork {number}")
    source, copy = f"c-{number}", f"c-{number}-copy"
    seen = await caller.until(source)
    through = chance.randint(0, seen.head)
    try:
        with suppress(ExecutionAlreadyExistsError):
            await caller.node.patiently(
                lambda: caller.calls.fork(source, through, caller.principal, new_id=copy)
            )
    except ExecutionRefusedError as refused:
        if refused.reason != "ended":
            raise
        return
    if chance.random() < 0.5:
        await asyncio.sleep(chance.random())
        await caller.cancel(copy)


def play(run: Play) -> None:
    """Two workers, one who starts and cancels, and one who forks and cancels as well."""
    flows = flows_of(run)
    run.worker("a", flows)
    run.worker("b", flows, after=0.2)
    for number, kind in enumerate(KINDS):
        # what waits for nothing may have come to its end before
        run.expect(f"c-{number}", "cancelled", *(("completed",) if kind in ("works", "sleeps") else ()))

    async def starts(caller: Caller) -> None:
        for number, kind in enumerate(KINDS):
            await caller.start(kind, f"c-{number}", None if kind == "asks" else number)
        for number in range(len(KINDS)):
            chance = caller.play.chance(f"cancel {number}")
            await asyncio.sleep(chance.random() * 0.6)
            await caller.cancel(f"c-{number}", force=chance.random() < 0.4)

    async def forks(caller: Caller) -> None:
        for number in FORKED:
            await fork(caller, number)
        await asyncio.sleep(caller.play.chance("hurry").random())
        for number in (3, 5, 6):
            with suppress(ExecutionDeniedError):  # not there yet
                await caller.cancel(f"c-{number}", force=number == 5)

    run.caller("starts", starts, after=0.1)
    run.caller("forks", forks, after=0.3)


CANCELS: Final = scene("cancels", play, optional=("b",), nodes=("a", "b", "starts", "forks"))
