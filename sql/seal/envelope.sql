-- Is a value shaped like a sealed envelope of one format? A shape check: only the holder of the key can tell whether it
-- opens. The body is parsed once, when the function is made, so no caller's search_path can change what it means, and it
-- has neither SET nor SECURITY DEFINER, so that it inlines into constraints and queries.
--
-- The patterns give the exact lengths of base64url without padding: 32 bytes are 43 characters whose last one has two
-- bits to spare, 12 bytes are 16 characters, and a ciphertext has at least its 16-byte tag. A held plaintext is at most
-- 1 MiB, so its ciphertext is at most 1398123 characters. In the plain cipher a snapshot alone has associated data.
create or replace function underseal._is_envelope(value jsonb, fmt text) returns boolean
language sql immutable parallel safe
return coalesce(
  pg_catalog.jsonb_typeof(value) = 'object'
  and pg_catalog.jsonb_typeof(value -> 'v') = 'number' and value ->> 'v' = '1'
  and pg_catalog.jsonb_typeof(value -> 'fmt') = 'string' and value ->> 'fmt' = fmt
  and pg_catalog.jsonb_typeof(value -> 'kid') = 'string' and value ->> 'kid' ~ '^[!-~]{1,128}$'
  and pg_catalog.jsonb_typeof(value -> 'org') = 'string' and value ->> 'org' <> ''
  and pg_catalog.jsonb_typeof(value -> 'iv') = 'string' and value ->> 'iv' ~ '^[A-Za-z0-9_-]{16}$'
  and pg_catalog.jsonb_typeof(value -> 'ct') = 'string' and value ->> 'ct' ~ '^[A-Za-z0-9_-]{22,}$'
  and pg_catalog.length(value ->> 'ct') % 4 <> 1
  and case value ->> '__loomEnc'
    when 'underseal/aes-256-gcm-hkdf' then
      pg_catalog.jsonb_typeof(value -> 'salt') = 'string'
      and value ->> 'salt' ~ '^[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]$'
      and pg_catalog.jsonb_typeof(value -> 'kc') = 'string'
      and value ->> 'kc' ~ '^[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]$'
      and value - '{__loomEnc,v,kid,fmt,org,salt,iv,kc,ct}'::text[] = '{}'::jsonb
    when 'loom/aes-256-gcm' then
      not pg_catalog.starts_with(fmt, 'held-')
      and case when fmt = 'loom-snap-v1' then value ->> 'aad' = fmt else not value ? 'aad' end
      and value - '{__loomEnc,v,kid,fmt,org,aad,iv,ct}'::text[] = '{}'::jsonb
    else false
  end
  and case
    when pg_catalog.starts_with(fmt, 'held-') then
      pg_catalog.length(value ->> 'ct') <= 1398123
      and value ->> 'org' ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'
    else true
  end,
  false);

comment on function underseal._is_envelope(jsonb, text) is
  'True where value has exactly the shape of a sealed envelope of the format fmt, for example held-payload-v1: members, types, sizes, version and a cipher that the format accepts. Never null. Says nothing about whether it opens.';
