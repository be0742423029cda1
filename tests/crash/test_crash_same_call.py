"""A parent that was taken over starts a child again while the child is driven beside it (E6, E8)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, cast

import pytest

from underseal import AsyncUnderseal, MemoryKeyRing
from underseal.flow import items
from underseal.flow.context import FlowContext
from underseal.flow.definition import flow
from underseal.flow.gateway import Gateway
from underseal.flow.runtime import FlowRuntime, Limits
from underseal.testing import OWNER, TestDatabase


@dataclass
class Stopped:
    """A gateway whose writes wait while it is told so."""

    gateway: Gateway
    open: asyncio.Event = field(default_factory=asyncio.Event)
    sizes: list[int] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.gateway, name)

    async def write(self, texts: Sequence[str]) -> list[dict[str, Any]]:
        await self.open.wait()
        self.sizes.append(len(texts))
        return await self.gateway.write(texts)


@pytest.mark.clause("E6a", "E8a")
@pytest.mark.parametrize("first", ["its driver", "its parent"])
@pytest.mark.parametrize("ends", [True, False])
async def test_a_start_again_and_a_write_in_one_call_are_both_answered(
    database: TestDatabase, first: str, ends: bool
) -> None:
    step = asyncio.Event()

    async def wait() -> str:
        await step.wait()
        return "done"

    @flow("child")
    async def child(ctx: FlowContext) -> str:
        done = await ctx.run("wait", wait)
        return done if ends else str(await ctx.run("more", lambda: "more"))

    @flow("other")
    async def other(ctx: FlowContext) -> None:
        return None

    async with AsyncUnderseal(database.conninfo_as(OWNER), keys=MemoryKeyRing.with_all()) as client:
        gateway = Stopped(Gateway(client._perform, "w", timedelta(seconds=60)))
        gateway.open.set()
        runtime = FlowRuntime(cast("Gateway", gateway), [child, other], limits=Limits(lanes=1), claims=False)
        serving = asyncio.create_task(runtime.serve())
        await runtime.start("child", "ann", execution_id="c")
        gateway.open.clear()
        busy = asyncio.create_task(runtime.start("other", "ann"))  # the one lane waits with this
        await asyncio.sleep(0.05)
        again = items.start_text("c", "child", 1, "ann", "null", None, "")
        if first == "its parent":
            asked = asyncio.create_task(runtime.start_child(again))
            await asyncio.sleep(0.05)
        step.set()
        await asyncio.sleep(0.05)
        if first == "its driver":
            asked = asyncio.create_task(runtime.start_child(again))
            await asyncio.sleep(0.05)
        gateway.sizes.clear()
        gateway.open.set()
        async with asyncio.timeout(10):
            assert (await asked)["outcome"] == "exists"
            assert await runtime.result("c") == ("done" if ends else "more")
            await busy
        assert gateway.sizes[0] == 1
        assert gateway.sizes[1] > 1
        assert runtime.counts.lost == 0
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
