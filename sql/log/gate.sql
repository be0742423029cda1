-- A gate's answer is a message on a topic of the kernel's own, so that whatever holds for messages holds for it (E7).
create or replace function underseal.resume_gate(execution_id text, gate text, answer json, principal text)
returns table (outcome text, reason text, message text, inbox_seq bigint)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  chain text := underseal._chain_of(execution_id);
  me text := underseal._member_of(execution_id);
  first_member text := underseal._line_of(underseal._member_of(execution_id));
  gate_topic text := '$gate/' || gate;
  content json := coalesce(answer, 'null');
  judged record;
  current underseal.execution;
  flaw text;
begin
  perform underseal._require_read_committed();
  select j.* into judged from underseal._judge_access('resume', execution_id, resume_gate.principal, '{client}') j;
  if judged.cause is null then
    flaw := case
      when coalesce(gate, '') !~ '^[^[:cntrl:]]+$' or length(gate) > 190 then 'malformed-gate'
      else underseal._message_flaw(content) end;
    if flaw is not null then
      return query select 'refused', flaw, underseal._gate_message(flaw), null::bigint;
      return;
    end if;
    judged.cause := case when not underseal._lock_line(chain, me, judged.incarnation) then 'missing' end;
  end if;
  if judged.cause is not null then
    perform underseal._record_denial('resume', execution_id, judged.principal, judged.cause, judged.known);
    return query select d.*, null::bigint from underseal._execution_denied() d;
    return;
  end if;

  select e.* into current
  from underseal.execution f
  join underseal.execution e on e.chain_id = f.chain_id and e.member = coalesce(f.current_member, f.member)
  where f.chain_id = chain and f.member = first_member;
  flaw := case
    when underseal._is_ended(current.status) then 'ended'
    -- An answer waits for its gate, or the gate for an answer, once: a second click must not answer the next of its name.
    when exists (
        select from underseal.inbox_message m where m.chain_id = chain and m.line = first_member and m.topic = gate_topic)
      or (not coalesce(current.waits @> jsonb_build_array(jsonb_build_object('arms', jsonb_build_array(
          jsonb_build_object('topic', gate_topic)))), false)
        and exists (
          select from underseal.inbox_cursor c
          where c.chain_id = chain and c.line = first_member and c.topic = gate_topic)) then 'already-answered' end;
  if flaw is not null then
    return query select 'conflict', flaw, underseal._gate_message(flaw), null::bigint;
    return;
  end if;
  return query
  select 'resumed', null::text, null::text, p.inbox_seq
  from underseal._put_message(chain, first_member, gate_topic, content, judged.principal, gen_random_uuid()::text, null, null) p;
end
$$;
comment on function underseal.resume_gate(text, text, json, text) is
  'Answers a gate of an execution, or of the one that goes on with it by now, for its owner: the one it waits at, or one it has not come to yet. gate: its name, 1 to 190 characters; answer: at most 64 KiB of JSON (setting inbox.max_payload_bytes), null for JSON null. Result: the answer''s number in the inbox. Outcomes: resumed; conflict (already-answered, ended); refused (malformed-gate, too-large, too-deep, envelope, unreadable); denied (E7, E12).';

create or replace function underseal._gate_message(reason text) returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select case reason
    when 'malformed-gate' then 'Expected the name of a gate, of 1 to 190 characters without control characters, found another.'
    when 'already-answered' then 'Expected a gate without an answer, found one that was answered. Nothing is changed.'
    else underseal._send_message(reason) end
$$;
comment on function underseal._gate_message(text) is 'What was expected of an answer, what was found and what to do.';
