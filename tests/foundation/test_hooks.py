"""Functions of the host: asked with care, never with our rights, and no answer is a no."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from pytest_postgresql.executors import NoopExecutor

from tests.held.sql.kernel import Kernel, outcome
from tests.held.sql.shared import rolled_back, shared_kernel
from underseal.foundation.server import Server
from underseal.testing import OWNER, unique_name


@pytest.fixture(scope="module")
def kernel(postgres: Server, template: NoopExecutor) -> Iterator[Kernel]:
    with shared_kernel(postgres, template.template_dbname) as kernel:
        yield kernel


@pytest.fixture
def k(kernel: Kernel) -> Iterator[Kernel]:
    with rolled_back(kernel):
        yield kernel


def make_role(k: Kernel, attributes: str = "nologin") -> str:
    name = unique_name("host")
    with k.login(None):
        k.connection.execute(f'create role "{name}" {attributes}')
    return name


def make_hook(k: Kernel, body: str, host: str, security: str = "security definer") -> str:
    """A hook that says who may approve."""
    with k.login(None):
        k.connection.execute("create schema if not exists app")
        k.connection.execute("grant usage on schema app to public")
        k.connection.execute(
            "create or replace function app.may_approve(principal text, type text, version integer, operation_id uuid)"
            f" returns boolean language plpgsql {security} as $$ begin {body} end $$"
        )
        k.connection.execute(f'alter function app.may_approve owner to "{host}"')
    return "app.may_approve"


BY_HOOK: dict[str, Any] = {"approvers": None, "approver_hook": "app.may_approve"}


def test_a_hook_says_who_may_approve(k: Kernel) -> None:
    make_hook(k, "return principal = 'dora' and type = 'account.close' and version = 1;", make_role(k))
    assert outcome(k.register(**BY_HOOK)) == ("registered", None)
    operation = k.hold()
    assert outcome(k.approve(operation, "bob")) == ("not-found", None)
    assert k.calls("list_operations", "bob") == []
    assert [row["operation_id"] for row in k.calls("list_operations", "dora")] == [operation]
    assert k.call("get_operation", operation, "dora")["can"] == ["vote"]
    assert outcome(k.approve(operation, "dora")) == ("approved", None)


def test_a_hook_is_told_the_operation(k: Kernel) -> None:
    host = make_role(k)
    make_hook(k, "return false;", host)
    k.register(**BY_HOOK)
    one, two = k.hold(), k.hold()
    make_hook(k, f"return operation_id = '{one}';", host)
    assert outcome(k.approve(two, "dora")) == ("not-found", None)
    assert outcome(k.approve(one, "dora")) == ("approved", None)


def test_a_list_and_a_hook_add_up(k: Kernel) -> None:
    make_hook(k, "return principal = 'dora';", make_role(k))
    k.register(approvers=["bob"], approver_hook="app.may_approve", votes_required=1)
    assert outcome(k.approve(k.hold(), "bob")) == ("approved", None)
    assert outcome(k.approve(k.hold(), "dora")) == ("approved", None)


@pytest.mark.clause("E15c")
@pytest.mark.parametrize(
    "body",
    [
        "return null;",
        "return false;",
        "raise exception 'no';",
        "return 1 / 0 = 0;",
        "perform from app.nothing; return true;",
    ],
)
def test_a_hook_that_fails_or_says_nothing_denies(k: Kernel, body: str) -> None:
    make_hook(k, body, make_role(k))
    k.register(**BY_HOOK)
    operation = k.hold()
    before = k.everything()
    assert outcome(k.approve(operation, "dora")) == ("not-found", None)
    assert k.everything() == before


@pytest.mark.clause("E15b")
def test_a_hook_has_the_rights_of_its_own_owner(k: Kernel) -> None:
    """One that reads our tables is refused, which is a no; what it may do itself, it does."""
    host = make_role(k)
    make_hook(k, "perform from underseal.held_operation; return true;", host)
    k.register(**BY_HOOK)
    operation = k.hold()
    assert outcome(k.approve(operation, "dora")) == ("not-found", None)
    make_hook(k, f"return current_user = '{host}';", host)
    assert outcome(k.approve(operation, "dora")) == ("approved", None)


@pytest.mark.clause("E15b")
@pytest.mark.parametrize("whose", ["owner", "superuser", "member", "invoker"])
def test_a_hook_that_could_have_our_rights_is_neither_registered_nor_called(k: Kernel, whose: str) -> None:
    host = make_role(k)
    make_hook(k, "return true;", host)
    k.register(**BY_HOOK)
    operation = k.hold()
    superuser = make_role(k, "superuser")
    with k.login(None):
        if whose == "invoker":
            k.connection.execute("alter function app.may_approve security invoker")
        elif whose == "member":
            k.connection.execute(f'grant {OWNER} to "{host}"')
        else:
            k.connection.execute(
                f'alter function app.may_approve owner to "{superuser if whose == "superuser" else OWNER}"'
            )
    answer = k.register("another", **BY_HOOK)
    assert outcome(answer) == ("refused", "policy")
    assert "app.may_approve" in answer["message"]
    assert outcome(k.approve(operation, "dora")) == ("not-found", None)


@pytest.mark.clause("E15c")
def test_a_hook_that_is_gone_denies(k: Kernel) -> None:
    make_hook(k, "return true;", make_role(k))
    k.register(**BY_HOOK)
    operation = k.hold()
    with k.login(None):
        k.connection.execute("drop function app.may_approve")
    assert outcome(k.approve(operation, "dora")) == ("not-found", None)
    assert outcome(k.register("another", **BY_HOOK)) == ("refused", "policy")


def test_principals_are_mapped_to_roles(k: Kernel) -> None:
    role = make_role(k)
    worker = make_role(k, "login")
    k.call("grant_access", worker, "worker")
    with k.login(worker):
        assert outcome(k.call("role_of", "ann")) == ("refused", "no-role")
    assert outcome(k.call("map_role", "ann", role)) == ("mapped", None)
    with k.login(worker):
        assert outcome(k.call("role_of", "ann")) == ("refused", "not-a-member")
        assert outcome(k.call("role_of", "bob")) == ("refused", "no-role")
    with k.login(None):
        k.connection.execute(f'grant "{role}" to "{worker}"')
    with k.login(worker):
        answer = k.call("role_of", "ann")
        assert (outcome(answer), answer["role"]) == (("found", None), role)
    assert outcome(k.call("map_role", "ann", None)) == ("unmapped", None)
    with k.login(worker):
        assert outcome(k.call("role_of", "ann")) == ("refused", "no-role")
    with pytest.raises(psycopg.Error) as caught:
        k.call("map_role", "ann", "no such role")
    assert caught.value.sqlstate == "US012"


def test_nobody_is_mapped_to_a_role_with_every_right(k: Kernel) -> None:
    for powerful in (make_role(k, "superuser"), OWNER):
        with pytest.raises(psycopg.Error, match="expected an ordinary role") as caught:
            k.call("map_role", "ann", powerful)
        assert caught.value.sqlstate == "US012"


@pytest.mark.clause("E15b", "E15c")
def test_a_hook_of_the_host_maps_principals_to_roles(k: Kernel) -> None:
    host, role, mapped = make_role(k), make_role(k), make_role(k)
    k.call("map_role", "ann", mapped)

    def hook(body: str, security: str = "security definer") -> None:
        with k.login(None):
            k.connection.execute("create schema if not exists app")
            k.connection.execute(
                "create or replace function app.role_of(principal text) returns name"
                f" language plpgsql {security} as $$ begin {body} end $$"
            )
            k.connection.execute(f'alter function app.role_of owner to "{host}"')
            k.connection.execute("grant usage on schema app to public")

    def found() -> tuple[str, str | None]:
        answer = k.call("role_of", "ann")
        return answer["outcome"], answer["role"] or answer["reason"]

    with k.login(None):
        k.connection.execute(f'grant "{role}", "{mapped}" to {OWNER}')
    assert found() == ("found", mapped)
    hook(f"return case principal when 'ann' then '{role}' end;", "security invoker")
    with pytest.raises(psycopg.Error) as caught:
        k.call("set_role_hook", "app.role_of(text)")
    assert caught.value.sqlstate == "US011"
    hook(f"return case principal when 'ann' then '{role}' end;")
    assert outcome(k.call("set_role_hook", "app.role_of(text)")) == ("set", None)
    assert found() == ("found", role)
    for body in ("return null;", "return 1 / 0;", "return 'no such role';"):
        hook(body)
        assert found() == ("refused", "no-role")
    hook(f"return '{role}';", "security invoker")
    assert found() == ("refused", "no-role")
    assert outcome(k.call("set_role_hook", None)) == ("unset", None)
    assert found() == ("found", mapped)


@pytest.mark.clause("E15c")
def test_a_hook_whose_schema_is_closed_to_us_denies(k: Kernel) -> None:
    make_hook(k, "return true;", make_role(k))
    k.register(**BY_HOOK)
    operation = k.hold()
    with k.login(None):
        k.connection.execute("revoke usage on schema app from public")
    assert outcome(k.approve(operation, "dora")) == ("not-found", None)
    assert "USAGE" in k.register("another", **BY_HOOK)["message"]
