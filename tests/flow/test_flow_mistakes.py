"""What somebody writes who sees flows for the first time: it is told in a sentence what was meant."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, cast

import pytest

from tests.flow.nodes import World
from underseal.errors import ExecutionFailed, FlowError
from underseal.flow.context import FlowContext
from underseal.flow.definition import flow


def test_a_decorator_without_a_name_says_what_it_takes() -> None:
    async def body(ctx: Any) -> None: ...

    with pytest.raises(FlowError, match=r'expected a name, as in @flow\("onboard"\)'):
        cast(Any, flow)(body)


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
