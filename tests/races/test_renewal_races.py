"""A driver's claim is renewed while the driver writes: what its worker was told of stays."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from psycopg.types.json import Json

from tests.races.log_audit import audit
from tests.races.log_rivals import LEASE, OWNER, Ring, told
from tests.races.test_log_race_cases import meet, parking

pytestmark = pytest.mark.clause("T4b", "E8a")


def until(ring: Ring, chain: str) -> Any:
    """Until when the claim of its run holds."""
    sql = "select claimed_until from underseal.wake where chain_id = %s and kind = 'drive' and claimed_by = 'node-1'"
    (row,) = ring.c.rows(sql, chain)
    return row["claimed_until"]


@pytest.mark.parametrize("undone", [False, True])
def test_a_park_that_is_answered_at_once_keeps_a_renewal_that_it_waited_for(
    log_ring: Ring, undone: bool
) -> None:
    case = log_ring.stage("running")
    (claim,) = log_ring.c.calls("claim_due", "node-1", [case.flow], LEASE, 1)
    log_ring.c.call("send", case.id, "bell", Json("rings"), OWNER)
    case.seen["fence"] = claim["fence"]
    before = until(log_ring, case.chain)
    log_ring.clock.advance(seconds=20)
    _, parked = meet(
        log_ring,
        lambda rival: rival.calls("renew_claims", "node-1", [case.id], LEASE),
        parking(case, {"topic": "bell"}),
        undone=undone,
    )
    assert told(parked) == [("answered", None)]
    later = until(log_ring, case.chain) - before
    assert (later >= timedelta(seconds=20)) != undone
    audit(case.world(log_ring.admin))
