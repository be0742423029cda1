"""Whether this process may still drive what it claimed: until there are leases of their own, the claim says so.

What a driver records is guarded by the fence whatever this says; it keeps *effects* from being started by a driver that
was stalled, or cut off from the database, for longer than its claim holds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from underseal.flow.gateway import Gateway

log = logging.getLogger("underseal.flow")


class Keeper(Protocol):
    """Evidence that a driver lives, and whether it may act."""

    def held(self, execution_id: str, since: float) -> None:
        """It was claimed by a call that was sent at this time of the loop."""

    def dropped(self, execution_id: str) -> None:
        """It parked, ended, was given back or lost."""

    def holds(self, execution_id: str) -> bool:
        """Whether its claim holds at this instant."""

    async def entitled(self, execution_id: str) -> bool:
        """Whether an effect of it may be started now."""

    async def run(self) -> None:
        """Keep what is held, until cancelled."""


class ClaimKeeper:
    """Renews the claims of what is driven here, and says of each whether it holds."""

    def __init__(self, gateway: Gateway, lease: timedelta, lost: Callable[[str], None]) -> None:
        """Prepare it.

        Parameters:
            gateway: renews.
            lease: how long a claim holds.
            lost: is told of a claim that somebody else has now.
        """
        self._gateway = gateway
        self._lease = lease.total_seconds()
        self._lost = lost
        self._until: dict[str, float] = {}
        self._due = asyncio.Event()
        self._renewed = asyncio.Event()

    def held(self, execution_id: str, since: float) -> None:
        """It was claimed by a call that was sent at this time of the loop."""
        self._until[execution_id] = since + self._lease

    def dropped(self, execution_id: str) -> None:
        """It parked, ended, was given back or lost."""
        self._until.pop(execution_id, None)

    def holds(self, execution_id: str) -> bool:
        """Whether its claim holds at this instant."""
        until = self._until.get(execution_id)
        return until is not None and asyncio.get_running_loop().time() < until

    async def entitled(self, execution_id: str) -> bool:
        """Whether an effect of it may be started now; waits for a renewal where the claim may have run out."""
        while execution_id in self._until:
            if self.holds(execution_id):
                return True
            self._renewed.clear()
            self._due.set()
            await self._renewed.wait()
        return False

    async def run(self) -> None:
        """Renew until cancelled: each third of a lease, and when somebody asks."""
        while True:
            # not wait_for, which may swallow a cancellation that comes together with what it waits for
            with suppress(TimeoutError):
                async with asyncio.timeout(self._lease / 3):
                    await self._due.wait()
            self._due.clear()
            if self._until:
                await self._renew()
            self._renewed.set()

    async def _renew(self) -> None:
        since = asyncio.get_running_loop().time()
        asked = dict(self._until)
        try:
            said = await self._gateway.renew(asked)
        except Exception as error:  # noqa: BLE001 -- the next renewal is tried; meanwhile the claims run out
            log.warning("claims could not be renewed (%s), trying again", type(error).__name__)
            await asyncio.sleep(min(1.0, self._lease / 10))
            return
        for execution_id, outcome in said.items():
            if self._until.get(execution_id) != asked[execution_id]:
                continue  # it was dropped meanwhile, or claimed anew
            if outcome == "renewed":
                self._until[execution_id] = since + self._lease
            elif outcome == "lost":
                self.dropped(execution_id)
                self._lost(execution_id)
