"""Two versions of a flow, each on a node of its own: migrated under way, started, begotten and gone on as the newer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from tests.simulation.scenes.play import Caller, Play, scene, steps_of
from underseal.flow.context import FlowContext
from underseal.flow.definition import Flow, flow

MIGRATED: Final = ("v-1", "v-2", "v-3")


def flows_of(play: Play, version: int) -> list[Flow]:
    """The flows of a deployment, whose steps are noted; the newer one goes on with what the older has begun."""
    sim = play.sim
    step = steps_of(sim)
    also = [1] if version == 2 else []

    async def lasts(value: Any) -> Any:
        done = sim.effect("lasts", value)
        await asyncio.sleep(0.4)
        return done

    @flow("grows", version=version, also_drives=also, snapshot_every=2)
    async def grows(ctx: FlowContext, value: int) -> list[Any]:
        seen: list[Any] = [await step(ctx, "first", value), await ctx.receive("word")]
        await ctx.sleep(seconds=0.3)
        seen.append(await step(ctx, "lasts", value + 1, lasts))
        if ctx.version >= 2:
            seen.append(await step(ctx, "extra", "extra"))
        return [*seen, await ctx.gate("sign")]

    @flow("renews", version=version, also_drives=also)
    async def renews(ctx: FlowContext, value: int) -> list[int]:
        if value < 2:
            await step(ctx, "before", value)
            ctx.continue_as_new(value + 1, version=value + 1)
        return [value, await ctx.child("leaf", value, name="leaf", version=value)]

    @flow("leaf", version=version, also_drives=also)
    async def leaf(ctx: FlowContext, value: int) -> int:
        await ctx.sleep(seconds=0.1)
        return int(await step(ctx, "grow", value)) + ctx.version

    return [grows, renews, leaf]


def grown(value: int, *versions: int) -> Callable[[Any], bool]:
    """Whether an output is that of `grows` in one of these versions."""
    outputs = [
        [value, "said", value + 1, *(["extra"] if version == 2 else []), "signed"] for version in versions
    ]
    return lambda output: output in outputs


def play(run: Play) -> None:
    """The older deployment, the newer one beside it, one who starts and answers, and one who migrates."""
    run.worker("old", flows_of(run, 1))
    run.worker("new", flows_of(run, 2), after=0.5)
    run.expect("v-0", output=grown(0, 1))
    for name in MIGRATED:
        run.expect(name, output=grown(int(name[-1]), 1, 2))
    run.expect("v-4", output=grown(4, 2))
    run.expect("v-5", "continued")
    run.expect("v-5~2", output=[2, 4])

    async def starts(caller: Caller) -> None:
        for number in range(5):
            await caller.start("grows", f"v-{number}", number, flow_version=2 if number == 4 else 1)
        await caller.start("renews", "v-5", 1)
        for number in range(5):
            await caller.send(f"v-{number}", "word", "said", f"w{number}")
            await asyncio.sleep(caller.play.chance(f"word {number}").random() * 0.2)
        for number in range(5):
            await caller.answer(f"v-{number}", "sign", "signed")

    async def migrates(caller: Caller) -> None:
        for name in MIGRATED:
            await caller.until(name)
            await asyncio.sleep(caller.play.chance(f"move {name}").random() * 0.6)
            await caller.node.patiently(lambda name=name: caller.calls.migrate(name, 2, caller.principal))  # type: ignore[misc]

    run.caller("starts", starts)
    run.caller("migrates", migrates, after=0.1)


VERSIONS: Final = scene("versions", play, nodes=("old", "new", "old", "new", "starts", "migrates"))
