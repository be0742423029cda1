"""Flows of every shape, run against a log whose results come in any order, are the same at every replay (clause E5)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.flow.sim import Sim, made, nothing, replayed, view
from underseal.errors import ChildFailed, StepError
from underseal.flow.context import FlowContext
from underseal.flow.definition import Flow

Node = tuple[str, Any]

leaves = st.sampled_from(
    [
        (kind, None)
        for kind in ("step", "sleep", "receive", "gate", "random", "uuid", "now", "child", "yield", "late")
    ]
)


def bigger(inner: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    """What is made of smaller parts."""
    several = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        st.tuples(st.just("seq"), several),
        st.tuples(st.just("gather"), several),
        st.tuples(st.just("group"), several),
        st.tuples(
            st.just("select"),
            st.lists(st.sampled_from(["sleep", "receive", "gate", "child"]), min_size=1, max_size=3),
        ),
        st.tuples(st.just("cancelled"), st.tuples(inner, inner)),
        st.tuples(st.just("tidied"), st.tuples(inner, inner)),
        st.tuples(st.just("caught"), inner),
        st.tuples(st.just("first"), several),
        st.tuples(st.just("queue"), several),
    )


programs = st.recursive(leaves, bigger, max_leaves=12)


def compiled(program: Node, *, goes_on: bool) -> tuple[Flow, Callable[[], list[Any]]]:
    """A flow that does what a program says, and what its latest run has seen."""
    runs: list[list[Any]] = []

    async def body(ctx: FlowContext) -> Any:
        seen: list[Any] = []
        runs.append(seen)
        await walk(ctx, program, seen, "p")
        seen.append("end")
        if goes_on:
            ctx.continue_as_new(len(seen))
        return seen

    return made(body), lambda: runs[-1]


async def walk(ctx: FlowContext, node: Node, seen: list[Any], path: str) -> None:
    """Do what a part of a program says."""
    kind, what = node
    act = PARTS.get(kind)
    if act is None:
        seen.append((path, await leaf(ctx, kind, path)))
    else:
        await act(ctx, what, seen, path)


async def leaf(ctx: FlowContext, kind: str, path: str) -> Any:
    """Do one thing."""
    if kind == "step":
        return await ctx.run(path, nothing)
    if kind == "late":
        return isinstance(ctx.run(path, nothing), asyncio.Future)
    if kind in ("random", "uuid"):
        return str(getattr(ctx, kind)())
    if kind == "now":
        return (await ctx.now()).isoformat()
    if kind == "yield":
        return await asyncio.sleep(0)
    return await arm(ctx, kind, path)


def arm(ctx: FlowContext, kind: str, path: str) -> Any:
    """Something to wait for."""
    make: Callable[[], Any] = {
        "sleep": lambda: ctx.sleep(seconds=5),
        "receive": lambda: ctx.receive(path),
        "gate": lambda: ctx.gate(path),
        "child": lambda: ctx.child("f"),
    }[kind]
    return make()


async def seq(ctx: FlowContext, parts: list[Node], seen: list[Any], path: str) -> None:
    for number, part in enumerate(parts):
        await walk(ctx, part, seen, f"{path}{number}")


async def gather(ctx: FlowContext, parts: list[Node], seen: list[Any], path: str) -> None:
    await asyncio.gather(*[walk(ctx, part, seen, f"{path}{number}") for number, part in enumerate(parts)])


async def group(ctx: FlowContext, parts: list[Node], seen: list[Any], path: str) -> None:
    try:
        async with asyncio.TaskGroup() as tasks:
            for number, part in enumerate(parts):
                tasks.create_task(walk(ctx, part, seen, f"{path}{number}"))
    except BaseExceptionGroup as errors:
        seen.append((path, [type(error).__name__ for error in errors.exceptions]))


async def select(ctx: FlowContext, kinds: list[str], seen: list[Any], path: str) -> None:
    picked = await ctx.select(*[arm(ctx, kind, f"{path}{number}") for number, kind in enumerate(kinds)])
    seen.append((path, picked.index, picked.value))


async def cancelled(ctx: FlowContext, parts: tuple[Node, Node], seen: list[Any], path: str) -> None:
    task = asyncio.ensure_future(walk(ctx, parts[0], seen, path + "a"))
    await walk(ctx, parts[1], seen, path + "b")
    seen.append((path, task.cancel()))
    with suppress(asyncio.CancelledError):
        await task


async def tidied(ctx: FlowContext, parts: tuple[Node, Node], seen: list[Any], path: str) -> None:
    try:
        await walk(ctx, parts[0], seen, path + "a")
    finally:
        await walk(ctx, parts[1], seen, path + "b")


async def caught(ctx: FlowContext, part: Node, seen: list[Any], path: str) -> None:
    try:
        await walk(ctx, part, seen, path)
    except (StepError, ChildFailed) as error:
        seen.append((path, type(error).__name__))


async def first(ctx: FlowContext, parts: list[Node], seen: list[Any], path: str) -> None:
    tasks = [asyncio.ensure_future(walk(ctx, part, seen, f"{path}{n}")) for n, part in enumerate(parts)]
    done, rest = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    seen.append((path, [tasks.index(one) for one in done], [tasks.index(one) for one in rest]))
    for task in rest:
        task.cancel()
    for task in done:
        with suppress(StepError, ChildFailed):
            task.result()


async def queue(ctx: FlowContext, parts: list[Node], seen: list[Any], path: str) -> None:
    line: asyncio.Queue[int] = asyncio.Queue(1)

    async def fill() -> None:
        for number, part in enumerate(parts):
            await walk(ctx, part, seen, f"{path}{number}")
            await line.put(number)

    task = asyncio.ensure_future(fill())
    for _ in parts:
        get = asyncio.ensure_future(line.get())
        await asyncio.wait([get, task], return_when=asyncio.FIRST_COMPLETED)
        if task.done() and not task.cancelled() and task.exception() is not None:
            break
        seen.append((path, await get))
    await task


PARTS: dict[str, Any] = {
    "seq": seq, "gather": gather, "group": group, "select": select, "cancelled": cancelled, "tidied": tidied,
    "caught": caught, "first": first, "queue": queue,
}  # fmt: skip


def driven(sim: Sim, choose: Callable[[int], int]) -> None:
    """Let results come in an order of somebody's choice, to the end."""
    told = False
    for _ in range(60):
        if sim.end is not None:
            return
        work = [op for op in sim.open() if op.kind != "wait"]
        waits = [op for op in sim.open() if op.kind == "wait"]
        if not told and choose(25) == 1:
            told = True
            sim.cancel()
        elif work:
            op = work[choose(len(work))]
            if op.kind == "step":
                [sim.done, sim.done, sim.failed, sim.tried][choose(4)](op)
            elif op.kind == "now":
                sim.record("VALUE_RECORDED", op=op.number, kind="now", value="2026-01-01T00:00:00+00:00")
            else:
                sim.begun(op)
        elif waits:
            sim.park()
            for op in waits[: 1 + choose(len(waits))]:
                if op.number in sim.replay.ops:
                    sim.answer(op, choose(len(op.arms)), choose(9))
        else:
            return


# what a flow that is put aside gives to `gather` in a finally block is never awaited
@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.clause("E5a")
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(program=programs, goes_on=st.booleans(), data=st.data())
def test_every_prefix_of_a_log_leads_to_what_was_live(
    program: Node, goes_on: bool, data: st.DataObject
) -> None:
    code, latest = compiled(program, goes_on=goes_on)
    with Sim(code) as sim:
        driven(sim, lambda count: data.draw(st.integers(0, count - 1)))
        seen = list(latest())
    for length in range(1, len(sim.log) + 1):
        replay = replayed(code, sim.log[:length])
        assert view(replay)[0] == sim.views[length - 1][0]
        whole = length == len(sim.log) or not any(
            kind == "VALUE_RECORDED" for kind, _ in sim.log[length : length + 1]
        )
        if whole:
            assert view(replay) == sim.views[length - 1]
            assert replay.emitted == []
            assert seen[: len(latest())] == latest()
        replay.close()
