-- What the fold knows of the inbox. A fold cannot read a setting: the same log must fold alike everywhere.
create or replace function underseal._dedupe_window() returns bigint
language sql immutable parallel safe
as $$ select 1024::bigint $$;
comment on function underseal._dedupe_window() is
  'How many keys a line remembers (I2). A constant of the format.';

create or replace function underseal._dedupe_floor(chain_id text, line text) returns bigint
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select max(s.turn) - underseal._dedupe_window()
  from underseal.inbox_seen s
  where s.chain_id = _dedupe_floor.chain_id and s.line = _dedupe_floor.line
$$;
comment on function underseal._dedupe_floor(text, text) is 'Keys up to this turn are forgotten.';

create or replace function underseal._remember(chain_id text, line text, keys bytea[], numbers bigint[]) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  latest bigint := coalesce((
    select max(s.turn) from underseal.inbox_seen s
    where s.chain_id = _remember.chain_id and s.line = _remember.line), 0);
begin
  -- one after the other: which key is forgotten must not depend on how many came in one statement
  for place in 1 .. cardinality(keys) loop
    insert into underseal.inbox_seen (chain_id, line, message_key, inbox_seq, turn)
    values (_remember.chain_id, _remember.line, keys[place], numbers[place], latest + 1)
    on conflict on constraint inbox_seen_pkey do nothing;
    if found then
      latest := latest + 1;
      if latest > underseal._dedupe_window() then
        delete from underseal.inbox_seen s
        where s.chain_id = _remember.chain_id and s.line = _remember.line and s.turn <= latest - underseal._dedupe_window();
      end if;
    end if;
  end loop;
end
$$;
comment on function underseal._remember(text, text, bytea[], bigint[]) is
  'Remembers the keys of messages that were disposed of, in that order, and forgets what falls out of the window; a key that is remembered keeps its turn (I2).';

create or replace function underseal._waits_without(waits jsonb, answered text[]) returns jsonb
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
  select case when answered is null then waits else (
    select jsonb_agg(w.wait order by w.place)
    from jsonb_array_elements(waits) with ordinality w (wait, place)
    where w.wait ->> 'wait' <> all (answered)) end
$$;
comment on function underseal._waits_without(jsonb, text[]) is 'The waits that are left when some were answered; null for none.';

create or replace function underseal._first_due(waits jsonb) returns timestamptz
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select min((a.arm ->> 'due')::timestamptz)
  from jsonb_array_elements(waits) w (wait)
  cross join jsonb_array_elements(w.wait -> 'arms') a (arm)
$$;
comment on function underseal._first_due(jsonb) is 'The first instant that waits wait for; null where they wait for none.';

create or replace function underseal._plant_line(chain_id text, member text, data json) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  if data -> 'continued_from' is not null then
    update underseal.execution e set current_member = _plant_line.member
    where e.chain_id = _plant_line.chain_id and e.member = underseal._line_of(_plant_line.member);
  end if;
  insert into underseal.inbox_cursor (chain_id, line, topic, inbox_seq)
  select _plant_line.chain_id, underseal._line_of(member), c.key, c.value::bigint
  from json_each_text(data -> 'carried' -> 'cursors') c
  on conflict on constraint inbox_cursor_pkey do nothing;
  -- a continuation's line has them already, under the turns they had
  insert into underseal.inbox_seen (chain_id, line, message_key, inbox_seq, turn)
  select _plant_line.chain_id, underseal._line_of(member), decode(s.pair ->> 0, 'hex'), (s.pair ->> 1)::bigint, s.turn
  from json_array_elements(data -> 'carried' -> 'seen') with ordinality s (pair, turn)
  where data -> 'continued_from' is null
  on conflict on constraint inbox_seen_pkey do nothing;
end
$$;
comment on function underseal._plant_line(text, text, json) is
  'Begins where another log left off: a continuation becomes the line''s current execution, and what was carried over from the other log is there before anything new.';
