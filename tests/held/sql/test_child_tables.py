"""Votes, events, tickets, the outbox: what their triggers refuse, whoever writes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.held.sql.kernel import Kernel, decision, payload
from underseal.testing import OWNER

WRITERS = pytest.mark.parametrize(
    "writer",
    [
        pytest.param("owner", marks=pytest.mark.clause("H3.9a")),
        pytest.param("replica", marks=pytest.mark.clause("H3.9c")),
    ],
)


@contextmanager
def writing(k: Kernel, writer: str) -> Iterator[None]:
    """Be the tables' owner, or a superuser whose session says it is a replica."""
    with k.login(OWNER if writer == "owner" else None, "replica" if writer == "replica" else "origin"):
        yield


VOTE = """
  insert into underseal.held_vote (operation_id, approver, decision, params_hash, row_version, cast_at, sealed_decision,
    decision_key_id)
  values ({operation}, {approver}, {decision}, {params_hash}, {row_version}, {cast_at}, %(seal)s, %(kid)s)"""


def vote(k: Kernel, held: Any, **changes: str) -> str:
    row = k.operation(held)
    values = {
        "operation": f"'{held}'",
        "approver": f"'{row['changed_by']}'",
        "decision": "'approve'",
        "params_hash": f"'\\x{row['params_hash'].hex()}'",
        "row_version": str(row["row_version"]),
        "cast_at": f"'{row['changed_at'].isoformat()}'",
    }
    return VOTE.format(**{**values, **changes}).replace("%(kid)s", "'k1'")


def seal_of(statement: str, seal: Any) -> tuple[str, list[Any]]:
    return statement.replace("%(seal)s", "%s"), [seal]


@pytest.mark.clause("H4.3a")
@WRITERS
def test_a_vote_belongs_to_the_change_that_it_made(k: Kernel, writer: str) -> None:
    operation = k.hold()
    k.do(
        "update underseal.held_operation set changed_by = 'dave', changed_at = underseal.clock() + interval '1 s'"
    )
    with writing(k, writer):
        for code, change, seal in (
            ("US002", {"approver": "'erin'"}, decision()),
            ("US002", {"cast_at": "underseal.clock()"}, decision()),
            ("US002", {"operation": "gen_random_uuid()"}, decision()),
            ("US002", {"params_hash": "sha256('x')"}, decision()),
            ("US002", {"row_version": "2"}, decision()),
            ("US013", {}, payload()),
            ("23514", {"decision": "'reject'"}, decision()),
        ):
            statement, values = seal_of(vote(k, operation, **change), seal)
            k.refused(code, statement, *values)
        statement, values = seal_of(vote(k, operation, decision="'abstain'"), decision())
        assert "held_vote_decision_known" in k.refused("23514", statement, *values)
        statement, values = seal_of(vote(k, operation), decision())
        assert k.do(statement, *values) == 1
        k.refused("23505", statement, *values)


@pytest.mark.clause("H4.3a")
@WRITERS
def test_the_table_takes_no_vote_of_the_requester(k: Kernel, writer: str) -> None:
    operation = k.hold()
    statement, values = seal_of(vote(k, operation), decision())
    assert k.operation(operation)["changed_by"] == "ann"
    with writing(k, writer):
        k.refused("US002", statement, *values)


@pytest.mark.clause("H4.1a")
@pytest.mark.parametrize("state", ["EXECUTING", "CANCELLED", "SUCCEEDED"])
@WRITERS
def test_the_table_takes_no_vote_on_what_is_past_voting(k: Kernel, state: str, writer: str) -> None:
    operation = k.reach(state)
    statement, values = seal_of(vote(k, operation), decision())
    with writing(k, writer):
        k.refused("US002", statement.replace("'ann'", "'bob'"), *values)
        k.refused("US002", statement, *values)


@pytest.mark.clause("H2.2a")
@WRITERS
def test_a_vote_stays_as_it_was_cast(bare: Kernel, writer: str) -> None:
    bare.register(votes_required=2)
    operation = bare.hold()
    bare.vote(operation, "bob", "approve", "yes")
    with writing(bare, writer):
        for change in (
            "operation_id = gen_random_uuid()",
            "approver = 'dave'",
            "decision = 'reject'",
            "reason = 'other'",
            "params_hash = sha256('x')",
            "row_version = 2",
            "cast_at = cast_at + interval '1 s'",
        ):
            bare.refused("US004", f"update underseal.held_vote set {change}")
            bare.refused(
                "US004",
                f"update underseal.held_vote set {change}, sealed_decision = %s, decision_key_id = 'k2'",
                decision("k2"),
            )
        bare.refused("US004", "update underseal.held_vote set sealed_decision = %s", decision(content="dcba"))
        bare.refused(
            "US004",
            "update underseal.held_vote set sealed_decision = %s, decision_key_id = 'k2'",
            payload("k2"),
        )
        bare.refused(
            "23514",
            "update underseal.held_vote set sealed_decision = %s, decision_key_id = 'k3'",
            decision("k2"),
        )
        bare.refused("US007", "delete from underseal.held_vote")
        bare.refused("US004", "truncate underseal.held_vote")
        assert (
            bare.do(
                "update underseal.held_vote set sealed_decision = %s, decision_key_id = 'k2'", decision("k2")
            )
            == 1
        )
    bare.cancel(operation)
    with writing(bare, writer):
        bare.refused(
            "US004",
            "update underseal.held_vote set sealed_decision = %s, decision_key_id = 'k4'",
            decision("k4"),
        )


@pytest.mark.clause("H3.8g")
@WRITERS
def test_children_are_deleted_90_days_after_the_end(k: Kernel, writer: str) -> None:
    run = k.executing()
    k.call("issue_ticket", run.operation, run.token)
    tables = ("held_vote", "replay_ticket", "held_event_pending", "held_event")
    k.clock.advance(days=400)
    with writing(k, writer):
        for table in tables:
            code = "US004" if table == "held_event_pending" else "US007"
            k.refused(code, f"delete from underseal.{table}")
    k.clock.advance(days=-400)
    k.finish(run)
    k.clock.advance(days=90, microseconds=-1)
    with writing(k, writer):
        for table in tables:
            code = "US004" if table == "held_event_pending" else "US007"
            k.refused(code, f"delete from underseal.{table}")
    k.clock.advance(microseconds=1)
    with writing(k, writer):
        for table in tables:
            assert k.do(f"delete from underseal.{table}") > 0


EVENT = """
  insert into underseal.held_event (operation_id, seq, type, actor, from_state, to_state, recorded_at)
  values (%s, %s, %s, 'hand', %s, %s, underseal.clock())"""


@pytest.mark.clause("H3.6a", "H3.5b")
@WRITERS
def test_an_event_is_the_next_and_leads_to_the_state_there_is(k: Kernel, writer: str) -> None:
    operation = k.reach("APPROVED")
    with writing(k, writer):
        k.refused("US002", EVENT, operation, 3, "claimed", "APPROVED", "EXECUTING")
        k.refused("US002", EVENT, operation, 3, "late-finish", "HELD", "HELD")
        k.refused("23505", EVENT, operation, 3, "approved", "HELD", "APPROVED")
        k.refused("US002", EVENT, "11111111-1111-1111-1111-111111111111", 1, "requested", None, "HELD")
        for no_change in ("celebrated", "voted", "late-finish", "approved"):
            k.refused("US002", EVENT, operation, 3, no_change, "APPROVED", "APPROVED")
        k.refused("US002", EVENT, operation, 3, "requested", "HELD", "APPROVED")
    held = k.hold()
    with writing(k, writer):
        for seq in (0, 1, 3):
            k.refused("US002", EVENT, held, seq, "voted", "HELD", "HELD")
        assert k.do(EVENT, held, 2, "voted", "HELD", "HELD") == 1


@pytest.mark.clause("H3.5a")
@WRITERS
def test_events_are_append_only(k: Kernel, writer: str) -> None:
    operation = k.hold()
    with writing(k, writer):
        for change in ("actor = 'zed'", "seq = 2", "recorded_at = recorded_at", "detail = null"):
            k.refused("US004", f"update underseal.held_event set {change}")
        k.refused("US007", "delete from underseal.held_event")
        assert "underseal.held_event " in k.refused("US004", "truncate underseal.held_event cascade")
        k.refused(
            "US004",
            "merge into underseal.held_event e using (select 1) as one on e.operation_id = %s"
            " when matched then update set actor = 'zed'",
            operation,
        )
        k.refused(
            "US007",
            "merge into underseal.held_event e using (select 1) as one on e.operation_id = %s when matched then delete",
            operation,
        )
    k.cancel(operation)
    with writing(k, writer):
        k.refused("US004", "update underseal.held_event set actor = 'zed'")
        k.refused("US007", "delete from underseal.held_event")


@pytest.mark.clause("H3.8d", "H3.8g")
@WRITERS
def test_an_event_that_a_consumer_has_not_heard_is_not_deleted(k: Kernel, writer: str) -> None:
    k.call("register_consumer", "c")
    k.reach("CANCELLED")
    k.clock.advance(days=90)
    with writing(k, writer):
        k.refused("US007", "delete from underseal.held_event")
        k.refused("US004", "delete from underseal.held_event_pending")
    k.calls("read_outbox", "c")
    k.call("ack_outbox", "c", 1)
    with writing(k, writer):
        k.refused("US007", "delete from underseal.held_event where seq = 2")
        assert k.do("delete from underseal.held_event where seq = 1") == 1
    k.call("ack_outbox", "c", 2)
    with writing(k, writer):
        assert k.do("delete from underseal.held_event where seq = 2") == 1


@pytest.mark.clause("H3.7a")
@WRITERS
def test_an_event_waits_until_it_is_numbered_and_keeps_its_number(k: Kernel, writer: str) -> None:
    k.call("register_consumer", "c")
    k.reach("CANCELLED")
    with writing(k, writer):
        k.refused("US004", "delete from underseal.held_event_pending")
        k.refused("US004", "update underseal.held_event_pending set seq = seq + 1")
        k.refused("US004", "truncate underseal.held_event_pending")
    k.calls("read_outbox", "c")
    with writing(k, writer):
        k.refused("US004", "delete from underseal.held_event_position")
        k.refused("US004", "update underseal.held_event_position set position = position + 10")
        k.refused("US004", "truncate underseal.held_event_position")
        k.refused("US004", "delete from underseal.outbox_head")
        k.refused("US004", "truncate underseal.outbox_head")
        k.refused("US004", "update underseal.outbox_head set last_position = 1")
        k.refused("US004", "update underseal.outbox_head set purged_through = -1")
        k.refused("23514", "insert into underseal.outbox_head (only_row) values (false)")


@pytest.mark.clause("H6.6b")
@WRITERS
def test_a_ticket_is_used_once_and_otherwise_stays(k: Kernel, writer: str) -> None:
    run = k.executing()
    k.call("issue_ticket", run.operation, run.token)
    with writing(k, writer):
        for change in (
            "operation_id = gen_random_uuid()",
            "run_id = gen_random_uuid()",
            "principal = 'zed'",
            "ticket_hash = sha256('x')",
            "issued_at = issued_at + interval '1 s'",
        ):
            k.refused(
                "US004", f"update underseal.replay_ticket set {change}, consumed_at = underseal.clock()"
            )
            k.refused("US004", f"update underseal.replay_ticket set {change}")
        k.refused("US004", "update underseal.replay_ticket set consumed_at = null")
        k.refused("US007", "delete from underseal.replay_ticket")
        k.refused("US004", "truncate underseal.replay_ticket")
        assert k.do("update underseal.replay_ticket set consumed_at = underseal.clock()") == 1
        k.refused("US004", "update underseal.replay_ticket set consumed_at = underseal.clock()")
        k.refused("US004", "update underseal.replay_ticket set consumed_at = null")


TICKET = """
  insert into underseal.replay_ticket (operation_id, run_id, principal, ticket_hash, issued_at, consumed_at)
  select o.operation_id, {run}, {principal}, sha256('t'), underseal.clock(), {consumed}
  from underseal.held_operation o where o.operation_id = %s"""


@pytest.mark.clause("H6.6c", "H6.6d")
@WRITERS
def test_a_ticket_is_issued_to_the_present_run_of_the_requester(k: Kernel, writer: str) -> None:
    good = {"run": "o.run_id", "principal": "o.requester", "consumed": "null"}
    run = k.executing()
    over = k.executing()
    k.finish(over)
    with writing(k, writer):
        for change in (
            {"run": "gen_random_uuid()"},
            {"principal": "'bob'"},
            {"consumed": "underseal.clock()"},
        ):
            k.refused("US002", TICKET.format(**{**good, **change}), run.operation)
        k.refused("US002", TICKET.format(**good), over.operation)
        assert k.do(TICKET.format(**good), run.operation) == 1


@WRITERS
def test_the_settings_of_the_table_constraints_hold(k: Kernel, writer: str) -> None:
    k.executing()
    with writing(k, writer):
        k.refused("23514", "update underseal.held_operation set result = '1'")
        k.refused("23514", "update underseal.held_operation set outcome_detail = repeat('x', 8193)")
        k.refused("23514", "update underseal.held_operation set outcome_reason = repeat('x', 1025)")


@pytest.mark.clause("H3.6a")
def test_an_event_is_of_a_known_type_also_where_no_trigger_looks(k: Kernel) -> None:
    operation = k.hold()
    with k.login(None):
        k.connection.execute("alter table underseal.held_event disable trigger user")
        k.refused("23514", EVENT, operation, 2, "celebrated", "HELD", "HELD")
