"""What a cron expression means in a time zone: which instants it has. No I/O, and no clock.

Expressions are read by `cronsim` as Debian's cron reads them. Where the clocks go forward, an expression with fixed
minutes and hours runs what would fall into the gap at its end; where they go back, it runs in the first of the two
hours alone. An expression with a star for minutes or hours, or with seconds, follows the real time through both.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, Self, get_args
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from underseal.errors import UndersealError

Missed = Literal["skip", "latest", "all"]
MISSED: Final[tuple[Missed, ...]] = get_args(Missed)

ON_TIME: Final = timedelta(minutes=1)
"""How late a worker may come to an instant that still counts as kept."""

FIRES: Final = 100
"""The most executions that one pass starts for one schedule."""

_LONGEST_EXPRESSION: Final = 200
_ZONE: Final = re.compile(r"[A-Za-z0-9_+/-]{1,64}")
_OF_THE_MACHINE: Final = frozenset({"localtime", "posixrules", "Factory"})
_SECOND: Final = timedelta(seconds=1)
_BEFORE: Final = timedelta(microseconds=1)
# what cronsim raises for one expression or another that is none
_UNREADABLE: Final = (CronSimError, AssertionError, ValueError, TypeError)


class ScheduleRefusedError(UndersealError):
    """A schedule that could never be kept as it was given: nothing of it was written.

    Attributes:
        reason: `malformed-cron`, `unknown-zone` or `never`.
    """

    code = "schedule-refused"

    def __init__(self, reason: str, message: str) -> None:
        """Name the cause.

        Parameters:
            reason: one of the words above.
            message: what was expected, what was found and what to do.
        """
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Plan:
    """What a pass over one due schedule does.

    Attributes:
        fires: distances from the instant that was due to those for which an execution is started; ascending.
        next_in: distance from the instant that was due to the one that is due next.
    """

    fires: tuple[timedelta, ...]
    next_in: timedelta


@dataclass(frozen=True, slots=True)
class Calendar:
    """The instants of one cron expression in one zone.

    Attributes:
        cron: the expression.
        zone: the zone it is read in.
    """

    cron: str
    zone: ZoneInfo

    @classmethod
    def read(cls, cron: str, time_zone: str) -> Self:
        """Read an expression and the name of a zone.

        Parameters:
            cron: five fields, or six with seconds first; `L`, `LW`, `5L` and `1#2` are known.
            time_zone: an IANA name such as `Europe/Berlin`.

        Errors:
            ScheduleRefusedError: `malformed-cron`, `unknown-zone`, or `never` for a date that no year has.
        """
        zone = _zone(time_zone)
        fields = cron.split()
        if len(cron) > _LONGEST_EXPRESSION or len(fields) not in (5, 6):
            raise ScheduleRefusedError(
                "malformed-cron",
                "expected a cron expression of five fields (minute, hour, day of month, month, day of week), or six "
                f"with seconds first, of at most {_LONGEST_EXPRESSION} characters; found {len(fields)} fields",
            )
        calendar = cls(" ".join(fields), zone)
        try:
            CronSim(calendar.cron, datetime(2000, 1, 1, tzinfo=UTC))
        except _UNREADABLE as error:
            said = str(error) if isinstance(error, CronSimError) else "it cannot be read"
        else:
            return calendar
        raise ScheduleRefusedError(
            "malformed-cron",
            f"expected a cron expression such as '0 3 * * MON-FRI', found {cron!r}: {said}. "
            "A date that no year has, the 30th of February, is none either",
        )

    def after(self, instant: datetime) -> datetime:
        """The first instant after another, in UTC.

        Parameters:
            instant: with a zone.

        Errors:
            ScheduleRefusedError: `never`: none within 50 years.
        """
        moment = self._next(instant)
        # in an hour that the clocks skip, what CronSim finds depends on where it began: what counts is what it finds
        # from right before
        while self._next(moment - _BEFORE) != moment:
            moment = self._next(moment)
        return moment

    def _next(self, instant: datetime) -> datetime:
        try:
            for found in CronSim(self.cron, instant.astimezone(self.zone)):
                # the second of two equal hours, and the end of a gap, are told twice
                if (moment := found.astimezone(UTC)) > instant:
                    return moment
        except OverflowError:
            pass  # past the last year of the calendar
        raise ScheduleRefusedError(
            "never",
            f"expected an expression that comes within 50 years, found {self.cron!r}, which does not. "
            "Check day of month, month and day of week together",
        )

    def at_or_after(self, instant: datetime) -> datetime:
        """The first instant that is not before another, in UTC; errors as `after`."""
        return self.after(instant - _BEFORE)

    def upcoming(self, after: datetime, count: int) -> list[datetime]:
        """The next instants after one, in UTC.

        Parameters:
            after: with a zone.
            count: how many.

        Errors:
            ScheduleRefusedError: `never`.
        """
        found: list[datetime] = []
        while len(found) < count:
            found.append(self.after(found[-1] if found else after))
        return found

    def plan(
        self, due_at: datetime, now: datetime, missed: Missed, *, limit: int = FIRES, on_time: timedelta = ON_TIME
    ) -> Plan:  # fmt: skip
        """What to start for a schedule that is due, and when it is due next.

        An instant for which a worker came within `on_time` was not missed. As long as nothing was missed, each instant
        gets its execution. If something was, `skip` goes on with what was not, `latest` starts one execution for the
        last instant that is due, and `all` goes on from the first, at most `limit` in one pass. An instant that was
        planned but that the zone's rules, as they are known here, no longer have starts nothing.

        Parameters:
            due_at: the instant that is due, as the database gave it.
            now: the database's clock.
            missed: what becomes of missed instants.
            limit: the most instants of one plan.
            on_time: how late is not late.

        Errors:
            ScheduleRefusedError: `never`: it does not come again.
        """
        first = self.at_or_after(due_at)
        if first < now - on_time:
            if missed == "skip":
                first = self.at_or_after(now - on_time)
            elif missed == "latest":
                first = self._last(first, now)
        fires: list[datetime] = []
        following = first
        while following <= now and len(fires) < limit:
            fires.append(following)
            following = self.after(following)
        return Plan(tuple(one - due_at for one in fires), following - due_at)

    def _last(self, known: datetime, now: datetime) -> datetime:
        """The last instant up to now, given one that is: by halves, since between them there may be millions."""
        low, beyond = known, now + _BEFORE
        while beyond - low > _SECOND:
            middle = low + (beyond - low) / 2
            found = self.after(middle)
            if found <= now:
                low = found
            else:
                beyond = middle + _BEFORE
        return low


def _zone(name: str) -> ZoneInfo:
    """A zone by its IANA name; never one that means something else on another machine."""
    if _ZONE.fullmatch(name) and name not in _OF_THE_MACHINE:
        try:
            return ZoneInfo(name)
        except (KeyError, ValueError, OSError):
            pass  # a name that no zone has, or that of a directory of zones
    raise ScheduleRefusedError(
        "unknown-zone",
        f"expected an IANA time zone such as Europe/Berlin, found {name!r}, which is not known here. "
        "Check its spelling, or bring the package tzdata up to date",
    )
