-- Every driver's write goes through here, for any number of executions at once: they are locked in the order of their
-- ids, judged in a statement of its own, and what is refused is left out while its neighbours are written (E2).
create or replace function underseal._write_logs(batch json, accesses text[]) returns setof underseal.appended
language plpgsql volatile
set search_path = pg_catalog, pg_temp
-- A plan made while the tables were small must not stay a scan of all executions; and up to 17 a scan that cannot be avoided
-- then counts as so dear that it would be compiled, for 15 ms a statement.
set enable_seqscan = off
set jit = off
-- items meet what was locked by hashing: by loops a batch would cost the square of its length
set enable_nestloop = off
-- planning the last statement anew for each short batch would cost as much as all the others take
set plan_cache_mode = force_generic_plan
as $$
declare
  items underseal.log_item[];
  locked underseal.execution[];
  again integer[] := '{}';
  writes underseal.log_write[];
  plain boolean;
  -- null where nothing is said of seals: who says nothing pays nothing
  marks underseal.log_mark[];
  begins boolean;
  parks boolean;
  tells boolean;
  denies boolean;
  lost integer[] := '{}';
  answerable underseal.log_write[];
  parked underseal.log_write;
  claims underseal.wake[];
begin
  perform underseal._require_read_committed();
  if json_typeof(batch) is distinct from 'array' then
    raise exception using errcode = 'US001',
      message = 'underseal.append_batch expected a JSON array of items, found another value';
  end if;
  -- hardly a batch has any of these, so its values are not looked through one by one
  plain := batch::text !~ '__loomEnc|[$]shredded|\\u|"sealed"';
  begin
    items := underseal._read_items(batch, plain);
  exception when data_exception then
    batch := underseal._readable_batch(batch);
    items := underseal._read_items(batch, false);
  end;
  if not plain or strpos(batch::text, '"subject"') > 0 then
    select m.items, m.marks into items, marks from underseal._mark_items(batch, items) m;
  end if;

  -- Besides the executions themselves: the first of the line that goes on; of a child that ends, the line that asked for it,
  -- which is told; and the first of the chain that gets a child, which must not be deleted meanwhile. Who starts one locks
  -- nothing of anybody else's, whatever id was chosen.
  -- One look into the index for each, in the order of the ids, whatever the planner thinks of the table's size.
  if batch::text !~ '~|\\u' then
    -- mostly there are only first members of chains, which bring nobody else along
    select array_agg(e.found) into locked
    from (
      select distinct i.chain_id from unnest(items) i
      where i.verb is distinct from 'start' or exists (
        select from underseal.execution o
        where o.chain_id = i.chain_id and o.member = ''
          and (o.owner = underseal._effective_principal(accesses, i.principal)) is true)
      order by i.chain_id) k
    cross join lateral (
      select x as found from underseal.execution x
      where x.chain_id = k.chain_id and x.member = ''
      for no key update) e;
  else
    select array_agg(e.found) filter (where k.follows is null) into locked
    from (
      select i.chain_id, i.member, null as follows
      from unnest(items) i
      where i.verb is distinct from 'start'
      union
      select i.chain_id, m.member collate "C", m.follows
      from unnest(items) i
      cross join lateral (
        select underseal._line_of(i.member) as member, null as follows where i.verb = 'continue'
        union all
        select p.member, p.follows
        from (select underseal._parent_line_of(underseal._line_of(i.member)) as line) a
        -- Who goes on with a line is known once its first row is locked. Until then there is just where it sorts.
        cross join lateral (values (a.line, null), (coalesce((
          select o.current_member from underseal.execution o where o.chain_id = i.chain_id and o.member = a.line),
          case a.line when '' then '1' else a.line || '.' end), a.line)) as p (member, follows)
        where i.member <> '' and i.verb in ('complete', 'fail', 'cancelled') and a.line is not null
        union all
        select o.member, null
        from (values (''), (i.member)) as s (member)
        cross join lateral (
          select o.member, o.owner from underseal.execution o
          where o.chain_id = i.chain_id and o.member = s.member
          limit 1) o
        where i.verb = 'start' and (o.owner = underseal._effective_principal(accesses, i.principal)) is true) m
      where i.verb in ('start', 'continue') or i.member <> ''
      order by chain_id, member, follows nulls first) k
    cross join lateral (
      select case when k.follows is null then k.member else underseal._lock_current(k.chain_id, k.follows) end as member offset 0) m
    cross join lateral (
      select x as found from underseal.execution x
      where x.chain_id = k.chain_id and x.member = m.member
      for no key update) e;
  end if;

  if cardinality(items) > (select count(distinct i.chain_id) from unnest(items) i) then
    select coalesce(array_agg(t.item), '{}') into again
    from (
      select i.item, row_number() over (partition by i.chain_id, i.member order by i.item) as turn
      from unnest(items) i) t
    where t.turn > 1;
  end if;

  -- Of an execution itself what its lock gave is what it is now; everything else is read by this statement, after the locks.
  -- What came after them is not there yet.
  with owner as materialized (
    select s.principal, underseal._effective_principal(accesses, s.principal) as name
    from (select distinct i.principal from unnest(items) i where i.verb = 'start') s),
  e as materialized (
    select * from unnest(locked) e)
  select array_agg(row(j.item, j.verb, j.execution_id, j.chain_id, j.member, case
      when j.verb in ('unreadable', 'malformed-events', 'malformed-item') then j.verb
      when j.item = any (again) then 'same-execution'
      when j.verb = 'start' then case
        when j.owner is null then 'no-principal'
        else coalesce(underseal._start_flaw(j.execution_id, j.flow, j.flow_version, j.input, j.after, j.worker, j.lease),
          case when j.member <> '' and j.chain_owner is distinct from j.owner then 'not-found' end, j.told_flaw) end
      when j.verb is null or j.verb not in ('append', 'park', 'complete', 'fail', 'cancelled', 'continue') then 'unknown-verb'
      else coalesce(
        underseal._append_conflict(j.at, j.is_fence, j.is_incarnation, j.status, j.fence, j.head, j.incarnation),
        case
          -- parked, nobody would tell the flow that it is to end
          when j.verb = 'park' and j.cancel_requested and j.cancel_told is not true then 'cancel-requested'
          when j.verb = 'park' and j.stamped is null then 'malformed-waits'
          when octet_length(j.waits::text) > underseal._event_limit() or octet_length(j.reason) > underseal._event_limit()
            then 'too-large'
          when j.verb = 'continue' then underseal._start_flaw(j.chain_id, j.flow, j.flow_version, j.input, null, j.worker, j.lease)
          end,
        j.told_flaw, underseal._value_flaw(j.output), underseal._value_flaw(j.error), underseal._value_flaw(j.input))
      end,
      j.at, j.is_fence, j.status, j.cancel_requested, j.owner, j.flow, j.flow_version, j.input, j.after, j.worker, j.lease,
      j.stamped,
      case when j.ending is null then j.types else j.types || j.ending end,
      case j.verb
        when 'park' then j.datas || json_build_object('waits', j.stamped)
        when 'complete' then j.datas || json_build_object('output', coalesce(j.output, 'null'))
        when 'fail' then j.datas || json_build_object('error', coalesce(j.error, 'null'))
        when 'cancelled' then j.datas || json_build_object('reason', j.reason)
        when 'continue' then j.datas || json_build_object('successor',
          underseal._execution_id(j.chain_id, underseal._successor_of(j.member)))
        else j.datas end,
      j.ending, null, null, null)::underseal.log_write
      order by j.chain_id, j.member),
      bool_or(j.verb in ('start', 'continue')), bool_or(j.verb = 'park'), bool_or(j.verb <> 'start' or j.types <> '{}'),
      bool_or(j.verb = 'start' and j.owner is null)
    into writes, begins, parks, tells, denies
  from (
    select i.item, i.verb, i.execution_id, i.chain_id, i.member, i.fence, i.head, i.incarnation, i.input, i.after, i.worker,
      i.lease, i.waits, i.cancel_told, i.output, i.error, i.reason, i.types, i.datas, i.flaw as told_flaw,
      e.head as at, e.fence as is_fence, e.incarnation as is_incarnation, e.status, e.cancel_requested, f.owner as chain_owner,
      case i.verb when 'start' then o.name when 'continue' then e.owner end as owner,
      case i.verb when 'continue' then coalesce(i.flow, e.flow) else i.flow end as flow,
      case i.verb when 'continue' then coalesce(i.flow_version, e.flow_version) else i.flow_version end as flow_version,
      case i.verb when 'park' then underseal._stamp_waits(i.waits, e.waits) end as stamped,
      case i.verb
        when 'park' then 'EXECUTION_SUSPENDED'
        when 'complete' then 'EXECUTION_COMPLETED'
        when 'fail' then 'EXECUTION_FAILED'
        when 'cancelled' then 'EXECUTION_CANCELLED'
        when 'continue' then 'EXECUTION_CONTINUED' end as ending
    from unnest(items) i
    left join e on e.chain_id = i.chain_id and e.member = i.member
    left join e f on i.verb = 'start' and i.member <> '' and f.chain_id = i.chain_id and f.member = ''
    left join owner o on i.verb = 'start' and coalesce(o.principal, '') = coalesce(i.principal, '')
      and (o.principal is null) = (i.principal is null)) j;

  if marks is not null then
    writes := underseal._judge_marks(writes, marks);
  end if;

  if begins then
    lost := underseal._begin_logs(writes);
    if marks is not null then
      perform underseal._set_subjects(writes, lost);
    end if;
  end if;

  -- A driver that is answered at once goes on, under the claim it has: read under its lock, or a renewal that commits while this
  -- call waits would be undone though its worker was told of it.
  if parks then
    select array_agg(d.found) into claims
    from unnest(writes) p
    cross join lateral (
      select w as found from underseal.wake w
      where w.chain_id = p.chain_id and w.member = p.member and w.kind = 'drive' and w.claimed_by is not null
      limit 1
      for no key update) d
    where p.verb = 'park' and p.flaw is null;
  end if;

  if tells then
    insert into underseal.event (chain_id, member, seq, recorded_at, type, data, metadata)
    select w.chain_id, w.member, coalesce(w.at, 0) + v.place, underseal.clock(), v.type, v.data, w.metadatas[v.place]
    from unnest(writes) w
    cross join lateral unnest(w.types, w.datas) with ordinality as v (type, data, place)
    where w.flaw is null and w.item <> all (lost);
  end if;

  if parks then
    -- after the write: a child that ended in this batch has told its parent by now
    answerable := underseal._answerable(writes);
    if cardinality(answerable) > 0 then
      foreach parked in array answerable loop
        perform underseal._answer_waits(parked.chain_id, parked.member);
      end loop;
      perform underseal._keep_claims(claims);
    end if;
  end if;

  if denies then
    perform underseal._tell_denial(s.value, 'start', null, w.execution_id, w.flaw)
    from underseal.setting s
    cross join unnest(writes) w
    where s.key = 'log.denial_hook' and w.flaw = 'no-principal';
  end if;

  return query
  select o.outcome, case when f.flaw not in ('exists', 'not-found') then f.flaw end,
    case when f.flaw is not null then underseal._append_message(f.flaw) end,
    w.item, w.execution_id, s.status,
    case when f.again then e.head when f.said then w.at + case when f.flaw is null then cardinality(w.types) else 0 end end,
    case when f.again then e.fence when f.said then w.is_fence end,
    case when f.again then e.cancel_requested when f.said then w.cancel_requested end
  from unnest(writes) w
  cross join lateral (
    select l.flaw, l.flaw is null and w.verb in ('start', 'park') or l.flaw is not distinct from 'same-execution' as again,
      l.flaw is distinct from 'exists' and w.verb is distinct from 'start' as said
    from (select case when w.item = any (lost) then 'exists' else w.flaw end as flaw) l) f
  -- what an item's own events decide need not be read again
  left join lateral (
    select e.status, e.head, e.fence, e.cancel_requested from underseal.execution e
    where f.again and e.chain_id = w.chain_id and e.member = w.member
    limit 1) e on true
  cross join lateral (
    select case
      when f.again then e.status
      when not f.said then null
      when f.flaw is not null then w.status
      when w.ending is not null then underseal._status_after(w.ending, null)
      when cardinality(w.types) > 0 then 'running'
      else w.status end as status) s
  cross join lateral (select underseal._append_outcome(w.verb, f.flaw, s.status) as outcome) o
  order by w.item;
end
$$;
comment on function underseal._write_logs(json, text[]) is
  'Writes to logs: a JSON array of items, each start, append, park, complete, fail, cancelled or continue, one outcome each in the order of the items.';

create or replace function underseal._lock_current(chain_id text, line text) returns text
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
begin
  -- as it is now: the statement that asks may be older than the execution that goes on
  perform from underseal.execution e
  where e.chain_id = _lock_current.chain_id and e.member = (
    select f.current_member from underseal.execution f where f.chain_id = _lock_current.chain_id and f.member = _lock_current.line)
  for no key update of e;
  return null;
end
$$;
comment on function underseal._lock_current(text, text) is
  'Locks the execution that goes on with a line whose first row the caller has locked, if there is one. Always null.';

create or replace function underseal._read_items(batch json, plain boolean) returns underseal.log_item[]
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  items underseal.log_item[];
begin
  select array_agg(row(i.place, i.verb, i.execution_id, underseal._chain_of(i.execution_id),
      underseal._member_of(i.execution_id), i.fence, i.head, i.incarnation, i.flow, i.flow_version, i.input, i.principal,
      i.after, i.worker, i.lease, i.waits, i.cancel_told, i.output, i.error, i.reason, t.types, t.datas, t.flaw)::underseal.log_item
      order by i.place)
    into items
  from rows from (json_to_recordset(batch) as (
    verb text, execution_id text, fence bigint, head bigint, incarnation uuid, events json, flow text,
    flow_version integer, input json, principal text, after interval, worker text, lease interval, waits json,
    cancel_told boolean, output json, error json, reason text))
    with ordinality as i (verb, execution_id, fence, head, incarnation, events, flow, flow_version, input, principal,
      after, worker, lease, waits, cancel_told, output, error, reason, place)
  cross join lateral (
    select coalesce(array_agg(v.type order by v.place), '{}') as types,
      coalesce(array_agg(coalesce(v.data, '{}') order by v.place), '{}') as datas,
      min(underseal._event_flaw(v.type, v.data, plain)) as flaw
    from rows from (json_to_recordset(i.events) as (type text, data json)) with ordinality as v (type, data, place)) t;
  return coalesce(items, '{}');
end
$$;
comment on function underseal._read_items(json, boolean) is
  'The items of a batch as rows, each with its events and what is wrong with those, as if nothing were sealed. An error where one of them is not of its form. plain: whether the batch holds neither an escape nor the mark of an envelope.';

create or replace function underseal._begin_logs(writes underseal.log_write[]) returns integer[]
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  lost integer[];
begin
  with beginning as materialized (
    select w.item, b.chain_id, b.member, w.flow, w.worker, w.lease,
      case when w.subject is null or b.member <> '' then b.data else underseal._with_subject(b.data, w.subject) end as data,
      w.own as metadata
    from unnest(writes) w
    cross join lateral (
      select w.chain_id, w.member, case
        when w.after is null then json_build_object('flow', w.flow, 'flow_version', w.flow_version, 'owner', w.owner,
          'input', coalesce(w.input, 'null'))
        else json_build_object('flow', w.flow, 'flow_version', w.flow_version, 'owner', w.owner,
          'input', coalesce(w.input, 'null'), 'after', extract(epoch from w.after)) end as data
      where w.verb = 'start'
      union all
      select w.chain_id, underseal._successor_of(w.member), json_build_object('flow', w.flow,
        'flow_version', w.flow_version, 'owner', w.owner, 'input', coalesce(w.input, 'null'),
        'continued_from', w.execution_id, 'carried', underseal._carried(w.chain_id, underseal._line_of(w.member)))
      where w.verb = 'continue') b
    where w.flaw is null),
  fresh as (
    insert into underseal.event (chain_id, member, seq, recorded_at, type, data, metadata)
    select b.chain_id, b.member, 0, underseal.clock(), 'EXECUTION_STARTED', b.data, b.metadata
    from beginning b
    order by b.chain_id, b.member
    on conflict on constraint event_pkey do nothing
    returning event.chain_id, event.member),
  begun as materialized (
    select b.item, b.chain_id, b.member, b.flow, b.worker, b.lease
    from beginning b join fresh f on f.chain_id = b.chain_id and f.member = b.member),
  claimed as (
    -- a driver that starts what it will drive holds the wake from the first instant
    insert into underseal.wake (chain_id, member, kind, flow, wake_at, claimed_by, claimed_until, attempts)
    select b.chain_id, b.member, 'drive', b.flow, m.now, b.worker, m.now + b.lease, 1
    from begun b
    cross join (select underseal.clock() as now) m
    where b.worker is not null
    order by b.chain_id, b.member)
  select coalesce(array_agg(b.item), '{}') into lost
  from beginning b
  where not exists (select from begun g where g.item = b.item);
  return lost;
end
$$;
comment on function underseal._begin_logs(underseal.log_write[]) is
  'Begins the logs of what starts and of what goes on, with the claims of drivers that start what they drive. The items whose ids were taken.';

create or replace function underseal._answerable(writes underseal.log_write[]) returns underseal.log_write[]
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  moment timestamptz := underseal.clock();
begin
  return (
    select coalesce(array_agg(w order by w.chain_id, w.member), '{}')
    from unnest(writes) w
    where w.verb = 'park' and w.flaw is null and exists (
      select
      from jsonb_array_elements(w.waits) p (wait)
      cross join jsonb_array_elements(p.wait -> 'arms') a (arm)
      where (a.arm ->> 'due')::timestamptz <= moment
        -- as in _plan_answers
        or (
          select m.inbox_seq from underseal.inbox_message m
          where m.chain_id = w.chain_id and m.line = underseal._line_of(w.member) and m.topic = a.arm ->> 'topic'
          limit 1) is not null));
end
$$;
comment on function underseal._answerable(underseal.log_write[]) is
  'The parks that something is there for already, in the order of their ids: mostly none, and one statement finds that for all.';

create or replace function underseal._keep_claims(claims underseal.wake[]) returns void
language sql volatile
set search_path = pg_catalog, pg_temp
set enable_nestloop = on
set enable_hashjoin = off
set enable_mergejoin = off
as $$
  update underseal.wake w
  set claimed_by = c.claimed_by, claimed_until = c.claimed_until, attempts = c.attempts
  from unnest(claims) c
  where w.chain_id = c.chain_id and w.member = c.member and w.kind = 'drive' and w.claimed_by is null
$$;
comment on function underseal._keep_claims(underseal.wake[]) is
  'Gives runs that go on the claims that their drivers had when they parked.';

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

create or replace function underseal._item_flaw(item json) returns text
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  if not underseal._can_be_read(item) then
    return 'unreadable';
  end if;
  perform underseal._read_items(json_build_array(item), false);
  return null;
exception when data_exception then
  return case when underseal._are_events(item -> 'events') then 'malformed-item' else 'malformed-events' end;
end
$$;
comment on function underseal._item_flaw(json) is 'What keeps an item of a batch from being read at all; null for nothing.';

create or replace function underseal._are_events(value json) returns boolean
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
  select case json_typeof(value)
    when 'null' then true
    when 'array' then not exists (select from json_array_elements(value) e (event) where json_typeof(e.event) <> 'object')
    else value is null end
$$;
comment on function underseal._are_events(json) is 'Whether a value is an array of objects, or none.';

create or replace function underseal._readable_batch(batch json) returns json
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  -- Pairs of backslashes first: what is left of one before u begins an escape. Only the id is read from what comes of it.
  select coalesce(json_agg(case when f.flaw is null then i.item else json_build_object('verb', f.flaw,
    'execution_id', case f.flaw
      when 'unreadable' then regexp_replace(replace(i.item::text, '\\', '\u005c'), '\\u(0000|[dD][89a-fA-F]..)', '?', 'g')::json
      else i.item end ->> 'execution_id') end order by i.place), '[]')
  from json_array_elements(batch) with ordinality i (item, place)
  cross join lateral (select underseal._item_flaw(i.item) as flaw) f
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
    when flaw in ('same-execution', 'gone', 'stale-fence', 'moved', 'ended', 'suspended', 'cancel-requested') then 'conflict'
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
      when 'cancel-requested' then 'Expected to park an execution that is to go on, found one that somebody asked to be cancelled. Clean up and end it; to park while that is done say "cancel_told": true.'
      when 'malformed-id' then 'Expected an id of 1 to 200 characters without tildes and control characters, or such an id, a tilde and the name of a child; found none such.'
      when 'malformed-flow' then 'Expected the name of a flow and a version from 1, found none such.'
      when 'malformed-delay' then 'Expected a delay from 0 to 3650 days, and from a worker that starts what it drives its name and a lease from 1 second to 1 hour; found others.'
      when 'malformed-item' then 'Expected an item that is an object, its fence, head and version integers, its incarnation a UUID, its delay and lease intervals, found another. Mend it and send it again.'
      when 'malformed-events' then 'Expected an array of objects {"type", "data"} as events, found another value. Send an array, for a single event too.'
      when 'malformed-waits' then 'Expected waits [{"wait": id, "arms": [{"topic": name} or {"gate": name} or {"for": seconds}]}] with ids that differ, found others.'
      when 'malformed-type' then 'Expected an event type of capital letters, digits and underscores, at most 64, found another.'
      when 'malformed-data' then 'Expected a JSON object as an event''s data, found another value.'
      when 'reserved-type' then 'Expected an event type of the application''s own, found one that only its verb may write.'
      when 'too-large' then 'Expected at most 1 MiB of JSON, found more. Store it with underseal.put_content and refer to it.'
      when 'envelope' then 'Expected a value without an envelope and without the mark of a shredded value, found one. Send foreign ciphertext as a string.'
      when 'unreadable' then 'Expected JSON of at most 512 levels without U+0000 and half surrogate pairs, found other. Encode it as a string of your own.'
      when 'unknown-verb' then 'Expected one of the verbs start, append, park, complete, fail, cancelled, continue, found another.'
      else underseal._seal_message(flaw)
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
  'Writes to the logs of many executions at once, for a driver. batch: an array of items {"verb", "execution_id", "fence", "head", "incarnation", "events": [{"type", "data", "sealed"}]}; head and incarnation, where given, must be as they are. verb append writes the events; park besides suspends on "waits": [{"wait", "arms": [{"topic"} or {"gate"} or {"for": seconds}]}], and is answered at once where something waits already, and must say "cancel_told": true where a cancellation was asked for; complete ("output"), fail ("error") and cancelled ("reason") end it; continue ("input", "flow", "flow_version", "worker" and "lease") ends it and starts its successor; start ("flow", "flow_version", "input", "principal", "subject", "after", "worker" and "lease") starts one, whose id, where it has a tilde, is that of a child of a chain of the same owner. "sealed": RFC 6901 pointers to the envelopes in an event''s data, for sealers; beside the verb, to those in the event that it makes itself (/input, /output, /error and into them); the kernel writes the marker. One execution an item. Outcomes, in the order of the items: started, appended, parked, answered, completed, failed, cancelled, continued; exists; not-found; conflict (stale-fence, moved, gone, ended, suspended, cancel-requested, same-execution); refused (malformed-id, malformed-flow, malformed-delay, malformed-waits, malformed-item, malformed-events, malformed-type, malformed-data, reserved-type, too-large, envelope, unreadable, unknown-verb; not-sealer, malformed-sealed, not-sealed, mixed-ciphers, no-subject, foreign-key, key-destroyed, subject-erasing, malformed-subject, other-subject); denied (no-principal). Errors: US001 (no array) (E2, M1, M2, X2).';
