"""Waiting for a condition instead of for a time."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import Event, Thread
from time import monotonic
from typing import Any, TypeVar

import psycopg

T = TypeVar("T")


def wait_until(condition: Callable[[], T], timeout: float = 10) -> T:
    """Ask until the answer is true.

    Parameters:
        condition: asked every 10 ms.
        timeout: seconds.

    Returns: the first true answer.

    Errors:
        TimeoutError: it never was.
    """
    deadline = monotonic() + timeout
    pause = Event()
    while not (answer := condition()):
        if monotonic() > deadline:
            raise TimeoutError(f"waited {timeout} s for {condition}, which last said {answer!r}")
        pause.wait(0.01)
    return answer


def wait_blocked(admin: psycopg.Connection[Any], pid: int, timeout: float = 10) -> None:
    """Wait until a session waits for a lock.

    Parameters:
        admin: a superuser's connection in autocommit mode.
        pid: `connection.info.backend_pid` of the session.
        timeout: seconds.

    Errors:
        TimeoutError: it never waited.
    """
    query = "select 1 from pg_locks where pid = %s and not granted"
    wait_until(lambda: admin.execute(query, [pid]).fetchone() is not None, timeout)


def in_background(work: Callable[..., T], *args: Any, **kwargs: Any) -> Future[T]:
    """Run something in a thread of its own.

    Parameters:
        work, args, kwargs: what to call.

    Returns: a future; `.result(timeout=…)` gives the value or raises what it raised.
    """
    future: Future[T] = Future()

    def body() -> None:
        try:
            future.set_result(work(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - handed to whoever waits
            future.set_exception(error)

    Thread(target=body, daemon=True).start()
    return future
