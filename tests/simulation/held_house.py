"""A house whose operations are held, run and given up in every way, and what its bodies noted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import Any

from psycopg.conninfo import make_conninfo
from pydantic import BaseModel

from underseal import (
    AsyncUnderseal,
    Effect,
    FlowContext,
    Held,
    MemoryKeyRing,
    Policy,
    Principal,
    Provider,
    flow,
)
from underseal.held.replay import running
from underseal.testing import OWNER, TestClock, TestDatabase, wait_until
from underseal.testing.audit import Books, witness

RITA = Principal("rita", "session")
HOUR = timedelta(hours=1)


class Payment(BaseModel):
    """What is held."""

    order: str
    cents: int = 5


class Pay(Provider[Payment]):
    """A payment that two of three approve."""

    type = "house.pay"
    version = 1
    params = Payment
    policy = Policy(approvers=("ann", "bob", "cy"), votes_required=2, hold_for=HOUR, run_within=HOUR)

    def estimate(self, principal: Principal, params: Payment) -> Effect:
        """What it would do."""
        return Effect({"pays": params.cents}, "open")

    def check_run(self, principal: Principal, params: Payment) -> str | None:
        """One is refused."""
        return "disputed" if params.order == "refused" else None


class Issue(Pay):
    """One that its requester runs."""

    type = "house.issue"
    mode = "BY_REQUESTER"


@flow("house.order")
async def order(ctx: FlowContext, name: str) -> Any:
    """Waits for a payment."""
    return (await ctx.hold("house.pay", {"order": name}))["ok"]


class House:
    """Who asks and votes (the desk), who runs (the worker), and what was noted.

    Attributes:
        ids: the operation of each order.
    """

    def __init__(self, database: TestDatabase) -> None:
        self.database = database
        self.clock = TestClock(database)
        self.admin = database.connect()
        self.admin.execute(witness.INSTALL)
        self.ring = MemoryKeyRing.with_all()
        self.asked: list[dict[str, Any]] = []
        self.runs: list[dict[str, Any]] = []
        self.ids: dict[str, Any] = {}
        self.desk: AsyncUnderseal
        self.worker: AsyncUnderseal

    @asynccontextmanager
    async def open(self) -> AsyncIterator[House]:
        """Connect both."""
        async with self._client("desk") as (self.desk, self.send, self.issue):
            await self.desk.register()
            async with self._client("worker") as (self.worker, _, self.reissue):
                yield self

    @asynccontextmanager
    async def _client(self, process: str) -> AsyncIterator[tuple[AsyncUnderseal, Any, Any]]:
        conninfo = make_conninfo(self.database.conninfo_as(OWNER), application_name=process)
        async with AsyncUnderseal(
            conninfo, keys=self.ring, principals=Principal, run_on_approval=False, worker_name=process
        ) as client:

            async def body(who: Principal, params: Payment) -> dict[str, bool]:
                return self._do(process, who, params)

            yield client, client.gate(Pay())(body), client.gate(Issue())(body)

    def _do(self, process: str, who: Principal, params: Payment) -> dict[str, bool]:
        now = running.get()
        assert now is not None
        (seen,) = self.admin.execute("select last_value as number from witness.number").fetchall()
        self.runs.append(
            {
                "operation_id": now.operation_id,
                "process": process,
                "at": seen["number"],
                "params": params.model_dump(),
                "principal": who.id,
            }
        )
        if params.order == "stalled":
            self.clock.advance(minutes=16)
        if params.order == "failed":
            raise LookupError("no such account")
        return {"ok": True}

    async def hold(self, name: str, method: Any = None) -> Held:
        """Ask for one."""
        held: Held = await (method or self.send)(RITA, Payment(order=name))
        self.ids[name] = held.operation_id
        self.asked.append({"operation_id": held.operation_id, "params": {"order": name, "cents": 5}})
        return held

    async def vote(self, operation_id: Any, *approvers: str) -> None:
        """Approve one."""
        for approver in approvers:
            shown = await self.desk.get(operation_id, approver)
            assert shown is not None
            await self.desk.approve(shown, approver)

    async def live(self) -> None:
        """All of it."""
        await self.hold("expired")
        self.clock.advance(minutes=61)
        assert [one.outcome for one in await self.worker.sweep()] == ["expired"]
        await self._flows()
        for name in ("done", "failed", "refused", "stalled"):
            held = await self.hold(name)
            await self.vote(held.operation_id, "ann", "cy")
            await self.worker.run(held)
        shown = await self.desk.get(await self.hold("rejected"), "ann")
        assert shown is not None
        await self.desk.reject(shown, "ann", "no")
        await self.desk.cancel(await self.hold("cancelled"), RITA)
        await self.vote((await self.hold("issued", self.issue)).operation_id, "ann", "bob")
        assert await self.reissue(RITA, Payment(order="issued")) == {"ok": True}
        await self.vote((await self.hold("approved")).operation_id, "bob", "cy")
        await self.vote((await self.hold("held")).operation_id, "bob")
        await self.desk.register_consumer("reader")
        await self.desk.read_outbox("reader", 30)

    async def _flows(self) -> None:
        self.worker.serve(order)
        serving = asyncio.create_task(self.worker.worker(poll_every=timedelta(milliseconds=20)).serve())
        for name in ("told", "waits"):
            await self.desk.executions.start("house.order", RITA.id, name, execution_id=f"f-{name}")
            self.ids[name] = await asyncio.to_thread(wait_until, partial(self._operation_of, f"f-{name}"))
        await self.vote(self.ids["told"], "ann", "bob")
        assert await self.desk.executions.result("f-told", RITA.id, timeout=timedelta(seconds=30)) is True
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)

    def _operation_of(self, chain: str) -> Any:
        """What a flow waits for, once it does."""
        found = self.admin.execute(
            "select w.operation_id from underseal.held_waiter w"
            " join underseal.execution e on e.chain_id = w.chain_id and e.status = 'suspended'"
            " where w.chain_id = %s",
            [chain],
        ).fetchone()
        return found and found["operation_id"]

    def books(self, prefix: str = "", **noted: Any) -> Books:
        """What there is to audit."""
        return Books.read(
            self.database.conninfo, prefix, numbered=True, asked=self.asked, excused=["worker"], **noted
        )
