-- A caller's value that holds an envelope is refused, not skipped: one of the caller's own could not be told from a seal,
-- and would hold up whoever cannot open it (G13). Escapes in keys are seen: jsonb has resolved them.
create or replace function underseal._holds_envelope(value json) returns boolean
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  return jsonb_path_exists(value::jsonb,
    'lax $.** ? (@."__loomEnc".type() == "string" || @."$shredded" == true)', silent => true);
exception
  -- What jsonb cannot take (U+0000, half a surrogate pair, too deep) cannot be looked through.
  when untranslatable_character or invalid_text_representation or statement_too_complex or program_limit_exceeded then
    return true;
end
$$;
comment on function underseal._holds_envelope(json) is
  'Whether a value holds, at any depth, an envelope (an object whose __loomEnc is a string) or the mark {"$shredded": true}, or cannot be looked through (G13).';
