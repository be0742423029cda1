-- One execution's events, for a driver that does not gather batches. The same rules as append_batch, at the price of
-- three statements.
create or replace function underseal._append(
  execution_id text, fence bigint, events json, head bigint, incarnation uuid) returns underseal.appended
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  chain text := underseal._chain_of(execution_id);
  me text := underseal._member_of(execution_id);
  e record;
  flaw text;
  told integer;
  single json;
  type text;
  data json;
  seals record;
  metadatas jsonb[];
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    perform underseal._require_read_committed();
  end if;
  if json_typeof(events) is distinct from 'array' then
    raise exception using errcode = 'US001',
      message = 'underseal.append expected a JSON array of events {"type", "data"}, found another value';
  end if;
  select x.head, x.fence, x.incarnation, x.status, x.cancel_requested into e
  from underseal.execution x
  where x.chain_id = chain and x.member = me
  for no key update;
  flaw := underseal._append_conflict(e.head, e.fence, e.incarnation, e.status, _append.fence, _append.head, _append.incarnation);
  if flaw is null and (strpos(events::text, '\u') > 0 or strpos(events::text, '"sealed"') > 0) then
    flaw := case
      when not underseal._can_be_read(events) then 'unreadable'
      when not underseal._are_events(events) then 'malformed-events' end;
    if flaw is null then
      seals := underseal._mark_events(events);
      metadatas := seals.metadatas;
      flaw := coalesce(seals.flaw, case when seals.kids is not null
        then underseal._keys_flaw(underseal._subject_of(chain), seals.kids) end);
    end if;
  end if;
  if flaw is null then
    told := json_array_length(events);
    if metadatas is not null then
      null;
    elsif told = 1 then
      -- mostly; without the start of a query
      single := events -> 0;
      type := single ->> 'type';
      data := case when json_typeof(single -> 'data') <> 'null' then single -> 'data' end;
      flaw := case when json_typeof(single) <> 'object' then 'malformed-events'
        else underseal._event_flaw(type, data, false) end;
    elsif not underseal._are_events(events) then
      flaw := 'malformed-events';
    else
      select min(underseal._event_flaw(v.type, v.data, false)) into flaw
      from json_to_recordset(events) as v (type text, data json);
    end if;
  end if;
  if flaw is not null then
    return row(underseal._append_outcome('append', flaw, e.status), nullif(flaw, 'not-found'), underseal._append_message(flaw),
      1, execution_id, e.status, e.head, e.fence, e.cancel_requested);
  end if;
  if metadatas is not null then
    insert into underseal.event (chain_id, member, seq, recorded_at, type, data, metadata)
    select chain, me, e.head + v.place, underseal.clock(), v.type, coalesce(v.data, '{}'), metadatas[v.place]
    from rows from (json_to_recordset(events) as (type text, data json)) with ordinality as v (type, data, place);
  elsif told = 1 then
    insert into underseal.event (chain_id, member, seq, recorded_at, type, data)
    values (chain, me, e.head + 1, underseal.clock(), type, coalesce(data, '{}'));
  else
    insert into underseal.event (chain_id, member, seq, recorded_at, type, data)
    select chain, me, e.head + v.place, underseal.clock(), v.type, coalesce(v.data, '{}')
    from rows from (json_to_recordset(events) as (type text, data json)) with ordinality as v (type, data, place);
  end if;
  return row('appended'::text, null::text, null::text, 1, execution_id, case when told > 0 then 'running' else e.status end, e.head + told,
    e.fence, e.cancel_requested);
end
$$;
comment on function underseal._append(text, bigint, json, bigint, uuid) is
  'Appends events to one execution under its fence and, where given, only at the head and incarnation observed.';

create or replace function underseal.append(execution_id text, fence bigint, events json) returns underseal.appended
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  return underseal._append(execution_id, fence, events, null, null);
end
$$;
comment on function underseal.append(text, bigint, json) is
  'Appends events, an array of {"type", "data", "sealed"}, under the execution''s fence, for a driver. sealed: pointers to the envelopes in the data, for sealers. Outcomes: appended; not-found; conflict (stale-fence, ended, suspended); refused (malformed-events, malformed-type, malformed-data, reserved-type, too-large, envelope, unreadable; not-sealer, malformed-sealed, not-sealed, mixed-ciphers, no-subject, foreign-key, key-destroyed, subject-erasing). Errors: US001 (E1, E2, M1, M2).';

create or replace function underseal.append_if_unchanged(
  execution_id text, head bigint, fence bigint, incarnation uuid, events json) returns underseal.appended
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
  select underseal._append(execution_id, fence, events, coalesce(head, -1),
    coalesce(incarnation, '00000000-0000-0000-0000-000000000000'))
$$;
comment on function underseal.append_if_unchanged(text, bigint, bigint, uuid, json) is
  'Appends events only if head, fence and incarnation are as they were observed. Outcomes: appended; not-found; conflict (gone, stale-fence, moved, ended, suspended); refused as for append. Errors: US001 (E2).';
