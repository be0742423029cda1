"""Is the work going on: runs that nobody owns, deadlines that nobody swept, consumers that lag, reports to read?"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from underseal.doctor.look import Look
from underseal.doctor.model import Finding, Severity

PATIENCE: Final = timedelta(minutes=1)
"""How late a sweep may be before that is a finding; workers sweep every few seconds."""

LAGGARD: Final = timedelta(hours=1)
"""How long a consumer of the outbox may leave events unacknowledged before it is named."""

_GRAVE_REPORTS: Final = frozenset({"sweep-failed"})


def check_work(look: Look) -> Iterator[Finding]:
    """Runs past their lease, and requests and approvals past their deadline, are ended by a sweep."""
    for row in look.rows(
        "select * from underseal.operation_health h where h.kind in ('stuck-run', 'overdue')"
    ):
        if row["oldest_seconds"] < PATIENCE.total_seconds():
            continue
        since = f"for {int(row['oldest_seconds'])} s, although a sweep ends it"
        if row["kind"] == "stuck-run":
            yield Finding(
                "error", "work", "stuck-run", row["name"],
                f"expected no run past its lease, found {row['amount']} of worker {row['name']}, the longest {since}",
                "start a worker (underseal worker), or call underseal.sweep_operations(); the run ends OUTCOME_UNKNOWN",
            )  # fmt: skip
        else:
            yield Finding(
                "warning", "work", "overdue", row["name"],
                f"expected no operation past its deadline, found {row['amount']} {row['name']}, the longest {since}",
                "start a worker (underseal worker), or call underseal.sweep_operations(); it ends EXPIRED",
            )  # fmt: skip


def check_outbox(look: Look) -> Iterator[Finding]:
    """Consumers acknowledge what they read: what one has not, no purge removes (clause H3.8f)."""
    for row in look.rows("select * from underseal.operation_health h where h.kind = 'outbox-lag'"):
        if row["amount"] > 0 and row["oldest_seconds"] >= LAGGARD.total_seconds():
            yield Finding(
                "warning", "outbox", "consumer-lags", row["name"],
                f"consumer {row['name']} has {row['amount']} events to read and acknowledged none "
                f"for {int(row['oldest_seconds'])} s; none of them is purged meanwhile",
                f"see why it does not read; if it is gone: underseal outbox drop {row['name']}",
            )  # fmt: skip


def check_reports(look: Look) -> Iterator[Finding]:
    """What workers and sweeps reported to operators, until somebody clears it."""
    for row in look.rows("select * from underseal.operator_reports"):
        severity: Severity = "error" if row["kind"] in _GRAVE_REPORTS else "warning"
        yield Finding(
            severity, "reports", row["kind"], row["subject"],
            f"reported {row['times']} times, last at {row['last_at']:%Y-%m-%d %H:%M:%S %z}: {row['cause']}",
            "once it is dealt with: select * from underseal.clear_report(subject, kind, your name)",
        )  # fmt: skip
