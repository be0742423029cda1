-- Due wakes are claimed in batches, and nothing here ever waits for a lock: what somebody else holds is passed by. A claim
-- is made under the locks of the execution and of all its wakes, and only where no other claim of that execution holds.

-- While somebody holds an old snapshot, the index keeps an entry for every wake that was finished since. A search begins
-- above them; what was committed late, with an instant below the floor, is found by the sweep.
create or replace function underseal._raise_floors(flows text[], moment timestamptz) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  one record;
  first timestamptz;
  swept timestamptz;
begin
  for one in
    select f.flow, l.floor_at, case when l.look_at <= moment then l.sweep_at end as sweep_at
    from unnest(flows) as f (flow)
    left join underseal.wake_floor l on l.flow = f.flow
    where f.flow is not null and (l.flow is null or l.look_at <= moment
      -- no floor is looked at so late, unless the clock went back: then it hides what is due
      or l.look_at > moment + interval '1 minute')
  loop
    -- whoever has this lock writes the row, and nobody waits for them
    continue when not pg_try_advisory_xact_lock(hashtextextended('underseal.wake_floor ' || one.flow, 0));
    swept := one.sweep_at;
    if swept is null or swept <= moment then
      one.floor_at := '-infinity';
    end if;
    first := (
      select w.wake_at from underseal.wake w
      where w.flow = one.flow and w.wake_at > one.floor_at
      order by w.wake_at
      limit 1);
    if one.floor_at = '-infinity' then
      -- A wake without an execution was left behind, by hand or by a restored table. As what is due is claimed, such come to
      -- stand first.
      delete from underseal.wake w
      using (
        select w.chain_id, w.member, w.kind
        from (
          select w.chain_id, w.member, w.kind from underseal.wake w
          where w.flow = one.flow and w.wake_at <= moment and w.kind in ('drive', 'timer', 'inbox')
          order by w.wake_at
          limit 100) c
        join underseal.wake w on w.chain_id = c.chain_id and w.member = c.member and w.kind = c.kind
        where not exists (select from underseal.execution e where e.chain_id = c.chain_id and e.member = c.member)
        for no key update of w skip locked) f
      where w.chain_id = f.chain_id and w.member = f.member and w.kind = f.kind;
      -- a sweep may take at most a fiftieth of the time
      swept := moment + greatest(interval '10 seconds', 50 * (underseal.clock() - moment));
    end if;
    insert into underseal.wake_floor as l (flow, floor_at, look_at, sweep_at)
    values (one.flow, least(first, moment) - interval '10 seconds', moment + interval '5 seconds', swept)
    on conflict on constraint wake_floor_pkey do update
      set floor_at = excluded.floor_at, look_at = excluded.look_at, sweep_at = excluded.sweep_at;
  end loop;
end
$$;
comment on function underseal._raise_floors(text[], timestamptz) is
  'Raises, every 5 seconds at most, the floor from which due wakes of these flows are looked for: to 10 seconds before the first that is left. From time to time (after 10 seconds, or 50 times as long as it took) all that lies below is looked through, and wakes of executions that vanished are removed.';

create or replace function underseal._claim_flaw(worker text, lease interval, most integer)
returns table (outcome text, reason text, message text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select d.outcome, d.reason, d.message from underseal._denied() d
  where underseal._effective_principal('{worker}', worker) is null
  union all
  select 'refused', 'malformed-claim',
    'Expected the name of a worker of 1 to 200 characters, a lease from 1 second to 1 hour, and from 1 to 10,000 claims at most; found others.'
  where length(worker) > 200 or (lease between interval '1 second' and interval '1 hour') is not true
    or (most between 1 and 10000) is not true
  limit 1
$$;
comment on function underseal._claim_flaw(text, interval, integer) is 'What keeps a worker from claiming as asked; no row for nothing.';

create or replace function underseal._is_claimed(chain_id text, member text, moment timestamptz) returns boolean
language sql stable
as $$
  select exists (
    select from underseal.wake w
    where w.chain_id = _is_claimed.chain_id and w.member = _is_claimed.member and w.kind in ('drive', 'timer', 'inbox')
      and w.claimed_until > moment)
$$;
comment on function underseal._is_claimed(text, text, timestamptz) is 'Whether a claim of an execution holds, whichever of its wakes it came by.';

create or replace function underseal._is_within(chain_id text, member text, newest integer) returns boolean
language sql stable
as $$
  select exists (
    select from underseal.execution e
    where e.chain_id = _is_within.chain_id and e.member = _is_within.member and e.flow_version <= newest)
$$;
comment on function underseal._is_within(text, text, integer) is 'Whether an execution is of no newer version of its flow than this one.';

create or replace function underseal.claim_due(
  worker text, flows text[], lease interval, max_wakes integer default 100, flow_versions integer[] default null)
returns table (
  outcome text, reason text, message text, kind text, execution_id text, flow text, flow_version integer, status text,
  head bigint, fence bigint, incarnation uuid, attempts integer, wake_at timestamptz, cancel_requested boolean)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
-- Each query has one good plan, by its index; with few rows the planner would think of others.
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
  moment timestamptz := underseal.clock();
  chains text[];
  members text[];
  kinds text[];
begin
  perform underseal._require_read_committed();
  return query select f.outcome, f.reason, f.message, null::text, null::text, null::text, null::integer, null::text,
    null::bigint, null::bigint, null::uuid, null::integer, null::timestamptz, null::boolean
  from underseal._claim_flaw(worker, lease, max_wakes) f;
  if found then
    return;
  end if;
  if cardinality(flow_versions) <> cardinality(flows) then
    outcome := 'refused';
    reason := 'malformed-claim';
    message := 'Expected as many versions as flows, or none, found another number. Give the newest version of each flow that this worker can drive.';
    return next;
    return;
  end if;
  perform underseal._raise_floors(flows, moment);

  -- How many of each flow: they take turns, so that one flow's backlog starves no other.
  with due as materialized (
    select f.flow, f.newest, l.floor_at, row_number() over (partition by f.flow order by w.wake_at) as turn, w.wake_at
    from (
      select n.flow, case when bool_and(n.version is not null) then max(n.version) end as newest
      from unnest(flows, flow_versions) as n (flow, version)
      group by n.flow) f
    left join underseal.wake_floor l on l.flow = f.flow
    cross join lateral (
      select w.wake_at from underseal.wake w
      where w.flow = f.flow and w.wake_at > coalesce(l.floor_at, '-infinity') and w.wake_at <= moment
        and w.kind in ('drive', 'timer', 'inbox') and (w.claimed_until is null or w.claimed_until <= moment)
        and (w.kind = 'drive' or not underseal._is_claimed(w.chain_id, w.member, moment))
        and (f.newest is null or underseal._is_within(w.chain_id, w.member, f.newest))
      order by w.wake_at
      limit max_wakes) w
    order by turn, w.wake_at
    limit max_wakes),
  share as (
    select d.flow, d.newest, d.floor_at, count(*) as most from due d group by d.flow, d.newest, d.floor_at)
  select array_agg(a.chain_id), array_agg(a.member) into chains, members
  from (
    select distinct w.chain_id, w.member
    from share s
    cross join lateral (
      -- locked as they are found: what others hold takes nobody's place
      select w.chain_id, w.member
      from underseal.wake w
      join underseal.execution e on e.chain_id = w.chain_id and e.member = w.member
      where w.flow = s.flow and w.wake_at > coalesce(s.floor_at, '-infinity') and w.wake_at <= moment
        and w.kind in ('drive', 'timer', 'inbox') and (w.claimed_until is null or w.claimed_until <= moment)
        and (w.kind = 'drive' or not underseal._is_claimed(w.chain_id, w.member, moment))
        and (s.newest is null or e.flow_version <= s.newest)
      order by w.wake_at
      limit s.most
      for no key update skip locked) w) a;
  if chains is null then
    return;
  end if;

  -- All wakes of each, also those that are due later: a claim is of the execution.
  select array_agg(w.chain_id), array_agg(w.member), array_agg(w.kind) into chains, members, kinds
  from (
    select w.chain_id, w.member, w.kind
    from unnest(chains, members) as c (chain_id, member)
    join underseal.wake w on w.chain_id = c.chain_id and w.member = c.member and w.kind in ('drive', 'timer', 'inbox')
    for no key update of w skip locked) w;
  if chains is null then
    return;
  end if;

  delete from underseal.wake w
  using unnest(chains, members, kinds) as c (chain_id, member, kind)
  join underseal.execution e on e.chain_id = c.chain_id and e.member = c.member and underseal._is_ended(e.status)
  where w.chain_id = c.chain_id and w.member = c.member and w.kind = c.kind;

  perform underseal._commit_durably();
  return query
  with held as materialized (
    select c.chain_id, c.member, count(*) as wakes,
      (array_agg(w.kind order by w.wake_at > moment, w.kind <> 'drive', w.wake_at))[1] as kind,
      min(w.wake_at) as wake_at, least(max(w.attempts), 2147483646) + 1 as attempts
    from unnest(chains, members, kinds) as c (chain_id, member, kind)
    join underseal.wake w on w.chain_id = c.chain_id and w.member = c.member and w.kind = c.kind
    group by c.chain_id, c.member
    having bool_and(w.claimed_until is null or w.claimed_until <= moment)),
  whole as materialized (
    select h.* from held h
    where h.wakes = (
      select count(*) from underseal.wake w
      where w.chain_id = h.chain_id and w.member = h.member and w.kind in ('drive', 'timer', 'inbox'))),
  claim as (
    update underseal.wake w
    set claimed_by = worker, claimed_until = underseal.clock() + lease, attempts = h.attempts,
      -- what takes its worker down goes to the back, or those who are claimed behind it would never come
      wake_at = case when h.attempts > 1 and w.wake_at < moment then moment else w.wake_at end
    from whole h
    where w.chain_id = h.chain_id and w.member = h.member and w.kind in ('drive', 'timer', 'inbox')),
  driver as (
    update underseal.execution e
    set fence = e.fence + 1
    from whole h
    where e.chain_id = h.chain_id and e.member = h.member
    returning h.kind, e.chain_id, e.member, e.flow, e.flow_version, e.status, e.head, e.fence, e.incarnation, h.attempts,
      h.wake_at, e.cancel_requested)
  select 'claimed'::text, null::text, null::text, d.kind, underseal._execution_id(d.chain_id, d.member), d.flow,
    d.flow_version, d.status, d.head, d.fence, d.incarnation, d.attempts, d.wake_at, d.cancel_requested
  from driver d
  order by d.wake_at, d.chain_id, d.member;
end
$$;
comment on function underseal.claim_due(text, text[], interval, integer, integer[]) is
  'Claims executions of these flows that have something due: a start or a run whose driver is gone (drive), an instant that a wait waits for (timer), a message for a wait (inbox). One row an execution, whatever is due of it, with a new fence taken in the same call; the oldest first, the flows in turn; at most max_wakes (1 to 10,000). flow_versions: for each of the flows the newest version that the worker can drive, null for any; executions of newer ones are left to others. The claim holds for the lease (1 second to 1 hour) and is claimable again after it; attempts counts the claims since the wake came to be or was last given back: at more than one, the worker that claimed it last is gone. Never waits: what another session holds is passed by. Wakes of executions that ended or vanished are removed. Outcomes: claimed rows, none where nothing is due; refused (malformed-claim); denied (E7, E8).';

create or replace function underseal.renew_claims(worker text, execution_ids text[], lease interval)
returns table (outcome text, reason text, message text, execution_id text)
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
begin
  perform underseal._require_read_committed();
  return query select f.outcome, f.reason, f.message, null::text from underseal._claim_flaw(worker, lease, 1) f;
  if found then
    return;
  end if;
  return query
  with asked as materialized (
    select distinct underseal._execution_id(i.chain_id, i.member) as id, i.chain_id, i.member
    from (
      select underseal._chain_of(n.id) as chain_id, underseal._member_of(n.id) as member from unnest(execution_ids) as n (id)) i),
  held as materialized (
    select w.chain_id, w.member, w.kind
    from asked a
    join underseal.wake w on w.chain_id = a.chain_id and w.member = a.member and w.kind in ('drive', 'timer', 'inbox')
    where w.claimed_by = worker
    for no key update of w skip locked),
  renewed as (
    update underseal.wake w
    set claimed_until = underseal.clock() + lease,
      -- an old instant, which the floor would have to stay below, is renewed too, but seldom: the index pays for it
      wake_at = case when w.wake_at < moment - interval '5 minutes' then moment else w.wake_at end
    from held h
    where w.chain_id = h.chain_id and w.member = h.member and w.kind = h.kind
    returning w.chain_id, w.member)
  select case max(s.said) when 2 then 'renewed' when 1 then 'busy' else 'lost' end, null::text,
    case max(s.said)
      when 1 then 'Expected the claim''s wake to be free, found that another session holds it. The claim is as it was; renew it again.'
      when 0 then 'Expected a claim of this worker, found none: it was given back or ran out, or the execution parked or ended.' end,
    s.id
  from (
    select a.id, 0 as said from asked a
    union all
    select a.id, 1 from asked a
    join underseal.wake w on w.chain_id = a.chain_id and w.member = a.member and w.kind in ('drive', 'timer', 'inbox')
    where w.claimed_by = worker
    union all
    select underseal._execution_id(r.chain_id, r.member), 2 from renewed r) s
  group by s.id
  order by s.id;
end
$$;
comment on function underseal.renew_claims(text, text[], interval) is
  'Lets claims of this worker hold for another lease (1 second to 1 hour) from now. A claim that has run out is renewed too, as long as nobody else has claimed the execution. Never waits. Outcomes, a row an execution: renewed; busy (a session holds the wake: the claim is as it was, ask again); lost (nothing of it is claimed by this worker any more); refused (malformed-claim); denied.';

create or replace function underseal._release_claims(worker text, execution_ids text[], retry_in interval)
returns table (outcome text, reason text, message text, execution_id text)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
  again timestamptz;
begin
  perform underseal._require_read_committed();
  if underseal._effective_principal('{worker}', worker) is null then
    return query select d.outcome, d.reason, d.message, null::text from underseal._denied() d;
    return;
  end if;
  if retry_in not between interval '0' and interval '365 days' then
    return query select 'refused', 'malformed-delay',
      'Expected a delay from 0 to 365 days, or none, found another.', null::text;
    return;
  end if;
  again := underseal.clock() + make_interval(secs => extract(epoch from retry_in)::float8);
  return query
  with asked as materialized (
    select distinct underseal._execution_id(i.chain_id, i.member) as id, i.chain_id, i.member
    from (
      select underseal._chain_of(n.id) as chain_id, underseal._member_of(n.id) as member from unnest(execution_ids) as n (id)) i),
  held as materialized (
    select w.chain_id, w.member, w.kind
    from asked a
    join underseal.wake w on w.chain_id = a.chain_id and w.member = a.member and w.kind in ('drive', 'timer', 'inbox')
    where w.claimed_by = worker
    for no key update of w skip locked),
  given as (
    update underseal.wake w
    -- what is given back was no crash: the next claim is a first one again
    set claimed_by = null, claimed_until = null, attempts = 0, wake_at = greatest(w.wake_at, again),
      holds = case when again > w.wake_at then least(w.holds, 2147483646) + 1 else w.holds end
    from held h
    where w.chain_id = h.chain_id and w.member = h.member and w.kind = h.kind
    returning w.chain_id, w.member)
  select case max(s.said) when 2 then 'released' when 1 then 'busy' else 'lost' end, null::text,
    case max(s.said)
      when 1 then 'Expected the claim''s wake to be free, found that another session holds it. The claim runs out by itself.'
      when 0 then 'Expected a claim of this worker, found none: it was given back or ran out, or the execution parked or ended.' end,
    s.id
  from (
    select a.id, 0 as said from asked a
    union all
    select a.id, 1 from asked a
    join underseal.wake w on w.chain_id = a.chain_id and w.member = a.member and w.kind in ('drive', 'timer', 'inbox')
    where w.claimed_by = worker
    union all
    select underseal._execution_id(r.chain_id, r.member), 2 from given r) s
  group by s.id
  order by s.id;
end
$$;
comment on function underseal._release_claims(text, text[], interval) is 'Gives claims back; due again after retry_in, or as they were.';

create or replace function underseal.release_claim(execution_id text, worker text, retry_in interval default null)
returns table (outcome text, reason text, message text)
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
  select r.outcome, r.reason, r.message from underseal._release_claims(worker, array[execution_id], retry_in) r
$$;
comment on function underseal.release_claim(text, text, interval) is
  'Gives a claim back, so that another worker may have it: as soon as it was due, or retry_in (0 to 365 days) from now. It is no crash: the next claim is a first one again. The fence stays as it is. Never waits. Outcomes: released; busy (another session holds the wake; the claim runs out by itself); lost (this worker claims nothing of it any more); refused (malformed-delay); denied.';

create or replace function underseal.release_claims(worker text, execution_ids text[])
returns table (outcome text, reason text, message text, execution_id text)
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
  select r.outcome, r.reason, r.message, r.execution_id from underseal._release_claims(worker, execution_ids, null) r
$$;
comment on function underseal.release_claims(text, text[]) is
  'Gives many claims back at once, as a worker does that stops. Outcomes, a row an execution: released, busy, lost (as release_claim); denied.';

create or replace function underseal.next_due(flows text[], schedules boolean default false)
returns table (outcome text, reason text, message text, seconds double precision)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_bitmapscan = off
as $$
declare
  moment timestamptz := underseal.clock();
begin
  return query
  select 'found'::text, null::text, null::text,
    case when min(n.at) is not null then greatest(extract(epoch from min(n.at) - moment), 0)::double precision end
  from (
    select f.flow from unnest(flows) as f (flow)
    union
    select '' where coalesce(next_due.schedules, false)) f
  left join underseal.wake_floor l on l.flow = f.flow
  cross join lateral (
    (select min(greatest(w.wake_at, w.claimed_until)) as at from underseal.wake w
     where w.flow = f.flow and w.wake_at > coalesce(l.floor_at, '-infinity') and w.wake_at <= moment
       and w.kind in ('drive', 'timer', 'inbox', 'schedule'))
    union all
    (select w.wake_at from underseal.wake w
     where w.flow = f.flow and w.wake_at > moment and w.kind in ('drive', 'timer', 'inbox', 'schedule')
     order by w.wake_at
     limit 1)) n;
end
$$;
comment on function underseal.next_due(text[], boolean) is
  'In how many seconds something of these flows (and, if asked, a schedule) becomes claimable: 0 for now, null for nothing in sight. Claims of others count from when they run out. A worker that has nothing to do may sleep as long, though not much longer than it would otherwise: a message or a start may come at any time. Outcome: found.';

create or replace view underseal.wake_lag as
select w.flow, w.kind,
  count(*) filter (where w.wake_at <= m.now and (w.claimed_until is null or w.claimed_until <= m.now)) as due,
  count(*) filter (where w.claimed_until > m.now) as claimed,
  count(*) filter (where w.claimed_until <= m.now) as expired,
  count(*) filter (where w.wake_at > m.now and (w.claimed_until is null or w.claimed_until <= m.now)) as later,
  m.now - min(w.wake_at) filter (where w.wake_at <= m.now and (w.claimed_until is null or w.claimed_until <= m.now)) as lag,
  max(w.attempts) as attempts
from underseal.wake w
cross join (select underseal.clock() as now) m
group by w.flow, w.kind, m.now;
comment on view underseal.wake_lag is 'How far the workers are behind, for each flow and kind of wake. Reads every wake.';
comment on column underseal.wake_lag.flow is 'The flow; empty for schedules.';
comment on column underseal.wake_lag.kind is 'drive, timer, inbox, refusal or schedule.';
comment on column underseal.wake_lag.due is 'How many are due and claimed by nobody.';
comment on column underseal.wake_lag.claimed is 'How many are claimed.';
comment on column underseal.wake_lag.expired is 'Of how many a claim has run out: their workers may be gone.';
comment on column underseal.wake_lag.later is 'How many become due later.';
comment on column underseal.wake_lag.lag is 'How long the oldest that is due has been waiting; null for none.';
comment on column underseal.wake_lag.attempts is 'The most often that one of them has been claimed without being given back.';
