-- Sending. The line's first row gives the numbers and is locked first, then the execution that goes on with the line:
-- whoever parks, delivers or discards holds that one, so that none of them misses a message (E7).
create or replace function underseal._message_key(sender text, message_id text) returns bytea
language sql immutable
set search_path = pg_catalog, pg_temp
as $$ select sha256(convert_to(sender, 'UTF8') || '\x00'::bytea || convert_to(message_id, 'UTF8')) $$;
comment on function underseal._message_key(text, text) is 'What duplicates are found by: SHA-256 over sender, a zero byte and message id.';

create or replace function underseal._inbox_setting(key text, otherwise integer) returns integer
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select coalesce((
    select s.value::integer from underseal.setting s where s.key = _inbox_setting.key and s.value ~ '^[0-9]+$' and length(s.value) < 10), otherwise)
$$;
comment on function underseal._inbox_setting(text, integer) is
  'A setting that is a whole number; the value given where it is not set, or set to something else.';

create or replace function underseal._message_flaw(payload json) returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select case
    when octet_length(payload::text) > underseal._inbox_setting('inbox.max_payload_bytes', 65536) then 'too-large'
    when underseal._json_depth(payload::text) > underseal._depth_limit() then 'too-deep'
    else underseal._value_flaw(payload) end
$$;
comment on function underseal._message_flaw(json) is
  'What keeps a payload out of an inbox: too-large, too-deep, envelope or unreadable, the size before anything is looked through; null for nothing (G13).';

create or replace function underseal._send_flaw(topic text, message_id text, expires_in interval, payload json) returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select case
    -- a bounded repetition in the pattern would cost thirty times as much
    when coalesce(topic, '') !~ '^[^[:cntrl:]]+$' or length(topic) > 200 or starts_with(topic, '$') then 'malformed-topic'
    when length(message_id) not between 1 and 256 then 'malformed-id'
    when expires_in <= interval '0' or expires_in > interval '3650 days' then 'malformed-expiry'
    else underseal._message_flaw(payload) end
$$;
comment on function underseal._send_flaw(text, text, interval, json) is 'What keeps a message from being sent as asked; null for nothing.';

create or replace function underseal._put_message(
  chain_id text, line text, topic text, payload json, sender text, message_id text, expires_in interval, metadata jsonb,
  backlog integer default null, out outcome text, out inbox_seq bigint)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  put underseal.inbox_message;
  current underseal.execution;
begin
  put.message_key := underseal._message_key(sender, message_id);
  select k.inbox_seq into inbox_seq
  from (
    select m.inbox_seq from underseal.inbox_message m
    where m.chain_id = _put_message.chain_id and m.line = _put_message.line and m.message_key = put.message_key
    union all
    select s.inbox_seq from underseal.inbox_seen s
    where s.chain_id = _put_message.chain_id and s.line = _put_message.line and s.message_key = put.message_key) k
  limit 1;
  if found then
    outcome := 'duplicate';
    return;
  end if;
  select e.* into current
  from underseal.execution f
  join underseal.execution e on e.chain_id = f.chain_id and e.member = coalesce(f.current_member, f.member)
  where f.chain_id = _put_message.chain_id and f.member = _put_message.line;
  if not found or underseal._is_ended(current.status) then
    outcome := 'ended';
    return;
  end if;
  put.sent_at := underseal.clock();
  if backlog is not null and underseal._is_full(chain_id, line, topic, backlog) then
    -- what has expired is no backlog; whoever meets it first disposes of it
    perform underseal._expire_messages(chain_id, line, current.member, put.sent_at, topic, null);
    if underseal._is_full(chain_id, line, topic, backlog) then
      outcome := 'inbox-full';
      return;
    end if;
  end if;

  update underseal.execution e set last_inbox_seq = e.last_inbox_seq + 1
  where e.chain_id = _put_message.chain_id and e.member = _put_message.line
  returning e.last_inbox_seq into inbox_seq;
  insert into underseal.inbox_message (chain_id, line, inbox_seq, topic, message_key, sender, message_id, payload, metadata,
    sent_at, expires_at)
  values (_put_message.chain_id, _put_message.line, _put_message.inbox_seq, _put_message.topic, put.message_key,
    _put_message.sender, _put_message.message_id, _put_message.payload, _put_message.metadata, put.sent_at,
    -- in seconds: days are as long as the session's time zone makes them
    put.sent_at + make_interval(secs => extract(epoch from _put_message.expires_in)::float8));
  if current.status = 'suspended'
    and current.waits @> jsonb_build_array(jsonb_build_object('arms', jsonb_build_array(jsonb_build_object('topic', topic)))) then
    perform underseal._wake_inbox(current.chain_id, current.member, put.sent_at);
  end if;
  outcome := 'sent';
end
$$;
comment on function underseal._put_message(text, text, text, json, text, text, interval, jsonb, integer) is
  'Puts a message into a line''s inbox, whose first row and current execution the caller has locked, in this order: its number, and the wake where the current execution is parked on its topic. message_id: unique for this sender; expires_in: null for never; metadata: the seal marker; backlog: how many may wait in the topic, null for any number. Outcomes: sent, duplicate (pending, or disposed of lately; its number), ended, inbox-full; only sent writes.';

create or replace function underseal._is_full(chain_id text, line text, topic text, backlog integer) returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select count(*) >= backlog
  from (
    select from underseal.inbox_message m
    where m.chain_id = _is_full.chain_id and m.line = _is_full.line and m.topic = _is_full.topic
    limit backlog) m
$$;
comment on function underseal._is_full(text, text, text, integer) is 'Whether as many messages as may wait in a topic, or more; counts no further than that.';

create or replace function underseal._wake_inbox(chain_id text, member text, wake_at timestamptz) returns void
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  insert into underseal.wake as w (chain_id, member, kind, flow, wake_at)
  select e.chain_id, e.member, 'inbox', e.flow, _wake_inbox.wake_at
  from underseal.execution e
  where e.chain_id = _wake_inbox.chain_id and e.member = _wake_inbox.member
  on conflict on constraint wake_pkey do update
    set wake_at = excluded.wake_at
    where w.wake_at > excluded.wake_at
$$;
comment on function underseal._wake_inbox(text, text, timestamptz) is
  'Makes the inbox wake of a parked execution due, under the execution''s lock: one that was put off comes forward, a claim of it stays.';

create or replace function underseal.send(
  execution_id text, topic text, payload json, principal text, message_id text default null, expires_in interval default null)
returns table (outcome text, reason text, message text, inbox_seq bigint)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  chain text := underseal._chain_of(execution_id);
  me text := underseal._member_of(execution_id);
  first_member text := underseal._line_of(underseal._member_of(execution_id));
  content json := coalesce(payload, 'null');
  asked record;
  said record;
begin
  perform underseal._require_read_committed();
  select a.* into asked from underseal._judge_access('send', execution_id, send.principal, '{client,worker}') a;
  if asked.cause is null then
    reason := underseal._send_flaw(topic, message_id, expires_in, content);
    if reason is not null then
      return query select 'refused', send.reason, underseal._send_message(send.reason), null::bigint;
      return;
    end if;
    asked.cause := case when not underseal._lock_line(chain, me, asked.incarnation) then 'missing' end;
  end if;
  if asked.cause is not null then
    perform underseal._record_denial('send', execution_id, asked.principal, asked.cause, asked.known);
    return query select d.outcome, d.reason, d.message, null::bigint from underseal._execution_denied() d;
    return;
  end if;
  select p.outcome, p.inbox_seq into said
  from underseal._put_message(chain, first_member, topic, content, asked.principal, coalesce(message_id, gen_random_uuid()::text),
    expires_in, null, underseal._inbox_setting('inbox.backlog', 1000)) p;
  return query select
    case said.outcome when 'ended' then 'conflict' when 'inbox-full' then 'refused' else said.outcome end,
    case when said.outcome in ('ended', 'inbox-full') then said.outcome end,
    underseal._send_message(said.outcome), said.inbox_seq;
end
$$;
comment on function underseal.send(text, text, json, text, text, interval) is
  'Sends a message to an execution, or to the one that goes on with it by now. topic: 1 to 200 characters without control characters, not beginning with $; payload: at most 64 KiB of JSON (setting inbox.max_payload_bytes) and 512 levels, null for the JSON null; message_id: of 1 to 256 characters, by which a repetition is found, null for a new one; expires_in: up to 3650 days, null for never. Result: its number in the inbox. Outcomes: sent; duplicate (pending or delivered lately; the number it has); conflict (ended); refused (inbox-full, too-large, too-deep, envelope, unreadable, malformed-topic, malformed-id, malformed-expiry), before anything is written; denied (I1, I2, I4, G13).';

create or replace function underseal._send_message(reason text) returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select case reason
    when 'malformed-topic' then 'Expected a topic of 1 to 200 characters without control characters that does not begin with $, found another.'
    when 'malformed-id' then 'Expected a message id of 1 to 256 characters, found another.'
    when 'malformed-expiry' then 'Expected an expiry of more than nothing and at most 3650 days, found another.'
    when 'too-large' then format('Expected a payload of at most %s bytes of JSON, found a larger one. Store it with underseal.put_content and refer to it.',
      underseal._inbox_setting('inbox.max_payload_bytes', 65536))
    when 'too-deep' then format('Expected a payload of at most %s levels, found a deeper one.', underseal._depth_limit())
    when 'inbox-full' then format('Expected fewer than %s messages of this topic that wait, found as many. Wait until some are delivered, or discard them.',
      underseal._inbox_setting('inbox.backlog', 1000))
    when 'ended' then 'Expected an open execution, found one that has ended.'
    when 'envelope' then underseal._append_message(reason)
    when 'unreadable' then underseal._append_message(reason) end
$$;
comment on function underseal._send_message(text) is 'What was expected of a message, what was found and what to do; null for what was accepted.';

create or replace function underseal._lock_lines(chains text[], lines text[], patient boolean default true) returns boolean
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  k record;
  wanted text;
begin
  for k in
    -- where the execution that goes on sorts, whichever it is: right behind its line's first, before every child's
    select distinct l.chain_id collate "C" as chain_id, l.line collate "C" as line, p.place collate "C" as place, p.goes_on
    from unnest(chains, lines) l (chain_id, line)
    cross join lateral (values (l.line, false), (case l.line when '' then '1' else l.line || '.' end, true)) p (place, goes_on)
    order by chain_id, place, line
  loop
    wanted := k.line;
    if k.goes_on then
      -- its line's first row is locked, so it stays the one
      wanted := (
        select e.current_member from underseal.execution e where e.chain_id = k.chain_id and e.member = k.line);
      continue when wanted is null;
    end if;
    if patient then
      perform from underseal.execution e where e.chain_id = k.chain_id and e.member = wanted for no key update;
    else
      perform from underseal.execution e where e.chain_id = k.chain_id and e.member = wanted for no key update skip locked;
      if not found and exists (
          select from underseal.execution e where e.chain_id = k.chain_id and e.member = wanted) then
        return false;
      end if;
    end if;
  end loop;
  return true;
end
$$;
comment on function underseal._lock_lines(text[], text[], boolean) is
  'Locks the inboxes of lines, whatever became of them: of each its first row, which gives the numbers, and the execution that goes on with it, all in the order of their ids. patient: whether to wait for who holds one; false is answered where one is held and nobody waits.';

create or replace function underseal._lock_line(chain_id text, member text, incarnation uuid) returns boolean
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  first_row record;
begin
  select e.member, e.current_member into first_row
  from underseal.execution e
  where e.chain_id = _lock_line.chain_id and e.member = underseal._line_of(_lock_line.member)
  for no key update;
  if not found then
    return false;
  end if;
  if first_row.current_member is not null then
    perform from underseal.execution e
    where e.chain_id = _lock_line.chain_id and e.member = first_row.current_member
    for no key update;
  end if;
  return exists (
    select from underseal.execution e
    where e.chain_id = _lock_line.chain_id and e.member = _lock_line.member and e.incarnation = _lock_line.incarnation);
end
$$;
comment on function underseal._lock_line(text, text, uuid) is
  'Locks a line''s inbox: its first row, which gives the numbers, then the execution that goes on with it. Whether the execution named is still the one of this incarnation, whose owner was judged.';
