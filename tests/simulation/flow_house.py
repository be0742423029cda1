"""Flows that end in ways that leave traces elsewhere than in their own results, and what their steps noted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any

from psycopg.conninfo import make_conninfo

from underseal import AsyncUnderseal, FlowContext, MemoryKeyRing, flow
from underseal.errors import ChildFailed
from underseal.flow.step import current_step
from underseal.testing import OWNER, TestDatabase, wait_until
from underseal.testing.audit import Books, witness

ANN = "ann"


class FlowHouse:
    """One worker, and one who starts and sends.

    Attributes:
        effects, sent: what the audit is told.
    """

    def __init__(self, database: TestDatabase) -> None:
        self.database = database
        self.admin = database.connect()
        self.admin.execute(witness.INSTALL)
        self.admin.execute("select underseal.grant_access(%s, 'operator', 'asserted')", [OWNER])
        self.effects: list[dict[str, Any]] = []
        self.sent: list[dict[str, Any]] = []
        self.us: AsyncUnderseal

    @asynccontextmanager
    async def open(self) -> AsyncIterator[FlowHouse]:
        """Connect, and serve."""
        conninfo = make_conninfo(self.database.conninfo_as(OWNER), application_name="worker")
        async with AsyncUnderseal(conninfo, keys=MemoryKeyRing.with_all()) as self.us:
            self.us.serve(*self._flows())
            worker = self.us.worker(
                poll_every=timedelta(milliseconds=10), idle_poll_every=timedelta(milliseconds=20)
            )
            serving = asyncio.create_task(worker.serve())
            yield self
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)

    def _flows(self) -> list[Any]:
        async def do(value: Any) -> dict[str, Any]:
            return self._do(value)

        async def fail(value: Any) -> None:
            self._do(value)
            raise LookupError("no")

        async def linger(value: Any) -> None:
            self._do(value)
            await asyncio.sleep(60)

        async def plain(value: Any) -> Any:
            return {"said": value}

        @flow("walks")
        async def walks(ctx: FlowContext, name: str) -> Any:
            first = await ctx.run("first", do, name)
            await ctx.run("plain", plain, name)
            word = await ctx.receive("word")
            return [(await ctx.run("last", do, word))["value"], first["value"]]

        @flow("hurries")
        async def hurries(ctx: FlowContext) -> str:
            lingering = asyncio.ensure_future(ctx.run("lingers", linger, 1))
            await ctx.run("works", do, 2)
            assert not lingering.done()
            return "did not wait"

        @flow("fails")
        async def fails(ctx: FlowContext) -> None:
            await ctx.run("fails", fail, 1)

        @flow("asks")
        async def asks(ctx: FlowContext) -> str:
            with suppress(ChildFailed):
                await ctx.child(fails, name="fails")
            return "asked"

        return [walks, hurries, fails, asks]

    def _do(self, value: Any) -> dict[str, Any]:
        info = current_step()
        (seen,) = self.admin.execute("select last_value as number from witness.number").fetchall()
        number = len(self.effects) + 1
        self.effects.append(
            {
                "effect": number,
                "execution": info.execution_id,
                "step": info.number,
                "attempt": info.attempt,
                "process": "worker",
                "began": seen["number"],
            }
        )
        return {"effect": number, "value": value}

    async def send(self, chain: str, word: str, topic: str = "word", **how: Any) -> None:
        """Send a word."""
        said = await self.us.executions.send(chain, topic, word, ANN, message_id=word, **how)
        self.sent.append(
            {
                "execution": chain,
                "topic": topic,
                "sender": ANN,
                "message_id": word,
                "outcome": said.outcome,
                "inbox_seq": said.inbox_seq,
                "payload": word,
            }
        )

    async def suspended(self, chain: str) -> None:
        """Wait until it waits."""
        sql = "select 1 as yes from underseal.execution where chain_id = %s and status = 'suspended'"
        await asyncio.to_thread(wait_until, lambda: self.admin.execute(sql, [chain]).fetchall())

    async def live(self) -> None:
        """All of it."""
        calls = self.us.executions
        await calls.start("walks", ANN, "one", execution_id="w-one", after=timedelta(seconds=0.2))
        await self.send("w-one", "unheard", topic="other")
        await self.send("w-one", "unwanted")
        discarded = await calls.discard("w-one", "word", ANN, "a slip")
        assert discarded.outcome == "discarded"
        await self.send("w-one", "stale", expires_in=timedelta(milliseconds=1))
        await self.suspended("w-one")
        copy = await calls.fork("w-one", 3, ANN, new_id="w-fork")
        for chain in ("w-one", copy):
            await self.send(chain, "go")
            assert (await calls.result(chain, ANN))[0] == "go"
        await calls.start("walks", ANN, "two", execution_id="w-two")
        await self.suspended("w-two")
        for name in ("hurries", "asks"):
            await calls.start(name, ANN, execution_id=name)
            await calls.result(name, ANN)

    def books(self) -> Books:
        """What there is to audit."""
        return Books.read(self.database.conninfo, numbered=True, effects=self.effects, sent=self.sent)
