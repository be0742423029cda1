-- Which access opens which function or view. Tables are never granted.
create or replace function underseal._access_verbs() returns table (access text, verb text)
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
  select a.access, v.verb
  from (values
    ('{client,approver,worker,operator,sealer,reader}'::text[], '{clock,server_info,canonical_json,params_hash,normalise_params,redact_params,list_operation_types}'::text[]),
    ('{client}', '{begin_request,request_operation,cancel_operation,resume_gate,restore_execution}'),
    ('{client,approver}', '{get_operation,list_operations,list_events}'),
    ('{approver}', '{vote}'),
    ('{client,worker}', '{role_of,start_execution,start_executions,send}'),
    ('{client,operator}', '{cancel_execution,migrate_execution,record_outcome,fork_execution,add_schedule,list_schedules,pause_schedule,remove_schedule}'),
    ('{client,worker,operator}', '{get_execution,list_executions,read_events,list_inbox,load_snapshot,get_content}'),
    ('{worker}', '{claim_runs,claim_resubmission,renew_run,record_progress,issue_ticket,consume_ticket,finish_run,sweep_operations,report_unserved}'),
    ('{worker}', '{append,append_if_unchanged,append_batch,read_logs,head,acquire_fence,acquire_fence_if,recover_execution,report_divergence,save_snapshot,put_content}'),
    ('{worker}', '{next_message,consume_message,deliver,deliver_batch,expire_inbox}'),
    ('{worker}', '{claim_due,renew_claims,release_claim,release_claims,next_due,claim_schedules,fire_schedule,put_off_schedule}'),
    ('{worker}', '{await_operation}'),
    ('{sealer}', '{register_subject_key,get_subjects}'),
    ('{worker,operator}', '{register_consumer,read_outbox,ack_outbox,list_rewrap,rewrap_operation,rewrap_vote,list_key_ids}'),
    ('{worker,operator}', '{read_all,read_fold,truncate_prefix,sweep_content,sweep_denials}'),
    ('{operator}', '{set_armed,cancel_operation,purge_operations,drop_consumer,clear_report}'),
    ('{operator}', '{delete_chain,purge_executions,discard_inbox,execution_denials}'),
    ('{operator,reader}', '{pending_operations,operation_timeline,operation_health,operator_reports,audit_entries,access_grants,examine_schema}'),
    ('{operator,reader}', '{executions_by_state,oldest_parks,inbox_backlog,wake_lag}')
  ) as g (accesses, verbs)
  cross join unnest(g.accesses) as a (access)
  cross join unnest(g.verbs) as v (verb)
$$;
comment on function underseal._access_verbs() is 'The functions and views that each access opens, by name.';

create or replace function underseal._grant(grantee name, access text) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  thing record;
begin
  execute format('grant usage on schema underseal to %I', grantee);
  for thing in
    select 'function' as kind, p.oid::regprocedure::text as name
    from pg_catalog.pg_proc p
    join underseal._access_verbs() v on v.verb = p.proname
    where p.pronamespace = 'underseal'::regnamespace and v.access = _grant.access
    union all
    select 'table', c.oid::regclass::text
    from pg_catalog.pg_class c
    join underseal._access_verbs() v on v.verb = c.relname
    where c.relnamespace = 'underseal'::regnamespace and c.relkind = 'v' and v.access = _grant.access
  loop
    execute format('grant %s on %s %s to %I',
      case thing.kind when 'function' then 'execute' else 'select' end, thing.kind, thing.name, grantee);
  end loop;
end
$$;
comment on function underseal._grant(name, text) is 'Grants one role the functions and views of one access.';

create or replace function underseal._regrant_all() returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  granted record;
begin
  for granted in
    select g.grantee, g.access
    from underseal.access_grant g
    join pg_catalog.pg_roles r on r.rolname = g.grantee
    order by g.grantee, g.access
  loop
    perform underseal._grant(granted.grantee::name, granted.access);
  end loop;
end
$$;
comment on function underseal._regrant_all() is
  'Makes every grant of access_grant again; called after the functions were applied, since a function that is dropped loses its grants.';

create or replace function underseal.grant_access(role name, access text, principal text default null)
returns table (outcome text, reason text, message text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  mode text := coalesce(grant_access.principal,
    case when grant_access.access in ('approver', 'operator') then 'login' else 'asserted' end);
begin
  if not exists (select from pg_catalog.pg_roles r where r.rolname = grant_access.role) then
    raise exception using errcode = 'US012',
      message = format('underseal.grant_access expected an existing role, found %L', role),
      hint = 'Create the role first.';
  end if;
  if not exists (select from underseal._access_verbs() v where v.access = grant_access.access)
    or mode not in ('asserted', 'login') then
    raise exception using errcode = 'US012',
      message = format('underseal.grant_access expected one of the accesses client, approver, worker, operator, sealer, reader, and principal asserted or login, found %L and %L', access, mode),
      hint = 'See docs/access.md.';
  end if;
  insert into underseal.access_grant as g (grantee, access, principal)
  values (grant_access.role, grant_access.access, mode)
  on conflict on constraint access_grant_pkey do update set principal = excluded.principal;
  perform underseal._grant(grant_access.role, grant_access.access);
  return query select 'granted', null::text, format('Role %s has access %s with principal %s.', role, access, mode);
end
$$;
comment on function underseal.grant_access(name, text, text) is
  'Grants a role an access: client, approver, worker, operator, sealer or reader. principal: asserted (the role names whom it acts for) or login (map_login says who it is); approver and operator default to login, the others to asserted. For the schema owner. Outcome: granted. Errors: US012.';

create or replace function underseal.revoke_access(role name, access text)
returns table (outcome text, reason text, message text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  delete from underseal.access_grant g where g.grantee = revoke_access.role and g.access = revoke_access.access;
  if not found then
    return query select 'not-found', null::text,
      format('Expected that role %s has access %s, found that it has not. See the view access_grants.', role, access);
    return;
  end if;
  -- A role that was dropped left its row here and nothing else.
  if not exists (select from pg_catalog.pg_roles r where r.rolname = revoke_access.role) then
    return query select 'revoked', null::text, format('Role %s, which is gone, no longer has access %s.', role, access);
    return;
  end if;
  execute format('revoke all on all functions in schema underseal from %I', role);
  execute format('revoke all on all tables in schema underseal from %I', role);
  execute format('revoke usage on schema underseal from %I', role);
  -- What the role has by its other accesses was revoked with it.
  perform underseal._grant(revoke_access.role, g.access)
  from underseal.access_grant g where g.grantee = revoke_access.role;
  return query select 'revoked', null::text, format('Role %s no longer has access %s.', role, access);
end
$$;
comment on function underseal.revoke_access(name, text) is
  'Takes an access from a role again. For the schema owner. Outcomes: revoked, not-found.';

create or replace view underseal.access_grants as
select g.grantee, g.access, g.principal
from underseal.access_grant g
order by g.grantee, g.access;
comment on view underseal.access_grants is 'Who has which access, and whether it names its principal (asserted) or is bound to its login.';
comment on column underseal.access_grants.grantee is 'The role.';
comment on column underseal.access_grants.access is 'The access.';
comment on column underseal.access_grants.principal is 'asserted or login.';

create or replace function underseal.map_login(login name, principal text)
returns table (outcome text, reason text, message text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if map_login.principal is null then
    delete from underseal.principal_login l where l.login = map_login.login;
    return query select 'unmapped', null::text, format('Login %s acts for nobody.', login);
    return;
  end if;
  insert into underseal.principal_login as l (login, principal)
  values (map_login.login, map_login.principal)
  on conflict on constraint principal_login_pkey do update set principal = excluded.principal;
  return query select 'mapped', null::text, format('Login %s acts for %s.', login, principal);
end
$$;
comment on function underseal.map_login(name, text) is
  'Says which principal a database login is, for accesses granted with principal => ''login''; null forgets it. For the schema owner. Outcomes: mapped, unmapped.';

create or replace function underseal.server_info()
returns table (schema_revision text, usable boolean, server_version integer, "now" timestamptz)
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
  select (select v.version_num from underseal.alembic_version v),
    not exists (select from underseal.setting s where s.key = 'schema.usable' and s.value = 'false'),
    current_setting('server_version_num')::integer,
    underseal.clock()
$$;
comment on function underseal.server_info() is
  'The schema''s revision, whether it is usable, the server''s version number and the database''s clock.';
