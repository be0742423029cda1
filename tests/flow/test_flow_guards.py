"""Guards that a flow in ordinary use would not miss (clauses E6, E8)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from tests.flow.nodes import World, until
from underseal.errors import ExecutionFailed
from underseal.flow import runtime
from underseal.flow.context import FlowContext
from underseal.flow.definition import flow
from underseal.flow.gateway import Gateway
from underseal.foundation.steps import Row

Ctx = FlowContext


async def give(value: Any = None) -> Any:
    """A step that gives what it is given."""
    return value


@pytest.mark.clause("E8a")
async def test_of_long_logs_few_are_read_in_one_call(w: World, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    read = Gateway.read

    async def counted(self: Gateway, logs: Sequence[dict[str, Any]], most: int) -> list[Row]:
        asked.append(len(logs))
        return await read(self, logs, most)

    @flow("f", snapshot_every=None)
    async def body(ctx: Ctx) -> Any:
        for _ in range(20):
            await ctx.run("s", give)
        return await ctx.receive("a")

    first = w.node(body)
    made = [await first.start("f") for _ in range(6)]
    for execution in made:
        await w.parks(execution)
    await first.stop()
    for execution in made:
        await w.send(execution, "a", 1)
    monkeypatch.setattr(runtime, "_AT_ONCE", 50)
    monkeypatch.setattr(Gateway, "read", counted)
    node = w.node(body)
    assert [await node.result(execution) for execution in made] == [1] * 6
    assert max(asked) == 2


@pytest.mark.clause("E6h")
async def test_what_runs_ends_before_the_failure_is_written(w: World) -> None:
    ended: list[str] = []

    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    @flow("f", journal="behind")
    async def body(ctx: Ctx) -> None:
        beside = ctx.run("slow", slow)
        # the kernel counts the whole event, and says no
        await ctx.run("big", give, "é" * 500_000 + "\\" * 22_000)
        await beside

    node = w.node(body)
    real = node.runtime.journal._write

    async def refusing(items: Any) -> Any:
        return await real([item.replace('"type":"STEP_COMPLETED"', '"type":"bad type"') for item in items])

    node.runtime.journal._write = refusing
    failing = node.faults.stop_at('"verb":"fail"')
    execution = await node.start("f")
    await until(failing.reached.is_set)
    assert ended == ["cancelled"]
    failing.go.set()
    with pytest.raises(ExecutionFailed, match="WriteRefused"):
        await node.result(execution)
