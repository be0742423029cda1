-- On the path of every request: the flat case is judged in one loop, anything else by the walk of _shown_leak.
create or replace function underseal._shown_leak(root jsonb, leaves jsonb[], value jsonb, path text) returns text
language plpgsql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
declare
  kind text := jsonb_typeof(value);
  admitting jsonb[];
  part record;
  leaf jsonb;
  declared jsonb[];
  leak text;
begin
  if kind = 'null' then
    return null;
  end if;
  admitting := array(
    select l.leaf from unnest(leaves) with ordinality as l (leaf, number)
    where underseal._leaf_admits(l.leaf, value) order by l.number
  );
  -- A scalar may be a mask of another type than the schema's (a redact of the provider's own); an object or array of an
  -- undeclared shape may not.
  if admitting = '{}' then
    admitting := leaves;
    if kind in ('object', 'array') then
      return path;
    end if;
  end if;
  if admitting = '{}' or exists (select from unnest(admitting) as l (leaf) where l.leaf -> 'writeOnly' = 'true') then
    return path;
  end if;
  if kind not in ('object', 'array') then
    return null;
  end if;
  admitting := underseal._narrowed(root, admitting, value);
  for part in
    select m.name, m.value, underseal._member_path(path, m.name) as path, null::integer as number
    from jsonb_each(case kind when 'object' then value else '{}' end) as m (name, value)
    union all
    select null, e.value, path || '/' || (e.number - 1), (e.number - 1)::integer
    from jsonb_array_elements(case kind when 'array' then value else '[]' end) with ordinality as e (value, number)
  loop
    declared := '{}';
    foreach leaf in array admitting loop
      declared := declared || case when part.number is null
        then underseal._member_leaves(root, leaf, part.name)
        else underseal._element_leaves(root, leaf, part.number) end;
    end loop;
    if declared = '{}' then
      return part.path;
    end if;
    leak := underseal._shown_leak(root, declared, part.value, part.path);
    if leak is not null then
      return leak;
    end if;
  end loop;
  return null;
end
$$;
comment on function underseal._shown_leak(jsonb, jsonb[], jsonb, text) is
  'The pointer of the first shown value below `path` that a leaf hides or none declares, or null; null itself shows nothing.';

create or replace function underseal._redaction_leak(schema jsonb, redacted jsonb) returns text
language plpgsql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
declare
  properties jsonb := schema -> 'properties';
  member record;
  leaf jsonb;
  leak text;
begin
  if jsonb_typeof(redacted) is distinct from 'object' then
    return '';
  end if;
  if properties is null or jsonb_typeof(schema -> 'additionalProperties') = 'object' or schema ? 'writeOnly' then
    return underseal._shown_leak(schema, underseal._schema_leaves(schema, schema), redacted, '');
  end if;
  for member in select m.name, m.value from jsonb_each(redacted) as m (name, value) loop
    leaf := properties -> member.name;
    if leaf is null then
      return underseal._member_path('', member.name);
    end if;
    if leaf ? 'writeOnly' or not leaf ? 'type' or jsonb_typeof(member.value) in ('object', 'array') then
      leak := underseal._shown_leak(schema, underseal._schema_leaves(schema, leaf), member.value,
        underseal._member_path('', member.name));
      if leak is not null then
        return leak;
      end if;
    end if;
  end loop;
  return null;
end
$$;
comment on function underseal._redaction_leak(jsonb, jsonb) is
  'The RFC 6901 pointer of the first member that a redacted copy shows though the schema hides or does not declare it, empty for a copy that is no object; null if there is none (DESIGN 4). Expects a schema without _schema_flaw.';
