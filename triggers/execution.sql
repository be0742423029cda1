-- An execution is what its log says, whoever writes. Every append updates a row of this table, so there is a trigger for
-- each set of columns that is written together: what a statement does not name costs nothing. A WHEN would cost more than the
-- function it saves, since every statement reads it from its text again.
create or replace function underseal._check_execution_insert() returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  start json;
  last bigint;
  last_type text;
  told text;
  floor bigint;
begin
  -- a bounded repetition in a pattern would cost thirty times as much as this
  if new.chain_id !~ '^[^~[:cntrl:]]+$' or length(new.chain_id) > 200
    or new.member !~ '^([A-Za-z_][A-Za-z0-9_:-]*([.][1-9][0-9]*)?|[1-9][0-9]*|)$' or length(new.member) > 120
    or new.flow !~ '^[^[:cntrl:]]+$' or length(new.flow) > 200 then
    raise exception using errcode = 'US001',
      message = 'underseal.execution expected a chain and a flow of 1 to 200 characters without control characters, the chain without tildes, and a member that is empty, a number, a name or name.number; found others';
  end if;
  select v.seq, v.type, v.data, (
      select f.fence from underseal.fence_floor f where f.chain_id = new.chain_id and f.member = new.member)
    into last, last_type, start, floor
  from underseal.event v
  where v.chain_id = new.chain_id and v.member = new.member
  order by v.seq desc;
  told := underseal._status_after(last_type, start);
  if last > 0 then
    start := (
      select v.data from underseal.event v where v.chain_id = new.chain_id and v.member = new.member and v.seq = 0);
    told := coalesce(told, underseal._told_status(new.chain_id, new.member, -1));
  end if;
  if start is null or last is distinct from new.head or told is distinct from new.status
    or new.line <> underseal._line_of(new.member) or new.flow is distinct from start ->> 'flow'
    or new.owner is distinct from start ->> 'owner' or new.log_start <> 1 or new.current_member is not null
    or new.last_inbox_seq < coalesce((start -> 'carried' ->> 'last_inbox_seq')::bigint, 0) then
    raise exception using errcode = 'US005',
      message = format('underseal.execution expected the log of %s to be there and to say what its row says, found none or another', underseal._execution_id(new.chain_id, new.member)),
      hint = 'Call underseal.start_execution: the row follows from the log.';
  end if;
  if new.fence <= floor then
    raise exception using errcode = 'US002',
      message = format('underseal.execution expected %s to begin above the last fence that was issued under its id, found %s', underseal._execution_id(new.chain_id, new.member), new.fence);
  end if;
  return new;
end
$$;
comment on function underseal._check_execution_insert() is
  'An execution begins with its log: its first event is there, its head is the last one, and its fence is above any that was issued under its id (E1, E2).';

create or replace function underseal._told_status(chain_id text, member text, after_seq bigint) returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select underseal._status_after(v.type, v.data)
  from underseal.event v
  where v.chain_id = _told_status.chain_id and v.member = _told_status.member and v.seq > after_seq
    and underseal._status_after(v.type, v.data) is not null
  order by v.seq desc
  limit 1
$$;
comment on function underseal._told_status(text, text, bigint) is
  'The status that the events of a log above a number lead to; null where none of them says anything of it.';

create or replace function underseal._leaves_a_park(type text) returns boolean
language sql immutable parallel safe
as $$
  select type in ('MESSAGE_CONSUMED', 'TIMER_FIRED', 'EXECUTION_CANCEL_REQUESTED', 'EXECUTION_CANCELLED', 'EXECUTION_MIGRATED')
$$;
comment on function underseal._leaves_a_park(text) is 'Whether an event of this type may move a parked execution on.';

create or replace function underseal._check_execution_identity() returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if (new.chain_id, new.member, new.line, new.incarnation, new.flow, new.owner, new.started_at)
    is distinct from (old.chain_id, old.member, old.line, old.incarnation, old.flow, old.owner, old.started_at) then
    raise exception using errcode = 'US003',
      message = format('underseal.execution expected the identity of %s to stay as it is, found a change', underseal._execution_id(old.chain_id, old.member)),
      hint = 'What was started never changes. Fork it, or start another.';
  end if;
  return new;
end
$$;
comment on function underseal._check_execution_identity() is 'Keeps who an execution is.';

create or replace function underseal._check_execution_growth() returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  -- Not by leaps either: verbs take the next number, and one at the end of its range would stop each claim that meets it.
  if new.fence not between old.fence and old.fence + 1000000
    or new.last_inbox_seq not between old.last_inbox_seq and old.last_inbox_seq + 1000000 then
    raise exception using errcode = 'US002',
      message = format('underseal.execution expected fence and last_inbox_seq of %s to grow step by step, found one that went back or leapt ahead', underseal._execution_id(old.chain_id, old.member)),
      hint = 'Call the functions of schema underseal.';
  end if;
  return new;
end
$$;
comment on function underseal._check_execution_growth() is 'Lets the fence and the numbers of messages grow, by no more than a million at once, and nothing else (E2, I1).';

create or replace function underseal._check_execution_log() returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  last bigint;
  last_type text;
  last_data json;
  told text;
  lawful boolean;
begin
  if new.head = old.head then
    if (new.status, new.flow_version, new.sealed, new.cancel_requested, new.recoveries, new.waits, new.changed_at)
      is distinct from
      (old.status, old.flow_version, old.sealed, old.cancel_requested, old.recoveries, old.waits, old.changed_at) then
      raise exception using errcode = 'US005',
        message = format('underseal.execution expected what the log of %s folds to to change with its head alone, found a change without an event', underseal._execution_id(old.chain_id, old.member)),
        hint = 'Call the functions of schema underseal; nothing about an execution changes without its event.';
    end if;
    return new;
  end if;

  -- The first row that comes is all that is taken. To set this query up costs more than to run it: no limit and no expression.
  select v.seq, v.type, v.data into last, last_type, last_data
  from underseal.event v
  where v.chain_id = new.chain_id and v.member = new.member and v.seq >= new.head
  order by v.seq desc;
  if last is distinct from new.head or new.head < old.head then
    raise exception using errcode = 'US005',
      message = format('underseal.execution expected the head of %s to be the last event of its log, found %s', underseal._execution_id(old.chain_id, old.member), new.head),
      hint = 'Call the functions of schema underseal; the head follows from the log.';
  end if;
  told := underseal._status_after(last_type, last_data);
  if told is null and last > old.head + 1 then
    told := underseal._told_status(new.chain_id, new.member, old.head);
  end if;
  lawful := new.status = coalesce(told, old.status)
    and (told is null or old.status in ('pending', 'running') or (old.status = 'suspended' and last = old.head + 1
      and underseal._leaves_a_park(last_type)));
  -- apart, since an expression with a query in it costs as much as a query each time
  if not lawful and old.status = 'suspended' and new.status = told and last > old.head + 1 then
    lawful := underseal._leaves_a_park((
      select v.type from underseal.event v
      where v.chain_id = new.chain_id and v.member = new.member and v.seq > old.head
        and underseal._status_after(v.type, v.data) is not null
      order by v.seq
      limit 1));
  end if;
  if not lawful then
    raise exception using errcode = 'US002',
      message = format('underseal.execution expected a change of status that its events lead to, found %s to %s', old.status, new.status),
      hint = 'See docs/log.md for the statuses.';
  end if;
  if new.sealed < old.sealed or new.cancel_requested < old.cancel_requested then
    raise exception using errcode = 'US002',
      message = format('underseal.execution expected %s to stay sealed or asked to be cancelled, found one taken back', underseal._execution_id(old.chain_id, old.member));
  end if;
  return new;
end
$$;
comment on function underseal._check_execution_log() is
  'What an execution folds to changes with its head alone, the head is the last event of its log, and the status is the one its events lead to, whoever writes (E1, E4).';

create or replace function underseal._check_execution_place() returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if new.log_start < old.log_start or (new.log_start > old.log_start and not exists (
      select from underseal.snapshot s
      where s.chain_id = new.chain_id and s.member = new.member and s.seq >= new.log_start - 1)) then
    raise exception using errcode = 'US002',
      message = format('underseal.execution expected a snapshot of %s that covers what is truncated, found none', underseal._execution_id(old.chain_id, old.member)),
      hint = 'Call underseal.save_snapshot, then underseal.truncate_prefix.';
  end if;
  if new.current_member is distinct from old.current_member and (new.member <> new.line
      or new.current_member is distinct from underseal._successor_of(coalesce(old.current_member, old.member))
      or not exists (select from underseal.execution e where e.chain_id = new.chain_id and e.member = new.current_member)) then
    raise exception using errcode = 'US002',
      message = format('underseal.execution expected the line of %s to go on with the execution that continues it, found another', underseal._execution_id(old.chain_id, old.member)),
      hint = 'A driver continues an execution with the verb continue.';
  end if;
  return new;
end
$$;
comment on function underseal._check_execution_place() is
  'The log is truncated below a snapshot alone, and a line goes on with the execution that continues it (E1, E9, I6).';

create or replace function underseal._check_execution_delete() returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  raise exception using errcode = 'US007',
    message = format('underseal.execution expected to keep %s, which is %s, found a DELETE', underseal._execution_id(old.chain_id, old.member), old.status),
    hint = 'Open executions are never deleted. Cancel it first, then call underseal.delete_chain.';
end
$$;
comment on function underseal._check_execution_delete() is 'Refuses to delete an execution that is open.';

create or replace function underseal._check_chain_whole() returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
begin
  if exists (select from deleted_executions d join underseal.execution e on e.chain_id = d.chain_id) then
    raise exception using errcode = 'US007',
      message = 'underseal.execution expected a chain to be deleted as a whole, found a DELETE that leaves some of its executions',
      hint = 'Call underseal.delete_chain.';
  end if;
  return null;
end
$$;
comment on function underseal._check_chain_whole() is
  'A chain is deleted in one statement or not at all: its executions share an inbox and stored content.';

create or replace function underseal._delete_with_execution() returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  chains text[];
begin
  insert into underseal.fence_floor as f (chain_id, member, fence)
  select d.chain_id, d.member, d.fence from deleted_executions d
  order by d.chain_id, d.member
  on conflict on constraint fence_floor_pkey do update set fence = greatest(f.fence, excluded.fence);
  select array_agg(distinct d.chain_id) into chains from deleted_executions d;
  delete from underseal.event x where x.chain_id = any (chains);
  delete from underseal.inbox_message x where x.chain_id = any (chains);
  delete from underseal.inbox_cursor x where x.chain_id = any (chains);
  delete from underseal.inbox_seen x where x.chain_id = any (chains);
  delete from underseal.wake x where x.chain_id = any (chains) and x.kind <> 'schedule';
  delete from underseal.snapshot x where x.chain_id = any (chains);
  delete from underseal.content x where x.chain_id = any (chains);
  delete from underseal.held_waiter x where x.chain_id = any (chains);
  delete from underseal.chain_subject x where x.chain_id = any (chains);
  return null;
end
$$;
comment on function underseal._delete_with_execution() is
  'Whoever deletes executions deletes everything of theirs; only the last fence of each id stays (E2, I6).';

create or replace trigger execution_check_insert
before insert on underseal.execution
for each row execute function underseal._check_execution_insert();
alter table underseal.execution enable always trigger execution_check_insert;
comment on trigger execution_check_insert on underseal.execution is 'No execution without its log.';

create or replace trigger execution_check_identity
before update of chain_id, member, line, incarnation, flow, owner, started_at on underseal.execution
for each row execute function underseal._check_execution_identity();
alter table underseal.execution enable always trigger execution_check_identity;
comment on trigger execution_check_identity on underseal.execution is 'What never changes.';

create or replace trigger execution_check_growth
before update of fence, last_inbox_seq on underseal.execution
for each row execute function underseal._check_execution_growth();
alter table underseal.execution enable always trigger execution_check_growth;
comment on trigger execution_check_growth on underseal.execution is 'What only grows.';

create or replace trigger execution_check_log
before update of head, status, flow_version, sealed, cancel_requested, recoveries, waits, changed_at on underseal.execution
for each row execute function underseal._check_execution_log();
alter table underseal.execution enable always trigger execution_check_log;
comment on trigger execution_check_log on underseal.execution is 'What follows from the log.';

create or replace trigger execution_check_place
before update of log_start, current_member on underseal.execution
for each row execute function underseal._check_execution_place();
alter table underseal.execution enable always trigger execution_check_place;
comment on trigger execution_check_place on underseal.execution is 'Where the log begins and the line goes on.';

create or replace trigger execution_check_delete
before delete on underseal.execution
for each row
when (not underseal._is_ended(old.status))
execute function underseal._check_execution_delete();
alter table underseal.execution enable always trigger execution_check_delete;
comment on trigger execution_check_delete on underseal.execution is 'Open executions are kept.';

create or replace trigger execution_chain_whole
after delete on underseal.execution
referencing old table as deleted_executions
for each statement execute function underseal._check_chain_whole();
alter table underseal.execution enable always trigger execution_chain_whole;
comment on trigger execution_chain_whole on underseal.execution is 'A chain goes as a whole.';

-- Its name sorts after the one that refuses.
create or replace trigger execution_delete_rest
after delete on underseal.execution
referencing old table as deleted_executions
for each statement execute function underseal._delete_with_execution();
comment on trigger execution_delete_rest on underseal.execution is 'Deletes what hangs on the executions, at the origin.';

create or replace trigger execution_no_truncate
before truncate on underseal.execution
for each statement execute function underseal._refuse_change();
alter table underseal.execution enable always trigger execution_no_truncate;
comment on trigger execution_no_truncate on underseal.execution is 'Executions are never truncated.';
