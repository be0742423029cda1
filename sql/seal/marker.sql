-- What is sealed in a value, as its sealer says, and the marker that the kernel writes for it: nobody passes one (M1, M2).
create or replace function underseal._is_sealer() returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
as $$ select underseal._has_access('sealer') or pg_has_role(session_user, underseal._owner(), 'MEMBER') $$;
comment on function underseal._is_sealer() is
  'Whether this session may write what is sealed: its login was granted that access, or owns the schema and could write the tables anyway (M2).';

create or replace function underseal._seal_message(reason text) returns text
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
  select case reason
    when 'not-sealer' then 'Expected a login with access sealer where "sealed" names anything, found another. Ask the schema owner for grant_access.'
    when 'malformed-sealed' then 'Expected "sealed" to be an array of at most 64 KiB of RFC 6901 pointers into what may be sealed of this event, none into another, found another value.'
    when 'not-sealed' then 'Expected an envelope of the fitting format at each place that "sealed" names, found one without. Seal it, or do not name it.'
    when 'mixed-ciphers' then 'Expected envelopes of one cipher in an event, found two ciphers.'
    when 'no-subject' then 'Expected an execution whose chain was started with a subject, found one without. Nothing can be sealed in it.'
    when 'foreign-key' then 'Expected envelopes under keys that are registered for the subject of the chain, found another key. Call underseal.register_subject_key.'
    else underseal._subject_message(reason) end
$$;
comment on function underseal._seal_message(text) is 'What was expected of what is sealed, what was found and what to do.';

-- One query for all pointers: in a loop each would cost as much as this does.
create or replace function underseal._mark_value(
  type text, data json, sealed json, fmt text, root text, out flaw text, out metadata jsonb, out kids text[])
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
declare
  value jsonb;
  told bigint;
  cipher text;
  covers jsonb;
begin
  flaw := case
    when octet_length(data::text) > underseal._event_limit() then 'too-large'
    when underseal._json_depth(data::text) > underseal._depth_limit() then 'unreadable'
    when json_typeof(sealed) <> 'array' or octet_length(sealed::text) > 65536 then 'malformed-sealed' end;
  if flaw is not null then
    return;
  end if;
  value := data::jsonb;
  select case
      when bool_or(p.malformed or coalesce(p.tokens[:cardinality(p.before)] = p.before, false)) then 'malformed-sealed'
      when not bool_and(p.is_envelope) then 'not-sealed'
      when min(p.envelope ->> '__loomEnc') <> max(p.envelope ->> '__loomEnc') then 'mixed-ciphers' end,
    count(*), min(p.envelope ->> '__loomEnc'), array_agg(distinct p.envelope ->> 'kid'),
    jsonb_agg(p.cover order by p.cover collate "C")
    into flaw, told, cipher, kids, covers
  from (
    select d.tokens, d.malformed or (root is not null and d.tokens[1] <> root) as malformed, e.envelope,
      underseal._is_envelope(e.envelope, fmt) as is_envelope,
      lag(d.tokens) over (order by d.tokens collate "C") as before,
      -- a dot in a name must not look like a step
      type || '.' || (
        select string_agg(replace(replace(t.token, '\', '\\'), '.', '\.'), '.' order by t.place)
        from unnest(d.tokens) with ordinality t (token, place)) as cover
    from (
      select distinct bool_or(k.pointer !~ '^(/([^~/]|~[01])*)+$') over () as malformed, array(
        select replace(replace(s.step, '~1', '/'), '~0', '~')
        from unnest((string_to_array(k.pointer, '/'))[2:]) with ordinality s (step, place)
        order by s.place) as tokens
      from (
        select case json_typeof(s.said) when 'string' then s.said #>> '{}' else '' end as pointer
        from json_array_elements(sealed) s (said)) k) d
    cross join lateral (
      select case when not underseal._is_loose(value, d.tokens) then value #> d.tokens end as envelope offset 0) e) p;
  -- each of those named is one of these, so where there are no more, there is none that was not named
  if flaw is null and told <> (
      select count(*) from jsonb_path_query(value,
        'strict $.** ? (@."__loomEnc".type() == "string" || @."$shredded" == true)', silent => true)) then
    flaw := 'envelope';
  end if;
  if flaw is null then
    metadata := jsonb_build_object('seal', jsonb_build_object('v', 1, 'cipher', cipher, 'covers', covers));
  else
    kids := null;
  end if;
exception
  when data_exception or statement_too_complex or program_limit_exceeded then
    flaw := 'unreadable';
    metadata := null;
    kids := null;
end
$$;
comment on function underseal._mark_value(text, json, json, text, text) is
  'What pointers say is sealed in an event''s data: the metadata with its marker and the ids of its keys, or what is wrong: malformed-sealed, not-sealed, mixed-ciphers, envelope (one that is not named), too-large, unreadable. fmt: the format of each; root: the member they must lead into, null for any. Whose keys they are is judged under the lock, by _keys_flaw.';

create or replace function underseal._is_loose(value jsonb, tokens text[]) returns boolean
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
  -- an index as only this database reads it, from the end or padded, would be a place that clients do not find
  select exists (
    select from unnest(tokens) with ordinality t (token, place)
    where case
      when t.token ~ '^(0|[1-9][0-9]{0,8})$' or t.token !~ '[0-9]$' then false
      else jsonb_typeof(value #> tokens[:t.place - 1]) = 'array' end)
$$;
comment on function underseal._is_loose(jsonb, text[]) is 'Whether a path counts an array''s elements in another way than RFC 6901 has it.';

create or replace function underseal._mark_event(
  type text, data json, sealed json, out flaw text, out metadata jsonb, out kids text[])
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  if json_typeof(sealed) = 'array' and json_array_length(sealed) = 0 then
    sealed := null;
  end if;
  flaw := underseal._event_flaw(type, case when sealed is null then data else '{}' end, false);
  if flaw is null and sealed is not null then
    flaw := case
      when not underseal._is_sealer() then 'not-sealer'
      when json_typeof(data) <> 'object' then 'malformed-data' end;
    if flaw is null then
      select m.* into flaw, metadata, kids
      from underseal._mark_value(type, coalesce(data, '{}'), sealed, 'loom-field-v1', null) m;
    end if;
  end if;
end
$$;
comment on function underseal._mark_event(text, json, json) is 'What is wrong with a caller''s event, and what is sealed in it; sealed is null where nothing is.';

create or replace function underseal._put_at(metadatas jsonb[], place integer, metadata jsonb) returns jsonb[]
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
  select metadatas || array_fill(null::jsonb, array[place - 1 - coalesce(cardinality(metadatas), 0)]) || array[metadata]
$$;
comment on function underseal._put_at(jsonb[], integer, jsonb) is 'An array with one more element at a place behind its end, null in between.';

create or replace function underseal._mark_events(events json, out flaw text, out metadatas jsonb[], out kids text[])
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  said record;
  mark record;
begin
  for said in
    select v.place::integer as place, v.type, v.data, v.sealed
    from rows from (json_to_recordset(events) as (type text, data json, sealed json))
      with ordinality as v (type, data, sealed, place)
  loop
    mark := underseal._mark_event(said.type, said.data, said.sealed);
    flaw := least(flaw, mark.flaw);
    if mark.metadata is not null then
      metadatas := underseal._put_at(metadatas, said.place, mark.metadata);
      kids := kids || mark.kids;
    end if;
  end loop;
end
$$;
comment on function underseal._mark_events(json) is
  'What is wrong with a caller''s events, the metadata of each at its place, null from the last that has any, and the ids of the keys of all.';

create or replace function underseal._hold_keys(kids text[]) returns void
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  select from underseal.subject_key k
  where k.key_id = any (kids)
  order by k.key_id
  for share
$$;
comment on function underseal._hold_keys(text[]) is
  'Locks the keys of a chain that begins, which nobody can lock yet: an erasure, which takes these rows, waits and then finds the chain (X2).';

create or replace function underseal._mark_items(
  batch json, inout items underseal.log_item[], out marks underseal.log_mark[])
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  said record;
  it underseal.log_item;
  mark underseal.log_mark;
  own record;
  judged record;
  beginning text[] := '{}';
begin
  for said in
    select s.place::integer as place, s.events, s.subject,
      case when json_typeof(s.sealed) <> 'array' then s.sealed when json_array_length(s.sealed) > 0 then s.sealed end as sealed
    from rows from (json_to_recordset(batch) as (events json, sealed json, subject json))
      with ordinality as s (events, sealed, subject, place)
    where s.sealed is not null or s.subject is not null or s.events::text ~ '"sealed"|\\u'
  loop
    it := items[said.place];
    continue when it.verb in ('unreadable', 'malformed-events', 'malformed-item');
    mark := row(said.place, null, null, null, null, null);
    if said.events is not null then
      judged := underseal._mark_events(said.events);
      it.flaw := judged.flaw;
      mark.metadatas := judged.metadatas;
      mark.kids := judged.kids;
    end if;
    if said.subject is not null and it.verb = 'start' then
      mark.subject := said.subject #>> '{}';
      if json_typeof(said.subject) <> 'string' or underseal._subject_flaw(mark.subject) = 'malformed-subject' then
        it.flaw := coalesce(it.flaw, 'malformed-subject');
      end if;
    end if;
    if said.sealed is not null then
      select k.* into own
      from (values
        ('start', 'EXECUTION_STARTED', 'input', it.input), ('continue', 'EXECUTION_STARTED', 'input', it.input),
        ('complete', 'EXECUTION_COMPLETED', 'output', it.output), ('fail', 'EXECUTION_FAILED', 'error', it.error))
        as k (verb, type, root, value)
      where k.verb = it.verb;
      if not found then
        it.flaw := coalesce(it.flaw, 'malformed-sealed');
      elsif not underseal._is_sealer() then
        it.flaw := coalesce(it.flaw, 'not-sealer');
      else
        judged := underseal._mark_value(own.type, json_build_object(own.root, coalesce(own.value, 'null')), said.sealed,
          'loom-field-v1', own.root);
        it.flaw := coalesce(it.flaw, judged.flaw);
        mark.kids := mark.kids || judged.kids;
        if it.verb in ('start', 'continue') then
          mark.own := judged.metadata;
        elsif judged.metadata is not null then
          mark.metadatas := underseal._put_at(mark.metadatas, cardinality(it.types) + 1, judged.metadata);
        end if;
      end if;
      -- it was judged here, and is put back when everything else was; an envelope would be refused
      mark.value := own.value;
      case own.root when 'input' then it.input := null; when 'output' then it.output := null; when 'error' then it.error := null;
        else null; end case;
    end if;
    items[said.place] := it;
    marks := marks || mark;
    if it.verb = 'start' and it.member = '' then
      beginning := beginning || mark.kids;
    end if;
  end loop;
  if cardinality(beginning) > 0 then
    perform underseal._hold_keys(beginning);
  end if;
end
$$;
comment on function underseal._mark_items(json, underseal.log_item[]) is
  'What the items of a batch say of seals, by their "sealed" and "subject", and the items without the values that were judged for it. Whoever says nothing has no mark; null for none.';

create or replace function underseal._judge_marks(writes underseal.log_write[], marks underseal.log_mark[])
returns underseal.log_write[]
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  told record;
  w underseal.log_write;
  m underseal.log_mark;
begin
  for told in
    select t.place::integer as place, t.it, k.mark
    from (select t.place, t.it, (t.it).item from (select u as it, row_number() over () as place from unnest(writes) u) t) t
    join (select k as mark, (k).item from unnest(marks) k) k on k.item = t.item
  loop
    w := told.it;
    m := told.mark;
    w.flaw := coalesce(w.flaw, case when m.subject is not null or m.kids is not null
      then underseal._item_keys_flaw(w.verb, w.chain_id, w.member, m.subject, m.kids) end);
    if m.value is not null then
      if w.verb in ('complete', 'fail') then
        w.datas[cardinality(w.datas)] := json_build_object(case w.verb when 'fail' then 'error' else 'output' end, m.value);
      else
        w.input := m.value;
      end if;
    end if;
    w.subject := m.subject;
    w.own := m.own;
    w.metadatas := m.metadatas;
    writes[told.place] := w;
  end loop;
  return writes;
end
$$;
comment on function underseal._judge_marks(underseal.log_write[], underseal.log_mark[]) is
  'What a batch writes, with what is sealed in it and what else is wrong with that: whose its keys are, judged under the locks.';

create or replace function underseal._keys_flaw(subject text, kids text[]) returns text
language sql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
  select case
    when subject is null then 'no-subject'
    when exists (select from underseal.subject_fence f where f.subject = _keys_flaw.subject) then 'subject-erasing'
    when exists (
      select from unnest(kids) u (kid)
      where not exists (
        select from underseal.subject_key k where k.key_id = u.kid and k.subject = _keys_flaw.subject)) then 'foreign-key'
    when exists (
      select from unnest(kids) u (kid)
      join underseal.subject_key k on k.key_id = u.kid
      where k.destroyed_at is not null) then 'key-destroyed' end
$$;
comment on function underseal._keys_flaw(text, text[]) is
  'What keeps envelopes under these keys out of a chain of this subject: no-subject, subject-erasing, foreign-key or key-destroyed; null for nothing. Judged under the chain''s lock, so that whoever fences a subject and then locks its chains finds all that was sealed (X1, X2).';

create or replace function underseal._item_keys_flaw(verb text, chain_id text, member text, subject text, kids text[]) returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select case
    when verb = 'start' and member = '' then
      case when kids is null then underseal._subject_flaw(subject) else underseal._keys_flaw(subject, kids) end
    when subject <> coalesce(underseal._subject_of(chain_id), '') then 'other-subject'
    when kids is not null then underseal._keys_flaw(underseal._subject_of(chain_id), kids) end
$$;
comment on function underseal._item_keys_flaw(text, text, text, text, text[]) is
  'What is wrong with the subject that an item names, or with the keys that its events are sealed under; null for nothing.';
