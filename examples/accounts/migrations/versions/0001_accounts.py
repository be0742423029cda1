"""Accounts that tellers see by region, payees, staff and their permissions."""

from __future__ import annotations

from alembic import op

revision = "0001"
down_revision = None

_UP = """
create schema app;

create table app.account (
  id integer primary key,
  holder text not null,
  region text not null,
  balance_cents bigint not null,
  status text not null default 'open',
  closed_by text
);
alter table app.account enable row level security;
create policy own_region on app.account using ('teller_' || region = current_user);

create table app.payee (name text primary key, iban text not null, version integer not null default 1);
create table app.payout (
  id bigint generated always as identity primary key,
  payee text not null,
  cents bigint not null,
  sent_by text not null
);
create table app.staff (id text primary key, active boolean not null default true);
create table app.permission (
  staff text not null references app.staff,
  permission text not null,
  primary key (staff, permission)
);
create table app.token (service text primary key, token_hash bytea not null, issued_to text not null);

create function app.close_estimate(params jsonb, principal text) returns jsonb language plpgsql stable as $$
declare
  found_account app.account;
begin
  select a.* into found_account from app.account a where a.id = (params ->> 'account')::integer;
  if not found then
    raise exception using errcode = 'P0002', message = 'no such account in your region';
  end if;
  return jsonb_build_object(
    'effect', jsonb_build_object('account', found_account.id, 'holder', found_account.holder,
      'balance_cents', found_account.balance_cents, 'afterwards', 'closed for good'),
    'state_key', found_account.status || ':' || found_account.balance_cents);
end $$;

create function app.close_check(params jsonb, principal text) returns text language sql stable as $$
  select case when a.status <> 'open' then 'already-closed' when a.balance_cents <> 0 then 'balance-not-zero' end
  from app.account a where a.id = (params ->> 'account')::integer
$$;

create function app.close_run(params jsonb, principal text) returns jsonb language sql as $$
  update app.account a set status = 'closed', closed_by = principal
  where a.id = (params ->> 'account')::integer
  returning jsonb_build_object('account', a.id, 'status', a.status, 'as', current_user)
$$;

grant usage on schema app to teller_north, teller_south, accounts_service;
grant select, update on app.account to teller_north, teller_south;
grant select on app.payee, app.staff, app.permission to accounts_service;
grant select, insert on app.payout, app.token to accounts_service;

insert into app.account (id, holder, region, balance_cents) values
  (1, 'Ada', 'north', 0),
  (2, 'Bela', 'north', 0),
  (3, 'Cyril', 'south', 0),
  (4, 'Dora', 'north', 0),
  (5, 'Edit', 'north', 0);
insert into app.payee (name, iban) values ('Mill & Sons', 'XX02 1000 2000'), ('Harbour Ltd', 'XX77 3000 4000');
insert into app.staff (id) values ('dana'), ('erin'), ('fred'), ('gina');
insert into app.permission (staff, permission) values ('dana', 'payout'), ('dana', 'token'), ('erin', 'payout');
"""


def upgrade() -> None:
    """Make the service's schema."""
    op.get_bind().exec_driver_sql(_UP.replace("%", "%%"))


def downgrade() -> None:
    """Take it away."""
    op.execute("drop schema app cascade")
