"""How long one flow takes while nothing else happens, and what an idle worker costs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from statistics import median
from typing import Final

import psycopg

from bench.flows_peers import dbos, installed, make_peer_database
from bench.flows_setting import FLOWS, OWNER, VALUE, driver, heard, until
from bench.log_setting import make_log_database
from bench.nodes import Node, running_node, stopped
from bench.setting import as_service
from bench.turns import ratio, take_turns, telling
from underseal import AsyncUnderseal, MemoryKeyRing
from underseal.foundation.server import Server
from underseal.worker.service import Worker

DBNAME: Final = "flows_idle"
PAUSE: Final = 0.02
FIRST: Final = 3
"""The first calls make the plans."""
PEER: Final = "dbos_idle"


class Claiming:
    """A worker as users have it, with the latency hint."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    async def completed(self) -> int:
        """How many executions have completed here."""
        return self._worker.progress.flows.completed

    async def next_end(self, before: int) -> float:
        """When more than so many had completed, by the machine's monotonic clock."""
        await until(lambda: self._worker.progress.flows.completed > before, 0.0003)
        return time.monotonic()

    async def heard(self, number: int) -> float:
        """When a flow that listens got its message of this number."""
        await until(lambda: number in heard, 0.001)
        return heard[number]


@asynccontextmanager
async def worker(conninfo: str) -> AsyncIterator[Claiming]:
    """A process with a worker.

    Parameters:
        conninfo: the service's connection string.
    """
    async with AsyncUnderseal(conninfo, keys=MemoryKeyRing.with_all(), hint=True) as client:
        client.serve(*FLOWS)
        working = client.worker()
        serving = asyncio.create_task(working.serve())
        yield Claiming(working)
        working.stop()
        await serving


class Caller:
    """Starts executions that others drive, and sends them messages."""

    def __init__(self, client: AsyncUnderseal) -> None:
        self._executions = client.executions

    async def start_one(self) -> float:
        """Start one; when that began, by the machine's monotonic clock."""
        begin = time.monotonic()
        await self._executions.start("one", OWNER, VALUE)
        return begin

    async def start_listening(self, messages: int) -> str:
        """Start one that takes messages; its id."""
        return await self._executions.start("listen", OWNER, messages)

    async def send_one(self, execution_id: str) -> float:
        """Send it one; when that began."""
        begin = time.monotonic()
        await self._executions.send(execution_id, "line", VALUE, OWNER)
        return begin


@asynccontextmanager
async def caller(conninfo: str) -> AsyncIterator[Caller]:
    """A process that starts and sends.

    Parameters:
        conninfo: the service's connection string.
    """
    async with AsyncUnderseal(conninfo, keys=MemoryKeyRing.with_all(), hint=True) as client:
        yield Caller(client)


def measure_idle(
    server: Server, *, amount: int, rounds: int, seconds: float, tell: Callable[[str], None]
) -> dict[str, float]:
    """Measure start to output in one process and through a worker, a send to what it moves, and a worker without work.

    Parameters:
        server: where; a database is made for us and one for the peer.
        amount: flows a round.
        rounds: how many rounds.
        seconds: for how long the worker idles.
        tell: is told how far it is.

    Returns: `flow1.idle_p50_ms` and `flow1.idle_p50.vs_dbos`, `flow1.worker.idle_p50_ms`, `send.idle_p50_ms` (medians,
    milliseconds) and `worker.idle_commits_per_s`.
    """
    make_log_database(server, DBNAME)
    peers = [peer for peer in ("dbos",) if peer in installed()]
    numbers: dict[str, float] = {}
    conninfo = as_service(server, DBNAME)
    with ExitStack() as stack:
        nodes = {"own": stack.enter_context(running_node(driver, conninfo))}
        for peer in peers:
            nodes[peer] = stack.enter_context(running_node(dbos, make_peer_database(server, peer, PEER)))

        def start(side: str) -> float:
            with stopped(node for name, node in nodes.items() if name != side):
                return float(median(nodes[side].ask("idle", amount, PAUSE)) * 1e3)

        for side in nodes:
            start(side)
        figures = take_turns(list(nodes), rounds, start, telling(tell, "an idle start"))
        numbers["flow1.idle_p50_ms"] = median(figures["own"])
        for peer in peers:
            numbers[f"flow1.idle_p50.{peer}_ms"] = median(figures[peer])
            numbers[f"flow1.idle_p50.vs_{peer}"] = ratio(figures, "own", peer)
            tell("an idle send")
            numbers[f"send.idle_p50.{peer}_ms"] = median(nodes[peer].ask("send", amount, PAUSE)) * 1e3
    with running_node(worker, conninfo) as claiming, running_node(caller, conninfo) as starting:
        tell("an idle start through a worker")
        numbers["flow1.worker.idle_p50_ms"] = median(_through(claiming, starting, amount)) * 1e3
        tell("an idle send through a worker")
        numbers["send.idle_p50_ms"] = median(_sends(claiming, starting, amount)) * 1e3
        tell("an idle worker")
        numbers["worker.idle_commits_per_s"] = _idle_commits(server, seconds)
    return numbers


def _through(claiming: Node, starting: Node, amount: int) -> list[float]:
    """Seconds from a start in one process to the end that the other has recorded."""
    times = []
    for _ in range(FIRST + amount):
        time.sleep(PAUSE)
        before = claiming.ask("completed")
        begin = starting.ask("start_one")
        times.append(claiming.ask("next_end", before) - begin)
    return times[FIRST:]


def _sends(claiming: Node, starting: Node, amount: int) -> list[float]:
    """Seconds from a send in one process to the flow that goes on in the other."""
    execution_id = starting.ask("start_listening", FIRST + amount)
    times = []
    for place in range(FIRST + amount):
        time.sleep(5 * PAUSE)
        begin = starting.ask("send_one", execution_id)
        times.append(claiming.ask("heard", place) - begin)
    return times[FIRST:]


def _idle_commits(server: Server, seconds: float) -> float:
    """Commits a second of a worker that finds nothing. Its backend tells of them once a second."""
    query = "select xact_commit from pg_stat_database where datname = %s"
    with psycopg.connect(server.conninfo(), autocommit=True) as admin:
        admin.execute("set stats_fetch_consistency = none")

        def commits() -> int:
            row = admin.execute(query, [DBNAME]).fetchone()
            assert row is not None
            return int(row[0])

        time.sleep(min(5.0, seconds))
        before = commits()
        time.sleep(seconds)
        return (commits() - before) / seconds
