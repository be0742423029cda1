-- Snapshots: a flow's state at the head of its log, with what the log had folded to there.
create or replace function underseal._snapshot_message(reason text) returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select case reason
    when 'not-sealed' then 'Expected a sealed state beside a log that is sealed, found a readable one. Seal it, or replay from the log.'
    when 'none' then 'Expected a snapshot of this execution, found none. Replay from the log.'
    else underseal._append_message(reason) end
$$;
comment on function underseal._snapshot_message(text) is 'What was expected of a snapshot, what was found and what to do.';

create or replace function underseal.save_snapshot(execution_id text, fence bigint, seq bigint, state json)
returns table (outcome text, reason text, message text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  chain text := underseal._chain_of(execution_id);
  me text := underseal._member_of(execution_id);
  saved json := coalesce(state, 'null');
  e underseal.execution;
  flaw text;
  marker jsonb;
begin
  perform underseal._require_read_committed();
  perform from underseal.execution x where x.chain_id = chain and x.member = me for no key update;
  select x.* into e from underseal.execution x where x.chain_id = chain and x.member = me;
  flaw := case
    when not found then 'not-found'
    when e.fence is distinct from save_snapshot.fence then 'stale-fence'
    when e.head is distinct from save_snapshot.seq then 'moved'
    else underseal._value_flaw(saved) end;
  if e.sealed and flaw is not distinct from 'envelope' and underseal._is_envelope(saved::jsonb, 'loom-snap-v1') then
    flaw := null;
    marker := jsonb_build_object('seal', jsonb_build_object('v', 1, 'cipher', saved ->> '__loomEnc',
      'covers', jsonb_build_array('SNAPSHOT.state')));
  elsif e.sealed and flaw is null then
    flaw := 'not-sealed';
    perform underseal._report(execution_id, 'snapshot-not-sealed',
      'A driver offered a readable state although the log is sealed. It was not kept; the run goes on without it.');
  end if;
  if flaw is not null then
    return query select underseal._append_outcome('append', flaw, null), nullif(flaw, 'not-found'),
      underseal._snapshot_message(flaw);
    return;
  end if;
  insert into underseal.snapshot (chain_id, member, seq, state, fold, metadata, saved_at)
  values (chain, me, save_snapshot.seq, saved, underseal._fold(chain, me), marker, underseal.clock())
  on conflict on constraint snapshot_pkey do nothing;
  if not found then
    return query select 'unchanged', null::text, 'There is a snapshot of this event already.';
    return;
  end if;
  -- the newest two are kept
  delete from underseal.snapshot s
  where s.chain_id = chain and s.member = me and s.seq < (
    select o.seq from underseal.snapshot o
    where o.chain_id = chain and o.member = me
    order by o.seq desc
    offset 1
    limit 1);
  return query select 'saved', null::text, null::text;
end
$$;
comment on function underseal.save_snapshot(text, bigint, bigint, json) is
  'Saves a flow''s state as of the last event of its log, for the driver that holds the fence, and keeps the newest two. seq: the head; state: at most 1 MiB of JSON, or one envelope where the log is sealed. Outcomes: saved; unchanged (there is one of this event); not-found; conflict (stale-fence; moved: seq is not the head); refused (too-large, envelope, unreadable; not-sealed: the log is sealed and the state is not, which is reported to operators) (E9, S4).';
