"""A runtime of flows over a client."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from underseal.flow.gateway import Gateway
from underseal.flow.runtime import FlowRuntime, Hint, Limits
from underseal.held.core import default_worker_name
from underseal.seal.entropy import random_bytes
from underseal.worker.connections import line_of
from underseal.worker.holds import ClientHolds

if TYPE_CHECKING:
    from underseal.held.async_client import AsyncUnderseal
    from underseal.held.client import Underseal


def life_name(name: str | None) -> str:
    """A name that nobody else has, and no earlier life either: a claim says whose it is by nothing else.

    Parameters:
        name: what the worker is called, if it is called anything.
    """
    return default_worker_name() if name is None else f"{name}:{random_bytes(4).hex()}"


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
    """
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
