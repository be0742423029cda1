-- The fold: what an event does to the tables, whoever inserts it. One statement's events are folded together, by
-- statements over all of them; a loop over rows costs fifty times as much for a long log.
create or replace function underseal._fold_events() returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
-- as in sql/log/append_batch.sql
set enable_seqscan = off
set jit = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
  total bigint;
  folded bigint;
  facts bigint;
  ends bigint;
  births boolean;
  apart boolean;
  deliveries boolean;
  seeds boolean;
  ours boolean;
  -- of the only one, where there is one
  chain text;
  me text;
  place bigint;
  recorded timestamptz;
  marked boolean;
begin
  select count(*), count(*) filter (where underseal._is_fact(n.type)),
    count(*) filter (where n.type in ('EXECUTION_COMPLETED', 'EXECUTION_FAILED')), bool_or(n.type = 'MESSAGE_CONSUMED'),
    bool_or(n.type = 'EXECUTION_STARTED'), bool_and(n.txn = pg_current_xact_id()),
    bool_and(n.type = 'EXECUTION_STARTED' and n.data -> 'carried' is null and n.data -> 'continued_from' is null),
    count(distinct n.chain_id) = count(*),
    min(n.chain_id), min(n.member), min(n.seq), min(n.recorded_at), coalesce(bool_or(n.metadata ? 'seal'), false)
    into total, facts, ends, deliveries, seeds, ours, births, apart, chain, me, place, recorded, marked
  from new_events n;
  if total = 0 then
    return null;
  end if;

  -- What most statements bring: what a driver recorded, which says no more than that it is running, and how it ended.
  if facts = 0 and total = 1 then
    -- the same as below, at half the price
    update underseal.execution e
    set head = place, status = 'running', recoveries = 0, changed_at = recorded, sealed = e.sealed or marked
    where e.chain_id = chain and e.member = me and e.head = place - 1 and e.status in ('pending', 'running');
    get diagnostics folded = row_count;
  elsif facts = ends and apart then
    -- one event each, as group commit brings them: nothing is to be gathered
    update underseal.execution e
    set head = n.seq, status = underseal._status_after(n.type, n.data), recoveries = 0, changed_at = n.recorded_at,
      sealed = e.sealed or coalesce(n.metadata ? 'seal', false),
      waits = case when n.type not in ('EXECUTION_COMPLETED', 'EXECUTION_FAILED') then e.waits end
    from new_events n
    where e.chain_id = n.chain_id and e.member = n.member and e.head = n.seq - 1 and e.status in ('pending', 'running');
    get diagnostics folded = row_count;
  elsif facts = ends then
    with e as (
      update underseal.execution e
      set head = g.last, status = underseal._status_after(coalesce(g.ending, ''), null), recoveries = 0, changed_at = g.recorded_at,
        sealed = e.sealed or g.sealed, waits = case when g.ends = 0 then e.waits end
      from (
        select n.chain_id, n.member, min(n.seq) as first, max(n.seq) as last, count(*) as events,
          max(n.seq) filter (where n.type in ('EXECUTION_COMPLETED', 'EXECUTION_FAILED')) as ended_at,
          count(*) filter (where n.type in ('EXECUTION_COMPLETED', 'EXECUTION_FAILED')) as ends,
          min(n.type) filter (where n.type in ('EXECUTION_COMPLETED', 'EXECUTION_FAILED')) as ending,
          (array_agg(n.recorded_at order by n.seq desc))[1] as recorded_at, coalesce(bool_or(n.metadata ? 'seal'), false) as sealed
        from new_events n
        group by n.chain_id, n.member) g
      where e.chain_id = g.chain_id and e.member = g.member and e.head = g.first - 1
        and g.events = g.last - g.first + 1 and e.status in ('pending', 'running')
        and (g.ends = 0 or (g.ends = 1 and g.ended_at = g.last))
      returning g.events)
    select sum(e.events) into folded from e;
  elsif births then
    -- nothing was there before them, so nothing is to be cleared away
    insert into underseal.execution (chain_id, member, line, flow, flow_version, owner, status, head, fence, sealed,
      started_at, changed_at)
    select n.chain_id, n.member, underseal._line_of(n.member), s.flow, s.flow_version, s.owner, 'pending', 0,
      coalesce((
        select f.fence from underseal.fence_floor f where f.chain_id = n.chain_id and f.member = n.member), 0) + 1,
      coalesce(n.metadata ? 'seal', false), n.recorded_at, n.recorded_at
    from new_events n
    cross join lateral json_to_record(n.data) as s (flow text, flow_version integer, owner text);
    get diagnostics folded = row_count;
  else
    with n as (
      select n.chain_id, n.member, n.seq, n.type, n.data, n.metadata, n.recorded_at, s.status,
        lag(s.status) over (partition by n.chain_id, n.member order by (s.status is null), n.seq) as before
      from new_events n
      cross join lateral (select underseal._status_after(n.type, n.data) as status) s),
    g as materialized (
      select n.chain_id, n.member, min(n.seq) as first, max(n.seq) as last, count(*) as events,
        (array_agg(n.status order by n.seq desc) filter (where n.status is not null))[1] as status,
        (array_agg(n.recorded_at order by n.seq desc))[1] as recorded_at,
        coalesce(bool_or(n.metadata ? 'seal'), false) as sealed,
        bool_or(n.type = 'EXECUTION_CANCEL_REQUESTED') as cancel_requested,
        (array_agg(n.data) filter (where n.seq = 0))[1] as start,
        (array_agg(n.recorded_at) filter (where n.seq = 0))[1] as began,
        (array_agg((n.data ->> 'flow_version')::integer order by n.seq desc)
          filter (where n.type = 'EXECUTION_MIGRATED'))[1] as flow_version,
        max(n.seq) filter (where n.status is not null
          and n.type not in ('EXECUTION_RECOVERED', 'EXECUTION_CANCEL_REQUESTED')) as progress,
        (array_agg(n.seq order by n.seq) filter (where n.type = 'EXECUTION_RECOVERED')) as recovered,
        max(n.seq) filter (where n.type in ('EXECUTION_STARTED', 'EXECUTION_SUSPENDED', 'EXECUTION_CANCEL_REQUESTED')
          or underseal._is_ended(n.status)) as wait_base,
        (array_agg(n.data -> 'waits' order by n.seq desc) filter (where n.type in ('EXECUTION_STARTED',
          'EXECUTION_SUSPENDED', 'EXECUTION_CANCEL_REQUESTED') or underseal._is_ended(n.status)))[1]::jsonb as parked,
        -- gathered here, or each execution would look through all of the statement's events
        (array_agg(n.seq order by n.seq) filter (where n.type in ('MESSAGE_CONSUMED', 'TIMER_FIRED'))) as answered_at,
        (array_agg(n.data ->> 'wait' order by n.seq) filter (where n.type in ('MESSAGE_CONSUMED', 'TIMER_FIRED'))) as answered,
        max((n.data ->> 'inbox_seq')::bigint) filter (where n.type = 'MESSAGE_CONSUMED') as last_inbox_seq,
        underseal._leaves_a_park((array_agg(n.type order by n.seq) filter (where n.status is not null))[1]) as moves_a_parked_one,
        coalesce(bool_or(underseal._is_ended(n.before) or (n.before = 'suspended' and not underseal._leaves_a_park(n.type)))
          filter (where n.status is not null), false) as illegal
      from n
      group by n.chain_id, n.member),
    started as (
      insert into underseal.execution (chain_id, member, line, flow, flow_version, owner, status, head, fence, sealed,
        cancel_requested, recoveries, waits, last_inbox_seq, started_at, changed_at)
      select g.chain_id, g.member, underseal._line_of(g.member), g.start ->> 'flow',
        coalesce(g.flow_version, (g.start ->> 'flow_version')::integer), g.start ->> 'owner', g.status, g.last,
        coalesce(f.fence, 0) + 1, g.sealed, g.cancel_requested,
        (select count(*) from unnest(g.recovered) r (seq) where r.seq > g.progress),
        case when g.answered is not null then underseal._waits_without(g.parked, (
            select array_agg(a.wait) from unnest(g.answered_at, g.answered) a (seq, wait)
            where a.wait is not null and a.seq > g.wait_base))
          else g.parked end,
        greatest(g.last_inbox_seq, (g.start -> 'carried' ->> 'last_inbox_seq')::bigint, 0), g.began, g.recorded_at
      from g
      left join underseal.fence_floor f on f.chain_id = g.chain_id and f.member = g.member
      where g.first = 0 and g.events = g.last + 1 and not g.illegal
      returning execution.head + 1 as events),
    updated as (
      update underseal.execution e
      set head = g.last, status = coalesce(g.status, e.status), changed_at = g.recorded_at,
        sealed = e.sealed or g.sealed,
        cancel_requested = e.cancel_requested or g.cancel_requested,
        recoveries = case
          when g.recovered is not null then case when g.progress is null then e.recoveries else 0 end
            + (select count(*) from unnest(g.recovered) r (seq) where g.progress is null or r.seq > g.progress)
          when g.progress is null then e.recoveries
          else 0 end,
        flow_version = coalesce(g.flow_version, e.flow_version),
        waits = case when g.answered is not null
          then underseal._waits_without(case when g.wait_base is null then e.waits else g.parked end, (
            select array_agg(a.wait) from unnest(g.answered_at, g.answered) a (seq, wait)
            where a.wait is not null and a.seq > coalesce(g.wait_base, -1)))
          when g.wait_base is null then e.waits
          else g.parked end
      from g
      where e.chain_id = g.chain_id and e.member = g.member and g.first > 0 and e.head = g.first - 1
        and g.events = g.last - g.first + 1 and not g.illegal
        and (g.status is null or (not underseal._is_ended(e.status) and (e.status <> 'suspended' or g.moves_a_parked_one)))
      returning g.events)
    select coalesce((select sum(s.events) from started s), 0) + coalesce((select sum(u.events) from updated u), 0)
      into folded;
  end if;

  if folded is distinct from total or not ours then
    raise exception using errcode = 'US002',
      message = 'underseal.event expected events that continue the log of an open execution, written under the transaction''s own number; found a gap, a place taken, an ended or unknown execution',
      hint = 'Events are appended by the functions of schema underseal.';
  end if;
  if facts = 0 then
    return null;
  end if;
  if facts = ends then
    delete from underseal.wake w
    using new_events n
    where n.type in ('EXECUTION_COMPLETED', 'EXECUTION_FAILED') and w.chain_id = n.chain_id and w.member = n.member and w.kind <> 'schedule';
    return null;
  end if;
  if births then
    insert into underseal.wake (chain_id, member, kind, flow, wake_at)
    select n.chain_id, n.member, 'drive', s.flow, n.recorded_at + make_interval(secs => coalesce(s.after, 0))
    from new_events n
    cross join lateral json_to_record(n.data) as s (flow text, after float8)
    order by n.chain_id, n.member
    on conflict on constraint wake_pkey do nothing;
    return null;
  end if;

  if seeds then
    perform underseal._plant_line(n.chain_id, n.member, n.data) from new_events n
    where n.type = 'EXECUTION_STARTED' and (n.data -> 'carried' is not null or n.data -> 'continued_from' is not null);
  end if;

  if deliveries then
    with d as materialized (
      select n.chain_id, underseal._line_of(n.member) as line, n.data ->> 'topic' as topic,
        (n.data ->> 'inbox_seq')::bigint as inbox_seq
      from new_events n
      where n.type = 'MESSAGE_CONSUMED'),
    cursors as (
      insert into underseal.inbox_cursor as c (chain_id, line, topic, inbox_seq)
      select d.chain_id, d.line, d.topic, max(d.inbox_seq) from d
      group by d.chain_id, d.line, d.topic
      order by d.chain_id, d.line, d.topic
      on conflict on constraint inbox_cursor_pkey do update
        set inbox_seq = greatest(c.inbox_seq, excluded.inbox_seq))
    delete from underseal.inbox_message m
    using d
    where m.chain_id = d.chain_id and m.line = d.line and m.inbox_seq = d.inbox_seq and m.topic = d.topic;

    perform underseal._remember(k.chain_id, k.line, k.keys, k.numbers)
    from (
      select n.chain_id, underseal._line_of(n.member) as line,
        array_agg(decode(n.data ->> 'key', 'hex') order by length(n.member), n.member, n.seq) as keys,
        array_agg((n.data ->> 'inbox_seq')::bigint order by length(n.member), n.member, n.seq) as numbers
      from new_events n
      where n.type = 'MESSAGE_CONSUMED'
      group by 1, 2) k;
  end if;

  with t as materialized (
    select e.chain_id, e.member, e.flow, e.status,
      case e.status
        when 'running' then underseal.clock()
        when 'pending' then e.changed_at + make_interval(secs => coalesce(b.after, 0))
        when 'suspended' then underseal._first_due(e.waits) end as wake_at
    from underseal.execution e
    join (
      select n.chain_id, n.member, max((n.data ->> 'after')::float8) filter (where n.type = 'EXECUTION_STARTED') as after
      from new_events n
      where underseal._status_after(n.type, n.data) is not null
      group by n.chain_id, n.member) b on b.chain_id = e.chain_id and b.member = e.member),
  gone as (
    delete from underseal.wake w
    using t
    where w.chain_id = t.chain_id and w.member = t.member and case t.status
      when 'running' then w.kind in ('timer', 'inbox')
      when 'pending' then w.kind in ('timer', 'inbox')
      when 'suspended' then w.kind in ('drive', 'inbox') or (w.kind = 'timer' and t.wake_at is null)
      else w.kind <> 'schedule' end
    returning w.chain_id, w.member, w.claimed_by, w.claimed_until, w.attempts),
  held as materialized (
    -- who claimed the wake that led here goes on with the run under the same claim
    select distinct on (gone.chain_id, gone.member) gone.*
    from gone
    where gone.claimed_by is not null
    order by gone.chain_id, gone.member, gone.claimed_until desc)
  insert into underseal.wake as w (chain_id, member, kind, flow, wake_at, claimed_by, claimed_until, attempts)
  select t.chain_id, t.member, k.kind, t.flow, t.wake_at, g.claimed_by, g.claimed_until, coalesce(g.attempts, 0)
  from t
  cross join lateral (select case t.status when 'suspended' then 'timer' else 'drive' end as kind) k
  left join held g on g.chain_id = t.chain_id and g.member = t.member and k.kind = 'drive'
  where t.wake_at is not null
  order by t.chain_id, t.member
  on conflict on constraint wake_pkey do update
    set wake_at = excluded.wake_at, claimed_by = null, claimed_until = null
    where w.kind = 'timer';
  return null;
end
$$;
comment on function underseal._fold_events() is
  'Folds a statement''s new events into the execution, its waits, its inbox and its wakes (E4). Refuses a gap, and what continues no open execution.';

create or replace trigger event_fold
after insert on underseal.event
referencing new table as new_events
for each statement execute function underseal._fold_events();
comment on trigger event_fold on underseal.event is 'Folds the log, at the origin.';
