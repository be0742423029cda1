"""Connections of a worker's own: for calls that come often, and are made again when one fails."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from underseal.foundation.sources import AsyncPoolSource
from underseal.foundation.steps import Steps, drive_async

if TYPE_CHECKING:
    from underseal.held.async_client import AsyncUnderseal
    from underseal.held.client import Underseal

_MOST: Final = 8


async def _nothing() -> None:
    return None


@dataclass(frozen=True, slots=True)
class Line:
    """How a worker calls the database.

    Attributes:
        perform: carries steps out that call no code of the host's.
        close: closes what was opened for it.
    """

    perform: Callable[[Steps[Any]], Awaitable[Any]]
    close: Callable[[], Awaitable[None]]


def line_of(client: Underseal | AsyncUnderseal, most: int = _MOST) -> Line:
    """A line beside a client: async connections of its own, where the client has a conninfo; else the client's pool.

    Parameters:
        client: sync or async.
        most: connections at once.
    """
    place = client._source.place
    if not client._source.mine or place is None:
        return Line(client._perform, _nothing)
    conninfo, more = place
    source = AsyncPoolSource(
        conninfo, max_size=most, prepare_threshold=more.get("prepare_threshold"), check=False
    )

    async def perform(steps: Steps[Any]) -> Any:
        return await drive_async(source, steps)

    return Line(perform, source.close)
