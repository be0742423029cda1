"""`AsyncSchedules` and `AsyncClaims`: the same as their twins, over async connections.

Every method does what its twin does, and its documentation is the twin's; a test compares the signatures.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import psycopg

from underseal.held.model import Outcome
from underseal.held.verbs import principal_id
from underseal.log.async_client import _AsyncClient, _twin
from underseal.log.client import Who
from underseal.wake import claims
from underseal.wake import schedules as passes
from underseal.wake.client import LEASE, Claims, Schedules
from underseal.wake.cron import ON_TIME, Missed
from underseal.wake.model import Claim, Fired, Schedule, ScheduleOutcome

Connection = psycopg.AsyncConnection[Any]


class AsyncSchedules(_AsyncClient):
    """Over async connections what `Schedules` is."""

    @_twin(Schedules)
    async def add(
        self,
        name: str,
        flow: str,
        cron: str,
        principal: Who,
        *,
        time_zone: str = "UTC",
        value: Any = None,
        flow_version: int = 1,
        missed: Missed = "latest",
        as_operator: bool = False,
        connection: Connection | None = None,
    ) -> ScheduleOutcome:
        steps = passes.add(
            name, flow, cron, time_zone, principal_id(principal), value, flow_version, missed, as_operator
        )
        return await self._do(steps, connection)

    @_twin(Schedules)
    async def list(
        self, principal: Who, *, as_operator: bool = False, connection: Connection | None = None
    ) -> builtins.list[Schedule]:
        return await self._do(passes.list_schedules(principal_id(principal), as_operator), connection)

    @_twin(Schedules)
    async def get(
        self, name: str, principal: Who, *, as_operator: bool = False, connection: Connection | None = None
    ) -> Schedule | None:
        return await self._do(passes.get(name, principal_id(principal), as_operator), connection)

    @_twin(Schedules)
    async def pause(
        self, name: str, principal: Who, *, as_operator: bool = False, connection: Connection | None = None
    ) -> ScheduleOutcome:
        return await self._do(passes.pause(name, principal_id(principal), as_operator), connection)

    @_twin(Schedules)
    async def resume(
        self, name: str, principal: Who, *, as_operator: bool = False, connection: Connection | None = None
    ) -> ScheduleOutcome:
        return await self._do(passes.resume(name, principal_id(principal), as_operator), connection)

    @_twin(Schedules)
    async def remove(
        self, name: str, principal: Who, *, as_operator: bool = False, connection: Connection | None = None
    ) -> Outcome:
        return await self._do(passes.remove(name, principal_id(principal), as_operator), connection)


class AsyncClaims(_AsyncClient):
    """Over async connections what `Claims` is."""

    @_twin(Claims)
    async def claim_due(
        self,
        worker: str,
        flows: Iterable[str],
        *,
        lease: timedelta = LEASE,
        limit: int = 100,
        versions: Iterable[int | None] | None = None,
        connection: Connection | None = None,
    ) -> list[Claim]:
        return await self._do(claims.claim_due(worker, flows, lease, limit, versions), connection)

    @_twin(Claims)
    async def renew(
        self,
        worker: str,
        execution_ids: Iterable[str],
        *,
        lease: timedelta = LEASE,
        connection: Connection | None = None,
    ) -> dict[str, str]:
        return await self._do(claims.renew_claims(worker, execution_ids, lease), connection)

    @_twin(Claims)
    async def release(
        self,
        worker: str,
        execution_id: str,
        *,
        retry_in: timedelta | None = None,
        connection: Connection | None = None,
    ) -> Outcome:
        return await self._do(claims.release_claim(worker, execution_id, retry_in), connection)

    @_twin(Claims)
    async def release_all(
        self, worker: str, execution_ids: Iterable[str], *, connection: Connection | None = None
    ) -> dict[str, str]:
        return await self._do(claims.release_claims(worker, execution_ids), connection)

    @_twin(Claims)
    async def next_due(
        self, flows: Iterable[str], *, schedules: bool = False, connection: Connection | None = None
    ) -> timedelta | None:
        return await self._do(claims.next_due(flows, schedules), connection)

    @_twin(Claims)
    async def fire_due_schedules(
        self,
        worker: str,
        *,
        lease: timedelta = LEASE,
        limit: int = 20,
        on_time: timedelta = ON_TIME,
        connection: Connection | None = None,
    ) -> list[Fired]:
        return await self._do(passes.fire_due_schedules(worker, lease, limit, on_time), connection)
