"""The outbox: every committed event, in positions without a gap, whatever order commits come in."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.held.sql.kernel import Kernel, outcome
from underseal.testing import OWNER, DictConnection, TestDatabase, in_background, wait_blocked


def positions(k: Kernel, consumer: str = "c", *most: int) -> list[int]:
    return [row["position"] for row in k.calls("read_outbox", consumer, *most)]


@pytest.mark.clause("H3.7a", "H3.6b")
def test_a_consumer_gets_every_event_with_all_that_it_says(k: Kernel) -> None:
    k.call("register_consumer", "c")
    operation = k.hold()
    k.clock.advance(seconds=1)
    k.reject(operation, note="not today")
    first, second = k.calls("read_outbox", "c")
    assert (first["outcome"], first["position"], first["operation_id"], first["seq"]) == (
        "event",
        1,
        operation,
        1,
    )
    assert (first["type"], first["operation_type"], first["operation_version"], first["actor"]) == (
        "requested",
        "account.close",
        1,
        "ann",
    )
    assert (second["position"], second["type"], second["from_state"], second["to_state"]) == (
        2,
        "rejected",
        "HELD",
        "REJECTED",
    )
    assert (second["cause"], second["detail"], second["recorded_at"]) == (
        "rejected",
        {"detail": "not today"},
        k.clock.now(),
    )


@pytest.mark.clause("H3.7a", "H3.7b")
def test_reading_again_gives_the_same_until_it_is_acknowledged(k: Kernel) -> None:
    k.call("register_consumer", "c")
    for _ in range(5):
        k.hold()
    assert positions(k, "c", 2) == [1, 2]
    assert positions(k, "c", 2) == [1, 2]
    assert outcome(k.call("ack_outbox", "c", 1)) == ("acknowledged", None)
    assert positions(k, "c", 2) == [2, 3]
    k.call("ack_outbox", "c", 3)
    assert positions(k) == [4, 5]
    k.call("ack_outbox", "c", 5)
    assert positions(k) == []
    k.hold()
    assert positions(k) == [6]


def test_an_older_acknowledgement_changes_nothing(k: Kernel) -> None:
    k.call("register_consumer", "c")
    for _ in range(3):
        k.hold()
    positions(k)
    k.call("ack_outbox", "c", 2)
    before = k.everything()
    answer = k.call("ack_outbox", "c", 1)
    assert (outcome(answer), answer["acknowledged"]) == (("acknowledged", None), 2)
    assert k.everything() == before


def test_what_was_never_given_cannot_be_acknowledged(k: Kernel) -> None:
    k.call("register_consumer", "c")
    k.hold()
    k.hold()
    positions(k, "c", 1)
    before = k.everything()
    assert outcome(k.call("ack_outbox", "c", 2)) == ("refused", "beyond-end")
    assert k.everything() == before
    assert outcome(k.call("ack_outbox", "c", 1)) == ("acknowledged", None)


def test_consumers_go_each_at_their_own_pace(k: Kernel) -> None:
    k.call("register_consumer", "c")
    k.call("register_consumer", "d")
    k.hold()
    k.hold()
    positions(k)
    k.call("ack_outbox", "c", 2)
    assert (positions(k, "c"), positions(k, "d")) == ([], [1, 2])


def test_a_consumer_starts_at_the_beginning_or_at_the_end(k: Kernel) -> None:
    for _ in range(3):
        k.hold()
    assert k.call("register_consumer", "all")["acknowledged"] == 0
    assert k.call("register_consumer", "news", False)["acknowledged"] == 3
    k.hold()
    assert (positions(k, "all"), positions(k, "news")) == ([1, 2, 3, 4], [4])


def test_registering_again_changes_nothing(k: Kernel) -> None:
    k.call("register_consumer", "c")
    k.hold()
    positions(k)
    k.call("ack_outbox", "c", 1)
    before = k.everything()
    answer = k.call("register_consumer", "c")
    assert (outcome(answer), answer["acknowledged"]) == (("unchanged", None), 1)
    assert k.everything() == before


def test_an_unknown_consumer_is_not_found(k: Kernel) -> None:
    k.hold()
    before = k.everything()
    assert outcome(k.call("read_outbox", "c")) == ("not-found", None)
    assert outcome(k.call("ack_outbox", "c", 1)) == ("not-found", None)
    assert outcome(k.call("drop_consumer", "c")) == ("not-found", None)
    assert k.everything() == before
    with pytest.raises(psycopg.errors.CheckViolation):
        k.call("register_consumer", "no such name!")


def test_a_dropped_consumer_is_gone(k: Kernel) -> None:
    k.call("register_consumer", "c")
    assert outcome(k.call("drop_consumer", "c")) == ("dropped", None)
    assert outcome(k.call("read_outbox", "c")) == ("not-found", None)


def other(own: Kernel, database: TestDatabase) -> Kernel:
    """A second session; one that waits too long for a lock fails."""
    return Kernel(database.connect(OWNER, options="-c lock_timeout=8s"), own.clock)


@pytest.mark.clause("H3.7a", "H3.7b", "H3.7c")
def test_commits_out_of_order_lose_nothing_and_writers_wait_for_nobody(
    own: Kernel, database: TestDatabase
) -> None:
    own.call("register_consumer", "c")
    early, late, reader = (other(own, database) for _ in range(3))
    with early.connection.transaction():
        first = early.hold()
        with late.connection.transaction():
            second = late.hold()  # would hang if writers queued behind a counter
        assert [row["operation_id"] for row in reader.calls("read_outbox", "c")] == [second]
        reader.call("ack_outbox", "c", 1)
        third = late.hold()
        assert [(row["position"], row["operation_id"]) for row in reader.calls("read_outbox", "c")] == [
            (2, third)
        ]
        reader.call("ack_outbox", "c", 2)
    assert [(row["position"], row["operation_id"]) for row in reader.calls("read_outbox", "c")] == [
        (3, first)
    ]


@pytest.mark.clause("H3.7a", "H3.7b")
def test_a_transaction_that_rolls_back_leaves_no_gap(own: Kernel, database: TestDatabase) -> None:
    own.call("register_consumer", "c")
    own.hold()
    with own.connection.transaction(force_rollback=True):
        own.hold()
    own.hold()
    assert positions(own) == [1, 2]


@pytest.mark.clause("H3.7a")
def test_within_an_operation_the_order_is_that_of_its_events(own: Kernel, database: TestDatabase) -> None:
    own.call("register_consumer", "c")
    a, b = other(own, database), other(own, database)
    one, two = own.hold(), own.hold()
    with a.connection.transaction():
        a.approve(one)
        with b.connection.transaction():
            b.approve(two)
        own.run(two)
    own.finish(own.run(one))
    seen: dict[Any, list[int]] = {}
    for row in own.calls("read_outbox", "c"):
        seen.setdefault(row["operation_id"], []).append(row["seq"])
    assert seen == {one: [1, 2, 3, 4], two: [1, 2, 3]}


@pytest.mark.clause("H3.7a", "H3.7b")
def test_a_reader_that_dies_between_read_and_ack_loses_nothing(
    own: Kernel, database: TestDatabase, admin: DictConnection
) -> None:
    own.call("register_consumer", "c")
    operations = [own.hold() for _ in range(3)]
    # One that has read and commits, and one that is killed in the middle of its transaction.
    dies = other(own, database)
    dies.connection.execute("begin")
    assert positions(dies) == [1, 2, 3]
    admin.execute("select pg_terminate_backend(%s)", [dies.connection.info.backend_pid])
    with pytest.raises(psycopg.OperationalError):
        dies.connection.execute("select 1")
    assert [row["operation_id"] for row in own.calls("read_outbox", "c")] == operations
    assert positions(own) == [1, 2, 3]


@pytest.mark.clause("H3.7b")
def test_two_readers_at_once_number_no_event_twice(
    own: Kernel, database: TestDatabase, admin: DictConnection
) -> None:
    own.call("register_consumer", "c")
    own.call("register_consumer", "d")
    a, b = other(own, database), other(own, database)
    for _ in range(3):
        own.hold()
    with a.connection.transaction():
        assert positions(a, "c", 2) == [1, 2]
        waiting = in_background(positions, b, "d")
        wait_blocked(admin, b.connection.info.backend_pid)
        own.hold()
    assert waiting.result(10) == [1, 2, 3, 4]
    assert positions(a) == [1, 2, 3, 4]


@pytest.mark.clause("H3.7c")
def test_a_reader_does_not_hold_up_writers(own: Kernel, database: TestDatabase) -> None:
    own.call("register_consumer", "c")
    own.hold()
    reader = other(own, database)
    with reader.connection.transaction():
        assert positions(reader) == [1]
        own.reach("SUCCEEDED")


@pytest.mark.clause("H3.7b")
def test_a_consumer_that_registers_during_a_purge_starts_after_it(
    own: Kernel, database: TestDatabase, admin: DictConnection
) -> None:
    own.call("register_consumer", "c")
    own.reach("CANCELLED")
    positions(own)
    own.call("ack_outbox", "c", 2)
    own.clock.advance(days=90)
    purger, newcomer = other(own, database), other(own, database)
    with purger.connection.transaction():
        assert len(purger.calls("purge_operations")) == 1
        waiting = in_background(newcomer.call, "register_consumer", "new")
        wait_blocked(admin, newcomer.connection.info.backend_pid)
    assert waiting.result(10)["acknowledged"] == 2
    own.hold()
    assert positions(newcomer, "new") == [3]


@pytest.mark.clause("H3.8d")
def test_a_purge_sees_the_consumer_that_registered_before_it(
    own: Kernel, database: TestDatabase, admin: DictConnection
) -> None:
    own.reach("CANCELLED")
    own.clock.advance(days=90)
    newcomer, purger = other(own, database), other(own, database)
    with newcomer.connection.transaction():
        newcomer.call("register_consumer", "new")
        waiting = in_background(purger.calls, "purge_operations")
        wait_blocked(admin, purger.connection.info.backend_pid)
    assert waiting.result(10) == []
    assert positions(own, "new") == [1, 2]
