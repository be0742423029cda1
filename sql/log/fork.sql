-- A fork is a chain of its own that begins with a copy of another's log.
create or replace function underseal._fork_message(reason text) returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select case reason
    when 'malformed-id' then 'Expected an id of 1 to 200 characters without tildes and control characters, found another.'
    when 'beyond-head' then 'Expected the number of an event of this log, found none such.'
    when 'ended' then 'Expected a prefix that leaves something to do, found the end in it. Fork before it.'
    when 'compacted' then 'Expected every event of the prefix, found that some were compacted into a snapshot. Fork at 0.'
    else underseal._append_message(reason) end
$$;
comment on function underseal._fork_message(text) is 'What was expected of a fork, what was found and what to do.';

create or replace function underseal._fork_execution(source_id text, through bigint, claimed text, wanted_id text)
returns table (outcome text, reason text, message text, execution_id text)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  asked record;
  e underseal.execution;
  fork_id text := coalesce(wanted_id, underseal._mint_id());
  start json;
  whose text;
  flaw text;
begin
  perform underseal._require_read_committed();
  -- locked, so that nobody truncates what is copied
  select l.* into asked from underseal._lock_judged('fork', source_id, claimed, '{client,operator}') l;
  if not asked.allowed then
    return query select d.*, null::text from underseal._execution_denied() d;
    return;
  end if;
  e := asked.found_row;
  whose := underseal._subject_of(e.chain_id);
  flaw := case
    when fork_id !~ '^[^~[:cntrl:]]+$' or length(fork_id) > 200 then 'malformed-id'
    when through is null or through not between 0 and e.head then 'beyond-head'
    when through > 0 and e.log_start > 1 then 'compacted'
    when exists (
      select from underseal.event v
      where v.chain_id = e.chain_id and v.member = e.member and v.seq <= through
        and underseal._is_ended(underseal._status_after(v.type, v.data))) then 'ended'
    when whose is not null then underseal._subject_flaw(whose) end;
  if flaw is not null then
    return query select 'refused', flaw, underseal._fork_message(flaw), null::text;
    return;
  end if;

  -- Its own beginning, recorded now; what its line had been handed when the source began it is handed on. The rest is the
  -- source's history, with the instants at which it happened.
  select (
      select json_object_agg(m.key, m.value order by m.place)
      from (
        select k.key, k.value, k.place from json_each(v.data) with ordinality k (key, value, place)
        where k.key not in ('after', 'continued_from', 'forked_from', 'subject')
        union all
        select 'forked_from', json_build_object('execution_id', source_id, 'seq', through), 1000
        union all
        -- the log says whose data its chain holds; what is copied belongs to the same
        select 'subject', to_json(whose), 1001 where whose is not null) m)
    into start
  from underseal.event v
  where v.chain_id = e.chain_id and v.member = e.member and v.seq = 0;
  begin
    insert into underseal.event (chain_id, member, seq, recorded_at, type, data, metadata)
    select fork_id, '', v.seq, case v.seq when 0 then underseal.clock() else v.recorded_at end, v.type,
      case v.seq when 0 then start else v.data end, v.metadata
    from underseal.event v
    where v.chain_id = e.chain_id and v.member = e.member and v.seq <= through
    order by v.seq;
  exception when unique_violation then
    return query select 'exists', null::text, underseal._fork_message('exists'), null::text;
    return;
  end;
  if whose is not null then
    insert into underseal.chain_subject (chain_id, subject, set_at) values (fork_id, whose, underseal.clock());
  end if;
  -- To be driven from now on, not since the source's time: workers seldom look at what lies long past.
  update underseal.wake w set wake_at = underseal.clock()
  where w.chain_id = fork_id and w.member = '' and w.kind = 'drive';
  insert into underseal.content (chain_id, hash, body, stored_at)
  select fork_id, c.hash, c.body, underseal.clock()
  from underseal.content c
  where c.chain_id = e.chain_id and c.hash in (
    select r.hash from underseal.event v
    cross join lateral underseal._content_refs(v.data) r (hash)
    where v.chain_id = e.chain_id and v.member = e.member and v.seq <= through);
  return query select 'forked', null::text, null::text, fork_id;
end
$$;
comment on function underseal._fork_execution(text, bigint, text, text) is
  'Forks an execution. Apart from fork_execution, which has an argument of the name of a result.';

create or replace function underseal.fork_execution(
  execution_id text, through_seq bigint, principal text, new_id text default null)
returns table (outcome text, reason text, message text, execution_id text)
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
  select * from underseal._fork_execution(
    fork_execution.execution_id, fork_execution.through_seq, fork_execution.principal, fork_execution.new_id)
$$;
comment on function underseal.fork_execution(text, bigint, text, text) is
  'Starts another execution with a copy of the log''s events 0 to through_seq, for the owner or an operator; it belongs to the same owner, holds the same subject''s data, goes on from there, and gets none of the messages that wait. Its first event says what it was forked from and when. new_id: the id of its chain, null for one that is minted. Outcomes: forked, with its id; exists; refused (malformed-id; beyond-head; ended: the prefix holds the end; compacted: events of the prefix are gone; subject-erasing); denied (E3, E6, E12, X2).';
