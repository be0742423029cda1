-- Whether a marker opens with what a caller declares. Judged for every stored row: neither SECURITY DEFINER nor SET, so
-- that it is inlined. pylib/underseal/seal/capability.py has its twin, and a test compares them. A version is the number
-- written 1, as every client reads it; entries that are no text are found strictly, since a lax path would look into them.
create or replace function underseal.seal_opens(marker jsonb, capability jsonb) returns boolean
language sql immutable parallel safe
return marker is null or coalesce(
  case when pg_catalog.jsonb_typeof(marker) = 'object' then marker - '{v,cipher,covers}'::text[] = '{}'::jsonb end
  and marker -> 'v' = '1'::jsonb and marker ->> 'v' = '1'
  and pg_catalog.jsonb_typeof(marker -> 'cipher') = 'string'
  and pg_catalog.jsonb_typeof(marker -> 'covers') = 'array' and marker -> 'covers' <> '[]'::jsonb
  and not pg_catalog.jsonb_path_exists(marker -> 'covers', 'strict $[*] ? (@.type() != "string")', silent => true)
  and pg_catalog.jsonb_typeof(capability -> 'ciphers') = 'array' and capability -> 'ciphers' @> (marker -> 'cipher')
  and pg_catalog.jsonb_typeof(capability -> 'covers') = 'array' and capability -> 'covers' @> (marker -> 'covers'),
  false);
comment on function underseal.seal_opens(jsonb, jsonb) is
  'Whether what a marker {"v": 1, "cipher", "covers"} covers opens with a capability {"ciphers": [..], "covers": [..]}: a version that is known, a cipher it has, every entry covered. No marker opens for everybody, no capability opens none, and a marker of another shape opens for nobody. Never null (M3, M16).';
