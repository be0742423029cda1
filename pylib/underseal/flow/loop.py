"""The event loop that one flow runs on: its only time is the log.

A flow is ordinary asyncio code: `gather`, `TaskGroup`, events and queues work, in an order that depends on nothing but
the order in which its results come. It cannot wait for the outside but through its context: there are no timers and
no files here, and who asks for them is told what to use instead.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from contextvars import Context
from itertools import count
from typing import Any, Final, NoReturn, TypeVar

from underseal.errors import FlowError

log = logging.getLogger("underseal.flow")

T = TypeVar("T")

_MOST_AWAITS: Final = 100
_MOST_TURNS: Final = 1_000_000
"""Callbacks between two results, from which on a flow goes round and will not wait for anything. About a second's."""
_NUMBERS: Final = 40
"""Bits of a hash that are the number within a flow, and alone decide the order of a set. Above them is the loop's, or
the first tasks of all flows would meet in asyncio's set of all tasks."""
_LOOPS: Final = (1 << 20) - 1
_loops: Final = count()


class _Future(asyncio.Future[Any]):
    """A future whose place in a set follows from its number, so that a set is gone through in the same order again."""

    def __init__(self, loop: FlowLoop, number: int) -> None:
        self._number = number
        self._of = loop
        super().__init__(loop=loop)

    def cancel(self, msg: Any | None = None) -> bool:
        given_up = super().cancel(msg)
        if given_up:
            self._of.given_up = True
        return given_up

    def __hash__(self) -> int:
        return self._number

    __eq__ = object.__eq__


class _Task(asyncio.Task[Any]):
    """The same for a task: a TaskGroup keeps its tasks in a set, and cancels them in the order of that."""

    def __init__(
        self,
        coro: Coroutine[Any, Any, Any],
        loop: FlowLoop,
        name: str | None,
        context: Context | None,
        number: int,
    ) -> None:
        self._number = number
        super().__init__(coro, loop=loop, name=name, context=context)

    def __hash__(self) -> int:
        return self._number

    __eq__ = object.__eq__


class FlowLoop(asyncio.AbstractEventLoop):
    """Runs what is ready, in order, until nothing is.

    Attributes:
        given_up: whether a future was cancelled since somebody set it to false.
    """

    def __init__(self) -> None:
        """Make an idle loop."""
        self._ready: deque[asyncio.Handle] = deque()
        self._tasks: list[asyncio.Task[Any]] = []
        self._count = (next(_loops) & _LOOPS) << _NUMBERS
        self._closed = False
        self._busy = False
        self.given_up = False

    def run_until_idle(self) -> bool:
        """Run everything that is ready, and what becomes ready by it.

        The loop may be run inside a task of another loop, which is put aside meanwhile.

        Returns: whether it came to an end: not where a flow goes round, and would hold up all others for ever.
        """
        turns = 0
        with self._running():
            while self._ready:
                if turns == _MOST_TURNS:
                    return False
                turns += 1
                handle = self._ready.popleft()
                if not handle.cancelled():
                    # the task that asked to exit has ended with it, and with it its flow, but not this process
                    with suppress(SystemExit):
                        handle._run()
        return True

    @contextmanager
    def _running(self) -> Iterator[None]:
        outer = asyncio._get_running_loop()
        task = None if outer is None else asyncio.current_task(outer)
        if outer is not None and task is not None:
            asyncio._leave_task(outer, task)
        asyncio._set_running_loop(self)
        # or what a generator does that was left open would be done on the loop outside, whenever that comes to it
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(firstiter=None, finalizer=self._left_open)
        self._busy = True
        try:
            yield
        finally:
            self._busy = False
            sys.set_asyncgen_hooks(*hooks)
            asyncio._set_running_loop(outer)
            if outer is not None and task is not None:
                asyncio._enter_task(outer, task)

    def close(self) -> None:
        """End every task where it stands: its `finally` blocks run, and can await nothing any more."""
        self._closed = True
        self._ready.clear()
        left = [task for task in reversed(self._tasks) if not task.done()]
        if left:
            with self._running():  # or a task that is made in a `finally` block would run on the loop outside
                for task in left:
                    task._log_destroy_pending = False
                    _end(task.get_coro())
        self._tasks.clear()
        self._ready.clear()

    def _left_open(self, generator: AsyncGenerator[Any, Any]) -> None:
        """Close a generator that nobody goes through any more, in the flow's own order."""
        if self._busy and not self._closed:
            self.create_task(generator.aclose())
            return
        # nobody can say when the collector comes to it: nothing of the flow may depend on that
        closed, self._closed = self._closed, True
        try:
            generator.aclose().send(None)
        except StopIteration:
            pass
        except BaseException as error:  # noqa: BLE001 -- what a flow raises as it is put aside is nobody's affair
            log.debug("as a flow was put aside it raised %s", type(error).__name__)
        finally:
            self._closed = closed

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
        self._count += 1
        return _Future(self, self._count)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, T], *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[T]:
        """A task of this loop."""
        if self._closed:
            coro.close()
            raise FlowError("expected a running flow, found one that has ended or was put aside")
        self._count += 1
        task = _Task(coro, self, name, context, self._count)
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


def _outside(*_: Any, **__: Any) -> NoReturn:
    """Refused: what comes from outside is not recorded."""
    _refuse("a socket, a pipe or a process", "a step, whose result is recorded")


for _name in (
    "getaddrinfo", "getnameinfo", "create_connection", "create_server", "create_unix_connection", "create_unix_server",
    "create_datagram_endpoint", "connect_accepted_socket", "start_tls", "sendfile", "connect_read_pipe",
    "connect_write_pipe", "subprocess_shell", "subprocess_exec", "add_reader", "remove_reader", "add_writer",
    "remove_writer", "sock_recv", "sock_recv_into", "sock_recvfrom", "sock_recvfrom_into", "sock_sendall",
    "sock_sendto", "sock_connect", "sock_accept", "sock_sendfile", "add_signal_handler", "remove_signal_handler",
):  # fmt: skip
    setattr(FlowLoop, _name, _outside)


def _end(coro: Any) -> None:
    for _ in range(_MOST_AWAITS):
        try:
            coro.close()
        except RuntimeError:
            # it awaits something in a `finally` block, as a TaskGroup does for its tasks
            continue
        except BaseException as error:  # noqa: BLE001 -- what a flow raises as it is put aside is nobody's affair
            log.debug("as a flow was put aside it raised %s", type(error).__name__)
        return
    log.warning("a flow went on after it was put aside: a finally block goes on awaiting something")


def explained(error: BaseException) -> BaseException:
    """An error of a flow, where asyncio raised it instead of this loop, in words that tell what to do.

    Parameters:
        error: what the flow raised.
    """
    if isinstance(error, RuntimeError) and "attached to a different loop" in str(error):
        return _refusal("something that another event loop has to move", "a step, whose result is recorded")
    return error


def _refusal(found: str, instead: str) -> FlowError:
    return FlowError(f"expected a flow to wait through its context alone, found {found}: use {instead}")


def _refuse(found: str, instead: str) -> NoReturn:
    raise _refusal(found, instead)
