"""Other engines of durable workflows on the same server, each in the fastest way its documentation shows, in one Python
process: from the `bench` extra, where it is installed."""

from __future__ import annotations

import importlib.util
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final
from urllib.parse import quote

import psycopg
from psycopg import sql

from bench.flows_setting import STEPS, VALUE
from bench.nodes import Done
from underseal.foundation.server import Server

MODULES: Final = {"absurd": ("absurd_sdk", "absurdctl"), "dbos": ("dbos",)}
QUEUE: Final = "bench"
WORKERS: Final = 16
"""Absurd's workers in the one process: of what was tried (one to sixteen of them, sync and async, with one task or many
at once each, polling every 1 to 50 ms) these ended most tasks a second."""
SPAWNERS: Final = 4
_POLL: Final = 0.01


def installed() -> list[str]:
    """The peers that can be measured."""
    return [
        name
        for name, modules in MODULES.items()
        if all(importlib.util.find_spec(module) is not None for module in modules)
    ]


def make_peer_database(server: Server, name: str, dbname: str) -> str:
    """Make a database for a peer.

    Parameters:
        server: where.
        name: of the peer.
        dbname: the database's name; must not exist.

    Returns: what the peer connects with.
    """
    with psycopg.connect(server.conninfo(), autocommit=True) as admin:
        admin.execute(sql.SQL("create database {}").format(sql.Identifier(dbname)))
    if name == "dbos":
        return f"postgresql://{server.user}@/{dbname}?host={quote(server.host, safe='')}&port={server.port}"
    import absurdctl

    with psycopg.connect(server.conninfo(dbname), autocommit=True) as admin:
        admin.execute(absurdctl.BUNDLED_SCHEMA_SQL)
        admin.execute("select absurd.create_queue(%s)", [QUEUE])
    return server.conninfo(dbname)


class AbsurdPeer:
    """Workers in threads that are fed as fast as they end tasks."""

    def __init__(self, conninfo: str) -> None:
        self._conninfo = conninfo

    def rate(self, name: str, at_once: int, seconds: float) -> Done:
        """Tasks in a while, so many of them spawned and not ended at a time."""
        steps = {"one": 1, "ten": STEPS}[name]
        count = _Count(at_once)
        cpu = time.process_time()

        def work(value: Any, ctx: Any) -> Any:
            for number in range(steps):
                ctx.step(f"step{number}", lambda: VALUE)
            count.ended()
            return value

        with self._fed(name, work, count), self._workers(name, work, max(1, at_once // WORKERS)):
            # what an earlier round left behind, and the first claims
            time.sleep(min(0.5, seconds))
            done = count.during(seconds)
        return Done(done.amount, done.seconds, time.process_time() - cpu, count.done)

    @contextmanager
    def _workers(self, name: str, work: Callable[..., Any], batch: int) -> Iterator[None]:
        apps = [self._app(name, work) for _ in range(WORKERS)]
        threads = [
            threading.Thread(
                target=app.start_worker,
                kwargs={"worker_id": f"bench{place}", "batch_size": batch, "poll_interval": _POLL},
                daemon=True,
            )
            for place, app in enumerate(apps)
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            for app in apps:
                app.stop_worker()
            for thread in threads:
                thread.join()
            for app in apps:
                app.close()

    @contextmanager
    def _fed(self, name: str, work: Callable[..., Any], count: _Count) -> Iterator[None]:
        stop = threading.Event()

        def spawn() -> None:
            app = self._app(name, work)
            while not stop.is_set():
                if count.room():
                    app.spawn(name, VALUE)
            app.close()

        threads = [threading.Thread(target=spawn, daemon=True) for _ in range(SPAWNERS)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            stop.set()
            for thread in threads:
                thread.join()

    def _app(self, name: str, work: Callable[..., Any]) -> Any:
        from absurd_sdk import Absurd

        app = Absurd(self._conninfo, queue_name=QUEUE)
        app.register_task(name)(work)
        return app


class _Count:
    """Counts what ended, and lets no more than so much be under way."""

    def __init__(self, at_once: int) -> None:
        self._free = threading.Semaphore(at_once)
        self._lock = threading.Lock()
        self.done = 0

    def room(self) -> bool:
        """Whether one more may be begun; waits a little for it."""
        return self._free.acquire(timeout=0.05)

    def ended(self) -> None:
        """One has ended."""
        with self._lock:
            self.done += 1
        self._free.release()

    def during(self, seconds: float) -> Done:
        """What ends in a while."""
        before, begin = self.done, time.monotonic()
        time.sleep(seconds)
        return Done(self.done - before, time.monotonic() - begin, 0.0)


@asynccontextmanager
async def absurd(conninfo: str) -> AsyncIterator[AbsurdPeer]:
    """A process with Absurd."""
    yield AbsurdPeer(conninfo)


def _give(value: Any) -> Any:
    return value


class DbosPeer:
    """Workflows that are called, each in a thread."""

    def __init__(self) -> None:
        from dbos import DBOS

        step = DBOS.step()(_give)
        heard: list[float] = []

        def one(value: Any) -> Any:
            return step(value)

        def ten(value: Any) -> Any:
            for number in range(STEPS):
                step(number)
            return value

        def listen(messages: int) -> int:
            for _ in range(messages):
                DBOS.recv("line", timeout_seconds=60)
                heard.append(time.monotonic())
            return messages

        self._heard = heard
        self._dbos = DBOS
        self._flows = {"one": DBOS.workflow()(one), "ten": DBOS.workflow()(ten)}
        self._listen = DBOS.workflow()(listen)

    def rate(self, name: str, at_once: int, seconds: float) -> Done:
        """Workflows in a while."""
        work = self._flows[name]
        begin, cpu = time.monotonic(), time.process_time()

        def go_on(_: int) -> int:
            done = 0
            while time.monotonic() < begin + seconds:
                work(VALUE)
                done += 1
            return done

        with ThreadPoolExecutor(at_once) as pool:
            done = sum(pool.map(go_on, range(at_once)))
        return Done(done, time.monotonic() - begin, time.process_time() - cpu)

    def idle(self, amount: int, pause: float) -> list[float]:
        """Seconds from start to output, of workflows each of which finds everything idle."""
        times = []
        for _ in range(amount):
            time.sleep(pause)
            begin = time.perf_counter()
            self._flows["one"](VALUE)
            times.append(time.perf_counter() - begin)
        return times

    def send(self, amount: int, pause: float) -> list[float]:
        """Seconds from a send until the workflow that waits for it goes on."""
        self._heard.clear()
        handle = self._dbos.start_workflow(self._listen, amount)
        times = []
        for place in range(amount):
            time.sleep(pause)
            begin = time.monotonic()
            self._dbos.send(handle.get_workflow_id(), VALUE, "line")
            while len(self._heard) <= place:
                time.sleep(0.0002)
            times.append(self._heard[place] - begin)
        handle.get_result()
        return times


@asynccontextmanager
async def dbos(url: str) -> AsyncIterator[DbosPeer]:
    """A process with DBOS, launched."""
    from dbos import DBOS

    DBOS(config={"name": "bench", "system_database_url": url, "log_level": "ERROR"})
    peer = DbosPeer()
    DBOS.launch()
    try:
        yield peer
    finally:
        DBOS.destroy()


PEERS: Final = {"absurd": absurd, "dbos": dbos}
