-- What is judged on the text alone, before any cast: a cast of 20,000 nested arrays breaks the server's stack.
create or replace function underseal._json_depth(params text) returns integer
language plpgsql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
declare
  brackets text;
begin
  -- No text is nested deeper than it has opening brackets, and most have few.
  if length(params) - length(translate(params, '[{', '')) <= 64 then
    return 0;
  end if;
  brackets := regexp_replace(params, E'"[^"\\\\]*(\\\\.[^"\\\\]*)*("|\\\\?$)', '', 'g');
  brackets := translate(regexp_replace(brackets, E'[^][{}]+', '', 'g'), '{}', '[]');
  return coalesce((
    select max(nested.level)
    from (
      select sum(case step.bracket when '[' then 1 else -1 end) over (order by step.at rows unbounded preceding) as level
      from string_to_table(brackets, null) with ordinality as step (bracket, at)
    ) nested
  ), 0);
end
$$;
comment on function underseal._json_depth(text) is
  'The deepest nesting of brackets outside strings, counted on the text without parsing it; 0 stands for anything up to 64 in a text with at most 64 opening brackets.';

create or replace function underseal._marked_json(params text) returns text
language plpgsql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
begin
  if params !~ E'\\\\u(0000|[dD][89a-fA-F]|[fF][dD][dD][01])|[\uFDD0\uFDD1]' then
    return params;
  end if;
  return (
    select string_agg(
      case
        when token.part[1] is not null then token.part[1]
        when token.part[2] is not null then E'\uFDD0'
        when token.part[3] is not null then E'\uFDD1'
        when token.part[4] is not null then E'\uFDD2'
        else coalesce(token.part[5], translate(token.part[6], E'\uFDD0\uFDD1', E'\uFDD2\uFDD2'))
      end, '' order by token.at)
    from regexp_matches(params,
        E'(\\\\u[dD][89abAB][0-9a-fA-F]{2}\\\\u[dD][c-fC-F][0-9a-fA-F]{2})|(\\\\u0000)|(\\\\u[dD][89a-fA-F][0-9a-fA-F]{2})'
        || E'|(\\\\u[fF][dD][dD][01])|(\\\\.?)|([^\\\\]+)', 'g')
      with ordinality as token (part, at)
  );
end
$$;
comment on function underseal._marked_json(text) is
  'The text with U+FDD0 for each escaped U+0000 and U+FDD1 for each escaped surrogate without its partner, so that json functions can walk to the offender; the two characters themselves, which are refused anyway, become U+FDD2.';

create or replace function underseal._finite_json(params text) returns text
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
  select string_agg(coalesce(token.part[1], case when token.part[2] is not null then ' 0.5 ' end, token.part[3]), ''
    order by token.at)
  from regexp_matches(params, E'("[^"\\\\]*(?:\\\\.[^"\\\\]*)*"?)|(-?Infinity|NaN)|(-|[^"NI-]+|.)', 'g')
    with ordinality as token (part, at)
$$;
comment on function underseal._finite_json(text) is
  'The text with a float in place of each NaN and infinity outside strings, which JSON does not have: so a text that is malformed by those alone is refused at their path.';

create or replace function underseal._parsed_json(params text) returns json
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  return params::json;
exception
  when invalid_text_representation then
    return null;
end
$$;
comment on function underseal._parsed_json(text) is
  'The text as json, or null (of SQL) where it is malformed. Not parallel safe: it opens a subtransaction.';
