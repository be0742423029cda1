-- The one delivery rule. Every wait, in the order of the park, is answered by its first arm that can be: a due instant,
-- or the first message of a topic. Who parks, who delivers, who looks and who consumes all ask here (I1).
create or replace function underseal._plan_answers(
  chain_id text, line text, waits jsonb, moment timestamptz, capability jsonb, trusted boolean, most integer) returns jsonb[]
language plpgsql stable
set search_path = pg_catalog, pg_temp
-- arrays of unknown length look dear enough to be compiled, which would take a thousand times as long as they do
set jit = off
as $$
declare
  steps jsonb[] := '{}';
  taken jsonb := '{}';
  answered integer := 0;
  answered_wait bigint := 0;
  ready record;
  head record;
begin
  for ready in
    -- the arms that something is there for; mostly there are none, and this is all there is to do
    select w.place as wait_place, w.wait ->> 'wait' as wait, a.place - 1 as arm, a.arm ->> 'topic' as topic,
      (a.arm ->> 'due')::timestamptz as due
    from jsonb_array_elements(waits) with ordinality w (wait, place)
    cross join jsonb_array_elements(w.wait -> 'arms') with ordinality a (arm, place)
    where (a.arm ->> 'due')::timestamptz <= moment
      -- not EXISTS, for which the whole inbox of the line would be read and hashed
      or (
        select m.inbox_seq from underseal.inbox_message m
        where m.chain_id = _plan_answers.chain_id and m.line = _plan_answers.line and m.topic = a.arm ->> 'topic'
        limit 1) is not null
    order by w.place, a.place
  loop
    continue when ready.wait_place = answered_wait;
    if ready.due is not null then
      steps := steps || jsonb_build_object('do', 'timer', 'wait', ready.wait, 'arm', ready.arm);
      answered_wait := ready.wait_place;
    else
      loop
        select m.inbox_seq, coalesce(m.expires_at <= moment, false) as expired,
          exists (
            select from underseal.inbox_seen s
            where s.chain_id = m.chain_id and s.line = m.line and s.message_key = m.message_key) as seen
          into head
        from underseal.inbox_message m
        where m.chain_id = _plan_answers.chain_id and m.line = _plan_answers.line and m.topic = ready.topic
          and m.inbox_seq > coalesce((taken ->> ready.topic)::bigint, 0)
        order by m.inbox_seq
        limit 1;
        exit when not found;
        if head.expired or head.seen then
          steps := steps || jsonb_build_object('do', 'skip', 'inbox_seq', head.inbox_seq, 'topic', ready.topic,
            'disposition', case when head.expired then 'expired' else 'duplicate' end);
        elsif underseal._is_held(_plan_answers.chain_id, _plan_answers.line, head.inbox_seq, capability, trusted) then
          -- nothing of this execution goes past it: two nodes must not take different arms of one wait (G10)
          return steps || jsonb_build_object('do', 'hold', 'inbox_seq', head.inbox_seq, 'topic', ready.topic);
        else
          steps := steps || jsonb_build_object('do', 'deliver', 'inbox_seq', head.inbox_seq, 'topic', ready.topic,
            'wait', ready.wait, 'arm', ready.arm, 'disposition', 'delivered');
          answered_wait := ready.wait_place;
        end if;
        taken := taken || jsonb_build_object(ready.topic, head.inbox_seq);
        exit when answered_wait = ready.wait_place;
      end loop;
    end if;
    if answered_wait = ready.wait_place then
      answered := answered + 1;
      exit when answered = most;
    end if;
  end loop;
  return steps;
end
$$;
comment on function underseal._plan_answers(text, text, jsonb, timestamptz, jsonb, boolean, integer) is
  'What the waits can be answered with at an instant, in order, up to a number of answers (null for all): steps {"do": "timer", "wait", "arm"}, {"do": "deliver", "wait", "arm", "topic", "inbox_seq"}, {"do": "skip", "inbox_seq", "topic", "disposition"} for what has expired or was delivered before, and last {"do": "hold"} at a message that does not open. trusted: whoever asks has opened what is sealed.';

create or replace function underseal._is_held(chain_id text, line text, inbox_seq bigint, capability jsonb, trusted boolean) returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select case
    when m.metadata -> 'seal' is null then underseal._value_flaw(m.payload) is not null
    else not (coalesce(trusted, false) or coalesce(underseal.seal_opens(m.metadata -> 'seal', capability), false)) end
  from underseal.inbox_message m
  where m.chain_id = _is_held.chain_id and m.line = _is_held.line and m.inbox_seq = _is_held.inbox_seq
$$;
comment on function underseal._is_held(text, text, bigint, jsonb, boolean) is
  'Whether a message must not be delivered to whoever asks: its marker does not open with the capability, or it has none and holds an envelope, which opens for nobody (G2).';

create or replace function underseal._consumed(
  message underseal.inbox_message, wait text, arm integer, disposition text, operator text, reason text) returns json
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select case
    when disposition = 'delivered' then json_build_object('wait', wait, 'arm', arm, 'topic', message.topic,
      'inbox_seq', message.inbox_seq, 'key', encode(message.message_key, 'hex'), 'message_id', message.message_id,
      'sender', message.sender, 'disposition', disposition, 'payload', message.payload)
    else json_strip_nulls(json_build_object('topic', message.topic, 'inbox_seq', message.inbox_seq,
      'key', encode(message.message_key, 'hex'), 'message_id', message.message_id, 'sender', message.sender,
      'disposition', disposition, 'operator', operator, 'reason', reason)) end
$$;
comment on function underseal._consumed(underseal.inbox_message, text, integer, text, text, text) is
  'The data of MESSAGE_CONSUMED: the payload, as the text it came as, of what is delivered, and of nothing else.';

create or replace function underseal._write_answers(chain_id text, member text, steps jsonb[], moment timestamptz) returns bigint
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  last bigint;
begin
  with step as (
    select s.place, s.step ->> 'do' as what, s.step ->> 'wait' as wait, (s.step ->> 'arm')::integer as arm,
      (s.step ->> 'inbox_seq')::bigint as inbox_seq, s.step ->> 'disposition' as disposition
    from unnest(steps) with ordinality s (step, place)),
  written as (
    insert into underseal.event (chain_id, member, seq, recorded_at, type, data, metadata)
    select e.chain_id, e.member, e.head + s.place, moment,
      case s.what when 'timer' then 'TIMER_FIRED' else 'MESSAGE_CONSUMED' end,
      case s.what when 'timer' then json_build_object('wait', s.wait, 'arm', s.arm)
        else underseal._consumed(m, s.wait, s.arm, s.disposition, null, null) end,
      case when s.what = 'deliver' then m.metadata end
    from underseal.execution e
    cross join step s
    left join underseal.inbox_message m on m.chain_id = e.chain_id and m.line = e.line and m.inbox_seq = s.inbox_seq
    where e.chain_id = _write_answers.chain_id and e.member = _write_answers.member
    order by s.place
    returning seq)
  select max(w.seq) into last from written w;
  return last;
end
$$;
comment on function underseal._write_answers(text, text, jsonb[], timestamptz) is
  'Records the steps of a plan in one statement, under the execution''s lock; the payload is copied from the inbox by the database. The number of the last event.';

create or replace function underseal._answer_waits(chain_id text, member text) returns integer
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  return (select a.answered from underseal._answer_what_can_be(chain_id, member) a);
end
$$;
comment on function underseal._answer_waits(text, text) is
  'Answers every wait of a parked execution that something is there for already, under its lock: no wakeup is lost between a send and a park (E7). How many were answered.';

create or replace function underseal._answer_what_can_be(chain_id text, member text, out answered integer, out held boolean)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  e record;
  moment timestamptz;
  steps jsonb[];
  last_answer integer;
begin
  select x.line, x.waits, x.status, x.flow into e
  from underseal.execution x
  where x.chain_id = _answer_what_can_be.chain_id and x.member = _answer_what_can_be.member;
  moment := underseal.clock();
  steps := underseal._plan_answers(chain_id, e.line, e.waits, moment, null, false, null);
  select count(*) filter (where s.step ->> 'do' in ('timer', 'deliver')), coalesce(bool_or(s.step ->> 'do' = 'hold'), false),
    coalesce(max(s.place) filter (where s.step ->> 'do' in ('timer', 'deliver')), 0)
    into answered, held, last_answer
  from unnest(steps) with ordinality s (step, place);
  if held then
    -- a refusal appends nothing: what follows the last answer stays as it was (G7)
    steps := steps[:last_answer];
  end if;
  if cardinality(steps) > 0 then
    perform underseal._write_answers(chain_id, member, steps, moment);
  end if;
  if answered > 0 or e.status <> 'suspended' then
    return;
  end if;
  if held then
    -- whoever can open it finds it without a new send (G8)
    insert into underseal.wake (chain_id, member, kind, flow, wake_at)
    values (_answer_what_can_be.chain_id, _answer_what_can_be.member, 'inbox', e.flow, moment)
    on conflict on constraint wake_pkey do nothing;
  else
    delete from underseal.wake w
    where w.chain_id = _answer_what_can_be.chain_id and w.member = _answer_what_can_be.member and w.kind = 'inbox';
  end if;
end
$$;
comment on function underseal._answer_what_can_be(text, text) is
  'The same, and whether a message that does not open without its key holds up the rest; its wake stays then, and goes where nothing is left to deliver.';
