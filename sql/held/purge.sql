-- Retention: what ended 90 days ago goes, in bounded batches, once every consumer has heard of it.
create or replace function underseal._retention() returns interval
language sql immutable
as $$ select interval '90 days' $$;
comment on function underseal._retention() is 'How long an ended operation is kept: 90 days (H3.8).';

create or replace function underseal._may_be_purged(operation_id uuid) returns boolean
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  select exists (
    select from underseal.held_operation o
    where o.operation_id = _may_be_purged.operation_id
      and o.ended_at <= underseal.clock() - underseal._retention())
$$;
comment on function underseal._may_be_purged(uuid) is 'Whether an operation ended at least 90 days ago; null and open ones never.';

create or replace function underseal._heard(operation_id uuid, seq integer) returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select not exists (
    select from underseal.outbox_consumer c
    where c.acknowledged < coalesce((
      select n.position from underseal.held_event_position n
      where n.operation_id = _heard.operation_id and n.seq = _heard.seq), 9223372036854775807))
$$;
comment on function underseal._heard(uuid, integer) is 'Whether every registered consumer has acknowledged an event.';

create or replace function underseal.purge_operations(max_rows integer default 100)
returns table (outcome text, reason text, message text, operation_id uuid)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  ids uuid[];
  threshold timestamptz := underseal.clock() - underseal._retention();
begin
  perform underseal._require_read_committed();
  ids := array(
    select o.operation_id from underseal.held_operation o
    where o.ended_at <= threshold
    order by o.ended_at
    limit max_rows
    for no key update skip locked);
  -- A consumer that registers now must not start before what goes now.
  perform from underseal.outbox_head h for no key update;
  ids := array(
    select i.id from unnest(ids) as i (id)
    where not exists (
      select from underseal.held_event e
      where e.operation_id = i.id and not underseal._heard(e.operation_id, e.seq)));
  update underseal.outbox_head h
  set purged_through = greatest(h.purged_through, gone.last)
  from (
    select max(n.position) as last from underseal.held_event_position n where n.operation_id = any (ids)) gone
  where gone.last is not null;
  delete from underseal.held_event_pending w where w.operation_id = any (ids);
  delete from underseal.held_event e where e.operation_id = any (ids);
  delete from underseal.held_vote v where v.operation_id = any (ids);
  delete from underseal.replay_ticket t where t.operation_id = any (ids);
  delete from underseal.held_waiter w where w.operation_id = any (ids);
  return query
  delete from underseal.held_operation o where o.operation_id = any (ids)
  returning 'purged'::text, null::text, null::text, o.operation_id;
end
$$;
comment on function underseal.purge_operations(integer) is
  'Deletes up to max_rows operations that ended at least 90 days ago, with their events, votes and tickets; audit entries stay. What a registered consumer has not acknowledged stays. Outcomes: a row purged each (H3.8).';
