-- How canonical JSON refuses: a pointer to the offender, one word for the rule, and never a value.
create or replace function underseal._member_path(path text, name text) returns text
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
  -- U+FDD0 to U+FDEF can only be refused here, and some of them stand for what text cannot hold (_marked_json).
  select path || '/' || replace(replace(regexp_replace(name, E'[\uFDD0-\uFDEF]', E'\uFFFD', 'g'), '~', '~0'), '/', '~1')
$$;
comment on function underseal._member_path(text, text) is
  'RFC 6901 pointer to the member `name` of the value at `path`; what no message can hold is shown as U+FFFD.';

create or replace function underseal._shown_path(path text) returns text
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
  select case when length(path) > 512 then left(path, 511) || E'\u2026' else path end
$$;
comment on function underseal._shown_path(text) is
  'A pointer as errors show it: at most 512 characters; a longer one is cut and ends in an ellipsis.';

create or replace function underseal._refuse_canonical(reason text, path text, explanation text) returns void
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  raise exception using
    errcode = 'US010',
    message = format('canonical JSON refused: %s at %s: %s',
      reason, coalesce(nullif(underseal._shown_path(path), ''), 'the top level'), explanation),
    detail = json_build_object('reason', reason, 'path', underseal._shown_path(path))::text;
end
$$;
comment on function underseal._refuse_canonical(text, text, text) is
  'Raises US010. DETAIL is {"reason": one hyphenated word, "path": RFC 6901 pointer}; `explanation` holds no value of the document.';
