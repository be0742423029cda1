-- Delivery to many executions in one call: locked in the order of their ids, planned each by the one rule, recorded in one
-- statement, since folding costs as much for one event as for many.
create or replace function underseal.deliver_batch(items json)
returns table (
  outcome text, reason text, message text, item integer, execution_id text, answered integer, held boolean, status text,
  head bigint)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
-- one look into each index for each execution, whatever the planner thinks of how many there are
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
#variable_conflict use_column
declare
  places integer[];
  chains text[];
  members text[];
  fences bigint[];
  turns bigint[];
  locked uuid[];
  flaws text[];
  counts integer[];
  holds boolean[];
  moment timestamptz;
begin
  perform underseal._require_read_committed();
  if json_typeof(items) is distinct from 'array' then
    raise exception using errcode = 'US001',
      message = 'underseal.deliver_batch expected a JSON array of items, found another value';
  end if;
  if json_array_length(items) > 1000 then
    return query select 'refused', 'too-many',
      format('Expected at most 1,000 items, found %s. Nothing is delivered; send fewer a call.', json_array_length(items)),
      null::integer, null::text, 0, false, null::text, null::bigint;
    return;
  end if;
  select array_agg(k.place), array_agg(k.chain_id), array_agg(k.member), array_agg(k.fence), array_agg(k.turn),
      array_agg(e.incarnation)
    into places, chains, members, fences, turns, locked
  from (
    select i.place::integer as place, i.chain_id, i.member, i.fence,
      row_number() over (partition by i.chain_id, i.member order by i.place) as turn
    from (
      select r.place, r.fence, underseal._chain_of(r.execution_id) collate "C" as chain_id,
        underseal._member_of(r.execution_id) collate "C" as member
      from rows from (json_to_recordset(items) as (execution_id text, fence bigint))
        with ordinality as r (execution_id, fence, place)) i
    order by i.chain_id, i.member, i.place) k
  left join lateral (
    select x.incarnation from underseal.execution x
    where x.chain_id = k.chain_id and x.member = k.member
    for no key update) e on true;
  moment := underseal.clock();

  with judged as materialized (
    select u.place, u.chain_id, u.member, e.line, e.waits, e.head, e.status, e.flow, case
        when u.turn > 1 then 'same-execution'
        when e.chain_id is null then 'not-found'
        when e.fence is distinct from u.fence then 'stale-fence'
        when underseal._is_ended(e.status) then 'ended' end as flaw
    from unnest(places, chains, members, fences, turns, locked) as u (place, chain_id, member, fence, turn, incarnation)
    -- one that came after the locks were taken is not there yet
    left join underseal.execution e on e.chain_id = u.chain_id and e.member = u.member and e.incarnation = u.incarnation),
  planned as materialized (
    select j.*,
      case when j.flaw is null and j.waits is not null
        then underseal._plan_answers(j.chain_id, j.line, j.waits, moment, null, false, null) end as steps
    from judged j),
  summed as materialized (
    select p.*, s.answered, s.held, s.last_answer
    from planned p
    cross join lateral (
      select count(*) filter (where s.step ->> 'do' in ('timer', 'deliver')) as answered,
        coalesce(bool_or(s.step ->> 'do' = 'hold'), false) as held,
        coalesce(max(s.place) filter (where s.step ->> 'do' in ('timer', 'deliver')), 0) as last_answer
      from unnest(p.steps) with ordinality s (step, place)) s),
  written as (
    insert into underseal.event (chain_id, member, seq, recorded_at, type, data, metadata)
    select p.chain_id, p.member, p.head + s.place, moment,
      case s.step ->> 'do' when 'timer' then 'TIMER_FIRED' else 'MESSAGE_CONSUMED' end,
      case s.step ->> 'do'
        when 'timer' then json_build_object('wait', s.step ->> 'wait', 'arm', (s.step ->> 'arm')::integer)
        else underseal._consumed(m.found, s.step ->> 'wait', (s.step ->> 'arm')::integer, s.step ->> 'disposition', null, null) end,
      case when s.step ->> 'do' = 'deliver' then (m.found).metadata end
    from summed p
    -- a refusal appends nothing: what follows the last answer stays as it was (G7)
    cross join lateral unnest(case when p.held then p.steps[:p.last_answer] else p.steps end) with ordinality s (step, place)
    -- by its key, not by a look through the line's whole inbox
    cross join lateral (select (
      select x from underseal.inbox_message x
      where x.chain_id = p.chain_id and x.line = p.line and x.inbox_seq = (s.step ->> 'inbox_seq')::bigint) as found) m
    order by p.chain_id, p.member, s.place),
  gone as (
    delete from underseal.wake w
    using summed p
    where w.chain_id = p.chain_id and w.member = p.member and w.kind = 'inbox'
      and p.flaw is null and p.status = 'suspended' and p.answered = 0 and not p.held),
  kept as (
    -- whoever can open it finds it without a new send (G8)
    insert into underseal.wake (chain_id, member, kind, flow, wake_at)
    select p.chain_id, p.member, 'inbox', p.flow, moment
    from summed p
    where p.flaw is null and p.status = 'suspended' and p.answered = 0 and p.held
    order by p.chain_id, p.member
    on conflict on constraint wake_pkey do nothing)
  select array_agg(p.place), array_agg(p.chain_id), array_agg(p.member), array_agg(p.flaw), array_agg(p.answered::integer),
      array_agg(p.held)
    into places, chains, members, flaws, counts, holds
  from summed p;

  return query
  select case
      when u.flaw is not null then f.outcome
      when u.answered > 0 then 'delivered'
      when u.held then 'held'
      else 'none' end,
    f.reason, f.message, u.place, underseal._execution_id(u.chain_id, u.member), u.answered, u.held, e.status, e.head
  from unnest(places, chains, members, flaws, counts, holds) as u (place, chain_id, member, flaw, answered, held)
  left join lateral underseal._delivery_refusal(u.flaw) f on u.flaw is not null
  left join underseal.execution e on e.chain_id = u.chain_id and e.member = u.member and u.flaw is distinct from 'not-found'
  order by u.place;
end
$$;
comment on function underseal.deliver_batch(json) is
  'Delivers to many executions at once, as deliver does to each. items: an array of at most 1,000 {"execution_id", "fence"}; one execution an item. For a driver. Outcomes, in the order of the items (item: the place from 1), with status and head as they are then: delivered (answered: how many waits); held; none; not-found; conflict (stale-fence, ended, same-execution); one row refused (too-many), which delivers nothing. Errors: US001 (no array) (I1, G16).';
