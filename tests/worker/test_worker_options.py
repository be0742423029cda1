"""Options with which a worker would look for work for ever and be given none."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from underseal import AsyncUnderseal, Limits, MemoryKeyRing, Underseal
from underseal.errors import FlowError

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"lease": 30}, "as timedelta"),
    ({"lease": timedelta(0)}, "1 second to 1 hour"),
    ({"lease": timedelta(hours=2)}, "1 second to 1 hour"),
    ({"grace": 5}, "as timedelta"),
    ({"grace": timedelta(seconds=-1)}, "0 or more"),
]


@pytest.mark.parametrize(("options", "words"), [*WRONG, ({"concurrency": 0}, "at least 1")])
def test_a_worker_is_not_made_with_them(options: dict[str, Any], words: str) -> None:
    with Underseal("dbname=unused", keys=MemoryKeyRing()) as us, pytest.raises(ValueError, match=words):
        us.worker(**options)


@pytest.mark.parametrize(("options", "words"), WRONG)
async def test_nor_is_a_runtime(options: dict[str, Any], words: str) -> None:
    async with AsyncUnderseal("dbname=unused", keys=MemoryKeyRing()) as us:
        with pytest.raises(ValueError, match=words):
            us.runtime(**options)


@pytest.mark.parametrize(
    "options", [{"executions": 0}, {"steps": 0}, {"threads": "4"}, {"lanes": 0}, {"recoveries": -1}]
)
def test_limits_let_something_run(options: dict[str, Any]) -> None:
    with pytest.raises(FlowError, match=next(iter(options))):
        Limits(**options)
    assert Limits(executions=1, steps=1, threads=1, recoveries=0, lanes=1).steps == 1
