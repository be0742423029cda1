"""How one execution is driven, without a database."""

from __future__ import annotations

import asyncio

import pytest

from underseal.flow.drive import _specs
from underseal.flow.operation import Operation


@pytest.mark.clause("E6a")
async def test_a_rest_counts_from_the_try_that_failed() -> None:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    op = Operation(1, "step", "s", future, attempts=1, resting=60.0, began=100.0)
    assert _specs(op, 130.0) == [{"for": 30.0}]
    assert _specs(op, 200.0) == [{"for": 0.0}]
    op.began = None
    assert _specs(op, 130.0) == [{"for": 60.0}]
