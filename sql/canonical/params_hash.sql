create or replace function underseal.params_hash(type text, version integer, canonical text, salt bytea default null)
returns bytea
language plpgsql immutable parallel safe security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if type is null or version is null or canonical is null then
    perform underseal._refuse_canonical('hash-input', '', 'expected a type, a version and canonical text, found null');
  end if;
  if strpos(type, E'\n') > 0 then
    perform underseal._refuse_canonical('hash-input', '', 'expected a type without a line feed');
  end if;
  if octet_length(salt) <> 32 then
    perform underseal._refuse_canonical('hash-input', '',
      format('expected a salt of 32 bytes, found %s', octet_length(salt)));
  end if;
  return sha256(convert_to(type || E'\n' || version || E'\n' || canonical, 'UTF8')
    || coalesce(convert_to(E'\n', 'UTF8') || salt, ''));
end
$$;
comment on function underseal.params_hash(text, integer, text, bytea) is
  'SHA-256 over type, LF, version in decimal, LF, canonical text and, where there is a salt (32 bytes), LF and the salt (H1.3). Hashes the text as it is. Raises US010 `hash-input` for a type with an LF, another length of salt, or null.';
