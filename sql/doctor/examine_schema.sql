-- What doctor cannot read in the catalogs: our own tables, and the flaws of the host's hooks. Nothing secret.
create or replace function underseal._examine_grants()
returns table (kind text, subject text, detail text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  with things as (
    select p.proname as verb, p.oid::regprocedure::text as thing, p.proowner as owner,
      coalesce(p.proacl, acldefault('f', p.proowner)) as acl
    from pg_catalog.pg_proc p where p.pronamespace = 'underseal'::regnamespace
    union all
    select c.relname, c.oid::regclass::text, c.relowner, coalesce(c.relacl, acldefault('r', c.relowner))
    from pg_catalog.pg_class c where c.relnamespace = 'underseal'::regnamespace and c.relkind = 'v'
  ), held as (
    select t.verb, t.thing, r.rolname as grantee
    from things t
    cross join lateral aclexplode(t.acl) a
    join pg_catalog.pg_roles r on r.oid = a.grantee
    where a.grantee <> t.owner
  ), due as (
    select t.verb, t.thing, g.grantee
    from underseal.access_grant g
    join pg_catalog.pg_roles r on r.rolname = g.grantee
    join underseal._access_verbs() v on v.access = g.access
    join things t on t.verb = v.verb
    where r.oid <> t.owner
  )
  select 'grant-by-hand', h.grantee::text, h.thing
  from (select h.grantee, h.thing from held h except select d.grantee, d.thing from due d) h
  union all
  select 'grant-missing', d.grantee::text, d.thing
  from (select d.grantee, d.thing from due d except select h.grantee, h.thing from held h) d
$$;
comment on function underseal._examine_grants() is
  'Functions and views that a role holds without an access that opens them, or lacks although its access opens them.';

create or replace function underseal._examine_hooks()
returns table (kind text, subject text, detail text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  with hooks as materialized (
    select h.subject, h.hook,
      case when h.is_read then underseal._hook_flaw(h.hook) else underseal._hook_danger(h.hook) end as flaw
    from (
      select format('approver hook of %s version %s', t.type, t.version), concat(t.approver_hook, '(text,text,integer,uuid)'), true
      from underseal.operation_type t where t.approver_hook is not null
      union all
      select k.subject, s.value, k.is_read
      from underseal.setting s
      join (values ('held.role_hook', 'role hook', true), ('log.access_hook', 'access policy', true),
        ('log.denial_hook', 'denial hook', false)) k (key, subject, is_read) on k.key = s.key
    ) as h (subject, hook, is_read)
  )
  select 'hook-flaw', h.subject, h.flaw from hooks h where h.flaw is not null
  union all
  select 'hook-owner-login', h.subject, r.rolname::text
  from hooks h
  join pg_catalog.pg_proc p on h.flaw is null and p.oid = case when h.flaw is null then to_regprocedure(h.hook) end
  join pg_catalog.pg_roles r on r.oid = p.proowner and r.rolcanlogin
$$;
comment on function underseal._examine_hooks() is
  'Hooks that may not be called, with what is wrong with them, and hooks whose owner can log in and so change them.';

create or replace function underseal.examine_schema()
returns table (outcome text, reason text, message text, kind text, subject text, detail text)
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
  select 'fact', null::text, null::text, f.kind, f.subject, f.detail
  from (
    select 'setting' as kind, s.key as subject, s.value as detail from underseal.setting s
    union all
    select 'grantee-missing', g.grantee, g.access
    from underseal.access_grant g
    where not exists (select from pg_catalog.pg_roles r where r.rolname = g.grantee)
    union all
    select 'login-missing', l.login, l.principal
    from underseal.principal_login l
    where not exists (select from pg_catalog.pg_roles r where r.rolname = l.login)
    union all
    select 'role-missing', m.principal, m.role
    from underseal.principal_role m
    where not exists (select from pg_catalog.pg_roles r where r.rolname = m.role)
    union all
    select h.kind, h.subject, h.detail from underseal._examine_hooks() h
    union all
    select 'login-unmapped', g.grantee, g.access
    from underseal.access_grant g
    join pg_catalog.pg_roles r on r.rolname = g.grantee and r.rolcanlogin
    where g.principal = 'login'
      and not exists (select from underseal.principal_login l where l.login = g.grantee)
    union all
    select 'worker-not-member', g.grantee, m.role
    from underseal.access_grant g
    join pg_catalog.pg_roles w on w.rolname = g.grantee and w.rolcanlogin
    cross join (select distinct p.role from underseal.principal_role p) m
    join pg_catalog.pg_roles r on r.rolname = m.role
    where g.access = 'worker'
      and exists (select from underseal.operation_type t where t.sql_run is not null)
      and not pg_has_role(w.oid, r.oid, 'MEMBER')
    union all
    select * from underseal._examine_grants()
  ) f
  where f.detail is not null
  order by f.kind, f.subject, f.detail
$$;
comment on function underseal.examine_schema() is
  'For doctor: the settings; grants, mapped logins and mapped roles whose role does not exist; hooks that may not be called, with what is wrong. For operator, reader and the schema owner. Outcomes: fact rows.';
