"""Real processes, forked from a warm one, and what they say."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import Any, Self


async def until(condition: Callable[[], Any], seconds: float = 90) -> Any:
    """Ask until the answer is true, and give it.

    Parameters:
        condition: plain or async.
        seconds: for so long.
    """
    async with asyncio.timeout(seconds):
        while True:
            answer = condition()
            if inspect.isawaitable(answer):
                answer = await answer
            if answer:
                return answer
            await asyncio.sleep(0.003)


@dataclass
class Node:
    """One process.

    Attributes:
        name: which is also the name of its sessions.
        pid: its number, once it is known.
        calls: the calls that it said it made.
        killed: at which call it ended itself, if it did.
        exit: how it ended: minus the number of the signal.
    """

    name: str
    pid: int | None = None
    calls: list[dict[str, Any]] = field(default_factory=list)
    killed: dict[str, Any] | None = None
    broken: str | None = None
    exit: int | None = None
    up: bool = False

    def heard(self, line: dict[str, Any]) -> None:
        """Take one line of what was said of it."""
        if "call" in line:
            self.calls.append({**line["call"], "what": line["what"]})
        if "killed" in line:
            self.killed = {**line["killed"], "what": line["what"]}
        self.pid = line.get("pid", self.pid)
        self.up = self.up or "up" in line
        self.broken = line.get("broken", self.broken)
        self.exit = line.get("ended", self.exit)

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, unless it has ended."""
        if self.exit is None and self.pid is not None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    async def gone(self, seconds: float = 90) -> None:
        """Wait for its end."""
        await until(lambda: self.exit is not None, seconds)

    async def kill(self) -> None:
        """Kill it, and wait for its end."""
        await until(lambda: self.pid is not None)
        self.signal(signal.SIGKILL)
        await self.gone()


class Nursery:
    """Forks processes, each by an order that tests/crash/node.py understands."""

    def __init__(self) -> None:
        root = Path(__file__).parents[2]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.node"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=root,
            env={**os.environ, "PYTHONPATH": f"{root / 'pylib'}:{root}"},
        )
        self.nodes: dict[str, Node] = {}
        self._listener = Thread(target=self._listen, daemon=True)
        self._listener.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._listener.join(60)
        self._process.stdout.close()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            said = json.loads(line)
            if "node" in said:
                self.nodes[said["node"]].heard(said)

    def fork(self, name: str, **order: Any) -> Node:
        """Start a process."""
        node = self.nodes[name] = Node(name)
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"node": name, **order}).encode() + b"\n")
        self._process.stdin.flush()
        return node
