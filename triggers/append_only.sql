-- Shared by every table of which rows are never changed, or never truncated.
create or replace function underseal._refuse_change() returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  raise exception using errcode = 'US004',
    message = format('underseal.%s expected to be appended to, found %s', tg_table_name, tg_op),
    hint = 'Rows of this table are history. Call the functions of schema underseal.';
end
$$;
comment on function underseal._refuse_change() is 'Refuses a change of what is append-only, whoever makes it (H3.5, H6.7).';
