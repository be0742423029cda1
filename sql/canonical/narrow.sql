-- Which leaves apply to a value. Where several may, all of them count: a member that one of them hides is hidden.
create or replace function underseal._leaf_admits(leaf jsonb, value jsonb) returns boolean
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
  select case
    when leaf ? 'const' then leaf -> 'const' = value
    when leaf ? 'enum' then exists (select from jsonb_array_elements(leaf -> 'enum') as e (admitted)
      where e.admitted = value)
    else leaf -> 'type' @> (case jsonb_typeof(value) when 'number' then '"integer"'
      else to_jsonb(jsonb_typeof(value)) end) end
$$;
comment on function underseal._leaf_admits(jsonb, jsonb) is
  'Whether a leaf admits a value by its const, enum or type; ranges, lengths and patterns are the business of the parameter model.';

create or replace function underseal._member_leaves(root jsonb, leaf jsonb, name text) returns jsonb[]
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
  select underseal._schema_leaves(root, coalesce(leaf -> 'properties' -> name, leaf -> 'additionalProperties'))
$$;
comment on function underseal._member_leaves(jsonb, jsonb, text) is
  'The leaves that an object leaf declares for a member; empty if it does not declare it.';

create or replace function underseal._element_leaves(root jsonb, leaf jsonb, number integer) returns jsonb[]
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
  select underseal._schema_leaves(root, coalesce(leaf -> 'prefixItems' -> number, leaf -> 'items'))
$$;
comment on function underseal._element_leaves(jsonb, jsonb, integer) is
  'The leaves that an array leaf declares for an element, counted from 0; empty if it declares none.';

create or replace function underseal._narrowed(root jsonb, leaves jsonb[], value jsonb) returns jsonb[]
language plpgsql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
declare
  fitting jsonb[];
begin
  if cardinality(leaves) < 2 or jsonb_typeof(value) <> 'object' then
    return leaves;
  end if;
  -- First by what tells branches apart (const and enum members), then by who declares every member.
  fitting := array(
    select l.leaf from unnest(leaves) with ordinality as l (leaf, number)
    where not exists (
      select from jsonb_each(value) as m (name, member),
        lateral underseal._schema_leaves(root, l.leaf -> 'properties' -> m.name) as declared
      where declared <> '{}'
        and not exists (select from unnest(declared) as d (leaf)
          where not d.leaf ?| array['const', 'enum'] or underseal._leaf_admits(d.leaf, m.member))
    )
    order by l.number
  );
  leaves := case when fitting = '{}' then leaves else fitting end;
  fitting := array(
    select l.leaf from unnest(leaves) with ordinality as l (leaf, number)
    where not exists (
      select from jsonb_object_keys(value) as m (name)
      where underseal._member_leaves(root, l.leaf, m.name) = '{}'
    )
    order by l.number
  );
  return case when fitting = '{}' then leaves else fitting end;
end
$$;
comment on function underseal._narrowed(jsonb, jsonb[], jsonb) is
  'Of several object leaves, those whose const and enum members agree with the value and that declare all its members; all of them if none does.';
