-- What leaves the inbox without being delivered is recorded in the log of the execution that goes on with the line,
-- parked, running or ended: so every number of an inbox waits, or stands in a log.
create or replace function underseal._drop_messages(
  chain_id text, line text, member text, numbers bigint[], disposition text, operator text, reason text, moment timestamptz)
returns integer
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  dropped integer;
begin
  insert into underseal.event (chain_id, member, seq, recorded_at, type, data)
  select e.chain_id, e.member, e.head + row_number() over (order by m.inbox_seq), moment, 'MESSAGE_CONSUMED',
    underseal._consumed(m, null, null, _drop_messages.disposition, _drop_messages.operator, _drop_messages.reason)
  from underseal.execution e
  join underseal.inbox_message m on m.chain_id = e.chain_id and m.line = e.line
  where e.chain_id = _drop_messages.chain_id and e.member = _drop_messages.member and m.inbox_seq = any (numbers)
  order by m.inbox_seq;
  get diagnostics dropped = row_count;
  -- what waited behind a message that nobody here could open can be delivered now
  if dropped > 0 then
    perform underseal._wake_inbox(e.chain_id, e.member, moment)
    from underseal.execution e
    where e.chain_id = _drop_messages.chain_id and e.member = _drop_messages.member and e.status = 'suspended'
      and cardinality(underseal._plan_answers(e.chain_id, e.line, e.waits, moment, null, true, 1)) > 0;
  end if;
  return dropped;
end
$$;
comment on function underseal._drop_messages(text, text, text, bigint[], text, text, text, timestamptz) is
  'Records messages as discarded or expired, in the order of their numbers and without their payload, in the log of the line''s current execution; the caller holds the line''s locks. How many there were.';

create or replace function underseal._expire_messages(
  chain_id text, line text, member text, moment timestamptz, topic text, max_messages integer) returns integer
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  select underseal._drop_messages(_expire_messages.chain_id, _expire_messages.line, _expire_messages.member,
    array(
      select m.inbox_seq from underseal.inbox_message m
      where m.chain_id = _expire_messages.chain_id and m.line = _expire_messages.line and m.expires_at <= moment
        and m.topic = coalesce(_expire_messages.topic, m.topic)
      order by m.inbox_seq
      limit max_messages),
    'expired', null, null, moment)
$$;
comment on function underseal._expire_messages(text, text, text, timestamptz, text, integer) is
  'Disposes of what has expired in a line''s inbox, or in one topic of it, under the line''s locks. How many there were.';

create or replace function underseal.discard_inbox(
  execution_id text, topic text, principal text, note text default null, inbox_seq bigint default null)
returns table (outcome text, reason text, message text, discarded integer)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  chain text := underseal._chain_of(execution_id);
  me text := underseal._member_of(execution_id);
  first_member text := underseal._line_of(underseal._member_of(execution_id));
  asked record;
  numbers bigint[];
begin
  perform underseal._require_read_committed();
  select a.* into asked
  from underseal._judge_access('discard', discard_inbox.execution_id, discard_inbox.principal, '{operator}') a;
  if asked.cause is null then
    if length(discard_inbox.note) > 256 then
      return query select 'refused', 'malformed-note', 'Expected a note of at most 256 characters, found a longer one.', null::integer;
      return;
    end if;
    asked.cause := case when not underseal._lock_line(chain, me, asked.incarnation) then 'missing' end;
  end if;
  if asked.cause is not null then
    perform underseal._record_denial('discard', execution_id, asked.principal, asked.cause, asked.known);
    return query select d.outcome, d.reason, d.message, null::integer from underseal._execution_denied() d;
    return;
  end if;

  numbers := array(
    select m.inbox_seq from underseal.inbox_message m
    where m.chain_id = chain and m.line = first_member and m.topic = discard_inbox.topic
    order by m.inbox_seq
    limit case when discard_inbox.inbox_seq is not null then 1 end);
  if discard_inbox.inbox_seq <> coalesce(numbers[1], -1) then
    return query select 'conflict', 'moved',
      'Expected this message at the head of its topic, found another, or none. Look at the inbox again.', 0;
    return;
  end if;
  return query
  select case when d.dropped > 0 then 'discarded' else 'unchanged' end, null::text, null::text, d.dropped
  from (
    select underseal._drop_messages(chain, first_member, coalesce(f.current_member, f.member), numbers, 'discarded',
      asked.principal, discard_inbox.note, underseal.clock()) as dropped
    from underseal.execution f
    where f.chain_id = chain and f.member = first_member) d;
end
$$;
comment on function underseal.discard_inbox(text, text, text, text, bigint) is
  'Discards what waits in a topic of an execution''s inbox, whether or not anybody could open it: all of it, or with inbox_seq the head alone, if that is its number. note: why, at most 256 characters, for the log. By operator access. The log names each message without its payload. discarded: how many. Outcomes: discarded; unchanged (nothing waited); conflict (moved: another is at the head); refused (malformed-note); denied (I3, G6).';
