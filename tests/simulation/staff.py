"""Who carries operations out, ends them and reads of them: nodes of the scenarios of held operations."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import Any, Final, TypeAlias

from tests.simulation.office import RITA, Office
from tests.simulation.people import Main
from underseal.held.pace import Pace
from underseal.testing.simulation import Node

Step: TypeAlias = "Callable[[Node, Office], Awaitable[None]]"

_GRACE: Final = timedelta(seconds=1)
_FINISH: Final = "select outcome from underseal.finish_run(%s, %s, 'FAILED', 'confused', null, null)"


def worker(
    office: Office, *, poll: float = 0.2, idle: float = 1.5, sql: bool = False, stops: float | None = None
) -> Main:
    """The worker as it is.

    Parameters:
        office: the world.
        poll: seconds between two looks while there is work.
        idle: seconds that this grows to.
        sql: whether it runs SQL functions.
        stops: seconds after which it is told to stop, with little grace, and is begun again.
    """

    async def main(node: Node) -> None:
        us, _ = office.full(node, serve_sql=sql)
        while True:
            made = us.worker(
                concurrency=3,
                poll_every=timedelta(seconds=poll),
                idle_poll_every=timedelta(seconds=idle),
                grace=_GRACE,
            )
            if stops is not None:
                asyncio.get_running_loop().call_later(stops, made.stop)
            await made.serve()

    return main


def runner(office: Office, pause: float = 0.3) -> Main:
    """Runs whatever it sees approved, one after the other, as a service would that has no worker.

    Parameters:
        office: the world.
        pause: seconds between two looks; up to four times as long where there is nothing.
    """

    async def main(node: Node) -> None:
        us, _ = office.full(node)
        pace = Pace(pause, 4 * pause)
        while True:
            found = await node.patiently(partial(us.list, RITA, states=("APPROVED",)))
            for one in found:
                await node.patiently(partial(us.run, one))
            await asyncio.sleep(pace.worked() if found else pace.idled())

    return main


def sweeper(office: Office, pause: float) -> Main:
    """Ends what time has ended, and does nothing else."""

    async def main(node: Node) -> None:
        us = office.approving(node)
        while True:
            await node.patiently(us.sweep)
            await asyncio.sleep(pause)

    return main


def confused(office: Office, pause: float = 1.3) -> Main:
    """Takes the runs of others for its own, and says that they failed."""

    async def main(node: Node) -> None:
        us = office.approving(node)
        while True:
            for one in await node.patiently(lambda: us.list(RITA, states=("EXECUTING",))):
                await node.patiently(partial(tell, node, _FINISH, [one.operation_id, bytes(32)]))
            await asyncio.sleep(pause)

    return main


def consumer(office: Office, name: str = "books", limit: int = 7) -> Main:
    """Reads the outbox: each event at least once, in their order, and tells when it has kept them."""

    async def main(node: Node) -> None:
        us = office.approving(node)
        await node.patiently(lambda: us.register_consumer(name))
        last = 0
        while True:
            for one in await node.patiently(lambda: us.read_outbox(name, limit)):
                row = (str(one.operation_id), one.seq, one.type)
                if last and one.position > last + 1:
                    office.simulation.wrong(f"{node.name} read position {one.position} after {last}")
                if office.outbox.setdefault(one.position, row) != row:
                    office.simulation.wrong(
                        f"position {one.position} was {office.outbox[one.position]}, and is {row}"
                    )
                last = one.position
            if last:
                await node.patiently(partial(us.ack_outbox, name, last))
            await asyncio.sleep(1.0)

    return main


def hand(office: Office, *steps: Step) -> Main:
    """Changes things while operations are under way, one after the other; each may be done again after a crash.

    Parameters:
        office: the world.
        steps: what is done.
    """

    async def main(node: Node) -> None:
        for step in steps:
            await step(node, office)

    return main


def waits(seconds: float) -> Step:
    """Let some time go by."""

    async def step(_: Node, __: Office) -> None:
        await asyncio.sleep(seconds)

    return step


def drifts(order: str) -> Step:
    """The state of an order changes."""

    async def step(_: Node, office: Office) -> None:
        office.states[order] = "closed"
        office.switch(
            f"the state of {order} is closed",
            lambda row: row["order"] == order and row["state_key"] != "closed",
        )

    return step


def dismisses(name: str) -> Step:
    """A requester may not act any more."""

    async def step(_: Node, office: Office) -> None:
        office.gone[name] = True
        office.switch(f"{name} may not act", lambda row: row["requester"] == name)

    return step


def removes(name: str) -> Step:
    """An approver may not decide any more, where the host says who may."""

    async def step(node: Node, office: Office) -> None:
        await node.patiently(lambda: tell(node, "delete from app.approver where name = %s", [name]))
        office.switch(
            f"{name} may not approve refunds",
            lambda row: row["type"] == "refund.send" and name in row["approved_by"],
        )

    return step


def disarms(type: str) -> Step:  # noqa: A002
    """A type is switched off."""

    async def step(node: Node, office: Office) -> None:
        us = office.approving(node)
        await node.patiently(lambda: us.set_armed(type, 1, False, "olga"))
        office.switch(f"{type} is switched off", lambda row: row["type"] == type)

    return step


def arms(type: str) -> Step:  # noqa: A002
    """It is switched on again."""

    async def step(node: Node, office: Office) -> None:
        us = office.approving(node)
        office.switch_back(f"{type} is switched off")
        await node.patiently(lambda: us.set_armed(type, 1, True, "olga"))

    return step


def moves(order: str) -> Step:
    """The state of an order changes in the database, for the functions that do it."""

    async def step(node: Node, office: Office) -> None:
        await node.patiently(
            lambda: tell(node, "update app.account set state = 'closed' where name = %s", [order])
        )
        office.switch(
            f"the state of {order} is closed",
            lambda row: row["order"] == order and row["state_key"] != "closed",
        )

    return step


async def tell(node: Node, statement: str, params: Any) -> None:
    """One statement of somebody's own."""
    assert node.pool is not None
    async with node.pool.connection() as connection:
        await connection.execute(statement, params)
