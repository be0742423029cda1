"""Doctor is silent about what is right, and finds each fault that is planted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from tests.cli.shop import Shop, make
from underseal.doctor import Finding, Report, examine
from underseal.foundation.install import migrate
from underseal.seal import FileKeyRing
from underseal.testing import OWNER, DictConnection, TestClock, TestDatabase

# The servers that tests run on may lose commits, and the roles of these tests are few.
EXPECTED = {"commit-not-durable", "principal-asserted"}
# What a test clock is to doctor.
CLOCKED = {"function-changed", "clock-replaced", "clock-skew", "table-granted"}


# Name → the fault, and the finding's `what` and `subject`.
FAULTS = {
    "disabled-trigger": (
        "alter table underseal.held_operation disable trigger held_operation_check_update",
        "trigger-disabled",
        "held_operation.held_operation_check_update",
    ),
    "trigger-at-the-origin": (
        "alter table underseal.held_operation enable trigger held_operation_check_update",
        "trigger-disabled",
        "held_operation.held_operation_check_update",
    ),
    "trigger-on-replicas": (
        "alter table underseal.held_event enable replica trigger held_event_queue",
        "trigger-disabled",
        "held_event.held_event_queue",
    ),
    "missing-trigger": (
        "drop trigger held_vote_check on underseal.held_vote",
        "trigger-missing",
        "held_vote.held_vote_check",
    ),
    "narrower-trigger": (
        "create or replace trigger held_vote_check before insert on underseal.held_vote for each row "
        "execute function underseal._check_held_vote(); "
        "alter table underseal.held_vote enable always trigger held_vote_check",
        "trigger-changed",
        "held_vote.held_vote_check",
    ),
    "foreign-trigger": (
        "create trigger extra before insert on underseal.held_vote for each row execute function "
        "suppress_redundant_updates_trigger()",
        "trigger-unknown",
        "held_vote.extra",
    ),
    "function-body": (
        "create or replace function underseal._retention() returns interval language sql immutable as $$"
        " select interval '9 days' $$",
        "function-changed",
        "_retention",
    ),
    "parsed-body": (
        "create or replace function underseal._is_envelope(value jsonb, fmt text) returns boolean "
        "language sql immutable parallel safe return true",
        "function-changed",
        "_is_envelope",
    ),
    "definer": (
        "alter function underseal._owner() security definer",
        "function-rights",
        "_owner",
    ),
    "search-path": (
        "alter function underseal._owner() set search_path = public",
        "function-settings",
        "_owner",
    ),
    "function-owner": (
        "alter function underseal._owner() owner to postgres",
        "function-owner",
        "_owner",
    ),
    "missing-function": (
        "drop function underseal.clear_report(text, text, text)",
        "function-missing",
        "clear_report",
    ),
    "foreign-function": (
        "create function underseal.extra() returns int language sql set search_path = pg_catalog, "
        "pg_temp as 'select 1'; "
        "revoke all on function underseal.extra() from public; "
        "alter function underseal.extra() owner to underseal_owner",
        "function-unknown",
        "extra",
    ),
    "view-body": (
        "create or replace view underseal.access_grants as select g.grantee, g.access, g.principal from "
        "underseal.access_grant g where g.access <> 'operator'",
        "view-changed",
        "access_grants",
    ),
    "missing-view": (
        "drop view underseal.audit_entries",
        "view-missing",
        "audit_entries",
    ),
    "constraint": (
        "alter table underseal.held_operation drop constraint held_operation_hash_length",
        "constraint-missing",
        "held_operation.held_operation_hash_length",
    ),
    "index": (
        "drop index underseal.held_operation_open_fingerprint",
        "index-missing",
        "held_operation.held_operation_open_fingerprint",
    ),
    "unlogged": (
        "alter table underseal.operator_report set unlogged",
        "table-unlogged",
        "operator_report",
    ),
    "rule": (
        "create rule quiet as on delete to underseal.held_vote do instead nothing",
        "table-ruled",
        "held_vote",
    ),
    "table-owner": (
        "alter table underseal.operator_report owner to postgres",
        "table-owner",
        "operator_report",
    ),
    "public-function": (
        "grant execute on function underseal.clock() to public",
        "public-function",
        "underseal.clock()",
    ),
    "public-table": (
        "grant select on underseal.held_operation to public",
        "table-granted",
        "underseal.held_operation",
    ),
    "public-column": (
        "grant select (requester) on underseal.held_operation to public",
        "table-granted",
        "underseal.held_operation.requester",
    ),
    "open-schema": (
        "grant create on schema underseal to public",
        "schema-open",
        "PUBLIC",
    ),
}


def looked(database: TestDatabase, role: str = OWNER, **more: object) -> Report:
    return examine(database.connect(role), **more)  # type: ignore[arg-type]


def found(report: Report, *expected: str) -> list[Finding]:
    """The findings that were not expected to be there anyway."""
    return [one for one in report.findings if one.what not in EXPECTED | set(expected)]


def only(report: Report, *expected: str) -> Finding:
    findings = found(report, *expected)
    assert len(findings) == 1, findings
    assert findings[0].fix
    return findings[0]


def register_twin(admin: DictConnection, what: str, function: str) -> None:
    """Register one more type under the policy of payout.send."""
    policy = "votes_required, rejections_to_end, approvers, hold_for, run_within, policy"
    admin.execute(
        "insert into underseal.operation_type (type, version, mode, parameters, salted,"
        f" {policy}, safe_sqlstates, sql_estimate, sql_check_run, sql_run)"
        f" select {what}, {policy}, '{{}}', {function}, {function}, {function}"
        " from underseal.operation_type where type = 'payout.send'".encode()
    )


def test_a_fresh_installation_is_healthy(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in shop.env.items():
        monkeypatch.setenv(name, value)
    report = looked(shop.database, ring=shop.ring, kinds=make()._core.kinds)
    assert found(report) == []
    assert report.healthy
    assert report.skipped == ()


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_of_the_schema_is_found(shop: Shop, name: str) -> None:
    fault, what, subject = FAULTS[name]
    shop.database.connect().execute(fault.encode())
    finding = only(looked(shop.database, ring=shop.ring))
    assert (finding.what, finding.subject) == (what, subject)
    assert finding.severity == ("warning" if what.endswith("-unknown") else "error")


def test_what_doctor_says_mends_it(shop: Shop) -> None:
    admin = shop.database.connect()
    admin.execute("alter table underseal.held_vote disable trigger held_vote_check")
    admin.execute(
        "create or replace function underseal._retention() returns interval language sql immutable"
        " as $$ select interval '0' $$"
    )
    faults = found(looked(shop.database, ring=shop.ring))
    assert [one.what for one in faults] == ["function-changed", "trigger-disabled"]
    assert {one.fix.count("delete from underseal.setting where key = 'bundle.digest'") for one in faults} == {
        1
    }
    shop.database.connect(OWNER).execute("delete from underseal.setting where key = 'bundle.digest'")
    assert shop.run("migrate", "--dsn", shop.owner_dsn).code == 0
    assert found(looked(shop.database, ring=shop.ring)) == []


def test_grants_by_hand_and_lost_grants_are_found(shop: Shop) -> None:
    admin = shop.database.connect()
    admin.execute(
        f"grant execute on function underseal.set_armed(text, integer, boolean, text) to {shop.stranger}"
    )
    assert only(looked(shop.database, ring=shop.ring)).what == "grant-by-hand"
    admin.execute(
        f"revoke execute on function underseal.set_armed(text, integer, boolean, text) from {shop.stranger}"
    )
    admin.execute(f"revoke execute on function underseal.clock() from {shop.desk}")
    lost = only(looked(shop.database, ring=shop.ring))
    assert (lost.what, lost.subject, lost.severity) == ("grant-missing", shop.desk, "error")


@pytest.mark.clause("E13d")
def test_roles_whose_principals_are_only_asserted_are_listed(shop: Shop) -> None:
    listed = [one for one in looked(shop.database).findings if one.what == "principal-asserted"]
    assert {(one.subject, one.severity) for one in listed} == {(shop.desk, "warning"), (shop.desk, "note")}
    owner = shop.database.connect(OWNER)
    for access in ("approver", "operator"):
        owner.execute("select * from underseal.grant_access(%s, %s, 'login')", [shop.desk, access])
    owner.execute("select * from underseal.map_login(%s, 'ann')", [shop.desk])
    listed = [one for one in looked(shop.database).findings if one.what == "principal-asserted"]
    assert [(one.subject, one.severity) for one in listed] == [(shop.desk, "note")]
    assert "approver" not in listed[0].found


def test_logins_and_roles_that_lead_nowhere_are_found(shop: Shop) -> None:
    owner, admin = shop.database.connect(OWNER), shop.database.connect()
    owner.execute("select * from underseal.grant_access(%s, 'approver')", [shop.stranger])
    unmapped = only(looked(shop.database, ring=shop.ring))
    assert (unmapped.what, unmapped.subject) == ("login-unmapped", shop.stranger)
    owner.execute("select * from underseal.revoke_access(%s, 'approver')", [shop.stranger])
    admin.execute("insert into underseal.access_grant values ('gone_role', 'client', 'login')")
    admin.execute("insert into underseal.principal_login values ('gone_login', 'ann')")
    admin.execute("insert into underseal.principal_role values ('ann', 'gone_role')")
    assert {one.what for one in found(looked(shop.database, ring=shop.ring))} == {
        "grantee-missing", "login-missing", "role-missing",
    }  # fmt: skip


def test_a_worker_that_may_not_take_a_role_is_found(shop: Shop) -> None:
    admin = shop.database.connect()
    admin.execute(f"insert into underseal.principal_role values ('req', '{shop.stranger}')")
    register_twin(
        admin, '\'sql.type\', 1, mode, \'{"type":"object","additionalProperties":false}\', false', "'f'"
    )
    finding = only(looked(shop.database, ring=shop.ring))
    assert (finding.what, finding.subject) == ("worker-not-member", shop.desk)


@pytest.mark.parametrize("flaw", ["security invoker", "security definer"])
def test_a_hook_that_may_not_be_called_is_found(shop: Shop, flaw: str) -> None:
    admin = shop.database.connect()
    admin.execute("create schema app")
    admin.execute(
        f"create function app.role_of(principal text) returns name language sql {flaw} as 'select null::name'"
    )
    admin.execute("insert into underseal.setting values ('held.role_hook', 'app.role_of(text)')")
    finding = only(looked(shop.database, ring=shop.ring))
    assert (finding.what, finding.subject, finding.severity) == ("hook-flawed", "role hook", "error")
    admin.execute("update underseal.setting set value = 'app.nothing(text)' where key = 'held.role_hook'")
    assert only(looked(shop.database, ring=shop.ring)).what == "hook-flawed"


@pytest.mark.parametrize("logs_in", [True, False])
def test_a_hook_whose_owner_can_log_in_is_found(shop: Shop, logs_in: bool) -> None:
    admin = shop.database.connect()
    owner = shop.database.create_role("host", "login" if logs_in else "nologin")
    admin.execute("create schema app")
    admin.execute(f"grant usage on schema app to {OWNER}")
    admin.execute(
        "create function app.role_of(principal text) returns name language sql security definer as 'select null::name'"
    )
    admin.execute(f'alter function app.role_of owner to "{owner}"')
    admin.execute("insert into underseal.setting values ('held.role_hook', 'app.role_of(text)')")
    hooks = [one for one in looked(shop.database, ring=shop.ring).findings if one.check == "hooks"]
    assert [(one.what, one.severity, owner in one.found) for one in hooks] == (
        [("hook-owner-login", "warning", True)] if logs_in else []
    )


def test_an_approver_hook_that_may_not_be_called_is_found(shop: Shop) -> None:
    shop.database.connect().execute(
        "update underseal.operation_type set approver_hook = 'app.may_approve' where type = 'payout.send'"
    )
    finding = only(looked(shop.database, ring=shop.ring))
    assert (finding.what, finding.subject) == ("hook-flawed", "approver hook of payout.send version 1")


@pytest.mark.clause("E14b")
def test_a_denial_hook_that_may_not_be_called_is_found(shop: Shop) -> None:
    admin = shop.database.connect()
    owner = shop.database.create_role("host", "nologin")
    admin.execute("create schema app")
    admin.execute(f"grant usage on schema app to {OWNER}")
    admin.execute(
        "create function app.heard(text, text, text, text) returns void language sql security definer as ''"
    )
    admin.execute(f'alter function app.heard owner to "{owner}"')
    admin.execute(
        "insert into underseal.setting values ('log.denial_hook', 'app.heard(text,text,text,text)')"
    )
    assert [one for one in looked(shop.database, ring=shop.ring).findings if one.check == "hooks"] == []
    admin.execute("alter function app.heard security invoker")
    finding = only(looked(shop.database, ring=shop.ring))
    assert (finding.what, finding.subject, finding.severity) == ("hook-flawed", "denial hook", "error")
    assert "hears of no denial" in finding.found


def test_an_access_policy_that_may_not_be_called_is_found(shop: Shop) -> None:
    shop.database.connect().execute(
        "insert into underseal.setting values ('log.access_hook', 'app.may(text,text,text,text,text)')"
    )
    finding = only(looked(shop.database, ring=shop.ring))
    assert (finding.what, finding.subject) == ("hook-flawed", "access policy")
    assert "so it denies" in finding.found


def test_members_of_the_owner_are_named(shop: Shop, empty_database: TestDatabase) -> None:
    # An owner of this test's own: roles are the whole server's, and other tests look at the usual one.
    owner = empty_database.create_role("owner")
    admin = empty_database.connect()
    admin.execute(f"grant create on database {empty_database.name} to {owner}")
    migrate(empty_database.conninfo_as(owner))
    admin.execute(f"grant {owner} to {shop.stranger}")
    finding = only(looked(empty_database, owner))
    assert (finding.what, finding.subject) == ("owner-member", shop.stranger)


def test_a_superuser_as_owner_is_named(empty_database: TestDatabase) -> None:
    migrate(empty_database.conninfo)
    report = examine(empty_database.connect())
    assert only(report).what == "owner-superuser"


def test_missing_keys_are_found(shop: Shop) -> None:
    operation = shop.hold("payout.pair")
    shop.vote(operation)
    other = FileKeyRing(shop.keys.parent / "other")
    for purpose in ("payload", "decision", "fingerprint"):
        other.generate(purpose)
    missing = found(looked(shop.database, ring=other))
    assert {(one.what, one.subject) for one in missing} == {
        ("key-missing", shop.ring.active(purpose).id) for purpose in ("payload", "decision", "fingerprint")
    }
    assert {one.severity for one in missing} == {"error"}


def test_destroyed_retired_and_absent_keys_are_told_apart(shop: Shop) -> None:
    shop.hold()
    old = {purpose: shop.ring.active(purpose).id for purpose in ("payload", "decision")}
    for purpose in ("payload", "decision"):
        shop.ring.rotate(purpose)
    report = found(looked(shop.database, ring=shop.ring))
    assert {(one.what, one.subject, one.severity) for one in report} == {
        ("rewrap-due", old["payload"], "note"),
        ("key-unneeded", old["decision"], "note"),
    }
    shop.ring.destroy(old["payload"])
    destroyed = only(looked(shop.database, ring=shop.ring), "key-unneeded")
    assert (destroyed.what, destroyed.severity) == ("key-destroyed", "error")


def test_an_untidy_ring_and_an_empty_one_are_named(shop: Shop) -> None:
    (shop.keys / "notes.txt").write_text("x")
    (shop.keys / "notes.txt").chmod(0o600)
    assert only(looked(shop.database, ring=shop.ring)).what == "ring-untidy"
    empty = FileKeyRing(shop.keys.parent / "empty")
    empty.generate("decision")
    notes = found(looked(shop.database, ring=empty))
    assert {(one.what, one.subject) for one in notes} == {
        ("no-active-key", "payload"),
        ("no-active-key", "fingerprint"),
    }


def test_a_ring_that_cannot_be_used_is_found_and_ends_nothing(shop: Shop) -> None:
    shop.keys.chmod(0o755)
    report = looked(shop.database, ring=shop.ring)
    assert (only(report).what, only(report).severity) == ("ring-unusable", "error")
    assert "chmod 700" in only(report).found
    assert "settings" in report.checked


def test_a_key_of_another_purpose_is_found(shop: Shop) -> None:
    operation = shop.hold()
    wrong = shop.ring.active("decision").id
    shop.database.connect().execute(
        "update underseal.held_operation set payload_key_id = %s,"
        " sealed_payload = jsonb_set(sealed_payload, '{kid}', to_jsonb(%s::text)) where operation_id = %s",
        [wrong, wrong, operation],
    )
    assert only(looked(shop.database, ring=shop.ring)).what == "key-purpose"


def test_a_stuck_run_is_found(shop: Shop, clock: TestClock, db: DictConnection) -> None:
    operation = shop.hold()
    shop.vote(operation)
    db.execute(
        "select * from underseal.claim_runs('w1', '{payout.send}', '{1}', %s)",
        [[*shop.ring.key_ids("payload"), *shop.ring.key_ids("decision")]],
    )
    clock.advance(minutes=15, seconds=30)
    expected = CLOCKED
    assert found(looked(shop.database, ring=shop.ring), *expected) == []
    clock.advance(minutes=1)
    finding = only(looked(shop.database, ring=shop.ring), *expected)
    assert (finding.what, finding.subject, finding.severity) == ("stuck-run", "w1", "error")


def test_what_the_sweep_is_late_with_is_found(shop: Shop, clock: TestClock) -> None:
    shop.hold()
    clock.advance(days=1, minutes=5)
    finding = only(looked(shop.database, ring=shop.ring), *CLOCKED)
    assert (finding.what, finding.subject) == ("overdue", "HELD")


@pytest.mark.clause("H3.8f")
def test_the_consumer_that_lags_is_named(shop: Shop, clock: TestClock) -> None:
    for consumer in ("mailer", "ledger"):
        shop.run("outbox", "register", consumer)
    shop.hold()
    shop.run("outbox", "read", "mailer")
    shop.run("outbox", "ack", "mailer", 1)
    expected = CLOCKED
    assert found(looked(shop.database, ring=shop.ring), *expected) == []
    clock.advance(hours=2)
    finding = only(looked(shop.database, ring=shop.ring), *expected)
    assert (finding.what, finding.subject) == ("consumer-lags", "ledger")
    assert "1 events" in finding.found


def test_reports_are_passed_on(shop: Shop, admin: DictConnection) -> None:
    admin.execute("select underseal._report('payout.send', 'unserved-key', 'no worker has the key')")
    admin.execute("select underseal._report('00000000', 'sweep-failed', 'the row was edited')")
    reports = found(looked(shop.database, ring=shop.ring))
    assert [(one.what, one.severity) for one in reports] == [
        ("sweep-failed", "error"),
        ("unserved-key", "warning"),
    ]


def test_a_skewed_clock_is_found(shop: Shop, clock: TestClock) -> None:
    clock.set(datetime.now(UTC) - timedelta(minutes=10))
    report = found(looked(shop.database, ring=shop.ring), "table-granted")
    assert {(one.what, one.subject) for one in report} == {
        ("clock-replaced", "underseal.clock()"),
        ("clock-skew", "this machine"),
        ("function-changed", "clock"),
    }


def test_a_default_isolation_that_costs_retries_is_named(shop: Shop) -> None:
    connection = shop.database.connect(OWNER, options="-c default_transaction_isolation=serializable")
    assert only(examine(connection, ring=shop.ring)).what == "default-isolation"


def test_commits_that_do_not_survive_are_found(shop: Shop) -> None:
    """The tests' own server has fsync off; synchronous_commit, which the kernel raises itself, is no finding."""
    connection = shop.database.connect(OWNER, options="-c synchronous_commit=off")
    found = [one.subject for one in examine(connection).findings if one.what == "commit-not-durable"]
    assert found == ["fsync"]


def test_types_that_are_not_as_their_providers_are_found(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in shop.env.items():
        monkeypatch.setenv(name, value)
    kinds = make()._core.kinds
    admin = shop.database.connect()

    admin.execute("update underseal.operation_type set armed = false where type = 'payout.pair'")
    disarmed = only(looked(shop.database, ring=shop.ring, kinds=kinds))
    assert (disarmed.what, disarmed.severity) == ("type-disarmed", "note")
    admin.execute(
        "update underseal.operation_type set armed = true, votes_required = 1 where type = 'payout.pair'"
    )
    assert only(looked(shop.database, ring=shop.ring, kinds=kinds)).what == "policy-differs"
    admin.execute("update underseal.operation_type set votes_required = 2 where type = 'payout.pair'")

    monkeypatch.setattr(kinds["payout.send"], "salted", False)
    assert only(looked(shop.database, ring=shop.ring, kinds=kinds)).what == "type-differs"
    monkeypatch.undo()
    monkeypatch.setattr(kinds["payout.send"], "version", 2)
    assert only(looked(shop.database, ring=shop.ring, kinds=kinds)).what == "type-unregistered"
    register_twin(admin, "type, 2, mode, parameters, salted", "null")
    assert found(looked(shop.database, ring=shop.ring, kinds=kinds)) == []
    monkeypatch.setattr(kinds["payout.send"], "version", 1)
    assert only(looked(shop.database, ring=shop.ring, kinds=kinds)).what == "version-behind"


def test_another_release_is_one_finding_and_not_a_flood(shop: Shop) -> None:
    admin = shop.database.connect()
    admin.execute("update underseal.setting set value = 'other' where key = 'bundle.digest'")
    admin.execute("drop function underseal.clear_report(text, text, text)")
    report = looked(shop.database, ring=shop.ring)
    assert only(report).what == "release-differs"
    assert {one.check for one in report.skipped} >= {"functions", "views", "triggers", "tables"}


def test_another_revision_and_an_unusable_schema_are_found(shop: Shop) -> None:
    admin = shop.database.connect()
    admin.execute("update underseal.alembic_version set version_num = '0000'")
    assert only(looked(shop.database, ring=shop.ring)).what == "revision-differs"
    admin.execute("update underseal.setting set value = 'false' where key = 'schema.usable'")
    assert only(looked(shop.database, ring=shop.ring)).what == "schema-unusable"


def test_an_operator_who_may_read_sees_the_same(shop: Shop) -> None:
    operator = looked(shop.database, shop.desk, ring=shop.ring)
    assert found(operator) == []
    assert {one.check for one in operator.skipped} == {"providers"}


def test_a_client_is_told_what_was_not_looked_at(shop: Shop) -> None:
    shop.database.connect(OWNER).execute(
        "select * from underseal.grant_access(%s, 'client')", [shop.stranger]
    )
    report = looked(shop.database, shop.stranger, ring=shop.ring)
    assert {one.check for one in report.skipped} >= {"access", "hooks", "keys", "work", "outbox", "reports"}
    assert "functions" in report.checked


def test_looking_changes_nothing(shop: Shop) -> None:
    shop.hold()
    admin = shop.database.connect()
    state = """
        select (select string_agg(t::text, ',' order by t::text) from underseal.held_operation t),
          (select string_agg(t::text, ',' order by t::text) from underseal.setting t),
          (select string_agg(c.oid || c.relname, ',' order by c.oid) from pg_class c)
    """
    before = admin.execute(state).fetchone()
    looked(shop.database, ring=shop.ring)
    assert admin.execute(state).fetchone() == before


def test_the_command_says_it_to_people_and_to_scripts(shop: Shop) -> None:
    healthy = shop.run("doctor", "--dsn", shop.owner_dsn, "--app", "tests.cli.shop:make", "--json")
    assert (healthy.code, healthy.json["healthy"], healthy.json["skipped"]) == (0, True, [])
    shop.database.connect().execute("alter table underseal.held_vote disable trigger held_vote_check")
    sick = shop.run("doctor", "--dsn", shop.owner_dsn, "--json")
    assert (sick.code, sick.json["healthy"]) == (1, False)
    assert sick.json["findings"][0]["what"] == "trigger-disabled"
    told = shop.run("doctor", "--dsn", shop.owner_dsn)
    assert told.code == 1
    for words in ("trigger-disabled", "held_vote.held_vote_check", "→", "skipped providers", "1 error,"):
        assert words in told.out


def test_a_database_that_goes_away_is_no_finding(shop: Shop) -> None:
    connection = shop.database.connect(OWNER)
    connection.close()
    with pytest.raises(psycopg.OperationalError):
        examine(connection)
