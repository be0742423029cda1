-- Functions of the host. They never run with our owner's rights: a hook is SECURITY DEFINER under
-- an owner that is neither ours nor a superuser, and that is looked at before every call (E15).
create or replace function underseal._hook_danger(hook text) returns text
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  proc record;
begin
  select p.prosecdef, p.proowner into proc
  from pg_catalog.pg_proc p
  where p.oid = to_regprocedure(hook);
  if not found then
    return format('expected an existing function, found none named %s', hook);
  end if;
  if not proc.prosecdef then
    return format('expected %s to be SECURITY DEFINER, found SECURITY INVOKER', hook);
  end if;
  -- True of the owner itself, of its members and of superusers.
  if pg_has_role(proc.proowner, underseal._owner(), 'MEMBER') then
    return format('expected %s to belong to a role that is neither the owner of schema underseal, nor its member, nor a superuser', hook);
  end if;
  return null;
exception when insufficient_privilege then
  return format('expected the owner of schema underseal to have USAGE on the schema of %s, found that it has not', hook);
end
$$;
comment on function underseal._hook_danger(text) is
  'Whose rights a hook would have that it must not have, or that there is none such; null if it may be called and what it returns is not looked at (E15).';

create or replace function underseal._hook_flaw(hook text) returns text
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  flaw text := underseal._hook_danger(hook);
begin
  -- in a statement of its own: planning it looks the name up, which fails in a schema that is closed to us
  if flaw is null then
    select format('expected %s to return boolean, or a role''s name as text or name, found %s', hook, p.prorettype::regtype)
      into flaw
    from pg_catalog.pg_proc p
    where p.oid = to_regprocedure(hook)
      -- A cast of a type of the host's own would be called with our owner's rights.
      and p.prorettype not in ('boolean'::regtype, 'text'::regtype, 'name'::regtype);
  end if;
  return flaw;
end
$$;
comment on function underseal._hook_flaw(text) is 'What is wrong with a hook, given with its argument types; null if it may be called and its answer read (E15).';

create or replace function underseal._ask_approver_hook(hook text, principal text, type text, version integer, operation_id uuid)
returns boolean
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  answer boolean;
begin
  if underseal._hook_flaw(hook) is not null then
    return false;
  end if;
  execute format('select %s($1, $2, $3, $4)', to_regprocedure(hook)::regproc)
    into answer using principal, type, version, operation_id;
  return coalesce(answer, false);
exception when others then
  return false;
end
$$;
comment on function underseal._ask_approver_hook(text, text, text, integer, uuid) is
  'Asks the host whether a principal may approve. A flawed hook, an error and a NULL deny (E15).';

create or replace function underseal.map_role(principal text, role name)
returns table (outcome text, reason text, message text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if map_role.role is null then
    delete from underseal.principal_role m where m.principal = map_role.principal;
    return query select 'unmapped', null::text, format('Principal %s runs under no role.', principal);
    return;
  end if;
  if not exists (select from pg_catalog.pg_roles r where r.rolname = map_role.role) then
    raise exception using errcode = 'US012',
      message = format('underseal.map_role expected an existing role, found %L', role),
      hint = 'Create the role first.';
  end if;
  -- whoever writes such a function, or its arguments, would run with every right
  if pg_has_role(map_role.role, underseal._owner(), 'MEMBER') then
    raise exception using errcode = 'US012',
      message = format('underseal.map_role expected an ordinary role, found %L, a superuser or one of the schema''s owners', role),
      hint = 'Name a role with the rights of the requester.';
  end if;
  insert into underseal.principal_role as m (principal, role)
  values (map_role.principal, map_role.role)
  on conflict on constraint principal_role_pkey do update set role = excluded.role;
  return query select 'mapped', null::text, format('Principal %s runs under role %s.', principal, role);
end
$$;
comment on function underseal.map_role(text, name) is
  'Says under which role a SQL provider runs for a principal; null forgets it. For the schema owner. Outcomes: mapped, unmapped. Errors: US012.';

create or replace function underseal.set_role_hook(hook text)
returns table (outcome text, reason text, message text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  flaw text;
begin
  if hook is null then
    delete from underseal.setting s where s.key = 'held.role_hook';
    return query select 'unset', null::text, 'Roles come from map_role.'::text;
    return;
  end if;
  flaw := underseal._hook_flaw(hook);
  if flaw is not null then
    raise exception using errcode = 'US011', message = format('underseal.set_role_hook: %s', flaw),
      hint = 'Give a SECURITY DEFINER function (principal text) returns name, with its argument types, owned by a role of the host.';
  end if;
  insert into underseal.setting as s (key, value) values ('held.role_hook', to_regprocedure(hook)::text)
  on conflict on constraint setting_pkey do update set value = excluded.value;
  return query select 'set', null::text, format('Roles come from %s.', hook);
end
$$;
comment on function underseal.set_role_hook(text) is
  'Lets a function of the host (principal text) returns name say under which role a principal''s SQL providers run; null goes back to map_role. For the schema owner. Outcomes: set, unset. Errors: US011.';

create or replace function underseal.role_of(principal text)
returns table (outcome text, reason text, message text, role text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  hook text := (select s.value from underseal.setting s where s.key = 'held.role_hook');
  found_role text;
begin
  if hook is null then
    found_role := (select m.role from underseal.principal_role m where m.principal = role_of.principal);
  elsif underseal._hook_flaw(hook) is null then
    begin
      execute format('select %s($1)::text', to_regprocedure(hook)::regproc) into found_role using role_of.principal;
    exception when others then
      found_role := null;
    end;
  end if;
  if found_role is null or not exists (select from pg_catalog.pg_roles r where r.rolname = found_role) then
    return query select 'refused', 'no-role',
      format('Expected a database role for principal %s, found none. Name one with underseal.map_role or the role hook.', principal),
      null::text;
  elsif not pg_has_role(session_user, found_role, 'MEMBER') then
    return query select 'refused', 'not-a-member',
      format('Expected login %s to be a member of role %s, found that it is not. Grant the role to the worker''s login.', session_user, found_role),
      null::text;
  else
    return query select 'found', null::text, null::text, found_role;
  end if;
end
$$;
comment on function underseal.role_of(text) is
  'The role a SQL provider runs under for a principal, by map_role or the hook. Outcomes: found; refused (no-role, not-a-member).';
