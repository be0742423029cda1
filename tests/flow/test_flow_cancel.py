"""Cancelling a flow: it is told, cleans up, and takes along what it began (clauses E6, E7)."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from tests.flow.nodes import OWNER, World, until
from underseal.errors import ExecutionFailed
from underseal.flow.context import FlowContext
from underseal.flow.definition import flow

Ctx = FlowContext


async def give(value: Any) -> Any:
    """A step that gives what it is given."""
    return value


@flow("leaf")
async def leaf(ctx: Ctx) -> Any:
    """Waits."""
    return await ctx.receive("go")


@flow("tidy")
async def tidy(ctx: Ctx, how: str) -> Any:
    """Waits, and cleans up."""
    try:
        await ctx.receive("a")
    except asyncio.CancelledError:
        await ctx.run("undo", give, how)
        await ctx.sleep(seconds=0.01)
        last = await ctx.select(ctx.receive("b"), ctx.sleep(seconds=0.01))
        await ctx.child("leaf", name="late") if how == "children" else None
        if how == "swallow":
            return ["swallowed", last.index]
        if how == "fail":
            raise ValueError("in clean-up") from None
        if how == "again":
            ctx.continue_as_new("done")
        raise
    return "not cancelled"


async def is_cancelled(w: World, execution: str) -> None:
    """Cancel it."""
    said = await w.executions.cancel(execution, OWNER, "no more")
    assert said.outcome == "requested", said


@pytest.mark.clause("E6e", "E7a")
@pytest.mark.parametrize(
    ("how", "status"),
    [("raise", "cancelled"), ("swallow", "completed"), ("fail", "failed"), ("again", "continued")],
)
async def test_a_parked_flow_is_told_and_cleans_up(w: World, how: str, status: str) -> None:
    node = w.node(tidy)
    execution = await node.start("tidy", how)
    await w.parks(execution)
    await is_cancelled(w, execution)
    await w.comes_to(execution, status)
    types = await w.types(execution)
    told = types.index("CANCELLATION_DELIVERED")
    assert types[told - 1] == "EXECUTION_CANCEL_REQUESTED"
    assert types[told + 1 : told + 3] == ["STEP_COMPLETED", "EXECUTION_SUSPENDED"]
    assert types.count("CANCELLATION_DELIVERED") == 1


@pytest.mark.clause("E6e")
async def test_a_step_that_runs_for_long_is_interrupted(w: World) -> None:
    """Nothing is written while it runs, so nothing tells its driver but a look of its own."""
    begun, interrupted = asyncio.Event(), asyncio.Event()

    async def endless() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            interrupted.set()

    @flow("long")
    async def body(ctx: Ctx) -> None:
        try:
            await ctx.run("endless", endless)
        finally:
            await ctx.run("undo", give, 1)

    node = w.node(body, lease=timedelta(seconds=1))
    execution = await node.start("long")
    await begun.wait()
    await is_cancelled(w, execution)
    await w.comes_to(execution, "cancelled")
    assert interrupted.is_set()
    assert (await w.types(execution))[1:] == [
        "EXECUTION_CANCEL_REQUESTED",
        "CANCELLATION_DELIVERED",
        "STEP_COMPLETED",
        "EXECUTION_CANCELLED",
    ]


@pytest.mark.clause("E6e")
async def test_a_cancelled_flow_is_waited_for_in_vain(w: World) -> None:
    node = w.node(leaf)
    execution = await node.start("leaf")
    await w.parks(execution)
    await is_cancelled(w, execution)
    with pytest.raises(ExecutionFailed) as caught:
        await node.result(execution)
    assert (caught.value.status, caught.value.error) == ("cancelled", None)
    assert node.runtime.counts.cancelled == 1


@pytest.mark.clause("E6e", "E7a")
async def test_a_crash_in_the_clean_up_goes_on_with_it(w: World) -> None:
    stuck, ran = asyncio.Event(), 0

    async def undo() -> None:
        nonlocal ran
        ran += 1
        if ran == 1:
            stuck.set()
            await asyncio.Event().wait()

    @flow("f")
    async def body(ctx: Ctx) -> None:
        try:
            await ctx.receive("a")
        finally:
            await ctx.run("first", give, 1)
            await ctx.run("undo", undo)

    node = w.node(body)
    execution = await node.start("f")
    await w.parks(execution)
    await is_cancelled(w, execution)
    await until(stuck.is_set)
    await node.kill()
    w.expire_claims(execution)
    w.node(body)
    await w.comes_to(execution, "cancelled")
    assert ran == 2
    types = await w.types(execution)
    assert types.count("CANCELLATION_DELIVERED") == 1
    assert [one["name"] for one in await w.data(execution, "STEP_COMPLETED")] == ["first", "undo"]


@pytest.mark.clause("E6e", "E7a")
@pytest.mark.parametrize("what", ["step", "park"])
async def test_a_flow_that_runs_is_told_as_soon_as_it_writes(w: World, what: str) -> None:
    began, go = asyncio.Event(), asyncio.Event()

    async def slow() -> None:
        began.set()
        await go.wait()

    @flow("f")
    async def body(ctx: Ctx) -> Any:
        await ctx.run("first", give, 1)
        await ctx.run("second", give, 1)
        if what == "step":
            await ctx.run("slow", slow)
            await ctx.run("more", give, 1)
        await ctx.receive("a")

    node = w.node(body)
    stop = node.faults.stop_at('"park"')
    execution = await node.start("f")
    await until(began.is_set if what == "step" else stop.reached.is_set)
    await is_cancelled(w, execution)
    go.set()
    stop.go.set()
    await w.comes_to(execution, "cancelled")
    assert "more" not in [one["name"] for one in await w.data(execution, "STEP_COMPLETED")]
    assert "EXECUTION_SUSPENDED" not in await w.types(execution)


@pytest.mark.clause("E6e")
async def test_a_cancel_before_the_first_claim_ends_it(w: World) -> None:
    execution = await w.begin("leaf")
    assert (await w.executions.cancel(execution, OWNER)).outcome == "cancelled"
    node = w.node(leaf)
    await asyncio.sleep(0.05)
    assert node.runtime.counts.claimed == 0
    assert await w.types(execution) == ["EXECUTION_STARTED", "EXECUTION_CANCELLED"]


@pytest.mark.clause("E6e")
async def test_by_force_it_ends_at_once_and_nothing_of_it_is_written(w: World) -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    async def slow() -> None:
        began.set()
        try:
            await asyncio.sleep(0.05)
        finally:
            ended.set()

    @flow("f")
    async def body(ctx: Ctx) -> None:
        await ctx.run("slow", slow)
        await ctx.run("more", give, 1)

    node = w.node(body)
    execution = await node.start("f")
    await until(began.is_set)
    assert (await w.executions.cancel(execution, OWNER, force=True)).outcome == "cancelled"
    await until(ended.is_set)
    await until(lambda: not node.driven)
    assert node.runtime.counts.lost == 1
    assert await w.types(execution) == ["EXECUTION_STARTED", "EXECUTION_CANCELLED"]


@pytest.mark.clause("E6e")
async def test_what_a_cancelled_flow_began_is_cancelled_before_it_ends(w: World) -> None:
    @flow("mid")
    async def mid(ctx: Ctx) -> None:
        await ctx.child(leaf)

    @flow("f")
    async def body(ctx: Ctx) -> None:
        done = ctx.child(leaf, name="done")
        await done
        await asyncio.gather(ctx.child(leaf, name="a"), ctx.child(mid, name="b"))

    node = w.node(body, mid, leaf)
    execution = await node.start("f")
    await w.parks(execution)
    await w.send(f"{execution}~done-1", "go", 1)
    deepest = f"{execution}~b-4:leaf-1"
    await until(
        lambda: w.admin.execute("select from underseal.execution where member = 'b-4:leaf-1'").rowcount == 1
    )
    await w.parks(deepest)
    await w.parks(f"{execution}~a-3")
    await w.parks(execution)
    await is_cancelled(w, execution)
    await w.comes_to(execution, "cancelled")
    for one in (f"{execution}~a-3", f"{execution}~b-4", deepest):
        await w.comes_to(one, "cancelled")
    (told,) = await w.data(execution, "CANCELLATION_DELIVERED")
    assert told == {"cancels": [{"child": f"{execution}~a-3"}, {"child": f"{execution}~b-4"}]}


@pytest.mark.clause("E6e")
async def test_a_child_on_its_way_is_cancelled_too(w: World) -> None:
    @flow("f")
    async def body(ctx: Ctx) -> None:
        await ctx.run("s", give, 1)
        await ctx.child(leaf)

    node = w.make(body, leaf, claims=False).serve()
    stop = node.faults.stop_at('"CHILD_STARTED"')
    execution = await node.start("f")
    await until(stop.reached.is_set)
    await node.kill()
    await is_cancelled(w, execution)
    w.expire_claims(execution)
    w.node(body, leaf)
    await w.comes_to(execution, "cancelled")
    await w.comes_to(f"{execution}~leaf-2", "cancelled")


@pytest.mark.clause("E6e")
async def test_what_is_to_be_cancelled_is_cancelled_after_a_crash_too(w: World) -> None:
    @flow("f")
    async def body(ctx: Ctx) -> None:
        await ctx.child(leaf)

    node = w.node(body, leaf)
    execution = await node.start("f")
    await w.parks(execution)
    await w.comes_to(f"{execution}~leaf-1", "suspended")
    node.faults.shut("cancel")
    await is_cancelled(w, execution)
    await until(lambda: node.faults.calls["cancel"] == 1)
    assert "CANCELLATION_DELIVERED" in await w.types(execution)
    await node.kill()
    w.expire_claims(execution)
    w.node(body, leaf)
    await w.comes_to(execution, "cancelled")
    await w.comes_to(f"{execution}~leaf-1", "cancelled")


class Held:
    """Holds operations that never end."""

    def __init__(self) -> None:
        """None is held."""
        self.cancelled: list[UUID] = []

    async def request(self, kind: str, principal: str, params: Any, operation_id: UUID) -> UUID:
        """Hold one."""
        return operation_id

    async def cancel(self, operation_id: UUID, principal: str) -> None:
        """Cancel one, badly."""
        self.cancelled.append(operation_id)
        raise ValueError


@pytest.mark.clause("E6e")
async def test_a_hold_on_its_way_is_cancelled_with_its_flow(w: World) -> None:
    @flow("f")
    async def body(ctx: Ctx) -> None:
        await ctx.hold("t", {})

    held = Held()
    node = w.node(body, holds=held)
    node.faults.shut("await")
    execution = await node.start("f")
    await until(lambda: node.faults.calls["await"])
    (asked,) = await w.data(execution, "HOLD_REQUESTED")
    await node.kill()
    await is_cancelled(w, execution)
    w.expire_claims(execution)
    w.node(body, holds=held)
    await w.comes_to(execution, "cancelled")
    assert held.cancelled == [UUID(asked["operation_id"])]
