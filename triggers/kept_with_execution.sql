-- What the rows around an execution have in common. A row that goes is judged when its statement is over, by what is true then:
-- the fold and a deletion of the chain change the rows that allow it in the same statement, or before.
create or replace function underseal._refuse_identity() returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  raise exception using errcode = 'US003',
    message = format('underseal.%s expected a row to stay what it is, found a change of %s', tg_table_name, tg_argv[0]),
    hint = 'Call the functions of schema underseal.';
end
$$;
comment on function underseal._refuse_identity() is 'Refuses a change of columns that never change, which its argument names.';

create or replace function underseal._refuse_delete(relation text, hint text) returns void
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  raise exception using errcode = 'US007',
    message = format('underseal.%s expected to keep what an execution still needs, found a DELETE', relation),
    hint = hint;
end
$$;
comment on function underseal._refuse_delete(text, text) is 'Refuses to delete rows before their time.';
