"""What operators are told: the first time, and then every 16th."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pytest_postgresql.executors import NoopExecutor

from tests.held.sql.kernel import Kernel, outcome
from tests.held.sql.shared import rolled_back, shared_kernel
from underseal.foundation.server import Server


@pytest.fixture(scope="module")
def kernel(postgres: Server, template: NoopExecutor) -> Iterator[Kernel]:
    with shared_kernel(postgres, template.template_dbname) as kernel:
        yield kernel


@pytest.fixture
def k(kernel: Kernel) -> Iterator[Kernel]:
    with rolled_back(kernel):
        yield kernel


def report(k: Kernel, subject: str = "it", kind: str = "broken", cause: str = "why") -> bool:
    due: bool = k.value("select underseal._report(%s, %s, %s)", subject, kind, cause)
    return due


@pytest.mark.clause("H5.5d")
def test_a_report_is_due_first_and_then_every_16th_time(k: Kernel) -> None:
    assert [number for number in range(1, 50) if report(k)] == [1, 16, 32, 48]


def test_each_subject_and_kind_is_counted_by_itself(k: Kernel) -> None:
    assert report(k)
    assert report(k, kind="slow")
    assert report(k, subject="other")
    assert not report(k)


def test_the_view_tells_the_latest_cause_and_how_often(k: Kernel) -> None:
    first = k.clock.now()
    report(k, cause="one")
    k.clock.advance(seconds=5)
    report(k, cause="two")
    report(k, subject="earlier")
    k.clock.advance(seconds=-9)
    report(k, subject="earliest")
    rows = k.rows("select * from underseal.operator_reports where subject = 'it'")
    assert rows == [
        {
            "subject": "it",
            "kind": "broken",
            "cause": "two",
            "times": 2,
            "first_at": first,
            "last_at": rows[0]["last_at"],
        }
    ]
    assert (rows[0]["last_at"] - first).total_seconds() == 5
    assert k.rows("select subject from underseal.operator_reports")[-1]["subject"] == "earliest"


def test_a_cleared_report_begins_again(k: Kernel) -> None:
    report(k)
    report(k)
    assert outcome(k.call("clear_report", "it", "other", "olga")) == ("not-found", None)
    assert outcome(k.call("clear_report", "it", "broken", None)) == ("denied", "no-principal")
    assert not report(k)
    assert outcome(k.call("clear_report", "it", "broken", "olga")) == ("cleared", None)
    assert report(k)
