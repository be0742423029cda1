-- The end of a child is a message to the line that asked for it, in the transaction that records it, whoever records it. It fires
-- before the fold does, once a row; for whatever else is recorded there is only a comparison to make.
create or replace function underseal._child_end(type text, data json, marked boolean) returns json
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  told json := case type
    when 'EXECUTION_COMPLETED' then json_build_object('status', 'completed', 'output', coalesce(data -> 'output', 'null'))
    when 'EXECUTION_FAILED' then json_build_object('status', 'failed', 'error', coalesce(data -> 'error', 'null'))
    else json_build_object('status', 'cancelled', 'reason', coalesce(data -> 'reason', 'null')) end;
  most integer := underseal._event_limit() - 1024;
begin
  return case
    when octet_length(told::text) > most then json_build_object('status', 'failed', 'error', json_build_object(
      'type', 'OutputTooLarge', 'message', format('Expected a child to end with at most %s bytes of JSON, found more. Store it with underseal.put_content and refer to it.', most)))
    -- a level deeper than in its own log; a message that cannot be delivered would hold up its topic for ever
    when not marked and underseal._value_flaw(told) is not null then json_build_object('status', 'failed', 'error',
      json_build_object('type', 'OutputUnreadable', 'message', format('Expected a child to end with JSON of less than %s levels and without an envelope, found other. Read its own log.', underseal._depth_limit())))
    else told end;
end
$$;
comment on function underseal._child_end(text, json, boolean) is
  'What a parent is told of a child''s end: {"status": "completed", "output"}, {"status": "failed", "error"} or {"status": "cancelled", "reason"}; for what is no message, the failure OutputTooLarge or OutputUnreadable. marked: whether the event carries a seal marker, which goes along.';

create or replace function underseal._tell_parent() returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  child text := underseal._line_of(new.member);
  parent text := underseal._parent_line_of(child);
  child_id text := underseal._execution_id(new.chain_id, new.member);
  follower text;
begin
  if parent is not null then
    -- whoever parks holds its row, and finds the message, or is found parked (E7); the verbs have locked all this before
    select e.current_member into follower from underseal.execution e
    where e.chain_id = new.chain_id and e.member = parent
    for no key update;
    if follower is not null then
      perform from underseal.execution e where e.chain_id = new.chain_id and e.member = follower for no key update;
    end if;
    perform underseal._put_message(new.chain_id, parent, '$child/' || child,
      underseal._child_end(new.type, new.data, coalesce(new.metadata ? 'seal', false)), child_id, child_id, null, new.metadata);
  end if;
  return null;
end
$$;
comment on function underseal._tell_parent() is
  'Puts the end of a child into the inbox of the line that asked for it; one that has ended or is gone is told nothing (E6, E7).';

create or replace trigger event_child_end
after insert on underseal.event
for each row
when (new.member <> '' and (new.type = 'EXECUTION_COMPLETED' or new.type = 'EXECUTION_FAILED' or new.type = 'EXECUTION_CANCELLED'))
execute function underseal._tell_parent();
comment on trigger event_child_end on underseal.event is 'Tells a parent of its child''s end, at the origin.';
