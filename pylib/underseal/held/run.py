"""From a claim to a finished run, for every caller: the approving replica, the sweep, the requester who asks again."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg

from underseal.errors import AccessDenied
from underseal.foundation.steps import During, Pause, Row, Steps, Undo, atomic, call
from underseal.held import kernel
from underseal.held.claim import Claim
from underseal.held.core import Core, RunHandle
from underseal.held.model import Principal, RunReport, State
from underseal.held.replay import RunLost
from underseal.held.results import result_text
from underseal.held.sequence import Ended, Rebuild, run_sequence
from underseal.held.sqlkind import RETRIED, SqlKind

log = logging.getLogger("underseal.held")

_FINISH_PAUSES = (0.2, 1.0, 3.0, 10.0, 30.0)  # seconds before each further try to record how a run ended
_KEEP_SPENT = timedelta(days=2)
_ALREADY_SPENT = object()
_TOO_LONG = object()
_MAX_REASON = 1024  # bytes, as the table has it
_MAX_DETAIL = 8192
_MAX_NOTE = 1000  # characters of a mark of progress in the end's detail, as the sweep has it


def run_one(core: Core, operation_id: UUID) -> Steps[RunReport]:
    """Claim and run one approved ON_APPROVAL operation.

    Parameters:
        core: the client's state.
        operation_id: which.
    """
    report = RunReport("conflict", "unserved", _UNSERVED, operation_id=operation_id)
    if core.rebuild is None:
        return report
    if core.served():
        rows = yield from kernel.claim_runs(core.worker, core.served(), core.key_ids(), 1, operation_id)
        if rows[0]["outcome"] == "claimed":
            return (yield from run_claimed(core, Claim.from_row(rows[0]), core.rebuild))
        report = RunReport(
            rows[0]["outcome"], rows[0]["reason"], rows[0]["message"], operation_id=operation_id
        )
    if report.reason == "unserved" and core.serve_sql:
        kinds = yield from core.sql_kinds()
        if kinds:
            return (yield from run_sql(core, kinds, core.rebuild, operation_id)) or report
    return report


def claim_approved(core: Core, max_runs: int) -> Steps[list[Claim]]:
    """Claim approved operations that this process can run in Python; the caller runs them.

    Parameters:
        core: the client's state.
        max_runs: most to claim.
    """
    if core.rebuild is None or not core.served():
        return []
    rows = yield from kernel.claim_runs(core.worker, core.served(), core.key_ids(), max_runs, None)
    if rows and rows[0]["outcome"] != "claimed":
        raise AccessDenied(rows[0]["reason"], rows[0]["message"])
    return [Claim.from_row(row) for row in rows]


def run_next(core: Core) -> Steps[RunReport | None]:
    """Claim and run the approved operation with the nearest deadline; None if there is nothing to run.

    Parameters:
        core: the client's state.
    """
    if core.rebuild is None:
        return None
    for claim in (yield from claim_approved(core, 1)):
        return (yield from run_claimed(core, claim, core.rebuild))
    return (yield from run_next_sql(core))


def run_next_sql(core: Core) -> Steps[RunReport | None]:
    """The same for operations of SQL functions alone.

    Parameters:
        core: the client's state.
    """
    kinds = (yield from core.sql_kinds()) if core.serve_sql and core.rebuild is not None else {}
    if not kinds or core.rebuild is None:
        return None
    return (yield from run_sql(core, kinds, core.rebuild, None))


def resubmit_steps(core: Core, principal: Principal, operation_id: UUID) -> Steps[RunReport | None]:
    """Run an approved BY_REQUESTER operation inside the requester's own call.

    Its principal is the caller's own, who is authenticated in this very call: nobody need rebuild it.

    Parameters:
        core: the client's state.
        principal: the caller.
        operation_id: the open operation that the request was found to repeat.

    Returns:
        None if it is not for this caller to run, or somebody was faster.
    """
    row = yield from kernel.claim_resubmission(
        operation_id,
        principal.id,
        principal.auth_kind,
        principal.token_id,
        core.worker,
        core.served(),
        core.key_ids(),
    )
    if row["outcome"] != "claimed":
        log.info("operation %s was not resubmitted: %s", operation_id, row["reason"] or row["outcome"])
        return None
    return (yield from run_claimed(core, Claim.from_row(row), _the_caller(principal)))


def run_claimed(core: Core, claim: Claim, rebuild: Rebuild) -> Steps[RunReport]:
    """Run what is claimed and committed as claimed, and record how it ended.

    Parameters:
        core: the client's state.
        claim: the run.
        rebuild: gives the requester's principal.
    """
    kind = core.kinds[claim.type]
    core.runs[claim.run_id] = handle = RunHandle(claim)
    try:
        ended: Ended = yield During(
            lambda: run_sequence(claim, kind, core.keys, rebuild, core.spend()),
            core.renew_every,
            lambda: _renew(claim),
        )
    except RunLost as lost:
        return RunReport("conflict", lost.reason, lost.message, operation_id=claim.operation_id)
    except GeneratorExit:
        raise
    except BaseException:
        # Not an Exception: the process is being stopped. Its own owner says what can be said (clause H8.2).
        yield from abandon(handle)
        raise
    finally:
        core.runs.pop(claim.run_id, None)
    return (yield from _finish(claim, ended, ended.value if claim.mode == "ON_APPROVAL" else None))


def abandon(handle: RunHandle) -> Steps[None]:
    """End a run of this process as OUTCOME_UNKNOWN: nobody will be there to see how it ends.

    Parameters:
        handle: the run.
    """
    mark = f'its last mark is "{handle.note[:_MAX_NOTE]}".' if handle.note else "it left no mark of progress."
    yield from kernel.finish_run(
        handle.claim.operation_id, handle.claim.run_token, "OUTCOME_UNKNOWN", "interrupted",
        "The run was interrupted and is not run again. Ask again once you know how far it got: " + mark, None,
    )  # fmt: skip


def run_sql(
    core: Core, kinds: dict[str, SqlKind], rebuild: Rebuild, operation_id: UUID | None
) -> Steps[RunReport | None]:
    """Claim, judge, run and finish one operation of SQL functions, all in one transaction (clause H6.10).

    With a spent register the id is spent immediately before COMMIT. If it had been spent before,
    everything is rolled back and the operation REFUSED.

    Parameters:
        core: the client's state.
        kinds: the types that SQL functions do.
        rebuild: gives the requester's principal.
        operation_id: which, or None for the one with the nearest deadline.

    Returns:
        None if there is nothing to run.
    """
    tried: list[UUID] = []

    def run(claim: Claim) -> Steps[RunReport]:
        tried.append(claim.operation_id)
        ended = yield from run_sequence(claim, kinds[claim.type], core.keys, rebuild, None)
        report = yield from _finish_once(claim, ended, ended.value, inside=True)
        if report.state is None:
            # The end is not recorded, and an effect without its record is not let stand.
            raise Undo(_TOO_LONG)
        if core.spent is not None:
            keep = max(claim.run_deadline - claim.claimed_at, timedelta(0)) + _KEEP_SPENT
            first = yield from call(core.spent.spend, claim.operation_id, keep)
            if not first and ended.state == "SUCCEEDED":
                raise Undo(_ALREADY_SPENT)
        return report

    try:
        done: Any = yield from atomic(lambda: _claim_one(core, kinds, operation_id, run))
    except RETRIED as error:
        if not tried:
            raise
        # It never gets through. Left APPROVED it would be the first to be tried for ever, and stop the others.
        return (yield from _end(core, kinds, tried[-1], "FAILED", "sql-error", f"SQLSTATE {error.sqlstate}"))
    if done is _TOO_LONG:
        return (yield from _end(core, kinds, tried[-1], "FAILED", "too-long", _OUTLASTED))
    if done is _ALREADY_SPENT:
        return (yield from _end(core, kinds, tried[-1], "REFUSED", "spent", _SPENT))
    report: RunReport | None = done
    return report


def _claim_one(
    core: Core, kinds: dict[str, SqlKind], only: UUID | None, then: Callable[[Claim], Steps[RunReport]]
) -> Steps[RunReport | None]:
    served = [(kind.type, kind.version) for kind in kinds.values()]
    rows = yield from kernel.claim_runs(core.worker, served, core.key_ids(), 1, only)
    if not rows:
        return None
    if rows[0]["outcome"] != "claimed":
        return RunReport(rows[0]["outcome"], rows[0]["reason"], rows[0]["message"], operation_id=only)
    return (yield from then(Claim.from_row(rows[0])))


def _end(
    core: Core, kinds: dict[str, SqlKind], operation_id: UUID, state: State, reason: str, detail: str
) -> Steps[RunReport | None]:
    """Claim an operation whose run was rolled back, only to say how it ended."""
    ended = Ended(state, reason, detail)
    return atomic(
        lambda: _claim_one(core, kinds, operation_id, lambda claim: _finish_once(claim, ended, None))
    )


def _renew(claim: Claim) -> Steps[None]:
    row = yield from kernel.renew_run(claim.operation_id, claim.run_token)
    if row["outcome"] != "renewed":
        log.warning(
            "the lease of the run of operation %s was not renewed: %s", claim.operation_id, row["reason"]
        )


def _finish(claim: Claim, ended: Ended, result: Any) -> Steps[RunReport]:
    """Record the end; again if the database was away, since the effect has happened and its record must not be lost."""
    for pause in _FINISH_PAUSES:
        try:
            return (yield from _finish_once(claim, ended, result))
        except psycopg.OperationalError:
            log.warning(
                "the end of the run of operation %s could not be recorded, trying again", claim.operation_id
            )
            yield Pause(pause)
    return (yield from _finish_once(claim, ended, result))


def _finish_once(claim: Claim, ended: Ended, result: Any, *, inside: bool = False) -> Steps[RunReport]:
    text, remark = (None, _TOLD) if ended.told and result is not None else result_text(result)
    row: Row | None = None
    if text is not None:
        try:
            finish = _recorder(claim, ended, remark, text)
            row = yield from (atomic(finish) if inside else finish())
        except (psycopg.DataError, psycopg.IntegrityError):
            # The effect stands; a result that jsonb or the table's bounds refuse is no reason to lose its record.
            remark = "the result is not stored: the database does not take it"
    if row is None:
        row = yield from _recorder(claim, ended, remark, None)()
    if row["outcome"] != "finished" and row["reason"] != "already-ended":
        return RunReport(
            row["outcome"], row["reason"], row["message"], claim.operation_id, None, ended.value, ended.error
        )
    message = ": ".join(part for part in (ended.reason, _detail(ended, remark)) if part) or None
    word = ended.state.lower().replace("_", "-")
    return RunReport(word, ended.reason, message, claim.operation_id, ended.state, ended.value, ended.error)


def _recorder(claim: Claim, ended: Ended, remark: str | None, text: str | None) -> Callable[[], Steps[Row]]:
    reason = _cut(ended.reason, _MAX_REASON)
    return lambda: kernel.finish_run(
        claim.operation_id, claim.run_token, ended.state, reason, _detail(ended, remark), text
    )


def _detail(ended: Ended, remark: str | None) -> str | None:
    return _cut("; ".join(part for part in (ended.detail, remark) if part) or None, _MAX_DETAIL)


def _cut(text: str | None, size: int) -> str | None:
    """At most so many bytes, and nothing that Postgres has no text for."""
    if text is None:
        return None
    return text.encode(errors="replace")[:size].decode(errors="ignore").replace("\0", "")


def _the_caller(principal: Principal) -> Rebuild:
    return lambda *_: principal


_UNSERVED = (
    "Expected an operation whose provider, keys and principals are here, found one that this process cannot run. "
    "A worker that has them will."
)
_TOLD = "the result is not stored: it repeats a hidden parameter"
_OUTLASTED = "the run took longer than its lease of 15 minutes; all that it did is undone"
_SPENT = "the spent register has this operation: it was run or cancelled before"
