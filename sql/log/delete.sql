-- Deleting: a chain goes as a whole, once all of it has ended, and takes everything of its own along (triggers/execution.sql).
create or replace function underseal.delete_chain(chain_id text, principal text)
returns table (outcome text, reason text, message text, deleted integer)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  judged record;
  locked bigint;
begin
  perform underseal._require_read_committed();
  select j.* into judged from underseal._judge_access('delete', chain_id, delete_chain.principal, '{operator}') j;
  if judged.cause is null and underseal._member_of(chain_id) <> '' then
    return query select 'refused', 'malformed-id',
      'Expected the id of a chain, found that of one of its executions. A chain is deleted as a whole.', null::integer;
    return;
  end if;
  if judged.cause is null then
    select count(*) into locked
    from (
      select from underseal.execution e where e.chain_id = delete_chain.chain_id order by e.member for no key update) l;
    judged.cause := case when not exists (
      select from underseal.execution e
      where e.chain_id = delete_chain.chain_id and e.member = '' and e.incarnation = judged.incarnation) then 'missing' end;
  end if;
  if judged.cause is not null then
    perform underseal._record_denial('delete', chain_id, judged.principal, judged.cause, judged.known);
    return query select d.*, null::integer from underseal._execution_denied() d;
    return;
  end if;
  -- What came while this call waited is not among the rows it holds, and was begun by one that was open.
  if exists (
      select from underseal.execution e
      where e.chain_id = delete_chain.chain_id
      having count(*) <> locked or not bool_and(underseal._is_ended(e.status))) then
    return query select 'conflict', 'open',
      'Expected a chain of which every execution has ended, found an open one. Cancel it first.', null::integer;
    return;
  end if;
  delete from underseal.execution e where e.chain_id = delete_chain.chain_id;
  get diagnostics deleted = row_count;
  return query select 'deleted', null::text, null::text, delete_chain.deleted;
end
$$;
comment on function underseal.delete_chain(text, text) is
  'Deletes a chain whose executions have all ended: their logs, inboxes, wakes, snapshots, stored content and the note of their subject. Only the last fences stay, so that none is ever issued twice. For operators. Result: how many executions went. Outcomes: deleted; conflict (open); refused (malformed-id); denied (E2, I6, E12).';

create or replace function underseal.purge_executions(ended_before interval, max_chains integer default 100)
returns table (outcome text, reason text, message text, chain_id text, deleted integer)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  until timestamptz := underseal.clock() - ended_before;
  chains text[];
  members bigint[];
begin
  perform underseal._require_read_committed();
  if until is null or ended_before < interval '0' then
    return query select 'refused', 'malformed-age', 'Expected for how long a chain must have ended, found nothing or less.',
      null::text, null::integer;
    return;
  end if;
  chains := array(
    select e.chain_id from underseal.execution e
    where e.member = '' and e.status in ('completed', 'failed', 'cancelled', 'continued') and e.changed_at <= until
      and underseal._is_chain_over(e.chain_id, until)
    limit greatest(max_chains, 0));
  -- Whoever holds one of them is not waited for.
  select array_agg(l.id order by l.id), array_agg(l.locked order by l.id) into chains, members
  from (
    select x.id, count(*) as locked
    from (
      select e.chain_id as id from underseal.execution e where e.chain_id = any (chains)
      order by e.chain_id, e.member
      for no key update skip locked) x
    group by x.id) l;
  -- What came meanwhile is judged under the locks.
  chains := array(
    select c.id from unnest(chains, members) c (id, locked)
    where underseal._is_chain_over(c.id, until)
      and c.locked = (select count(*) from underseal.execution e where e.chain_id = c.id));
  return query
  with gone as (
    delete from underseal.execution e where e.chain_id = any (chains)
    returning e.chain_id)
  select 'purged', null::text, null::text, g.chain_id, count(*)::integer
  from gone g
  group by g.chain_id
  order by g.chain_id;
end
$$;
comment on function underseal.purge_executions(interval, integer) is
  'Deletes up to max_chains chains whose executions have all ended, the last of them ended_before ago or earlier, as delete_chain does. It looks through the executions, so call it seldom and for many. Outcomes: a row purged each, with how many executions went; refused (malformed-age) (E2, I6).';

create or replace function underseal._is_chain_over(chain_id text, until timestamptz) returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select coalesce(bool_and(underseal._is_ended(e.status) and e.changed_at <= until), false)
  from underseal.execution e
  where e.chain_id = _is_chain_over.chain_id
$$;
comment on function underseal._is_chain_over(text, timestamptz) is 'Whether every execution of a chain ended at an instant or before.';
