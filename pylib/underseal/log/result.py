"""What an execution comes to, waited for, as steps."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any, Final

import psycopg

from underseal.errors import ExecutionFailed, ExecutionRefusedError
from underseal.foundation.steps import Pause, Steps, elapsed
from underseal.log import verbs
from underseal.log.model import ENDING, ExecutionInfo

log = logging.getLogger("underseal.log")

_SHORTEST: Final = 0.001
_LONGEST: Final = 1.0
_OF_THE_WAIT: Final = 0.2
"""A wait between two looks is such a part of the time that was waited already: few looks, and none much too late."""
_FIRST_PAGE: Final = 4
_PAGE: Final = 1000


def result(execution_id: str, principal: str, timeout: timedelta | None) -> Steps[Any]:
    """Wait for the end of an execution, or of the one that goes on in its place.

    Parameters:
        execution_id: which.
        principal: who waits; judged anew at every look.
        timeout: how long at most.
    """
    began = yield from elapsed()
    reached = False
    status = "away"
    while True:
        try:
            seen = yield from verbs.get(execution_id, principal)
            reached, status = True, seen.status
            if seen.continued_by is not None:
                execution_id = seen.continued_by
                continue
            if seen.ended:
                return (yield from _outcome(seen, principal))
        except psycopg.OperationalError as error:
            if not reached:
                raise
            log.warning("the database is away, and asked again when it is back: %s", type(error).__name__)
        waited = (yield from elapsed()) - began
        pause = min(_LONGEST, max(_SHORTEST, waited * _OF_THE_WAIT))
        if timeout is not None:
            left = timeout.total_seconds() - waited
            if left <= 0:
                raise TimeoutError(
                    f"expected execution {execution_id} to end within {timeout}, found it {status}"
                )
            pause = min(pause, left)
        yield Pause(pause)


def _outcome(seen: ExecutionInfo, principal: str) -> Steps[Any]:
    """Read it from the end of the log; only outcomes that were recorded later can stand behind it."""
    before, page = seen.head + 1, _FIRST_PAGE
    while before > 0:
        after = max(-1, before - 1 - page)
        found = yield from verbs.events(seen.execution_id, principal, after, page, None)
        for event in found:
            if event.type in ENDING:
                told = event.data or {}
                if seen.status == "completed":
                    return told.get("output")
                raise ExecutionFailed(seen.execution_id, seen.status, told.get("error"))
        before, page = after + 1, _PAGE
    raise ExecutionRefusedError(
        "compacted",
        f"expected the end of execution {seen.execution_id} in its log, found that it was compacted away",
    )
