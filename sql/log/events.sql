-- What may stand in a log, and what it does to the status. Read for every event: neither SECURITY DEFINER nor SET.
create or replace function underseal._is_fact(type text) returns boolean
language sql immutable parallel safe
as $$ select type operator(pg_catalog.~) '^(EXECUTION|MESSAGE|TIMER|INBOX|OUTCOME|PAYLOAD|ERASURE)_' $$;
comment on function underseal._is_fact(text) is 'Whether an event of this type is written by a verb of its own, never by append.';

create or replace function underseal._status_after(type text, data json) returns text
language sql immutable parallel safe
as $$
  select case type
    when 'EXECUTION_STARTED' then 'pending'
    when 'EXECUTION_SUSPENDED' then 'suspended'
    when 'EXECUTION_COMPLETED' then 'completed'
    when 'EXECUTION_FAILED' then 'failed'
    when 'EXECUTION_CANCELLED' then 'cancelled'
    when 'EXECUTION_CONTINUED' then 'continued'
    when 'MESSAGE_CONSUMED' then case when (data operator(pg_catalog.->>) 'wait') is not null then 'running' end
    when 'OUTCOME_RECORDED' then null
    when 'ERASURE_PENDING' then null
    when 'PAYLOAD_SHREDDED' then null
    else 'running' end
$$;
comment on function underseal._status_after(text, json) is
  'The status an event leads to; null for one that says nothing of it and may therefore follow the end.';

create or replace function underseal._is_ended(status text) returns boolean
language sql immutable parallel safe
as $$ select status in ('completed', 'failed', 'cancelled', 'continued') $$;
comment on function underseal._is_ended(text) is 'Whether nothing can follow this status.';

create or replace function underseal._event_limit() returns integer
language sql immutable parallel safe
as $$ select 1048576 $$;
comment on function underseal._event_limit() is 'The most bytes of JSON that one event, input or snapshot may have: 1 MiB.';

create or replace function underseal._depth_limit() returns integer
language sql immutable parallel safe
as $$ select 512 $$;
comment on function underseal._depth_limit() is
  'How deep a value may be nested: deeper ones could be stored, and then break the stack of whoever reads them, here or in a client.';

create or replace function underseal._value_flaw(value json) returns text
language sql immutable parallel safe
as $$
  select case
    when pg_catalog.octet_length(value::text) > underseal._event_limit() then 'too-large'
    -- two bytes a level at least; "is true", or the depth of every null would be looked for as well
    when (pg_catalog.octet_length(value::text) > 1024) is true
      and underseal._json_depth(value::text) > underseal._depth_limit() then 'unreadable'
    when value::text operator(pg_catalog.~) '__loomEnc|[$]shredded|\\u' then underseal._reserved_in(value) end
$$;
comment on function underseal._value_flaw(json) is
  'What keeps a caller''s value out of the log: too-large, envelope (an envelope or the mark of a shredded value, which only the kernel may write) or unreadable. Null for nothing.';

create or replace function underseal._event_flaw(type text, data json, plain boolean) returns text
language sql immutable parallel safe
as $$
  select case
    when coalesce(type, '') operator(pg_catalog.!~) '^[A-Z][A-Z0-9_]*$' or pg_catalog.length(type) > 64 then 'malformed-type'
    when underseal._is_fact(type) then 'reserved-type'
    when data is not null and pg_catalog.json_typeof(data) operator(pg_catalog.<>) 'object' then 'malformed-data'
    when plain and pg_catalog.octet_length(data::text) <= 1024 then null
    else underseal._value_flaw(data) end
$$;
comment on function underseal._event_flaw(text, json, boolean) is
  'What keeps a caller''s event out of the log; null for nothing. plain: what it came in holds neither an escape nor the mark of an envelope, so that short data need not be looked through.';
