"""A worker claims what it can drive: of each flow the versions up to its own."""

from __future__ import annotations

from collections.abc import Sequence

import psycopg
import pytest

from tests.wake.wakes import FLOW, MINUTE, Row, Wakes, claimed, outcome
from underseal.testing import OWNER, TestClock, TestDatabase
from underseal.wake.async_client import AsyncClaims
from underseal.wake.client import Claims

NEWER = 10_000


def claim(
    w: Wakes, flows: Sequence[str], versions: Sequence[int | None] | None, most: int = 100
) -> list[Row]:
    """`claim_due` with versions."""
    return w.rows(
        "select * from underseal.claim_due('w1', %s::text[], %s, %s, %s::integer[])",
        list(flows), MINUTE, most, None if versions is None else list(versions),
    )  # fmt: skip


@pytest.mark.clause("E6g")
@pytest.mark.parametrize(
    ("versions", "found"),
    [
        (None, ["a", "b", "c"]),
        ([None], ["a", "b", "c"]),
        ([3], ["a", "b", "c"]),
        ([2], ["a", "b"]),
        ([1], ["a"]),
        ([0], []),
    ],
)
def test_newer_versions_are_left_to_others(
    w: Wakes, versions: list[int | None] | None, found: list[str]
) -> None:
    for version, one in enumerate("abc", start=1):
        w.start(one, flow_version=version)
    assert sorted(claimed(claim(w, [FLOW], versions))) == found


@pytest.mark.clause("E6g")
def test_each_flow_has_its_own_newest_version(w: Wakes) -> None:
    for flow in ("x", "y", "z"):
        for version in (1, 2):
            w.start(f"{flow}{version}", flow=flow, flow_version=version)
    assert sorted(claimed(claim(w, ["x", "y", "z"], [1, 2, None]))) == ["x1", "y1", "y2", "z1", "z2"]


@pytest.mark.clause("E6g")
def test_a_flow_named_twice_is_claimed_up_to_the_newer_of_its_versions(w: Wakes) -> None:
    for version in (1, 2, 3):
        w.start(f"a{version}", flow_version=version)
    assert sorted(claimed(claim(w, [FLOW, FLOW], [1, 2]))) == ["a1", "a2"]
    assert claimed(claim(w, [FLOW, FLOW], [1, None])) == ["a3"]


@pytest.mark.clause("E6g")
def test_what_migrated_goes_by_its_version_now(w: Wakes) -> None:
    w.start("a", flow_version=1)
    w.rows(
        "insert into underseal.event (chain_id, member, seq, recorded_at, type, data)"
        " values ('a', '', 1, underseal.clock(), 'EXECUTION_MIGRATED', '{\"flow_version\": 2}')"
    )
    assert claim(w, [FLOW], [1]) == []
    assert claimed(claim(w, [FLOW], [2])) == ["a"]


@pytest.mark.clause("E6g")
def test_waits_and_messages_too(w: Wakes, clock: TestClock) -> None:
    for version, one in enumerate("ab", start=1):
        w.start(one, flow_version=version)
    for found in w.claim():
        w.park(found, {"topic": "news"}, {"for": 5})
    clock.advance(seconds=6)
    w.message("a")
    w.message("b")
    assert claimed(claim(w, [FLOW], [1])) == ["a"]


@pytest.mark.clause("E6g")
def test_newer_ones_take_nobodys_place(w: Wakes, clock: TestClock) -> None:
    w.start(*(f"new{n}" for n in range(20)), flow_version=2)
    clock.advance(seconds=1)
    w.start("old1", "old2")
    assert sorted(claimed(claim(w, [FLOW], [1], most=2))) == ["old1", "old2"]


@pytest.mark.clause("E6g")
def test_newer_ones_of_one_flow_take_no_place_of_another(w: Wakes) -> None:
    w.start(*(f"x{n}" for n in range(9)), flow="x", flow_version=2)
    w.start(*(f"y{n}" for n in range(4)), flow="y")
    assert sorted(claimed(claim(w, ["x", "y"], [1, 1], most=4))) == ["y0", "y1", "y2", "y3"]


@pytest.mark.clause("E6g")
@pytest.mark.parametrize("versions", [[], [1, 1]])
def test_a_version_for_each_flow_or_none(w: Wakes, versions: list[int]) -> None:
    w.start("a")
    (row,) = claim(w, [FLOW], versions)
    assert outcome(row) == ("refused", "malformed-claim")
    assert "versions" in row["message"]


@pytest.mark.clause("E6g")
def test_a_crowd_of_newer_ones_is_walked_by_the_index_alone(w: Wakes, database: TestDatabase) -> None:
    with psycopg.connect(database.conninfo, autocommit=True) as admin:
        admin.execute(
            "insert into underseal.event (chain_id, member, seq, recorded_at, type, data) select 'n' || n, '', 0,"
            " underseal.clock(), 'EXECUTION_STARTED', json_build_object('flow', %s::text, 'flow_version', 2,"
            " 'owner', 'ann', 'input', null) from generate_series(1, %s) n",
            [FLOW, NEWER],
        )
        admin.execute("vacuum analyze underseal.wake, underseal.execution")
    w.start(*(f"old{n}" for n in range(10)))
    with psycopg.connect(database.conninfo_as(OWNER)) as connection:
        counts = (
            "select pg_stat_get_xact_numscans('underseal.execution'::regclass)"
            " + pg_stat_get_xact_numscans('underseal.wake'::regclass),"
            " pg_stat_get_xact_tuples_returned('underseal.wake_due'::regclass)"
        )
        before = connection.execute(counts).fetchone()
        rows = connection.execute(
            "select * from underseal.claim_due('w', %s, '1 minute', 10, '{1}')", [[FLOW]]
        ).fetchall()
        after = connection.execute(counts).fetchone()
        connection.rollback()
    assert before
    assert after
    assert len(rows) == 10
    assert after[0] == before[0]
    # to find how many there are, and to lock them; the way past those that others will take cannot be avoided
    assert after[1] - before[1] <= 2 * (NEWER + 100)


def test_the_client_says_its_versions(w: Wakes, database: TestDatabase) -> None:
    for version, one in enumerate("ab", start=1):
        w.start(one, flow_version=version)
    with Claims(database.conninfo_as(OWNER)) as client:
        assert [found.execution_id for found in client.claim_due("w", [FLOW], versions=[1])] == ["a"]
        with pytest.raises(ValueError, match="versions"):
            client.claim_due("w", [FLOW], versions=[1, 2])
        assert [found.execution_id for found in client.claim_due("w", [FLOW])] == ["b"]


async def test_the_client_for_asyncio_does_too(w: Wakes, database: TestDatabase) -> None:
    for version, one in enumerate("ab", start=1):
        w.start(one, flow_version=version)
    async with AsyncClaims(database.conninfo_as(OWNER)) as client:
        assert [found.execution_id for found in await client.claim_due("w", [FLOW], versions=[1])] == ["a"]
