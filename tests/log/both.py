"""The two kinds of clients behind one face, so that a test is written once and run over both."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from underseal import AsyncExecutionDriver, AsyncExecutions, ExecutionDriver, Executions


class Blocking:
    """An async object whose methods are called as if they were sync, on one loop.

    Parameters:
        runner: the loop.
        inner: the object.
    """

    def __init__(self, runner: asyncio.Runner, inner: Any) -> None:
        self._runner = runner
        self._inner = inner

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._inner, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            async def awaited() -> Any:
                answer = method(*args, **kwargs)
                return await answer if inspect.isawaitable(answer) else answer

            answer = self._runner.run(awaited())
            return Blocking(self._runner, answer) if hasattr(answer, "__anext__") else answer

        return call

    def __iter__(self) -> Iterator[Any]:
        inner: AsyncIterator[Any] = self._inner
        while True:
            try:
                yield self._runner.run(_next(inner))
            except StopAsyncIteration:
                return


async def _next(inner: AsyncIterator[Any]) -> Any:
    return await anext(inner)


class Clients:
    """A caller's client and a driver's, over one kind of connections.

    Parameters:
        conninfo: where, and as whom.
        asynchronous: over which kind.
    """

    def __init__(self, conninfo: str, asynchronous: bool) -> None:
        self._runner = asyncio.Runner()
        self.executions: Any
        self.driver: Any
        if asynchronous:
            self._runner.run(self._open(conninfo))
        else:
            self.executions, self.driver = Executions(conninfo), ExecutionDriver(conninfo)

    async def _open(self, conninfo: str) -> None:
        self.executions = Blocking(self._runner, AsyncExecutions(conninfo))
        self.driver = Blocking(self._runner, AsyncExecutionDriver(conninfo))

    def close(self) -> None:
        """Close both."""
        self.executions.close()
        self.driver.close()
        self._runner.close()
