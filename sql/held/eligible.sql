-- Who may approve is asked whenever it matters, never remembered.
create or replace function underseal._is_eligible(type text, version integer, principal text, operation_id uuid)
returns boolean
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  listed boolean;
  hook text;
begin
  select _is_eligible.principal = any (t.approvers), t.approver_hook into listed, hook
  from underseal.operation_type t
  where t.type = _is_eligible.type and t.version = _is_eligible.version;
  if listed then
    return true;
  end if;
  return hook is not null
    and underseal._ask_approver_hook(concat(hook, '(text,text,integer,uuid)'), principal, type, version, operation_id);
end
$$;
comment on function underseal._is_eligible(text, integer, text, uuid) is
  'Whether a principal may approve an operation under the policy in force now: listed by name, or the host''s hook says so.';

create or replace function underseal._not_found(operation_id uuid, out outcome text, out reason text, out message text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select 'not-found', null::text,
    format('Expected an operation %s that you asked for or may decide, found none. Check the id and whom you act for.', operation_id)
$$;
comment on function underseal._not_found(uuid) is
  'The one answer to who may not see an operation, whether it exists or not (H4.7).';
