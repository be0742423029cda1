-- The canonical form of H1: RFC 8785 on the values that are accepted. json, never jsonb: jsonb forgets order,
-- duplicates and how a number was written.
create or replace function underseal._utf16_order(name text) returns text
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
  -- Code units put U+10000 and above (surrogates) before U+E000 to U+FFFF; bytes put them after. A prefix turns it round.
  select case when name ~ E'[\uE000-\U0010FFFF]'
    then regexp_replace(regexp_replace(name, E'([\uE000-\uFFFF])', E'\uE001\\1', 'g'),
      E'([\U00010000-\U0010FFFF])', E'\uE000\\1', 'g')
    else name end
$$;
comment on function underseal._utf16_order(text) is
  'A key whose order under COLLATE "C" is the order of `name` by UTF-16 code units, as RFC 8785 sorts members.';

create or replace function underseal._canonical_text(string text, path text) returns text
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  if octet_length(string) = length(string) then
    return string;
  end if;
  if strpos(string, E'\uFDD0') > 0 then
    perform underseal._refuse_canonical('nul', path, 'U+0000 has no place in text; send the string without it');
  end if;
  if strpos(string, E'\uFDD1') > 0 then
    perform underseal._refuse_canonical('lone-surrogate', path,
      'a surrogate without its partner is no character; send whole characters');
  end if;
  if underseal._has_unassigned(string) then
    perform underseal._refuse_canonical('unassigned', path,
      'expected text of Unicode 14.0, found a character that it does not assign; send the string without it');
  end if;
  return normalize(string, NFC);
end
$$;
comment on function underseal._canonical_text(text, text) is
  'A string or member name in NFC; refuses U+0000 and lone surrogates (as _marked_json marks them) and text that Unicode 14.0 does not assign.';

create or replace function underseal._canonical_integer(token text, path text) returns text
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  if token ~ '[.eE]' then
    perform underseal._refuse_canonical('float', path,
      'expected an integer without fraction and exponent; send a whole number of a smaller unit, or a string');
  end if;
  if token = '-0' then
    perform underseal._refuse_canonical('negative-zero', path, 'expected 0, found -0');
  end if;
  if length(ltrim(token, '-')) > 16 or token::bigint not between -9007199254740991 and 9007199254740991 then
    perform underseal._refuse_canonical('integer-range', path,
      'expected an integer from -9007199254740991 to 9007199254740991; send a larger one as a string');
  end if;
  return token;
end
$$;
comment on function underseal._canonical_integer(text, text) is
  'An integer token as it is; refuses fractions, exponents, -0 and whatever lies beyond 2^53-1 on either side of zero.';

create or replace function underseal._canonical_names(names text[], path text) returns text[]
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
declare
  canonical text[] := names;
  clash record;
begin
  if octet_length(array_to_string(names, '')) <> length(array_to_string(names, '')) then
    for i in 1 .. cardinality(names) loop
      canonical[i] := underseal._canonical_text(names[i], underseal._member_path(path, names[i]));
    end loop;
  end if;
  if (select count(distinct c.name collate "C") from unnest(canonical) as c (name)) = cardinality(names) then
    return canonical;
  end if;
  select twin.name, twin.raw_before into clash
  from (
    select m.at, m.raw as name,
      row_number() over (partition by m.name collate "C" order by m.at) > 1 as before,
      row_number() over (partition by m.raw collate "C" order by m.at) > 1 as raw_before
    from unnest(names, canonical) with ordinality as m (raw, name, at)
  ) twin
  where twin.before
  order by twin.at
  limit 1;
  if clash.raw_before then
    perform underseal._refuse_canonical('duplicate-key', underseal._member_path(path, clash.name),
      'a member is named twice; send it once');
  end if;
  perform underseal._refuse_canonical('key-collision', underseal._member_path(path, clash.name),
    'two member names become equal under NFC; send one of them');
  return null;
end
$$;
comment on function underseal._canonical_names(text[], text) is
  'The member names of the object at `path` in NFC, in their order; refuses a name given twice and names that NFC makes equal.';

create or replace function underseal._canonical_object(node json, path text) returns text
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
declare
  names text[];
  raw_names text[];
  members json[];
  pieces text[] := '{}';
begin
  select array_agg(m.name order by m.at), array_agg(m.member order by m.at) into raw_names, members
  from json_each(node) with ordinality as m (name, member, at);
  if raw_names is null then
    return '{}';
  end if;
  names := underseal._canonical_names(raw_names, path);
  for i in 1 .. cardinality(names) loop
    pieces[i] := case when json_typeof(members[i]) <> 'null' then
      to_json(names[i])::text || ':'
      || underseal._canonical_value(members[i], underseal._member_path(path, raw_names[i])) end;
  end loop;
  return (
    select '{' || coalesce(string_agg(m.piece, ',' order by underseal._utf16_order(m.name) collate "C"), '') || '}'
    from unnest(names, pieces) as m (name, piece)
    where m.piece is not null
  );
end
$$;
comment on function underseal._canonical_object(json, text) is
  'The canonical text of the object at `path`: members sorted by UTF-16 code units, members that are null left out.';

create or replace function underseal._canonical_array(node json, path text) returns text
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
declare
  element record;
  pieces text[] := '{}';
begin
  for element in
    select e.element, e.at from json_array_elements(node) with ordinality as e (element, at) order by e.at
  loop
    pieces := pieces || underseal._canonical_value(element.element, path || '/' || (element.at - 1));
  end loop;
  return '[' || array_to_string(pieces, ',') || ']';
end
$$;
comment on function underseal._canonical_array(json, text) is
  'The canonical text of the array at `path`: every element in its place, null among them.';

create or replace function underseal._canonical_value(node json, path text) returns text
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  case json_typeof(node)
    when 'string' then
      return to_json(underseal._canonical_text(node #>> '{}', path))::text;
    when 'number' then
      return underseal._canonical_integer(node #>> '{}', path);
    when 'object' then
      return underseal._canonical_object(node, path);
    when 'array' then
      return underseal._canonical_array(node, path);
    else
      return node::text;
  end case;
end
$$;
comment on function underseal._canonical_value(json, text) is
  'The canonical text of any value below the top; `node` has passed _marked_json and the limits of canonical_json.';

create or replace function underseal.canonical_json(params text) returns text
language plpgsql immutable strict security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  depth integer;
  node json;
  canonical text;
begin
  if octet_length(params) > 393216 then
    perform underseal._refuse_canonical('too-large', '',
      format('expected at most 393216 bytes of JSON text, found %s', octet_length(params)));
  end if;
  depth := underseal._json_depth(params);
  if depth > 64 then
    perform underseal._refuse_canonical('too-deep', '',
      format('expected at most 64 levels of nesting, found %s', depth));
  end if;
  node := underseal._parsed_json(underseal._marked_json(params));
  if node is null then
    node := underseal._parsed_json(underseal._marked_json(underseal._finite_json(params)));
  end if;
  if node is null then
    perform underseal._refuse_canonical('malformed', '', 'expected JSON text (RFC 8259), found something else');
  end if;
  if json_typeof(node) <> 'object' then
    perform underseal._refuse_canonical('not-an-object', '',
      format('expected an object, found %s', json_typeof(node)));
  end if;
  canonical := underseal._canonical_object(node, '');
  if octet_length(canonical) > 65536 then
    perform underseal._refuse_canonical('too-large', '',
      format('expected at most 65536 bytes of canonical JSON, found %s', octet_length(canonical)));
  end if;
  return canonical;
end
$$;
comment on function underseal.canonical_json(text) is
  'The canonical form (H1.1) of a JSON object: at most 65,536 bytes and 64 levels, from at most 393,216 bytes of text. Raises US010 with the reason and path of what it refuses (docs/formats.md). Knows no schema: instants and UUIDs are the business of normalise_params. Not parallel safe: it opens a subtransaction.';
