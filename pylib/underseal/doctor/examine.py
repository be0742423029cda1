"""The examination: every check in turn, each on its own, so that one that cannot be made stops no other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import psycopg

from underseal.doctor.access import check_access, check_grants, check_hooks
from underseal.doctor.code import check_functions, check_parsed, check_triggers
from underseal.doctor.keys import check_keys
from underseal.doctor.look import CannotCheckError, Look
from underseal.doctor.model import SEVERITIES, Finding, Report, Skipped
from underseal.doctor.providers import check_providers
from underseal.doctor.release import check_release
from underseal.doctor.server import check_clock, check_settings
from underseal.doctor.tables import check_tables
from underseal.doctor.work import check_outbox, check_reports, check_work
from underseal.foundation.kernel import Kernel, installed_kernel
from underseal.held.kinds import PythonKind
from underseal.seal import KeyRing

_NOT_ALLOWED = (
    psycopg.errors.InsufficientPrivilege,
    psycopg.errors.UndefinedFunction,
    psycopg.errors.UndefinedTable,
    psycopg.errors.ReadOnlySqlTransaction,
)


def examine(
    connection: psycopg.Connection[Any],
    *,
    ring: KeyRing | None = None,
    kinds: Mapping[str, PythonKind] | None = None,
    kernel: Kernel | None = None,
) -> Report:
    """Examine an installation. Nothing is changed: each query is read-only or rolled back.

    It sees most with the schema owner's login; with one that has operator and reader access it sees all but what is
    noted as skipped.

    Parameters:
        connection: an idle connection in autocommit mode.
        ring: the key ring that workers use, to see whether every key is there.
        kinds: the types that an application gates, by name, to see whether they are registered as they are.
        kernel: what should be installed; this package's files by default.

    Returns: what was found, what was looked at, and what could not be.

    Errors:
        psycopg.OperationalError: the connection is gone.
    """
    look = Look(connection, kernel or installed_kernel())
    checks: Mapping[str, Callable[[], Iterable[Finding]]] = {
        "release": lambda: check_release(look),
        "functions": lambda: check_functions(look),
        "views": lambda: check_parsed(look),
        "triggers": lambda: check_triggers(look),
        "tables": lambda: check_tables(look),
        "grants": lambda: check_grants(look),
        "access": lambda: check_access(look),
        "hooks": lambda: check_hooks(look),
        "providers": lambda: check_providers(look, kinds),
        "keys": lambda: check_keys(look, ring),
        "work": lambda: check_work(look),
        "outbox": lambda: check_outbox(look),
        "reports": lambda: check_reports(look),
        "clock": lambda: check_clock(look),
        "settings": lambda: check_settings(look),
    }
    checked: list[str] = []
    findings: list[Finding] = []
    skipped: list[Skipped] = []
    for name, check in checks.items():
        try:
            # One by one: what a check has found before it cannot go on is kept.
            for finding in check():
                findings.append(finding)  # noqa: PERF402
            checked.append(name)
        except CannotCheckError as error:
            skipped.append(Skipped(name, str(error)))
        except _NOT_ALLOWED as error:
            skipped.append(Skipped(name, f"the database said: {error.diag.message_primary}"))
    findings.sort(key=lambda one: (SEVERITIES.index(one.severity), one.check, one.what, one.subject))
    return Report(tuple(checked), tuple(findings), tuple(skipped))
