-- One way to write an event; the caller holds the operation's lock.
create or replace function underseal._record_event(
  operation_id uuid, type text, actor text, from_state text, to_state text, reason text, detail jsonb, recorded_at timestamptz)
returns void
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  insert into underseal.held_event (operation_id, seq, type, actor, from_state, to_state, reason, detail, recorded_at)
  select _record_event.operation_id,
    coalesce((select max(e.seq) from underseal.held_event e where e.operation_id = _record_event.operation_id), 0) + 1,
    _record_event.type, _record_event.actor, _record_event.from_state, _record_event.to_state,
    _record_event.reason, _record_event.detail, _record_event.recorded_at
$$;
comment on function underseal._record_event(uuid, text, text, text, text, text, jsonb, timestamptz) is
  'Writes the next event of an operation; its place is safe because the caller holds the operation''s lock.';
