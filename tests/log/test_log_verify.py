"""`verify`: every difference between the tables and the log is told, and nothing else is (clause E4)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from tests.held.sql.kernel import Kernel
from tests.log.world import WHO, World, undone_world
from underseal.errors import ExecutionDeniedError
from underseal.foundation.steps import Steps
from underseal.log import batch, kernel, verbs
from underseal.log.model import LogEvent

pytestmark = pytest.mark.clause("E4c")

MARKER = '{"seal": {"v": 1, "cipher": "x", "covers": ["STEP.n"]}}'


@pytest.fixture
def world(log_kernel: Kernel) -> Iterator[World]:
    """Executions as the schema's owner sees them, for one test."""
    with undone_world(log_kernel) as world:
        yield world


def plant(world: World, table: str, statement: str) -> None:
    """Change a table by hand, without what its triggers would do or refuse."""
    run = world.connection.execute
    run("set constraints all immediate")
    run(f"alter table underseal.{table} disable trigger user".encode())
    assert run(statement.encode()).rowcount > 0
    run(f"alter table underseal.{table} enable trigger user".encode())


def told(world: World, execution_id: str = "c") -> set[str]:
    """What is told to be different."""
    found = world.verify(execution_id)
    assert (found.outcome == "different") == bool(found.differences)
    return {difference.what for difference in found.differences}


def with_inbox(world: World) -> int:
    """Let an execution be parked, with a message delivered and one discarded."""
    fence = world.started()
    for number in range(3):
        world.executions.send("c", "t", number, WHO, message_id=f"m{number}", connection=world.connection)
    world.write(batch.park_item("c", fence, [batch.wait("a", batch.topic("t"))]))
    world.executions.discard("c", "t", WHO, inbox_seq=2, connection=world.connection)
    world.write(batch.park_item("c", fence, [batch.wait("b", batch.sleep(timedelta(hours=1)))]))
    assert world.view("c").fold["status"] == "suspended"
    assert told(world) == set()
    return fence


# -- what is the same ---------------------------------------------------------------------------------


def test_an_execution_in_each_status_is_verified(world: World) -> None:
    world.parked("suspended")
    world.started("running")
    world.write(batch.start_item("pending", "f", WHO))
    for name, make in (
        ("done", batch.complete_item),
        ("failed", batch.fail_item),
        ("over", batch.cancelled_item),
        ("next", batch.continue_item),
    ):
        world.write(make(name, world.started(name)))
    for name in world.ids:
        assert world.verify(name).outcome == "verified", name


@pytest.mark.clause("E9c", "E4b")
def test_a_compacted_log_is_folded_from_its_snapshot(world: World) -> None:
    fence = with_inbox(world)
    head = world.view("c").fold["head"]
    world.driver.save_snapshot("c", fence, head, {"n": 2}, connection=world.connection)
    assert world.verify("c").since is None
    done = world.executions.compact("c", head + 1, None, connection=world.connection)
    assert (done.outcome, done.log_start) == ("truncated", head + 1)
    world.advance(3601)
    world.driver.deliver("c", fence, connection=world.connection)
    found = world.verify("c")
    assert (found.outcome, found.since) == ("verified", head)
    plant(world, "execution", "update underseal.execution set recoveries = 7")
    assert told(world) == {"recoveries"}


def test_an_execution_that_goes_on_meanwhile_is_verified_as_it_was(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    fence = world.started()
    read = verbs.events
    moved: list[str] = []

    def events(*args: Any) -> Steps[list[LogEvent]]:
        if not moved:
            world.advance(1)
            moved.extend(world.write(batch.append_item("c", fence, [batch.event("STEP")])))
        return read(*args)

    monkeypatch.setattr(verbs, "events", events)
    assert world.verify("c").outcome == "verified"
    assert moved == ["appended"]


# -- what is not --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("line", "'x'"),
        ("flow", "'g'"),
        ("flow_version", "9"),
        ("owner", "'bob'"),
        ("owner", "null"),
        ("status", "'running'"),
        ("head", "head + 1"),
        ("head", "head - 1"),
        ("sealed", "true"),
        ("cancel_requested", "true"),
        ("recoveries", "1"),
        ("waits", "null"),
        ("waits", "'[]'"),
        ("started_at", "started_at + interval '1 microsecond'"),
        ("changed_at", "changed_at - interval '1 microsecond'"),
    ],
)
def test_a_folded_column_that_was_changed_by_hand_is_told(world: World, column: str, value: str) -> None:
    with_inbox(world)
    plant(world, "execution", f"update underseal.execution set {column} = {value}")
    assert column in told(world)
    (difference,) = [one for one in world.verify("c").differences if one.what == column]
    assert difference.tables != difference.log


@pytest.mark.clause("I2a", "I2b")
@pytest.mark.parametrize(
    ("what", "table", "statement"),
    [
        ("inbox.cursors", "inbox_cursor", "update underseal.inbox_cursor set inbox_seq = inbox_seq - 1"),
        ("inbox.cursors", "inbox_cursor", "update underseal.inbox_cursor set topic = 'u'"),
        ("inbox.cursors", "inbox_cursor", "delete from underseal.inbox_cursor"),
        ("inbox.seen", "inbox_seen", "update underseal.inbox_seen set inbox_seq = inbox_seq + 5"),
        ("inbox.seen", "inbox_seen", "update underseal.inbox_seen set message_key = sha256(message_key)"),
        ("inbox.seen", "inbox_seen", "delete from underseal.inbox_seen where inbox_seq = 2"),
    ],
)
def test_a_cursor_or_a_remembered_key_that_was_changed_by_hand_is_told(
    world: World, what: str, table: str, statement: str
) -> None:
    with_inbox(world)
    plant(world, table, statement)
    assert told(world) == {what}


@pytest.mark.clause("I6a")
def test_a_line_that_goes_on_with_another_is_told(world: World) -> None:
    world.write(batch.continue_item("c", world.started()))
    assert [told(world, name) for name in ("c", "c~2")] == [set(), set()]
    plant(world, "execution", "update underseal.execution set current_member = null where member = ''")
    assert told(world, "c") == {"current_member", "inbox"}
    assert told(world, "c~2") == {"current_member", "inbox"}


@pytest.mark.clause("I1a")
def test_a_number_of_the_inbox_that_went_back_is_told(world: World) -> None:
    with_inbox(world)
    plant(world, "execution", "update underseal.execution set last_inbox_seq = 2")
    assert told(world) == {"last_inbox_seq"}


def test_a_changed_event_is_told(world: World) -> None:
    world.parked()
    plant(
        world,
        "event",
        "update underseal.event set data = '{\"waits\": []}' where type = 'EXECUTION_SUSPENDED'",
    )
    assert told(world) == {"waits"}


@pytest.mark.parametrize(
    "statement",
    [
        "delete from underseal.event where seq = 1",
        "delete from underseal.event where seq = 0",
        "update underseal.event set type = 'EXECUTION_COMPLETED' where seq = 1",
        "update underseal.event set data = '{}' where type = 'EXECUTION_SUSPENDED'",
    ],
)
def test_a_log_that_is_none_is_told(world: World, statement: str) -> None:
    world.parked()
    plant(world, "event", statement)
    assert "log" in told(world)


@pytest.mark.clause("E9c")
def test_a_snapshot_of_another_fold_is_told(world: World) -> None:
    fence = with_inbox(world)
    world.driver.save_snapshot("c", fence, world.view("c").fold["head"], {}, connection=world.connection)
    assert told(world) == set()
    plant(world, "snapshot", "update underseal.snapshot set fold = fold || '{\"recoveries\": 3}'")
    assert told(world) == {"snapshot"}


@pytest.mark.clause("E9c")
def test_a_compacted_log_without_its_snapshot_is_told(world: World) -> None:
    fence = world.started()
    world.driver.save_snapshot("c", fence, 2, {}, connection=world.connection)
    world.executions.compact("c", 2, None, connection=world.connection)
    plant(world, "snapshot", "delete from underseal.snapshot")
    (difference,) = world.verify("c").differences
    assert (difference.what, difference.log) == (
        "log",
        "a compacted log without a snapshot that covers what is gone",
    )


# -- wakes --------------------------------------------------------------------------------------------


@pytest.mark.clause("E7b")
@pytest.mark.parametrize(
    "statement",
    [
        "delete from underseal.wake where kind = 'timer'",
        "update underseal.wake set wake_at = wake_at + interval '1 second'",
    ],
)
def test_a_timer_that_would_not_ring_is_told(world: World, statement: str) -> None:
    world.parked()
    plant(world, "wake", statement)
    assert told(world) == {"wake"}


@pytest.mark.clause("E8a")
def test_an_execution_nobody_would_drive_is_told(world: World) -> None:
    world.started()
    plant(world, "wake", "delete from underseal.wake")
    assert told(world) == {"wake"}


def test_a_timer_that_was_given_back_with_a_delay_is_no_difference(world: World) -> None:
    world.parked()
    world.advance(3600)
    assert world.kernel.call("claim_due", "w1", ["f"], "1 minute")["kind"] == "timer"
    assert told(world) == set()
    assert world.kernel.call("release_claim", "c", "w1", "5 minutes")["outcome"] == "released"
    assert told(world) == set()
    world.advance(300)
    assert world.kernel.call("claim_due", "w1", ["f"], "1 minute")["attempts"] == 1
    assert world.kernel.call("release_claim", "c", "w1")["outcome"] == "released"
    assert told(world) == set()


def test_a_wake_of_an_execution_that_has_ended_is_told(world: World) -> None:
    world.write(batch.complete_item("c", world.started()))
    plant(
        world,
        "wake",
        "insert into underseal.wake (chain_id, member, kind, flow, wake_at) values ('c', '', 'drive', 'f', now())",
    )
    assert told(world) == {"wake"}


@pytest.mark.clause("E7b")
def test_a_clock_that_goes_back_delays_nothing(world: World) -> None:
    fence = world.started()
    world.advance(-3600)
    world.write(batch.append_item("c", fence, [batch.event("STEP")]))
    world.parked("d")
    world.advance(-3600)
    world.executions.send("d", "t", 1, WHO, connection=world.connection)
    world.driver.deliver("d", 1, connection=world.connection)
    assert [told(world, name) for name in "cd"] == [set(), set()]
    due = world.kernel.value(
        "select max(wake_at) <= underseal.clock() from underseal.wake where chain_id = 'd'"
    )
    assert due


# -- what cannot be told ------------------------------------------------------------------------------


def test_a_log_that_does_not_open_here_is_unverifiable(world: World) -> None:
    world.started()
    world.connection.execute(
        "insert into underseal.event (chain_id, member, seq, recorded_at, type, data, metadata)"
        " values ('c', '', 3, underseal.clock(), 'STEP', '{}', %s::jsonb)",
        [MARKER],
    )
    assert world.verify("c").outcome == "unverifiable"
    plant(world, "wake", "delete from underseal.wake")
    assert told(world) == {"wake"}


@pytest.mark.clause("E9c")
def test_a_sealed_snapshot_alone_is_unverifiable(world: World) -> None:
    fence = world.started()
    world.driver.save_snapshot("c", fence, 2, {}, connection=world.connection)
    plant(world, "snapshot", f"update underseal.snapshot set metadata = '{MARKER}'")
    assert world.verify("c").outcome == "verified"
    world.executions.compact("c", 2, None, connection=world.connection)
    assert world.verify("c").outcome == "unverifiable"


# -- who may ask --------------------------------------------------------------------------------------


@pytest.mark.clause("E12c")
def test_a_stranger_is_told_nothing(world: World) -> None:
    world.parked()
    answers = []
    for execution_id in ("c", "nothing"):
        with pytest.raises(ExecutionDeniedError) as caught:
            world.executions.verify(execution_id, "bob", connection=world.connection)
        answers.append((caught.value.op, caught.value.reason, str(caught.value)))
    assert answers[0] == answers[1]
    causes = world.kernel.rows("select d.cause from underseal.execution_denial d order by d.denial_id")
    assert [row["cause"] for row in causes] == ["foreign", "missing"]


@pytest.mark.clause("E12a")
def test_an_operator_is_told(world: World) -> None:
    world.parked()
    role = "verify_operator"
    world.connection.execute("set local session authorization default")
    world.connection.execute(f"create role {role} login".encode())
    world.connection.execute("select underseal.grant_access(%s, 'operator')", [role])
    world.connection.execute("select underseal.map_login(%s, 'olga')", [role])
    with world.kernel.login(role):
        row = world.do(kernel.read_fold("c", "olga"))
    assert row["outcome"] == "fold"
