"""The event loop that one flow runs on: its only time is the log.

A flow is ordinary asyncio code: `gather`, `TaskGroup`, events and queues work, in an order that depends on nothing but
the order in which its results come. It cannot wait for the outside but through its context: there are no timers and
no files here, and who asks for them is told what to use instead.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context
from typing import Any, NoReturn, TypeVar

from underseal.errors import FlowError

log = logging.getLogger("underseal.flow")

T = TypeVar("T")


class FlowLoop(asyncio.AbstractEventLoop):
    """Runs what is ready, in order, until nothing is."""

    def __init__(self) -> None:
        """Make an idle loop."""
        self._ready: deque[asyncio.Handle] = deque()
        self._tasks: list[asyncio.Task[Any]] = []
        self._closed = False

    def run_until_idle(self) -> None:
        """Run everything that is ready, and what becomes ready by it.

        The loop may be run inside a task of another loop, which is put aside meanwhile.
        """
        outer = asyncio._get_running_loop()
        task = None if outer is None else asyncio.current_task(outer)
        if outer is not None and task is not None:
            asyncio._leave_task(outer, task)
        asyncio._set_running_loop(self)
        try:
            while self._ready:
                handle = self._ready.popleft()
                if not handle.cancelled():
                    # the task that asked to exit has ended with it, and with it its flow, but not this process
                    with suppress(SystemExit):
                        handle._run()
        finally:
            asyncio._set_running_loop(outer)
            if outer is not None and task is not None:
                asyncio._enter_task(outer, task)

    def close(self) -> None:
        """End every task where it stands: its `finally` blocks run, and can await nothing any more."""
        self._closed = True
        self._ready.clear()
        for task in reversed(self._tasks):
            if not task.done():
                task._log_destroy_pending = False
                coro = task.get_coro()
                try:
                    if coro is not None:
                        coro.close()
                except RuntimeError:
                    log.warning("a flow went on after it was told to end; a finally block awaits something")
        self._tasks.clear()
        self._ready.clear()

    # -- what asyncio asks of a loop ---------------------------------------------------------------

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Run it in its turn."""
        handle = asyncio.Handle(callback, args, self, context)
        if not self._closed:
            self._ready.append(handle)
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        """A future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, T], *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[T]:
        """A task of this loop."""
        if self._closed:
            coro.close()
            raise FlowError("expected a running flow, found one that has ended or was put aside")
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        self._tasks.append(task)
        return task

    def get_debug(self) -> bool:
        """Never: it would look at the clock."""
        return False

    def is_running(self) -> bool:
        """It runs whenever anything asks."""
        return True

    def is_closed(self) -> bool:
        """Whether its flow was put aside."""
        return self._closed

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """What nobody waited for is logged quietly: it is in the log of the execution."""
        log.debug("in a flow: %s", context.get("message"))

    # -- what it does not have ---------------------------------------------------------------------

    def time(self) -> NoReturn:
        """Refused: a flow's time is recorded."""
        _refuse("the time of the loop", "await ctx.now(), or ctx.sleep and ctx.select for a timeout")

    def call_later(self, *_: Any, **__: Any) -> NoReturn:  # type: ignore[override]
        """Refused: timers are recorded."""
        _refuse("a timer of asyncio", "ctx.sleep; for a timeout, ctx.select or the timeout of a step")

    def call_at(self, *_: Any, **__: Any) -> NoReturn:  # type: ignore[override]
        """Refused: timers are recorded."""
        self.call_later()

    def call_soon_threadsafe(self, *_: Any, **__: Any) -> NoReturn:  # type: ignore[override]
        """Refused: no thread may move a flow."""
        _refuse("a call from a thread", "a step, whose result is recorded")

    def run_in_executor(self, *_: Any, **__: Any) -> NoReturn:  # type: ignore[override]
        """Refused: what a thread gives is not recorded."""
        _refuse("a thread", "a step: a plain function is run in a thread")


def _refuse(found: str, instead: str) -> NoReturn:
    raise FlowError(f"expected a flow to wait through its context alone, found {found}: use {instead}")
