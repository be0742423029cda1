-- Delivery in three steps, for what must be opened outside the database: look, open, consume.
create or replace function underseal.next_message(execution_id text, fence bigint, capability jsonb default null)
returns table (
  outcome text, reason text, message text, wait text, arm integer, topic text, inbox_seq bigint, message_key bytea,
  message_id text, sender text, payload json, metadata jsonb)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  chain text := underseal._chain_of(execution_id);
  me text := underseal._member_of(execution_id);
  it underseal.execution;
  head underseal.inbox_message;
  step jsonb;
  flaw text;
  moment timestamptz;
  locked boolean := false;
begin
  perform underseal._require_read_committed();
  loop
    flaw := underseal._delivery_flaw(chain, me, next_message.fence);
    exit when flaw is not null;
    select e.* into it from underseal.execution e where e.chain_id = chain and e.member = me;
    moment := underseal.clock();
    step := (
      select s.step from unnest(underseal._plan_answers(chain, it.line, it.waits, moment, capability, false, 1)) s (step)
      where s.step ->> 'do' <> 'skip');
    select m.* into head from underseal.inbox_message m
    where m.chain_id = chain and m.line = it.line and m.inbox_seq = (step ->> 'inbox_seq')::bigint;
    exit when step ->> 'inbox_seq' is null or (head.inbox_seq is not null and (locked or step ->> 'do' = 'deliver'));
    if head.inbox_seq is not null then
      -- what a refusal leaves is written under the lock, and judged again under it
      perform from underseal.execution e where e.chain_id = chain and e.member = me for no key update;
      locked := true;
    end if;
  end loop;

  if flaw is not null then
    select d.outcome, d.reason, d.message into outcome, reason, message from underseal._delivery_refusal(flaw) d;
  elsif step ->> 'do' = 'hold' then
    perform underseal._leave_held(chain, me, head.inbox_seq, moment);
    outcome := 'held';
    message := 'Expected a message that this capability opens, found one that it does not. A node that opens it goes on; try again later.';
  else
    outcome := case step ->> 'do' when 'deliver' then 'message' when 'timer' then 'timer' else 'none' end;
    wait := step ->> 'wait';
    arm := (step ->> 'arm')::integer;
    topic := head.topic;
    inbox_seq := head.inbox_seq;
    message_key := head.message_key;
    message_id := head.message_id;
    sender := head.sender;
    payload := head.payload;
    metadata := head.metadata;
  end if;
  return next;
end
$$;
comment on function underseal.next_message(text, bigint, jsonb) is
  'What could be delivered next: the first arm of the first wait that something is there for. capability: {"ciphers", "covers"}, what the caller opens; null for nothing. Writes nothing, but for what a refusal leaves. For a driver, under its fence. Outcomes: message (open it, then consume_message); timer (an instant that is due, which deliver answers); none; held (a message that the capability does not open: its wake stays and operators get a report); not-found; conflict (stale-fence, ended). arm counts from 0 (G16).';

create or replace function underseal._leave_held(chain_id text, member text, inbox_seq bigint, moment timestamptz) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  insert into underseal.wake (chain_id, member, kind, flow, wake_at)
  select e.chain_id, e.member, 'inbox', e.flow, moment
  from underseal.execution e
  where e.chain_id = _leave_held.chain_id and e.member = _leave_held.member and e.status = 'suspended'
  on conflict on constraint wake_pkey do nothing;
  perform underseal._report(underseal._execution_id(_leave_held.chain_id, _leave_held.member), 'sealed-head', format(
    'The first message of topic %s, inbox_seq %s, sent %s seconds ago, does not open for the node that asked; everything else of the execution waits behind it. Run a node that opens it, or discard it.',
    m.topic, m.inbox_seq, extract(epoch from moment - m.sent_at)::bigint))
  from underseal.execution e
  join underseal.inbox_message m on m.chain_id = e.chain_id and m.line = e.line and m.inbox_seq = _leave_held.inbox_seq
  where e.chain_id = _leave_held.chain_id and e.member = _leave_held.member;
end
$$;
comment on function underseal._leave_held(text, text, bigint, timestamptz) is
  'What a refusal leaves, under the execution''s lock: the wake by which a capable node finds the message, and the report that names it to operators (G8, G11).';

create or replace function underseal.consume_message(
  execution_id text, fence bigint, wait text, topic text, inbox_seq bigint, message_key bytea)
returns table (outcome text, reason text, message text, seq bigint)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  chain text := underseal._chain_of(execution_id);
  me text := underseal._member_of(execution_id);
  it underseal.execution;
  moment timestamptz;
  steps jsonb[];
  step jsonb;
  flaw text;
begin
  perform underseal._require_read_committed();
  perform from underseal.execution e where e.chain_id = chain and e.member = me for no key update;
  flaw := underseal._delivery_flaw(chain, me, consume_message.fence);
  if flaw is null then
    select e.* into it from underseal.execution e where e.chain_id = chain and e.member = me;
    moment := underseal.clock();
    -- Found again under the lock: still the wait's first answer, still the topic's head. Whoever was handed it can open it.
    steps := underseal._plan_answers(chain, it.line, it.waits, moment, null, true, 1);
    step := steps[cardinality(steps)];
    if step ->> 'wait' = consume_message.wait and step ->> 'topic' = consume_message.topic
      and (step ->> 'inbox_seq')::bigint = consume_message.inbox_seq
      and exists (
        select from underseal.inbox_message m
        where m.chain_id = chain and m.line = it.line and m.inbox_seq = consume_message.inbox_seq
          and m.message_key = consume_message.message_key) then
      return query select 'consumed', null::text, null::text, underseal._write_answers(chain, me, steps, moment);
      return;
    end if;
    flaw := 'stale';
  end if;
  return query select d.outcome, d.reason, d.message, null::bigint from underseal._delivery_refusal(flaw) d;
end
$$;
comment on function underseal.consume_message(text, bigint, text, text, bigint, bytea) is
  'Answers a wait with the message that next_message handed out: its topic, number and key. It must still be what next_message would answer with; what has expired or was delivered before is recorded with it. For a driver, under its fence. seq: the number of its event. Outcomes: consumed; not-found; conflict (stale-fence, ended; stale: something else comes first now, or the wait is answered), which write nothing (G16).';
