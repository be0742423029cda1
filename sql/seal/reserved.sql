-- A caller's value that holds an envelope is refused, not skipped: one of the caller's own could not be told from a seal,
-- and would hold up whoever cannot open it (G13). Escapes in keys are seen: jsonb has resolved them.
create or replace function underseal._reserved_in(value json) returns text
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  return case when jsonb_path_exists(value::jsonb,
    'lax $.** ? (@."__loomEnc".type() == "string" || @."$shredded" == true)', silent => true) then 'envelope' end;
exception
  when data_exception or statement_too_complex or program_limit_exceeded then
    return 'unreadable';
end
$$;
comment on function underseal._reserved_in(json) is
  'envelope where a value holds, at any depth, an envelope (an object whose __loomEnc is a string) or the mark {"$shredded": true}; unreadable where it cannot be looked through (U+0000, half a surrogate pair, too deep); null for neither (G13).';
