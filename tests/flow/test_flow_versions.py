"""Versions, migrations, forks, outcomes, and code that has left its log behind (clauses E5, E6)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.flow.nodes import OWNER, World, until
from underseal.errors import ExecutionFailed
from underseal.flow import items
from underseal.flow.context import FlowContext
from underseal.flow.definition import flow
from underseal.flow.replay import DIVERGED_GATE
from underseal.testing import TestClock

Ctx = FlowContext


async def give(value: Any) -> Any:
    """A step that gives what it is given."""
    return value


@flow("f")
async def right(ctx: Ctx) -> Any:
    """As it was when it began."""
    one = await ctx.run("one", give, 1)
    await ctx.sleep(hours=1)
    return [one, await ctx.run("two", give, 2)]


@flow("f")
async def wrong(ctx: Ctx) -> Any:
    """Not as it was."""
    return await ctx.run("another", give, 1)


@pytest.mark.clause("E5b")
async def test_a_flow_that_diverges_parks_and_goes_on_with_the_right_code(
    timed: World, clock: TestClock
) -> None:
    node = timed.node(right)
    execution = await node.start("f")
    await timed.parks(execution)
    (waits,) = [one["waits"] for one in await timed.data(execution, "EXECUTION_SUSPENDED")]
    await node.kill()

    clock.advance(minutes=30)
    timed.admin.execute("update underseal.wake set wake_at = underseal.clock()")
    await timed.driver.acquire_fence(execution)
    bad = timed.node(wrong)
    await timed.executions.send(execution, "odd", 1, OWNER)
    clock.advance(minutes=31)
    (told,) = await until(lambda: _data(timed, execution, "FLOW_DIVERGED"))
    assert told == {"op": 1, "expected": "step one", "found": "step another", "flow_version": 1}
    await timed.parks(execution)
    assert "EXECUTION_FAILED" not in await timed.types(execution)
    (report,) = await until(lambda: timed.reports("flow-diverged"))
    assert report["subject"] == execution
    assert "step another" in report["cause"]
    assert bad.driven == set()
    await bad.kill()

    good = timed.node(right)
    await asyncio.sleep(0.05)
    assert await timed.status(execution) == "suspended"
    await timed.executions.resume(execution, DIVERGED_GATE, None, OWNER)
    assert await good.result(execution) == [1, 2]
    assert waits[0]["wait"] == "2:sleep"


async def _data(w: World, execution: str, kind: str) -> list[Any]:
    return await w.data(execution, kind)


@pytest.mark.clause("E5b")
async def test_an_instant_is_kept_through_a_divergence(
    timed: World, clock: TestClock, caplog: pytest.LogCaptureFixture
) -> None:
    @flow("f")
    async def two_waits(ctx: Ctx) -> Any:
        picked = await asyncio.gather(ctx.select(ctx.sleep(hours=1)), ctx.select(ctx.receive("a")))
        return [one.index for one in picked]

    node = timed.node(two_waits)
    execution = await node.start("f")
    await timed.parks(execution)
    before = (await timed.data(execution, "EXECUTION_SUSPENDED"))[-1]["waits"][0]["arms"]
    await node.kill()
    clock.advance(minutes=30)
    bad = timed.node(wrong)
    await timed.send(execution, "a")
    await until(lambda: _data(timed, execution, "FLOW_DIVERGED"))
    assert [
        said.message for said in caplog.records if f"execution {execution} has diverged: " in said.message
    ]
    await timed.parks(execution)
    park = (await timed.data(execution, "EXECUTION_SUSPENDED"))[-1]["waits"]
    assert [one["wait"] for one in park] == ["1:select", "diverged"]
    assert park[0]["arms"] == before
    # asked again, with the same code: it says the same, once
    await timed.executions.resume(execution, DIVERGED_GATE, None, OWNER)
    await until(lambda: _count(timed, execution, "EXECUTION_SUSPENDED", 3))
    assert len(await timed.data(execution, "FLOW_DIVERGED")) == 1
    await bad.kill()
    good = timed.node(two_waits)
    await timed.executions.resume(execution, DIVERGED_GATE, None, OWNER)
    await until(lambda: _count(timed, execution, "EXECUTION_SUSPENDED", 4))
    clock.advance(minutes=30)
    assert await good.result(execution) == [0, 0]


async def _count(w: World, execution: str, kind: str, number: int) -> bool:
    return len(await w.data(execution, kind)) >= number


@pytest.mark.clause("E5b", "E6e")
async def test_a_flow_that_has_diverged_can_be_cancelled_once_its_code_is_right(w: World) -> None:
    @flow("f")
    async def body(ctx: Ctx) -> None:
        try:
            await ctx.receive("a")
        finally:
            await ctx.run("undo", give, 1)

    node = w.node(body)
    execution = await node.start("f")
    await w.parks(execution)
    await node.kill()
    bad = w.node(wrong)
    await w.executions.cancel(execution, OWNER)
    await until(lambda: _data(w, execution, "FLOW_DIVERGED"))
    await w.parks(execution)
    await asyncio.sleep(0.05)
    assert len(await w.data(execution, "EXECUTION_SUSPENDED")) == 2
    await bad.kill()
    w.node(body)
    await w.executions.resume(execution, DIVERGED_GATE, None, OWNER)
    await w.comes_to(execution, "cancelled")
    assert [one["name"] for one in await w.data(execution, "STEP_COMPLETED")] == ["undo"]


@pytest.mark.clause("E5b")
async def test_whatever_a_log_holds_it_stops_no_other(w: World) -> None:
    @flow("f")
    async def body(ctx: Ctx, value: int) -> int:
        await ctx.receive("a")
        return value

    node = w.node(body)
    odd, fine = await node.start("f", 1), await node.start("f", 2)
    for one in (odd, fine):
        await w.parks(one)
    await node.kill()
    fence = (await w.driver.acquire_fence(odd)).fence
    assert fence is not None
    await w.send(odd, "a")
    await w.driver.deliver(odd, fence)
    told = items.append_text(odd, fence, [items.event_text("STEP_COMPLETED", {"odd": True})])
    node = w.make(body)
    assert (await node.runtime.gateway.write([told]))[0]["outcome"] == "appended"
    node.serve()
    await w.send(fine, "a")
    assert await node.result(fine) == 2
    (flaw,) = await until(lambda: _data(w, odd, "FLOW_DIVERGED"))
    assert flaw["found"] == "KeyError"
    await w.parks(odd)


@pytest.mark.clause("E6g")
async def test_each_version_is_driven_by_its_code(w: World) -> None:
    @flow("f", version=1)
    async def old(ctx: Ctx) -> Any:
        return ["old", ctx.version]

    @flow("f", version=3, also_drives=[2])
    async def new(ctx: Ctx) -> Any:
        return ["new", ctx.version]

    executions = [await w.begin("f", version=version) for version in (1, 2, 3)]
    node = w.node(old, new)
    assert [await node.result(one) for one in executions] == [["old", 1], ["new", 2], ["new", 3]]
    assert await node.run("f") == ["new", 3]


@pytest.mark.clause("E6g")
async def test_what_no_code_here_drives_is_left_to_others(w: World) -> None:
    @flow("f", version=2)
    async def new(ctx: Ctx) -> str:
        return "new"

    old_one, newest = await w.begin("f", version=1), await w.begin("f", version=3)
    node = w.node(new)
    await until(lambda: node.faults.calls["put_off"])
    assert await node.run("f") == "new"
    for one in (old_one, newest):
        assert await w.types(one) == ["EXECUTION_STARTED"]
        assert all(wake["claimed_by"] is None for wake in w.wakes(one))


@pytest.mark.clause("E6g")
async def test_a_migration_goes_on_with_the_newer_code(timed: World, clock: TestClock) -> None:
    @flow("f", version=1)
    async def old(ctx: Ctx) -> Any:
        await ctx.run("one", give, 1)
        await ctx.sleep(hours=1)
        return "old"

    @flow("f", version=2, also_drives=[1])
    async def new(ctx: Ctx) -> Any:
        await ctx.run("one", give, 1)
        before = ctx.version
        await ctx.sleep(hours=1)
        if ctx.version >= 2:
            await ctx.run("extra", give, 2)
        return ["new", before, ctx.version]

    node = timed.node(old)
    execution = await node.start("f")
    await timed.parks(execution)
    await node.kill()
    node = timed.node(new)
    assert (await timed.executions.migrate(execution, 2, OWNER)).outcome == "migrated"
    await until(lambda: _count(timed, execution, "EXECUTION_SUSPENDED", 2))
    first, second = [one["waits"] for one in await timed.data(execution, "EXECUTION_SUSPENDED")]
    assert first == second
    clock.advance(hours=1)
    assert await node.result(execution) == ["new", 1, 2]


@pytest.mark.clause("E6g")
async def test_a_migration_under_way_takes_the_execution_from_its_driver(w: World) -> None:
    go, began = asyncio.Event(), asyncio.Event()

    async def slow() -> int:
        began.set()
        await go.wait()
        return 1

    @flow("f", version=1, also_drives=[2])
    async def body(ctx: Ctx) -> Any:
        await ctx.run("first", give, 1)
        await ctx.run("slow", slow)
        return ctx.version

    node = w.node(body)
    execution = await node.start("f")
    await until(began.is_set)
    began.clear()
    assert (await w.executions.migrate(execution, 2, OWNER)).outcome == "migrated"
    await until(began.is_set)
    go.set()
    assert await node.result(execution) == 2
    assert node.runtime.counts.lost == 1


@pytest.mark.clause("E6f")
async def test_a_fork_of_a_prefix_drives_on(w: World) -> None:
    ran: list[int] = []

    @flow("f")
    async def body(ctx: Ctx, value: int) -> Any:
        token = str(ctx.uuid())
        one = await ctx.run("one", ran_step, value)
        got = await ctx.receive("a")
        two = await ctx.run("two", ran_step, got)
        return [token, one, two, ctx.execution_id]

    async def ran_step(value: int) -> int:
        ran.append(value)
        return value

    node = w.node(body)
    execution = await node.start("f", 1)
    await w.parks(execution)
    await w.send(execution, "a", 2)
    token, *rest = await node.result(execution)
    assert rest == [1, 2, execution]
    park = (await w.types(execution)).index("EXECUTION_SUSPENDED")
    fork = await w.executions.fork(execution, park, OWNER)
    await w.send(str(fork), "a", 9)
    assert await node.result(str(fork)) == [token, 1, 9, str(fork)]
    assert ran == [1, 2, 9]
    middle = await w.executions.fork(execution, park - 1, OWNER)
    await w.send(str(middle), "a", 7)
    assert await node.result(str(middle)) == [token, 1, 7, str(middle)]


@pytest.mark.clause("E6f")
async def test_an_outcome_is_recorded_beside_a_run_and_after_it(w: World) -> None:
    go, began = asyncio.Event(), asyncio.Event()

    async def slow() -> int:
        began.set()
        await go.wait()
        return 1

    @flow("f")
    async def body(ctx: Ctx) -> Any:
        await ctx.run("slow", slow)
        return await ctx.receive("a")

    node = w.node(body)
    execution = await node.start("f")
    await until(began.is_set)
    await w.executions.record_outcome(execution, "during", OWNER)
    go.set()
    await w.parks(execution)
    await w.send(execution, "a", 3)
    assert await node.result(execution) == 3
    await w.executions.record_outcome(execution, "after", OWNER)
    assert [one["outcome"] for one in await w.data(execution, "OUTCOME_RECORDED")] == ["during", "after"]
    assert await w.node(body).result(execution) == 3


@pytest.mark.clause("E6b")
async def test_a_message_with_an_envelope_is_no_message_for_a_flow(w: World) -> None:
    @flow("f")
    async def body(ctx: Ctx) -> Any:
        return await ctx.receive("a")

    node = w.node(body)
    execution = await node.start("f")
    await w.parks(execution)
    with pytest.raises(Exception, match="envelope"):
        await w.send(execution, "a", {"__loomEnc": "x"})
    await w.send(execution, "a", {"__loomEnc": 5})
    assert await node.result(execution) == {"__loomEnc": 5}


@pytest.mark.clause("E6b")
async def test_a_message_that_came_in_sealed_holds_the_flow_and_fails_nothing(w: World) -> None:
    @flow("f")
    async def body(ctx: Ctx) -> Any:
        return await ctx.receive("a")

    node = w.node(body)
    execution = await node.start("f")
    await w.parks(execution)
    await node.kill()
    await w.send(execution, "a", {"x": 1})
    with w.admin.transaction():
        w.admin.execute("alter table underseal.inbox_message disable trigger inbox_message_fixed")
        w.admin.execute("""update underseal.inbox_message set payload = '{"__loomEnc": "x"}'""")
        w.admin.execute("alter table underseal.inbox_message enable always trigger inbox_message_fixed")
    node = w.node(body)
    await until(lambda: node.faults.calls["put_off"])
    assert node.driven == set()
    assert await w.status(execution) == "suspended"
    assert "MESSAGE_CONSUMED" not in await w.types(execution)


async def test_a_flow_may_fail_by_what_it_recorded(w: World) -> None:
    @flow("f")
    async def body(ctx: Ctx) -> None:
        await ctx.run("one", give, 1)
        raise LookupError("gone")

    with pytest.raises(ExecutionFailed, match="LookupError: gone"):
        await w.node(body).run("f")
