-- Operation types: what may be held, under which policy.
create or replace function underseal._policy_text(
  votes_required integer, rejections_to_end integer, approvers text[], approver_hook text, hold_for interval, run_within interval,
  functions text[])
returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select concat('{',
    case when approver_hook is not null then concat('"approver_hook":', to_json(approver_hook), ',') end,
    case when approvers is not null then concat('"approvers":[',
      (select string_agg(to_json(a.name)::text, ',' order by a.name collate "C")
       from (select distinct unnest(approvers) as name) a), '],') end,
    case when functions[3] is not null then concat('"functions":', to_json(functions), ',') end,
    '"hold_for":', extract(epoch from hold_for)::bigint,
    ',"rejections_to_end":', rejections_to_end,
    ',"run_within":', extract(epoch from run_within)::bigint,
    ',"votes_required":', votes_required, '}')
$$;
comment on function underseal._policy_text(integer, integer, text[], text, interval, interval, text[]) is
  'A policy as canonical JSON; durations in seconds. With the functions of a SQL provider (estimate, check_run, run), since what is sealed with a request must also say what does it.';

create or replace function underseal._policy_flaw(policy jsonb) returns text
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  allowed constant text[] := '{votes_required,rejections_to_end,approvers,approver_hook,hold_for,run_within}';
  unknown text;
  whole text;
begin
  if jsonb_typeof(policy) is distinct from 'object' then
    return 'expected an object';
  end if;
  select k.key into unknown from jsonb_object_keys(policy) as k (key) where k.key <> all (allowed) limit 1;
  if unknown is not null then
    return format('expected only the members %s, found %s', array_to_string(allowed, ', '), unknown);
  end if;
  foreach whole in array '{votes_required,rejections_to_end,hold_for,run_within}'::text[] loop
    if policy ? whole and (policy ->> whole) !~ '^[1-9][0-9]{0,8}$' then
      return format('expected %s to be a whole number from 1, found %s', whole, policy -> whole);
    end if;
  end loop;
  if not policy ?& '{hold_for,run_within}' then
    return 'expected hold_for and run_within, in seconds';
  end if;
  foreach whole in array '{hold_for,run_within}'::text[] loop
    if coalesce((policy ->> whole)::integer, 31536001) > 31536000 then
      return format('expected %s to be at most 31536000 seconds, found %s', whole, policy -> whole);
    end if;
  end loop;
  if jsonb_typeof(policy -> 'approvers') not in ('array', 'null')
    or jsonb_path_exists(policy, 'strict $.approvers[*] ? (@.type() != "string" || @ == "")', silent => true) then
    return 'expected approvers to be an array of principals, by name';
  end if;
  if coalesce(jsonb_typeof(policy -> 'approvers'), 'null') = 'null' and policy ->> 'approver_hook' is null then
    return 'expected approvers, or approver_hook, or both: found nobody who may approve';
  end if;
  if jsonb_typeof(policy -> 'approvers') = 'array'
    and coalesce((policy ->> 'votes_required')::integer, 1) >
      (select count(distinct a.name) from jsonb_array_elements_text(policy -> 'approvers') as a (name)) then
    return format('expected votes_required to be at most the number of listed approvers, found %s',
      coalesce(policy ->> 'votes_required', '1'));
  end if;
  if policy ->> 'approver_hook' is not null then
    return underseal._hook_flaw(concat(policy ->> 'approver_hook', '(text,text,integer,uuid)'));
  end if;
  return null;
end
$$;
comment on function underseal._policy_flaw(jsonb) is 'What is wrong with a policy, in words; null if nothing is.';

create or replace function underseal._store_operation_type(
  type text, version integer, mode text, parameters jsonb, policy jsonb, salted boolean,
  sql_estimate text, sql_check_run text, sql_run text, safe_sqlstates text[])
returns table (outcome text, reason text, message text, policy_digest bytea)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  wanted underseal.operation_type;
  stored underseal.operation_type;
  flaw text;
begin
  perform underseal._require_read_committed();
  flaw := underseal._policy_flaw(policy);
  if flaw is not null then
    return query select 'refused', 'policy', format('Policy of %s: %s.', type, flaw), null::bytea;
    return;
  end if;
  flaw := underseal._schema_flaw(parameters);
  if flaw is not null then
    return query select 'refused', 'parameters', format('Parameters of %s: %s.', type, flaw), null::bytea;
    return;
  end if;
  wanted.type := type;
  wanted.version := version;
  wanted.mode := mode;
  wanted.parameters := parameters;
  wanted.salted := salted or underseal._schema_hides(parameters);
  wanted.votes_required := coalesce((policy ->> 'votes_required')::integer, 1);
  wanted.rejections_to_end := coalesce((policy ->> 'rejections_to_end')::integer, 1);
  if jsonb_typeof(policy -> 'approvers') = 'array' then
    wanted.approvers := array(
      select distinct a.name from jsonb_array_elements_text(policy -> 'approvers') as a (name) order by 1);
  end if;
  wanted.approver_hook := policy ->> 'approver_hook';
  wanted.hold_for := make_interval(secs => (policy ->> 'hold_for')::double precision);
  wanted.run_within := make_interval(secs => (policy ->> 'run_within')::double precision);
  wanted.sql_estimate := sql_estimate;
  wanted.sql_check_run := sql_check_run;
  wanted.sql_run := sql_run;
  wanted.safe_sqlstates := coalesce(safe_sqlstates, '{}');
  wanted.policy := underseal._policy_text(wanted.votes_required, wanted.rejections_to_end, wanted.approvers,
    wanted.approver_hook, wanted.hold_for, wanted.run_within,
    array[wanted.sql_estimate, wanted.sql_check_run, wanted.sql_run]);
  if wanted.sql_run is not null and wanted.salted then
    return query select 'refused', 'secret-parameters',
      format('SQL provider %s: expected parameters without writeOnly members, found one. A secret must not reach the statement log; write the provider in a service.', type),
      null::bytea;
    return;
  end if;

  select t.* into stored from underseal.operation_type t
  where t.type = wanted.type and t.version = wanted.version
  for no key update;
  if not found then
    insert into underseal.operation_type (type, version, mode, parameters, salted, votes_required, rejections_to_end,
      approvers, approver_hook, hold_for, run_within, policy, sql_estimate, sql_check_run, sql_run, safe_sqlstates)
    values (wanted.type, wanted.version, wanted.mode, wanted.parameters, wanted.salted, wanted.votes_required,
      wanted.rejections_to_end, wanted.approvers, wanted.approver_hook, wanted.hold_for, wanted.run_within,
      wanted.policy, wanted.sql_estimate, wanted.sql_check_run, wanted.sql_run, wanted.safe_sqlstates);
    return query select 'registered', null::text, format('%s version %s is registered and armed.', type, version),
      sha256(convert_to(wanted.policy, 'UTF8'));
    return;
  end if;
  if (stored.mode, stored.parameters, stored.salted, stored.sql_estimate, stored.sql_check_run, stored.sql_run)
    is distinct from
    (wanted.mode, wanted.parameters, wanted.salted, wanted.sql_estimate, wanted.sql_check_run, wanted.sql_run) then
    return query select 'refused', 'version-frozen',
      format('Expected mode, parameters and functions of %s version %s as registered, found others. Register them as a higher version.', type, version),
      stored.policy_digest;
    return;
  end if;
  if stored.policy = wanted.policy and stored.safe_sqlstates = wanted.safe_sqlstates then
    return query select 'unchanged', null::text, format('%s version %s is registered as it is.', type, version), stored.policy_digest;
    return;
  end if;
  update underseal.operation_type t
  set votes_required = wanted.votes_required, rejections_to_end = wanted.rejections_to_end,
    approvers = wanted.approvers, approver_hook = wanted.approver_hook, hold_for = wanted.hold_for,
    run_within = wanted.run_within, policy = wanted.policy, safe_sqlstates = wanted.safe_sqlstates
  where t.type = wanted.type and t.version = wanted.version;
  return query select 'updated', null::text,
    format('The policy of %s version %s is changed; it holds for open operations too where it is stricter.', type, version),
    sha256(convert_to(wanted.policy, 'UTF8'));
end
$$;
comment on function underseal._store_operation_type(text, integer, text, jsonb, jsonb, boolean, text, text, text, text[]) is
  'Registers a type, or changes its policy.';

create or replace function underseal.register_operation_type(
  type text, version integer, mode text, parameters jsonb, policy jsonb, salted boolean default false)
returns table (outcome text, reason text, message text, policy_digest bytea)
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
  select s.outcome, s.reason, s.message, s.policy_digest
  from underseal._store_operation_type(type, version, mode, parameters, policy, salted, null, null, null, '{}') s
$$;
comment on function underseal.register_operation_type(text, integer, text, jsonb, jsonb, boolean) is
  'Registers what may be held, or changes its policy. mode: ON_APPROVAL or BY_REQUESTER. parameters: JSON Schema of an object, without numbers that are not integers and without open members. policy: {"votes_required": 1.., "rejections_to_end": 1.., "approvers": [..], "approver_hook": "schema.function", "hold_for": seconds, "run_within": seconds}. salted: true where the redaction is not the schema''s. For the schema owner. Outcomes: registered, updated, unchanged; refused (policy, parameters, version-frozen).';

create or replace function underseal.register_sql_operation(
  type text, version integer, parameters jsonb, policy jsonb,
  estimate regprocedure, check_run regprocedure, run regprocedure, safe_sqlstates text[] default '{}')
returns table (outcome text, reason text, message text, policy_digest bytea)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  wrong regprocedure;
begin
  select p.oid::regprocedure into wrong
  from unnest(array[estimate, check_run, run]) with ordinality as given (proc, place)
  join pg_catalog.pg_proc p on p.oid = given.proc
  where p.pronargs <> 2 or p.proargtypes[0] <> 'jsonb'::regtype or p.proargtypes[1] <> 'text'::regtype
    or p.prorettype <> case given.place when 2 then 'text'::regtype else 'jsonb'::regtype end::oid
    or p.proretset
  limit 1;
  if wrong is not null or estimate is null or check_run is null or run is null then
    return query select 'refused', 'signature',
      format('Expected estimate(jsonb, text) returns jsonb, check_run(jsonb, text) returns text and run(jsonb, text) returns jsonb, found %s.',
        coalesce(wrong::text, 'one missing')), null::bytea;
    return;
  end if;
  return query
  select s.outcome, s.reason, s.message, s.policy_digest
  from underseal._store_operation_type(type, version, 'ON_APPROVAL', parameters, policy, false,
    estimate::text, check_run::text, run::text, safe_sqlstates) s;
end
$$;
comment on function underseal.register_sql_operation(text, integer, jsonb, jsonb, regprocedure, regprocedure, regprocedure, text[]) is
  'Registers an operation that SQL functions do. estimate(params jsonb, principal text) returns jsonb {"effect": {..}, "state_key": ".."}; check_run(params jsonb, principal text) returns text, null to agree or a reason; run(params jsonb, principal text) returns jsonb. safe_sqlstates: SQLSTATEs whose message may be recorded. They run as the requester''s role, called by the worker, never by the kernel. For the schema owner. Outcomes: registered, updated, unchanged; refused (signature, secret-parameters, policy, parameters, version-frozen) (H6.10).';

create or replace function underseal.set_armed(type text, version integer, armed boolean, principal text default null)
returns table (outcome text, reason text, message text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if underseal._effective_principal('{operator}', principal) is null
    and not pg_has_role(session_user, underseal._owner(), 'MEMBER') then
    return query select * from underseal._denied();
    return;
  end if;
  update underseal.operation_type t set armed = set_armed.armed
  where t.type = set_armed.type and t.version = set_armed.version;
  if found then
    return query select 'set', null::text,
      format('%s version %s is %s.', type, version, case when armed then 'armed' else 'disarmed: requests and runs are refused' end);
  else
    return query select 'not-found', null::text,
      format('Expected a registered type %s version %s, found none. See list_operation_types.', type, version);
  end if;
end
$$;
comment on function underseal.set_armed(text, integer, boolean, text) is
  'Switches a type version on or off. Off refuses new requests and runs; it never lets a gated call run unheld (H6.1). Outcomes: set, not-found, denied.';

create or replace function underseal._current_version(type text) returns integer
language sql stable
as $$
  select max(t.version) from underseal.operation_type t where t.type = _current_version.type
$$;
comment on function underseal._current_version(text) is 'The version of a type that is in force: the highest.';

create or replace function underseal.list_operation_types()
returns table (
  type text, version integer, mode text, armed boolean, current boolean, parameters jsonb, policy text,
  policy_digest bytea, salted boolean, sql_estimate text, sql_check_run text, sql_run text, safe_sqlstates text[])
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select t.type, t.version, t.mode, t.armed, t.version = underseal._current_version(t.type), t.parameters, t.policy,
    t.policy_digest, t.salted, t.sql_estimate, t.sql_check_run, t.sql_run, t.safe_sqlstates
  from underseal.operation_type t
  order by t.type, t.version
$$;
comment on function underseal.list_operation_types() is
  'Every registered type and version; current marks the version in force.';
