"""The database goes away in the middle of each call: the end is as without, and no step runs twice (clauses E6, E7)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from tests.flow.nodes import OWNER, Lost, Node, World, until
from underseal.errors import ExecutionAlreadyExistsError
from underseal.flow import items
from underseal.flow.context import FlowContext
from underseal.flow.definition import Retry, flow
from underseal.flow.replay import End

Ctx = FlowContext

ran: Counter[str] = Counter()


async def step(name: str) -> str:
    """Run, and be counted."""
    ran[name] += 1
    return name


async def shaky(name: str) -> str:
    """Fail once."""
    ran[name] += 1
    if ran[name] == 1:
        raise ValueError
    return name


@flow("kid")
async def kid(ctx: Ctx, value: int) -> int:
    """A child."""
    await ctx.run("kid", step, "kid")
    return value + 1


@flow("f")
async def everything(ctx: Ctx, round_: int = 1) -> Any:
    """A flow that uses everything."""
    if round_ == 1:
        await asyncio.gather(ctx.run("a", step, "a"), ctx.run("b", step, "b"))
        ctx.random()
        await ctx.now()
        await ctx.sleep(seconds=0.01)
        await ctx.run("s", shaky, "s", retry=Retry(attempts=2, first=timedelta(milliseconds=5)))
        got = await ctx.receive("m")
        child = await ctx.child(kid, got)
        await ctx.run("c", step, f"c{child}")
        ctx.continue_as_new(2)
    await ctx.run("d", step, "d")
    picked = await ctx.select(ctx.gate("g"), ctx.sleep(days=1))
    return [round_, picked.index, picked.value]


ENDS = {"a": 1, "b": 1, "s": 2, "kid": 1, "c6": 1, "d": 1}


async def driven(w: World, node: Node) -> str:
    """Run it, with what others do."""
    execution = await node.start("f", 1)
    await w.send(execution, "m", 5)
    await until(lambda: _answered(w, execution), 20)
    assert await asyncio.wait_for(node.runtime.result(execution), 20) == [2, 0, "yes"]
    return execution


async def _answered(w: World, execution: str) -> bool:
    last = w.admin.execute("select status from underseal.execution where member = '2'").fetchone()
    if last is None or last["status"] != "suspended":
        return False
    return (await w.executions.resume(f"{execution}~2", "g", "yes", OWNER)).outcome != "denied"


def logged(w: World) -> dict[str, Counter[str]]:
    """What the logs say, but for the marks of recoveries and the order of what happened side by side."""
    rows = w.admin.execute(
        "select member, type from underseal.event where type <> 'EXECUTION_RECOVERED' order by member, seq"
    ).fetchall()
    told: dict[str, Counter[str]] = {}
    for row in rows:
        told.setdefault(row["member"], Counter())[row["type"]] += 1
    for counts in told.values():
        # how often it parked depends on what had come by then
        counts.pop("EXECUTION_SUSPENDED", None)
    return told


CALLS = ["write", "claim", "deliver", "read", "now", "head"]
COUNTS = {"write": 14, "claim": 3, "read": 3, "deliver": 2}
# each call is lost once, every other one before and the others after it was made
CASES = [
    (call, "before" if number % 2 else "after", number)
    for call in CALLS
    for number in range(1, COUNTS.get(call, 2) + 1)
]


@pytest.mark.clause("E6a", "E6b", "E6c", "E6d", "E7a")
@pytest.mark.parametrize("call", CALLS)
async def test_a_call_that_is_lost_changes_nothing(w: World, call: str) -> None:
    expected: dict[str, Counter[str]] | None = None
    for which, when, number in [(None, "", 0), *[case for case in CASES if case[0] == call]]:
        ran.clear()
        node = w.node(everything, kid, lease=timedelta(seconds=1))
        if which is not None:
            node.faults.lose(which, when, number)
        await driven(w, node)
        assert ran == ENDS, (which, when, number)
        told = logged(w)
        expected = expected or told
        assert told == expected, (which, when, number)
        await node.kill()
        w.empty()


@pytest.mark.clause("E6a", "E6b", "E6c", "E6d", "E7a")
async def test_a_database_that_is_away_for_a_while_is_waited_for(w: World) -> None:
    ran.clear()
    node = w.node(everything, kid)
    flaky = asyncio.create_task(comes_and_goes(node))
    await driven(w, node)
    await flaky
    assert ran == ENDS


async def comes_and_goes(node: Node) -> None:
    """The database is away half of the time, for a while."""
    for _ in range(6):
        node.faults.away(
            "write", "claim", "deliver", "read", "now", "head", "refence", "recover", "renew", "release"
        )
        await asyncio.sleep(0.04)
        node.faults.back()
        await asyncio.sleep(0.04)


@pytest.mark.clause("E6a")
@pytest.mark.parametrize("call", ["refence", "head", "read", "renew"])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_finding_out_what_became_of_a_write_may_fail_too(w: World, call: str, when: str) -> None:
    ran.clear()

    @flow("g")
    async def body(ctx: Ctx) -> str:
        await ctx.run("one", step, "one")
        return await ctx.run("two", step, "two")

    node = w.node(body, lease=timedelta(seconds=1))
    node.faults.lose("write", "after", 2)
    node.faults.lose(call, when)
    execution = await node.start("g")
    assert await node.result(execution) == "two"
    # where the new fence's answer was lost nobody drives it, and it is taken over
    assert ran["one"] == 1
    assert ran["two"] == 1


@pytest.mark.clause("E3", "E6a")
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("also", [None, "renew", "head"])
async def test_a_start_of_which_nobody_knows_is_made_once(w: World, when: str, also: str | None) -> None:
    @flow("g")
    async def body(ctx: Ctx) -> int:
        return int(await ctx.receive("a"))

    node = w.node(body)
    node.faults.lose("write", when)
    if also:
        node.faults.lose(also, "before")
    execution = await asyncio.wait_for(node.start("g", execution_id="e"), 5)
    await w.send(execution, "a", 4)
    assert await node.result(execution) == 4
    assert (await w.types(execution)).count("EXECUTION_STARTED") == 1


@pytest.mark.clause("E3")
async def test_a_start_of_somebody_elses_id_stays_refused_after_doubt(w: World) -> None:
    @flow("g")
    async def body(ctx: Ctx) -> None:
        await ctx.receive("a")

    await w.begin("other", execution_id="e")
    node = w.node(body)
    node.faults.lose("write", "before")
    with pytest.raises(ExecutionAlreadyExistsError):
        await asyncio.wait_for(node.start("g", execution_id="e"), 5)
    assert node.driven == set()


@pytest.mark.clause("E7a")
@pytest.mark.parametrize("message_first", [True, False])
async def test_a_park_of_which_nobody_knows_loses_no_message(w: World, message_first: bool) -> None:
    @flow("g")
    async def body(ctx: Ctx) -> int:
        return int(await ctx.receive("a"))

    node = w.node(body)
    node.faults.lose("write", "after", 2)
    stop = node.faults.stop_at('"park"')
    execution = await node.start("g")
    await until(stop.reached.is_set)
    if message_first:
        await w.send(execution, "a", 4)
    stop.go.set()
    if not message_first:
        await w.parks(execution)
        await w.send(execution, "a", 4)
    assert await node.result(execution) == 4


@pytest.mark.clause("E6a")
async def test_an_end_of_which_nobody_knows_is_known_by_looking(w: World) -> None:
    @flow("g")
    async def body(ctx: Ctx) -> int:
        return 4

    node = w.node(body)
    node.faults.lose("write", "after", 2)
    assert await node.run("g") == 4
    assert node.runtime.counts.completed == 1
    await until(lambda: not node.driven)


@pytest.mark.clause("E6a")
async def test_an_end_that_somebody_else_wrote_meanwhile_is_not_ours(w: World) -> None:
    @flow("g")
    async def body(ctx: Ctx) -> int:
        await ctx.run("one", step, "one")
        return 4

    node = w.node(body)
    stop = node.faults.stop_at('"complete"')
    execution = await node.start("g")
    await until(stop.reached.is_set)
    node.faults.lose("write", "before")
    await w.executions.cancel(execution, OWNER, force=True)
    stop.go.set()
    with pytest.raises(Exception, match="ended cancelled"):
        await node.result(execution)
    assert node.runtime.counts.completed == 0
    assert node.runtime.counts.lost == 1


@pytest.mark.clause("E6a")
async def test_an_end_of_the_same_kind_that_somebody_else_wrote_is_not_ours(w: World) -> None:
    @flow("g")
    async def body(ctx: Ctx) -> int:
        return 4

    node = w.node(body)
    stop = node.faults.stop_at('"complete"')
    execution = await node.start("g")
    await until(stop.reached.is_set)
    node.faults.lose("write", "before")
    fence = (await w.driver.acquire_fence(execution)).fence
    assert fence is not None
    other = items.end_text(execution, fence, [], End("completed", "9"))
    assert (await w.make(body).runtime.gateway.write([other]))[0]["outcome"] == "completed"
    stop.go.set()
    assert await node.result(execution) == 9
    assert node.runtime.counts.completed == 0


@pytest.mark.clause("E6a")
@pytest.mark.parametrize(
    ("call", "act"),
    [("release", lambda node, _: node.stop()), ("renew", lambda _, execution: asyncio.sleep(1.3))],
)
async def test_a_release_or_a_renewal_that_is_lost_costs_time_alone(
    w: World, call: str, act: Callable[[Node, str], Awaitable[Any]]
) -> None:
    tries: list[int] = []

    async def slow() -> None:
        tries.append(1)
        if len(tries) == 1:
            await asyncio.sleep(2 if call == "renew" else 60)

    @flow("g")
    async def body(ctx: Ctx) -> None:
        await ctx.run("slow", slow)

    node = w.node(body, lease=timedelta(seconds=1))
    node.faults.lose(call, "before")
    execution = await node.start("g")
    await until(lambda: tries)
    if call == "release":
        await node.stop(grace=0.01)
        node = w.node(body, lease=timedelta(seconds=1))
    await node.result(execution)
    assert len(tries) == (2 if call == "release" else 1)


@pytest.mark.clause("E6a")
async def test_a_read_that_fails_otherwise_leaves_it_to_who_claims_next(w: World) -> None:
    @flow("g")
    async def body(ctx: Ctx) -> int:
        return 4

    execution = await w.begin("g")
    node = w.make(body, lease=timedelta(seconds=1))
    node.faults.lose("read", "before", error=ValueError("a bug"))
    node.serve()
    assert await node.result(execution) == 4
    assert len(await w.data(execution, "EXECUTION_RECOVERED")) == 1


@pytest.mark.clause("E6a")
async def test_news_that_cannot_be_read_are_read_again(w: World) -> None:
    @flow("g")
    async def body(ctx: Ctx) -> int:
        await ctx.sleep()
        return 4

    node = w.make(body, claims=False).serve()
    node.faults.lose("read", "before", error=Lost("away"))
    assert await node.run("g") == 4
