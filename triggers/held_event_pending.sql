-- An event leaves the queue only once it has its position.
create or replace function underseal._check_held_event_pending() returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if tg_op = 'DELETE' then
    perform from underseal.held_event_position n where n.operation_id = old.operation_id and n.seq = old.seq;
    if found or coalesce(underseal._may_be_purged(old.operation_id) and underseal._heard(old.operation_id, old.seq), false) then
      return old;
    end if;
  end if;
  raise exception using errcode = 'US004',
    message = format('underseal.held_event_pending expected an event to wait until it is numbered, found %s', tg_op),
    hint = 'Read the outbox with underseal.read_outbox.';
end
$$;
comment on function underseal._check_held_event_pending() is 'No event is lost between its commit and its position (H3.7).';

create or replace trigger held_event_pending_check
before update or delete on underseal.held_event_pending
for each row execute function underseal._check_held_event_pending();
alter table underseal.held_event_pending enable always trigger held_event_pending_check;
comment on trigger held_event_pending_check on underseal.held_event_pending is 'An event waits until it is numbered.';

create or replace trigger held_event_pending_no_truncate
before truncate on underseal.held_event_pending
for each statement execute function underseal._refuse_change();
alter table underseal.held_event_pending enable always trigger held_event_pending_no_truncate;
comment on trigger held_event_pending_no_truncate on underseal.held_event_pending is 'The queue is never truncated.';
