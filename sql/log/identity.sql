-- An execution's id is its chain's, or chain~member. These are inlined into queries: neither SECURITY DEFINER nor SET.
create or replace function underseal._execution_id(chain_id text, member text) returns text
language sql immutable parallel safe
as $$ select case when member = '' then chain_id else chain_id operator(pg_catalog.||) '~' operator(pg_catalog.||) member end $$;
comment on function underseal._execution_id(text, text) is 'The id by which callers know an execution.';

create or replace function underseal._chain_of(execution_id text) returns text
language sql immutable parallel safe
as $$ select pg_catalog.split_part(execution_id, '~', 1) $$;
comment on function underseal._chain_of(text) is 'The chain of an execution, from its id.';

create or replace function underseal._member_of(execution_id text) returns text
language sql immutable parallel safe
as $$ select pg_catalog.substr(execution_id, pg_catalog.length(pg_catalog.split_part(execution_id, '~', 1)) operator(pg_catalog.+) 2) $$;
comment on function underseal._member_of(text) is 'Which member of its chain an execution is, from its id.';

create or replace function underseal._line_of(member text) returns text
language sql immutable parallel safe
as $$
  select case when member operator(pg_catalog.=) '' then '' else pg_catalog.regexp_replace(member, '(^|[.])[0-9]+$', '') end
$$;
comment on function underseal._line_of(text) is 'The member that began a line of continuations: '''' for ''2'', ''pay'' for ''pay.2''.';

create or replace function underseal._parent_line_of(line text) returns text
language sql immutable parallel safe
as $$
  select case
    when line operator(pg_catalog.=) '' then null
    when pg_catalog.strpos(line, ':') operator(pg_catalog.=) 0 then ''
    else pg_catalog.regexp_replace(line, ':[^:]*$', '') end
$$;
comment on function underseal._parent_line_of(text) is
  'The line that asked for a child, from the child''s:  for pay, pay for pay:sub; null for , which nobody asked for.';

create or replace function underseal._successor_of(member text) returns text
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
  select case
    when member = '' then '2'
    when member ~ '(^|[.])[0-9]+$' then regexp_replace(member, '[0-9]+$', '') || ((regexp_match(member, '[0-9]+$'))[1]::bigint + 1)
    else member || '.2' end
$$;
comment on function underseal._successor_of(text) is 'The member that continues one: ''2'' after '''', ''3'' after ''2'', ''pay.2'' after ''pay''.';

create or replace function underseal._mint_id() returns text
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  select lpad(to_hex((extract(epoch from underseal.clock()) * 1000)::bigint), 12, '0')
    || right(replace(gen_random_uuid()::text, '-', ''), 20)
$$;
comment on function underseal._mint_id() is
  'An id for an execution nobody named: 32 hexadecimal digits that begin with the time, so that new rows lie together in the indexes.';
