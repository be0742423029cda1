-- The fence: the one guard of a driver's writes. Whoever takes it shuts every older holder out (E2). Each takes it by one
-- UPDATE that says again what it was chosen by; a row that another has changed meanwhile is judged as it is then.
create or replace function underseal._fence_message(reason text) returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select case reason
    when 'not-running' then 'Expected an execution that was being driven, found it parked or ended. There is nothing to take over.'
    when 'claimed' then 'Expected no other worker with a claim that still holds, found one. Wait until its claim runs out.'
    when 'exhausted' then 'Expected fewer tries without progress, found as many as are allowed. An operator must look at it.'
    when 'malformed-claim' then 'Expected a worker of 1 to 200 characters, a lease from 1 second to 1 hour and at least one recovery, found others.'
    else underseal._append_message(reason) end
$$;
comment on function underseal._fence_message(text) is 'What was expected of whoever takes a fence, what was found and what to do.';

create or replace function underseal.acquire_fence(execution_id text)
returns table (outcome text, reason text, message text, fence bigint, head bigint, status text, incarnation uuid)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
-- a plan made while the table was small must not stay a scan of all executions
set enable_seqscan = off
set jit = off
as $$
declare
  chain text := underseal._chain_of(execution_id);
  me text := underseal._member_of(execution_id);
begin
  perform underseal._require_read_committed();
  return query
  update underseal.execution e set fence = e.fence + 1
  where e.chain_id = chain and e.member = me and not underseal._is_ended(e.status)
  returning 'acquired', null::text, null::text, e.fence, e.head, e.status, e.incarnation;
  if found then
    return;
  end if;
  return query
  select 'conflict', 'ended', underseal._fence_message('ended'), e.fence, e.head, e.status, e.incarnation
  from underseal.execution e
  where e.chain_id = chain and e.member = me;
  if not found then
    return query select 'not-found', null::text, underseal._fence_message('not-found'), null::bigint, null::bigint,
      null::text, null::uuid;
  end if;
end
$$;
comment on function underseal.acquire_fence(text) is
  'Takes the fence of an open execution: from now on only writes with this number succeed. Outcomes: acquired; not-found; conflict (ended). Result: the new fence, and head, status and incarnation as they are (E2).';

create or replace function underseal._acquire_fence_if(execution_id text, seen_head bigint, seen_fence bigint, seen_incarnation uuid)
returns table (outcome text, reason text, message text, fence bigint, head bigint, status text, incarnation uuid)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  chain text := underseal._chain_of(execution_id);
  me text := underseal._member_of(execution_id);
begin
  perform underseal._require_read_committed();
  return query
  update underseal.execution e set fence = e.fence + 1
  where e.chain_id = chain and e.member = me and not underseal._is_ended(e.status)
    and e.incarnation = seen_incarnation and e.fence = seen_fence and e.head = seen_head
  returning 'acquired', null::text, null::text, e.fence, e.head, e.status, e.incarnation;
  if found then
    return;
  end if;
  return query
  select 'conflict', c.reason, underseal._fence_message(c.reason), e.fence, e.head, e.status, e.incarnation
  from underseal.execution e
  cross join lateral (
    select case
      when e.incarnation is distinct from seen_incarnation then 'gone'
      when e.fence is distinct from seen_fence then 'stale-fence'
      when underseal._is_ended(e.status) then 'ended'
      else 'moved' end as reason) c
  where e.chain_id = chain and e.member = me;
  if not found then
    return query select 'not-found', null::text, underseal._fence_message('not-found'), null::bigint, null::bigint,
      null::text, null::uuid;
  end if;
end
$$;
comment on function underseal._acquire_fence_if(text, bigint, bigint, uuid) is
  'Takes the fence of an execution that is as it was seen. Apart from acquire_fence_if, whose arguments have the names of its results.';

create or replace function underseal.acquire_fence_if(execution_id text, head bigint, fence bigint, incarnation uuid)
returns table (outcome text, reason text, message text, fence bigint, head bigint, status text, incarnation uuid)
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
  select * from underseal._acquire_fence_if(
    acquire_fence_if.execution_id, acquire_fence_if.head, acquire_fence_if.fence, acquire_fence_if.incarnation)
$$;
comment on function underseal.acquire_fence_if(text, bigint, bigint, uuid) is
  'Takes the fence only if head, fence and incarnation are as they were observed; what was not observed was not the same. Outcomes: acquired; not-found; conflict (gone: another execution has the id now; stale-fence; ended; moved). Result: the new fence, or the one in force, and head, status and incarnation as they are (E2).';

create or replace function underseal._recover_execution(
  execution_id text, seen_head bigint, seen_fence bigint, seen_incarnation uuid, worker text, lease interval,
  max_recoveries integer)
returns table (outcome text, reason text, message text, fence bigint, head bigint, status text, incarnation uuid)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  chain text := underseal._chain_of(execution_id);
  me text := underseal._member_of(execution_id);
  e underseal.execution;
  claimant text;
  moment timestamptz;
  flaw text;
begin
  perform underseal._require_read_committed();
  if coalesce(length(worker), 0) not between 1 and 200 or lease is null
    or lease not between interval '1 second' and interval '1 hour' or coalesce(max_recoveries, 0) < 1 then
    return query select 'refused', 'malformed-claim', underseal._fence_message('malformed-claim'), null::bigint,
      null::bigint, null::text, null::uuid;
    return;
  end if;
  perform from underseal.execution x where x.chain_id = chain and x.member = me for no key update;
  perform from underseal.wake w where w.chain_id = chain and w.member = me and w.kind = 'drive' for no key update;
  moment := underseal.clock();
  select x.* into e from underseal.execution x where x.chain_id = chain and x.member = me;
  if not found then
    return query select 'not-found', null::text, underseal._fence_message('not-found'), null::bigint, null::bigint,
      null::text, null::uuid;
    return;
  end if;
  select w.claimed_by into claimant
  from underseal.wake w
  where w.chain_id = chain and w.member = me and w.kind = 'drive' and w.claimed_until > moment;
  flaw := case
    when e.incarnation is distinct from seen_incarnation then 'gone'
    when e.fence is distinct from seen_fence then 'stale-fence'
    when e.head is distinct from seen_head then 'moved'
    when e.status not in ('pending', 'running') then 'not-running'
    when claimant <> worker then 'claimed'
    when e.recoveries >= max_recoveries then 'exhausted' end;
  if flaw = 'exhausted' then
    perform underseal._report(execution_id, 'recoveries-exhausted',
      format('Taken over %s times since it last recorded anything, and nobody takes it over again. See what its flow does, or cancel it.', e.recoveries));
  end if;
  if flaw is not null then
    return query select case flaw when 'exhausted' then 'refused' else 'conflict' end, flaw,
      underseal._fence_message(flaw), e.fence, e.head, e.status, e.incarnation;
    return;
  end if;

  insert into underseal.event (chain_id, member, seq, recorded_at, type, data)
  values (chain, me, e.head + 1, moment, 'EXECUTION_RECOVERED',
    json_build_object('worker', worker, 'attempt', e.recoveries + 1));
  insert into underseal.wake as w (chain_id, member, kind, flow, wake_at, claimed_by, claimed_until, attempts)
  values (chain, me, 'drive', e.flow, moment, worker, moment + lease, 1)
  on conflict on constraint wake_pkey do update
    set claimed_by = excluded.claimed_by, claimed_until = excluded.claimed_until, attempts = w.attempts + 1;
  return query
  update underseal.execution x set fence = x.fence + 1
  where x.chain_id = chain and x.member = me
  returning 'recovered', null::text, null::text, x.fence, x.head, x.status, x.incarnation;
end
$$;
comment on function underseal._recover_execution(text, bigint, bigint, uuid, text, interval, integer) is
  'Takes an execution over that is as it was seen. Apart from recover_execution, whose arguments have the names of its results.';

create or replace function underseal.recover_execution(
  execution_id text, head bigint, fence bigint, incarnation uuid, worker text, lease interval,
  max_recoveries integer default 3)
returns table (outcome text, reason text, message text, fence bigint, head bigint, status text, incarnation uuid)
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
  select * from underseal._recover_execution(recover_execution.execution_id, recover_execution.head,
    recover_execution.fence, recover_execution.incarnation, recover_execution.worker, recover_execution.lease,
    recover_execution.max_recoveries)
$$;
comment on function underseal.recover_execution(text, bigint, bigint, uuid, text, interval, integer) is
  'Takes an execution over from a driver that is gone: only if head, fence and incarnation are as they were observed and no other worker''s claim of its wake holds, it records EXECUTION_RECOVERED, takes the fence and claims the wake for the lease (1 second to 1 hour). max_recoveries: how often that may happen before anything else is recorded. Outcomes: recovered; not-found; conflict (gone, stale-fence, moved, not-running, claimed); refused (exhausted, which is reported to operators and leaves the execution as it is; malformed-claim). Result: the new fence, or the one in force, and head, status and incarnation as they are (E8).';
