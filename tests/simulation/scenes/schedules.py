"""Schedules that fire on two workers, are added twice, changed, paused, resumed and removed; and starts put off."""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta
from typing import Final

from tests.simulation.scenes.play import Caller, Play, scene, steps_of
from underseal.flow.context import FlowContext
from underseal.flow.definition import Flow, flow
from underseal.testing.simulation import Stage
from underseal.wake.async_client import AsyncSchedules

EACH: Final = "*/2 * * * * *"
"""Each second second."""
EVERY: Final = timedelta(seconds=2)


def flows_of(play: Play) -> list[Flow]:
    """The flows, whose steps are noted."""
    step = steps_of(play.sim)

    @flow("chimes")
    async def chimes(ctx: FlowContext, value: str) -> str:
        await step(ctx, "strike", value)
        await ctx.sleep(seconds=0.2)
        return str(await step(ctx, "fade", value))

    return [chimes]


def play(run: Play) -> None:
    """Two workers, and two who keep schedules: one adds, changes and removes one that the other pauses."""
    flows = flows_of(run)
    run.worker("a", flows)
    run.worker("b", flows, after=0.4)
    run.expect("t-0", output="later")

    def of(caller: Caller) -> AsyncSchedules:
        return AsyncSchedules(caller.node.pool)  # type: ignore[arg-type]

    disk: list[str] = []  # what is to be done is noted there first

    async def keeps(caller: Caller) -> None:
        schedules = of(caller)
        if disk:
            await removes(caller)
            return
        await caller.start("chimes", "t-0", "later", after=timedelta(seconds=1))
        for name, missed in (("all", "all"), ("some", "latest")):
            await caller.node.patiently(
                lambda name=name, missed=missed: schedules.add(  # type: ignore[misc]
                    name, "chimes", EACH, caller.principal, value=name, missed=missed
                )
            )
        await asyncio.sleep(5)
        disk.append("remove")
        await removes(caller)

    async def removes(caller: Caller) -> None:
        for name in ("all", "some"):
            await caller.node.patiently(lambda name=name: of(caller).remove(name, caller.principal))  # type: ignore[misc]

    async def pauses(caller: Caller) -> None:
        schedules, chance = of(caller), caller.play.chance("pause")
        await asyncio.sleep(chance.random() * 3)
        await caller.node.patiently(lambda: schedules.pause("some", caller.principal))
        await asyncio.sleep(chance.random() * 3)
        await caller.node.patiently(lambda: schedules.resume("some", caller.principal))

    run.caller("keeps", keeps)
    run.caller("pauses", pauses, after=0.2)


def struck(stage: Stage) -> list[str]:
    """What is wrong with what was started: each at an instant that the schedule has, and none of `all` left out."""
    rows = stage.ask(
        "select chain_id, status from underseal.execution where chain_id like '%@%' order by chain_id"
    )
    found = [f"{row['chain_id']} is {row['status']}" for row in rows if row["status"] != "completed"]
    names = [row["chain_id"] for row in rows]
    seconds = [int(name[-3:-1]) + 60 * int(name[-6:-4]) for name in names if name.startswith("all@")]
    found += [
        f"{name} is at no instant of its schedule" for name in names if not re.search(r"[02468]Z$", name)
    ]
    step = int(EVERY.total_seconds())
    if seconds and seconds != list(range(seconds[0], seconds[-1] + 1, step)):
        found.append(f"expected one each {step} s, found {names}")
    return found


SCHEDULES: Final = scene("schedules", play, optional=("b",), nodes=("a", "b", "keeps", "pauses"), also=struck)
