"""A runtime of flows over a client."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from underseal.flow.gateway import Gateway
from underseal.flow.runtime import FlowRuntime, Hint, Limits
from underseal.held.core import default_worker_name
from underseal.seal.entropy import random_bytes
from underseal.worker.connections import line_of
from underseal.worker.holds import ClientHolds

if TYPE_CHECKING:
    from underseal.held.async_client import AsyncUnderseal
    from underseal.held.client import Underseal

_SHORTEST: Final = timedelta(seconds=1)
_LONGEST: Final = timedelta(hours=1)


def life_name(name: str | None) -> str:
    """A name that nobody else has, and no earlier life either: a claim says whose it is by nothing else.

    Parameters:
        name: what the worker is called, if it is called anything.
    """
    return default_worker_name() if name is None else f"{name}:{random_bytes(4).hex()}"


def demand_times(lease: timedelta, grace: timedelta) -> None:
    """Refuse times that every look would be refused for.

    Parameters:
        lease: how long a claim is to hold.
        grace: how long what runs may take to end.

    Errors:
        ValueError: one is no timedelta, or out of range.
    """
    given: tuple[object, object] = (lease, grace)
    if not all(isinstance(one, timedelta) for one in given):
        raise ValueError(
            "expected lease and grace as timedelta, found another type; e.g. timedelta(seconds=30)"
        )
    if not _SHORTEST <= lease <= _LONGEST:
        raise ValueError("expected a lease of 1 second to 1 hour, found another")
    if grace < timedelta(0):
        raise ValueError("expected a grace of 0 or more, found a negative one")


def runtime_of(
    client: Underseal | AsyncUnderseal,
    *,
    limits: Limits | None,
    lease: timedelta,
    idle_poll_every: timedelta,
    claims: bool = True,
    grace: timedelta,
    hint: Hint | None = None,
) -> FlowRuntime:
    """A runtime for the flows that a client serves.

    Parameters:
        client: its connections, its keys and its flows.
        limits: how much at once.
        lease: how long a claim holds, 1 second to 1 hour.
        idle_poll_every: the longest wait between two looks while there is nothing.
        claims: whether it claims what is due.
        grace: how long steps may take to end.
        hint: as `FlowRuntime` has it.

    Errors:
        ValueError: lease or grace are out of range.
    """
    demand_times(lease, grace)
    line = line_of(client)
    return FlowRuntime(
        Gateway(line.perform, life_name(client._worker_name), lease),
        client._flows,
        holds=ClientHolds(client),
        limits=limits,
        idle_poll_every=idle_poll_every,
        claims=claims,
        grace=grace,
        hint=hint,
        close=line.close,
    )
