"""Children, and executions that go on as others (clauses E6, E7)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.flow.nodes import OWNER, World, until
from underseal.errors import ChildFailed, ExecutionFailed, StepError
from underseal.flow.context import FlowContext
from underseal.flow.definition import flow
from underseal.flow.values import LIMIT

Ctx = FlowContext


async def give(value: Any) -> Any:
    """A step that gives what it is given."""
    return value


@flow("leaf")
async def leaf(ctx: Ctx, value: Any) -> Any:
    """Does what it is told."""
    if value == "fail":
        raise ValueError("no")
    if value == "wait":
        return await ctx.receive("go")
    if value == "big":
        return "x" * LIMIT
    if value == "nearly":
        return "x" * (LIMIT - 2)
    return await ctx.run("s", give, value)


@pytest.mark.clause("E6c")
async def test_a_child_gives_its_output(w: World) -> None:
    @flow("f")
    async def body(ctx: Ctx) -> Any:
        one = ctx.child(leaf, 5)
        two = ctx.child("leaf", 6, name="other")
        plain = await one
        picked = await ctx.select(ctx.receive("never"), two)
        return [plain, picked.index, picked.value, one.id, two.id]

    node = w.node(body, leaf)
    execution = await node.start("f")
    assert await node.result(execution) == [5, 1, 6, f"{execution}~leaf-1", f"{execution}~other-2"]
    assert (await w.executions.get(f"{execution}~leaf-1", OWNER)).owner == OWNER


@pytest.mark.clause("E6c")
async def test_many_children_at_once_and_children_of_children(w: World) -> None:
    @flow("mid")
    async def mid(ctx: Ctx, value: int) -> Any:
        return sum(await asyncio.gather(*[ctx.child(leaf, value * 10 + n) for n in range(3)]))

    @flow("f")
    async def body(ctx: Ctx) -> Any:
        return await asyncio.gather(*[ctx.child(mid, n) for n in range(8)])

    node, other = w.node(body, mid, leaf), w.node(mid, leaf)
    assert await node.run("f") == [n * 30 + 3 for n in range(8)]
    assert other.runtime.counts.claimed + node.runtime.counts.claimed >= 32


@pytest.mark.clause("E6c")
async def test_a_child_that_fails_or_is_cancelled_raises(w: World) -> None:
    @flow("f")
    async def body(ctx: Ctx) -> Any:
        told = []
        for value in ("fail", "wait", "big"):
            try:
                await ctx.child(leaf, value)
            except ChildFailed as error:
                told.append([error.status, error.error and error.error["type"]])
        return told

    node = w.node(body, leaf)
    execution = await node.start("f")
    child = f"{execution}~leaf-3"
    await until(
        lambda: (
            w.admin.execute("select from underseal.execution where member = 'leaf-3'").fetchone() is not None
        )
    )
    await w.parks(child)
    await w.executions.cancel(child, OWNER)
    assert await node.result(execution) == [
        ["failed", "ValueError"],
        ["cancelled", None],
        ["failed", "NotRecordable"],
    ]


@pytest.mark.clause("E6c")
async def test_an_output_that_is_just_small_enough_reaches_the_parent(w: World) -> None:
    @flow("f")
    async def body(ctx: Ctx) -> Any:
        return len(await ctx.child(leaf, "nearly", name="a" * 60))

    assert await w.node(body, leaf).run("f") == LIMIT - 2


@pytest.mark.clause("E6c")
async def test_a_child_that_cannot_begin_is_an_error_of_the_call(w: World) -> None:
    @flow("f")
    async def body(ctx: Ctx) -> Any:
        told = []
        for arm in (ctx.child(leaf, object()), ctx.child("x" * 201, name="a"), ctx.hold("t", {})):
            try:
                await arm
            except StepError as error:
                told.append(error.error["type"])
        return told

    assert await w.node(body, leaf).run("f") == ["NotRecordable", "ChildRefused", "FlowError"]


@pytest.mark.clause("E6c")
async def test_a_child_is_begun_once_whatever_crashes(w: World) -> None:
    @flow("f")
    async def body(ctx: Ctx) -> Any:
        return await ctx.child(leaf, 5)

    node = w.node(body)
    execution = await node.start("f")
    await until(lambda: any('"leaf"' in item for item in node.faults.items))
    await until(
        lambda: (
            w.admin.execute("select from underseal.execution where member = 'leaf-1'").fetchone() is not None
        )
    )
    node.faults.shut("write")
    await node.kill()
    w.expire_claims(execution)
    assert await w.node(body, leaf).result(execution) == 5
    assert w.admin.execute("select from underseal.execution").rowcount == 2


@pytest.mark.clause("E6d", "E7a")
async def test_a_flow_goes_on_as_new_with_its_inbox(w: World) -> None:
    @flow("f", version=2)
    async def body(ctx: Ctx, round_: int) -> Any:
        got = await ctx.receive("m")
        child = ctx.child(leaf, got)
        await child
        if round_ < 3:
            ctx.continue_as_new(round_ + 1)
        return [round_, got, child.id]

    node = w.node(body, leaf)
    execution = await node.start("f", 1)
    for number in range(3):
        await w.send(execution, "m", number)
    assert await node.result(execution) == [3, 2, f"{execution}~leaf-2r3"]
    assert [await w.status(one) for one in (execution, f"{execution}~2", f"{execution}~3")] == [
        "continued", "continued", "completed",
    ]  # fmt: skip
    assert node.runtime.counts.continued == 2


@pytest.mark.clause("E6d")
async def test_a_child_may_go_on_as_another_flow(w: World) -> None:
    @flow("kid")
    async def kid(ctx: Ctx, value: int) -> None:
        ctx.continue_as_new(value + 1, flow=leaf)

    @flow("f")
    async def body(ctx: Ctx) -> Any:
        return await ctx.child(kid, 1)

    assert await w.node(body, kid, leaf).run("f") == 2


@pytest.mark.clause("E6c")
async def test_a_child_that_never_ends_harms_no_parent_that_does_not_wait(w: World) -> None:
    @flow("f")
    async def body(ctx: Ctx) -> Any:
        child = ctx.child(leaf, "wait")
        picked = await ctx.select(child, ctx.sleep(seconds=0.02))
        return picked.index

    node = w.node(body, leaf)
    execution = await node.start("f")
    assert await node.result(execution) == 1
    await w.comes_to(f"{execution}~leaf-1", "suspended")
    await w.send(f"{execution}~leaf-1", "go", 1)
    assert await node.result(f"{execution}~leaf-1") == 1


async def test_the_result_of_what_fails_or_is_not_there(w: World) -> None:
    node = w.node(leaf)
    with pytest.raises(ExecutionFailed) as caught:
        await node.run("leaf", "fail")
    assert (caught.value.status, caught.value.error) == ("failed", {"type": "ValueError", "message": "no"})
    with pytest.raises(ExecutionFailed, match="not-found"):
        await node.result("nobody")


async def test_who_gives_up_waiting_takes_nobody_along(w: World) -> None:
    node = w.node(leaf)
    execution = await node.start("leaf", "wait")
    first = asyncio.create_task(node.runtime.result(execution))
    second = asyncio.create_task(node.runtime.result(execution))
    await w.parks(execution)
    first.cancel()
    await asyncio.wait([first])
    await w.send(execution, "go", 8)
    assert await asyncio.wait_for(second, 5) == 8
    assert node.runtime._awaited == {}
    gone = asyncio.create_task(node.runtime.result("nobody"))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.wait([gone])
    assert node.runtime._awaited == {}
