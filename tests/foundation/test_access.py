"""Every access opens its verbs and nothing else, and some are bound to a login."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from pytest_postgresql.executors import NoopExecutor

from tests.held.sql.kernel import HASH, TYPE, Kernel, decision, outcome
from tests.held.sql.shared import rolled_back, shared_kernel
from underseal.foundation.server import Server
from underseal.testing import TestDatabase, unique_name

EVERYBODY = {
    "clock",
    "server_info",
    "canonical_json",
    "params_hash",
    "normalise_params",
    "redact_params",
    "list_operation_types",
}
READING = {"get_operation", "list_operations", "list_events"}
OUTBOX = {"register_consumer", "read_outbox", "ack_outbox"}
REWRAP = {"list_rewrap", "rewrap_operation", "rewrap_vote", "list_key_ids"}
VIEWS = {
    "pending_operations",
    "operation_timeline",
    "operation_health",
    "operator_reports",
    "audit_entries",
    "access_grants",
    "executions_by_state",
    "oldest_parks",
    "inbox_backlog",
    "wake_lag",
}
READING_EXECUTIONS = {
    "get_execution", "list_executions", "read_events", "list_inbox", "load_snapshot", "get_content",
}  # fmt: skip
CONTROL = {"cancel_execution", "migrate_execution", "record_outcome", "fork_execution"}
SCHEDULES = {"add_schedule", "list_schedules", "pause_schedule", "remove_schedule"}
DRIVING = {
    "append", "append_if_unchanged", "append_batch", "read_logs", "head", "acquire_fence", "acquire_fence_if",
    "recover_execution", "report_divergence", "save_snapshot", "put_content",
    "next_message", "consume_message", "deliver", "deliver_batch", "expire_inbox",
    "claim_due", "renew_claims", "release_claim", "release_claims", "next_due",
    "claim_schedules", "fire_schedule", "put_off_schedule",
}  # fmt: skip
KEEPING = {"read_all", "read_fold", "truncate_prefix", "sweep_content", "sweep_denials"}
OPENS = {
    "client": EVERYBODY
    | READING
    | {"begin_request", "request_operation", "cancel_operation"}
    | READING_EXECUTIONS
    | CONTROL
    | SCHEDULES
    | {"start_execution", "start_executions", "send", "resume_gate", "restore_execution"},
    "approver": EVERYBODY | READING | {"vote"},
    "worker": EVERYBODY
    | OUTBOX
    | REWRAP
    | {
        "claim_runs",
        "claim_resubmission",
        "renew_run",
        "record_progress",
        "issue_ticket",
        "consume_ticket",
        "finish_run",
        "sweep_operations",
        "report_unserved",
        "role_of",
    }
    | READING_EXECUTIONS
    | DRIVING
    | KEEPING
    | {"start_execution", "start_executions", "send", "await_operation"},
    "operator": EVERYBODY
    | OUTBOX
    | REWRAP
    | VIEWS
    | {"set_armed", "cancel_operation", "purge_operations", "drop_consumer", "clear_report"}
    | READING_EXECUTIONS
    | CONTROL
    | SCHEDULES
    | KEEPING
    | {"discard_inbox", "delete_chain", "purge_executions", "execution_denials"},
    "sealer": EVERYBODY | {"register_subject_key", "get_subjects"},
    "reader": EVERYBODY | VIEWS,
}
# Granted by others than this list's rooms, or to more of them as the rooms grow.
ELSEWHERE = {"examine_schema", "role_of"}


@pytest.fixture(scope="module")
def kernel(postgres: Server, template: NoopExecutor) -> Iterator[Kernel]:
    with shared_kernel(postgres, template.template_dbname) as kernel:
        yield kernel


@pytest.fixture
def k(kernel: Kernel) -> Iterator[Kernel]:
    with rolled_back(kernel):
        kernel.register()
        yield kernel


def role(k: Kernel, *accesses: str, principal: str | None = None) -> str:
    """A login that was granted accesses."""
    name = unique_name("role")
    with k.login(None):
        k.connection.execute(f'create role "{name}" login')
    for access in accesses:
        assert outcome(k.call("grant_access", name, access, principal)) == ("granted", None)
    return name


def opened(k: Kernel, name: str) -> set[str]:
    """What a role may call or select from, by what the catalog says."""
    rows = k.rows(
        """
        select p.proname as name from pg_proc p
        where p.pronamespace = 'underseal'::regnamespace and has_function_privilege(%s, p.oid, 'execute')
        union
        select c.relname from pg_class c
        where c.relnamespace = 'underseal'::regnamespace and c.relkind in ('r', 'v', 'S', 'm')
          and has_table_privilege(%s, c.oid, 'select, insert, update, delete, truncate')""",
        name,
        name,
    )
    return {row["name"] for row in rows} - {"test_clock"}


@pytest.mark.parametrize("access", OPENS)
def test_an_access_opens_exactly_its_verbs(k: Kernel, access: str) -> None:
    assert opened(k, role(k, access)) - ELSEWHERE == OPENS[access] - ELSEWHERE


def test_without_an_access_nothing_is_open(k: Kernel) -> None:
    stranger = role(k)
    assert opened(k, stranger) <= {"clock"}
    with k.login(stranger):
        k.refused("42501", "select * from underseal.server_info()")
        k.refused("42501", "select * from underseal.held_operation")


def test_accesses_add_up_and_are_taken_one_by_one(k: Kernel) -> None:
    both = role(k, "client", "reader")
    assert opened(k, both) - ELSEWHERE == OPENS["client"] | OPENS["reader"]
    assert outcome(k.call("revoke_access", both, "client")) == ("revoked", None)
    assert opened(k, both) - ELSEWHERE == OPENS["reader"]
    assert outcome(k.call("revoke_access", both, "client")) == ("not-found", None)
    assert outcome(k.call("revoke_access", both, "reader")) == ("revoked", None)
    assert opened(k, both) <= {"clock"}
    assert k.value("select has_schema_privilege(%s, 'underseal', 'usage')", both) is False


def test_what_a_dropped_role_had_can_be_taken_from_it(k: Kernel) -> None:
    name = role(k, "approver", "client")
    with k.login(None):
        k.connection.execute(f'drop owned by "{name}"')
        k.connection.execute(f'drop role "{name}"')
    for access in ("approver", "client"):
        assert outcome(k.call("revoke_access", name, access)) == ("revoked", None)
    assert k.rows("select from underseal.access_grant where grantee = %s", name) == []


def test_no_access_opens_a_table(k: Kernel) -> None:
    everything = role(k, *OPENS)
    tables = {
        row["name"]
        for row in k.rows(
            "select relname as name from pg_class where relnamespace = 'underseal'::regnamespace and relkind = 'r'"
        )
    }
    assert opened(k, everything) & tables == set()


@pytest.mark.clause("E15a")
def test_policies_hooks_and_grants_are_the_owner_s_alone(k: Kernel) -> None:
    everything = role(k, *OPENS)
    with k.login(everything):
        for statement in (
            "select * from underseal.register_operation_type('a', 1, 'ON_APPROVAL', '{}', '{}')",
            "select * from underseal.register_sql_operation('a', 1, '{}', '{}', null, null, null)",
            "select * from underseal.grant_access('x', 'client')",
            "select * from underseal.revoke_access('x', 'client')",
            "select * from underseal.map_login('x', 'ann')",
            "select * from underseal.map_role('ann', 'x')",
            "select * from underseal.set_role_hook(null)",
            "select * from underseal.set_denial_hook(null)",
        ):
            k.refused("42501", statement)


def test_a_grant_names_a_role_an_access_and_a_kind_of_principal(k: Kernel) -> None:
    name = role(k)
    for arguments in (("no such role", "client", None), (name, "king", None), (name, "client", "guessed")):
        with pytest.raises(psycopg.Error) as caught:
            k.call("grant_access", *arguments)
        assert caught.value.sqlstate == "US012"


@pytest.mark.clause("E13c")
def test_approvers_and_operators_are_bound_to_their_login_unless_said_otherwise(k: Kernel) -> None:
    name = role(k, *OPENS)
    grants = k.rows("select access, principal from underseal.access_grants where grantee = %s", name)
    assert {grant["access"]: grant["principal"] for grant in grants} == {
        "client": "asserted",
        "approver": "login",
        "worker": "asserted",
        "operator": "login",
        "sealer": "asserted",
        "reader": "asserted",
    }
    k.call("grant_access", name, "approver", "asserted")
    k.call("grant_access", name, "client", "login")
    grants = k.rows("select access, principal from underseal.access_grants where grantee = %s", name)
    said = {grant["access"]: grant["principal"] for grant in grants}
    assert (said["approver"], said["client"], said["operator"]) == ("asserted", "login", "login")


@pytest.mark.clause("E13a", "H4.6")
def test_an_approver_is_who_their_login_is_mapped_to(k: Kernel) -> None:
    name = role(k, "approver")
    assert outcome(k.call("map_login", name, "bob")) == ("mapped", None)
    operation = k.hold()
    with k.login(name):
        assert outcome(k.vote(operation, None)) == ("approved", None)
    assert k.operation(operation)["changed_by"] == "bob"
    operation = k.hold()
    with k.login(name):
        assert outcome(k.vote(operation, "bob")) == ("approved", None)


@pytest.mark.clause("E13b", "H4.6")
def test_an_approver_bound_to_a_login_is_nobody_else(k: Kernel) -> None:
    name = role(k, "approver")
    k.call("map_login", name, "bob")
    # What others may do is nothing to this login.
    k.call("map_login", role(k, "approver"), "carol")
    role(k, "approver", principal="asserted")
    operation = k.hold()
    before = k.everything()
    with k.login(name):
        for claimed in ("carol", "ann", "Bob", ""):
            assert outcome(k.vote(operation, claimed)) == ("denied", "no-principal")
            assert outcome(k.call("get_operation", operation, claimed)) == ("denied", "no-principal")
    assert k.everything() == before
    k.call("map_login", name, "dave")
    with k.login(name):
        assert outcome(k.vote(operation, "bob")) == ("denied", "no-principal")
    assert outcome(k.call("map_login", name, None)) == ("unmapped", None)
    with k.login(name):
        for nobody in ("bob", "dave", None):
            assert outcome(k.vote(operation, nobody)) == ("denied", "no-principal")
    assert k.everything()["held_operation"] == before["held_operation"]


@pytest.mark.clause("E13a")
def test_an_approver_whose_principal_is_asserted_says_who_votes(k: Kernel) -> None:
    name = role(k, "approver", principal="asserted")
    operation = k.hold()
    with k.login(name):
        assert outcome(k.vote(operation, None)) == ("denied", "no-principal")
        assert outcome(k.vote(operation, "")) == ("denied", "no-principal")
        assert outcome(k.vote(operation, "carol")) == ("approved", None)


@pytest.mark.clause("E13b")
def test_one_access_lends_nothing_to_another(k: Kernel) -> None:
    """A client may say whom it asks for; as an approver the same login is bound."""
    name = role(k, "client", "approver")
    operation = k.hold()
    with k.login(name):
        assert outcome(k.call("get_operation", operation, "bob")) == ("found", None)
        assert outcome(k.vote(operation, "bob")) == ("denied", "no-principal")
        assert outcome(k.cancel(operation, "olga", None, True)) == ("denied", "no-principal")
        assert outcome(k.cancel(operation, "olga", None, None)) == ("not-found", None)
        assert outcome(k.cancel(operation, "ann")) == ("cancelled", None)


@pytest.mark.clause("E13a")
def test_an_access_comes_with_membership(k: Kernel) -> None:
    group, member = role(k, "approver"), role(k)
    with k.login(None):
        k.connection.execute(f'grant "{group}" to "{member}"')
    k.call("map_login", member, "bob")
    k.call("map_login", group, "carol")
    operation = k.hold()
    with k.login(member):
        assert outcome(k.vote(operation, None)) == ("approved", None)
    assert k.operation(operation)["changed_by"] == "bob"


@pytest.mark.clause("E13a")
def test_the_login_counts_and_not_the_role_that_was_set(k: Kernel) -> None:
    name, other = role(k, "approver"), role(k, "approver")
    k.call("map_login", name, "bob")
    k.call("map_login", other, "carol")
    with k.login(None):
        k.connection.execute(f'grant "{other}" to "{name}"')
    operation = k.hold()
    with k.login(name):
        k.connection.execute(f'set local role "{other}"')
        assert outcome(k.vote(operation, None)) == ("approved", None)
        k.connection.execute("reset role")
    assert k.operation(operation)["changed_by"] == "bob"


@pytest.mark.clause("E13a", "E13b")
@pytest.mark.parametrize(
    ("access", "call"),
    [
        ("client", "begin_request('account.close', 1, 'ann')"),
        (
            "client",
            "request_operation(gen_random_uuid(), 'other', 1, '', 'ann', 's', null, '', '', '', '', '{}', '', '')",
        ),
        ("approver", "vote(gen_random_uuid(), 'bob', 'approve', null, '', 1, '{}')"),
        ("approver", "get_operation(gen_random_uuid(), 'bob')"),
        ("client", "get_operation(gen_random_uuid(), 'ann')"),
        ("client", "list_operations('ann')"),
        ("client", "list_events(gen_random_uuid(), 'ann')"),
        ("client", "cancel_operation(gen_random_uuid(), 'ann')"),
        ("worker", "claim_runs('w1', '{}', '{}', '{}')"),
        ("worker", "claim_resubmission(gen_random_uuid(), 'ann', 's', null, 'w1', '{}', '{}', '{}')"),
        ("worker", "report_unserved('w1', '{}', '{}', '{}')"),
        ("operator", "set_armed('account.close', 1, true, 'olga')"),
        ("operator", "clear_report('x', 'y', 'olga')"),
        ("operator", "cancel_operation(gen_random_uuid(), 'olga', null, true)"),
    ],
)
def test_every_verb_with_a_principal_asks_whether_this_login_may_be_it(
    k: Kernel, access: str, call: str
) -> None:
    free = role(k, access, principal="asserted")
    # What the other accesses allow is nothing to this verb, but for reading, which both of these open.
    reads = (
        {"client", "approver"}
        if access in ("client", "approver") and call.startswith(("get", "list"))
        else {access}
    )
    bound = role(k, *(set(OPENS) - reads), principal="asserted")
    for own in reads:
        k.call("grant_access", bound, own, "login")
    with k.login(free):
        assert all(outcome(row)[0] != "denied" for row in k.rows(f"select * from underseal.{call}"))
    with k.login(bound):
        (row,) = k.rows(f"select * from underseal.{call}")
        assert outcome(row) == ("denied", "no-principal")
    k.call("map_login", bound, "somebody")
    with k.login(bound):
        (row,) = k.rows(f"select * from underseal.{call}")
        assert outcome(row) == ("denied", "no-principal")


def test_a_request_bound_to_a_login_is_that_principal_s(k: Kernel) -> None:
    name = role(k, "client", principal="login")
    k.call("map_login", name, "ann")
    with k.login(name):
        assert k.call("begin_request", TYPE, 1, None)["effective_principal"] == "ann"
        answer = k.request(principal=None)
        assert outcome(k.request(principal="zed")) == ("denied", "no-principal")
    assert k.operation(answer["held_id"])["requester"] == "ann"


def test_grants_survive_that_a_function_is_dropped_and_made_again(k: Kernel) -> None:
    name = role(k, "approver")
    definition = k.value("select pg_get_functiondef('underseal.vote'::regproc)")
    k.do("drop function underseal.vote")
    k.do(definition.replace("%", "%%"))
    k.do("revoke execute on function underseal.vote from public")
    assert "vote" not in opened(k, name)
    k.do("select underseal._regrant_all()")
    assert opened(k, name) - ELSEWHERE == OPENS["approver"]


def test_the_server_says_what_it_is(k: Kernel) -> None:
    info = k.call("server_info")
    assert (info["usable"], info["now"]) == (True, k.clock.now())
    assert info["server_version"] == k.connection.info.server_version
    k.do(
        "insert into underseal.setting (key, value) values ('schema.usable', 'false')"
        " on conflict (key) do update set value = 'false'"
    )
    assert k.call("server_info")["usable"] is False


@pytest.mark.clause("E13a", "E13b", "H4.6")
def test_real_logins_do_what_their_access_opens(database: TestDatabase, db: Any, clock: Any) -> None:
    owner = Kernel(db, clock)
    owner.register()
    logins: dict[str, Kernel] = {}
    for access in OPENS:
        name = database.create_role(access)
        owner.call("grant_access", name, access)
        logins[access] = Kernel(database.connect(name), clock)
        owner.call("map_login", name, {"approver": "bob", "operator": "olga"}.get(access, access))

    begun = logins["client"].call("begin_request", TYPE, 1, "ann")
    held = logins["client"].request(policy_digest=begun["policy_digest"])
    operation = held["held_id"]
    approver, worker = logins["approver"], logins["worker"]
    assert outcome(approver.call("get_operation", operation, None)) == ("found", None)
    assert outcome(approver.vote(operation, "carol")) == ("denied", "no-principal")
    assert outcome(approver.vote(operation, None)) == ("approved", None)
    run = worker.run(operation)
    assert outcome(worker.call("renew_run", operation, run.token)) == ("renewed", None)
    assert outcome(worker.call("record_progress", operation, run.token, "half")) == ("recorded", None)
    ticket = worker.call("issue_ticket", operation, run.token)["ticket"]
    assert outcome(worker.call("consume_ticket", operation, ticket, "ann")) == ("consumed", None)
    assert outcome(worker.finish(run)) == ("finished", None)
    assert worker.calls("sweep_operations") == []
    other = logins["client"].request(policy_digest=begun["policy_digest"])["held_id"]
    assert outcome(logins["operator"].cancel(other, None, "stop", True)) == ("cancelled", None)
    assert outcome(logins["operator"].call("set_armed", TYPE, 1, False, None)) == ("set", None)
    assert logins["operator"].calls("purge_operations") == []
    assert len(logins["reader"].rows("select * from underseal.operation_timeline")) == 6

    for access, kernel in logins.items():
        may_vote = access == "approver"
        arguments = [operation, None, "approve", None, HASH, 1, decision()]
        if may_vote:
            assert outcome(kernel.call("vote", *arguments)) == ("conflict", "already-decided")
        else:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                kernel.call("vote", *arguments)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            kernel.rows("select * from underseal.held_operation")
