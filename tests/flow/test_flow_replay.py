"""The replay of a flow: numbers, results, ends, and code that has left its log behind (clause E5)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.flow.sim import Script, Sim, nothing, replayed
from underseal.errors import ChildFailed, FlowError, HoldEnded, StepError
from underseal.flow.context import FlowContext
from underseal.flow.definition import Body
from underseal.flow.ids import Mint, child_id, successor_id
from underseal.flow.replay import (
    FlowDiverged,
    open_waits,
)

Ctx = FlowContext


# -- numbers -------------------------------------------------------------------------------------------


@pytest.mark.clause("E5a")
def test_operations_are_numbered_in_the_order_of_the_calls() -> None:
    async def body(ctx: Ctx) -> None:
        late = ctx.run("a", nothing)
        early = ctx.run("b", nothing)
        ctx.random()
        await early
        await ctx.run("c", nothing)
        await late

    sim = Sim(body)
    assert sim.numbers() == [(1, "a"), (2, "b")]
    assert sim.done("b").numbers() == [(1, "a"), (4, "c")]


@pytest.mark.clause("E5a")
def test_tasks_take_their_numbers_in_the_order_in_which_they_run() -> None:
    async def one(ctx: Ctx, name: str) -> None:
        await ctx.run(f"{name}1", nothing)
        await ctx.run(f"{name}2", nothing)

    async def body(ctx: Ctx) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(one(ctx, "a"))
            group.create_task(one(ctx, "b"))
            await ctx.run("own", nothing)
        await asyncio.gather(one(ctx, "c"), one(ctx, "d"))

    sim = Sim(body)
    assert sim.numbers() == [(1, "own"), (2, "a1"), (3, "b1")]
    sim.done("b1").done("own").done("a1")
    assert sim.numbers() == [(4, "b2"), (5, "a2")]
    sim.done("b2").done("a2")
    assert sim.numbers() == [(6, "c1"), (7, "d1")]


@pytest.mark.clause("E5a")
@pytest.mark.parametrize("tasks", [3, 40])
def test_a_group_that_is_cancelled_cleans_up_in_one_order(tasks: int) -> None:
    async def one(ctx: Ctx, number: int) -> None:
        try:
            await ctx.run(f"work{number}", nothing)
        finally:
            await ctx.run(f"undo{number}", nothing)

    async def body(ctx: Ctx) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(tasks):
                group.create_task(one(ctx, number))
            await ctx.run("fails", nothing)

    def undone() -> list[tuple[int, str]]:
        sim = Sim(body)
        for number in range(0, tasks, 7):
            sim.done(f"work{number}")
        return sim.failed("fails").numbers()

    first = undone()
    assert len(first) == tasks - len(range(0, tasks, 7))
    junk = []
    for _ in range(10):
        junk.append([object() for _ in range(97)])
        assert undone() == first


@pytest.mark.clause("E5a")
def test_what_is_done_first_is_told_in_one_order() -> None:
    async def body(ctx: Ctx) -> list[str]:
        waits = {ctx.run(f"s{number}", nothing) for number in range(30)}
        await ctx.receive("go")
        done, _ = await asyncio.wait([asyncio.ensure_future(one) for one in waits])
        return [str(one.result()) for one in done]

    def told() -> Any:
        sim = Sim(body)
        for op in [op for op in sim.open() if op.kind == "step"]:
            sim.done(op, op.name)
        sim.park().answer("receive:go")
        return sim.end

    first = told()
    assert first is not None
    assert all(told() == first for _ in range(5))


# -- results -------------------------------------------------------------------------------------------


@pytest.mark.clause("E5a")
def test_recorded_results_are_served() -> None:
    async def body(ctx: Ctx, value: int) -> Any:
        with suppress(StepError):
            await ctx.run("bad", nothing)
        return [
            value,
            await ctx.run("good", nothing),
            ctx.random(),
            str(ctx.uuid()),
            (await ctx.now()).isoformat(),
        ]

    sim = Sim(body, 7).failed("bad").done("good", {"a": [1]}).told()
    assert sim.end is not None
    again = replayed(sim.code, sim.log)
    assert again.end() == sim.end
    assert again.emitted == []


@pytest.mark.clause("E5a")
def test_a_flow_knows_where_it_is() -> None:
    seen: list[Any] = []

    async def body(ctx: Ctx) -> None:
        seen.append((ctx.execution_id, ctx.owner, ctx.version, ctx.replaying))
        await ctx.run("a", nothing)
        seen.append((ctx.execution_id, ctx.owner, ctx.version, ctx.replaying))
        await ctx.run("b", nothing)

    sim = Sim(body).done("a")
    assert seen == [("e", "ann", 1, False)] * 2
    seen.clear()
    replayed(sim.code, [sim.log[0], ("EXECUTION_MIGRATED", {"flow_version": 3}), *sim.log[1:]])
    assert seen == [("e", "ann", 1, True), ("e", "ann", 3, True)]


@pytest.mark.clause("E6a")
def test_a_step_that_failed_tells_its_error() -> None:
    async def body(ctx: Ctx) -> Any:
        try:
            await ctx.run("s", nothing)
        except StepError as error:
            return [error.step, error.error]

    sim = Sim(body).failed("s", "Odd")
    assert sim.end is not None
    assert sim.end.text == '["s",{"type":"Odd","message":"no"}]'


def test_a_step_that_failed_fails_its_flow_under_its_own_name() -> None:
    async def body(ctx: Ctx) -> None:
        await ctx.run("s", nothing)

    sim = Sim(body).failed("s", "Odd")
    assert sim.end is not None
    assert (sim.end.kind, sim.end.text) == ("failed", '{"type":"Odd","message":"no","step":"s"}')


def test_instants_are_in_utc() -> None:
    seen: list[datetime] = []

    async def body(ctx: Ctx) -> None:
        seen.append(await ctx.now())

    Sim(body).told()
    assert seen == [datetime(2026, 1, 1, tzinfo=UTC)]


# -- ends ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [float("nan"), {1, 2}, "a\0b", "\ud800", {"__loomEnc": "x"}, object()],
    ids=["nan", "a set", "U+0000", "half a pair", "an envelope", "an object"],
)
def test_an_output_that_cannot_be_recorded_fails_the_flow(value: Any) -> None:
    async def body(ctx: Ctx) -> Any:
        return value

    sim = Sim(body)
    assert sim.end is not None
    assert sim.end.kind == "failed"
    assert '"NotRecordable"' in sim.end.text
    assert "the output of the flow" in sim.end.text


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt, BaseException("odd"), GeneratorExit])
def test_a_flow_that_raises_what_is_no_exception_has_failed(error: Any) -> None:
    async def body(ctx: Ctx) -> None:
        await ctx.run("s", nothing)
        raise error

    sim = Sim(body)
    if error is KeyboardInterrupt:
        with pytest.raises(KeyboardInterrupt):
            sim.done("s")
        return
    sim.done("s")
    assert sim.end is not None
    assert sim.end.kind == "failed"


@pytest.mark.clause("E6e")
def test_a_task_that_cancels_its_flow_has_not_cancelled_the_execution() -> None:
    async def body(ctx: Ctx) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await ctx.run("s", nothing)

    sim = Sim(body)
    assert sim.end is not None
    assert sim.end.kind == "failed"
    assert "CancelledError" in sim.end.text


@pytest.mark.clause("E6d")
@pytest.mark.parametrize("way", ["plain", "group", "nested", "gathered"])
def test_a_flow_continues_as_new_from_wherever_it_asks(way: str) -> None:
    async def go(ctx: Ctx) -> None:
        ctx.continue_as_new({"n": 2}, flow="g", version=3)

    async def body(ctx: Ctx) -> None:
        if way == "plain":
            await go(ctx)
        elif way == "gathered":
            await asyncio.gather(go(ctx), ctx.run("s", nothing))
        else:
            async with asyncio.TaskGroup() as group:
                if way == "group":
                    await go(ctx)
                group.create_task(go(ctx))
                await ctx.run("s", nothing)

    sim = Sim(body)
    assert sim.end is not None
    assert (sim.end.kind, sim.end.text, sim.end.flow, sim.end.version) == ("continued", '{"n":2}', "g", 3)


def test_a_successor_whose_input_cannot_be_recorded_is_a_failure() -> None:
    async def body(ctx: Ctx) -> None:
        ctx.continue_as_new(float("inf"))

    sim = Sim(body)
    assert sim.end is not None
    assert sim.end.kind == "failed"
    assert "the successor's input" in sim.end.text


def test_two_errors_of_a_group_are_no_wish_to_continue() -> None:
    async def go(ctx: Ctx) -> None:
        ctx.continue_as_new(1)

    async def bad() -> None:
        raise ValueError

    async def body(ctx: Ctx) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(bad())
            group.create_task(go(ctx))

    sim = Sim(body)
    assert sim.end is not None
    assert sim.end.kind == "failed"


# -- ids -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parent", "name", "number", "child"),
    [
        ("c", "pay", 3, "c~pay-3"),
        ("c~2", "pay", 3, "c~pay-3r2"),
        ("c~pay-3", "sub", 1, "c~pay-3:sub-1"),
        ("c~pay-3.2", "sub", 1, "c~pay-3:sub-1r2"),
        ("c~pay-3:sub-1.12", "x", 4, "c~pay-3:sub-1:x-4r12"),
    ],
)
@pytest.mark.clause("E6c")
def test_a_childs_id_follows_from_who_asked_and_where(
    parent: str, name: str, number: int, child: str
) -> None:
    assert child_id(parent, name, number) == child


@pytest.mark.parametrize(
    ("one", "next_one"),
    [("c", "c~2"), ("c~2", "c~3"), ("c~9", "c~10"), ("c~pay-1", "c~pay-1.2"), ("c~pay-1.2", "c~pay-1.3"),
     ("c~pay-1:x-2", "c~pay-1:x-2.2")],
)  # fmt: skip
@pytest.mark.clause("E6d")
def test_a_successors_id_follows_from_its_predecessors(one: str, next_one: str) -> None:
    assert successor_id(one) == next_one


def test_a_childs_name_that_cannot_be_one_is_refused_at_the_call() -> None:
    async def body(ctx: Ctx, name: str) -> Any:
        return await ctx.child("f", name=name)

    for name in ("", "1a", "a b", "a:b", "a.b", "ä", "a" * 61):
        sim = Sim(body, name)
        assert sim.end is not None
        assert "FlowError" in sim.end.text
    deep = Sim(body, "a" * 60, "c~" + "b" * 28)
    assert deep.end is not None
    assert "nested less deeply" in deep.end.text


# -- arms ----------------------------------------------------------------------------------------------


def test_an_arm_can_be_used_once() -> None:
    async def body(ctx: Ctx) -> None:
        arm = ctx.receive("a")
        await arm
        await arm

    sim = Sim(body)
    sim.park().answer("receive:a")
    assert sim.end is not None
    assert "once" in sim.end.text


@pytest.mark.parametrize(
    "wrong",
    [
        lambda ctx: ctx.receive("$gate/x"),
        lambda ctx: ctx.receive(""),
        lambda ctx: ctx.receive("a\nb"),
        lambda ctx: ctx.receive(5),
        lambda ctx: ctx.gate("x" * 151),
        lambda ctx: ctx.sleep(seconds=-1),
        lambda ctx: ctx.select(),
        lambda ctx: ctx.run("", nothing),
        lambda ctx: ctx.run("x" * 151, nothing),
        lambda ctx: ctx.hold("", {}),
    ],
)
def test_wrong_calls_are_refused_where_they_are_made(wrong: Callable[[Ctx], Any]) -> None:
    async def body(ctx: Ctx) -> None:
        await wrong(ctx)

    sim = Sim(body)
    assert sim.end is not None
    assert '"FlowError"' in sim.end.text
    assert "expected" in sim.end.text


@pytest.mark.clause("E6b")
def test_a_select_gives_the_arm_and_its_value() -> None:
    async def body(ctx: Ctx) -> Any:
        picked = await ctx.select(ctx.sleep(days=1), ctx.receive("a"), ctx.gate("g"))
        return [picked.index, picked.value]

    for arm, text in ((0, "[0,null]"), (1, "[1,5]"), (2, "[2,5]")):
        sim = Sim(body).park().answer("select", arm, None if arm == 0 else 5)
        assert sim.end is not None
        assert sim.end.text == text


@pytest.mark.clause("E6c")
@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_a_child_that_did_not_complete_raises(status: str) -> None:
    seen: list[Any] = []

    async def body(ctx: Ctx) -> None:
        child = ctx.child("f", name="kid")
        assert child.id is None
        try:
            await child
        except ChildFailed as error:
            seen.append((error.execution_id, error.status, error.error, child.id))

    sim = Sim(body).begun("kid").park()
    sim.record(
        "MESSAGE_CONSUMED", wait=sim.open()[0].wait_id, arm=0, topic="$child/kid-1",
        payload={"status": status, "error": {"type": "X"}},
    )  # fmt: skip
    assert seen == [("e~kid-1", status, {"type": "X"}, "e~kid-1")]


def test_an_arm_of_what_could_not_begin_raises_in_select() -> None:
    async def body(ctx: Ctx) -> Any:
        try:
            await ctx.select(ctx.sleep(days=1), ctx.hold("t", {}))
        except StepError as error:
            return error.error["type"]

    sim = Sim(body)
    sim.record("CALL_REFUSED", op=1, kind="hold", name="t", error={"type": "Nope", "message": ""})
    assert sim.end is not None
    assert sim.end.text == '"Nope"'


@pytest.mark.clause("E6b")
@pytest.mark.parametrize(
    ("state", "raised"), [("SUCCEEDED", False), ("REJECTED", True), ("OUTCOME_UNKNOWN", True)]
)
def test_the_end_of_what_is_held(state: str, raised: bool) -> None:
    async def body(ctx: Ctx) -> Any:
        try:
            return await ctx.hold("t", {})
        except HoldEnded as error:
            return [error.state, error.reason]

    sim = Sim(body)
    sim.record("HOLD_REQUESTED", op=1, type="t", operation_id="o")
    assert sim.replay.under_way() == [{"hold": "o"}]
    sim.record("HOLD_OPENED", op=1, type="t", operation_id="o").park()
    assert sim.replay.under_way() == [{"hold": "o"}]
    (op,) = sim.open()
    assert [arm.spec() for arm in op.arms] == [{"topic": "$hold/o"}]
    sim.record(
        "MESSAGE_CONSUMED", wait=op.wait_id, arm=0, topic="$hold/o",
        payload={"operation_id": "o", "state": state, "reason": "r", "result": 5},
    )  # fmt: skip
    assert sim.replay.under_way() == []
    assert sim.end is not None
    assert sim.end.text == (f'["{state}","r"]' if raised else "5")


@pytest.mark.clause("E6e")
def test_a_cancellation_takes_along_what_is_under_way() -> None:
    async def body(ctx: Ctx) -> None:
        await asyncio.gather(ctx.child("f", name="a"), ctx.child("f", name="b"), ctx.run("s", nothing))

    sim = Sim(body).begun("a")
    assert sim.replay.under_way() == [{"child": "e~a-1"}, {"child": "e~b-2"}]


def test_a_flow_that_is_over_takes_no_calls() -> None:
    kept: list[Ctx] = []

    async def body(ctx: Ctx) -> None:
        kept.append(ctx)
        await ctx.run("s", nothing)

    sim = Sim(body)
    sim.replay.close()
    with pytest.raises(FlowError, match="has ended"):
        kept[0].run("t", nothing)


# -- code that has left its log behind ------------------------------------------------------------------


async def original(ctx: Ctx) -> None:
    await ctx.run("a", nothing)
    await asyncio.gather(ctx.run("b", nothing), ctx.run("c", nothing))
    ctx.random()
    await ctx.select(ctx.receive("x"), ctx.sleep(hours=1))
    await ctx.run("d", nothing)
    await ctx.child("f", name="kid")
    await ctx.now()
    await ctx.hold("t", {})


def whole(sim: Sim) -> None:
    """Drive the original to its end."""
    sim.done("a").done("c").done("b").park().answer("select", 0, 1).done("d").begun("kid").park()
    sim.answer("child:kid").told()
    sim.record("HOLD_REQUESTED", op=10, type="t", operation_id="o").record(
        "HOLD_OPENED", op=10, type="t", operation_id="o"
    )
    sim.park()


async def renamed(ctx: Ctx) -> None:
    await ctx.run("a2", nothing)


async def removed(ctx: Ctx) -> None:
    await asyncio.gather(ctx.run("b", nothing), ctx.run("c", nothing))


async def reordered(ctx: Ctx) -> None:
    await ctx.run("a", nothing)
    await asyncio.gather(ctx.run("c", nothing), ctx.run("b", nothing))


async def added_before(ctx: Ctx) -> None:
    await ctx.run("new", nothing)
    await original(ctx)


async def added_beside(ctx: Ctx) -> None:
    await ctx.run("a", nothing)
    await asyncio.gather(ctx.run("b", nothing), ctx.run("c", nothing), ctx.run("new", nothing))
    ctx.random()
    await ctx.select(ctx.receive("x"), ctx.sleep(hours=1))


async def started_beside(ctx: Ctx) -> None:
    await ctx.run("a", nothing)
    await asyncio.gather(ctx.run("b", nothing), ctx.run("c", nothing))
    ctx.random()
    wait = asyncio.ensure_future(ctx.select(ctx.receive("x"), ctx.sleep(hours=1)))
    await asyncio.sleep(0)
    await ctx.run("new", nothing)
    await wait


async def waits_beside(ctx: Ctx) -> None:
    await ctx.run("a", nothing)
    await asyncio.gather(ctx.run("b", nothing), ctx.run("c", nothing))
    ctx.random()
    await asyncio.gather(
        ctx.select(ctx.receive("x"), ctx.sleep(hours=1)), ctx.select(ctx.receive("y")),
    )  # fmt: skip


async def another_kind(ctx: Ctx) -> None:
    await ctx.child("f", name="a")


async def sequential(ctx: Ctx) -> None:
    await ctx.run("a", nothing)
    await ctx.run("b", nothing)
    await ctx.run("c", nothing)


async def other_arms(ctx: Ctx) -> None:
    await ctx.run("a", nothing)
    await asyncio.gather(ctx.run("b", nothing), ctx.run("c", nothing))
    ctx.random()
    await ctx.select(ctx.sleep(hours=1), ctx.receive("x"))


async def more_arms(ctx: Ctx) -> None:
    await ctx.run("a", nothing)
    await asyncio.gather(ctx.run("b", nothing), ctx.run("c", nothing))
    ctx.random()
    await ctx.select(ctx.receive("x"), ctx.sleep(hours=1), ctx.gate("g"))


async def no_select(ctx: Ctx) -> None:
    await ctx.run("a", nothing)
    await asyncio.gather(ctx.run("b", nothing), ctx.run("c", nothing))
    ctx.random()
    await ctx.receive("x")


async def ends_early(ctx: Ctx) -> None:
    await ctx.run("a", nothing)


async def ends_with_steps_begun(ctx: Ctx) -> None:
    await ctx.run("a", nothing)
    ctx.run("b", nothing)
    await ctx.run("c", nothing)


async def fails_early(ctx: Ctx) -> None:
    await ctx.run("a", nothing)
    raise ValueError("not as before")


async def continues_early(ctx: Ctx) -> None:
    ctx.continue_as_new()


async def no_random(ctx: Ctx) -> None:
    await ctx.run("a", nothing)
    await asyncio.gather(ctx.run("b", nothing), ctx.run("c", nothing))
    await ctx.select(ctx.receive("x"), ctx.sleep(hours=1))


async def another_value(ctx: Ctx) -> None:
    await ctx.run("a", nothing)
    await asyncio.gather(ctx.run("b", nothing), ctx.run("c", nothing))
    ctx.uuid()
    await ctx.select(ctx.receive("x"), ctx.sleep(hours=1))


async def one_more_value(ctx: Ctx) -> None:
    await ctx.run("a", nothing)
    ctx.random()
    await original(ctx)


async def value_at_the_end(ctx: Ctx) -> None:
    await ctx.run("a", nothing)
    await asyncio.gather(ctx.run("b", nothing), ctx.run("c", nothing))
    ctx.random()
    await ctx.select(ctx.receive("x"), ctx.sleep(hours=1))
    ctx.random()
    await ctx.run("d", nothing)


async def gives_up(ctx: Ctx) -> None:
    task = asyncio.ensure_future(ctx.run("a", nothing))
    task.cancel()
    await ctx.run("b", nothing)


async def waits_for_nothing(ctx: Ctx) -> None:
    await asyncio.Event().wait()


async def another_child(ctx: Ctx) -> None:
    await ctx.run("a", nothing)
    await asyncio.gather(ctx.run("b", nothing), ctx.run("c", nothing))
    ctx.random()
    await ctx.select(ctx.receive("x"), ctx.sleep(hours=1))
    await ctx.run("d", nothing)
    await ctx.child("f", name="kit")


async def no_clock(ctx: Ctx) -> None:
    await ctx.run("a", nothing)
    await asyncio.gather(ctx.run("b", nothing), ctx.run("c", nothing))
    ctx.random()
    await ctx.select(ctx.receive("x"), ctx.sleep(hours=1))
    await ctx.run("d", nothing)
    await ctx.child("f", name="kid")
    await ctx.hold("t", {})


async def another_hold(ctx: Ctx) -> None:
    await ctx.run("a", nothing)
    await asyncio.gather(ctx.run("b", nothing), ctx.run("c", nothing))
    ctx.random()
    await ctx.select(ctx.receive("x"), ctx.sleep(hours=1))
    await ctx.run("d", nothing)
    await ctx.child("f", name="kid")
    await ctx.now()
    await ctx.hold("t2", {})


@pytest.mark.clause("E5b")
@pytest.mark.parametrize(
    ("code", "op", "expected", "found"),
    [
        (renamed, 1, "step a", "step a2"),
        (removed, 1, "step a", "step b"),
        (reordered, 3, "step c", "step b"),
        (added_before, 1, "step a", "step new"),
        (added_beside, None, None, None),
        (started_beside, 6, "a park on ['5:select']", "step new"),
        (waits_beside, None, "a park on", "waits for"),
        (another_kind, 1, "step a", "child a"),
        (sequential, 3, "step c", "does not come so far"),
        (other_arms, None, "a park on ['5:select']", "waits for"),
        (more_arms, None, "a park on ['5:select']", "waits for"),
        (no_select, None, "a park on ['5:select']", "waits for ['5:receive:x']"),
        (ends_early, 3, "step c", "a flow that has ended"),
        (ends_with_steps_begun, 2, "step b", "a flow that has ended"),
        (fails_early, 3, "step c", "a flow that has ended"),
        (continues_early, 1, "step a", "a flow that has ended"),
        (no_random, 4, "a random", "wait"),
        (another_value, 4, "a random", "uuid"),
        (one_more_value, 2, "STEP_COMPLETED c", "random"),
        (value_at_the_end, 6, "STEP_COMPLETED d", "random"),
        (gives_up, 1, "step a", "given it up"),
        (waits_for_nothing, 1, "step a", "does not come so far"),
        (another_child, 7, "child kid", "child kit"),
        (no_clock, 9, "now", "hold t"),
        (another_hold, 10, "hold t", "hold t2"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_code_that_does_other_things_has_diverged(
    code: Body, op: int | None, expected: str | None, found: str | None
) -> None:
    sim = Sim(original)
    whole(sim)
    assert replayed(original, sim.log).end() is None
    with pytest.raises(FlowDiverged) as caught:
        replayed(code, sim.log)
    assert op is None or caught.value.op == op
    assert expected is None or expected in caught.value.expected
    assert found is None or found in caught.value.found
    assert "expected" in str(caught.value)


@pytest.mark.clause("E5b")
def test_code_may_go_on_differently_where_its_log_ends() -> None:
    sim = Sim(original).done("a")
    for code in (added_beside, ends_early, sequential, fails_early):
        replayed(code, sim.log)


@pytest.mark.clause("E5b", "E6e")
def test_a_cancellation_told_to_a_flow_that_has_ended_has_diverged() -> None:
    async def body(ctx: Ctx) -> None:
        try:
            await ctx.receive("x")
        finally:
            await ctx.run("undo", nothing)

    async def ended(ctx: Ctx) -> None:
        return

    sim = Sim(body).park().cancel()
    with pytest.raises(FlowDiverged, match="a cancellation"):
        replayed(ended, [event for event in sim.log if event[0] != "EXECUTION_SUSPENDED"])


@pytest.mark.clause("E5b")
def test_an_answer_to_a_wait_that_is_not_there_has_diverged() -> None:
    async def body(ctx: Ctx) -> None:
        await ctx.receive("x")

    log = Sim(body).park().log
    for wait in ("7:receive:x", "1:receive:y", "odd"):
        with pytest.raises(FlowDiverged, match="the wait"):
            replayed(body, [*log, ("MESSAGE_CONSUMED", {"wait": wait, "arm": 0, "payload": 1})])


def test_a_message_that_answers_nothing_is_no_news() -> None:
    async def body(ctx: Ctx) -> None:
        await ctx.receive("x")

    log = Sim(body).park().log
    replay = replayed(body, [*log, ("MESSAGE_CONSUMED", {"disposition": "discarded", "topic": "x"})])
    assert replay.end() is None


@pytest.mark.clause("E5b")
def test_what_a_log_waits_for_is_known_without_its_code() -> None:
    async def body(ctx: Ctx) -> None:
        await asyncio.gather(
            ctx.select(ctx.receive("a")), ctx.select(ctx.sleep(hours=1)), ctx.select(ctx.gate("g")),
        )  # fmt: skip

    sim = Sim(body).park()
    first, second, third = sim.open()
    assert list(open_waits(sim.log)) == ["1:select", "2:select", "3:select"]
    assert open_waits(sim.log)["3:select"] == [{"topic": "$gate/g"}]
    sim.answer(second).answer(first)
    assert list(open_waits(sim.log)) == [third.wait_id]
    assert open_waits([*sim.log, ("EXECUTION_CANCEL_REQUESTED", {})]) == {}


# -- retries -------------------------------------------------------------------------------------------


@pytest.mark.clause("E6a")
def test_tries_are_counted_across_replays() -> None:
    async def body(ctx: Ctx) -> None:
        await ctx.run("s", nothing)

    sim = Sim(body).tried("s").tried("s")
    (op,) = replayed(body, sim.log).ops.values()
    assert (op.attempts, op.resting) == (2, None)


@pytest.mark.clause("E6a")
def test_a_rest_that_was_parked_on_goes_on() -> None:
    async def body(ctx: Ctx) -> None:
        await ctx.run("s", nothing)

    sim = Sim(body).tried("s")
    due = {"due": "2026-01-01T00:00:00Z"}
    sim.record("EXECUTION_SUSPENDED", waits=[{"wait": "1:retry:1", "arms": [due]}])
    (op,) = replayed(body, sim.log).ops.values()
    assert op.resting == 0.0
    sim.record("TIMER_FIRED", wait="1:retry:1", arm=0)
    replay = replayed(body, sim.log)
    (op,) = replay.ops.values()
    assert (op.attempts, op.resting, replay.fresh) == (1, None, [op])


def scripts() -> list[Script]:
    """Ways in which `original` may have gone."""
    return [whole]


@pytest.mark.clause("E5a")
@pytest.mark.parametrize("script", scripts())
def test_every_prefix_is_replayed_as_it_was(script: Script) -> None:
    sim = Sim(original)
    script(sim)
    for length in range(1, len(sim.log) + 1):
        replay = replayed(original, sim.log[:length])
        assert [op.number for op in replay.fresh] == [one[0] for one in sim.views[length - 1][0]]


@pytest.mark.clause("E3")
def test_new_ids_differ_and_those_of_one_process_lie_together() -> None:
    mint, other = Mint(), Mint()
    ids = [mint.new() for _ in range(2000)]
    assert len(set(ids)) == len(ids)
    assert [one[:10] for one in ids] == sorted(one[:10] for one in ids)
    assert len({one[:5] for one in ids}) == 1
    assert len({one[10:] for one in ids}) == len(ids)
    assert all(re.fullmatch("[a-z2-7]{22}", one) for one in ids)
    assert other.new()[:5] != ids[0][:5] or other.new()[10:] != ids[0][10:]
