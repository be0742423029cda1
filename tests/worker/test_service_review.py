"""What an attacker's reading of the worker found (clause E8)."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import Any

import pytest

from tests.worker.works import Works, working
from underseal import flow
from underseal.testing import wait_until


@pytest.mark.clause("E8b")
def test_a_step_that_will_not_be_cancelled_keeps_no_worker_from_ending(sync_works: Works) -> None:
    inside: list[int] = []

    async def stubborn() -> None:
        inside.append(1)
        while len(inside) < 2:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                continue

    @flow("stubborn")
    async def body(ctx: Any) -> None:
        await ctx.run("step", stubborn)

    sync_works.us.serve(body)
    sync_works.start("stubborn")
    with working(sync_works, grace=timedelta(milliseconds=100), lease=timedelta(minutes=10)) as worker:
        wait_until(lambda: inside)
        stopped = time.monotonic()
        worker.stop()
    assert time.monotonic() - stopped < 15
    assert sync_works.claims() == []
