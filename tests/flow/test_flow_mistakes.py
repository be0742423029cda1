"""What somebody writes who sees flows for the first time: it is told in a sentence what was meant."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, cast

import pytest

from tests.flow.nodes import World
from underseal.errors import ExecutionFailed, FlowError
from underseal.flow.context import FlowContext
from underseal.flow.definition import flow
from underseal.log.client import Executions


def test_a_decorator_without_a_name_says_what_it_takes() -> None:
    async def body(ctx: Any) -> None: ...

    with pytest.raises(FlowError, match=r'expected a name, as in @flow\("onboard"\)'):
        cast(Any, flow)(body)


async def test_a_flow_is_started_by_its_name_and_says_so(w: World) -> None:
    @flow("named")
    async def body(ctx: FlowContext) -> None: ...

    with pytest.raises(FlowError, match="found the flow itself: give its `name`"):
        await w.node(body).runtime.start(cast(Any, body), "ann")
    with Executions("dbname=unused") as executions:
        with pytest.raises(TypeError, match="expected the name of a flow, such as 'onboard', found a Flow"):
            executions.start(cast(Any, body), "ann")
        with pytest.raises(TypeError, match="expected the name of a flow"):
            executions.start_many(cast(Any, body), "ann", [1])


@pytest.mark.parametrize("duration", [5, 0, 2.5])
async def test_a_sleep_of_a_number_says_how_to_sleep(w: World, duration: Any) -> None:
    @flow("sleepy")
    async def body(ctx: FlowContext) -> None:
        await ctx.sleep(duration)

    with pytest.raises(ExecutionFailed, match=r"FlowError: expected ctx.sleep\(seconds=5\)"):
        await w.node(body).run("sleepy")


async def test_a_sleep_takes_a_length_of_time_or_its_parts(w: World) -> None:
    @flow("short")
    async def body(ctx: FlowContext) -> str:
        await ctx.sleep(timedelta(milliseconds=1))
        await ctx.sleep(seconds=0.001)
        return "awake"

    assert await w.node(body).run("short") == "awake"
