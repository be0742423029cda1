"""Steps of all kinds: tried again, timed out, longer than a lease, side by side, between sleeps and snapshots."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, Final

from tests.simulation.scenes.play import Caller, Play, scene, steps_of
from underseal.errors import StepError
from underseal.flow.context import FlowContext
from underseal.flow.definition import Flow, Retry, flow
from underseal.flow.step import current_step

SHORT: Final = Retry(attempts=3, first=timedelta(milliseconds=20))
LONG: Final = Retry(attempts=2, first=timedelta(seconds=6))
"""A back-off that is waited for in a park."""
EVERY: Final = 3
"""Events from one snapshot to the next."""


def flows_of(play: Play) -> list[Flow]:  # noqa: C901 -- flows, one beside the other
    """The flows, whose steps are noted."""
    sim = play.sim
    step = steps_of(sim)

    def plain(value: Any) -> Any:
        return sim.effect("plain", value)

    async def fails_first(value: Any) -> Any:
        done = sim.effect("fails first", value)
        if current_step().attempt == 1:
            raise LookupError("not yet")
        return done

    def never(value: Any) -> Any:
        sim.effect("fails", value)
        raise KeyError("never")

    async def slow(value: Any) -> Any:
        sim.effect("hangs", value)
        await asyncio.sleep(60)

    async def lasts(value: Any) -> Any:
        done = sim.effect("lasts", value)
        await asyncio.sleep(4.5)
        return done

    @flow("ladder", snapshot_every=EVERY)
    async def ladder(ctx: FlowContext, value: int) -> Any:
        drawn = [str(ctx.uuid()), ctx.random(), (await ctx.now()).isoformat()]
        await step(ctx, "keep", drawn)
        first = await step(ctx, "first", value, plain)
        flaky = await step(ctx, "flaky", first + 1, fails_first, retry=SHORT)
        await ctx.sleep(timedelta(milliseconds=100))
        sides = await asyncio.gather(step(ctx, "left", flaky), step(ctx, "right", flaky + 1, plain))
        if drawn != await step(ctx, "again", drawn):
            return "drawn anew"
        return sides

    @flow("patient")
    async def patient(ctx: FlowContext, value: int) -> Any:
        later = await step(ctx, "later", value, fails_first, retry=LONG)
        seen = []
        for name, function, timeout in (("never", never, None), ("slow", slow, timedelta(seconds=0.5))):
            try:
                await ctx.run(name, function, value, timeout=timeout)
            except StepError as error:
                seen.append(error.error["type"])
        return [later, *seen]

    @flow("long")
    async def long(ctx: FlowContext, value: int) -> Any:
        await step(ctx, "before", value)
        meanwhile = asyncio.gather(step(ctx, "lasts", value, lasts), step(ctx, "beside", value))
        return [*(await meanwhile), await step(ctx, "after", value)]

    @flow("behind", journal="behind", snapshot_every=1)
    async def behind(ctx: FlowContext, value: int) -> Any:
        return [await step(ctx, f"step {number}", value + number) for number in range(4)]

    return [ladder, patient, long, behind]


def play(run: Play) -> None:
    """Two workers, and two callers who start half of them each, and one of them together."""
    flows = flows_of(run)
    run.worker("a", flows)
    run.worker("b", flows, after=0.3)
    run.expect("s-0", output=[1, 2])
    run.expect("s-1", output=[2, "KeyError", "TimeoutError"])
    run.expect("s-2", output=[3, 3, 3])
    run.expect("s-3", output=[4, 5, 6, 7])
    run.expect("s-4", output=[5, 6])
    run.expect("s-5", output=[6, 7, 8, 9])

    async def one(caller: Caller) -> None:
        await caller.start("ladder", "s-0", 0)
        await caller.start("patient", "s-1", 2)
        await caller.start("long", "s-2", 3)
        await caller.start("behind", "s-3", 4)

    async def other(caller: Caller) -> None:
        await caller.start("behind", "s-3", 4)
        await caller.start("ladder", "s-4", 4, after=timedelta(seconds=0.7))
        await caller.start("behind", "s-5", 6)
        for name in ("s-3", "s-4"):
            await caller.node.patiently(
                lambda name=name: caller.calls.result(name, caller.principal)  # type: ignore[misc]
            )

    run.caller("one", one)
    run.caller("other", other, after=0.05)


STEPS: Final = scene("steps", play, optional=("b",), nodes=("a", "b", "a", "b", "one", "other"))
