create or replace function underseal._utc_text(instant timestamptz) returns text
language sql stable parallel safe
as $$ select pg_catalog.to_char(instant at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') $$;
comment on function underseal._utc_text(timestamptz) is 'An instant as logs hold it: in UTC, to the microsecond, whatever the session''s zone.';

-- A park's waits: durations come in, instants of the database's clock are recorded.
create or replace function underseal._stamp_waits(waits json, known jsonb, guarded boolean default false) returns jsonb
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  now timestamptz := underseal.clock();
  stamped jsonb;
  flawed boolean;
begin
  -- what alone may be no jsonb: escapes, and numbers beyond all bounds; to be ready for them costs as much as all the rest
  if not guarded and (waits::text ~ '\\u|[eE][+-]?[0-9][0-9][0-9][0-9]' or octet_length(waits::text) > 100000) then
    begin
      return underseal._stamp_waits(waits, known, true);
    exception when data_exception then
      return null;
    end;
  end if;
  if json_typeof(waits) is distinct from 'array' then
    return null;
  end if;
  select jsonb_agg(jsonb_build_object('wait', w.wait ->> 'wait', 'arms', a.arms) order by w.place),
    count(*) <> count(distinct w.wait ->> 'wait')
      or bool_or(coalesce(length(w.wait ->> 'wait'), 0) not between 1 and 200 or a.arms is null or a.flawed)
    into stamped, flawed
  from jsonb_array_elements(waits::jsonb) with ordinality w (wait, place)
  cross join lateral (
    select jsonb_agg(case
        when a.arm ? 'topic' then jsonb_build_object('topic', a.arm ->> 'topic')
        when a.arm ? 'gate' then jsonb_build_object('topic', '$gate/' || (a.arm ->> 'gate'))
        -- a wait that was parked on before and is not answered yet keeps its instant
        else jsonb_build_object('due', coalesce(
          (select k.wait -> 'arms' -> (a.place::integer - 1) -> 'due' from jsonb_array_elements(known) k (wait)
            where k.wait ->> 'wait' = w.wait ->> 'wait'),
          to_jsonb(underseal._utc_text(now + make_interval(secs => case jsonb_typeof(a.arm -> 'for')
            when 'number' then round(greatest(least((a.arm ->> 'for')::numeric, 3.2e9), 0), 6)::float8 end))))) end
          order by a.place) as arms,
      bool_or(jsonb_typeof(a.arm) <> 'object'
        or (a.arm ? 'topic')::integer + (a.arm ? 'gate')::integer + (a.arm ? 'for')::integer <> 1
        or coalesce(length(a.arm ->> 'topic'), 1) not between 1 and 200
        or coalesce(length(a.arm ->> 'gate'), 1) not between 1 and 190
        or (a.arm ? 'for' and (jsonb_typeof(a.arm -> 'for') <> 'number' or (a.arm ->> 'for')::numeric < 0))) as flawed
    from jsonb_array_elements(case jsonb_typeof(w.wait -> 'arms') when 'array' then w.wait -> 'arms' end)
      with ordinality a (arm, place)) a;
  if flawed then
    return null;
  end if;
  return coalesce(stamped, '[]');
end
$$;
comment on function underseal._stamp_waits(json, jsonb, boolean) is
  'Waits as they are recorded: gates as topics, durations as instants; one that was parked on before keeps its instant. Null for malformed ones. guarded: whoever asks catches what cannot be converted.';
