"""What is known of one execution: read for `underseal exec show`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from underseal.cli._exec_session import Here
    from underseal.inbox.model import InboxMessage
    from underseal.log.model import ExecutionInfo, FoldView, LogEvent

_STEPS = 20
_NUMBER = re.compile(r"(?:^|(?<=[.]))[0-9]+$")


@dataclass(frozen=True)
class View:
    """One execution.

    Attributes:
        info: as `get` returned it.
        events: its first event and the last ones; None where they are sealed for others.
        inbox: what waits in its line's inbox.
        fence, fold: what a worker's or an operator's login sees besides; None for others.
        line: the executions of its line, in the order in which they continue each other, with the status of the last.
        now: the database's clock.
    """

    info: ExecutionInfo
    events: list[LogEvent] | None
    inbox: list[InboxMessage]
    fence: int | None
    fold: FoldView | None
    line: list[str]
    line_status: str
    now: datetime

    def as_json(self) -> dict[str, Any]:
        """All of it, for `--json`."""
        info = {name: getattr(self.info, name) for name in self.info.__slots__ if name != "cursor"}
        return {
            **info,
            "line": self.line,
            "fence": self.fence,
            "recoveries": None if self.fold is None else self.fold.fold["recoveries"],
            "wakes": None if self.fold is None else self.fold.wakes,
            "inbox": self.inbox,
            "events": self.events,
        }


def view(here: Here, execution_id: str, principal: str, last: int) -> View:
    """Read what this principal may see of an execution.

    Parameters:
        here: the command's clients.
        execution_id: which.
        principal: who looks.
        last: how many of its last events.

    Errors:
        ExecutionDeniedError: not this principal, or none of this id.
    """
    info = here.executions.get(execution_id, principal)
    line, line_status = _line(here, info, principal)
    fence, fold = _inside(here, execution_id, principal)
    inbox = here.executions.inbox(execution_id, principal)
    events = _events(here, info, principal, last)
    return View(info, events, inbox, fence, fold, line, line_status, here.now)


def _events(here: Here, info: ExecutionInfo, principal: str, last: int) -> list[LogEvent] | None:
    """No further than the head that is shown beside them."""
    from underseal.errors import ExecutionDeniedError

    after = max(info.head - last, -1)
    try:
        first = here.executions.events(info.execution_id, principal, limit=1) if after >= 0 else []
        found = here.executions.events(info.execution_id, principal, after_seq=after, limit=last)
    except ExecutionDeniedError:
        # it was there for this principal a moment ago: this is an event that does not open here
        return None
    return [*first, *(event for event in found if 0 <= event.seq <= info.head and event not in first)]


def _inside(here: Here, execution_id: str, principal: str) -> tuple[int | None, FoldView | None]:
    """What only drivers and operators are told; everybody else is shown the rest."""
    import psycopg

    from underseal.errors import ExecutionDeniedError
    from underseal.foundation.steps import drive
    from underseal.log import verbs

    try:
        fence = here.driver.head(execution_id).fence
        asks: str | None = None  # a worker's own reading
    except psycopg.errors.InsufficientPrivilege:
        fence, asks = None, principal
    try:
        return fence, drive(here.source, verbs.fold_view(execution_id, asks))
    except (psycopg.errors.InsufficientPrivilege, ExecutionDeniedError):
        return fence, None


def _line(here: Here, info: ExecutionInfo, principal: str) -> tuple[list[str], str]:
    from underseal.errors import ExecutionDeniedError

    line = [*_before(info.execution_id), info.execution_id]
    latest = info
    for _ in range(_STEPS):
        if latest.continued_by is None:
            break
        try:
            latest = here.executions.get(latest.continued_by, principal)
        except ExecutionDeniedError:
            break
        line.append(latest.execution_id)
    return line, latest.status


def _before(execution_id: str) -> list[str]:
    """The executions that this one continues, by their ids: they are numbered from 2 on."""
    chain, _, member = execution_id.partition("~")
    number = _NUMBER.search(member)
    if number is None:
        return []
    stem = member[: number.start()]
    first = stem.removesuffix(".")
    return [f"{chain}~{first}" if first else chain, *(f"{chain}~{stem}{n}" for n in range(2, int(number[0])))]
