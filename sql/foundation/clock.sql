-- The only clock. Neither SECURITY DEFINER nor SET, so that it is inlined into every predicate that reads it.
create or replace function underseal.clock() returns timestamptz
language sql volatile parallel safe
as $$ select pg_catalog.clock_timestamp() $$;
comment on function underseal.clock() is
  'The database''s clock, read when it is called (not when the transaction began). The only clock anything is judged by.';
