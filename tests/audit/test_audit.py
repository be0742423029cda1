"""Audit entries are only ever added, and each follows from its cause."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pytest_postgresql.executors import NoopExecutor

from tests.held.sql.kernel import Kernel
from tests.held.sql.shared import rolled_back, shared_kernel
from underseal.foundation.server import Server
from underseal.testing import OWNER


@pytest.fixture(scope="module")
def kernel(postgres: Server, template: NoopExecutor) -> Iterator[Kernel]:
    with shared_kernel(postgres, template.template_dbname) as kernel:
        yield kernel


@pytest.fixture
def k(kernel: Kernel) -> Iterator[Kernel]:
    with rolled_back(kernel):
        kernel.register()
        yield kernel


@pytest.mark.clause("H6.7e")
@pytest.mark.parametrize(("role", "replication"), [(OWNER, "origin"), (None, "origin"), (None, "replica")])
def test_entries_are_only_added(k: Kernel, role: str | None, replication: str) -> None:
    k.finish(k.executing())
    k.clock.advance(days=4000)
    with k.login(role, replication):
        for change in (
            "principal = 'zed'",
            "detail = '{}'",
            "recorded_at = recorded_at",
            "id = gen_random_uuid()",
        ):
            k.refused("US004", f"update underseal.audit_entry set {change}")
        k.refused("US004", "delete from underseal.audit_entry")
        k.refused("US004", "truncate underseal.audit_entry")


ENTRY = """
  insert into underseal.audit_entry (operation_id, id, parent_id, action, principal, detail, recorded_at)
  values (%s, gen_random_uuid(), %s, %s, 'ann', '{}', underseal.clock())"""


@pytest.mark.clause("H6.7a")
def test_an_entry_has_a_parent_of_its_own_operation_unless_it_is_a_request(k: Kernel) -> None:
    operation, other = k.hold(), k.hold()
    (request,) = k.audit(operation, "request")
    k.refused("23514", ENTRY, operation, None, "run")
    k.refused("23514", ENTRY, operation, request["id"], "request")
    k.refused("23503", ENTRY, other, request["id"], "run")
    k.refused("23514", ENTRY, operation, request["id"], "dream")
    assert k.do(ENTRY, operation, request["id"], "run") == 1


@pytest.mark.clause("H6.7a", "H6.9")
def test_the_view_tells_the_trail_in_order_and_in_the_requester_s_name(k: Kernel) -> None:
    run = k.executing()
    k.clock.advance(seconds=1)
    k.call("record_progress", run.operation, run.token, "half")
    k.clock.advance(seconds=1)
    k.finish(run)
    trail = k.rows(
        "select * from underseal.audit_entries where operation_id = %s order by recorded_at, parent_id nulls first",
        run.operation,
    )
    assert [entry["action"] for entry in trail] == ["request", "run", "progress", "result"]
    assert {entry["principal"] for entry in trail} == {"ann"}
    assert [entry["parent_id"] for entry in trail] == [None, trail[0]["id"], trail[1]["id"], trail[1]["id"]]
