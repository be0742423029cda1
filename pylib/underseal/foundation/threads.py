"""Calling async code from sync code and the other way round."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

T = TypeVar("T")


class OneThread:
    """Marks a loop on which plain functions run where they are called: a simulation's, whose order is its own."""


async def in_thread(function: Callable[..., T], *args: Any) -> T:
    """Run a plain function in a daemon thread of its own, in a copy of this context.

    Not `asyncio.to_thread`: its pool is joined when the loop closes, so one call that never
    returns would keep a process alive past the end of its grace.

    Parameters:
        function: what to call.
        args: its arguments.
    """
    loop = asyncio.get_running_loop()
    context = contextvars.copy_context()
    if isinstance(loop, OneThread):
        return context.run(function, *args)
    future: asyncio.Future[T] = loop.create_future()

    def settle(value: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(value)  # type: ignore[arg-type]
        elif isinstance(error, StopIteration):
            future.set_exception(RuntimeError("the function raised StopIteration"))
        else:
            future.set_exception(error)

    def work() -> None:
        value, failure = None, None
        try:
            value = context.run(function, *args)
        except BaseException as error:  # noqa: BLE001 -- handed to the waiting task
            failure = error
        try:
            loop.call_soon_threadsafe(settle, value, failure)
        except RuntimeError:
            # The loop is closed: whoever waited has gone, and there is nobody to tell.
            return

    threading.Thread(
        target=work, name=f"underseal-{getattr(function, '__name__', 'call')}", daemon=True
    ).start()
    return await future


def await_here(awaitable: Awaitable[T]) -> T:
    """Run an awaitable to its end from sync code, also where this thread has a running loop.

    Parameters:
        awaitable: what to wait for.
    """

    async def waiting() -> T:
        return await awaitable

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(waiting())
    context = contextvars.copy_context()
    box: list[T] = []
    failures: list[BaseException] = []

    def work() -> None:
        try:
            box.append(context.run(asyncio.run, waiting()))
        except BaseException as error:  # noqa: BLE001 -- handed to the waiting task
            failures.append(error)

    thread = threading.Thread(target=work, name="underseal-await", daemon=True)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
    return box[0]
