"""Operations of SQL functions: one transaction, in the requester's role."""

# `type` is what the column is called.
# ruff: noqa: A001, A002

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.held.python.worlds import HOUR, REQUESTER, World
from underseal import (
    FileSpentRegister,
    Held,
    Policy,
    ProviderRefused,
    Registration,
    RequestRefused,
    RunReport,
)
from underseal.foundation import steps
from underseal.testing import TestDatabase, in_background, wait_blocked, wait_until

SCHEMA = {
    "type": "object",
    "properties": {"account": {"type": "integer"}, "why": {"type": "string"}},
    "required": ["account"],
    "additionalProperties": False,
}
POLICY = Policy(approvers=("ann",), hold_for=HOUR, run_within=HOUR)

APP = """
create schema app;
create table app.account (
  id integer primary key, owner text not null, closed boolean not null default false,
  version integer not null default 1);
create table app.closing (
  account integer references app.account (id) deferrable initially deferred, why text, by text default current_user);
create table app.checked (by text);
create sequence app.tries;
insert into app.account (id, owner) values (1, 'rita'), (2, 'ron');
alter table app.account enable row level security;
create policy own on app.account using (owner = {principal});
grant usage on schema app to {role};
grant select, update on app.account to {role};
grant select, insert on app.closing to {role};
grant insert on app.checked to public;
grant usage on schema app to public;
grant usage on sequence app.tries to {role};
create function app.estimate(params jsonb, principal text) returns jsonb language sql as $$
  select jsonb_build_object('effect', jsonb_build_object('closes', params -> 'account'),
    'state_key', coalesce((
      select version::text from app.account a where a.id = (params ->> 'account')::integer), 'none'))
$$;
create function app.check_run(params jsonb, principal text) returns text language sql as $$
  select 'closed-already' from app.account a where a.id = (params ->> 'account')::integer and a.closed
$$;
create function app.close(params jsonb, principal text) returns jsonb language plpgsql as $$
begin
  update app.account a set closed = true where a.id = (params ->> 'account')::integer;
  if not found then
    raise exception 'no account %% of yours', params ->> 'account' using errcode = 'P0002';
  end if;
  insert into app.closing (account, why) values ((params ->> 'account')::integer, params ->> 'why');
  return jsonb_build_object('closed', params -> 'account');
end
$$;
"""


class Bank:
    """A world with the type account.close, done by SQL functions, and a role for rita."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.role = world.database.create_role("rita", "nologin")
        world.admin.execute(
            APP.replace("{principal}", "'rita'").replace("{role}", self.role).replace("%%", "%")
        )
        world.admin.execute(f"grant {self.role} to {world.login}")
        world.owner.execute("select underseal.map_role('rita', %s)", [self.role])
        self.execute("grant usage on schema app to public")
        assert self.register("account.close", "app.close").outcome == "registered"

    def execute(self, statement: str, *params: Any) -> list[dict[str, Any]]:
        """As the superuser."""
        cursor = self.world.admin.execute(statement, params)
        return cursor.fetchall() if cursor.description else []

    def register(self, type: str, run: str, **options: Any) -> Registration:
        """Register a type whose run is another function."""
        options = {"parameters": SCHEMA, "safe": ("P0001",), **options}
        row = self.world.admin.execute(
            "select * from underseal.register_sql_operation(%s, 1, %s::jsonb, %s::jsonb, 'app.estimate(jsonb,text)',"
            " 'app.check_run(jsonb,text)', %s::regprocedure, %s::text[])",
            [
                type,
                json.dumps(options["parameters"]),
                POLICY.as_json(),
                f"{run}(jsonb,text)",
                list(options["safe"]),
            ],
        ).fetchone()
        assert row is not None
        return Registration(row["outcome"], row["reason"], row["message"], type, 1)

    def function(self, name: str, body: str) -> str:
        """Register a type whose run does `body`."""
        self.execute(
            f"create function app.{name}(params jsonb, principal text) returns jsonb language plpgsql as $$ {body} $$"
        )
        assert self.register(f"account.{name}", f"app.{name}").outcome == "registered"
        return f"account.{name}"

    def approved(self, type: str = "account.close", **params: Any) -> Held:
        """Held and approved, and not run."""
        held = self.world.us.request(type, REQUESTER, {"account": 1, **params})
        voter = self.world.client(run_on_approval=False)
        assert voter.approve(voter.get(held, "ann"), "ann").outcome == "approved"
        voter.close()
        return held  # type: ignore[no-any-return]

    def closed(self) -> list[int]:
        """The accounts that are closed."""
        return [row["id"] for row in self.execute("select id from app.account where closed order by id")]

    def run(self, held: Held) -> RunReport:
        """Run it."""
        report: RunReport = self.world.us.run(held)
        return report


@pytest.fixture
def bank(world: World) -> Bank:
    """Over both clients."""
    return Bank(world)


@pytest.fixture
def sync_bank(sync_world: World) -> Bank:
    """Over the sync client alone."""
    return Bank(sync_world)


@pytest.mark.clause("H6.10b", "H6.10c", "H5.2a")
def test_it_runs_in_the_requesters_role(bank: Bank) -> None:
    held = bank.world.us.request("account.close", REQUESTER, {"account": 1, "why": "moved"})
    outcome = bank.world.approve(held)
    assert (outcome.run.outcome, outcome.run.value) == ("succeeded", {"closed": 1})
    assert bank.closed() == [1]
    assert bank.execute("select why, by from app.closing") == [{"why": "moved", "by": bank.role}]
    operation = bank.world.look(held)
    assert (operation.state, operation.result) == ("SUCCEEDED", {"closed": 1})
    assert [event.type for event in bank.world.us.events(held, "rita")] == [
        "requested", "approved", "claimed", "succeeded",
    ]  # fmt: skip


@pytest.mark.clause("H6.10b")
def test_the_sweep_runs_it_too(bank: Bank) -> None:
    held = bank.approved()
    assert [report.outcome for report in bank.world.us.run_approved()] == ["succeeded"]
    assert (bank.closed(), bank.world.look(held).state) == ([1], "SUCCEEDED")


@pytest.mark.clause("H6.10c", "H6.10e")
def test_row_level_security_applies_as_to_the_requester(bank: Bank) -> None:
    held = bank.world.us.request("account.close", REQUESTER, {"account": 2})
    assert bank.world.row(held)["state_key"] == "none"
    report = bank.world.approve(held).run
    assert (report.outcome, bank.closed()) == ("failed", [])
    row = bank.world.row(held)
    assert (row["state"], row["outcome_reason"], row["outcome_detail"]) == (
        "FAILED",
        "sql-error",
        "SQLSTATE P0002",
    )


@pytest.mark.clause("H6.10d")
def test_parameters_are_bound(bank: Bank) -> None:
    why = "'); drop table app.closing; --"
    assert bank.run(bank.approved(why=why)).outcome == "succeeded"
    assert bank.execute("select why from app.closing") == [{"why": why}]


@pytest.mark.clause("H6.10e", "H6.10f")
@pytest.mark.parametrize(
    ("sqlstate", "detail"), [("P0001", "SQLSTATE P0001: account of rita"), ("22012", "SQLSTATE 22012")]
)
def test_an_error_undoes_everything_and_is_named(bank: Bank, sqlstate: str, detail: str) -> None:
    type = bank.function(
        "explode",
        "begin update app.account set closed = true where id = 1;"
        f" raise exception 'account of rita' using errcode = '{sqlstate}'; end",
    )
    held = bank.approved(type)
    assert bank.run(held).outcome == "failed"
    row = bank.world.row(held)
    assert (row["state"], row["outcome_reason"], row["outcome_detail"]) == ("FAILED", "sql-error", detail)
    assert bank.closed() == []


@pytest.mark.clause("H6.8", "H6.10c")
def test_a_permission_that_the_role_lost(bank: Bank) -> None:
    held = bank.approved()
    bank.execute(f"revoke update on app.account from {bank.role}")
    report = bank.run(held)
    assert (report.outcome, report.reason, bank.closed()) == ("refused", "permission-denied", [])
    assert bank.world.row(held)["outcome_detail"] == "SQLSTATE 42501"


@pytest.mark.clause("H6.4", "H6.10b")
def test_a_state_that_changed(bank: Bank) -> None:
    held = bank.approved()
    bank.execute("update app.account set version = 2 where id = 1")
    report = bank.run(held)
    assert (report.outcome, report.reason, bank.closed()) == ("refused", "state-changed", [])


@pytest.mark.clause("H6.5", "H6.10b")
def test_a_check_that_does_not_agree(bank: Bank) -> None:
    held = bank.approved()
    bank.execute("update app.account set closed = true where id = 1")
    report = bank.run(held)
    assert (report.outcome, report.reason) == ("refused", "closed-already")
    assert bank.execute("select from app.closing") == []


@pytest.mark.clause("H6.3")
def test_a_requester_who_is_gone(bank: Bank) -> None:
    held = bank.approved()
    bank.world.service.people["rita"] = None
    assert bank.run(held).reason == "requester-unavailable"


@pytest.mark.clause("H6.10c")
@pytest.mark.parametrize("how", ["no role", "no member"])
def test_a_requester_without_a_role_that_this_login_may_take(sync_bank: Bank, how: str) -> None:
    held = sync_bank.approved()
    if how == "no role":
        sync_bank.world.owner.execute("select underseal.map_role('rita', null)")
    else:
        sync_bank.execute(f"revoke {sync_bank.role} from {sync_bank.world.login}")
    report = sync_bank.run(held)
    assert (report.outcome, report.reason, sync_bank.closed()) == ("refused", "requester-unavailable", [])
    with pytest.raises(RequestRefused) as refused:
        sync_bank.world.us.request("account.close", REQUESTER, {"account": 1})
    assert refused.value.reason == "requester-unavailable"


@pytest.mark.clause("H6.10h", "H6.10e")
def test_a_deferred_constraint_that_fails_fails_the_run(bank: Bank) -> None:
    type = bank.function(
        "orphan",
        "begin update app.account set closed = true where id = 1; insert into app.closing (account) values (99);"
        " return '{}'; end",
    )
    held = bank.approved(type)
    assert bank.run(held).outcome == "failed"
    assert (bank.world.row(held)["outcome_detail"], bank.closed()) == ("SQLSTATE 23503", [])


@pytest.mark.clause("H6.10h")
def test_a_deferred_trigger_fires_in_the_requesters_role(bank: Bank) -> None:
    bank.execute(
        "create function app.checks() returns trigger language plpgsql as"
        " $$ begin insert into app.checked values (current_user); return null; end $$"
    )
    bank.execute(
        "create constraint trigger checks after insert on app.closing deferrable initially deferred"
        " for each row execute function app.checks()"
    )
    assert bank.run(bank.approved()).outcome == "succeeded"
    assert bank.execute("select by from app.checked") == [{"by": bank.role}]


@pytest.mark.clause("H6.10c")
def test_a_cursor_with_hold_does_not_outlive_the_role(bank: Bank) -> None:
    bank.execute(
        "create function app.late() returns integer language plpgsql as"
        " $$ begin insert into app.checked values (current_user); return 1; end $$"
    )
    type = bank.function(
        "hold", "begin execute 'declare later cursor with hold for select app.late()'; return '{}'; end"
    )
    assert bank.run(bank.approved(type)).outcome == "succeeded"
    assert bank.execute("select by from app.checked") == []


def test_a_function_that_resets_its_role_still_ends_in_order(bank: Bank) -> None:
    """SET ROLE is no jail (the threat model says so); what follows is in order all the same."""
    type = bank.function("reset", "begin reset role; return to_jsonb(current_user::text); end")
    held = bank.approved(type)
    report = bank.run(held)
    assert (report.outcome, report.value) == ("succeeded", bank.world.login)
    assert bank.run(bank.approved()).outcome == "succeeded"
    assert bank.execute("select by from app.closing") == [{"by": bank.role}]


@pytest.mark.clause("H6.10g")
def test_a_crash_before_the_commit_leaves_it_approved_and_undone(sync_bank: Bank) -> None:
    held = sync_bank.approved()
    blocker = sync_bank.world.database.connect(autocommit=False)
    blocker.execute("lock table app.closing in exclusive mode")
    running = in_background(sync_bank.world.us.run, held)
    statement = "select pid from pg_stat_activity where usename = %s and wait_event_type = 'Lock'"
    pid = wait_until(lambda: sync_bank.execute(statement, sync_bank.world.login))[0]["pid"]
    wait_blocked(sync_bank.world.admin, pid)
    sync_bank.execute("select pg_terminate_backend(%s)", pid)
    with pytest.raises(psycopg.OperationalError):
        running.result(timeout=20)
    blocker.rollback()
    assert (sync_bank.world.look(held).state, sync_bank.closed()) == ("APPROVED", [])
    assert sync_bank.run(held).outcome == "succeeded"
    assert sync_bank.execute("select count(*) as n from app.closing") == [{"n": 1}]


@pytest.mark.clause("H6.10b")
def test_the_effect_is_seen_only_with_its_end(sync_bank: Bank) -> None:
    seen: list[Any] = []

    class Register:
        """Asked immediately before the commit."""

        def spend(self, operation_id: Any, keep_for: timedelta) -> bool:
            seen.append((sync_bank.closed(), sync_bank.world.look(operation_id).state))
            return True

    held = sync_bank.approved()
    sync_bank.world.us._core.spent = Register()
    assert sync_bank.run(held).outcome == "succeeded"
    assert seen == [([], "APPROVED")]
    assert (sync_bank.closed(), sync_bank.world.look(held).state) == ([1], "SUCCEEDED")


def test_a_transaction_that_must_be_tried_again_is(sync_bank: Bank) -> None:
    type = sync_bank.function(
        "clash",
        "begin if nextval('app.tries') < 3 then raise exception 'again' using errcode = '40001'; end if;"
        " return '{}'; end",
    )
    held = sync_bank.approved(type)
    assert sync_bank.run(held).outcome == "succeeded"
    assert sync_bank.execute("select last_value from app.tries") == [{"last_value": 3}]


@pytest.mark.clause("H6.10e")
def test_a_transaction_that_never_gets_through_stops_no_other(
    sync_bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "_FIRST_PAUSE", 0.0)
    type = sync_bank.function("stuck", "begin raise exception 'again' using errcode = '40001'; end")
    stuck, other = sync_bank.approved(type), sync_bank.approved()
    assert [report.outcome for report in sync_bank.world.us.run_approved()] == ["failed", "succeeded"]
    assert sync_bank.world.row(stuck)["outcome_detail"] == "SQLSTATE 40001"
    assert sync_bank.world.look(other).state == "SUCCEEDED"


@pytest.mark.clause("H6.10a")
def test_a_type_with_a_secret_is_refused(sync_bank: Bank) -> None:
    secret = {**SCHEMA, "properties": {**SCHEMA["properties"], "pin": {"type": "string", "writeOnly": True}}}  # type: ignore[dict-item]
    answer = sync_bank.register("account.secret", "app.close", parameters=secret)
    assert (answer.outcome, answer.reason) == ("refused", "secret-parameters")


@pytest.mark.clause("H8.5d")
def test_an_id_that_was_spent_undoes_the_run(make_world: Callable[..., World], tmp_path: Path) -> None:
    register = FileSpentRegister(tmp_path / "spent")
    bank = Bank(make_world(spent=register))
    held = bank.approved()
    assert register.spend(held.operation_id, HOUR)
    report = bank.run(held)
    assert (report.outcome, report.reason, bank.closed()) == ("refused", "spent", [])
    assert bank.world.look(held).state == "REFUSED"


@pytest.mark.clause("H8.5d")
def test_a_register_that_is_away_leaves_it_approved(sync_bank: Bank) -> None:
    class Away:
        def spend(self, operation_id: Any, keep_for: timedelta) -> bool:
            raise ConnectionError

    held = sync_bank.approved()
    sync_bank.world.us._core.spent = Away()
    with pytest.raises(ConnectionError):
        sync_bank.run(held)
    assert (sync_bank.world.look(held).state, sync_bank.closed()) == ("APPROVED", [])


def test_a_function_that_is_gone_is_named(sync_bank: Bank) -> None:
    held = sync_bank.approved()
    sync_bank.execute("drop function app.close(jsonb, text)")
    assert sync_bank.run(held).outcome == "failed"
    assert sync_bank.world.row(held)["outcome_detail"] == "LookupError"


def test_an_estimate_of_another_shape_holds_nothing(sync_bank: Bank) -> None:
    sync_bank.execute(
        "create or replace function app.estimate(params jsonb, principal text) returns jsonb language sql as"
        " $$ select '{}'::jsonb $$"
    )
    with pytest.raises(ProviderRefused, match=r"app\.estimate.* to return") as refused:
        sync_bank.world.us.request("account.close", REQUESTER, {"account": 1})
    assert refused.value.reason == "estimate-shape"


def test_a_worker_that_serves_no_sql_leaves_it(sync_bank: Bank) -> None:
    held = sync_bank.approved()
    other = sync_bank.world.client(serve_sql=False)
    assert (other.run(held).reason, other.run_approved()) == ("unserved", [])
    assert sync_bank.world.look(held).state == "APPROVED"
    other.close()


def test_the_python_client_registers_it(sync_bank: Bank, database: TestDatabase) -> None:
    registered = sync_bank.world.us.register_sql_operation(
        "account.close", 1, SCHEMA, POLICY, estimate="app.estimate(jsonb,text)", check_run="app.check_run(jsonb,text)",
        run="app.close(jsonb,text)", safe_sqlstates=("P0001",), connection=database.connect(),
    )  # fmt: skip
    assert registered.outcome == "unchanged"


@pytest.mark.clause("H6.10i")
def test_the_documentation_says_what_a_transaction_does_not_cover() -> None:
    text = (Path(__file__).parents[3] / "docs" / "held.md").read_text()
    section = text[text.index("## SQL providers") :]
    paragraph = section[section.index("What a transaction does not cover:") :].partition("\n\n")[0]
    outside = ("dblink", "sequence", "postgres_fdw", "TO PROGRAM", "pg_notify", "set_config")
    assert [word for word in outside if word not in paragraph] == []
