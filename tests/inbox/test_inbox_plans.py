"""What the verbs of the inbox read: what they need by an index, however much waits elsewhere."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pytest_postgresql.executors import NoopExecutor

from tests.held.sql.shared import shared_kernel
from tests.inbox.box import OWNER, Box, box
from underseal.foundation.server import Server

LINES = 100
EACH = 200


@pytest.fixture(scope="module")
def crowd(postgres: Server, template: NoopExecutor) -> Iterator[Box]:
    """A parked execution among many, in each of whose inboxes much waits."""
    with shared_kernel(postgres, template.template_dbname) as kernel:
        for _ in range(LINES):
            one = box(kernel)
            one.fill("z", EACH)
        one.park(w=["a", "b", 60.0], w2=["c"])
        kernel.connection.execute("vacuum analyze")
        yield one


# what each reads of 20,000 messages, at most; a send to a topic counts what waits there, up to its backlog
CALLS = {
    "send": ("select * from underseal.send(%(id)s, 'a', '1', %(owner)s)", 10),
    "send-to-a-long-topic": ("select * from underseal.send(%(id)s, 'z', '1', %(owner)s)", EACH + 10),
    "deliver": ("select * from underseal.deliver(%(id)s, 1)", 20),
    "deliver-batch": (
        "select * from underseal.deliver_batch(json_build_array("
        "json_build_object('execution_id', %(id)s::text, 'fence', 1)))",
        20,
    ),
    "next": ("select * from underseal.next_message(%(id)s, 1)", 10),
    "expire": ("select * from underseal.expire_inbox()", 0),
    "discard": ("select * from underseal.discard_inbox(%(id)s, 'b', 'op')", 10),
    "list": ("select * from underseal.list_inbox(%(id)s, %(owner)s, null, 150, 10)", 10),
}
READ = (
    "select seq_tup_read as scanned, coalesce(idx_tup_fetch, 0) as fetched"
    " from pg_stat_xact_user_tables where relid = 'underseal.inbox_message'::regclass"
)


@pytest.mark.parametrize(("call", "most"), CALLS.values(), ids=CALLS.keys())
def test_a_call_reads_no_more_of_the_inbox_than_it_needs(crowd: Box, call: str, most: int) -> None:
    with crowd.k.connection.transaction(force_rollback=True):
        crowd.put("b")
        crowd.put("c")
        (before,) = crowd.k.rows(READ)
        crowd.k.connection.execute(call.encode(), {"id": crowd.id, "owner": OWNER})
        (after,) = crowd.k.rows(READ)
    assert after["scanned"] == before["scanned"]
    assert after["fetched"] - before["fetched"] <= most
