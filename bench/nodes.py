"""Processes that are asked over a pipe: a runtime of flows each, ours or a peer's, with an event loop of its own."""

from __future__ import annotations

import asyncio
import inspect
import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from underseal.worker.collector import calm_collector

Make = Callable[..., AbstractAsyncContextManager[Any]]
"""Makes what answers: a function of a module, since the process imports it. Its plain methods run in a thread."""


@dataclass(frozen=True)
class Done:
    """What a process did in a while.

    Parameters:
        amount: how much.
        seconds: in how long.
        cpu: seconds of processor time that the process took for it, or for all of what it did.
        all: how much the process did in all, if it did more before or afterwards; 0 if not.
    """

    amount: int
    seconds: float
    cpu: float
    all: int = 0

    @property
    def rate(self) -> float:
        """How much a second."""
        return self.amount / self.seconds

    def each(self, seconds: float) -> float:
        """What each of all took of so many seconds."""
        return seconds / max(1, self.all or self.amount)


async def _answer(make: Make, arguments: tuple[Any, ...], pipe: Connection) -> None:
    async with make(*arguments) as answers:
        pipe.send((True, None))
        while (asked := await asyncio.to_thread(pipe.recv)) is not None:
            name, values = asked
            try:
                method = getattr(answers, name)
                waits = inspect.iscoroutinefunction(method)
                pipe.send((True, await (method(*values) if waits else asyncio.to_thread(method, *values))))
            except Exception:  # noqa: BLE001 -- whoever asked is told
                pipe.send((False, traceback.format_exc()))
    pipe.send((True, None))


def _serve(make: Make, arguments: tuple[Any, ...], pipe: Connection) -> None:
    calm_collector()  # as `underseal worker` does; for peers as for us
    asyncio.run(_answer(make, arguments, pipe))


@dataclass
class Node:
    """A running process.

    Attributes:
        pipe: how it is asked.
        pid: its number.
    """

    pipe: Connection
    pid: int

    def ask(self, name: str, *values: Any) -> Any:
        """Have a method called, and wait for what it returns.

        Errors:
            RuntimeError: it raised, or the process has ended.
        """
        self.tell(name, *values)
        return self.said()

    def tell(self, name: str, *values: Any) -> None:
        """Have a method called; `said` waits for what it returns."""
        self.pipe.send((name, values))

    def said(self) -> Any:
        """What the method that was called last returned.

        Errors:
            RuntimeError: it raised, or the process has ended.
        """
        try:
            went, answer = self.pipe.recv()
        except EOFError as end:
            raise RuntimeError(
                "expected a process's answer, found that it ended: what it printed says why"
            ) from end
        if not went:
            raise RuntimeError(f"expected an answer, found an error in the process:\n{answer}")
        return answer


@contextmanager
def stopped(nodes: Iterable[Node]) -> Iterator[None]:
    """While these stand still: what polls would take the processors from whoever is measured.

    Parameters:
        nodes: processes that are not asked meanwhile.
    """
    still = list(nodes)
    for node in still:
        os.kill(node.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for node in still:
            os.kill(node.pid, signal.SIGCONT)


@contextmanager
def running_node(make: Make, *arguments: Any) -> Iterator[Node]:
    """Start a process, and at the end have it close what it opened.

    Parameters:
        make: makes what answers.
        arguments: are given to it.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(make, arguments, theirs), daemon=True)
    process.start()
    theirs.close()
    assert process.pid is not None
    node = Node(ours, process.pid)
    try:
        node.said()
        yield node
        ours.send(None)
        node.said()
    finally:
        process.join(10)
        process.terminate()
        process.join()
        ours.close()
