-- Reading logs. Their data leaves the log through _read_at_rest alone, which is inlined into what reads many: neither
-- SECURITY DEFINER nor SET.
create or replace function underseal._read_at_rest(chain_id text, member text, after bigint, max_events integer)
returns table (seq bigint, recorded_at timestamptz, type text, data json, metadata jsonb)
language sql stable
as $$
  select e.seq, e.recorded_at, e.type, e.data, e.metadata
  from underseal.event e
  where e.chain_id operator(pg_catalog.=) _read_at_rest.chain_id and e.member operator(pg_catalog.=) _read_at_rest.member
    and e.seq operator(pg_catalog.>) after
  order by e.seq
  limit max_events
$$;
comment on function underseal._read_at_rest(text, text, bigint, integer) is
  'Events as they are stored, after a number, in order. Opens nothing and judges nothing: what calls it does.';

create or replace function underseal._shown(e underseal.execution)
returns table (
  execution_id text, flow text, flow_version integer, owner text, status text, head bigint, log_start bigint, waits jsonb,
  cancel_requested boolean, continued_by text, started_at timestamptz, changed_at timestamptz, incarnation uuid)
language sql stable
as $$
  select underseal._execution_id(e.chain_id, e.member), e.flow, e.flow_version, e.owner, e.status, e.head, e.log_start,
    e.waits, e.cancel_requested,
    case e.status when 'continued' then underseal._execution_id(e.chain_id, underseal._successor_of(e.member)) end,
    e.started_at, e.changed_at, e.incarnation
$$;
comment on function underseal._shown(underseal.execution) is 'An execution as callers see it: no payload in it.';

create or replace function underseal._get_execution(wanted text, claimed text)
returns table (
  outcome text, reason text, message text, execution_id text, flow text, flow_version integer, owner text, status text,
  head bigint, log_start bigint, waits jsonb, cancel_requested boolean, continued_by text, started_at timestamptz,
  changed_at timestamptz, incarnation uuid)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  judged record;
begin
  select j.* into judged from underseal._judge_access('read', wanted, claimed, '{client,worker,operator}') j;
  if judged.cause is null then
    return query
    select 'found', null::text, null::text, s.*
    from underseal.execution e
    cross join lateral underseal._shown(e) s
    where e.chain_id = underseal._chain_of(wanted) and e.member = underseal._member_of(wanted)
      and e.incarnation = judged.incarnation;
    if found then
      return;
    end if;
  end if;
  perform underseal._record_denial('read', wanted, judged.principal, coalesce(judged.cause, 'missing'), judged.known);
  select d.* into outcome, reason, message from underseal._execution_denied() d;
  return next;
end
$$;
comment on function underseal._get_execution(text, text) is
  'One execution. Apart from get_execution, whose argument has the name of a result.';

create or replace function underseal.get_execution(execution_id text, principal text)
returns table (
  outcome text, reason text, message text, execution_id text, flow text, flow_version integer, owner text, status text,
  head bigint, log_start bigint, waits jsonb, cancel_requested boolean, continued_by text, started_at timestamptz,
  changed_at timestamptz, incarnation uuid)
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$ select * from underseal._get_execution(get_execution.execution_id, principal) $$;
comment on function underseal.get_execution(text, text) is
  'One execution as its log folds: status pending, running, suspended, completed, failed, cancelled or continued; head is the number of its last event, log_start the lowest above 0 that is kept, waits what it waits for, continued_by its successor. principal: who reads; null for a worker''s own reading. Outcomes: found; denied (the same for one that is missing, another''s or nobody''s) (E12, E14).';

create or replace function underseal.read_events(
  execution_id text, principal text, after_seq bigint default -1, max_events integer default 1000,
  capability jsonb default null)
returns table (
  outcome text, reason text, message text, seq bigint, recorded_at timestamptz, type text, data json, metadata jsonb)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  chain text := underseal._chain_of(execution_id);
  me text := underseal._member_of(execution_id);
  most integer := least(greatest(coalesce(max_events, 1000), 0), 10000);
  judged record;
  locked boolean;
begin
  select j.* into judged from underseal._judge_access('read', execution_id, principal, '{client,worker,operator}') j;
  if judged.cause is not null or judged.sealed then
    -- A seal that does not open denies like everything else. So every denial looks here; where the answer is known
    -- already, among the events of no execution.
    locked := exists (
      select from underseal._read_at_rest(
        case when judged.cause is null and capability is not null then chain else '~' end, me, coalesce(after_seq, -1), most) r
      where not underseal.seal_opens(r.metadata -> 'seal', capability));
    if judged.cause is null and (capability is null or locked) then
      judged.cause := 'sealed';
    end if;
  end if;
  if judged.cause is not null then
    perform underseal._record_denial('read', execution_id, judged.principal, judged.cause, judged.known);
    select d.* into outcome, reason, message from underseal._execution_denied() d;
    return next;
    return;
  end if;
  -- no further than the head that was judged, in the execution that was judged
  return query
  select 'event', null::text, null::text, r.*
  from underseal.execution e
  cross join lateral underseal._read_at_rest(chain, me, coalesce(after_seq, -1), most) r
  where e.chain_id = chain and e.member = me and e.incarnation = judged.incarnation and r.seq <= judged.head
  order by r.seq;
end
$$;
comment on function underseal.read_events(text, text, bigint, integer, jsonb) is
  'Events of one execution''s log after the number after_seq (-1 for all), in order, at most max_events (10000): no row where there is nothing new. After a compaction number 0 is followed by log_start. principal: who reads; null for a worker''s own reading. capability: {"ciphers", "covers"}, what the caller opens; a log that holds what it does not open is denied. Outcomes: event rows; denied (the same for an execution that is missing, another''s, nobody''s or sealed) (E11, E12).';

create or replace function underseal.read_logs(
  logs json, max_events integer default 1000, capability jsonb default null)
returns table (
  outcome text, reason text, message text, item integer, execution_id text, seq bigint, recorded_at timestamptz, type text,
  data json, metadata jsonb)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
-- one look into each index for each log, whatever the planner thinks of how many there are
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
#variable_conflict use_column
declare
  most constant integer := least(greatest(coalesce(max_events, 1000), 0), 10000);
begin
  if json_typeof(logs) is distinct from 'array' then
    raise exception using errcode = 'US001',
      message = 'underseal.read_logs expected a JSON array of logs, found another value';
  end if;
  -- judged and read in one statement: no event comes of another execution, and none that was not judged
  return query
  with judged as materialized (
    select l.place::integer as item, l.execution_id, e.chain_id, e.member, coalesce(s.seq, l.after, -1) as after,
      s.seq as saved, s.saved_at, s.state, s.metadata as state_metadata,
      e.sealed and (capability is null or not underseal.seal_opens(s.metadata -> 'seal', capability) or exists (
        select from underseal._read_at_rest(e.chain_id, e.member, coalesce(s.seq, l.after, -1), most) r
        where not underseal.seal_opens(r.metadata -> 'seal', capability))) as is_sealed
    from rows from (json_to_recordset(logs) as (execution_id text, after bigint, snapshot boolean))
      with ordinality as l (execution_id, after, snapshot, place)
    left join underseal.execution e
      on e.chain_id = underseal._chain_of(l.execution_id) and e.member = underseal._member_of(l.execution_id)
    left join lateral (
      select o.seq, o.saved_at, o.state, o.metadata from underseal.snapshot o
      where l.snapshot and o.chain_id = e.chain_id and o.member = e.member and o.seq > coalesce(l.after, -1)
      order by o.seq desc
      limit 1) s on true),
  denied as materialized (
    select j.item, j.execution_id, underseal._record_denial('read', j.execution_id, null, 'sealed', true)
    from judged j where j.is_sealed)
  select 'event', null::text, null::text, j.item, j.execution_id, r.seq, r.recorded_at, r.type, r.data, r.metadata
  from judged j
  cross join lateral underseal._read_at_rest(j.chain_id, j.member, j.after, most) r
  where not j.is_sealed
  union all
  select 'snapshot', null, null, j.item, j.execution_id, j.saved, j.saved_at, null, j.state, j.state_metadata
  from judged j
  where j.saved is not null and not j.is_sealed
  union all
  select d.outcome, d.reason, d.message, n.item, n.execution_id, null, null, null, null, null
  from denied n
  cross join underseal._execution_denied() d
  union all
  select 'not-found', null, underseal._append_message('not-found'), j.item, j.execution_id, null, null, null, null, null
  from judged j
  where j.chain_id is null
  order by 4, 6;
end
$$;
comment on function underseal.read_logs(json, integer, jsonb) is
  'Events of many logs in one call, for a worker; the system''s own reading, in nobody''s name. logs: an array of {"execution_id", "after", "snapshot"}, after a number as in read_events (left out: all); with snapshot true the newest snapshot beyond that number comes first, one row with its number and, as data, its state, and then what is behind it. Of each the first max_events (10000), by item, the place in the array from 1, then by number; no row where there is nothing new. capability: as in read_events; a log or snapshot that holds what it does not open answers one row, denied. Outcomes: event rows; snapshot rows; denied; not-found. Errors: US001 (no array) (E9, E11, E14).';

create or replace function underseal._head(wanted text)
returns table (outcome text, reason text, message text, head bigint, fence bigint, incarnation uuid, status text)
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  return query
  select 'found', null::text, null::text, e.head, e.fence, e.incarnation, e.status
  from underseal.execution e
  where e.chain_id = underseal._chain_of(wanted) and e.member = underseal._member_of(wanted);
  if not found then
    return query select 'not-found', null::text, 'Expected an execution of this id, found none.'::text, null::bigint,
      null::bigint, null::uuid, null::text;
  end if;
end
$$;
comment on function underseal._head(text) is 'An observation of one execution.';

create or replace function underseal.head(execution_id text)
returns table (outcome text, reason text, message text, head bigint, fence bigint, incarnation uuid, status text)
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$ select * from underseal._head(execution_id) $$;
comment on function underseal.head(text) is
  'Observes an execution for a worker: what append_if_unchanged, acquire_fence_if and recover_execution are conditional on. Outcomes: found, not-found (E2).';
