"""Two workers, one database, two thousand executions; one worker is killed on the way (E6, E7, E8, I1, I2)."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from tests.crash import storm, witness
from tests.crash.nursery import Node
from tests.crash.stage import ENDED, Stage
from underseal.testing.audit import audit


class Weather:
    """One storm on a stage."""

    def __init__(self, stage: Stage, prefix: str, roots: int) -> None:
        self.stage = stage
        self.prefix = prefix
        self.roots = roots
        self.dead: list[str] = []
        self.ends = storm.expected(prefix, roots)
        self._count = 0

    def worker(self) -> Node:
        """One more worker."""
        self._count += 1
        return self.stage.nursery.fork(
            f"{self.prefix}/{self._count}", conninfo=self.stage.conninfo, keys=str(self.stage.keys), storm=True,
            idle=200, poll=20,
        )  # fmt: skip

    def director(self) -> Node:
        """Who starts and sends."""
        return self.stage.nursery.fork(
            f"{self.prefix}/director", conninfo=self.stage.conninfo, keys=str(self.stage.keys), direct=self.prefix,
            roots=self.roots, connections=4, at_once=400,
        )  # fmt: skip

    async def ended(self) -> int:
        """How many have ended."""
        (row,) = await self.stage.rows(
            "select count(*) as ended from underseal.execution where starts_with(chain_id, %s) and status = any (%s)",
            f"{self.prefix}-", list(ENDED),
        )  # fmt: skip
        return int(row["ended"])

    async def until(self, number: int, seconds: float = 240) -> None:
        """Wait until so many have ended."""
        deadline = time.monotonic() + seconds
        while await self.ended() < number:
            assert time.monotonic() < deadline, await self.left()
            await asyncio.sleep(0.1)

    async def left(self) -> list[dict[str, Any]]:
        """Some that do not end."""
        return await self.stage.rows(
            "select e.chain_id, e.member, e.status, e.waits, e.recoveries, e.cancel_requested, ("
            "   select json_agg(w) from underseal.wake w"
            "   where w.chain_id = e.chain_id and w.member = e.member) as wakes"
            " from underseal.execution e where starts_with(e.chain_id, %s) and e.status <> all (%s)"
            " order by e.chain_id, e.member limit 30",
            f"{self.prefix}-", list(ENDED),
        )  # fmt: skip

    async def kill(self, node: Node) -> None:
        """Kill a worker; its claims run out at once, as they would by themselves a little later."""
        await node.kill()
        self.dead.append(node.name)
        await self.stage.quiet(node.name)
        await self.stage.rows(
            "update underseal.wake set claimed_until = underseal.clock() - interval '1 second' where claimed_by = %s",
            node.name,
        )

    async def blow(self, kills: int) -> None:
        """All of it; workers are killed as often, evenly spread, and another one comes for each."""
        open_ones = sum(status == "suspended" for status, _ in self.ends.values())
        total = len(self.ends) - open_ones
        workers = [self.worker(), self.worker()]
        director = self.director()
        for turn in range(kills):
            await self.until(total * (turn + 1) // (kills + 1))
            await self.kill(workers.pop(0))
            workers.append(self.worker())
        await director.gone(240)
        assert (director.exit, director.broken) == (0, None)
        await self.until(total)
        for worker in workers:
            assert worker.exit is None, worker
            await worker.kill()

    async def recoveries(self) -> int:
        """How many executions were taken over."""
        (row,) = await self.stage.rows(
            "select count(*) as taken from underseal.event"
            " where starts_with(chain_id, %s) and type = 'EXECUTION_RECOVERED'",
            f"{self.prefix}-",
        )  # fmt: skip
        return int(row["taken"])

    async def found(self) -> dict[str, tuple[str, Any]]:
        """How each execution stands."""
        rows = await self.stage.rows(
            "select e.chain_id, e.member, e.status, (select v.data -> 'output' from underseal.event v"
            "   where v.chain_id = e.chain_id and v.member = e.member and v.seq = e.head) as output"
            " from underseal.execution e where starts_with(e.chain_id, %s)",
            f"{self.prefix}-",
        )
        return {
            f"{row['chain_id']}~{row['member']}".removesuffix("~"): (row["status"], row["output"])
            for row in rows
        }


async def _blow(stage: Stage, prefix: str, roots: int, kills: int) -> tuple[list[str], int]:
    async with stage.open():
        weather = Weather(stage, prefix, roots)
        await weather.blow(kills)
        found = await weather.found()
        taken = await weather.recoveries()
    faults = [
        f"{name}: expected {weather.ends.get(name)}, found {found.get(name)}"
        for name in {*weather.ends, *found}
        if weather.ends.get(name) != found.get(name)
    ]
    faults += audit(witness.read(stage.database.conninfo, f"{prefix}-", weather.dead))
    return faults, taken


@pytest.mark.clause("E6a", "E6b", "E6c", "E7a", "E7b", "E7c", "E7d", "E8a", "I1a", "I2b")
def test_two_thousand_executions_lose_and_repeat_nothing_though_a_worker_is_killed(stage: Stage) -> None:
    roots = 1050
    assert len(storm.expected("s", roots)) >= 2000
    faults, taken = asyncio.run(_blow(stage, "s", roots, kills=1))
    assert not faults, f"{len(faults)} faults:\n" + "\n".join(faults[:50])
    assert taken > 0


@pytest.mark.soak
@pytest.mark.clause("E6a", "E6b", "E6c", "E7a", "E7b", "E7c", "E7d", "E8a", "I1a", "I2b")
def test_twenty_thousand_executions_lose_and_repeat_nothing_though_workers_are_killed(stage: Stage) -> None:
    faults, taken = asyncio.run(_blow(stage, "long", 11_000, kills=12))
    assert not faults, f"{len(faults)} faults:\n" + "\n".join(faults[:50])
    assert taken > 0
