-- Who may do what with which execution (E12). Judged before anything is locked; every denial reads the same way to its
-- caller, and leaves the same trace in the caller's own transaction, whatever its cause: one row for operators.
create or replace function underseal._execution_denied(out outcome text, out reason text, out message text)
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
  select 'denied', 'execution',
    'Expected an execution with which the principal may do this, found none. Check its id and whom you act for.'
$$;
comment on function underseal._execution_denied() is
  'The one answer to who may not do this with an execution, whether it is missing, another''s, nobody''s or sealed.';

create or replace function underseal._has_access(access text) returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select exists (
    select from underseal.access_grant g
    where g.access = _has_access.access and pg_has_role(session_user, to_regrole(quote_ident(g.grantee))::oid, 'MEMBER'))
$$;
comment on function underseal._has_access(text) is
  'Whether this session''s login was granted an access; that it owns the schema is no such grant.';

create or replace function underseal._is_system(claimed text) returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select claimed is null
    and (underseal._has_access('worker') or pg_has_role(session_user, underseal._owner(), 'MEMBER'))
$$;
comment on function underseal._is_system(text) is
  'Whether a read is the system''s own: by a worker, or the schema''s owner, in nobody''s name (E14).';

create or replace function underseal._is_operator(claimed text) returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select underseal._has_access('operator') and underseal._effective_principal('{operator}', claimed) is not null
$$;
comment on function underseal._is_operator(text) is
  'Whether this session acts as an operator: its login was granted that access, under which it may act for the principal named.';

create or replace function underseal._ask_access_hook(
  hook text, op text, principal text, owner text, execution_id text, flow text) returns boolean
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  answer boolean;
begin
  if underseal._hook_flaw(hook) is not null then
    return false;
  end if;
  execute format('select %s($1, $2, $3, $4, $5)', to_regprocedure(hook)::regproc)
    into answer using op, principal, owner, execution_id, flow;
  return coalesce(answer, false);
exception when others then
  return false;
end
$$;
comment on function underseal._ask_access_hook(text, text, text, text, text, text) is
  'Asks the host''s policy. A flawed hook, an error and a NULL deny (E15).';

create or replace function underseal._default_policy(op text, principal text, owner text, operates boolean) returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select case
    when op in ('read', 'cancel', 'migrate', 'fork', 'outcome') then coalesce(owner = principal, false) or operates
    when op in ('send', 'resume') then coalesce(owner = principal, false)
    when op in ('discard', 'compact', 'delete') then operates or pg_has_role(session_user, underseal._owner(), 'MEMBER')
    else false end
$$;
comment on function underseal._default_policy(text, text, text, boolean) is
  'The policy where the host sets none: the owner may read, send, resume, cancel, migrate, fork and record an outcome; an operator may read, cancel, migrate, fork, record an outcome, discard, compact and delete; the schema''s owner may do what is the operators'' alone. Nobody else may do anything.';

create or replace function underseal._look_up(
  execution_id text, out known boolean, out incarnation uuid, out owner text, out flow text, out head bigint, out sealed boolean)
language plpgsql stable
set search_path = pg_catalog, pg_temp
-- a plan must not differ by what is there to be found
set enable_seqscan = off
set jit = off
as $$
begin
  select e.incarnation, e.owner, e.flow, e.head, e.sealed into incarnation, owner, flow, head, sealed
  from underseal.execution e
  where e.chain_id = underseal._chain_of(_look_up.execution_id) and e.member = underseal._member_of(_look_up.execution_id);
  known := found;
end
$$;
comment on function underseal._look_up(text) is 'What access is judged by, read without a lock.';

create or replace function underseal._judge_access(
  op text, execution_id text, claimed text, accesses text[], out cause text, out principal text, out known boolean,
  out incarnation uuid, out head bigint, out sealed boolean)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  seen record;
  hook text;
  may boolean;
  system constant boolean := op = 'read' and underseal._is_system(claimed);
begin
  if not system then
    principal := underseal._effective_principal(accesses, claimed);
  end if;
  if principal is null and not system then
    -- judged before anything is looked at, so nothing depends on what is there
    cause := 'no-principal';
    known := true;
    return;
  end if;
  select l.* into seen from underseal._look_up(execution_id) l;
  known := seen.known;
  incarnation := seen.incarnation;
  head := seen.head;
  sealed := seen.sealed;
  if system then
    cause := case when not known then 'missing' end;
    return;
  end if;
  -- The policy is asked about what is missing as well: a denial must not be quicker for it.
  hook := (select s.value from underseal.setting s where s.key = 'log.access_hook');
  may := case
    when hook is null then underseal._default_policy(op, principal, seen.owner, underseal._is_operator(claimed))
    else underseal._ask_access_hook(hook, op, principal, seen.owner, execution_id, seen.flow) end;
  cause := case
    when not known then 'missing'
    when may then null
    when hook is not null then 'policy-hook'
    when seen.owner is null then 'unknown-owner'
    else 'foreign' end;
end
$$;
comment on function underseal._judge_access(text, text, text, text[]) is
  'Whether a caller may do something with an execution: cause is null, or why not. Records nothing.';

create or replace function underseal._tell_denial(hook text, op text, principal text, execution_id text, reason text)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  flaw text := underseal._hook_danger(hook);
begin
  if flaw is null then
    begin
      -- what it returns is not looked at: no cast, no output function of the host's is called
      execute format('select %s($1, $2, $3, $4)', to_regprocedure(hook)::regproc) using op, principal, execution_id, reason;
      return;
    exception when others or assert_failure then
      flaw := format('%s failed (SQLSTATE %s). Call it as its owner to see why.', hook, sqlstate);
    end;
  end if;
  perform underseal._report_denial_hook(flaw);
end
$$;
comment on function underseal._tell_denial(text, text, text, text, text) is
  'Calls the host''s denial hook. One that is flawed or fails changes nothing; it is reported (E14, E15).';

create or replace function underseal._report_denial_hook(cause text) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
-- milliseconds: who is turned away does not wait for a report of another, whose transaction is still open
set lock_timeout = 1
as $$
begin
  if not exists (
      select from underseal.operator_report r where r.subject = 'denial hook' and r.kind = 'denial-hook-failed') then
    perform underseal._report('denial hook', 'denial-hook-failed', cause);
  end if;
exception when others then
  null;
end
$$;
comment on function underseal._report_denial_hook(text) is
  'Reports to operators that the denial hook could not be called: once, until the report is cleared.';

create or replace function underseal._record_denial(op text, execution_id text, principal text, cause text, known boolean)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  -- above every id
  beyond constant text := repeat(chr(1114111), 201);
  written record;
begin
  insert into underseal.execution_denial as d (denied_at, op, execution_id, principal, cause)
  values (underseal.clock(), op, left(coalesce(execution_id, ''), 400), left(principal, 400), cause)
  returning d.op, d.principal, d.execution_id, case when d.op <> 'read' then (
    select s.value from underseal.setting s where s.key = 'log.denial_hook') end as hook
  into written;
  -- A row that was found was read; where none was, another one is, since a caller may look at its own statistics.
  perform from underseal.execution e
  where (e.chain_id, e.member) >= (case when known then beyond else '' end, '')
  order by e.chain_id, e.member
  limit 1;
  if written.hook is not null then
    perform underseal._tell_denial(written.hook, written.op, written.principal, written.execution_id, d.reason)
    from underseal._execution_denied() d;
  end if;
end
$$;
comment on function underseal._record_denial(text, text, text, text, boolean) is
  'Leaves a denial and its cause for operators, and tells the host''s denial hook of one that is no query''s, without the cause (E14). known: whether a row of the execution was read; the caller''s statistics are the same either way.';

create or replace function underseal._allowed(
  op text, execution_id text, claimed text, accesses text[], out allowed boolean, out principal text)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  judged record;
begin
  select j.* into judged from underseal._judge_access(op, execution_id, claimed, accesses) j;
  allowed := judged.cause is null;
  principal := judged.principal;
  if not allowed then
    perform underseal._record_denial(op, execution_id, principal, judged.cause, judged.known);
  end if;
end
$$;
comment on function underseal._allowed(text, text, text, text[]) is
  'Whether a caller may do something with an execution, and as whom; a denial is recorded. op: read, send, resume, cancel, migrate, fork, outcome, discard, compact or delete. Takes no lock on the execution: a verb that locks it afterwards and finds it gone denies as well.';

create or replace function underseal.set_access_policy(hook text)
returns table (outcome text, reason text, message text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  flaw text;
begin
  if hook is null then
    delete from underseal.setting s where s.key = 'log.access_hook';
    return query select 'unset', null::text, 'Owners and operators may act, nobody else.'::text;
    return;
  end if;
  flaw := underseal._hook_flaw(hook);
  if flaw is null then
    select format('expected %s to take five texts and to return one boolean, found other types', hook) into flaw
    from pg_catalog.pg_proc p
    where p.oid = to_regprocedure(hook)
      and (p.prorettype <> 'boolean'::regtype or p.proretset or p.proargtypes <> repeat('25 ', 5)::oidvector);
  end if;
  if flaw is not null then
    raise exception using errcode = 'US011', message = format('underseal.set_access_policy: %s', flaw),
      hint = 'Give a SECURITY DEFINER function (op text, principal text, owner text, execution_id text, flow text) returns boolean, with its argument types, owned by a role of the host.';
  end if;
  insert into underseal.setting as s (key, value) values ('log.access_hook', to_regprocedure(hook)::text)
  on conflict on constraint setting_pkey do update set value = excluded.value;
  return query select 'set', null::text, format('%s decides who may do what with an execution.', hook);
end
$$;
comment on function underseal.set_access_policy(text) is
  'Lets a function of the host (op text, principal text, owner text, execution_id text, flow text) returns boolean decide who may do what with an execution, in place of the policy by owner and operators; null goes back to that. op: read, send, resume, cancel, migrate, fork, outcome, discard, compact, delete; owner is null where nobody knows it. An error and a NULL deny. It is asked about missing executions too, where its answer decides nothing. For the schema owner. Outcomes: set, unset. Errors: US011 (E12, E15).';

create or replace function underseal.set_denial_hook(hook text)
returns table (outcome text, reason text, message text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  flaw text;
begin
  if hook is null then
    delete from underseal.setting s where s.key = 'log.denial_hook';
    return query select 'unset', null::text, 'No function is told of denials.'::text;
    return;
  end if;
  flaw := underseal._hook_danger(hook);
  if flaw is null then
    select format('expected %s to be a function of four texts, found another', hook) into flaw
    from pg_catalog.pg_proc p
    where p.oid = to_regprocedure(hook) and (p.prokind <> 'f' or p.proargtypes <> repeat('25 ', 4)::oidvector);
  end if;
  if flaw is not null then
    raise exception using errcode = 'US011', message = format('underseal.set_denial_hook: %s', flaw),
      hint = 'Give a SECURITY DEFINER function (op text, principal text, execution_id text, reason text), with its argument types, owned by a role of the host.';
  end if;
  insert into underseal.setting as s (key, value) values ('log.denial_hook', to_regprocedure(hook)::text)
  on conflict on constraint setting_pkey do update set value = excluded.value;
  return query select 'set', null::text, format('%s is told of denials.', hook);
end
$$;
comment on function underseal.set_denial_hook(text) is
  'Lets a function of the host (op text, principal text, execution_id text, reason text) hear of every denial of what would have changed something; null ends that. It is called once for each, in the caller''s transaction, so that what it writes goes with a rollback; what it returns is not looked at, and an error of it changes nothing and is reported. op: start, send, resume, cancel, migrate, fork, outcome, discard, compact or delete, never read; principal: null where nobody could be named; reason: what the caller was told, the same whatever the cause. For the schema owner. Outcomes: set, unset. Errors: US011 (E14, E15).';

create or replace view underseal.execution_denials as
select d.denied_at, d.op, d.execution_id, d.principal, d.cause
from underseal.execution_denial d
order by d.denial_id desc;
comment on view underseal.execution_denials is 'Denials of the last 30 days, the newest first, with the causes that callers are not told.';
comment on column underseal.execution_denials.denied_at is 'When.';
comment on column underseal.execution_denials.op is 'What was asked.';
comment on column underseal.execution_denials.execution_id is 'Which execution was named, its first 400 characters.';
comment on column underseal.execution_denials.principal is 'Who asked; null where nobody could be named.';
comment on column underseal.execution_denials.cause is
  'no-principal (the login may act for nobody, or not for whom it named), missing, foreign, unknown-owner, policy-hook or sealed.';

create or replace function underseal.sweep_denials(max_denials integer default 1000)
returns table (outcome text, reason text, message text, swept integer)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  until timestamptz := underseal.clock() - interval '30 days';
begin
  delete from underseal.execution_denial d
  where d.denial_id in (
    select o.denial_id from underseal.execution_denial o
    where o.denied_at < until
      -- numbers follow the clock, so that the oldest are the first and no index on the time is needed
      and o.denial_id in (
        select x.denial_id from underseal.execution_denial x
        order by x.denial_id limit least(greatest(max_denials, 0), 10000))
    for update skip locked);
  get diagnostics swept = row_count;
  return query select 'swept', null::text, format('%s denials older than 30 days are gone.', swept), swept;
end
$$;
comment on function underseal.sweep_denials(integer) is
  'Deletes denials older than 30 days, among the max_denials (at most 10000) oldest; call it again while swept is as many. Sweepers pass each other by. Outcome: swept.';
