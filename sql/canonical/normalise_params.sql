-- Normalising and redacting are one walk: the value beside the leaves that apply to it.
create or replace function underseal._string_form(leaf jsonb, string text) returns text
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
  select case
    when leaf ?| array['const', 'enum'] then string
    when leaf ->> 'format' ~ '^uuid[1-8]?$' then
      case when string ~ '^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$' then lower(string collate "C") end
    when leaf ->> 'format' = 'date-time' then underseal._canonical_instant(string)
    else string end
$$;
comment on function underseal._string_form(jsonb, text) is
  'The canonical form of a string under one leaf: a UUID in lower case, an instant in UTC, anything else as it is; null if it is not what the leaf says.';

create or replace function underseal._normal_string(leaves jsonb[], string text, path text) returns text
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
declare
  forms text[] := array(
    select distinct underseal._string_form(l.leaf, string) collate "C" from unnest(leaves) as l (leaf)
    where underseal._string_form(l.leaf, string) is not null
  );
begin
  if cardinality(forms) = 1 then
    return forms[1];
  end if;
  if forms <> '{}' then
    perform underseal._refuse_canonical('ambiguous', path,
      'the schema lets this be plain text and a UUID or instant, which differ in canonical form; send the canonical form');
  end if;
  if exists (select from unnest(leaves) as l (leaf) where l.leaf ->> 'format' = 'date-time') then
    perform underseal._refuse_canonical('instant', path,
      'expected an RFC 3339 instant with its offset, years 0001 to 9999 in UTC, at most 6 fraction digits, no second 60');
  end if;
  perform underseal._refuse_canonical('uuid', path, 'expected a UUID of 36 characters');
  return null;
end
$$;
comment on function underseal._normal_string(jsonb[], text, text) is
  'The one canonical form of a string under all leaves that admit it; refuses what has none, or two.';

create or replace function underseal._check_member_name(root jsonb, leaves jsonb[], name text, path text) returns void
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
declare
  leaf jsonb;
  named jsonb[];
begin
  foreach leaf in array leaves loop
    if leaf ? 'propertyNames' then
      named := array(
        select n.leaf from unnest(underseal._schema_leaves(root, leaf -> 'propertyNames')) as n (leaf)
        where underseal._leaf_admits('{"type": "string"}' || n.leaf, to_jsonb(name))
      );
      if named = '{}' or underseal._normal_string(named, name, path) <> name then
        perform underseal._refuse_canonical('member-name', path,
          'the schema admits no member of this name; send the canonical form of the name');
      end if;
    end if;
  end loop;
end
$$;
comment on function underseal._check_member_name(jsonb, jsonb[], text, text) is
  'Refuses a member name that propertyNames does not admit, or that is not in its canonical form: names are not rewritten.';

create or replace function underseal._fitted_object(root jsonb, leaves jsonb[], value jsonb, path text, redact boolean)
returns jsonb
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
declare
  applying jsonb[] := underseal._narrowed(root, leaves, value);
  member record;
  declared jsonb[];
  fitted jsonb;
  leaf jsonb;
  result jsonb := '{}';
begin
  for member in select m.name, m.value from jsonb_each(value) as m (name, value) loop
    declared := '{}';
    foreach leaf in array applying loop
      declared := declared || underseal._member_leaves(root, leaf, member.name);
    end loop;
    if declared = '{}' then
      perform underseal._refuse_canonical('undeclared', underseal._member_path(path, member.name),
        'the schema declares no such member; leave it out');
    end if;
    perform underseal._check_member_name(root, applying, member.name, underseal._member_path(path, member.name));
    fitted := underseal._fitted(root, declared, member.value, underseal._member_path(path, member.name), redact);
    if fitted is not null then
      result := result || jsonb_build_object(member.name, fitted);
    end if;
  end loop;
  return result;
end
$$;
comment on function underseal._fitted_object(jsonb, jsonb[], jsonb, text, boolean) is
  'An object with every member fitted; with `redact`, hidden members are left out.';

create or replace function underseal._fitted_array(root jsonb, leaves jsonb[], value jsonb, path text, redact boolean)
returns jsonb
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
declare
  declared jsonb[];
  leaf jsonb;
  result jsonb := '[]';
begin
  for i in 0 .. jsonb_array_length(value) - 1 loop
    declared := '{}';
    foreach leaf in array leaves loop
      declared := declared || underseal._element_leaves(root, leaf, i);
    end loop;
    if declared = '{}' then
      perform underseal._refuse_canonical('undeclared', path || '/' || i,
        'the schema declares no such element; leave it out');
    end if;
    result := result || jsonb_build_array(
      coalesce(underseal._fitted(root, declared, value -> i, path || '/' || i, redact), 'null'));
  end loop;
  return result;
end
$$;
comment on function underseal._fitted_array(jsonb, jsonb[], jsonb, text, boolean) is
  'An array with every element fitted; with `redact`, null stands for a hidden element, so that the others keep their places.';

create or replace function underseal._fitted(root jsonb, leaves jsonb[], value jsonb, path text, redact boolean)
returns jsonb
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
declare
  admitting jsonb[] := array(
    select l.leaf from unnest(leaves) with ordinality as l (leaf, number)
    where underseal._leaf_admits(l.leaf, value) order by l.number
  );
begin
  if admitting = '{}' then
    perform underseal._refuse_canonical('type-mismatch', path,
      format('the schema admits no such %s here', jsonb_typeof(value)));
  end if;
  if redact and exists (select from unnest(admitting) as l (leaf) where l.leaf -> 'writeOnly' = 'true') then
    return null;
  end if;
  case jsonb_typeof(value)
    when 'object' then
      return underseal._fitted_object(root, admitting, value, path, redact);
    when 'array' then
      return underseal._fitted_array(root, admitting, value, path, redact);
    when 'string' then
      return to_jsonb(underseal._normal_string(admitting, value #>> '{}', path));
    else
      return value;
  end case;
end
$$;
comment on function underseal._fitted(jsonb, jsonb[], jsonb, text, boolean) is
  'A value with UUIDs and instants in canonical form; with `redact`, null (of SQL) for a hidden one and without hidden members.';

create or replace function underseal._fit_params(schema jsonb, params text, redact boolean) returns text
language plpgsql immutable
set search_path = pg_catalog, pg_temp
set jit = off
as $$
declare
  flaw text := underseal._schema_flaw(schema);
begin
  if flaw is not null then
    perform underseal._refuse_canonical('schema', '', flaw);
  end if;
  -- Once canonical, nothing is left that jsonb would lose but the order, and that is made again.
  return underseal.canonical_json(underseal._fitted(schema, underseal._schema_leaves(schema, schema),
    underseal.canonical_json(params)::jsonb, '', redact)::text);
end
$$;
comment on function underseal._fit_params(jsonb, text, boolean) is
  'normalise_params or, with `redact`, redact_params.';

create or replace function underseal.normalise_params(schema jsonb, params text) returns text
language sql immutable strict security definer
set search_path = pg_catalog, pg_temp
as $$ select underseal._fit_params(schema, params, false) $$;
comment on function underseal.normalise_params(jsonb, text) is
  'The canonical JSON of parameters under their JSON Schema: UUIDs in lower case and instants in UTC where the schema says so (H1.1). Raises US010 for undeclared members, other types than declared, and whatever canonical_json refuses. For tools and types without secrets: parameters with secrets are normalised by the client.';

create or replace function underseal.redact_params(schema jsonb, params text) returns text
language sql immutable strict security definer
set search_path = pg_catalog, pg_temp
as $$ select underseal._fit_params(schema, params, true) $$;
comment on function underseal.redact_params(jsonb, text) is
  'normalise_params without the members that the schema marks writeOnly; null stands for a hidden element of an array. Raises US010 as normalise_params does.';
