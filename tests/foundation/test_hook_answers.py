"""What a hook answers is read without calling anything of the host's with our rights."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pytest_postgresql.executors import NoopExecutor

from tests.foundation.test_hooks import BY_HOOK, make_hook, make_role
from tests.held.sql.kernel import Kernel, outcome
from tests.held.sql.shared import rolled_back, shared_kernel
from underseal.foundation.server import Server


@pytest.fixture(scope="module")
def kernel(postgres: Server, template: NoopExecutor) -> Iterator[Kernel]:
    with shared_kernel(postgres, template.template_dbname) as kernel:
        yield kernel


@pytest.fixture
def k(kernel: Kernel) -> Iterator[Kernel]:
    with rolled_back(kernel):
        yield kernel


CAST = """
create type app.answer as (yes boolean);
create table app.who (name text);
grant usage, create on schema app to public;
grant insert on app.who to public;
create function app.as_boolean(answer app.answer) returns boolean language plpgsql as
  $$ begin insert into app.who values (current_user); return true; end $$;
create function app.as_text(answer app.answer) returns text language plpgsql as
  $$ begin insert into app.who values (current_user); return 'host'; end $$;
grant execute on all functions in schema app to public;
create cast (app.answer as boolean) with function app.as_boolean(app.answer) as assignment;
create cast (app.answer as text) with function app.as_text(app.answer) as assignment;
create function app.who_runs(principal text) returns app.answer language sql security definer as
  $$ select row(true)::app.answer $$;
"""


@pytest.mark.clause("E15b")
def test_a_cast_of_the_hosts_own_is_not_called(k: Kernel) -> None:
    """The hook is registered as it should be, and its owner changes what it returns afterwards."""
    host = make_role(k)
    make_hook(k, "return true;", host)
    assert outcome(k.register(**BY_HOOK)) == ("registered", None)
    operation = k.hold()
    with k.login(None):
        k.connection.execute("drop function app.may_approve")
        k.connection.execute(CAST)
        k.connection.execute(
            "create function app.may_approve(text, text, integer, uuid) returns app.answer"
            " language sql security definer as $$ select row(true)::app.answer $$"
        )
        k.connection.execute(f'alter function app.may_approve owner to "{host}"')
        k.connection.execute(f'alter function app.who_runs owner to "{host}"')
        k.connection.execute(
            "insert into underseal.setting (key, value) values ('held.role_hook', 'app.who_runs(text)')"
        )
    assert outcome(k.approve(operation, "dora")) == ("not-found", None)
    assert outcome(k.call("role_of", "rita")) == ("refused", "no-role")
    with k.login(None):
        assert k.rows("select * from app.who") == []
