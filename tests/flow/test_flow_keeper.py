"""Whether a driver may still act: by its claims alone, until there are leases (clause E8)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, cast

import pytest

from tests.flow.nodes import LEASE, OWNER, World, until
from underseal.flow import items
from underseal.flow.batches import NotWritten
from underseal.flow.keeper import ClaimKeeper


class Renewals:
    """Answers renewals as it is told."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.says = "renewed"
        self.go = asyncio.Event()
        self.go.set()

    async def renew(self, execution_ids: Iterable[str]) -> dict[str, str]:
        """Renew."""
        wanted = list(execution_ids)
        self.asked.append(wanted)
        await self.go.wait()
        if self.says == "away":
            raise OSError
        return dict.fromkeys(wanted, self.says)


@asynccontextmanager
async def keeping(lease: float = 0.3) -> AsyncIterator[tuple[ClaimKeeper, Renewals, list[str]]]:
    """A keeper at work, what it asks, and what it says is lost."""
    renewals, lost = Renewals(), list[str]()
    keeper = ClaimKeeper(cast("Any", renewals), timedelta(seconds=lease), lost.append)
    task = asyncio.create_task(keeper.run())
    try:
        yield keeper, renewals, lost
    finally:
        task.cancel()
        await asyncio.wait([task])


def now() -> float:
    """The loop's clock."""
    return asyncio.get_running_loop().time()


@pytest.mark.clause("E8a")
async def test_who_holds_a_claim_may_act_and_nobody_else() -> None:
    async with keeping() as (keeper, _, _lost):
        assert not await keeper.entitled("a")
        keeper.held("a", now())
        assert await keeper.entitled("a")
        keeper.dropped("a")
        assert not await keeper.entitled("a")


@pytest.mark.clause("E8a")
async def test_a_claim_that_may_have_run_out_is_renewed_first() -> None:
    async with keeping() as (keeper, renewals, _):
        renewals.go.clear()
        keeper.held("a", now() - 0.31)
        asking = asyncio.create_task(keeper.entitled("a"))
        await until(lambda: renewals.asked)
        await asyncio.sleep(0.01)
        assert not asking.done()
        renewals.go.set()
        assert await asking


@pytest.mark.clause("E8a")
async def test_a_claim_that_is_lost_is_told_once() -> None:
    async with keeping() as (keeper, renewals, lost):
        renewals.says = "lost"
        keeper.held("a", now() - 0.31)
        assert not await keeper.entitled("a")
        assert lost == ["a"]


@pytest.mark.clause("E8a")
async def test_a_renewal_that_fails_is_made_again_and_grants_nothing() -> None:
    async with keeping() as (keeper, renewals, lost):
        renewals.says = "away"
        keeper.held("a", now() - 0.31)
        asking = asyncio.create_task(keeper.entitled("a"))
        await until(lambda: len(renewals.asked) > 2)
        assert not asking.done()
        renewals.says = "renewed"
        assert await asking
        assert lost == []


@pytest.mark.clause("E8a")
async def test_an_old_answer_says_nothing_of_a_new_claim() -> None:
    async with keeping() as (keeper, renewals, lost):
        renewals.go.clear()
        renewals.says = "lost"
        keeper.held("a", now())
        await until(lambda: renewals.asked)
        keeper.dropped("a")
        keeper.held("a", now())
        renewals.says, before = "lost", len(renewals.asked)
        renewals.go.set()
        await asyncio.sleep(0.02)
        assert lost == []
        assert len(renewals.asked) == before
        assert await keeper.entitled("a")


@pytest.mark.clause("E8a")
async def test_claims_are_renewed_each_third_of_a_lease() -> None:
    async with keeping(0.15) as (keeper, renewals, _):
        keeper.held("a", now())
        await asyncio.sleep(0.4)
        assert 3 <= len(renewals.asked) <= 9
        assert keeper._until["a"] > now()


@pytest.mark.clause("E6c", "E8a")
async def test_a_child_is_sent_only_while_its_parents_claim_holds(w: World) -> None:
    node = w.node()
    item = items.start_text("e~leaf-1", "leaf", 1, OWNER, "null", None, "")
    node.runtime.keeper.held("e", now() - LEASE.total_seconds())
    with pytest.raises(NotWritten):
        await node.runtime.start_child(item, "e")
    assert node.faults.items == []
    node.runtime.keeper.held("e", now())
    await node.runtime.start_child(item, "e")
    assert node.faults.items == [item]


@pytest.mark.clause("E8a")
async def test_it_ends_when_it_is_told_to_whatever_comes_at_the_same_time() -> None:
    lost: list[str] = []
    keeper = ClaimKeeper(cast("Any", Renewals()), timedelta(seconds=30), lost.append)
    task = asyncio.create_task(keeper.run())
    await asyncio.sleep(0.01)
    keeper._due.set()
    task.cancel()
    done, _ = await asyncio.wait([task], timeout=1)
    task.cancel()
    assert done == {task}
