-- The timeline is append-only, in order, and says what its operation says.
create or replace function underseal._check_held_event() returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  state text;
  last integer;
begin
  if tg_op = 'DELETE' then
    if not coalesce(underseal._may_be_purged(old.operation_id), false) then
      raise exception using errcode = 'US007',
        message = 'underseal.held_event expected to keep an event for 90 days after its operation ended, found a DELETE',
        hint = 'Call underseal.purge_operations.';
    end if;
    if not underseal._heard(old.operation_id, old.seq) then
      raise exception using errcode = 'US007',
        message = 'underseal.held_event expected every consumer to have acknowledged an event before it goes, found one that has not',
        hint = 'Acknowledge it, or drop the consumer with underseal.drop_consumer.';
    end if;
    return old;
  end if;
  -- last may be as old as the snapshot where the lock was waited for; the primary key then refuses the place.
  select o.state, (select max(e.seq) from underseal.held_event e where e.operation_id = o.operation_id) into state, last
  from underseal.held_operation o where o.operation_id = new.operation_id for no key update;
  if state is distinct from new.to_state then
    raise exception using errcode = 'US002',
      message = format('underseal.held_event expected an event that leads to its operation''s state %s, found %s', state, new.to_state),
      hint = 'Events are written by the change they tell of.';
  end if;
  -- What is no change of state is a vote, or an end that came too late.
  if new.type is distinct from (case
    when new.from_state is null then 'requested'
    when new.from_state <> new.to_state then case new.to_state when 'EXECUTING' then 'claimed' else replace(lower(new.to_state), '_', '-') end
    when new.to_state = 'HELD' then 'voted'
    when new.to_state = 'OUTCOME_UNKNOWN' then 'late-finish' end) then
    raise exception using errcode = 'US002',
      message = format('underseal.held_event expected an event whose type says what its states say, found %s from %s to %s', new.type, coalesce(new.from_state, 'nothing'), new.to_state);
  end if;
  if new.seq is null then
    new.seq := coalesce(last, 0) + 1;
  elsif new.seq <> coalesce(last, 0) + 1 then
    raise exception using errcode = 'US002',
      message = format('underseal.held_event expected the next place in the timeline, found %s', new.seq);
  end if;
  return new;
end
$$;
comment on function underseal._check_held_event() is 'Events follow each other without a gap and lead to the state their operation has (H3.5).';

create or replace function underseal._queue_held_event() returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  insert into underseal.held_event_pending (operation_id, seq) values (new.operation_id, new.seq);
  return null;
end
$$;
comment on function underseal._queue_held_event() is 'Leaves an event to be numbered by the outbox''s reader (H3.7).';

create or replace trigger held_event_check
before insert or delete on underseal.held_event
for each row execute function underseal._check_held_event();
alter table underseal.held_event enable always trigger held_event_check;
comment on trigger held_event_check on underseal.held_event is 'In order, and kept.';

create or replace trigger held_event_append_only
before update on underseal.held_event
for each row execute function underseal._refuse_change();
alter table underseal.held_event enable always trigger held_event_append_only;
comment on trigger held_event_append_only on underseal.held_event is 'Events are append-only.';

create or replace trigger held_event_no_truncate
before truncate on underseal.held_event
for each statement execute function underseal._refuse_change();
alter table underseal.held_event enable always trigger held_event_no_truncate;
comment on trigger held_event_no_truncate on underseal.held_event is 'Events are append-only.';

create or replace trigger held_event_queue
after insert on underseal.held_event
for each row execute function underseal._queue_held_event();
comment on trigger held_event_queue on underseal.held_event is 'Queues the event for the outbox, at the origin.';
