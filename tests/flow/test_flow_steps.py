"""Steps on a real database: results, tries, timeouts, what a step knows (clauses E5, E6)."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from datetime import timedelta
from typing import Any

import pytest

from tests.flow.nodes import World, until
from underseal.errors import ExecutionFailed, StepError
from underseal.flow.context import FlowContext
from underseal.flow.definition import Retry, flow
from underseal.flow.runtime import Limits
from underseal.flow.step import StepInfo, current_step
from underseal.flow.values import DEPTH, LIMIT

Ctx = FlowContext
QUICK = Retry(attempts=3, first=timedelta(milliseconds=5))
SLOW = Retry(attempts=3, first=timedelta(hours=1))


async def give(value: Any) -> Any:
    """A step that gives what it is given."""
    return value


@pytest.mark.clause("E5a", "E6a")
async def test_steps_may_be_async_or_plain_and_run_side_by_side(w: World) -> None:
    both = threading.Barrier(2)
    met = asyncio.Event()

    def plain(value: int) -> int:
        both.wait(10)
        return value + 1

    async def sets() -> str:
        met.set()
        return "set"

    async def waits() -> str:
        await met.wait()
        return "met"

    async def gives_a_coroutine() -> int:
        return 3

    @flow("f")
    async def body(ctx: Ctx, value: int) -> Any:
        one = ctx.run("waits", waits)
        results = await asyncio.gather(
            ctx.run("a", plain, value),
            ctx.run("b", plain, value + 1),
            ctx.run("sets", sets),
            ctx.run("lazy", lambda: gives_a_coroutine()),
        )
        return [*results, await one]

    node = w.node(body)
    execution = await node.start("f", 1)
    assert await node.result(execution) == [2, 3, "set", 3, "met"]
    events = await w.log(execution)
    assert {one["op"] for one in await w.data(execution, "STEP_COMPLETED")} == {1, 2, 3, 4, 5}
    assert events[-1].type == "EXECUTION_COMPLETED"


@pytest.mark.clause("E5a", "E6a")
async def test_a_result_is_given_as_a_replay_gives_it(w: World) -> None:
    @flow("f")
    async def body(ctx: Ctx) -> Any:
        got = await ctx.run("s", give, {1: (2, 3)})
        deep: Any = []
        for _ in range(DEPTH - 1):
            deep = [deep]
        assert await ctx.run("deep", give, deep) == deep
        assert len(await ctx.run("big", give, "x" * (LIMIT - 2))) == LIMIT - 2
        return [str(type(got["1"])), got]

    node = w.node(body)
    assert await node.run("f") == ["<class 'list'>", {"1": [2, 3]}]


@pytest.mark.clause("E6a")
@pytest.mark.parametrize(
    "value",
    [float("nan"), object(), "x" * LIMIT, {"__loomEnc": "x"}, "a\0"],
    ids=["nan", "an object", "too large", "an envelope", "U+0000"],
)
async def test_a_result_that_cannot_be_recorded_fails_its_step_at_once(w: World, value: Any) -> None:
    tries: list[int] = []

    async def bad() -> Any:
        tries.append(1)
        return value

    @flow("f")
    async def body(ctx: Ctx) -> Any:
        try:
            await ctx.run("s", bad, retry=QUICK)
        except StepError as error:
            return error.error["type"]

    assert await w.node(body).run("f") == "NotRecordable"
    assert len(tries) == 1


class Odd(BaseException):
    """No Exception, with an odd constructor, and without words."""

    def __init__(self, *, code: int) -> None:
        super().__init__(code)

    def __str__(self) -> str:
        raise ZeroDivisionError


@pytest.mark.clause("E6a")
@pytest.mark.parametrize("plain", [False, True], ids=["async", "plain"])
@pytest.mark.parametrize(
    "error",
    [ValueError("no"), Odd(code=1), SystemExit(2), asyncio.CancelledError(), GeneratorExit(), StopIteration(),
     BaseExceptionGroup("g", [Odd(code=1)])],
    ids=lambda error: type(error).__name__,
)  # fmt: skip
async def test_whatever_a_step_raises_is_recorded(w: World, error: BaseException, plain: bool) -> None:
    async def coro() -> None:
        raise error

    def function() -> None:
        raise error

    @flow("f")
    async def body(ctx: Ctx) -> Any:
        try:
            await ctx.run("s", function if plain else coro)
        except StepError as failed:
            return [failed.step, failed.error["type"]]

    node = w.node(body)
    step, kind = await node.run("f")
    assert step == "s"
    assert kind == ("RuntimeError" if isinstance(error, StopIteration) else type(error).__name__)
    assert await node.run("f") == [step, kind]


async def test_errors_have_a_traceback_only_where_it_is_wanted(w: World) -> None:
    async def bad() -> None:
        raise ValueError("secret")

    @flow("plain")
    async def plain(ctx: Ctx) -> None:
        await ctx.run("s", bad)

    @flow("kept", keep_traceback=True)
    async def kept(ctx: Ctx) -> None:
        await ctx.run("s", bad)

    node = w.node(plain, kept)
    with pytest.raises(ExecutionFailed) as caught:
        await node.run("plain")
    assert caught.value.error == {"type": "ValueError", "message": "secret", "step": "s"}
    with pytest.raises(ExecutionFailed) as caught:
        await node.run("kept")
    assert caught.value.error is not None
    assert "in bad" in str(caught.value.error["traceback"])


@pytest.mark.clause("E6a")
async def test_a_step_is_tried_as_often_as_it_may(w: World) -> None:
    tries: list[StepInfo] = []

    def shaky(until_try: int) -> int:
        tries.append(current_step())
        if len(tries) < until_try:
            raise ValueError(len(tries))
        return len(tries)

    @flow("f")
    async def body(ctx: Ctx, good_at: int) -> Any:
        try:
            return await ctx.run("s", shaky, good_at, retry=QUICK)
        except StepError as error:
            return error.error

    node = w.node(body)
    execution = await node.start("f", 3)
    assert await node.result(execution) == 3
    assert [one.attempt for one in tries] == [1, 2, 3]
    assert {one.key for one in tries} == {f"{execution}#1"}
    assert {(one.execution_id, one.name, one.number) for one in tries} == {(execution, "s", 1)}
    assert [one["attempt"] for one in await w.data(execution, "STEP_ATTEMPT_FAILED")] == [1, 2]
    tries.clear()
    assert await node.run("f", 4) == {"type": "ValueError", "message": "3"}
    assert len(tries) == 3


@pytest.mark.clause("E6a")
async def test_only_what_may_be_tried_again_is(w: World) -> None:
    tries: list[str] = []

    def bad(error: str) -> None:
        tries.append(error)
        raise {"value": ValueError, "key": KeyError}[error]

    @flow("f")
    async def body(ctx: Ctx) -> None:
        retry = Retry(attempts=2, first=timedelta(0), only=(ValueError,))
        await asyncio.gather(
            ctx.run("v", bad, "value", retry=retry),
            ctx.run("k", bad, "key", retry=retry),
            return_exceptions=True,
        )

    await w.node(body).run("f")
    assert sorted(tries) == ["key", "value", "value"]


@pytest.mark.clause("E6a")
async def test_tries_survive_a_crash(w: World) -> None:
    tries: list[int] = []

    async def shaky() -> None:
        tries.append(current_step().attempt)
        if len(tries) == 2:
            await asyncio.Event().wait()
        raise ValueError

    @flow("f")
    async def body(ctx: Ctx) -> None:
        await ctx.run("s", shaky, retry=QUICK)

    node = w.node(body)
    execution = await node.start("f")
    await until(lambda: len(tries) == 2)
    await node.kill()
    w.expire_claims(execution)
    with pytest.raises(ExecutionFailed):
        await w.node(body).result(execution)
    assert tries == [1, 2, 2, 3]


@pytest.mark.clause("E6a")
async def test_a_long_wait_between_tries_is_a_park_and_a_short_one_is_none(timed: World, clock: Any) -> None:
    tries: list[int] = []

    async def shaky() -> int:
        tries.append(current_step().attempt)
        if len(tries) < 3:
            raise ValueError
        return len(tries)

    @flow("long")
    async def long(ctx: Ctx) -> Any:
        return await ctx.run("s", shaky, retry=SLOW)

    node = timed.node(long)
    execution = await node.start("long")
    await timed.parks(execution)
    assert tries == [1]
    clock.advance(minutes=59)
    await asyncio.sleep(0.1)
    assert tries == [1]
    clock.advance(minutes=1)
    await until(lambda: tries == [1, 2])
    await timed.parks(execution)
    await node.kill()
    clock.advance(hours=2)
    assert await timed.node(long).result(execution) == 3
    waits = [one["waits"][0]["wait"] for one in await timed.data(execution, "EXECUTION_SUSPENDED")]
    assert waits == ["1:retry:1", "1:retry:2"]


@pytest.mark.clause("E6a")
async def test_a_rest_keeps_its_instant_while_other_things_happen(timed: World, clock: Any) -> None:
    tries: list[int] = []

    async def shaky() -> int:
        tries.append(1)
        if len(tries) == 1:
            raise ValueError
        return 5

    @flow("f")
    async def body(ctx: Ctx) -> Any:
        step = ctx.run("s", shaky, retry=SLOW)
        for _ in range(3):
            await ctx.receive("m")
        return await step

    node = timed.node(body)
    execution = await node.start("f")
    for _ in range(3):
        await timed.parks(execution)
        clock.advance(minutes=19)
        await timed.send(execution, "m")
    await asyncio.sleep(0.05)
    await timed.parks(execution)
    clock.advance(minutes=3)
    assert await node.result(execution) == 5


@pytest.mark.clause("E6a")
async def test_a_try_that_takes_too_long_has_failed(w: World) -> None:
    go_on = threading.Event()
    cancelled: list[int] = []

    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append(1)

    def blocked() -> str:
        go_on.wait(10)
        return "too late"

    @flow("f")
    async def body(ctx: Ctx) -> Any:
        soon = timedelta(milliseconds=10)
        told = await asyncio.gather(
            ctx.run("slow", slow, timeout=soon, retry=Retry(attempts=2, first=timedelta(0))),
            ctx.run("blocked", blocked, timeout=soon),
            return_exceptions=True,
        )
        return [error.error["type"] for error in told if isinstance(error, StepError)]

    assert await w.node(body).run("f") == ["TimeoutError"] * 2
    assert cancelled == [1, 1]
    go_on.set()


@pytest.mark.clause("E6a")
async def test_a_step_that_nobody_waits_for_any_more_is_cancelled(w: World) -> None:
    ended: list[str] = []
    began = asyncio.Event()

    async def endless() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("endless")

    async def waits() -> None:
        await began.wait()

    @flow("f")
    async def body(ctx: Ctx) -> None:
        task = asyncio.ensure_future(ctx.run("endless", endless))
        await ctx.run("waits", waits)
        task.cancel()
        await ctx.run("after", give, 1)

    execution = await (node := w.node(body)).start("f")
    await node.result(execution)
    assert ended == ["endless"]
    assert [one["name"] for one in await w.data(execution, "STEP_COMPLETED")] == ["waits", "after"]


async def test_a_step_sees_its_context_variables_and_no_other_steps(w: World) -> None:
    var = contextvars.ContextVar("var", default="clean")

    def look() -> str:
        was = var.get()
        var.set("dirty")
        return was

    @flow("f")
    async def body(ctx: Ctx) -> Any:
        return [await ctx.run("a", look), await ctx.run("b", look), await ctx.run("c", look)]

    assert await w.node(body).run("f") == ["clean"] * 3


async def test_steps_run_so_many_at_once_as_they_may(w: World) -> None:
    now, most = 0, 0

    async def work() -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.002)
        now -= 1

    def plain() -> None:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        threading.Event().wait(0.002)
        with lock:
            now -= 1

    lock = threading.Lock()

    @flow("f")
    async def body(ctx: Ctx, kind: str) -> None:
        await asyncio.gather(*[ctx.run(f"s{n}", work if kind == "async" else plain) for n in range(20)])

    node = w.node(body, limits=Limits(steps=4, threads=2))
    await node.run("f", "async")
    assert most == 4
    most = 0
    await node.run("f", "plain")
    assert most == 2
