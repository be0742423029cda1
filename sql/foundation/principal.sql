-- Who is calling: a login, its grants, and the principal it acts for (E13).
create or replace function underseal._owner() returns oid
language sql stable
set search_path = pg_catalog, pg_temp
as $$ select n.nspowner from pg_catalog.pg_namespace n where n.nspname = 'underseal' $$;
comment on function underseal._owner() is 'The owner of schema underseal.';

create or replace function underseal._effective_principal(accesses text[], claimed text) returns text
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  may_assert boolean;
  bound boolean;
begin
  -- longer ones would not fit into the indexes by principal
  if claimed = '' or length(claimed) > 400 then
    return null;
  end if;
  select bool_or(g.principal = 'asserted'), bool_or(g.principal = 'login')
    into may_assert, bound
  from underseal.access_grant g
  -- a role that is gone has no oid, and nobody is its member
  where g.access = any (accesses) and pg_has_role(session_user, to_regrole(quote_ident(g.grantee))::oid, 'MEMBER');
  -- The owner can write the tables anyway: it may name whom it acts for.
  if may_assert or pg_has_role(session_user, underseal._owner(), 'MEMBER') then
    return claimed;
  end if;
  if bound then
    return (
      select l.principal from underseal.principal_login l
      where l.login = session_user and (claimed is null or claimed = l.principal));
  end if;
  return null;
end
$$;
comment on function underseal._effective_principal(text[], text) is
  'The principal this session acts for under one of the accesses named: the claimed one where the grant says asserted, the mapped one where it says login; null where there is none, or where another was claimed (E13).';

create or replace function underseal._denied(out outcome text, out reason text, out message text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select 'denied', 'no-principal',
    'Expected a principal that this login may act for, found none. Ask the schema owner for grant_access or map_login, or name the principal your login is mapped to.'
$$;
comment on function underseal._denied() is 'The one denial of a caller who may not act for the principal named.';
