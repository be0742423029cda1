-- A position, once given, stays; it goes with its event alone.
create or replace function underseal._check_held_event_position() returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if tg_op = 'DELETE' and coalesce(underseal._may_be_purged(old.operation_id), false) then
    return old;
  end if;
  raise exception using errcode = 'US004',
    message = format('underseal.held_event_position expected a position to stay as it was given, found %s', tg_op),
    hint = 'Positions go with their events, by underseal.purge_operations.';
end
$$;
comment on function underseal._check_held_event_position() is 'A position stays as it was given (H3.7).';

create or replace trigger held_event_position_check
before update or delete on underseal.held_event_position
for each row execute function underseal._check_held_event_position();
alter table underseal.held_event_position enable always trigger held_event_position_check;
comment on trigger held_event_position_check on underseal.held_event_position is 'Positions stay.';

create or replace trigger held_event_position_no_truncate
before truncate on underseal.held_event_position
for each statement execute function underseal._refuse_change();
alter table underseal.held_event_position enable always trigger held_event_position_no_truncate;
comment on trigger held_event_position_no_truncate on underseal.held_event_position is 'Positions are never truncated.';
