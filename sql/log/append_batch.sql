-- Every driver's write goes through here, for any number of executions at once: they are locked in the order of their
-- ids, judged in a statement of its own, and what is refused is left out while its neighbours are written (E2).
create or replace function underseal._write_logs(batch json, accesses text[]) returns setof underseal.appended
language plpgsql volatile
set search_path = pg_catalog, pg_temp
-- A plan made while the tables were small must not stay a scan of all executions; and up to 17 a scan that cannot be avoided
-- then counts as so dear that it would be compiled, for 15 ms a statement.
set enable_seqscan = off
set jit = off
-- planning the last statement anew for each short batch would cost as much as all the others take
set plan_cache_mode = force_generic_plan
as $$
declare
  locked uuid[];
  done underseal.appended[];
  parked underseal.appended;
  claims underseal.wake[];
begin
  perform underseal._require_read_committed();
  if batch::text ~ underseal._unreadable_escape() then
    batch := underseal._readable_batch(batch);
  end if;
  -- Besides the executions themselves: the first of the line that goes on, and the first of the chain that gets a child, which
  -- must not be deleted meanwhile. Who starts one locks nothing of anybody else's, whatever id was chosen.
  -- One look into the index for each, in the order of the ids, whatever the planner thinks of the table's size.
  select array_agg(e.incarnation) into locked
  from (
    select distinct underseal._chain_of(i.execution_id) collate "C" as chain_id, m.member collate "C" as member
    from json_to_recordset(batch) as i (verb text, execution_id text, principal text)
    cross join lateral (values
      (underseal._member_of(i.execution_id)),
      (case i.verb when 'continue' then underseal._line_of(underseal._member_of(i.execution_id)) when 'start' then '' end))
      as m (member)
    where m.member is not null and (i.verb is distinct from 'start' or exists (
      select from underseal.execution o
      where o.chain_id = underseal._chain_of(i.execution_id) and o.member = m.member
        and (o.owner = underseal._effective_principal(accesses, i.principal)) is true))
    order by chain_id, member) k
  cross join lateral (
    select x.incarnation from underseal.execution x
    where x.chain_id = k.chain_id and x.member = k.member
    for no key update) e;

  if strpos(batch::text, 'park') > 0 then
    select array_agg(w) into claims
    from json_to_recordset(batch) as i (verb text, execution_id text)
    join underseal.wake w on w.chain_id = underseal._chain_of(i.execution_id)
      and w.member = underseal._member_of(i.execution_id) and w.kind = 'drive' and w.claimed_by is not null
    where i.verb = 'park';
  end if;

  with item as materialized (
    select i.place::integer as item, i.*, underseal._chain_of(i.execution_id) as chain_id,
      underseal._member_of(i.execution_id) as member,
      row_number() over (partition by i.execution_id order by i.place) as turn
    from rows from (json_to_recordset(batch) as (
      verb text, execution_id text, fence bigint, head bigint, incarnation uuid, events json, flow text,
      flow_version integer, input json, principal text, after interval, worker text, lease interval, waits json,
      output json, error json, reason text))
      with ordinality as i (verb, execution_id, fence, head, incarnation, events, flow, flow_version, input, principal,
        after, worker, lease, waits, output, error, reason, place)),
  owner as materialized (
    select s.principal, underseal._effective_principal(accesses, s.principal) as name
    from (select distinct i.principal from item i where i.verb = 'start') s),
  told as materialized (
    select i.item, v.place, v.type, coalesce(v.data, '{}') as data, underseal._event_flaw(v.type, v.data) as flaw
    from item i
    cross join lateral rows from (json_to_recordset(i.events) as (type text, data json))
      with ordinality as v (type, data, place)),
  flawed as materialized (
    select t.item, min(t.flaw) as flaw from told t where t.flaw is not null group by t.item),
  judged as materialized (
    select j.*, case
      when j.verb = 'unreadable' then 'unreadable'
      when j.turn > 1 then 'same-execution'
      when j.verb = 'start' then case
        when j.owner is null then 'no-principal'
        else coalesce(underseal._start_flaw(j.execution_id, j.flow, j.flow_version, j.input, j.after, j.worker, j.lease),
          case when j.member <> '' and j.chain_owner is distinct from j.owner then 'not-found' end, j.told_flaw) end
      when j.verb is null or j.verb not in ('append', 'park', 'complete', 'fail', 'cancelled', 'continue') then 'unknown-verb'
      else coalesce(
        underseal._append_conflict(j.at, j.is_fence, j.is_incarnation, j.status, j.fence, j.head, j.incarnation),
        case
          when j.verb = 'park' and j.stamped is null then 'malformed-waits'
          when octet_length(j.waits::text) > underseal._event_limit() or octet_length(j.reason) > underseal._event_limit()
            then 'too-large'
          when j.verb = 'continue' then underseal._start_flaw(j.chain_id, coalesce(j.flow, j.is_flow),
            coalesce(j.flow_version, j.is_flow_version), j.input, null, j.worker, j.lease) end,
        j.told_flaw, underseal._value_flaw(j.output), underseal._value_flaw(j.error), underseal._value_flaw(j.input))
      end as flaw
    from (
      select i.*, o.name as owner, e.head as at, e.fence as is_fence, e.incarnation as is_incarnation, e.status,
        e.flow as is_flow, e.flow_version as is_flow_version, e.owner as is_owner,
        case i.verb when 'park' then underseal._stamp_waits(i.waits, e.waits) end as stamped,
        case when i.verb = 'start' and i.member <> '' then (
          select f.owner from underseal.execution f
          where f.chain_id = i.chain_id and f.member = '' and f.incarnation = any (locked)) end as chain_owner,
        d.flaw as told_flaw
      from item i
      left join owner o on i.verb = 'start' and o.principal is not distinct from i.principal
      -- one that came after the locks were taken is not there yet
      left join lateral (
        select x.* from underseal.execution x
        where x.chain_id = i.chain_id and x.member = i.member and x.incarnation = any (locked)
        limit 1) e on true
      left join flawed d on d.item = i.item) j),
  beginning as (
    select j.item, j.chain_id, j.member, j.flow, j.worker, j.lease, case
      when j.after is null then json_build_object('flow', j.flow, 'flow_version', j.flow_version, 'owner', j.owner,
        'input', coalesce(j.input, 'null'))
      else json_build_object('flow', j.flow, 'flow_version', j.flow_version, 'owner', j.owner,
        'input', coalesce(j.input, 'null'), 'after', extract(epoch from j.after)) end as data
    from judged j
    where j.verb = 'start' and j.flaw is null
    union all
    select j.item, j.chain_id, underseal._successor_of(j.member),
      coalesce(j.flow, j.is_flow), j.worker, j.lease,
      json_build_object('flow', coalesce(j.flow, j.is_flow), 'flow_version', coalesce(j.flow_version, j.is_flow_version),
        'owner', j.is_owner, 'input', coalesce(j.input, 'null'), 'continued_from', j.execution_id,
        'carried', underseal._carried(j.chain_id, underseal._line_of(j.member)))
    from judged j
    where j.verb = 'continue' and j.flaw is null),
  fresh as (
    insert into underseal.event (chain_id, member, seq, recorded_at, type, data)
    select b.chain_id, b.member, 0, underseal.clock(), 'EXECUTION_STARTED', b.data
    from beginning b
    order by b.chain_id, b.member
    on conflict on constraint event_pkey do nothing
    returning event.chain_id, event.member),
  begun as materialized (
    select b.* from beginning b join fresh f on f.chain_id = b.chain_id and f.member = b.member),
  claimed as (
    -- a driver that starts what it will drive holds the wake from the first instant
    insert into underseal.wake (chain_id, member, kind, flow, wake_at, claimed_by, claimed_until, attempts)
    select b.chain_id, b.member, 'drive', b.flow, m.now, b.worker, m.now + b.lease, 1
    from begun b
    cross join (select underseal.clock() as now) m
    where b.worker is not null
    order by b.chain_id, b.member),
  written as (
    insert into underseal.event (chain_id, member, seq, recorded_at, type, data)
    select r.chain_id, r.member,
      coalesce(r.at, 0) + row_number() over (partition by r.item order by r.part, r.place), underseal.clock(), r.type, r.data
    from (
      select j.item, j.chain_id, j.member, j.at, 1 as part, t.place, t.type, t.data
      from judged j
      join told t on t.item = j.item
      where j.flaw is null and (j.verb <> 'start' or exists (select from begun b where b.item = j.item))
        and (j.verb <> 'continue' or exists (select from begun b where b.item = j.item))
      union all
      select j.item, j.chain_id, j.member, j.at, 2, 1, case j.verb
          when 'park' then 'EXECUTION_SUSPENDED'
          when 'complete' then 'EXECUTION_COMPLETED'
          when 'fail' then 'EXECUTION_FAILED'
          when 'cancelled' then 'EXECUTION_CANCELLED'
          when 'continue' then 'EXECUTION_CONTINUED' end,
        case j.verb
          when 'park' then json_build_object('waits', j.stamped)
          when 'complete' then json_build_object('output', coalesce(j.output, 'null'))
          when 'fail' then json_build_object('error', coalesce(j.error, 'null'))
          when 'cancelled' then json_build_object('reason', j.reason)
          when 'continue' then json_build_object('successor',
            underseal._execution_id(j.chain_id, underseal._successor_of(j.member))) end
      from judged j
      where j.flaw is null and j.verb not in ('start', 'append')
        and (j.verb <> 'continue' or exists (select from begun b where b.item = j.item))) r
    order by r.chain_id, r.member, r.part, r.place)
  select array_agg(row(j.verb, case
      when j.flaw is null and j.verb in ('start', 'continue') and b.item is null then 'exists'
      else j.flaw end, null, j.item, j.execution_id, null, j.at, j.is_fence, null)::underseal.appended order by j.item)
    into done
  from judged j
  left join begun b on b.item = j.item;

  for parked in
    select d.* from unnest(done) d where d.outcome = 'park' and d.reason is null
    order by underseal._chain_of(d.execution_id), underseal._member_of(d.execution_id)
  loop
    perform underseal._answer_waits(underseal._chain_of(parked.execution_id), underseal._member_of(parked.execution_id));
  end loop;
  -- a driver that was answered at once goes on, under the claim it had
  if claims is not null then
    update underseal.wake w
    set claimed_by = c.claimed_by, claimed_until = c.claimed_until, attempts = c.attempts
    from unnest(claims) c
    where w.chain_id = c.chain_id and w.member = c.member and w.kind = 'drive' and w.claimed_by is null;
  end if;

  return query
  select o.outcome, case when d.reason not in ('exists', 'not-found') then d.reason end,
    case when d.reason is not null then underseal._append_message(d.reason) end,
    d.item, d.execution_id, e.status, e.head, e.fence, e.cancel_requested
  from unnest(done) d
  left join underseal.execution e
    on e.chain_id = underseal._chain_of(d.execution_id) and e.member = underseal._member_of(d.execution_id)
      and (d.reason is null or d.reason not in ('exists', 'not-found'))
  cross join lateral (select underseal._append_outcome(d.outcome, d.reason, e.status) as outcome) o
  order by d.item;
end
$$;
comment on function underseal._write_logs(json, text[]) is
  'Writes to logs: a JSON array of items, each start, append, park, complete, fail, cancelled or continue, one outcome each in the order of the items.';

create or replace function underseal._unreadable_escape() returns text
language sql immutable parallel safe
as $$ select '\\u(0000|[dD][89a-fA-F])' $$;
comment on function underseal._unreadable_escape() is
  'A pattern of what may keep a json value from being read: U+0000, or half a surrogate pair. Whole pairs match as well.';

create or replace function underseal._can_be_read(value json) returns boolean
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  -- the search for a member resolves every escape on its way
  perform value -> '';
  return true;
exception when untranslatable_character or invalid_text_representation or statement_too_complex then
  return false;
end
$$;
comment on function underseal._can_be_read(json) is 'Whether every escape of a json value stands for a character.';

create or replace function underseal._readable_batch(batch json) returns json
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
  -- Pairs of backslashes first: what is left of one before u begins an escape. Only the id is read from what comes of it.
  select coalesce(json_agg(case when underseal._can_be_read(i.item) then i.item else json_build_object('verb', 'unreadable',
    'execution_id', regexp_replace(replace(i.item::text, '\\', '\u005c'), '\\u(0000|[dD][89a-fA-F]..)', '?', 'g')::json
      ->> 'execution_id') end order by i.place), '[]')
  from json_array_elements(batch) with ordinality i (item, place)
$$;
comment on function underseal._readable_batch(json) is
  'A batch in which each item that cannot be read is replaced by one that is refused: it must not take its neighbours along (E2), nor be quoted in an error.';

create or replace function underseal._append_conflict(
  at bigint, is_fence bigint, is_incarnation uuid, status text, fence bigint, head bigint, incarnation uuid) returns text
language sql immutable
as $$
  select case
    when at is null then 'not-found'
    when incarnation operator(pg_catalog.<>) is_incarnation then 'gone'
    when fence is distinct from is_fence then 'stale-fence'
    when head operator(pg_catalog.<>) at then 'moved'
    when underseal._is_ended(status) then 'ended'
    when status operator(pg_catalog.=) 'suspended' then 'suspended' end
$$;
comment on function underseal._append_conflict(bigint, bigint, uuid, text, bigint, bigint, uuid) is
  'What keeps a driver from writing to an execution, by its head, fence, incarnation and status under its lock, and by what the driver was given and, where not null, observed; null for nothing (E2).';

create or replace function underseal._append_outcome(verb text, flaw text, status text) returns text
language sql immutable
as $$
  select case
    when flaw is null then case verb
      when 'start' then 'started'
      when 'append' then 'appended'
      when 'park' then case status when 'suspended' then 'parked' else 'answered' end
      when 'complete' then 'completed'
      when 'fail' then 'failed'
      when 'continue' then 'continued'
      else verb end
    when flaw in ('exists', 'not-found') then flaw
    when flaw = 'no-principal' then 'denied'
    when flaw in ('same-execution', 'gone', 'stale-fence', 'moved', 'ended', 'suspended') then 'conflict'
    else 'refused' end
$$;
comment on function underseal._append_outcome(text, text, text) is 'The outcome of one write to a log, from its verb, what was wrong with it, and the status after it.';

create or replace function underseal._append_message(flaw text) returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select
    case flaw
      when 'exists' then 'Expected an id that no execution has, found one that has it. Choose another, or go on with that one.'
      when 'not-found' then 'Expected an execution of this id, found none.'
      when 'no-principal' then (select d.message from underseal._denied() d)
      when 'same-execution' then 'Expected one item an execution in a batch, found another before this one. Send it in the next batch.'
      when 'gone' then 'Expected the execution that was observed, found another of the same id. Observe it again.'
      when 'stale-fence' then 'Expected the fence that was acquired last, found another: somebody else drives this execution now. Stop driving it.'
      when 'moved' then 'Expected the head that was observed, found another. Observe it again.'
      when 'ended' then 'Expected an open execution, found one that has ended.'
      when 'suspended' then 'Expected a running execution, found it parked. It runs again when one of its waits is answered.'
      when 'malformed-id' then 'Expected an id of 1 to 200 characters without tildes and control characters, or such an id, a tilde and the name of a child; found none such.'
      when 'malformed-flow' then 'Expected the name of a flow and a version from 1, found none such.'
      when 'malformed-delay' then 'Expected a delay from 0 to 3650 days, and from a worker that starts what it drives its name and a lease from 1 second to 1 hour; found others.'
      when 'malformed-waits' then 'Expected waits [{"wait": id, "arms": [{"topic": name} or {"gate": name} or {"for": seconds}]}] with ids that differ, found others.'
      when 'malformed-type' then 'Expected an event type of capital letters, digits and underscores, at most 64, found another.'
      when 'malformed-data' then 'Expected a JSON object as an event''s data, found another value.'
      when 'reserved-type' then 'Expected an event type of the application''s own, found one that only its verb may write.'
      when 'too-large' then 'Expected at most 1 MiB of JSON, found more. Store it with underseal.put_content and refer to it.'
      when 'envelope' then 'Expected a value without an envelope and without the mark of a shredded value, found one. Send foreign ciphertext as a string.'
      when 'unreadable' then 'Expected JSON of at most 512 levels without U+0000 and half surrogate pairs, found other. Encode it as a string of your own.'
      when 'unknown-verb' then 'Expected one of the verbs start, append, park, complete, fail, cancelled, continue, found another.'
    end
$$;
comment on function underseal._append_message(text) is 'What was expected, what was found and what to do.';

create or replace function underseal._start_flaw(
  execution_id text, flow text, flow_version integer, input json, after interval, worker text, lease interval) returns text
language sql immutable
as $$
  select case
    -- a bounded repetition in a pattern would cost thirty times as much as this
    when coalesce(execution_id, '') operator(pg_catalog.!~) '^[^~[:cntrl:]]+(~[A-Za-z_][A-Za-z0-9_:-]*)?$'
      or pg_catalog.length(underseal._chain_of(execution_id)) > 200
      or pg_catalog.length(underseal._member_of(execution_id)) > 100 then 'malformed-id'
    when coalesce(flow, '') operator(pg_catalog.!~) '^[^[:cntrl:]]+$' or pg_catalog.length(flow) > 200
      or coalesce(flow_version, 0) < 1 then 'malformed-flow'
    when after not between interval '0' and interval '3650 days'
      or (worker is null) <> (lease is null) or (worker is not null and after is not null)
      or lease not between interval '1 second' and interval '1 hour' then 'malformed-delay'
    else underseal._value_flaw(input) end
$$;
comment on function underseal._start_flaw(text, text, integer, json, interval, text, interval) is 'What keeps an execution from being started as asked; null for nothing.';

create or replace function underseal._carried(chain_id text, line text) returns json
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select json_build_object(
    'last_inbox_seq', (select e.last_inbox_seq from underseal.execution e where e.chain_id = _carried.chain_id and e.member = _carried.line),
    'cursors', (select coalesce(json_object_agg(c.topic, c.inbox_seq order by c.topic), '{}')
      from underseal.inbox_cursor c where c.chain_id = _carried.chain_id and c.line = _carried.line),
    'seen', (select coalesce(json_agg(json_build_array(encode(s.message_key, 'hex'), s.inbox_seq) order by s.turn), '[]')
      from underseal.inbox_seen s where s.chain_id = _carried.chain_id and s.line = _carried.line))
$$;
comment on function underseal._carried(text, text) is 'What a continuation takes over from the logs before it, so that its own log tells all: cursors and remembered keys.';

create or replace function underseal.append_batch(batch json) returns setof underseal.appended
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$ select * from underseal._write_logs(batch, '{worker}') $$;
comment on function underseal.append_batch(json) is
  'Writes to the logs of many executions at once, for a driver. batch: an array of items {"verb", "execution_id", "fence", "head", "incarnation", "events": [{"type", "data"}]}; head and incarnation, where given, must be as they are. verb append writes the events; park besides suspends on "waits": [{"wait", "arms": [{"topic"} or {"gate"} or {"for": seconds}]}], and is answered at once where something waits already; complete ("output"), fail ("error") and cancelled ("reason") end it; continue ("input", "flow", "flow_version", "worker" and "lease") ends it and starts its successor; start ("flow", "flow_version", "input", "principal", "after", "worker" and "lease") starts one, whose id, where it has a tilde, is that of a child of a chain of the same owner. One execution an item. Outcomes, in the order of the items: started, appended, parked, answered, completed, failed, cancelled, continued; exists; not-found; conflict (stale-fence, moved, gone, ended, suspended, same-execution); refused (malformed-id, malformed-flow, malformed-delay, malformed-waits, malformed-type, malformed-data, reserved-type, too-large, envelope, unreadable, unknown-verb); denied (no-principal) (E2).';
