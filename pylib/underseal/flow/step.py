"""One try of a step, and what a step can know about itself."""

from __future__ import annotations

import asyncio
import inspect
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

from underseal.errors import FlowError
from underseal.flow.operation import StepCall
from underseal.foundation.threads import in_thread

_step: ContextVar[StepInfo | None] = ContextVar("underseal_step", default=None)


@dataclass(frozen=True, slots=True)
class StepInfo:
    """Which step is running.

    Attributes:
        execution_id: of which execution.
        name: its name.
        number: its place among the flow's operations.
        attempt: which try this is, from 1.
    """

    execution_id: str
    name: str
    number: int
    attempt: int

    @property
    def key(self) -> str:
        """The same at every try and after every crash, and of no other step: an idempotency key for other services."""
        return f"{self.execution_id}#{self.number}"


def current_step() -> StepInfo:
    """The step that is running, asked from inside its function.

    Errors:
        FlowError: none is.
    """
    found = _step.get()
    if found is None:
        raise FlowError("expected to be asked inside a step, found none running")
    return found


class Threads:
    """Plain functions of steps, each in a thread of its own, so many at once."""

    def __init__(self, most: int) -> None:
        """Bound them.

        Parameters:
            most: threads at once.
        """
        self._free: Final = asyncio.Semaphore(most)

    async def call(self, function: Any, args: tuple[Any, ...]) -> Any:
        """Call it in a thread, and await what it returns if that can be awaited."""
        async with self._free:
            result = await in_thread(function, *args)
        return await result if inspect.isawaitable(result) else result


async def attempt(call: StepCall, info: StepInfo, threads: Threads) -> Any:
    """One try.

    Parameters:
        call: what is called.
        info: what it may know.
        threads: where plain functions run.

    Errors:
        TimeoutError: it took longer than one try may take; whatever else the function raises.
    """
    _step.set(info)  # this task's own context, which the thread copies
    if call.timeout is None:
        return await _called(call, threads)
    seconds = call.timeout.total_seconds()
    try:
        async with asyncio.timeout(seconds) as limit:
            return await _called(call, threads)
    except TimeoutError:
        if limit.expired():
            raise TimeoutError(f"expected a try of at most {seconds:g} s, found a longer one") from None
        raise


async def _called(call: StepCall, threads: Threads) -> Any:
    if inspect.iscoroutinefunction(call.function):
        return await call.function(*call.args)
    return await threads.call(call.function, call.args)
