"""`Schedules` and `Claims`: what callers do with schedules, and workers with what is due, over sync connections."""

from __future__ import annotations

import builtins
from collections.abc import Iterable
from datetime import timedelta
from typing import Any, Final

import psycopg

from underseal.held.model import Outcome
from underseal.held.verbs import principal_id
from underseal.log.client import Who, _Client
from underseal.wake import claims
from underseal.wake import schedules as passes
from underseal.wake.cron import ON_TIME, Missed
from underseal.wake.model import Claim, Fired, Schedule, ScheduleOutcome

Connection = psycopg.Connection[Any]

LEASE: Final = timedelta(seconds=30)
"""How long a claim holds, if a worker says nothing else."""


class Schedules(_Client):
    """What callers do with schedules; safe to share between threads.

    A schedule belongs to the principal who added it, and so do the executions it starts. With `as_operator` a method
    takes operator access, and is for everybody's schedules.
    """

    def add(
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
        """Start a flow again and again; or change the schedule of this name. To ask for what is there changes nothing.

        Parameters:
            name: 1 to 150 characters; its executions are called `name@2026-11-30T16:20:05Z`.
            flow: the flow to start.
            cron: `minute hour day-of-month month day-of-week`, or six fields with seconds first.
            principal: its owner, and that of what it starts.
            time_zone: IANA name of the zone in which the expression is read.
            value: the input of each execution, JSON.
            flow_version: which version of the flow's code.
            missed: what becomes of instants for which no worker was there: `skip`, `latest` (one execution for
                the last) or `all`.
            as_operator: change somebody else's.
            connection: the caller's own, if wanted.

        Returns:
            `added`, `changed` or `unchanged`, with the next instant; `conflict` (`name-taken`); `refused`; `denied`.

        Errors:
            ScheduleRefusedError: the expression is none, the zone is unknown, or the date never comes.
        """
        steps = passes.add(
            name, flow, cron, time_zone, principal_id(principal), value, flow_version, missed, as_operator
        )
        return self._do(steps, connection)

    def list(
        self, principal: Who, *, as_operator: bool = False, connection: Connection | None = None
    ) -> builtins.list[Schedule]:
        """The schedules of a principal, by name.

        Parameters:
            principal: whose.
            as_operator: everybody's.
            connection: the caller's own, if wanted.

        Errors:
            AccessDenied: this login may not act for the principal.
        """
        return self._do(passes.list_schedules(principal_id(principal), as_operator), connection)

    def get(
        self, name: str, principal: Who, *, as_operator: bool = False, connection: Connection | None = None
    ) -> Schedule | None:
        """One schedule; None where there is none of this principal's.

        Parameters:
            name: which.
            principal: whose.
            as_operator: anybody's.
            connection: the caller's own, if wanted.

        Errors:
            AccessDenied: this login may not act for the principal.
        """
        return self._do(passes.get(name, principal_id(principal), as_operator), connection)

    def pause(
        self, name: str, principal: Who, *, as_operator: bool = False, connection: Connection | None = None
    ) -> ScheduleOutcome:
        """Let a schedule start nothing until it is resumed. What would have come meanwhile is not missed.

        Parameters:
            name: which.
            principal: who asks.
            as_operator: pause somebody else's.
            connection: the caller's own, if wanted.

        Returns:
            `paused`, `unchanged`, `not-found` or `denied`.
        """
        return self._do(passes.pause(name, principal_id(principal), as_operator), connection)

    def resume(
        self, name: str, principal: Who, *, as_operator: bool = False, connection: Connection | None = None
    ) -> ScheduleOutcome:
        """Let a paused schedule run again, from its next instant on.

        Parameters:
            name: which.
            principal: who asks.
            as_operator: resume somebody else's.
            connection: the caller's own, if wanted.

        Returns:
            `resumed` with that instant; `unchanged`; `conflict` (`changed` while this looked); `not-found`; `denied`.

        Errors:
            AccessDenied: this login may not act for the principal.
            ScheduleRefusedError: its expression or its zone cannot be read here.
        """
        return self._do(passes.resume(name, principal_id(principal), as_operator), connection)

    def remove(
        self, name: str, principal: Who, *, as_operator: bool = False, connection: Connection | None = None
    ) -> Outcome:
        """Remove a schedule; what it has started goes on.

        Parameters:
            name: which.
            principal: who asks.
            as_operator: remove somebody else's.
            connection: the caller's own, if wanted.

        Returns:
            `removed`, `not-found` or `denied`.
        """
        return self._do(passes.remove(name, principal_id(principal), as_operator), connection)


class Claims(_Client):
    """What a worker does with what is due. Its login has the access `worker`. Nothing here waits for a lock."""

    def claim_due(
        self,
        worker: str,
        flows: Iterable[str],
        *,
        lease: timedelta = LEASE,
        limit: int = 100,
        versions: Iterable[int | None] | None = None,
        connection: Connection | None = None,
    ) -> list[Claim]:
        """Claim executions that have something due, each with a new fence.

        Parameters:
            worker: a name that no other process and no earlier life of this one has.
            flows: the flows it can drive; they take turns.
            lease: how long the claims hold, 1 second to 1 hour.
            limit: at most so many, up to 10,000.
            versions: for each of the flows, in the same order, the newest version it can drive, None for any;
                executions of newer ones are left to others. None altogether for any version of all.
            connection: the caller's own, if wanted.

        Errors:
            AccessDenied: this login may not use that worker's name.
            ValueError: a lease or a limit out of range, or not as many versions as flows.
        """
        return self._do(claims.claim_due(worker, flows, lease, limit, versions), connection)

    def renew(
        self,
        worker: str,
        execution_ids: Iterable[str],
        *,
        lease: timedelta = LEASE,
        connection: Connection | None = None,
    ) -> dict[str, str]:
        """Let claims hold for another lease from now.

        Parameters:
            worker: who claimed them.
            execution_ids: which.
            lease: how long, 1 second to 1 hour.
            connection: the caller's own, if wanted.

        Returns:
            By execution: `renewed`; `busy` (the claim is as it was, try again soon); `lost` (it parked or ended, or
            another worker has it).

        Errors:
            AccessDenied, ValueError: as for `claim_due`.
        """
        return self._do(claims.renew_claims(worker, execution_ids, lease), connection)

    def release(
        self,
        worker: str,
        execution_id: str,
        *,
        retry_in: timedelta | None = None,
        connection: Connection | None = None,
    ) -> Outcome:
        """Give a claim back.

        Parameters:
            worker: who claimed it.
            execution_id: which.
            retry_in: how long nobody may claim it, up to 365 days; None for not at all.
            connection: the caller's own, if wanted.

        Returns:
            `released`, `busy` (it runs out by itself) or `lost`.

        Errors:
            AccessDenied: this login may not use that worker's name.
            ValueError: a delay out of range.
        """
        return self._do(claims.release_claim(worker, execution_id, retry_in), connection)

    def release_all(
        self, worker: str, execution_ids: Iterable[str], *, connection: Connection | None = None
    ) -> dict[str, str]:
        """Give many claims back, as a worker does that stops.

        Parameters:
            worker: who claimed them.
            execution_ids: which.
            connection: the caller's own, if wanted.

        Returns:
            By execution: `released`, `busy` or `lost`.

        Errors:
            AccessDenied: this login may not use that worker's name.
        """
        return self._do(claims.release_claims(worker, execution_ids), connection)

    def next_due(
        self, flows: Iterable[str], *, schedules: bool = False, connection: Connection | None = None
    ) -> timedelta | None:
        """How long until something becomes claimable: nothing for now, None for nothing in sight.

        Parameters:
            flows: of these flows.
            schedules: or a schedule.
            connection: the caller's own, if wanted.
        """
        return self._do(claims.next_due(flows, schedules), connection)

    def fire_due_schedules(
        self,
        worker: str,
        *,
        lease: timedelta = LEASE,
        limit: int = 20,
        on_time: timedelta = ON_TIME,
        connection: Connection | None = None,
    ) -> list[Fired]:
        """One pass over due schedules: start what they are to start. A worker calls it whenever it looks for work.

        Parameters:
            worker: as for `claim_due`.
            lease: how long another worker leaves a schedule to this one.
            limit: at most so many schedules; call again while it returns as many.
            on_time: how late a start may be without counting as missed.
            connection: the caller's own, if wanted.

        Errors:
            AccessDenied, ValueError: as for `claim_due`.
        """
        return self._do(passes.fire_due_schedules(worker, lease, limit, on_time), connection)
