-- The outbox: writers leave events without a position; the reader numbers what has committed, under
-- one lock that no writer takes, so that positions have no gap whatever order commits came in (H3.7).
create or replace function underseal._number_pending(max_events integer) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  last bigint;
  numbered integer;
begin
  -- Without this lock two readers would number the same events.
  select h.last_position into last from underseal.outbox_head h for no key update;
  insert into underseal.held_event_position (operation_id, seq, position)
  select p.operation_id, p.seq, last + row_number() over (order by p.arrival)
  from (
    select w.operation_id, w.seq, w.arrival from underseal.held_event_pending w
    order by w.arrival limit max_events) p;
  get diagnostics numbered = row_count;
  if numbered > 0 then
    update underseal.outbox_head h set last_position = last + numbered;
    delete from underseal.held_event_pending w
    using underseal.held_event_position n
    where n.position > last and w.operation_id = n.operation_id and w.seq = n.seq;
  end if;
end
$$;
comment on function underseal._number_pending(integer) is
  'Gives positions to committed events, in the order they were written, at most max_events of them.';

create or replace function underseal.register_consumer(consumer text, from_start boolean default true)
returns table (outcome text, reason text, message text, acknowledged bigint)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  moment timestamptz;
  start bigint;
begin
  perform underseal._require_read_committed();
  if not from_start then
    -- What has committed by now is not news to a consumer that starts now.
    loop
      perform underseal._number_pending(1000);
      exit when not exists (select from underseal.held_event_pending);
    end loop;
  end if;
  select case when from_start then h.purged_through else h.last_position end into start
  from underseal.outbox_head h for no key update;
  moment := underseal.clock();
  insert into underseal.outbox_consumer as c (consumer, acknowledged, registered_at, acknowledged_at)
  values (register_consumer.consumer, start, moment, moment)
  on conflict on constraint outbox_consumer_pkey do nothing;
  if found then
    return query select 'registered', null::text,
      format('Consumer %s reads from position %s on.', consumer, start + 1), start;
  else
    return query select 'unchanged', null::text, format('Consumer %s is registered already.', c.consumer), c.acknowledged
    from underseal.outbox_consumer c where c.consumer = register_consumer.consumer;
  end if;
end
$$;
comment on function underseal.register_consumer(text, boolean) is
  'Registers a consumer of the outbox. from_start: true reads from the first event that no purge has reached, false from now on. Events that it has not acknowledged are never purged. Outcomes: registered, unchanged.';

create or replace function underseal.drop_consumer(consumer text)
returns table (outcome text, reason text, message text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  delete from underseal.outbox_consumer c where c.consumer = drop_consumer.consumer;
  if found then
    return query select 'dropped', null::text, format('Consumer %s is dropped; what waited for it may be purged.', consumer);
  else
    return query select 'not-found', null::text,
      format('Expected a registered consumer %s, found none. See operation_health.', consumer);
  end if;
end
$$;
comment on function underseal.drop_consumer(text) is
  'Forgets a consumer, which frees the events that waited for it. Outcomes: dropped, not-found.';

create or replace function underseal.read_outbox(consumer text, max_events integer default 100)
returns table (
  outcome text, reason text, message text, "position" bigint, operation_id uuid, seq integer, type text,
  operation_type text, operation_version integer, actor text, from_state text, to_state text, cause text, detail jsonb,
  recorded_at timestamptz)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  after bigint;
begin
  perform underseal._require_read_committed();
  select c.acknowledged into after from underseal.outbox_consumer c where c.consumer = read_outbox.consumer;
  if not found then
    outcome := 'not-found';
    message := format('Expected a registered consumer %s, found none. Call register_consumer first.', consumer);
    return next;
    return;
  end if;
  if exists (select from underseal.held_event_pending) then
    perform underseal._number_pending(max_events);
  end if;
  return query
  select 'event', null::text, null::text, n.position, e.operation_id, e.seq, e.type, o.type, o.type_version, e.actor,
    e.from_state, e.to_state, e.reason, e.detail, e.recorded_at
  from underseal.held_event_position n
  join underseal.held_event e on e.operation_id = n.operation_id and e.seq = n.seq
  join underseal.held_operation o on o.operation_id = n.operation_id
  where n.position > after
  order by n.position
  limit max_events;
end
$$;
comment on function underseal.read_outbox(text, integer) is
  'The next events after what the consumer acknowledged, in order of position, without gaps; reading again gives the same until ack_outbox. Outcomes: event rows; not-found.';

create or replace function underseal.ack_outbox(consumer text, "position" bigint)
returns table (outcome text, reason text, message text, acknowledged bigint)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  moment timestamptz;
  last bigint;
  at bigint;
begin
  perform underseal._require_read_committed();
  perform from underseal.outbox_consumer c where c.consumer = ack_outbox.consumer for no key update;
  if not found then
    return query select 'not-found', null::text,
      format('Expected a registered consumer %s, found none. Call register_consumer first.', consumer), null::bigint;
    return;
  end if;
  select h.last_position into last from underseal.outbox_head h;
  if ack_outbox.position > last then
    return query select 'refused', 'beyond-end',
      format('Expected a position that was read, at most %s, found %s.', last, ack_outbox.position), null::bigint;
    return;
  end if;
  moment := underseal.clock();
  update underseal.outbox_consumer c
  set acknowledged = ack_outbox.position, acknowledged_at = moment
  where c.consumer = ack_outbox.consumer and c.acknowledged < ack_outbox.position;
  select c.acknowledged into at from underseal.outbox_consumer c where c.consumer = ack_outbox.consumer;
  return query select 'acknowledged', null::text, null::text, at;
end
$$;
comment on function underseal.ack_outbox(text, bigint) is
  'Acknowledges every event up to a position; an older position changes nothing. Outcomes: acknowledged; refused (beyond-end); not-found.';
