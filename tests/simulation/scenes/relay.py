"""Steps that last, on nodes that stand still for longer than a lease: a rescue races the completion all the time."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from tests.simulation.scenes.play import Caller, Play, scene, steps_of
from underseal.flow.context import FlowContext
from underseal.flow.definition import Flow, flow

RUNNERS: Final = 3
LEGS: Final = 5


def flows_of(play: Play) -> list[Flow]:
    """One whose steps wait for the log, and one whose steps do not."""
    sim = play.sim
    step = steps_of(sim)

    async def leg(value: Any) -> Any:
        done = sim.effect("runs", value)
        await asyncio.sleep(0.8)
        return done

    async def run(ctx: FlowContext, value: int) -> list[int]:
        return [await step(ctx, f"leg {number}", value + number, leg) for number in range(LEGS)]

    return [flow("safe")(run), flow("behind", journal="behind")(run)]


def play(run: Play) -> None:
    """Three workers, and one who starts."""
    flows = flows_of(run)
    for number, name in enumerate(("a", "b", "c")):
        run.worker(name, flows, after=number * 0.3)
    names = [f"{kind}-{number}" for kind in ("safe", "behind") for number in range(RUNNERS)]
    for name in names:
        first = 10 * int(name[-1])
        run.expect(name, output=list(range(first, first + LEGS)))

    async def starts(caller: Caller) -> None:
        for name in names:
            await caller.start(name[:-2], name, 10 * int(name[-1]))
            await caller.pause(0.15)

    run.caller("starts", starts)


RELAY: Final = scene("relay", play, optional=("b", "c"), nodes=("a", "b", "c"), most=8, longest=9.0, calls=60)
