"""The database of the scenarios of held operations: short leases, a schema of the host's, and what is registered."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from tests.simulation.office import LEASE, PROVIDERS, Order, provider
from tests.simulation.switches import switch
from underseal import MemoryKeyRing, Policy, Underseal
from underseal.testing.simulation import Stage

_SCHEMA: Final = {
    "type": "object",
    "properties": {"order": {"type": "string"}, "cents": {"type": "integer"}},
    "required": ["order", "cents"],
    "additionalProperties": False,
}
_POLICY: Final = Policy(
    approvers=("ann", "bob"), hold_for=timedelta(seconds=25), run_within=timedelta(seconds=25)
)

_ROLES: Final = """
do $do$
declare
  name text;
begin
  -- roles are the whole server's, and are called the same in every process, since traces and tables have their names
  perform pg_advisory_xact_lock(hashtextextended('underseal.testing', 0));
  foreach name in array '{underseal_sim_rita,underseal_sim_ron,underseal_sim_host}'::text[] loop
    if not exists (select from pg_roles r where r.rolname = name) then
      execute format('create role %I nologin', name);
    end if;
  end loop;
  grant underseal_sim_rita, underseal_sim_ron to {login};
end
$do$;
"""
_APP: Final = """
create schema app;
create table app.approver (name text primary key);
create table app.account (name text primary key, owner name not null, state text not null default 'open');
create table app.payment (
  operation_id uuid, params jsonb, principal text, role name, process text, number bigint);
alter table app.account enable row level security;
create policy own on app.account using (owner = current_user);
create policy host on app.account to {login} using (true);
grant usage on schema app to public;
grant select, delete on app.approver to {login}, underseal_sim_host;
grant select, update on app.account to {login}, underseal_sim_rita, underseal_sim_ron;

create function app.may_approve(principal text, type text, version integer, operation_id uuid) returns boolean
language sql security definer set search_path = pg_catalog, pg_temp
as $$ select exists (select from app.approver a where a.name = principal) $$;
alter function app.may_approve(text, text, integer, uuid) owner to underseal_sim_host;

-- what is claimed for these functions is seen by its own transaction alone
create function app.note(params jsonb, principal text, role name) returns void
language sql security definer set search_path = pg_catalog, pg_temp
as $$
  insert into app.payment
  select (select o.operation_id from underseal.held_operation o where o.state = 'EXECUTING' and o.type = 'account.pay'),
    params, principal, role, current_setting('application_name'), (select last_value from witness.number)
$$;
create function app.estimate(params jsonb, principal text) returns jsonb language sql as $$
  select jsonb_build_object('effect', jsonb_build_object('pays', params -> 'cents'),
    'state_key', coalesce((select a.state from app.account a where a.name = params ->> 'order'), 'none'))
$$;
create function app.check_run(params jsonb, principal text) returns text language sql as $$
  select 'disputed' where params ->> 'order' like 'disputed%'
$$;
create function app.pay(params jsonb, principal text) returns jsonb language plpgsql as $$
begin
  update app.account a set state = a.state where a.name = params ->> 'order';
  if not found then
    raise exception 'no such account of yours' using errcode = 'P0002';
  end if;
  perform app.note(params, principal, current_user);
  if params ->> 'order' like 'failing%' then
    raise exception 'no such account' using errcode = 'P0001';
  end if;
  return jsonb_build_object('done', params -> 'order');
end
$$;
"""


def prepare(stage: Stage, orders: tuple[Order, ...]) -> None:
    """Make a database that of these scenarios, if it is not, and register what will be asked for.

    Parameters:
        stage: where.
        orders: what will be asked for.
    """
    if stage.ask("select to_regnamespace('app') is null as missing")[0]["missing"]:
        _found(stage)
    stage.change("truncate app.approver, app.account, app.payment")
    stage.change("insert into app.approver values ('ann'), ('bob'), ('cy')")
    for order in orders:
        if order.type == "account.pay":
            # the account of one of them is somebody else's
            whose = "ron" if order.name.startswith("foreign") else order.who.id
            stage.change(
                f"insert into app.account values ('{order.name}', 'underseal_sim_{whose}') on conflict do nothing"
            )
    for person in ("rita", "ron"):
        stage.owner.execute("select underseal.map_role(%s, %s)", [person, f"underseal_sim_{person}"])
    _register(stage)


def _found(stage: Stage) -> None:
    stage.change(_ROLES.replace("{login}", stage.login))
    stage.change(_APP.replace("{login}", stage.login))
    switch(stage, "underseal._run_lease()", "'15 minutes'", f"'{LEASE:g} seconds'")


def _register(stage: Stage) -> None:
    with Underseal(stage.conninfo, keys=MemoryKeyRing()) as us:
        for one in PROVIDERS:
            us.gate(provider(one, None))(lambda *_: None)
        done = [*us.register(connection=stage.owner)]
        done.append(
            us.register_sql_operation(
                "account.pay", 1, _SCHEMA, _POLICY, estimate="app.estimate(jsonb,text)",
                check_run="app.check_run(jsonb,text)", run="app.pay(jsonb,text)", safe_sqlstates=("P0001",),
                connection=stage.owner,
            )
        )  # fmt: skip
    assert all(one.outcome == "registered" for one in done), done
