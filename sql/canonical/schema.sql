-- Reading a JSON Schema (2020-12 as pydantic writes it). A *leaf* is a schema without $ref, anyOf, oneOf and allOf;
-- the leaves of a place are all that may apply there.
create or replace function underseal._schema_target(root jsonb, ref text) returns jsonb
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
  select case when ref = '#' then root
    when ref ~ '^#/([$]defs|definitions)/[^/]+$' then
      root -> split_part(ref, '/', 2) -> replace(replace(split_part(ref, '/', 3), '~1', '/'), '~0', '~')
    end
$$;
comment on function underseal._schema_target(jsonb, text) is
  'What a local $ref (`#`, `#/$defs/Name`, `#/definitions/Name`) names in `root`; null if nothing or another kind of reference.';

create or replace function underseal._schema_leaves(root jsonb, node jsonb, hidden boolean default false,
  hops integer default 0)
returns jsonb[]
language plpgsql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
declare
  branch jsonb;
  leaves jsonb[] := '{}';
begin
  -- A circle of references has no leaf but what lies beside it; _schema_flaw refuses such a schema.
  if jsonb_typeof(node) is distinct from 'object' or hops > 64 then
    return leaves;
  end if;
  hidden := hidden or node -> 'writeOnly' = 'true';
  if node ? '$ref' then
    return underseal._schema_leaves(root, underseal._schema_target(root, node ->> '$ref'), hidden, hops + 1);
  end if;
  if node ?| array['anyOf', 'oneOf', 'allOf'] then
    for branch in select b.branch
      from jsonb_array_elements(coalesce(node -> 'anyOf', node -> 'oneOf', node -> 'allOf')) as b (branch)
    loop
      leaves := leaves || underseal._schema_leaves(root, branch, hidden, hops + 1);
    end loop;
    return leaves;
  end if;
  return array[case when hidden then node || '{"writeOnly": true}' else node end];
end
$$;
comment on function underseal._schema_leaves(jsonb, jsonb, boolean, integer) is
  'All leaves of `node`, in order; each has `writeOnly` true if it or anything on the way to it says so. `hops` bounds the way.';

create or replace function underseal._schema_pointer(at text[]) returns text
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
  select coalesce(string_agg('/' || replace(replace(step.name, '~', '~0'), '/', '~1'), '' order by step.at), '')
  from unnest(at) with ordinality as step (name, at)
$$;
comment on function underseal._schema_pointer(text[]) is 'RFC 6901 pointer of a place in a schema.';

create or replace function underseal._schema_steps(root jsonb, at text[])
returns table (step text[], same_place boolean)
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
  with node (here) as (
    select root #> at where jsonb_typeof(root #> at) = 'object'
  )
  select case node.here ->> '$ref' when '#' then '{}'::text[]
      else array[split_part(node.here ->> '$ref', '/', 2),
        replace(replace(split_part(node.here ->> '$ref', '/', 3), '~1', '/'), '~0', '~')] end, true
  from node where underseal._schema_target(root, node.here ->> '$ref') is not null
  union all
  select at || array[listed.keyword, (branch.number - 1)::text], listed.keyword <> 'prefixItems'
  from node, unnest(array['anyOf', 'oneOf', 'allOf', 'prefixItems']) as listed (keyword),
    lateral jsonb_array_elements(case when jsonb_typeof(node.here -> listed.keyword) = 'array'
      then node.here -> listed.keyword else '[]' end) with ordinality as branch (schema, number)
  union all
  select at || array['properties', property.name], false
  from node, lateral jsonb_object_keys(case when jsonb_typeof(node.here -> 'properties') = 'object'
    then node.here -> 'properties' else '{}' end) as property (name)
  union all
  select at || single.keyword, false
  from node, unnest(array['additionalProperties', 'items']) as single (keyword)
  where node.here ? single.keyword
$$;
comment on function underseal._schema_steps(jsonb, text[]) is
  'The places in a schema that one step leads to; `same_place` where both judge the same value ($ref, anyOf, oneOf, allOf).';

create or replace function underseal._schema_reach(root jsonb) returns table (at text[])
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
  with recursive reach (at) as (
    select '{}'::text[]
    union
    select step.step from reach, lateral underseal._schema_steps(root, reach.at) as step
  )
  select reach.at from reach
$$;
comment on function underseal._schema_reach(jsonb) is 'Every place in a schema that some value can reach, each once, the top first.';

create or replace function underseal._schema_loops(root jsonb, at text[]) returns boolean
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
  with recursive reach (place) as (
    select step.step from underseal._schema_steps(root, at) as step where step.same_place
    union
    select step.step from reach, lateral underseal._schema_steps(root, reach.place) as step where step.same_place
  )
  select exists (select from reach where reach.place = at)
$$;
comment on function underseal._schema_loops(jsonb, text[]) is
  'Whether a place in a schema leads back to itself without consuming any of the value.';

create or replace function underseal._schema_names(node jsonb, keyword text) returns text[]
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
  select case jsonb_typeof(node -> keyword)
    when 'string' then array[node ->> keyword]
    when 'array' then array(select e.name from jsonb_array_elements_text(node -> keyword) as e (name))
    else '{}' end
$$;
comment on function underseal._schema_names(jsonb, text) is 'The words of a keyword that holds one string or a list of them.';

create or replace function underseal._schema_leaf_flaw(root jsonb, leaf jsonb) returns text
language plpgsql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
declare
  types text[] := underseal._schema_names(leaf, 'type');
  names jsonb[];
begin
  if jsonb_typeof(leaf -> 'type') not in ('string', 'array') or jsonb_typeof(leaf -> 'enum') <> 'array'
    or jsonb_typeof(leaf -> 'properties') <> 'object' or jsonb_typeof(leaf -> 'prefixItems') <> 'array' then
    return 'has a type, enum, properties or prefixItems of the wrong shape';
  end if;
  if exists (
    select from jsonb_array_elements(jsonb_build_array(leaf -> 'const')
      || coalesce(leaf -> 'enum', '[]')) as e (admitted)
    where jsonb_typeof(e.admitted) = 'number' and e.admitted #>> '{}' ~ '[.]'
  ) or 'number' = any (types) then
    return 'admits a float, which has no canonical form; use an integer of a smaller unit, or a string';
  end if;
  if leaf ? 'const' or leaf ? 'enum' then
    return null;
  end if;
  if types = '{}' then
    return 'admits any value; give it a type';
  end if;
  if not types <@ array['object', 'array', 'string', 'integer', 'boolean', 'null'] then
    return 'names an unknown type; use object, array, string, integer, boolean or null';
  end if;
  if 'object' = any (types) and not leaf ?| array['properties', 'additionalProperties'] then
    return 'admits any member; list its properties, or give additionalProperties a schema';
  end if;
  if 'array' = any (types) and not leaf ?| array['items', 'prefixItems'] then
    return 'admits any element; give items or prefixItems a schema';
  end if;
  if leaf ? 'propertyNames' then
    names := underseal._schema_leaves(root, leaf -> 'propertyNames');
    if names = '{}' then
      return 'has propertyNames that cannot be resolved; use a local $ref, or none';
    end if;
    if exists (select from unnest(names) as n (leaf) where n.leaf ? 'writeOnly') then
      return 'hides member names, which the redacted copy needs; hide the values instead';
    end if;
  end if;
  return null;
end
$$;
comment on function underseal._schema_leaf_flaw(jsonb, jsonb) is 'What is wrong with a leaf, or null.';

create or replace function underseal._schema_node_flaw(root jsonb, at text[]) returns text
language plpgsql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
declare
  node jsonb := root #> at;
  keyword text;
begin
  if node = 'false' then
    return null;
  end if;
  if node = 'true' then
    return 'admits any value; give it a type';
  end if;
  if jsonb_typeof(node) <> 'object' then
    return 'is no schema; expected an object or false';
  end if;
  select k.keyword into keyword
  from unnest(array['$dynamicRef', '$recursiveRef', 'additionalItems', 'contains', 'dependencies', 'dependentSchemas',
    'else', 'if', 'not', 'patternProperties', 'then', 'unevaluatedItems', 'unevaluatedProperties']) as k (keyword)
  where node ? k.keyword
  order by k.keyword collate "C"
  limit 1;
  if keyword is not null then
    return format('uses %s, which is not understood here; say it with properties, items or anyOf', keyword);
  end if;
  if jsonb_typeof(node -> 'writeOnly') <> 'boolean' then
    return 'has a writeOnly that is neither true nor false';
  end if;
  select k.keyword into keyword
  from unnest(array['$ref', 'anyOf', 'oneOf', 'allOf']) with ordinality as k (keyword, number)
  where node ? k.keyword
  order by k.number
  limit 1;
  if keyword is null then
    return underseal._schema_leaf_flaw(root, node);
  end if;
  if (node - keyword) ?| array['$ref', 'anyOf', 'oneOf', 'allOf', 'type', 'const', 'enum', 'properties',
    'additionalProperties', 'propertyNames', 'items', 'prefixItems'] then
    return format('says more beside %s; put it inside', keyword);
  end if;
  if keyword = '$ref' then
    if jsonb_typeof(node -> '$ref') <> 'string' or underseal._schema_target(root, node ->> '$ref') is null then
      return 'has a $ref that cannot be resolved; use #/$defs/Name, and define Name';
    end if;
  elsif jsonb_typeof(node -> keyword) <> 'array' or node -> keyword = '[]'
    or keyword = 'allOf' and jsonb_array_length(node -> keyword) > 1 then
    return format('has %s without branches, or allOf with several; merge them into one schema', keyword);
  end if;
  if underseal._schema_loops(root, at) then
    return 'refers to itself without going deeper; break the circle';
  end if;
  return null;
end
$$;
comment on function underseal._schema_node_flaw(jsonb, text[]) is 'What is wrong with the schema at a place, or null.';

-- The planner expects many rows of a recursive query, and would compile for longer (80 ms) than it runs.
create or replace function underseal._schema_flaw(schema jsonb) returns text
language plpgsql immutable parallel safe
set search_path = pg_catalog, pg_temp
set jit = off
as $$
declare
  found record;
begin
  if jsonb_typeof(schema) is distinct from 'object' then
    return 'the parameter schema is no schema of an object; expected {"type": "object", "properties": {…}}';
  end if;
  select underseal._schema_pointer(reach.at) as pointer, underseal._schema_node_flaw(schema, reach.at) as flaw into found
  from underseal._schema_reach(schema) as reach
  where underseal._schema_node_flaw(schema, reach.at) is not null
  order by underseal._schema_pointer(reach.at) collate "C"
  limit 1;
  if found.flaw is not null then
    return format('the parameter schema at %s %s', coalesce(nullif(found.pointer, ''), 'the top level'), found.flaw);
  end if;
  if exists (
    select from unnest(underseal._schema_leaves(schema, schema)) as top (leaf) where top.leaf -> 'type' <> '"object"'
      or not top.leaf ? 'type'
  ) then
    return 'the parameter schema at the top level admits something else than an object';
  end if;
  if exists (select from unnest(underseal._schema_leaves(schema, schema)) as top (leaf) where top.leaf ? 'writeOnly'
    and top.leaf -> 'writeOnly' = 'true') then
    return 'the parameter schema at the top level hides everything; set writeOnly on the members to hide';
  end if;
  return null;
end
$$;
comment on function underseal._schema_flaw(jsonb) is
  'Why a parameter schema cannot be used, with the pointer of the place, or null: a float, an open object or array, a reference that cannot be resolved, a keyword that is not understood, a top level that is no object (H1.5).';

create or replace function underseal._schema_hides(schema jsonb) returns boolean
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
set jit = off
as $$
  select exists (
    select from underseal._schema_reach(schema) as reach where schema #> (reach.at || '{writeOnly}') = 'true'
  )
$$;
comment on function underseal._schema_hides(jsonb) is
  'Whether the redacted copy of some value differs from it: a `writeOnly` is reachable (H1.7).';
