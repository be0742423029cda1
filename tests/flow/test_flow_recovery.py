"""Taking over from a driver that is gone, and how often (clauses E7, E8)."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from tests.flow.nodes import OWNER, Lost, Node, World, until
from underseal.flow.context import FlowContext
from underseal.flow.definition import Flow, flow
from underseal.flow.runtime import Limits
from underseal.flow.step import current_step

Ctx = FlowContext


async def give(value: Any) -> Any:
    """A step that gives what it is given."""
    return value


class Deadly:
    """A flow whose step takes its node down, until it is told not to."""

    def __init__(self) -> None:
        """It kills."""
        self.tries = 0
        self.began = asyncio.Event()
        self.harmless = False

    async def step(self) -> str:
        """Stand still, as if the process had died."""
        self.tries += 1
        self.began.set()
        if not self.harmless:
            await asyncio.Event().wait()
        return "survived"

    def flow(self) -> Flow:
        """The flow."""

        @flow("f")
        async def body(ctx: Ctx) -> str:
            return await ctx.run("deadly", self.step)

        return body

    async def kill(self, w: World, node: Node, execution: str) -> None:
        """The node dies in the step, and its claim runs out."""
        await until(self.began.is_set)
        self.began.clear()
        await node.kill()
        w.expire_claims(execution)


@pytest.mark.clause("E8a")
async def test_another_node_takes_over_what_a_dead_one_drove(w: World) -> None:
    deadly = Deadly()
    node = w.node(deadly.flow())
    execution = await node.start("f")
    await deadly.kill(w, node, execution)
    deadly.harmless = True
    other = w.node(deadly.flow())
    assert await other.result(execution) == "survived"
    (told,) = await w.data(execution, "EXECUTION_RECOVERED")
    assert told == {"worker": other.runtime.gateway.worker, "attempt": 1}
    assert deadly.tries == 2


@pytest.mark.clause("E8b")
async def test_it_is_taken_over_so_often_and_then_left_and_reported(w: World) -> None:
    deadly = Deadly()
    node = w.node(deadly.flow(), limits=Limits(recoveries=2))
    execution = await node.start("f")
    for _ in range(3):
        await deadly.kill(w, node, execution)
        node = w.node(deadly.flow(), limits=Limits(recoveries=2))
    await until(lambda: node.faults.calls["put_off"])
    assert node.driven == set()
    assert deadly.tries == 3
    assert len(await w.data(execution, "EXECUTION_RECOVERED")) == 2
    await until(lambda: w.reports("recoveries-exhausted"))
    assert w.wakes(execution)[0]["claimed_by"] is None
    await asyncio.sleep(0.05)
    assert deadly.tries == 3


@pytest.mark.clause("E8b")
async def test_a_try_that_records_something_counts_from_the_beginning(w: World) -> None:
    tries = 0
    began = asyncio.Event()

    async def deadly(number: int) -> int:
        nonlocal tries
        tries += 1
        if tries <= 6 and tries % 2 == 0:
            began.set()
            await asyncio.Event().wait()
        return number

    @flow("f")
    async def body(ctx: Ctx) -> Any:
        return [await ctx.run(f"s{number}", deadly, number) for number in range(6)]

    node = w.node(body, limits=Limits(recoveries=1))
    execution = await node.start("f")
    for _ in range(3):
        await until(began.is_set)
        began.clear()
        await node.kill()
        w.expire_claims(execution)
        node = w.node(body, limits=Limits(recoveries=1))
    assert await node.result(execution) == list(range(6))
    assert [one["attempt"] for one in await w.data(execution, "EXECUTION_RECOVERED")] == [1, 1, 1]


@pytest.mark.clause("E8b")
async def test_a_graceful_stop_is_no_try(w: World) -> None:
    tries = 0

    async def slow() -> int:
        nonlocal tries
        tries += 1
        if tries < 6:
            await asyncio.Event().wait()
        return tries

    @flow("f")
    async def body(ctx: Ctx) -> Any:
        return await ctx.run("slow", slow)

    node = w.node(body, limits=Limits(recoveries=1))
    execution = await node.start("f")
    for number in range(5):
        await until(lambda number=number: tries == number + 1)  # type: ignore[misc]
        await node.stop(grace=0.01)
        node = w.node(body, limits=Limits(recoveries=1))
    assert await node.result(execution) == 6
    assert "EXECUTION_RECOVERED" not in await w.types(execution)


@pytest.mark.clause("E8a")
async def test_the_same_name_restarted_is_another_node(w: World) -> None:
    """A claim of an earlier life holds until it runs out, even for a node of the same name."""
    deadly = Deadly()
    node = w.node(deadly.flow(), name="twin", lease=timedelta(seconds=1))
    execution = await node.start("f")
    await until(deadly.began.is_set)
    await node.kill()
    deadly.harmless = True
    again = w.node(deadly.flow(), name="twin", lease=timedelta(seconds=1))
    await asyncio.sleep(0.2)
    assert deadly.tries == 1
    assert await again.result(execution) == "survived"
    assert len(await w.data(execution, "EXECUTION_RECOVERED")) == 1


@pytest.mark.clause("E8a")
async def test_a_node_of_the_same_name_that_still_lives_writes_nothing_more(w: World) -> None:
    go, tries = asyncio.Event(), 0

    async def slow() -> int:
        nonlocal tries
        tries += 1
        if tries == 1:
            await go.wait()
        return tries

    @flow("f")
    async def body(ctx: Ctx) -> Any:
        return await ctx.run("slow", slow)

    node = w.make(body, name="twin", claims=False).serve()
    execution = await node.start("f")
    await until(lambda: tries == 1)
    w.expire_claims(execution)
    again = w.node(body, name="twin")
    assert await again.result(execution) == 2
    go.set()
    await until(lambda: not node.driven)
    assert [one["output"] for one in await w.data(execution, "STEP_COMPLETED")] == [2]


@pytest.mark.clause("E8a")
async def test_a_rescue_that_races_the_completion(w: World) -> None:
    """The claim runs out while the end is on its way: one of the two writes it, and it is written once."""

    @flow("f")
    async def body(ctx: Ctx) -> Any:
        return await ctx.run("s", give, 5)

    for first in ("completion", "rescue"):
        node, other = w.make(body, claims=False).serve(), w.make(body)
        stop = node.faults.stop_at('"complete"')
        execution = await node.start("f")
        await until(stop.reached.is_set)
        w.expire_claims(execution)
        if first == "completion":
            shut = other.faults.stop_at('"complete"')
            other.serve()
            await until(lambda other=other: other.faults.calls["recover"])  # type: ignore[misc]
            stop.go.set()
            shut.go.set()
        else:
            other.serve()
            await w.comes_to(execution, "completed")
            stop.go.set()
        assert await node.result(execution) == await other.result(execution) == 5
        await until(lambda node=node, other=other: not (node.driven | other.driven))  # type: ignore[misc]
        types = await w.types(execution)
        assert types.count("EXECUTION_COMPLETED") == 1
        assert types[-1] == "EXECUTION_COMPLETED"
        await node.kill()
        await other.kill()


@pytest.mark.clause("E7a", "E8a")
async def test_two_recover_one_flow_while_it_receives(w: World) -> None:
    """One consumes, the other writes nothing."""

    @flow("f")
    async def body(ctx: Ctx) -> Any:
        return [await ctx.receive("a"), await ctx.receive("a")]

    first, second = w.node(body), w.make(body)
    execution = await first.start("f")
    await w.parks(execution)
    shut = first.faults.shut("deliver")
    await w.send(execution, "a", 1)
    await until(lambda: first.faults.calls["deliver"])
    looks = first.faults.shut("claim")
    await asyncio.sleep(0.05)
    w.expire_claims(execution)
    second.serve()
    await until(lambda: _consumed(w, execution))
    first.faults.open("deliver")
    assert shut.is_set()
    assert not looks.is_set()
    await until(lambda: not first.driven)
    assert first.runtime.counts.lost == 1
    await w.parks(execution)
    await w.send(execution, "a", 2)
    assert await second.result(execution) == [1, 2]
    assert [one["inbox_seq"] for one in await w.data(execution, "MESSAGE_CONSUMED")] == [1, 2]


async def _consumed(w: World, execution: str) -> bool:
    return "MESSAGE_CONSUMED" in await w.types(execution)


@pytest.mark.clause("E8a")
@pytest.mark.parametrize(
    "error", [Lost("gone"), ValueError("a bug"), TimeoutError()], ids=lambda e: type(e).__name__
)
async def test_a_look_for_work_that_fails_once_ends_no_worker(w: World, error: Exception) -> None:
    @flow("f")
    async def body(ctx: Ctx) -> int:
        return 1

    node = w.make(body)
    node.faults.lose("claim", "before", error=error)
    execution = await w.begin("f")
    node.serve()
    assert await node.result(execution) == 1


@pytest.mark.clause("E7a", "E8a")
async def test_a_claim_whose_answer_is_lost_runs_out_and_is_taken_over(w: World) -> None:
    @flow("f")
    async def body(ctx: Ctx) -> int:
        return 1

    execution = await w.begin("f")
    node = w.make(body, lease=timedelta(seconds=1))
    node.faults.lose("claim", "after")
    node.serve()
    assert await node.result(execution) == 1


@pytest.mark.clause("E8a")
async def test_an_execution_that_is_claimed_anew_here_is_driven_once(w: World) -> None:
    deadly = Deadly()
    node = w.node(deadly.flow())
    execution = await node.start("f")
    await until(deadly.began.is_set)
    deadly.harmless = True
    w.expire_claims(execution)
    assert await node.result(execution) == "survived"
    assert deadly.tries == 2
    assert node.runtime.counts.lost == 1


@pytest.mark.clause("E8a")
async def test_a_step_knows_the_same_key_wherever_it_runs(w: World) -> None:
    keys: list[str] = []
    began = asyncio.Event()

    async def step() -> None:
        keys.append(current_step().key)
        if len(keys) == 1:
            began.set()
            await asyncio.Event().wait()

    @flow("f")
    async def body(ctx: Ctx) -> None:
        await ctx.run("s", step)

    node = w.node(body)
    execution = await node.start("f")
    await until(began.is_set)
    await node.kill()
    w.expire_claims(execution)
    await w.node(body).result(execution)
    assert keys == [f"{execution}#1"] * 2
    assert (await w.executions.get(execution, OWNER)).status == "completed"
