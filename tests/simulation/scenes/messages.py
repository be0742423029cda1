"""Messages: in order, twice, before a first receive, to waits with timers, that expire, discarded, or carried on."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from tests.simulation.scenes.play import Caller, Play, scene, steps_of
from underseal.flow.context import FlowContext
from underseal.flow.definition import Flow, flow

LETTERS: Final = 3
"""Messages of each topic."""


_LEFT: Final = ([3], [0, 3], [2, 3], [0, 2, 3])
"""What of the hasty may be read: the last, never the one that expires at once."""


def flows_of(play: Play) -> list[Flow]:  # noqa: C901 -- flows, one beside the other
    """The flows, whose steps are noted."""
    step = steps_of(play.sim)

    @flow("letters")
    async def letters(ctx: FlowContext, value: int) -> list[Any]:
        got: list[Any] = []
        for _ in range(LETTERS):
            got += [await ctx.receive("b"), await ctx.receive("a")]
        return [await step(ctx, "read", value), got]

    @flow("picks", snapshot_every=2)
    async def picks(ctx: FlowContext) -> dict[str, list[Any]]:
        got: dict[str, list[Any]] = {"a": [], "b": []}
        for _ in range(2 * LETTERS):
            picked = await ctx.select(ctx.receive("a"), ctx.receive("b"), ctx.sleep(days=30))
            got["ab"[picked.index]].append(picked.value)
            await step(ctx, "took", picked.value)
        return got

    @flow("races")
    async def races(ctx: FlowContext, value: float) -> list[Any]:
        raced = await ctx.select(ctx.sleep(timedelta(seconds=value)), ctx.receive("a"))
        late = raced.value if raced.index == 1 else await ctx.receive("a")
        return [late, await ctx.gate("sign")]

    @flow("hasty")
    async def hasty(ctx: FlowContext) -> list[Any]:
        got: list[Any] = []
        while True:
            next_one = await ctx.select(ctx.receive("a"), ctx.receive("stop"))
            if next_one.index == 1:
                return got
            got.append(next_one.value)

    @flow("goes on")
    async def goes_on(ctx: FlowContext, value: list[int]) -> list[int]:
        if len(value) < LETTERS:
            got = await ctx.receive("a")
            await step(ctx, "keep", got)
            ctx.continue_as_new([*value, got])
        return value

    return [letters, picks, races, hasty, goes_on]


def play(run: Play) -> None:
    """Two workers, and two callers who send the same messages, each in their order."""
    flows = flows_of(run)
    run.worker("a", flows)
    run.worker("b", flows, after=0.3)
    kinds = {
        "m-0": "letters",
        "m-1": "picks",
        "m-2": "races",
        "m-3": "hasty",
        "m-4": "goes on",
        "m-5": "letters",
    }
    inputs = {"m-0": 1, "m-2": run.chance("race").random() * 3, "m-4": [], "m-5": 2}
    left, right = list(range(LETTERS)), list(range(LETTERS, 2 * LETTERS))
    both = [one for pair in zip(right, left, strict=True) for one in pair]
    run.expect("m-0", output=[1, both])
    run.expect("m-1", output={"a": left, "b": right})
    run.expect("m-2", output=[0, "signed"])
    run.expect("m-3", output=lambda got: got in _LEFT or (run.sim.clocks_set and set(got) - {1} <= {0, 2, 3}))
    run.expect("m-4", "continued")
    run.expect("m-4~2", "continued")
    run.expect("m-4~3", "continued")
    run.expect("m-4~4", output=left)
    run.expect("m-5", output=[2, both])

    async def writes(caller: Caller, name: str) -> None:
        for number in left:
            await caller.send(name, "a", number, f"a{number}")
            if kinds[name] in ("letters", "picks"):
                await caller.send(name, "b", right[number], f"b{number}")

    async def hurries(caller: Caller) -> None:
        """Some expire, one is withdrawn or not, and the last of them arrives."""
        soon = timedelta(seconds=0.1 + caller.play.chance("soon").random() * 2)
        await caller.send("m-3", "a", 0, "h0", expires_in=soon)
        await caller.send("m-3", "a", 1, "h1", expires_in=timedelta(microseconds=1))
        await caller.send("m-3", "a", 2, "h2")
        await caller.send("m-3", "idle", 9, "h9")
        await caller.node.patiently(lambda: caller.calls.discard("m-3", "idle", caller.principal, "a slip"))
        await caller.node.patiently(lambda: caller.calls.discard("m-3", "a", caller.principal))
        await caller.send("m-3", "a", 3, "h3")
        await caller.send("m-3", "stop", None, "h4")

    async def one(caller: Caller) -> None:
        for name, kind in kinds.items():
            await caller.start(kind, name, inputs.get(name))
            if name in ("m-0", "m-4"):
                await writes(caller, name)
        await writes(caller, "m-1")
        await caller.send("m-2", "a", 0, "a0")
        await hurries(caller)

    async def other(caller: Caller) -> None:
        for name in ("m-5", "m-1", "m-4"):
            await caller.until(name)
            await writes(caller, name)
        await caller.until("m-2")
        await caller.answer("m-2", "sign", "signed")
        await caller.send("m-2", "a", 0, "a0")

    run.caller("one", one)
    run.caller("other", other, after=0.2)


MESSAGES: Final = scene("messages", play, optional=("b",), nodes=("a", "b", "one", "other"))
