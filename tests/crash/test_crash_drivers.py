"""A driver that always dies, and one that is stalled for longer than its claim holds (E8)."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from typing import Any

import pytest

from tests.crash import flows, witness
from tests.crash.nursery import Node, until
from tests.crash.stage import Stage
from underseal.testing.audit import Books, audit


def fork(stage: Stage, tag: str, number: int, **order: Any) -> Node:
    """A process that drives the flows of a tag."""
    return stage.nursery.fork(
        f"{tag}/{number}", conninfo=stage.conninfo, keys=str(stage.keys), tag=tag, **order
    )


async def until_found(stage: Stage, sql: str, *params: Any) -> dict[str, Any]:
    """The first row of a query, once it has one."""
    rows = await until(lambda: stage.rows(sql, *params))
    return dict(rows[0])


@pytest.mark.clause("E8b")
def test_what_always_kills_its_driver_is_left_alone_and_reported(stage: Stage) -> None:
    tag, chain = "lethal", "c-lethal"

    async def play() -> Node:
        async with stage.open():
            await stage.client.executions.start(f"lethal.{tag}", flows.OWNER, 1, execution_id=chain)
            for number in range(4):  # the first, and three recoveries
                node = fork(stage, tag, number)
                await node.gone()
                assert (node.exit, node.broken) == (-signal.SIGKILL, None)
                await stage.bury(node, chain)
            node = fork(stage, tag, 4)
            report = await until_found(
                stage,
                "select * from underseal.operator_report where subject = %s and kind = 'recoveries-exhausted'",
                chain,
            )
            assert report["times"] == 1
            # the process lives, and does what else there is
            other = await stage.client.executions.start(f"lethal.{tag}", flows.OWNER, 0)
            done = "select from underseal.execution where chain_id = %s and status = 'completed'"
            await until_found(stage, done, other)
            assert (await stage.client.executions.get(chain, flows.OWNER)).status == "running"
            said = await stage.client.executions.cancel(chain, flows.OWNER, "it kills", force=True)
            assert said.outcome == "cancelled"
            effects = await stage.rows("select name, process from crash.effect where execution = %s", chain)
            assert Counter(row["name"] for row in effects) == {"before": 1, "kills": 4}
            await node.kill()
        return node

    assert asyncio.run(play()).broken is None


EXECUTIONS, TRIES = 8, 40


@pytest.mark.clause("E8a")
def test_a_stalled_driver_starts_no_effect_of_what_another_has_taken_over(stage: Stage) -> None:
    tag = "stalled"

    async def play() -> tuple[Books, float]:
        async with stage.open():
            for number in range(EXECUTIONS):
                await stage.client.executions.start(
                    f"long.{tag}", flows.OWNER, TRIES, execution_id=f"{tag}-{number}"
                )
            stalled = fork(stage, tag, 0, lease=1)
            await until_found(
                stage, "select from crash.effect where execution = %s and attempt = 4", f"{tag}-0"
            )
            stalled.signal(signal.SIGSTOP)
            other = fork(stage, tag, 1, lease=1)
            recovered = "select from underseal.event where chain_id = %s and type = 'EXECUTION_RECOVERED'"
            for number in range(EXECUTIONS):
                await until_found(stage, recovered, f"{tag}-{number}")
            # what waited for its next try would begin it at once
            stalled.signal(signal.SIGCONT)
            resumed = time.time()
            ended = (
                "select from (select count(*) from underseal.execution"
                " where starts_with(chain_id, %s) and status = 'completed') c (n) where n = %s"
            )
            await until_found(stage, ended, f"{tag}-", EXECUTIONS)
            for node in (stalled, other):
                assert (node.exit, node.broken) == (None, None)
                await node.kill()
        return witness.read(stage.database.conninfo, f"{tag}-", (stalled.name, other.name)), resumed

    books, resumed = asyncio.run(play())
    # one that had been let start right when its process was stopped cannot be stopped any more
    late = [
        row
        for row in books.effects
        if row["process"] == f"{tag}/0" and 0 <= row["began"].timestamp() - resumed < 0.01
    ][:1]
    faults = [fault for fault in audit(books) if not any(row["execution"] in fault for row in late)]
    assert not faults, "\n".join(faults)
    again = Counter((row["execution"], row["attempt"]) for row in books.effects)
    assert len(again) == EXECUTIONS * TRIES
    assert max(again.values()) == 2
