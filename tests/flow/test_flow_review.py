"""What an attacker's reading found: each of these once broke a promise (clauses E2, E5, E6, E7, E8)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg import sql

from tests.flow.nodes import OWNER, Lost, World, a_world, until
from tests.flow.sim import Sim, replayed, view
from underseal.errors import ExecutionFailed, FlowError
from underseal.flow import drive, runtime
from underseal.flow.context import FlowContext
from underseal.flow.definition import Retry, flow
from underseal.flow.ids import child_id
from underseal.flow.runtime import Limits
from underseal.foundation.steps import drive_async, query

Ctx = FlowContext


async def give(value: Any = None) -> Any:
    """A step that gives what it is given."""
    return value


# -- the same again --------------------------------------------------------------------------------


@pytest.mark.clause("E5a")
async def test_a_generator_that_is_left_open_is_closed_on_the_flows_own_loop() -> None:
    async def body(ctx: Ctx) -> Any:
        async def pages() -> AsyncIterator[int]:
            try:
                yield 1
                yield 2
            finally:
                await ctx.run("close", give)

        async for _ in pages():
            break
        await ctx.run("a", give)
        return await ctx.run("b", give)

    with Sim(body) as live:
        assert live.numbers() == [(1, "a"), (2, "close")]
        live.done("a")
        await asyncio.sleep(0.01)
        live.done("close").done("b", 5)
        assert live.end is not None
        assert live.end.text == "5"
        for count in range(1, len(live.log) + 1):
            assert view(replayed(body, live.log[:count])) == live.views[count - 1]


@pytest.mark.clause("E5b", "E6e")
async def test_a_value_that_is_drawn_as_a_cancellation_comes_is_no_divergence(w: World) -> None:
    @flow("f")
    async def body(ctx: Ctx) -> Any:
        await ctx.receive("go")
        drawn = ctx.random()
        try:
            await ctx.sleep(hours=1)
        finally:
            await ctx.run("clean", give, drawn)

    node = w.node(body)
    execution = await node.start("f")
    await w.parks(execution)
    node.faults.shut("read")
    await w.send(execution, "go")
    await w.comes_to(execution, "running")
    await w.executions.cancel(execution, OWNER)
    node.faults.open("read")
    await w.comes_to(execution, "cancelled", "suspended")
    assert await w.status(execution) == "cancelled"
    assert "STEP_COMPLETED" in await w.types(execution)


async def connects() -> None:
    await asyncio.open_connection("localhost", 1)


async def calls() -> None:
    await asyncio.create_subprocess_exec("true")


async def resolves() -> None:
    await asyncio.get_running_loop().getaddrinfo("localhost", 1)


@pytest.mark.clause("E5c")
@pytest.mark.parametrize("act", [connects, calls, resolves])
def test_what_comes_from_outside_is_refused_in_words(act: Any) -> None:
    async def body(ctx: Ctx) -> None:
        await act()

    with Sim(body) as sim:
        assert sim.end is not None
        assert '"FlowError"' in sim.end.text
        assert "use a step" in sim.end.text


@pytest.mark.clause("E5a")
async def test_a_generator_that_the_collector_finds_does_nothing_to_its_flow() -> None:
    async def body(ctx: Ctx) -> Any:
        async def pages() -> AsyncIterator[int]:
            try:
                yield 1
            finally:
                ended.append(1)
                await ctx.run("close", give)

        kept.append(pages())
        await anext(kept[0])
        await ctx.run("a", give)
        return await ctx.run("b", give)

    kept: list[Any] = []
    ended: list[int] = []
    with Sim(body) as live:
        kept.clear()
        assert ended == [1]
        live.done("a")
        assert live.numbers() == [(2, "b")]


# -- nothing starts that must not ------------------------------------------------------------------


@pytest.mark.clause("E6a")
async def test_a_step_that_was_given_up_is_not_tried_again(w: World) -> None:
    tries: list[str] = []

    async def stubborn() -> None:
        tries.append("try")
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            raise OSError("cut off") from None

    @flow("f")
    async def body(ctx: Ctx) -> Any:
        retry = Retry(attempts=5, first=timedelta(milliseconds=1))
        given_up = asyncio.ensure_future(ctx.run("s", stubborn, retry=retry))
        await ctx.run("t", until, lambda: tries)
        given_up.cancel()
        await ctx.run("u", asyncio.sleep, 0.1)
        return await ctx.receive("a")

    node = w.node(body)
    execution = await node.start("f")
    await w.parks(execution)
    await asyncio.sleep(0.05)
    assert tries == ["try"]
    await w.send(execution, "a", 3)
    assert await node.result(execution) == 3


@pytest.mark.clause("E6c", "E8a")
async def test_no_child_is_begun_by_a_driver_that_lost_its_claim(w: World) -> None:
    @flow("child")
    async def child(ctx: Ctx) -> None:
        await ctx.receive("never")

    @flow("f")
    async def body(ctx: Ctx) -> None:
        await ctx.run("s", give)
        await ctx.child("child")

    stale = w.node(body, lease=timedelta(seconds=1))
    stop = stale.faults.stop_at('"verb":"start","execution_id":"f1~')
    execution = await stale.start("f", execution_id="f1")
    await until(stop.reached.is_set)
    stale.faults.away("write", "renew", "claim", "head", "read", "refence")
    stop.go.set()
    await asyncio.sleep(1.1)
    w.expire_claims(execution)
    await w.executions.cancel(execution, OWNER, force=True)
    stale.faults.back()
    await asyncio.sleep(1.0)
    assert w.admin.execute("select member from underseal.execution where member <> ''").fetchall() == []


class Desk:
    """Takes requests of flows, where it is not away."""

    def __init__(self) -> None:
        self.asked: list[UUID] = []

    async def request(self, kind: str, principal: str, params: Any, operation_id: UUID) -> UUID:
        """Never answers."""
        self.asked.append(operation_id)
        raise Lost("connection refused")

    async def cancel(self, operation_id: UUID, principal: str) -> None:
        """There is nothing."""


@pytest.mark.clause("E8a")
async def test_no_operation_is_requested_by_a_driver_whose_claim_ran_out(w: World) -> None:
    @flow("f")
    async def body(ctx: Ctx) -> None:
        await ctx.hold("pay", {})

    desk = Desk()
    stale = w.node(body, lease=timedelta(seconds=1), holds=desk)
    execution = await stale.start("f")
    await until(lambda: desk.asked)
    stale.faults.away("renew", "claim")
    await asyncio.sleep(1.2)
    asked = len(desk.asked)
    w.expire_claims(execution)
    await w.executions.cancel(execution, OWNER, force=True)
    await asyncio.sleep(0.5)
    stale.faults.back()
    await asyncio.sleep(0.5)
    assert len(desk.asked) == asked
    assert len(set(desk.asked)) == 1


@pytest.mark.clause("E6h")
async def test_nothing_starts_while_nobody_knows_what_became_of_a_write(w: World) -> None:
    ran: list[int] = []

    async def count(number: int) -> None:
        ran.append(number)

    @flow("f", journal="behind")
    async def body(ctx: Ctx) -> int:
        for number in range(200):
            await ctx.run("s", count, number)
        return len(ran)

    node = w.node(body)
    node.faults.lose("write", "after", 2)
    execution = await node.start("f")
    node.faults.away("write", "head")
    await until(lambda: node.faults.calls["head"] > 1)
    seen = len(ran)
    await asyncio.sleep(0.3)
    assert len(ran) <= seen + 1 < 200
    node.faults.back()
    await node.result(execution)


TENANT: ContextVar[str] = ContextVar("TENANT", default="nobody")


@pytest.mark.clause("E6a")
@pytest.mark.parametrize("journal", ["safe", "behind"])
async def test_a_step_leaves_nothing_to_the_steps_behind_it(w: World, journal: Any) -> None:
    tries: list[str] = []

    async def sets() -> None:
        tries.append(TENANT.get())
        TENANT.set("ann")
        if len(tries) == 1:
            raise OSError

    async def asks() -> str:
        return TENANT.get()

    @flow("f", journal=journal)
    async def body(ctx: Ctx) -> Any:
        await ctx.run("s", sets, retry=Retry(attempts=2, first=timedelta(milliseconds=1)))
        return [await ctx.run("t", asks), TENANT.get()]

    assert await w.node(body).run("f") == ["nobody", "nobody"]
    assert tries == ["nobody", "nobody"]


@pytest.mark.parametrize("only", [("OSError",), ["OSError"], (OSError("x"),), "OSError", (int,)], ids=repr)
def test_what_is_tried_again_is_a_kind_of_error(only: Any) -> None:
    with pytest.raises(FlowError, match="only"):
        Retry(attempts=2, only=only)


@pytest.mark.clause("E6a")
async def test_a_try_that_took_too_long_says_so(w: World) -> None:
    @flow("f")
    async def body(ctx: Ctx) -> None:
        await ctx.run("s", asyncio.sleep, 60, timeout=timedelta(milliseconds=20))

    with pytest.raises(ExecutionFailed, match=r"0\.02 s"):
        await w.node(body).run("f")


# -- nothing hangs, nothing falls ------------------------------------------------------------------


class Odd(dict[str, Any]):
    """JSON, until it is looked at."""

    def items(self) -> Any:
        """What it holds."""
        raise RuntimeError("odd")


@pytest.mark.clause("E2f")
async def test_an_output_that_raises_fails_its_flow_and_no_other(w: World) -> None:
    @flow("odd")
    async def odd(ctx: Ctx) -> Any:
        await ctx.run("s", give)
        return Odd(a=1)

    @flow("f")
    async def body(ctx: Ctx) -> int:
        return await ctx.run("s", give, 1)

    node = w.node(odd, body)
    with pytest.raises(ExecutionFailed, match="NotRecordable"):
        await node.run("odd")
    assert await node.run("f") == 1


class Oddity(type):
    """A class of errors that says nothing of what belongs to it."""

    def __instancecheck__(cls, instance: object) -> bool:
        raise RuntimeError("odd")


class OddError(Exception, metaclass=Oddity):
    """An error of it."""


@pytest.mark.clause("E6a")
async def test_an_effect_that_falls_leaves_its_execution_to_others(
    w: World, caplog: pytest.LogCaptureFixture
) -> None:
    async def boom() -> None:
        raise ValueError("no")

    @flow("f")
    async def body(ctx: Ctx) -> None:
        await ctx.run("s", boom, retry=Retry(attempts=2, only=(OddError,)))

    node = w.node(body)
    execution = await node.start("f")
    await until(lambda: not node.driven, 3)
    await until(lambda: w.wakes(execution)[0]["claimed_by"] is None, 3)


@pytest.mark.clause("E6a")
@pytest.mark.parametrize(
    "error",
    [psycopg.errors.ReadOnlySqlTransaction(), psycopg.errors.InsufficientPrivilege(),
     psycopg.errors.IdleInTransactionSessionTimeout()],
    ids=lambda error: type(error).__name__,
)  # fmt: skip
async def test_a_database_that_cannot_be_written_to_fails_no_flow(w: World, error: psycopg.Error) -> None:
    @flow("f")
    async def body(ctx: Ctx) -> int:
        return await ctx.run("s", give, 1)

    node = w.node(body)
    node.faults.lose("write", "before", 2, error)
    assert await node.run("f") == 1


@pytest.mark.clause("E5b")
async def test_a_flow_that_goes_round_is_parked_and_no_other_waits(w: World) -> None:
    @flow("round")
    async def going_round(ctx: Ctx) -> None:
        while True:  # noqa: ASYNC110 -- the point of it
            await asyncio.sleep(0)

    @flow("f")
    async def body(ctx: Ctx) -> int:
        return await ctx.run("s", give, 1)

    node = w.node(going_round, body)
    execution = await node.start("round")
    await w.parks(execution)
    (found,) = await w.data(execution, "FLOW_DIVERGED")
    assert "round" in found["found"]
    assert await node.run("f") == 1


async def test_who_waits_for_a_runtime_that_ends_is_told(w: World) -> None:
    @flow("f")
    async def body(ctx: Ctx) -> Any:
        return await ctx.receive("never")

    node = w.node(body)
    execution = await node.start("f")
    waiting = asyncio.create_task(node.runtime.result(execution))
    await w.parks(execution)
    node.faults.shut("write")
    starting = asyncio.create_task(node.runtime.start("f", OWNER))
    await until(lambda: len(node.driven) == 1)
    await node.kill()
    for one in (waiting, starting):
        with pytest.raises(FlowError):
            await asyncio.wait_for(one, 3)


@pytest.mark.clause("E8a")
async def test_a_start_that_is_taken_over_before_it_is_known_has_begun(w: World) -> None:
    @flow("f")
    async def body(ctx: Ctx) -> int:
        return await ctx.run("s", give, 1)

    node = w.node(body)
    node.faults.lose("write", "after")
    starting = asyncio.create_task(node.start("f", execution_id="mine"))
    await until(lambda: node.faults.calls["write"] == 1)
    node.faults.away("write", "renew")
    await until(lambda: w.wakes("mine"))
    w.expire_claims("mine")
    await until(lambda: node.runtime.counts.claimed == 1)
    node.faults.back()
    assert await asyncio.wait_for(starting, 3) == "mine"
    assert await node.result("mine") == 1


# -- much at once ----------------------------------------------------------------------------------


@pytest.mark.clause("E6a")
async def test_results_that_are_much_together_are_written_in_portions(
    w: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drive, "_MOST_TEXT", 5000)

    @flow("f")
    async def body(ctx: Ctx) -> Any:
        told = await asyncio.gather(*[ctx.run("s", give, "x" * 1000) for _ in range(30)])
        late = [
            len(one) for one in await asyncio.gather(*[ctx.run("t", give, "y" * 1000) for _ in range(30)])
        ]
        return [len(told), sum(late), await ctx.receive("a")]

    node = w.node(body)
    node.faults.lose("write", "after", 4)
    node.faults.lose("write", "before", 8)
    execution = await node.start("f")
    await w.send(execution, "a", 1)
    assert await node.result(execution) == [30, 30_000, 1]
    assert max(map(len, node.faults.items)) < 7000
    assert (await w.types(execution)).count("STEP_COMPLETED") == 60


@pytest.mark.clause("E8a")
async def test_long_logs_are_not_all_read_at_once(w: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "_AT_ONCE", 50)

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
    node = w.node(body)
    assert [await node.result(execution) for execution in made] == [1] * 6
    assert node.faults.calls["read"] >= 3


@pytest.mark.clause("E5a")
async def test_instants_are_in_utc_whatever_the_sessions_zone_is(w: World) -> None:
    @flow("f")
    async def body(ctx: Ctx) -> str:
        return str((await ctx.now()).tzinfo)

    w.admin.execute(
        sql.SQL("alter database {} set timezone to 'Asia/Tokyo'").format(sql.Identifier(w.database.name))
    )
    async with a_world(w.database) as world:
        assert await world.node(body).run("f") == "UTC"
    w.admin.execute(sql.SQL("alter database {} reset timezone").format(sql.Identifier(w.database.name)))


@pytest.mark.parametrize("name", ["a\0b", "a\nb", "\ud800"], ids=repr)
def test_a_flow_has_a_name_that_the_database_takes(name: str) -> None:
    with pytest.raises(FlowError, match="printable"):
        flow(name)
    with pytest.raises(FlowError, match="version"):
        flow("f", version=2**31)


class Swallowing:
    """Connections that answer whoever is told to end, as a driver's may where both come together."""

    owns = True

    def __init__(self, error: Exception | None) -> None:
        self.error = error
        self.asked = asyncio.Event()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Any]:
        """One."""
        yield None

    async def single(self, conn: Any, statement: Any, params: Any) -> list[dict[str, Any]]:
        """An answer."""
        self.asked.set()
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error
        return [{"it": "goes on"}]

    async def close(self) -> None:
        """Nothing is open."""


@pytest.mark.clause("E8b")
@pytest.mark.parametrize("error", [None, Lost("gone")], ids=repr)
async def test_who_is_told_to_end_during_a_call_ends(error: Exception | None) -> None:
    source = Swallowing(error)
    task = asyncio.create_task(drive_async(source, query("select 1")))
    await source.asked.wait()
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


# -- messages --------------------------------------------------------------------------------------


@pytest.mark.clause("E6b", "I1a")
async def test_a_message_for_a_receive_that_was_given_up_waits_for_the_next(w: World) -> None:
    @flow("f")
    async def body(ctx: Ctx) -> Any:
        async def one(topic: str) -> Any:
            return await ctx.receive(topic)

        tasks = [asyncio.ensure_future(one(topic)) for topic in ("a", "b")]
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        first = [task.result() for task in done]
        await ctx.run("s", give)
        return [first, await ctx.receive("b"), await ctx.receive("b")]

    execution = await w.begin("f")
    node = w.node(body)
    await w.parks(execution)
    await node.stop()
    for topic, text in (("a", "a1"), ("b", "b1"), ("b", "b2")):
        await w.send(execution, topic, text)
    node = w.node(body)
    assert await node.result(execution) == [["a1"], "b1", "b2"]
    log = [(event.type, dict(event.data or {})) for event in await w.log(execution)]
    for upto in range(1, len(log)):
        replayed(body, log[:upto]).close()


# -- what a cancellation takes along ---------------------------------------------------------------


@pytest.mark.clause("E6e")
def test_what_was_given_up_on_its_way_is_cancelled_with_its_flow() -> None:
    async def body(ctx: Ctx) -> None:
        held = asyncio.ensure_future(ctx.hold("pay", {}))
        await ctx.run("s", give)
        held.cancel()
        await ctx.receive("a")

    with Sim(body) as sim:
        sim.record("HOLD_REQUESTED", op=1, type="pay", operation_id="o1")
        sim.done("s")
        assert sim.replay.under_way() == [{"hold": "o1"}]


@pytest.mark.clause("E6c", "E6e")
async def test_a_child_that_was_given_up_on_its_way_is_cancelled_with_its_flow(w: World) -> None:
    @flow("child")
    async def child(ctx: Ctx) -> None:
        await ctx.receive("never")

    @flow("f")
    async def body(ctx: Ctx) -> None:
        begun = asyncio.ensure_future(ctx.child("child"))
        await ctx.run("s", until, stop.reached.is_set)
        begun.cancel()
        await ctx.receive("a")

    node = w.node(body, limits=Limits(lanes=4))
    stop = node.faults.stop_at('"verb":"start","execution_id":"f1~')
    execution = await node.start("f", execution_id="f1")
    await w.parks(execution)
    stop.go.set()
    await until(lambda: w.admin.execute("select from underseal.execution where member <> ''").fetchall())
    await w.executions.cancel(execution, OWNER)
    await w.comes_to(execution, "cancelled")
    assert await w.status("f1~child-1") == "cancelled"


@pytest.mark.clause("E6e")
def test_an_operation_that_was_there_before_is_not_taken_back() -> None:
    async def body(ctx: Ctx) -> None:
        await ctx.hold("pay", {})

    with Sim(body) as sim:
        sim.record("HOLD_REQUESTED", op=1, type="pay", operation_id="mine")
        sim.record("HOLD_OPENED", op=1, type="pay", operation_id="anns")
        assert sim.replay.under_way() == []


# -- ids and versions ------------------------------------------------------------------------------


@pytest.mark.clause("E6c")
def test_no_two_children_of_a_line_share_an_id() -> None:
    asked = [
        (parent, name, number)
        for parent in ("c", "c~2", "c~3", "c~22")
        for name in ("a", "a-2", "a-2-2", "a-2r2", "a-22", "a-3")
        for number in (2, 3, 22, 222)
    ]
    assert len({child_id(*one) for one in asked}) == len(asked)


@pytest.mark.clause("E2f", "E6c", "E6d")
@pytest.mark.parametrize("version", ['1,"principal":"mallory"', 0, -1, True, 1.5, 2**31])
async def test_a_version_is_a_number(w: World, version: Any) -> None:
    @flow("child")
    async def child(ctx: Ctx) -> str:
        return ctx.owner

    @flow("f")
    async def body(ctx: Ctx) -> str:
        return str(await ctx.child("child", version=version))

    @flow("g")
    async def on(ctx: Ctx) -> None:
        ctx.continue_as_new(flow="child", version=version)

    node = w.node(child, body, on)
    for name in ("f", "g"):
        with pytest.raises(ExecutionFailed, match="FlowError"):
            await node.run(name)
