-- Schedules: flows that start again and again. Clients read cron expressions and zones; every instant is the database's: they
-- send distances, counted from an instant that the database gave them. The schedule's row is locked before its wake.
create or replace function underseal._longest_distance() returns interval
language sql immutable
as $$ select interval '18300 days' $$;
comment on function underseal._longest_distance() is 'The longest from one instant of a schedule to the next: 50 years.';

create or replace function underseal._exact(distance interval) returns interval
language sql immutable
set search_path = pg_catalog, pg_temp
as $$ select make_interval(secs => extract(epoch from distance)::float8) $$;
comment on function underseal._exact(interval) is
  'A distance in seconds alone: an interval''s days are as long as the session''s time zone makes them.';

create or replace function underseal._first_instant(since timestamptz, first_in interval) returns timestamptz
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  -- instants of a cron expression are whole seconds
  select date_trunc('second', coalesce(since, underseal.clock()) + underseal._exact(first_in) + interval '0.5 seconds')
$$;
comment on function underseal._first_instant(timestamptz, interval) is 'The first instant of a schedule: first_in after since, or after now; a whole second.';

create or replace function underseal._distance_flaw(since timestamptz, first_in interval) returns text
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  select case
    when (first_in > interval '0' and first_in <= underseal._longest_distance()) is not true then 'malformed-distance'
    when since not between underseal.clock() - interval '10 minutes' and underseal.clock() then 'stale-instant' end
$$;
comment on function underseal._distance_flaw(timestamptz, interval) is 'What keeps a first instant from being planned; null for nothing.';

create or replace function underseal._fires_limit() returns integer
language sql immutable
as $$ select 100 $$;
comment on function underseal._fires_limit() is 'The most executions that one pass starts for one schedule: 100.';

create or replace function underseal._schedule_said(flaw text, out outcome text, out reason text, out message text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select case when flaw in ('name-taken', 'changed', 'not-claimed') then 'conflict' when flaw = 'not-found' then flaw else 'refused' end,
    nullif(flaw, 'not-found'),
    case flaw
      when 'not-found' then 'Expected a schedule of this name that you may change, found none. See underseal.list_schedules.'
      when 'name-taken' then 'Expected a name that no schedule of somebody else has, found one that is taken. Choose another.'
      when 'changed' then 'Expected the schedule as it was read, found it changed since. Read it again.'
      when 'not-claimed' then 'Expected the schedule as this worker claimed it, found it claimed by another, fired, changed, paused or removed. Claim again.'
      when 'malformed-name' then 'Expected a name of 1 to 150 characters without tildes and control characters, found none such.'
      when 'malformed-flow' then 'Expected the name of a flow and a version from 1, found none such.'
      when 'malformed-cron' then 'Expected a cron expression of five fields, or six with seconds first, of at most 200 characters; found none such.'
      when 'malformed-zone' then 'Expected the name of an IANA time zone, for example Europe/Berlin, found none such.'
      when 'malformed-missed' then 'Expected skip, latest or all for what becomes of missed instants, found none of them.'
      when 'malformed-distance' then 'Expected a distance of more than nothing and at most 50 years to the next instant, found another. An expression that never comes is no schedule.'
      when 'malformed-instants' then 'Expected the distances from the instant claimed to at most 100 instants, in their order, none later than now and all before the next one; found others.'
      when 'malformed-delay' then 'Expected a delay from 1 second to 1 day, found another.'
      when 'stale-instant' then 'Expected an instant that the database gave within the last 10 minutes, found another. Ask for its clock again.'
      when 'too-large' then 'Expected an input of at most 1 MiB of JSON, found more.'
      when 'envelope' then 'Expected an input without an envelope and without the mark of a shredded value, found one. Send foreign ciphertext as a string.'
      when 'unreadable' then underseal._append_message(flaw)
    end
$$;
comment on function underseal._schedule_said(text) is 'Outcome, reason and message of a refused call about a schedule.';

create or replace function underseal._lock_schedule(name text, principal text, as_operator boolean)
returns table (denied boolean, schedule underseal.schedule)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  operates boolean := coalesce(as_operator, false);
  me text := underseal._effective_principal(case when operates then '{operator}' else '{client}' end::text[], principal);
begin
  perform underseal._require_read_committed();
  denied := me is null;
  if not denied then
    -- whose it is cannot change: strangers are turned away before they hold anything
    perform from underseal.schedule s
    where s.name = _lock_schedule.name and (operates or s.owner = me)
    for no key update;
    select s.* into schedule from underseal.schedule s
    where s.name = _lock_schedule.name and (operates or s.owner = me);
  end if;
  return next;
end
$$;
comment on function underseal._lock_schedule(text, text, boolean) is
  'Locks a schedule for its owner, or for an operator; nulls where there is none for this principal.';

create or replace function underseal._plan_schedule(name text, due_at timestamptz) returns void
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  insert into underseal.wake as w (chain_id, member, kind, flow, wake_at)
  values (name, '', 'schedule', '', due_at)
  on conflict on constraint wake_pkey do update
    set wake_at = excluded.wake_at, claimed_by = null, claimed_until = null, attempts = 0
$$;
comment on function underseal._plan_schedule(text, timestamptz) is 'Says when a schedule is due next, and takes it from whoever has claimed it.';

create or replace function underseal.add_schedule(
  name text, flow text, cron text, time_zone text, first_in interval, principal text, input json default null,
  flow_version integer default 1, missed text default 'latest', since timestamptz default null, as_operator boolean default false)
returns table (outcome text, reason text, message text, due_at timestamptz)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  operates boolean := coalesce(as_operator, false);
  me text := underseal._effective_principal(case when operates then '{operator}' else '{client}' end::text[], principal);
  flaw text;
  fresh boolean;
  was underseal.schedule;
  fields text := trim(regexp_replace(add_schedule.cron, '\s+', ' ', 'g'));
  given json := coalesce(add_schedule.input, 'null');
  moment timestamptz;
begin
  perform underseal._require_read_committed();
  if me is null then
    return query select d.outcome, d.reason, d.message, null::timestamptz from underseal._denied() d;
    return;
  end if;
  flaw := case
    when coalesce(name, '') !~ '^[^~[:cntrl:]]{1,150}$' then 'malformed-name'
    when coalesce(flow, '') !~ '^[^[:cntrl:]]+$' or length(flow) > 200 or coalesce(flow_version, 0) < 1 then 'malformed-flow'
    when coalesce(fields, '') !~ '^[0-9A-Za-z*/,#-]+( [0-9A-Za-z*/,#-]+){4,5}$' or length(fields) > 200 then 'malformed-cron'
    when coalesce(time_zone, '') !~ '^[A-Za-z0-9_+/-]{1,64}$' then 'malformed-zone'
    when coalesce(missed, '') not in ('skip', 'latest', 'all') then 'malformed-missed'
    else coalesce(underseal._distance_flaw(since, first_in), underseal._value_flaw(given)) end;
  if flaw is not null then
    return query select f.outcome, f.reason, f.message, null::timestamptz from underseal._schedule_said(flaw) f;
    return;
  end if;

  moment := underseal.clock();
  insert into underseal.schedule as s (name, flow, flow_version, input, owner, cron, time_zone, missed, created_at, changed_at)
  values (add_schedule.name, add_schedule.flow, add_schedule.flow_version, given, me, fields, add_schedule.time_zone,
    add_schedule.missed, moment, moment)
  on conflict on constraint schedule_pkey do nothing;
  fresh := found;
  if fresh then
    perform underseal._plan_schedule(add_schedule.name, underseal._first_instant(since, first_in));
  else
    select (l.schedule).* into was from underseal._lock_schedule(add_schedule.name, principal, operates) l;
    if was.name is null then
      -- removed just now, or somebody else's: neither is told from the other
      return query select f.outcome, f.reason, f.message, null::timestamptz from underseal._schedule_said('name-taken') f;
      return;
    end if;
    if (was.flow, was.flow_version, was.input::text, was.cron, was.time_zone, was.missed)
      is not distinct from (add_schedule.flow, add_schedule.flow_version, given::text, fields, add_schedule.time_zone, add_schedule.missed)
    then
      return query select 'unchanged'::text, null::text, format('Schedule %s is as asked already.', was.name), (
        select w.wake_at from underseal.wake w where w.chain_id = was.name and w.member = '' and w.kind = 'schedule');
      return;
    end if;
    update underseal.schedule s
    set flow = add_schedule.flow, flow_version = add_schedule.flow_version, input = given, cron = fields,
      time_zone = add_schedule.time_zone, missed = add_schedule.missed, revision = gen_random_uuid(), changed_at = underseal.clock()
    where s.name = was.name;
    -- With the same instants what is due stays due.
    if not was.paused and (was.cron, was.time_zone) <> (fields, add_schedule.time_zone) then
      perform underseal._plan_schedule(was.name, underseal._first_instant(since, first_in));
    end if;
  end if;
  return query
  select case when fresh then 'added' else 'changed' end, null::text,
    case
      when fresh then format('Schedule %s starts %s.', add_schedule.name, add_schedule.flow)
      when was.paused then format('Schedule %s is changed, and paused as before.', add_schedule.name)
      else format('Schedule %s is changed.', add_schedule.name) end, (
    select w.wake_at from underseal.wake w where w.chain_id = add_schedule.name and w.member = '' and w.kind = 'schedule');
end
$$;
comment on function underseal.add_schedule(text, text, text, text, interval, text, json, integer, text, timestamptz, boolean) is
  'Adds a schedule, or changes one of the same name; to ask again for what is there changes nothing, so that a service may ask at every start. name: 1 to 150 characters; its executions are called name@2026-11-30T16:20:05Z. cron: five fields, or six with seconds first, read by clients in time_zone. first_in: the distance to the first instant, above 0 to 50 years, from since (an instant that the database gave within 10 minutes; null for now). missed: what becomes of instants that no worker was there for: skip, latest or all. The executions belong to the principal who added it; as_operator changes somebody else''s. A paused schedule stays paused. Where cron and zone stay, what is due stays due. Outcomes: added, changed, unchanged, with the instant that is due next; conflict (name-taken); refused (malformed-name, malformed-flow, malformed-cron, malformed-zone, malformed-missed, malformed-distance, stale-instant, too-large, envelope, unreadable); denied.';

create or replace function underseal.list_schedules(
  principal text, as_operator boolean default false, max_schedules integer default 1000, after text default null,
  only_name text default null)
returns table (
  outcome text, reason text, message text, name text, flow text, flow_version integer, input json, owner text, cron text,
  time_zone text, missed text, paused boolean, due_at timestamptz, last_id text, revision uuid, created_at timestamptz,
  changed_at timestamptz, "now" timestamptz)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  operates boolean := coalesce(as_operator, false);
  me text := underseal._effective_principal(case when operates then '{operator}' else '{client}' end::text[], principal);
  moment timestamptz := underseal.clock();
begin
  if me is null then
    select d.outcome, d.reason, d.message into outcome, reason, message from underseal._denied() d;
    return next;
    return;
  end if;
  return query
  select 'schedule'::text, null::text, null::text, s.name, s.flow, s.flow_version, s.input, s.owner, s.cron, s.time_zone, s.missed,
    s.paused, w.wake_at, s.last_id, s.revision, s.created_at, s.changed_at, moment
  from underseal.schedule s
  left join underseal.wake w on w.chain_id = s.name and w.member = '' and w.kind = 'schedule'
  where (operates or s.owner = me) and s.name > coalesce(list_schedules.after, '')
    and (only_name is null or s.name = only_name)
  order by s.name
  limit max_schedules;
end
$$;
comment on function underseal.list_schedules(text, boolean, integer, text, text) is
  'The schedules of a principal by name, or with as_operator everybody''s; after: go on after this name; only_name: that one alone. due_at is the next instant (null while paused), now the database''s clock, last_id the execution started last. Outcomes: schedule rows; denied.';

create or replace function underseal.pause_schedule(
  name text, principal text, paused boolean default true, first_in interval default null, since timestamptz default null,
  revision uuid default null, as_operator boolean default false)
returns table (outcome text, reason text, message text, due_at timestamptz)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  lock record;
  was underseal.schedule;
  flaw text;
begin
  select l.denied, l.schedule into lock from underseal._lock_schedule(pause_schedule.name, principal, as_operator) l;
  if lock.denied then
    return query select d.outcome, d.reason, d.message, null::timestamptz from underseal._denied() d;
    return;
  end if;
  was := lock.schedule;
  flaw := case
    when was.name is null then 'not-found'
    when was.revision <> pause_schedule.revision then 'changed'
    when not coalesce(pause_schedule.paused, true) and was.paused then underseal._distance_flaw(since, first_in) end;
  if flaw is not null then
    return query select f.outcome, f.reason, f.message, null::timestamptz from underseal._schedule_said(flaw) f;
    return;
  end if;
  if was.paused = coalesce(pause_schedule.paused, true) then
    return query select 'unchanged'::text, null::text,
      format('Schedule %s is %s already.', was.name, case when was.paused then 'paused' else 'running' end), (
        select w.wake_at from underseal.wake w where w.chain_id = was.name and w.member = '' and w.kind = 'schedule');
    return;
  end if;
  update underseal.schedule s
  set paused = not was.paused, revision = gen_random_uuid(), changed_at = underseal.clock()
  where s.name = was.name;
  if was.paused then
    perform underseal._plan_schedule(was.name, underseal._first_instant(since, first_in));
    return query select 'resumed'::text, null::text, format('Schedule %s runs again.', was.name), (
      select w.wake_at from underseal.wake w where w.chain_id = was.name and w.member = '' and w.kind = 'schedule');
  else
    delete from underseal.wake w where w.chain_id = was.name and w.member = '' and w.kind = 'schedule';
    return query select 'paused'::text, null::text,
      format('Schedule %s is paused: it starts nothing, and what it would have started meanwhile is not made up for.', was.name), null::timestamptz;
  end if;
end
$$;
comment on function underseal.pause_schedule(text, text, boolean, interval, timestamptz, uuid, boolean) is
  'Pauses a schedule, or with paused => false lets it run again; then first_in and since are as in add_schedule. What would have come while it was paused is not missed. revision: only if it is still as it was read. By its owner, or with as_operator by operator access. Outcomes: paused, resumed, unchanged; conflict (changed); refused (malformed-distance, stale-instant); not-found; denied.';

create or replace function underseal.remove_schedule(name text, principal text, as_operator boolean default false)
returns table (outcome text, reason text, message text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  lock record;
  was underseal.schedule;
begin
  select l.denied, l.schedule into lock from underseal._lock_schedule(remove_schedule.name, principal, as_operator) l;
  if lock.denied then
    return query select d.outcome, d.reason, d.message from underseal._denied() d;
    return;
  end if;
  was := lock.schedule;
  if was.name is null then
    return query select f.outcome, f.reason, f.message from underseal._schedule_said('not-found') f;
    return;
  end if;
  delete from underseal.wake w where w.chain_id = was.name and w.member = '' and w.kind = 'schedule';
  delete from underseal.schedule s where s.name = was.name;
  return query select 'removed'::text, null::text, format('Schedule %s is gone; what it has started goes on.', was.name);
end
$$;
comment on function underseal.remove_schedule(text, text, boolean) is
  'Removes a schedule; executions it has started go on. By its owner, or with as_operator by operator access. Outcomes: removed, not-found, denied.';

create or replace function underseal.claim_schedules(worker text, lease interval, max_schedules integer default 20)
returns table (
  outcome text, reason text, message text, name text, cron text, time_zone text, missed text, due_at timestamptz,
  "now" timestamptz, revision uuid)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
  moment timestamptz := underseal.clock();
  names text[];
begin
  perform underseal._require_read_committed();
  return query select f.outcome, f.reason, f.message, null::text, null::text, null::text, null::text, null::timestamptz,
    null::timestamptz, null::uuid
  from underseal._claim_flaw(worker, lease, max_schedules) f;
  if found then
    return;
  end if;
  perform underseal._raise_floors('{""}', moment);
  select array_agg(w.chain_id) into names
  from (
    select w.chain_id from underseal.wake w
    where w.flow = '' and w.kind = 'schedule' and w.wake_at <= moment
      and w.wake_at > coalesce((select l.floor_at from underseal.wake_floor l where l.flow = ''), '-infinity')
      and (w.claimed_until is null or w.claimed_until <= moment)
    order by w.wake_at
    limit max_schedules
    for no key update skip locked) w;
  if names is null then
    return;
  end if;
  return query
  with claimed as (
    update underseal.wake w
    set claimed_by = worker, claimed_until = underseal.clock() + lease, attempts = w.attempts + 1
    from unnest(names) as n (name)
    where w.chain_id = n.name and w.member = '' and w.kind = 'schedule'
    returning w.chain_id, w.wake_at)
  select 'claimed'::text, null::text, null::text, s.name, s.cron, s.time_zone, s.missed, c.wake_at, underseal.clock(), s.revision
  from claimed c
  join underseal.schedule s on s.name = c.chain_id and not s.paused
  order by c.wake_at, s.name;
end
$$;
comment on function underseal.claim_schedules(text, interval, integer) is
  'Claims due schedules for a lease (1 second to 1 hour), the longest due first; never waits. What the worker works out from cron, time_zone and now goes to fire_schedule, with due_at and revision as they are here. Outcomes: claimed rows, none where nothing is due; refused (malformed-claim); denied.';

create or replace function underseal._lock_claimed(name text, worker text, due_at timestamptz, revision uuid) returns underseal.schedule
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  schedule underseal.schedule;
begin
  perform underseal._require_read_committed();
  perform from underseal.schedule s where s.name = _lock_claimed.name for no key update;
  perform from underseal.wake w
  where w.chain_id = _lock_claimed.name and w.member = '' and w.kind = 'schedule' for no key update;
  select s.* into schedule from underseal.schedule s
  join underseal.wake w on w.chain_id = s.name and w.member = '' and w.kind = 'schedule'
  where s.name = _lock_claimed.name and s.revision = _lock_claimed.revision
    and w.claimed_by = worker and w.wake_at = _lock_claimed.due_at;
  return schedule;
end
$$;
comment on function underseal._lock_claimed(text, text, timestamptz, uuid) is
  'Locks a schedule that this worker has claimed as it is; nulls where it has not.';

create or replace function underseal.fire_schedule(
  name text, worker text, due_at timestamptz, revision uuid, fires interval[], next_in interval)
returns table (outcome text, reason text, message text, started text[], existing text[], next_at timestamptz)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  s underseal.schedule;
  moment timestamptz;
  instants timestamptz[];
  ids text[];
  flaw text;
begin
  if underseal._effective_principal('{worker}', worker) is null then
    return query select d.outcome, d.reason, d.message, null::text[], null::text[], null::timestamptz from underseal._denied() d;
    return;
  end if;
  s := underseal._lock_claimed(fire_schedule.name, worker, fire_schedule.due_at, fire_schedule.revision);
  moment := underseal.clock();
  instants := array(
    select fire_schedule.due_at + underseal._exact(f.distance) from unnest(fires) with ordinality f (distance, place) order by f.place);
  next_at := fire_schedule.due_at + underseal._exact(next_in);
  flaw := case
    when s.name is null then 'not-claimed'
    when (next_in > interval '0' and next_in <= underseal._longest_distance()) is not true then 'malformed-distance'
    when fires is null or cardinality(fires) > underseal._fires_limit() or exists (
      select from unnest(instants) with ordinality i (at, place)
      where (i.at >= fire_schedule.due_at and i.at < next_at and i.at <= moment and i.at = date_trunc('second', i.at)
        and i.at > coalesce(instants[i.place::integer - 1], '-infinity')) is not true) then 'malformed-instants' end;
  if flaw is not null then
    return query select f.outcome, f.reason, f.message, null::text[], null::text[], null::timestamptz
    from underseal._schedule_said(flaw) f;
    return;
  end if;

  ids := array(
    select s.name || '@' || to_char(i.at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')
    from unnest(instants) with ordinality i (at, place) order by i.place);
  with fresh as (
    insert into underseal.event (chain_id, member, seq, recorded_at, type, data)
    select i.id, '', 0, underseal.clock(), 'EXECUTION_STARTED',
      json_build_object('flow', s.flow, 'flow_version', s.flow_version, 'owner', s.owner, 'input', s.input)
    from unnest(ids) i (id)
    order by i.id
    on conflict on constraint event_pkey do nothing
    returning event.chain_id)
  select array_agg(f.chain_id order by f.chain_id) into started from fresh f;
  started := coalesce(started, '{}');
  existing := array(select i.id from unnest(ids) i (id) where i.id <> all (started) order by i.id);
  -- Ids are anybody's to choose: one that was taken beforehand keeps its instant from happening.
  perform underseal._report(s.name, 'schedule-id-taken',
    format('Execution %s should have been started by schedule %s, but its id was taken by %s for flow %s.', e.chain_id, s.name,
      coalesce(e.owner, 'somebody'), e.flow))
  from underseal.execution e
  join unnest(existing) i (id) on e.chain_id = i.id and e.member = ''
  where e.owner is distinct from s.owner or e.flow <> s.flow;
  if cardinality(ids) > 0 then
    update underseal.schedule u set last_id = ids[cardinality(ids)] where u.name = s.name;
  end if;
  perform underseal._plan_schedule(s.name, next_at);
  outcome := 'fired';
  return next;
end
$$;
comment on function underseal.fire_schedule(text, text, timestamptz, uuid, interval[], interval) is
  'Starts what a claimed schedule is to start and moves it to its next instant, in one transaction and only if claim, instant and schedule are as claim_schedules told them. fires: distances from due_at to the instants to start an execution for, none or up to 100, ascending, whole seconds, not after now. next_in: the distance from due_at to the instant that is due next (it may have passed: then it is claimable at once). An id that exists is not started again; if it is not the schedule''s own, operators are told (schedule-id-taken). Outcomes: fired, with the ids started, those that existed, and the next instant; conflict (not-claimed); refused (malformed-distance, malformed-instants); denied.';

create or replace function underseal.put_off_schedule(
  name text, worker text, due_at timestamptz, revision uuid, cause text, retry_in interval default '5 minutes')
returns table (outcome text, reason text, message text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  s underseal.schedule;
  flaw text;
begin
  if underseal._effective_principal('{worker}', worker) is null then
    return query select d.outcome, d.reason, d.message from underseal._denied() d;
    return;
  end if;
  s := underseal._lock_claimed(put_off_schedule.name, worker, put_off_schedule.due_at, put_off_schedule.revision);
  flaw := case
    when s.name is null then 'not-claimed'
    when (retry_in between interval '1 second' and interval '1 day') is not true then 'malformed-delay' end;
  if flaw is not null then
    return query select f.outcome, f.reason, f.message from underseal._schedule_said(flaw) f;
    return;
  end if;
  perform underseal._report(s.name, 'schedule-unreadable', left(coalesce(cause, 'no cause was given'), 1000));
  update underseal.wake w
  set claimed_until = underseal.clock() + underseal._exact(retry_in)
  where w.chain_id = s.name and w.member = '' and w.kind = 'schedule';
  return query select 'put-off'::text, null::text, 'The schedule is left alone for a while, and operators are told.'::text;
end
$$;
comment on function underseal.put_off_schedule(text, text, timestamptz, uuid, text, interval) is
  'Leaves a claimed schedule alone for retry_in (1 second to 1 day), because this worker cannot read its expression or its zone; operators are told the cause (schedule-unreadable). It stays due at the same instant. Outcomes: put-off; conflict (not-claimed); refused (malformed-delay); denied.';
