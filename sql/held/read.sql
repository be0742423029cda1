-- Reading, for who asked and for who may decide.
create or replace function underseal.get_operation(operation_id uuid, principal text)
returns table (
  outcome text, reason text, message text, type text, version integer, mode text, state text, requester text,
  auth_kind text, effect text, redacted text, params_hash bytea, row_version bigint, requested_at timestamptz,
  expires_at timestamptz, approved_at timestamptz, run_deadline timestamptz, run_worker text, run_lease_until timestamptz,
  ended_at timestamptz, outcome_reason text, outcome_detail text, result jsonb, votes_required integer, votes jsonb,
  "can" text[], why text, "now" timestamptz)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  me text := underseal._effective_principal('{client,approver}', principal);
  op underseal.held_operation;
  cast_votes jsonb;
  eligible boolean;
  moment timestamptz := underseal.clock();
  allowed text[] := '{}';
  because text;
  said underseal.outcome;
begin
  if me is null then
    select d.outcome, d.reason, d.message into said from underseal._denied() d;
  else
    select o.* into op from underseal.held_operation o where o.operation_id = get_operation.operation_id;
    eligible := op.operation_id is not null
      and underseal._is_eligible(op.type, op.type_version, me, op.operation_id);
    if op.operation_id is null or not (op.requester = me or eligible) then
      select n.outcome, n.reason, n.message into said from underseal._not_found(operation_id) n;
    end if;
  end if;
  if said.outcome is not null then
    outcome := said.outcome;
    reason := said.reason;
    message := said.message;
    return next;
    return;
  end if;

  select coalesce(jsonb_agg(jsonb_build_object('approver', v.approver, 'decision', v.decision, 'reason', v.reason,
      'row_version', v.row_version, 'cast_at', v.cast_at) order by v.cast_at, v.approver), '[]')
    into cast_votes
  from underseal.held_vote v where v.operation_id = op.operation_id;

  if op.state = 'HELD' and op.expires_at > moment then
    if op.requester = me then
      because := 'You asked for it, so somebody else decides; you may cancel it.';
    elsif jsonb_path_exists(cast_votes, '$[*] ? (@.approver == $me)', jsonb_build_object('me', me)) then
      because := 'You have voted; more votes are needed.';
    else
      allowed := allowed || 'vote'::text;
    end if;
  elsif op.state = 'HELD' then
    because := 'It expired undecided; the sweep will say so.';
  elsif op.state = 'APPROVED' and op.run_deadline > moment then
    if op.requester = me and op.mode = 'BY_REQUESTER' then
      allowed := allowed || 'run'::text;
    else
      because := case op.mode when 'BY_REQUESTER' then 'It is approved; the requester runs it by asking again.'
        else 'It is approved; a worker runs it.' end;
    end if;
  elsif op.state = 'APPROVED' then
    because := 'It was approved and not run in time; the sweep will say so.';
  elsif op.state = 'EXECUTING' then
    because := 'It is running.';
  elsif op.state = 'OUTCOME_UNKNOWN' then
    because := 'Its run was interrupted and nobody can tell how far it got. See the audit entries, then request again.';
  else
    because := 'It has ended.';
  end if;
  if op.requester = me and op.state in ('HELD', 'APPROVED') and coalesce(op.run_deadline, op.expires_at) > moment then
    allowed := allowed || 'cancel'::text;
  end if;

  return query select 'found', null::text, null::text, op.type, op.type_version, op.mode, op.state, op.requester,
    op.auth_kind, op.effect, op.redacted, op.params_hash, op.row_version, op.requested_at, op.expires_at, op.approved_at,
    op.run_deadline, op.run_worker, op.run_lease_until, op.ended_at, op.outcome_reason, op.outcome_detail, op.result,
    op.votes_required, cast_votes, allowed, because, moment;
end
$$;
comment on function underseal.get_operation(uuid, text) is
  'One operation as its requester or an eligible approver may see it: no seal, no token, the redacted parameters. can says what this principal may do now (vote, cancel, run), why says why not more. Outcomes: found, not-found, denied.';

create or replace function underseal.list_operations(
  principal text, states text[] default '{HELD,APPROVED,EXECUTING}', max_rows integer default 50, after_id uuid default null)
returns table (
  outcome text, reason text, message text, operation_id uuid, type text, version integer, mode text, state text,
  requester text, effect text, redacted text, params_hash bytea, row_version bigint, requested_at timestamptz,
  expires_at timestamptz, run_deadline timestamptz, ended_at timestamptz, outcome_reason text, votes_required integer)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  me text := underseal._effective_principal('{client,approver}', principal);
  open_wanted boolean := states && '{HELD,APPROVED,EXECUTING}'::text[];
  ended_wanted boolean := states && '{REJECTED,CANCELLED,EXPIRED,SUCCEEDED,FAILED,REFUSED,OUTCOME_UNKNOWN}'::text[];
  start_at timestamptz := 'infinity';
  start_id uuid := 'ffffffff-ffff-ffff-ffff-ffffffffffff';
  rows_wanted integer := least(greatest(max_rows, 0), 1000);
  may_decide boolean;
  said underseal.outcome;
begin
  if me is null then
    select d.outcome, d.reason, d.message into said from underseal._denied() d;
    outcome := said.outcome;
    reason := said.reason;
    message := said.message;
    return next;
    return;
  end if;
  if after_id is not null then
    select o.requested_at, o.operation_id into start_at, start_id
    from underseal.held_operation o
    where o.operation_id = after_id
      and (o.requester = me or underseal._is_eligible(o.type, o.type_version, me, o.operation_id));
    if not found then
      select n.outcome, n.reason, n.message into said from underseal._not_found(after_id) n;
      outcome := said.outcome;
      reason := said.reason;
      message := said.message;
      return next;
      return;
    end if;
  end if;
  may_decide := exists (
    select from underseal.operation_type t where me = any (t.approvers) or t.approver_hook is not null);
  -- What one asked for and what one may decide, open and ended: each branch has an index that ends with the page, and
  -- an unwanted one is not executed.
  return query
  with listed as materialized (
    select t.type, t.version from underseal.operation_type t where me = any (t.approvers)
  ), hooked as materialized (
    select t.type, t.version from underseal.operation_type t where t.approver_hook is not null
  )
  select 'found', null::text, null::text, p.operation_id, p.type, p.type_version, p.mode, p.state, p.requester, p.effect,
    p.redacted, p.params_hash, p.row_version, p.requested_at, p.expires_at, p.run_deadline, p.ended_at,
    p.outcome_reason, p.votes_required
  from (
    (select o.* from underseal.held_operation o
     where open_wanted and o.requester = me and o.ended_at is null and o.state = any (states)
       and (o.requested_at, o.operation_id) < (start_at, start_id)
     order by o.requested_at desc, o.operation_id desc
     limit rows_wanted)
    union all
    (select o.* from underseal.held_operation o
     where ended_wanted and o.requester = me and o.ended_at is not null and o.state = any (states)
       and (o.requested_at, o.operation_id) < (start_at, start_id)
     order by o.requested_at desc, o.operation_id desc
     limit rows_wanted)
    union all
    (select o.* from underseal.held_operation o
     where open_wanted and o.requester <> me and may_decide and o.ended_at is null and o.state = any (states)
       and (o.requested_at, o.operation_id) < (start_at, start_id)
       and ((o.type, o.type_version) in (select l.type, l.version from listed l)
         or ((o.type, o.type_version) in (select h.type, h.version from hooked h)
           and underseal._is_eligible(o.type, o.type_version, me, o.operation_id)))
     order by o.requested_at desc, o.operation_id desc
     limit rows_wanted)
    union all
    (select o.* from underseal.held_operation o
     where ended_wanted and o.requester <> me and may_decide and o.ended_at is not null and o.state = any (states)
       and (o.requested_at, o.operation_id) < (start_at, start_id)
       and ((o.type, o.type_version) in (select l.type, l.version from listed l)
         or ((o.type, o.type_version) in (select h.type, h.version from hooked h)
           and underseal._is_eligible(o.type, o.type_version, me, o.operation_id)))
     order by o.requested_at desc, o.operation_id desc
     limit rows_wanted)
  ) p
  order by p.requested_at desc, p.operation_id desc
  limit rows_wanted;
end
$$;
comment on function underseal.list_operations(text, text[], integer, uuid) is
  'Operations that this principal asked for or may decide, newest first; at most max_rows (1000), continuing after the row after_id. Outcomes: found rows; not-found (after_id), denied.';

create or replace function underseal.list_events(operation_id uuid, principal text)
returns table (
  outcome text, reason text, message text, seq integer, type text, actor text, from_state text, to_state text,
  cause text, detail jsonb, recorded_at timestamptz)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  seen record;
begin
  select g.outcome, g.reason, g.message into seen from underseal.get_operation(operation_id, principal) g;
  if seen.outcome <> 'found' then
    outcome := seen.outcome;
    reason := seen.reason;
    message := seen.message;
    return next;
    return;
  end if;
  return query
  select 'found', null::text, null::text, e.seq, e.type, e.actor, e.from_state, e.to_state, e.reason, e.detail, e.recorded_at
  from underseal.held_event e
  where e.operation_id = list_events.operation_id
  order by e.seq;
end
$$;
comment on function underseal.list_events(uuid, text) is
  'The timeline of one operation, in order: who, what, when, from which state to which. Outcomes: found rows, not-found, denied.';
