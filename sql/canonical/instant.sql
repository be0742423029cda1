create or replace function underseal._canonical_instant(string text) returns text
language plpgsql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
declare
  -- year, month, day, hour, minute, second, fraction, zone, its sign, hours and minutes
  part text[] := regexp_match(string, '^([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt]([0-9]{2}):([0-9]{2}):([0-9]{2})'
    || '([.][0-9]{1,6})?([Zz]|([-+])([0-9]{2}):([0-9]{2}))$');
  last_day integer;
  utc timestamp;
  fraction text;
begin
  if part is null or part[1] = '0000' or part[2]::integer not between 1 and 12 or part[4]::integer > 23
    or part[5]::integer > 59 or part[6]::integer > 59 or part[10]::integer > 23 or part[11]::integer > 59 then
    return null;
  end if;
  last_day := extract(day from make_date(part[1]::integer, part[2]::integer, 1) + interval '1 month' - interval '1 day');
  if part[3]::integer not between 1 and last_day then
    return null;
  end if;
  utc := make_timestamp(part[1]::integer, part[2]::integer, part[3]::integer, part[4]::integer, part[5]::integer,
      part[6]::integer)
    - make_interval(mins => coalesce((part[9] || '1')::integer * (part[10]::integer * 60 + part[11]::integer), 0));
  if utc not between timestamp '0001-01-01 00:00:00' and timestamp '9999-12-31 23:59:59' then
    return null;
  end if;
  fraction := rtrim(part[7], '0');
  return to_char(utc, 'YYYY-MM-DD"T"HH24:MI:SS') || coalesce(nullif(fraction, '.'), '') || 'Z';
end
$$;
comment on function underseal._canonical_instant(text) is
  'An RFC 3339 instant in UTC, `YYYY-MM-DDTHH:MM:SS[.f]Z`, trailing zeros of the fraction (at most 6 digits) dropped; null for anything else, second 60 and years outside 0001 to 9999 among it.';
