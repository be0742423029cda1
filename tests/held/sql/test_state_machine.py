"""The state machine binds every writer: by hand, by MERGE, by COPY, as a replica."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from tests.held.sql.byhand import LEGAL, MERGE, STATES, UPDATE, insert, move
from tests.held.sql.kernel import ENDED, HASH, OPEN, Kernel, decision, payload
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
    role = OWNER if writer == "owner" else None
    with k.login(role, "replica" if writer == "replica" else "origin"):
        yield


@pytest.mark.clause("H3.1a", "H3.1b", "H3.2")
@pytest.mark.parametrize("statement", [UPDATE, MERGE], ids=["update", "merge"])
@WRITERS
def test_every_pair_of_states(k: Kernel, writer: str, statement: str) -> None:
    operations = {state: k.reach(state) for state in STATES if state != "EXPIRED"}
    found: dict[tuple[str, str], str | None] = {}
    with writing(k, writer):
        for before, operation in operations.items():
            for after in STATES:
                if after != before:
                    found[before, after] = move(k, statement, operation, before, after)
    # A legal change that nobody wrote the event or the votes of is refused at the commit.
    needs_votes = {("HELD", "APPROVED"), ("HELD", "REJECTED")}
    expected: dict[tuple[str, str], str | None] = {
        pair: "US002"
        if pair not in LEGAL
        else "US005"
        if pair in needs_votes or writer == "replica"
        else None
        for pair in found
    }
    assert found == expected
    assert len(found) == 81


@pytest.mark.clause("H3.1b")
def test_an_expired_row_goes_nowhere(k: Kernel) -> None:
    operation = k.reach("EXPIRED")
    assert {move(k, UPDATE, operation, "EXPIRED", after) for after in STATES if after != "EXPIRED"} == {
        "US002"
    }


@pytest.mark.clause("H3.1b")
@pytest.mark.parametrize("state", ENDED)
@WRITERS
def test_what_has_ended_stays_as_it_ended(k: Kernel, state: str, writer: str) -> None:
    operation = k.reach(state)
    with writing(k, writer):
        for change in (
            "outcome_reason = 'another'",
            "outcome_detail = 'other words'",
            "changed_by = 'hand'",
            "changed_at = underseal.clock() + interval '1 s'",
            "ended_at = ended_at - interval '91 days'",
            "effect = '{}'",
            "redacted = '{}'",
            "row_version = 2",
        ):
            k.refused(
                "US002", f"update underseal.held_operation set {change} where operation_id = %s", operation
            )
        assert (
            k.do("update underseal.held_operation set effect = effect where operation_id = %s", operation)
            == 1
        )


@pytest.mark.clause("H3.9d")
@pytest.mark.parametrize("state", [state for state in STATES if state != "HELD"])
@WRITERS
def test_a_row_never_begins_further_on(k: Kernel, state: str, writer: str) -> None:
    statement, values = insert(k, state)
    with writing(k, writer):
        k.refused("US002", statement, *values)


@pytest.mark.clause("H3.9d")
@WRITERS
def test_a_row_begins_at_version_one_sealed_and_of_a_registered_type(k: Kernel, writer: str) -> None:
    expected = {
        "row_version": ("2", "US002"),
        "sealed_payload": ('\'{"kid": "k1"}\'', "US013"),
        "type": ("'other'", "US001"),
        "type_version": ("2", "US001"),
        "mode": ("'BY_REQUESTER'", "US001"),
    }
    for column, (expression, code) in expected.items():
        statement, values = insert(k, "HELD", **{column: expression})
        with writing(k, writer):
            k.refused(code, statement, *values)
    statement, values = insert(k, "HELD")
    with writing(k, writer):
        if writer == "replica":
            k.refused("US005", statement, *values)
        else:
            assert k.do(statement, *values) == 1


@pytest.mark.clause("H3.9b")
@pytest.mark.parametrize("state", ["APPROVED", "EXECUTING", "SUCCEEDED", "REJECTED"])
@WRITERS
def test_copy_brings_in_no_row_that_is_further_on(k: Kernel, state: str, writer: str) -> None:
    operation = k.reach(state)
    with writing(k, writer):
        line = k.value("select o::text from underseal.held_operation o where operation_id = %s", operation)
        assert state in line
        with k.connection.cursor() as cursor:
            with cursor.copy("copy underseal.held_operation to stdout") as copy:
                rows = [bytes(row) for row in copy if str(operation).encode() in bytes(row)]
            (row,) = rows
            fresh = row.replace(str(operation).encode(), b"11111111-1111-1111-1111-111111111111")
            with (
                pytest.raises(psycopg.Error) as caught,
                k.connection.transaction(),
                cursor.copy("copy underseal.held_operation from stdin") as copy,
            ):
                copy.write(fresh)
    assert caught.value.sqlstate == "US002"


IDENTITY = {
    "operation_id": "gen_random_uuid()",
    "type": "'other'",
    "type_version": "2",
    "mode": "'BY_REQUESTER'",
    "requester": "'zed'",
    "auth_kind": "'token'",
    "token_id": "'t2'",
    "params_hash": "sha256('x')",
    "policy_digest": "sha256('x')",
    "votes_required": "2",
    "run_within": "'1 day'",
    "state_key": "'s2'",
    "requested_at": "requested_at + interval '1 s'",
    "expires_at": "expires_at + interval '1 s'",
    "request_audit_id": "gen_random_uuid()",
}


@pytest.mark.clause("H3.3")
@pytest.mark.parametrize("state", OPEN)
@WRITERS
def test_the_identity_of_an_operation_never_changes(k: Kernel, state: str, writer: str) -> None:
    operation = k.reach(state)
    with writing(k, writer):
        for column, value in IDENTITY.items():
            k.refused(
                "US003",
                f"update underseal.held_operation set {column} = {value} where operation_id = %s",
                operation,
            )


@pytest.mark.clause("H3.3")
def test_the_identity_does_not_change_along_with_the_state(k: Kernel) -> None:
    run = k.executing()
    k.refused(
        "US003",
        "update underseal.held_operation set state = 'FAILED', ended_at = underseal.clock(), sealed_payload = null,"
        " payload_key_id = null, fingerprint = null, fingerprint_key_id = null, requester = 'zed'"
        " where operation_id = %s",
        run.operation,
    )


def set_seal(seal: Any, **more: str) -> tuple[str, list[Any]]:
    columns = {"sealed_payload": "%s", "payload_key_id": "%s", **more}
    kid = None if seal is None else seal.obj["kid"]
    assignments = ", ".join(f"{column} = {value}" for column, value in columns.items())
    return f"update underseal.held_operation set {assignments}", [seal, kid]


@pytest.mark.clause("H3.4a", "H3.4d")
@pytest.mark.parametrize("state", OPEN)
@WRITERS
def test_a_seal_is_replaced_only_alone_and_under_another_key(k: Kernel, state: str, writer: str) -> None:
    k.reach(state)
    with writing(k, writer):
        for seal, more in (
            (payload(content="dcba"), {}),
            (decision("k2"), {}),
            (payload("k2"), {"outcome_detail": "'by the way'"}),
            (payload("k2"), {"redacted": "'{}'"}),
            (payload("k2"), {"fingerprint": "sha256('x')"}),
            (payload("k2"), {"changed_at": "underseal.clock() + interval '1 s'"}),
        ):
            statement, values = set_seal(seal, **more)
            k.refused("US006", statement, *values)
        k.refused("US006", "update underseal.held_operation set fingerprint = sha256('x')")
        statement, values = set_seal(payload("k2"))
        assert k.do(statement, *values) == 1
        assert (
            k.do("update underseal.held_operation set fingerprint = sha256('x'), fingerprint_key_id = 'f2'")
            == 1
        )


@pytest.mark.clause("H3.4a")
@pytest.mark.parametrize(("before", "after"), [("HELD", "APPROVED"), ("APPROVED", "EXECUTING")])
@WRITERS
def test_a_seal_does_not_change_along_with_an_open_state(
    k: Kernel, before: str, after: str, writer: str
) -> None:
    operation = k.reach(before)
    statement = UPDATE.replace("coalesce(o.sealed_payload, %(seal)s)", "%(seal)s").replace(
        "coalesce(o.payload_key_id, 'k1')", "%(seal)s::jsonb ->> 'kid'"
    )
    with writing(k, writer):
        assert move(k, UPDATE, operation, before, after) in (None, "US005")
        assert move(
            k,
            statement.replace("%(seal)s", f"'{json.dumps(payload('k2').obj)}'::jsonb"),
            operation,
            before,
            after,
        ) == ("US006")


@pytest.mark.clause("H3.4b", "H3.4c")
@pytest.mark.parametrize("state", OPEN)
@WRITERS
def test_a_payload_is_wiped_by_the_end_alone(k: Kernel, state: str, writer: str) -> None:
    operation = k.reach(state)
    with writing(k, writer):
        statement, values = set_seal(None)
        k.refused("US006", statement, *values)
        k.refused("US006", f"{statement}, fingerprint = null, fingerprint_key_id = null", *values)
        ended = "CANCELLED" if state != "EXECUTING" else "FAILED"
        # The end without the wipe, a wipe that leaves the payload, and one that leaves the fingerprint.
        k.refused(
            "23514",
            "update underseal.held_operation set state = %s, ended_at = underseal.clock() where operation_id = %s",
            ended,
            operation,
        )
        k.refused(
            "23514",
            "update underseal.held_operation set state = %s, ended_at = underseal.clock(),"
            " changed_at = underseal.clock(), fingerprint = null, fingerprint_key_id = null where operation_id = %s",
            ended,
            operation,
        )
        k.refused(
            "23514",
            f"{statement}, state = %s, ended_at = underseal.clock() where operation_id = %s",
            *values,
            ended,
            operation,
        )


@pytest.mark.clause("H3.4c")
def test_an_ended_row_gets_no_payload_again(k: Kernel) -> None:
    k.reach("CANCELLED")
    statement, values = set_seal(payload())
    k.refused("US002", f"{statement}, fingerprint = sha256('x'), fingerprint_key_id = 'f1'", *values)


def test_the_key_column_says_what_the_seal_s_header_says(k: Kernel) -> None:
    k.reach("HELD")
    k.refused(
        "23514",
        "update underseal.held_operation set sealed_payload = %s, payload_key_id = 'k3'",
        payload("k2"),
    )


@pytest.mark.clause("H2.9a", "H2.9b")
@WRITERS
def test_what_approvers_see_raises_the_version_and_nothing_else_does(k: Kernel, writer: str) -> None:
    operation = k.hold()
    with writing(k, writer):
        for version, change in enumerate(
            ("redacted = '{}'", "effect = '{}'", "redacted = '1', effect = '1'"), 2
        ):
            assert k.do(f"update underseal.held_operation set {change}") == 1
            assert k.operation(operation)["row_version"] == version
        assert k.do("update underseal.held_operation set redacted = '2', row_version = 99") == 1
        assert k.operation(operation)["row_version"] == 5
        for version in (1, 4, 6):
            k.refused("US003", "update underseal.held_operation set row_version = %s", version)


@pytest.mark.clause("H2.9a", "H2.9b")
@WRITERS
def test_what_approvers_saw_stays_after_the_first_vote(bare: Kernel, writer: str) -> None:
    bare.register(votes_required=2)
    operation = bare.hold()
    bare.approve(operation)
    approved = bare.hold()
    bare.approve(approved)
    bare.approve(approved, "carol")
    with writing(bare, writer):
        for which in (operation, approved):
            for column in ("redacted", "effect"):
                bare.refused(
                    "US003",
                    f"update underseal.held_operation set {column} = '{{}}' where operation_id = %s",
                    which,
                )


def test_what_approvers_saw_does_not_change_along_with_the_state(k: Kernel) -> None:
    k.hold()
    k.refused(
        "US003",
        "update underseal.held_operation set state = 'CANCELLED', ended_at = underseal.clock(), sealed_payload = null,"
        " payload_key_id = null, fingerprint = null, fingerprint_key_id = null, redacted = '{}'",
    )


@pytest.mark.clause("H9.3b")
@WRITERS
def test_a_run_deadline_is_set_by_the_approval_alone(k: Kernel, writer: str) -> None:
    states = {"HELD": k.reach("HELD"), "APPROVED": k.reach("APPROVED"), "EXECUTING": k.reach("EXECUTING")}
    with writing(k, writer):
        for operation in states.values():
            for change in (
                "approved_at = underseal.clock() + interval '1 s',"
                " run_deadline = coalesce(run_deadline, underseal.clock())",
                "run_deadline = underseal.clock() + interval '9 days',"
                " approved_at = coalesce(approved_at, underseal.clock())",
            ):
                k.refused(
                    "US003",
                    f"update underseal.held_operation set {change} where operation_id = %s",
                    operation,
                )


RUN_COLUMNS = {
    "run_id": "gen_random_uuid()",
    "run_audit_id": "gen_random_uuid()",
    "run_worker": "'w9'",
    "run_token_hash": "sha256('x')",
}


@pytest.mark.clause("H8.2b")
@WRITERS
def test_a_run_is_set_by_its_claim_alone(k: Kernel, writer: str) -> None:
    operation = k.reach("EXECUTING")
    with writing(k, writer):
        for column, value in RUN_COLUMNS.items():
            k.refused(
                "US003",
                f"update underseal.held_operation set {column} = {value} where operation_id = %s",
                operation,
            )
            assert (
                move(
                    k,
                    UPDATE.replace(
                        f"{column} = case when %(run)s then coalesce(o.{column}",
                        f"{column} = case when true then coalesce({value}",
                    ),
                    operation,
                    "EXECUTING",
                    "FAILED",
                )
                == "US003"
            )


@WRITERS
def test_a_lease_changes_only_while_it_runs(k: Kernel, writer: str) -> None:
    operation = k.reach("EXECUTING")
    later = "underseal.clock() + interval '1 day'"
    with writing(k, writer):
        ending = UPDATE.replace("coalesce(o.run_lease_until, underseal.clock() + interval '1 h')", later)
        assert move(k, ending, operation, "EXECUTING", "SUCCEEDED") == "US003"
        assert (
            k.do(
                f"update underseal.held_operation set run_lease_until = {later} where operation_id = %s",
                operation,
            )
            == 1
        )


@pytest.mark.clause("H3.8c", "H3.8g")
@WRITERS
def test_an_operation_is_deleted_only_by_the_rules_of_retention(k: Kernel, writer: str) -> None:
    rows = {state: k.reach(state) for state in (*OPEN, "CANCELLED")}
    delete = "delete from underseal.held_operation where operation_id = %s"
    with writing(k, writer):
        for operation in rows.values():
            k.refused("US007", delete, operation)
    k.clock.advance(days=90, microseconds=-1)
    with writing(k, writer):
        k.refused("US007", delete, rows["CANCELLED"])
    k.clock.advance(microseconds=1)
    with writing(k, writer):
        for operation in rows.values():
            k.refused("US007", delete, operation)
        k.do("delete from underseal.held_event where operation_id = %s", rows["CANCELLED"])
        assert k.do(delete, rows["CANCELLED"]) == 1
        for state in OPEN:
            k.refused("US007", "delete from underseal.held_event where operation_id = %s", rows[state])
            k.refused("US007", delete, rows[state])


@pytest.mark.clause("H3.8c", "H3.8g")
@pytest.mark.parametrize("state", [*OPEN, "CANCELLED"])
def test_an_operation_whose_children_are_gone_is_kept_all_the_same(k: Kernel, state: str) -> None:
    operation = k.reach(state)
    with k.login(None):
        for table in ("held_event", "held_vote"):
            k.connection.execute(f"alter table underseal.{table} disable trigger user")
            k.connection.execute(f"delete from underseal.{table}")
    k.clock.advance(days=90 if state != "CANCELLED" else 89)
    assert state in k.refused("US007", "delete from underseal.held_operation") or state == "CANCELLED"
    assert k.state(operation) == state


@pytest.mark.clause("H3.8g")
@pytest.mark.parametrize("child", ["held_event", "held_vote", "replay_ticket"])
def test_an_operation_goes_after_its_children(k: Kernel, child: str) -> None:
    run = k.executing()
    k.call("issue_ticket", run.operation, run.token)
    k.finish(run)
    k.clock.advance(days=90)
    for other in ("held_event", "held_vote", "replay_ticket"):
        if other != child:
            k.do(f"delete from underseal.{other}")
    k.refused("US007", "delete from underseal.held_operation")
    k.do(f"delete from underseal.{child}")
    assert k.do("delete from underseal.held_operation") == 1


@WRITERS
def test_operations_are_never_truncated(k: Kernel, writer: str) -> None:
    k.reach("CANCELLED")
    k.clock.advance(days=90)
    with writing(k, writer):
        k.refused("US004", "truncate underseal.held_operation")
        k.refused("US004", "truncate underseal.held_operation cascade")


@pytest.mark.clause("H3.5b", "H3.6b")
def test_a_change_of_state_by_hand_writes_its_event(k: Kernel) -> None:
    operation = k.hold()
    k.do(
        "update underseal.held_operation set state = 'CANCELLED', changed_by = 'dba', ended_at = underseal.clock(),"
        " sealed_payload = null, payload_key_id = null, fingerprint = null, fingerprint_key_id = null"
    )
    assert k.events(operation) == ["requested", "cancelled"]
    assert k.timeline(operation)[-1]["actor"] == "dba"


@pytest.mark.clause("H3.5c")
def test_as_a_replica_the_event_must_come_with_the_change(k: Kernel) -> None:
    operation = k.hold()
    change = (
        "update underseal.held_operation set state = 'CANCELLED', changed_by = 'dba', ended_at = underseal.clock(),"
        " sealed_payload = null, payload_key_id = null, fingerprint = null, fingerprint_key_id = null"
    )
    event = (
        "insert into underseal.held_event (operation_id, seq, type, actor, from_state, to_state, recorded_at)"
        " values (%s, 2, 'cancelled', 'dba', %s, 'CANCELLED', underseal.clock())"
    )
    with writing(k, "replica"):
        k.refused("US005", change)
        for wrong, code in ((None, "US002"), ("APPROVED", "US005")):
            with pytest.raises(psycopg.Error) as caught:
                k.together((change, []), (event, [operation, wrong]))
            assert caught.value.sqlstate == code
        k.together((change, []), (event, [operation, "HELD"]))
    assert k.events(operation) == ["requested", "cancelled"]


@pytest.mark.clause("H3.5c")
@pytest.mark.parametrize("role", ["origin", "replica"])
def test_the_event_is_looked_for_at_a_real_commit(
    own: Kernel, admin: psycopg.Connection[Any], role: str
) -> None:
    operation = own.hold()
    admin.execute(f"set session_replication_role = {role}")
    admin.execute("alter table underseal.held_operation disable trigger held_operation_record_update")
    with pytest.raises(psycopg.Error) as caught, admin.transaction():
        admin.execute(
            "update underseal.held_operation set state = 'CANCELLED', ended_at = underseal.clock(),"
            " sealed_payload = null, payload_key_id = null, fingerprint = null, fingerprint_key_id = null"
        )
    assert caught.value.sqlstate == "US005"
    assert own.state(operation) == "HELD"


@pytest.mark.clause("H3.5c", "H4.1c")
def test_an_approval_by_hand_needs_its_votes(bare: Kernel) -> None:
    bare.register(votes_required=2)
    operation = bare.hold()
    bare.approve(operation)
    assert move(bare, UPDATE, operation, "HELD", "APPROVED") == "US005"
    assert move(bare, UPDATE, operation, "HELD", "REJECTED") == "US005"
    assert bare.operation(operation)["params_hash"] == HASH


@pytest.mark.clause("H3.5c")
def test_a_rejection_does_not_stand_in_for_an_approval(bare: Kernel) -> None:
    bare.register(rejections_to_end=2)
    operation = bare.hold()
    bare.reject(operation)
    assert move(bare, UPDATE, operation, "HELD", "APPROVED") == "US005"
    assert move(bare, UPDATE, operation, "HELD", "REJECTED") is None
