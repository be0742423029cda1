"""Requests that meet requests, policies and purges."""

from __future__ import annotations

from uuid import uuid4

import pytest

from tests.held.sql.kernel import HOLD_FOR, Kernel, Row, outcome
from tests.races.arena import Arena


@pytest.mark.clause("H7.2a", "T4a")
def test_of_two_same_requests_the_second_gets_the_first_s_row(arena: Arena) -> None:
    mark = uuid4().bytes * 2
    one, other = arena.race(
        lambda k: k.request(type=arena.type, fingerprint=mark),
        lambda k: k.request(type=arena.type, fingerprint=mark),
    )
    assert (outcome(one), outcome(other)) == (("held", None), ("duplicate", None))
    assert other["held_id"] == one["held_id"]
    assert len(arena.a.rows("select from underseal.held_operation where fingerprint = %s", mark)) == 1


@pytest.mark.clause("T4a")
def test_the_second_is_held_if_the_first_is_undone(arena: Arena) -> None:
    mark = uuid4().bytes * 2
    one, other = arena.race(
        lambda k: k.request(type=arena.type, fingerprint=mark),
        lambda k: k.request(type=arena.type, fingerprint=mark),
        rollback=True,
    )
    assert outcome(other) == ("held", None)
    assert other["held_id"] != one["held_id"]
    assert len(arena.a.audit(other["held_id"], "request")) == 1


@pytest.mark.clause("T4a")
def test_of_two_requests_with_one_id_the_second_is_refused(arena: Arena) -> None:
    chosen = uuid4()
    one, other = arena.race(
        lambda k: k.request(chosen, type=arena.type), lambda k: k.request(chosen, type=arena.type)
    )
    assert (outcome(one), outcome(other)) == (("held", None), ("conflict", "id-taken"))


@pytest.mark.clause("H7.4a", "T4a")
def test_two_requesters_with_one_fingerprint_never_share_a_row(arena: Arena) -> None:
    mark = uuid4().bytes * 2
    one, other = arena.race(
        lambda k: k.request(type=arena.type, fingerprint=mark),
        lambda k: k.request(type=arena.type, fingerprint=mark, principal="zed"),
    )
    assert (outcome(one), outcome(other)) == (("held", None), ("conflict", "fingerprint-taken"))
    assert (other["held_id"], other["live_payload"]) == (None, None)


@pytest.mark.clause("T4a")
def test_a_request_behind_the_end_of_its_duplicate_is_held(arena: Arena) -> None:
    mark = uuid4().bytes * 2
    first = arena.held(fingerprint=mark)
    one, other = arena.race(lambda k: k.cancel(first), lambda k: k.request(type=arena.type, fingerprint=mark))
    assert (outcome(one), outcome(other)) == (("cancelled", None), ("held", None))


@pytest.mark.clause("T4a")
def test_a_request_and_a_change_of_policy_do_not_wait_and_the_stricter_counts(arena: Arena) -> None:
    digest = arena.a.digest(arena.type)
    with arena.a.connection.transaction():
        assert outcome(arena.a.register(arena.type, votes_required=2)) == ("updated", None)
        held: Row = arena.b.request(type=arena.type, policy_digest=digest)
    assert outcome(held) == ("held", None)
    assert outcome(arena.b.request(type=arena.type, policy_digest=digest)) == ("conflict", "policy-changed")
    assert outcome(arena.b.approve(held["held_id"])) == ("recorded", None)


@pytest.mark.clause("T4a")
def test_a_change_of_policy_does_not_wait_for_a_request(arena: Arena) -> None:
    with arena.a.connection.transaction():
        held = arena.held()
        assert outcome(arena.b.register(arena.type, votes_required=2)) == ("updated", None)
    assert outcome(arena.b.approve(held)) == ("recorded", None)


@pytest.mark.clause("H6.1b", "T4a")
def test_a_type_switched_off_during_a_request_runs_nothing_of_it(arena: Arena) -> None:
    with arena.a.connection.transaction():
        held = arena.held()
        arena.b.call("set_armed", arena.type, 1, False)
    arena.a.approve(held)
    (row,) = arena.claim(arena.a, held)
    assert row["armed"] is False


@pytest.mark.clause("H3.7a", "H3.8d", "T4a")
def test_a_purge_and_a_reader(arena: Arena) -> None:
    k = arena.a
    consumer = f"c{arena.type}"
    k.call("register_consumer", consumer, False)
    operation = arena.held()
    k.cancel(operation)
    last = k.calls("read_outbox", consumer)[-1]["position"]
    arena.clock.advance(days=90)
    arena.held()

    # The reader holds the outbox while it numbers; the purge waits, and leaves what was not acknowledged.
    read, purged = arena.race(
        lambda k: k.calls("read_outbox", consumer, 1000), lambda k: k.calls("purge_operations", 1000)
    )
    assert {row["operation_id"] for row in read} >= {operation}
    assert operation not in {row["operation_id"] for row in purged}

    # The purge goes first; the reader waits, and sees no gap after what it acknowledged.
    k.call("ack_outbox", consumer, last)
    arena.held()
    gone, seen = arena.race(
        lambda k: k.calls("purge_operations", 1000), lambda k: k.calls("read_outbox", consumer, 1000)
    )
    assert operation in {row["operation_id"] for row in gone}
    positions = [row["position"] for row in seen]
    assert positions == list(range(last + 1, last + 1 + len(positions)))
    assert len(positions) >= 2
    k.call("drop_consumer", consumer)


@pytest.mark.clause("H3.8b", "T4a")
def test_two_purges_share_no_row(arena: Arena) -> None:
    operations = {arena.held() for _ in range(4)}
    for operation in operations:
        arena.a.cancel(operation)
    arena.clock.advance(days=90)

    def purge(k: Kernel, most: int) -> set[object]:
        return {row["operation_id"] for row in k.calls("purge_operations", most)}

    one, other = arena.race(lambda k: purge(k, 2), lambda k: purge(k, 1000))
    assert one & other == set()
    assert (one | other) >= operations


@pytest.mark.clause("H5.5d", "T4a")
def test_two_reports_of_one_thing_are_counted_both(arena: Arena) -> None:
    operation = arena.approved()

    def report(k: Kernel) -> list[str]:
        rows = k.calls("report_unserved", "w1", [arena.type], [1], ["other-key"])
        return [row["outcome"] for row in rows if row["operation_id"] == operation]

    assert arena.race(report, report) == (["reported"], ["quiet"])


@pytest.mark.clause("H1.7f", "T4a")
def test_a_request_that_waited_for_the_sweep_of_its_duplicate_is_held(arena: Arena) -> None:
    """It was found open and overdue before the lock; what counts is what it is under the lock."""
    mark = uuid4().bytes * 2
    first = arena.held(fingerprint=mark)
    arena.clock.advance(seconds=HOLD_FOR)
    swept, other = arena.race(arena.sweep, lambda k: k.request(type=arena.type, older_fingerprints=[mark]))
    assert swept == {first: "expired"}
    assert outcome(other) == ("held", None)
