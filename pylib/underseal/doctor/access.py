"""Who may do what: grants that say more, or less, than `grant_access` said (docs/access.md)."""

from __future__ import annotations

from collections.abc import Iterator

from underseal.doctor.look import Look
from underseal.doctor.model import Finding

_PUBLIC_FUNCTIONS = """
  select p.oid::regprocedure::text as name
  from pg_catalog.pg_proc p
  cross join lateral aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
  where p.pronamespace = 'underseal'::regnamespace and a.grantee = 0
  order by 1
"""

_RELATION_GRANTS = """
  select c.oid::regclass::text as name, c.relkind::text as kind,
    coalesce(r.rolname, 'PUBLIC') as grantee, string_agg(a.privilege_type, ', ' order by a.privilege_type) as privileges
  from pg_catalog.pg_class c
  cross join lateral aclexplode(c.relacl) a
  left join pg_catalog.pg_roles r on r.oid = a.grantee
  where c.relnamespace = 'underseal'::regnamespace and a.grantee <> c.relowner
    and (c.relkind <> 'v' or a.grantee = 0 or a.privilege_type <> 'SELECT')
  group by 1, 2, 3
  union all
  select format('%s.%I', t.attrelid::regclass, t.attname), 'column', coalesce(r.rolname, 'PUBLIC'),
    string_agg(a.privilege_type, ', ' order by a.privilege_type)
  from pg_catalog.pg_attribute t
  join pg_catalog.pg_class c on c.oid = t.attrelid
  cross join lateral aclexplode(t.attacl) a
  left join pg_catalog.pg_roles r on r.oid = a.grantee
  where c.relnamespace = 'underseal'::regnamespace and a.grantee <> c.relowner
  group by 1, 2, 3
  order by 1, 3
"""

_SCHEMA = """
  select o.rolname as owner, o.rolsuper as super,
    array(select coalesce(r.rolname, 'PUBLIC')
      from aclexplode(n.nspacl) a left join pg_catalog.pg_roles r on r.oid = a.grantee
      where a.privilege_type = 'CREATE' and a.grantee <> n.nspowner order by 1) as creators,
    array(select m.rolname::text from pg_catalog.pg_roles m
      where m.oid <> n.nspowner and not m.rolsuper and pg_has_role(m.oid, n.nspowner, 'MEMBER') order by 1) as members
  from pg_catalog.pg_namespace n join pg_catalog.pg_roles o on o.oid = n.nspowner
  where n.nspname = 'underseal'
"""


def check_grants(look: Look) -> Iterator[Finding]:
    """Nothing of the kernel is open to everybody, no table to anybody; the schema has one ordinary owner."""
    for row in look.rows(_PUBLIC_FUNCTIONS):
        yield Finding(
            "error", "grants", "public-function", row["name"],
            f"expected {row['name']} to be closed to PUBLIC, found EXECUTE granted to it",
            f"run: revoke all on function {row['name']} from public",
        )  # fmt: skip
    for row in look.rows(_RELATION_GRANTS):
        yield Finding(
            "error", "grants", "table-granted", row["name"],
            f"expected no right on {row['name']} but its owner's, "
            f"found {row['privileges']} granted to {row['grantee']}",
            f"revoke it from {row['grantee']}; access is given with underseal.grant_access alone",
        )  # fmt: skip
    schema = look.rows(_SCHEMA)[0]
    for creator in schema["creators"]:
        yield Finding(
            "error", "grants", "schema-open", creator,
            f"expected only the owner to create in schema underseal, found CREATE granted to {creator}",
            f"run: revoke create on schema underseal from {creator}",
        )  # fmt: skip
    if schema["super"]:
        yield Finding(
            "warning", "grants", "owner-superuser", schema["owner"],
            f"expected the schema's owner to be an ordinary role, found {schema['owner']}, a superuser: "
            "the kernel's functions run with all its rights",
            "give the schema and what is in it to a role that owns nothing else",
        )  # fmt: skip
    for member in schema["members"]:
        yield Finding(
            "note", "grants", "owner-member", member,
            f"role {member} is a member of the schema's owner: it may act for anybody and write every table",
            "keep it if it is meant; it is as powerful as the owner",
        )  # fmt: skip


def check_access(look: Look) -> Iterator[Finding]:
    """What `grant_access` noted is granted and no more; roles that only assert their principals are named (E13)."""
    yield from _asserted(look)
    yield from _grant_differences(look)
    for kind, found, fix in _LOST:
        for subject, detail in look.facts(kind):
            words = {"subject": subject, "detail": detail}
            yield Finding("warning", "access", kind, subject, found.format(**words), fix.format(**words))


_LOST = (
    ("grantee-missing", "{detail} access is noted for role {subject}, which does not exist",
     "as the schema's owner: delete from underseal.access_grant where grantee = '{subject}'"),
    ("login-missing", "login {subject} is mapped to principal {detail}, and there is no such role",
     "select * from underseal.map_login('{subject}', null)"),
    ("role-missing", "SQL operations of principal {subject} would run as role {detail}, which does not exist",
     "select * from underseal.map_role('{subject}', …) with a role that exists"),
    ("login-unmapped",
     "login {subject} has {detail} access bound to its login, and is mapped to no principal: it is denied",
     "select * from underseal.map_login('{subject}', '<principal>')"),
    ("worker-not-member", "worker {subject} is no member of role {detail}: runs in that role are refused",
     "grant {detail} to {subject}"),
)  # fmt: skip


def _asserted(look: Look) -> Iterator[Finding]:
    for row in look.rows(
        "select g.grantee, g.access in ('approver', 'operator') as decides,"
        " string_agg(g.access, ', ' order by g.access) as accesses"
        " from underseal.access_grants g where g.principal = 'asserted' group by 1, 2 order by 1, 2"
    ):
        yield Finding(
            "warning" if row["decides"] else "note", "access", "principal-asserted", row["grantee"],
            f"role {row['grantee']} has the access {row['accesses']} and says itself for whom it acts",
            "right for a service that authenticates its callers; people's logins are bound: "
            "underseal access grant ROLE ACCESS --principal login, and underseal access map-login",
        )  # fmt: skip


def _grant_differences(look: Look) -> Iterator[Finding]:
    for subject, thing in look.facts("grant-missing"):
        yield Finding(
            "error", "access", "grant-missing", subject,
            f"expected {thing} to be granted to {subject}, whose access opens it, found it revoked",
            "as the schema's owner call underseal.grant_access again with the same arguments",
        )  # fmt: skip
    for subject, thing in look.facts("grant-by-hand"):
        yield Finding(
            "warning", "access", "grant-by-hand", subject,
            f"expected only what grant_access grants, found {thing} granted to {subject}",
            f"give {subject} the access it needs with underseal.grant_access, and revoke this",
        )  # fmt: skip


def check_hooks(look: Look) -> Iterator[Finding]:
    """Hooks of the host may be called: a flawed one denies everybody, or hears of no denial (E14, E15)."""
    for subject, flaw in look.facts("hook-flaw"):
        so = "so it hears of no denial" if subject == "denial hook" else "so it denies"
        yield Finding(
            "error", "hooks", "hook-flawed", subject,
            f"the {subject} is never called, {so}: {flaw}",
            "make the function SECURITY DEFINER under an ordinary role of your own (docs/access.md)",
        )  # fmt: skip
    for subject, owner in look.facts("hook-owner-login"):
        yield Finding(
            "warning", "hooks", "hook-owner-login", subject,
            f"expected a hook that only an administrator can change, found that {owner} owns it and can log in",
            f"give the function to a role without login; whoever is {owner} can change it while it is called",
        )  # fmt: skip
