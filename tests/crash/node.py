"""`python -m tests.crash.node`: processes that drive flows, forked from one that has everything imported.

It reads one JSON object a line, forks a process for each, and says on its output what becomes of them. A process ends
itself with SIGKILL where its order says so.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import select
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, cast
from uuid import UUID

from psycopg.conninfo import make_conninfo

from tests.crash import flows, storm
from tests.crash.witness import Effects
from underseal import AsyncUnderseal, FileKeyRing, Principal
from underseal.errors import ExecutionAlreadyExistsError
from underseal.flow.gateway import Gateway
from underseal.flow.runtime import FlowRuntime, Limits
from underseal.worker.holds import ClientHolds

CALLS: Final = frozenset(
    {"write", "claim", "renew", "release", "put_off", "deliver", "read", "head", "end", "refence", "recover", "now",
     "report_divergence", "await_operation", "cancel", "expire", "hold", "cancel_hold"}
)  # fmt: skip

Order = dict[str, Any]


def say(**what: Any) -> None:
    """One line, at once: whoever is killed next has said it."""
    os.write(1, json.dumps(what).encode() + b"\n")


class Boundaries:
    """Counts the calls of each kind, and ends the process right before or right after one of them.

    A look for due work that found nothing does not count: how many there are is a matter of time.
    """

    def __init__(self, order: Order) -> None:
        self._node = order["node"]
        self._kill = order.get("kill")
        self._tell = order.get("tell", False)
        self._counts: Counter[str] = Counter()

    async def cross(self, verb: str, act: Callable[[], Any], what: Any = None) -> Any:
        """Make a call."""
        if verb == "claim":
            answer = await act()
            if answer:
                self._at(verb, "after", [one.execution_id for one in answer])
            return answer
        self._counts[verb] += 1
        number = self._counts[verb]
        self._at(verb, "before", what, number)
        answer = await act()
        self._at(verb, "after", what, number)
        return answer

    def _at(self, verb: str, side: str, what: Any, number: int | None = None) -> None:
        if number is None:
            self._counts[verb] += 1
            number = self._counts[verb]
        here = {"verb": verb, "number": number, "side": side}
        if self._tell:
            say(node=self._node, call=here, what=what)
        if self._kill is not None and all(self._kill[key] == here[key] for key in here):
            say(node=self._node, killed=here, what=what)
            os.kill(os.getpid(), signal.SIGKILL)


class Crossing:
    """A gateway whose every call crosses the boundaries."""

    def __init__(self, gateway: Gateway, boundaries: Boundaries) -> None:
        self._gateway = gateway
        self._boundaries = boundaries

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._gateway, name)
        if name not in CALLS:
            return member

        async def call(*args: Any) -> Any:
            what = [json.loads(item)["verb"] for item in args[0]] if name == "write" else None
            return await self._boundaries.cross(name, lambda: member(*args), what)

        return call


class CrossingHolds:
    """A client's holds, whose every call crosses the boundaries."""

    def __init__(self, holds: ClientHolds, boundaries: Boundaries) -> None:
        self._holds = holds
        self._boundaries = boundaries

    async def request(self, kind: str, principal: str, params: Any, operation_id: UUID) -> UUID:
        """Request an operation."""
        held: UUID = await self._boundaries.cross(
            "hold", lambda: self._holds.request(kind, principal, params, operation_id)
        )
        return held

    async def cancel(self, operation_id: UUID, principal: str) -> None:
        """Take one back."""
        await self._boundaries.cross("cancel_hold", lambda: self._holds.cancel(operation_id, principal))


async def work(order: Order) -> None:
    """Drive until killed."""
    conninfo = make_conninfo(order["conninfo"], application_name=order["node"])
    client = AsyncUnderseal(
        conninfo, keys=FileKeyRing(Path(order["keys"])), principals=flows.principal,
        max_connections=order.get("connections", 4),
    )  # fmt: skip

    @client.gate(flows.Pay())
    async def pay(who: Principal, params: flows.Payment) -> None:
        raise AssertionError("who approves runs it")

    effects = Effects(conninfo, order["node"])
    known = storm.make(effects) if "storm" in order else flows.make(order["tag"], effects)
    served = order.get("serve")  # a look for due work costs by the flows that are served
    client.serve(*(one for one in known if served is None or one.name.partition(".")[0] in served))
    boundaries = Boundaries(order)
    gateway = Gateway(client._perform, order["node"], timedelta(seconds=order.get("lease", 3600)))
    runtime = FlowRuntime(
        cast("Gateway", Crossing(gateway, boundaries)),
        client._flows,
        holds=CrossingHolds(ClientHolds(client), boundaries),
        limits=Limits(executions=order.get("executions", 1000), recoveries=order.get("recoveries", 3)),
        poll_every=timedelta(milliseconds=order.get("poll", 5)),
        idle_poll_every=timedelta(milliseconds=order.get("idle", 40)),
    )
    serving = asyncio.create_task(runtime.serve())
    say(node=order["node"], up=True)
    if order.get("start"):
        with suppress(ExecutionAlreadyExistsError):
            await runtime.start(order["start"], flows.OWNER, order.get("value"), execution_id=order["chain"])
    await serving


def _child(order: Order) -> None:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.close(0)
    if "CRASH_LOG" in os.environ:
        form = f"%(relativeCreated)d {order['node']} %(message)s"
        logging.basicConfig(filename=os.environ["CRASH_LOG"], level=logging.INFO, format=form)
    status = 1
    try:
        asyncio.run(storm.direct(order) if "direct" in order else work(order))
        status = 0
    except BaseException as error:  # noqa: BLE001 -- this is a forked child, in nobody's stack
        say(node=order["node"], broken=f"{type(error).__name__}: {error}")
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def _reap(nodes: dict[int, str]) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        say(node=nodes.pop(pid), ended=os.waitstatus_to_exitcode(status))


def serve() -> None:
    """Fork until the input ends; then nothing that was forked goes on."""
    awake, waker = os.pipe()
    os.set_blocking(awake, False)
    os.set_blocking(waker, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    nodes: dict[int, str] = {}
    pending = b""
    say(ready=True)
    while True:
        readable, _, _ = select.select([0, awake], [], [])
        if awake in readable:
            with suppress(BlockingIOError):
                os.read(awake, 4096)
            _reap(nodes)
        if 0 not in readable:
            continue
        data = os.read(0, 65536)
        if not data:
            break
        pending += data
        *lines, pending = pending.split(b"\n")
        for line in lines:
            order = json.loads(line)
            pid = os.fork()
            if pid == 0:
                _child(order)
            nodes[pid] = order["node"]
            say(node=order["node"], pid=pid)
    for pid in nodes:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    serve()
