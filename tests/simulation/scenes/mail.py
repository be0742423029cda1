"""Messages that come while their reader parks: many readers, and two who write to each again and again."""

from __future__ import annotations

from typing import Final

from tests.simulation.scenes.play import Caller, Play, scene
from underseal.flow.context import FlowContext
from underseal.flow.definition import Flow, flow

READERS: Final = 6
LETTERS: Final = 6


def flows_of() -> list[Flow]:
    """One that reads letters, each of a topic of its own: no later one would wake it for one that it missed."""

    @flow("reads")
    async def reads(ctx: FlowContext) -> list[int]:
        return [await ctx.receive(f"post {number}") for number in range(LETTERS)]

    return [reads]


def play(run: Play) -> None:
    """Two workers, and two who write to the same readers, in turn."""
    run.worker("a", flows_of())
    run.worker("b", flows_of(), after=0.1)
    for number in range(READERS):
        run.expect(f"r-{number}", output=list(range(LETTERS)))

    async def writes(caller: Caller, first: int) -> None:
        chance = caller.play.chance(caller.node.name)
        for number in range(READERS):
            await caller.start("reads", f"r-{number}")
        slow = caller.play.chance("post").choice([0.0, 0.0, 1.5])
        for letter in range(first, LETTERS, 2):
            await caller.pause(slow * chance.random())
            for number in range(READERS):
                await caller.pause(chance.random() * 0.02)
                await caller.send(f"r-{number}", f"post {letter}", letter, f"l{letter}")

    run.caller("one", lambda caller: writes(caller, 0))
    run.caller("other", lambda caller: writes(caller, 1), after=0.02)


MAIL: Final = scene(
    "mail", play, optional=("b",), nodes=("a", "b", "a", "b", "one", "other"), most=8, longest=9.0, calls=60
)
