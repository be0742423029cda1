"""An event loop whose time is made up: everything happens in an order that follows from what was asked of it.

Several nodes run on it. Each handle belongs to one life of one node, by the context in which it was asked for: so a
node can be killed where it stands, or stand still while the others go on, as a process would.
"""

from __future__ import annotations

import asyncio
import heapq
import sys
import warnings
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from itertools import count
from typing import Any, Final, TypeVar, TypeVarTuple

from underseal.foundation.threads import OneThread
from underseal.testing.simulation.clock import Clock

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_MOST_CLOSES: Final = 100
_MOST_AT_ONCE: Final = 100_000
"""Steps at one instant, after which nobody believes that the time will go on."""


class SimulationStuck(AssertionError):  # noqa: N818 -- what has happened
    """Nothing will ever happen again, or it took too long: that is a finding and not an error of whoever simulates."""


class Life:
    """One life of a node, from its start to its end: what a process would be.

    Attributes:
        name: the node's.
        number: which life of it, from 1.
        clock: the node's.
        gone: whether it was killed, or has ended.
        stalled_until: until when it stands still, in seconds of the simulation; None while it goes.
    """

    def __init__(self, name: str, number: int, clock: Clock) -> None:
        """Prepare it.

        Parameters:
            name: the node's.
            number: which life of it.
            clock: the node's; it outlives this life.
        """
        self.name = name
        self.number = number
        self.clock = clock
        self.gone = False
        self.stalled_until: float | None = None
        self.put_aside: list[asyncio.Handle] = []
        self.timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self.context = copy_context()
        self.context.run(_life.set, self)

    @property
    def title(self) -> str:
        """Node and number of the life."""
        return f"{self.name}#{self.number}"


_life: ContextVar[Life] = ContextVar("underseal_simulated_life")


def current_life() -> Life | None:
    """Whose code is running; None outside all nodes."""
    return _life.get(None)


class _Task(asyncio.Task[Any]):
    """A task that knows whose it is, and whose place in a set follows from its number and not from the memory."""

    number = 0
    life: Life

    def __hash__(self) -> int:
        return self.number

    __eq__ = object.__eq__


class _Future(asyncio.Future[Any]):
    """The same for a future."""

    number = 0
    life: Life

    def __hash__(self) -> int:
        return self.number

    __eq__ = object.__eq__


class SimLoop(asyncio.BaseEventLoop, OneThread):
    """Runs what is ready; when nothing is, lets the time jump to what comes next.

    Attributes:
        now: seconds of the simulation. A node's `loop.time()` is what its own clock shows by then.
    """

    def __init__(self, unheard: Callable[[Life, str], None] = lambda _life, _what: None) -> None:
        """Begin at 0.

        Parameters:
            unheard: is told of an error that nobody waited for, and whose it is.
        """
        super().__init__()
        self.now = 0.0
        self._unheard = unheard
        self.base = Life("-", 0, Clock())
        self._stopping: bool
        self._queue: deque[tuple[Life, asyncio.Handle]] = deque()
        self._lives: list[Life] = [self.base]
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._tasks: list[tuple[Life, asyncio.Task[Any]]] = []
        self._numbers = count(1)
        self._prune_at = 256
        self._since, self._steps = 0.0, 0

    # -- lives -------------------------------------------------------------------------------------

    def begin(self, life: Life, main: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Let a life run."""
        self._lives.append(life)
        return self.create_task(main, context=life.context)

    def kill(self, life: Life) -> None:
        """Nothing of it happens any more: no `finally` block, no reply, no timer."""
        life.gone = True
        life.put_aside.clear()
        life.timers.clear()
        self._lives.remove(life)

    def stall(self, life: Life, seconds: float, resumed: Callable[[], None] = lambda: None) -> None:
        """Let it stand still: its timers do not fire, and what reaches it waits.

        Parameters:
            life: which.
            seconds: of the simulation; of two stalls the longer counts.
            resumed: is called when it goes on.
        """
        life.stalled_until = max(life.stalled_until or 0.0, self.now + seconds)
        self.at(self.now + seconds, lambda: self._resume(life, resumed))

    def _resume(self, life: Life, resumed: Callable[[], None]) -> None:
        if life.gone or life.stalled_until is None or life.stalled_until > self.now:
            return
        life.stalled_until = None
        resumed()
        self._queue.extend((life, handle) for handle in life.put_aside)
        life.put_aside.clear()

    # -- what happens outside the nodes ------------------------------------------------------------

    def at(self, instant: float, act: Callable[[], None]) -> None:
        """Do something at an instant of the simulation, or now if that is over."""
        heapq.heappush(self._events, (max(instant, self.now), next(self._numbers), act))

    def _run_once(self) -> None:
        while self._queue and not self._stopping:
            life, handle = self._queue.popleft()
            if life.gone or handle.cancelled():
                continue
            if life.stalled_until is not None:
                life.put_aside.append(handle)
                continue
            self._step()
            handle._run()
        if not self._stopping:
            self._step()
            self._go_on()

    def _step(self) -> None:
        if self.now > self._since:
            self._since, self._steps = self.now, 0
        self._steps += 1
        if self._steps > _MOST_AT_ONCE:
            raise SimulationStuck(
                f"expected the time to go on after {self.now:.3f} s, found {_MOST_AT_ONCE} steps at once"
            )

    def _go_on(self) -> None:
        soonest = self._soonest_life()
        if soonest is not None and (not self._events or soonest[0] <= self._events[0][0]):
            due, life = soonest
            self.now = max(self.now, due)
            while life.timers and life.clock.when(life.timers[0][0]) <= self.now:
                _, _, handle = heapq.heappop(life.timers)
                self._queue.append((life, handle))
        elif self._events:
            due, _, act = heapq.heappop(self._events)
            self.now = max(self.now, due)
            act()
        else:
            raise SimulationStuck(f"expected something to happen after {self.now:.3f} s, found nothing left")

    def _soonest_life(self) -> tuple[float, Life] | None:
        soonest: tuple[float, Life] | None = None
        for life in self._lives:
            while life.timers and life.timers[0][2].cancelled():
                heapq.heappop(life.timers)
            if life.timers and life.stalled_until is None:
                due = life.clock.when(life.timers[0][0])
                if soonest is None or due < soonest[0]:
                    soonest = due, life
        return soonest

    # -- what asyncio asks of a loop ---------------------------------------------------------------

    def time(self) -> float:
        """What the clock of whoever asks shows."""
        return _life.get(self.base).clock.shows(self.now)

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Run it in its turn, as part of the life that asks for it."""
        handle = asyncio.Handle(callback, args, self, context)
        life = handle._context.get(_life, self.base)  # type: ignore[attr-defined]
        if not life.gone:
            self._queue.append((life, handle))
        return handle

    call_soon_threadsafe = call_soon

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run it when the clock of whoever asks shows this."""
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        life = handle._context.get(_life, self.base)  # type: ignore[attr-defined]
        if not life.gone:
            heapq.heappush(life.timers, (when, next(self._numbers), handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It is passed over when its time comes."""

    def create_future(self) -> asyncio.Future[Any]:
        """A future of this loop."""
        future = _Future(loop=self)
        future.number = next(self._numbers)
        future.life = _life.get(self.base)
        return future

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, T], *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[T]:
        """A task of the life that asks for it. It is kept: a task that nobody refers to must not end by chance."""
        task = _Task(coro, loop=self, name=name, context=context)
        task.number = next(self._numbers)
        task.life = life = (context or copy_context()).get(_life, self.base)
        self._tasks.append((life, task))
        if len(self._tasks) > self._prune_at:
            self.forget_ended()
            self._prune_at = 256 + 2 * len(self._tasks)
        return task

    def forget_ended(self) -> None:
        """Let go of the tasks that have ended: an error of theirs that nobody waited for is told now."""
        self._tasks = [one for one in self._tasks if not one[1].done()]

    def run_in_executor(  # type: ignore[override]
        self,
        executor: Any,  # noqa: ARG002
        func: Callable[..., T],
        *args: Any,
    ) -> asyncio.Future[T]:
        """Call it here: threads would run in an order of their own."""
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 -- handed to whoever awaits
            future.set_exception(error)
        return future

    def add_signal_handler(self, *_: Any) -> None:  # type: ignore[override]
        """No signal reaches a simulated process."""

    def remove_signal_handler(self, *_: Any) -> bool:
        """There is none."""
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """What nobody waited for is a fault of the code that is simulated, unless it is dead."""
        whose = context.get("task") or context.get("future")
        life = getattr(whose, "life", None) or _life.get(self.base)
        if not life.gone:
            error = context.get("exception")
            self._unheard(
                life, str(context["message"]) if error is None else f"{type(error).__name__}: {error}"
            )

    def _write_to_self(self) -> None:
        """Nothing sleeps here that would have to be woken."""

    def _process_events(self, _: Any) -> None:
        """There are no sockets."""

    def close(self) -> None:
        """End what is left where it stands. Its `finally` blocks run now, and reach nothing any more."""
        if self.is_closed():
            return
        self.forget_ended()
        for life, _ in self._tasks:
            life.gone = True
        asyncio._set_running_loop(self)
        try:
            with _unheard_of():
                while self._tasks:  # a `finally` block may begin others
                    _end(*self._tasks.pop())
                self._queue.clear()
                self._events.clear()
        finally:
            asyncio._set_running_loop(None)
        super().close()


@contextmanager
def _unheard_of() -> Iterator[None]:
    """What a `finally` block of the dead would have awaited, or raises where nobody hears it, is nobody's affair."""
    before, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        sys.unraisablehook = before


def _end(life: Life, task: asyncio.Task[Any]) -> None:
    if not task.done():
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        life.context.run(_end_coroutine, task.get_coro())


def _end_coroutine(coro: Any) -> None:
    for _ in range(_MOST_CLOSES):
        try:
            coro.close()
        except RuntimeError:
            continue  # it awaits something in a `finally` block
        except BaseException:  # noqa: BLE001 -- it is dead
            return
        return
