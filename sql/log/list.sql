-- Executions a principal may read, newest first. started_at never changes, so the indexes cost no update anything.
create or replace function underseal._list_cursor(started_at timestamptz, chain_id text, member text) returns text
language sql immutable parallel safe
as $$
  select pg_catalog.concat(
    (extract(epoch from started_at) operator(pg_catalog.*) 1000000)::pg_catalog.int8, '/', member, '/', chain_id)
$$;
comment on function underseal._list_cursor(timestamptz, text, text) is 'Where a list goes on after an execution.';

create or replace function underseal._list_executions(
  claimed text, statuses text[], of_flow text, before text, max_executions integer)
returns table (
  outcome text, reason text, message text, execution_id text, flow text, flow_version integer, owner text, status text,
  head bigint, log_start bigint, waits jsonb, cancel_requested boolean, continued_by text, started_at timestamptz,
  changed_at timestamptz, incarnation uuid, cursor text)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  me text := underseal._effective_principal('{client,worker,operator}', claimed);
  most integer := least(greatest(coalesce(max_executions, 50), 0), 1000);
  -- so many are looked at in a call at most, for callers who may read them all
  patience constant integer := 10000;
  hook text;
  own boolean;
  place text[];
  start_at timestamptz := 'infinity';
  start_chain text := '';
  start_member text := '';
  e underseal.execution;
  looked_at integer := 0;
  given integer := 0;
begin
  if underseal._is_system(claimed) then
    me := null;
    own := false;
  elsif me is null then
    select d.* into outcome, reason, message from underseal._denied() d;
    return next;
    return;
  else
    hook := (select s.value from underseal.setting s where s.key = 'log.access_hook');
    own := hook is null and not underseal._is_operator(claimed);
  end if;
  if before is not null then
    place := regexp_match(before, '^(-?[0-9]{1,18})/([A-Za-z0-9_:.-]*)/([^~[:cntrl:]]+)$');
    if place is null then
      outcome := 'refused';
      reason := 'malformed-cursor';
      message := 'Expected a cursor that a row of list_executions gave, found another text. Begin again without one.';
      return next;
      return;
    end if;
    start_at := timestamptz 'epoch' + place[1]::bigint * interval '1 microsecond';
    start_member := place[2];
    start_chain := place[3];
  end if;

  for e in
    select x.* from underseal.execution x
    where own and x.owner = me and (x.started_at, x.chain_id, x.member) < (start_at, start_chain, start_member)
    order by x.started_at desc, x.chain_id desc, x.member desc
    limit patience
  loop
    exit when given = most;
    looked_at := looked_at + 1;
    cursor := underseal._list_cursor(e.started_at, e.chain_id, e.member);
    if (statuses is null or e.status = any (statuses)) and (of_flow is null or e.flow = of_flow) then
      return query select 'found', null::text, null::text, s.*, cursor from underseal._shown(e) s;
      given := given + 1;
    end if;
  end loop;
  for e in
    select x.* from underseal.execution x
    where not own and (x.started_at, x.chain_id, x.member) < (start_at, start_chain, start_member)
    order by x.started_at desc, x.chain_id desc, x.member desc
    -- a cursor must not name what the caller may not read: where a hook decides, the call goes on until it finds something
    limit case when hook is null then patience end
  loop
    exit when given = most;
    looked_at := looked_at + 1;
    cursor := underseal._list_cursor(e.started_at, e.chain_id, e.member);
    if (statuses is null or e.status = any (statuses)) and (of_flow is null or e.flow = of_flow)
      and (hook is null or underseal._ask_access_hook(hook, 'read', me, e.owner, underseal._execution_id(e.chain_id, e.member), e.flow))
    then
      return query select 'found', null::text, null::text, s.*, cursor from underseal._shown(e) s;
      given := given + 1;
    end if;
  end loop;
  if given < most and looked_at = patience and hook is null then
    outcome := 'more';
    message := format('Looked at %s executions; there are older ones. Call again with this cursor.', looked_at);
    return next;
  end if;
end
$$;
comment on function underseal._list_executions(text, text[], text, text, integer) is
  'A page of executions. Apart from list_executions, whose arguments have names of results.';

create or replace function underseal.list_executions(
  principal text, statuses text[] default null, flow text default null, before text default null,
  max_executions integer default 50)
returns table (
  outcome text, reason text, message text, execution_id text, flow text, flow_version integer, owner text, status text,
  head bigint, log_start bigint, waits jsonb, cancel_requested boolean, continued_by text, started_at timestamptz,
  changed_at timestamptz, incarnation uuid, cursor text)
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$ select * from underseal._list_executions(principal, statuses, list_executions.flow, before, max_executions) $$;
comment on function underseal.list_executions(text, text[], text, text, integer) is
  'Executions that this principal may read, newest first, at most max_executions (1000); null as principal lists for a worker itself. statuses, flow: only these. before: the cursor of the row to go on after; what starts meanwhile moves nothing. A call looks at no more than 10000 executions: the outcome more, with nothing but a cursor, says where to go on. Outcomes: found rows; more; refused (malformed-cursor); denied (no-principal) (E12).';
