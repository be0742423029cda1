"""A hook of the host's that hears of denials, and what a denial leaves without one (clause E14)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tests.log.both import Clients
from tests.log.logs import FLOW, Logs
from tests.log.test_log_access import trace
from underseal.testing import OWNER, DictConnection, TestDatabase

HOOK = "host.on_denial(text,text,text,text)"
HEARD = "insert into host.heard values (op, principal, execution_id, reason, current_user);"

# each denied to who is no operator and does not own the execution
CHANGES = {
    "send": "select * from underseal.send(%s, 't', '1', %s)",
    "resume": "select * from underseal.resume_gate(%s, 'g', '1', %s)",
    "cancel": "select * from underseal.cancel_execution(%s, %s)",
    "migrate": "select * from underseal.migrate_execution(%s, 2, %s)",
    "fork": "select * from underseal.fork_execution(%s, 0, %s)",
    "outcome": "select * from underseal.record_outcome(%s, '1', %s)",
    "discard": "select * from underseal.discard_inbox(%s, 't', %s)",
    "compact": "select * from underseal.truncate_prefix(%s, 1, %s)",
    "delete": "select * from underseal.delete_chain(%s, %s)",
}
# by operators' access alone, which lets do all of it unless the host's policy says no
OPERATORS = {"discard", "compact", "delete"}
QUERIES = (
    "select * from underseal.get_execution(%s, %s)",
    "select * from underseal.read_events(%s, %s)",
    "select * from underseal.load_snapshot(%s, %s)",
    "select * from underseal.list_inbox(%s, %s)",
    "select * from underseal.get_content(%s, '', %s)",
    "select * from underseal.read_fold(%s, %s)",
)


@pytest.fixture
def own(db: DictConnection) -> Logs:
    """The schema's owner, with an execution each of ann's and of nobody's, and one that is sealed."""
    logs = Logs(db)
    logs.start("of-ann", "sealed", steps=2)
    logs.orphan("of-nobody")
    logs.seal("sealed")
    return logs


@pytest.fixture
def client(database: TestDatabase, db: DictConnection) -> Logs:
    """A login that names whom it acts for."""
    role = database.create_role("login")
    db.execute("select underseal.grant_access(%s, 'client')", [role])
    return Logs(database.connect(role))


@pytest.fixture
def stranger(
    database: TestDatabase, db: DictConnection, admin: DictConnection, client: Logs
) -> Callable[[str], Logs]:
    """Who asks for an operation that is denied."""

    def make(op: str) -> Logs:
        if op not in OPERATORS:
            return client
        role, host = database.create_role("login"), database.create_role("host")
        db.execute("select underseal.grant_access(%s, 'operator', 'asserted')", [role])
        admin.execute("create schema policy")
        admin.execute(f"grant usage on schema policy to {OWNER}")
        admin.execute(
            """create function policy.may(text, text, text, text, text) returns boolean
               language plpgsql security definer as $$ begin return false; end $$"""
        )
        admin.execute(f'alter function policy.may owner to "{host}"')
        db.execute("select underseal.set_access_policy('policy.may(text,text,text,text,text)')")
        return Logs(database.connect(role))

    return make


Make = Callable[..., str]


@pytest.fixture
def hook(database: TestDatabase, db: DictConnection, admin: DictConnection) -> Make:
    """Make a hook of the host's and set it."""
    host = database.create_role("host")
    admin.execute("create schema host")
    admin.execute(f"grant usage on schema host to {OWNER}")
    admin.execute(
        "create table host.heard (op text, principal text, execution_id text, reason text, as_whom text)"
    )
    admin.execute(f'grant usage, create on schema host to "{host}"')
    admin.execute(f'grant all on host.heard to "{host}"')

    def make(body: str = HEARD, returns: str = "void") -> str:
        admin.execute(f"drop function if exists {HOOK}")
        admin.execute(
            f"""create function host.on_denial(op text, principal text, execution_id text, reason text)
                returns {returns} language plpgsql security definer as $$ begin {body} end $$"""
        )
        admin.execute(f'alter function host.on_denial owner to "{host}"')
        assert (
            db.execute("select * from underseal.set_denial_hook(%s)", [HOOK]).fetchall()[0]["outcome"]
            == "set"
        )
        return host

    return make


@pytest.fixture
def heard(admin: DictConnection) -> Callable[[], list[tuple[Any, ...]]]:
    """What the hook was told since the last look."""

    def look() -> list[tuple[Any, ...]]:
        rows = admin.execute(
            "select op, principal, execution_id, reason from host.heard order by ctid"
        ).fetchall()
        admin.execute("truncate host.heard")
        return [tuple(row.values()) for row in rows]

    return look


Heard = Callable[[], list[tuple[Any, ...]]]


def reports(logs: Logs) -> list[tuple[str, int]]:
    """What operators were told of the hook."""
    rows = logs.rows("select cause, times from underseal.operator_reports where kind = 'denial-hook-failed'")
    return [(row["cause"], row["times"]) for row in rows]


# -- what a denial leaves -------------------------------------------------------------------------------


@pytest.mark.clause("E14a")
def test_a_denial_leaves_a_record_and_moves_no_head(own: Logs, client: Logs) -> None:
    before = own.rows("select * from underseal.execution order by chain_id")
    events = own.rows("select * from underseal.event order by chain_id, seq")
    for op in ("resume", "cancel"):
        for execution_id in ("of-ann", "of-nobody", "missing"):
            (answer,) = client.rows(CHANGES[op], execution_id, "mallory")
            assert (answer["outcome"], answer["reason"]) == ("denied", "execution")
            left = own.rows("select op, execution_id, principal from underseal.execution_denials limit 1")
            assert left == [{"op": op, "execution_id": execution_id, "principal": "mallory"}]
    assert own.rows("select * from underseal.execution order by chain_id") == before
    assert own.rows("select * from underseal.event order by chain_id, seq") == events
    # the next number is the next one
    assert client.call("send", "of-ann", "t", "1", "ann")["inbox_seq"] == 1
    assert own.value("select count(*) from underseal.inbox_message") == 1


# -- the hook -------------------------------------------------------------------------------------------


@pytest.mark.clause("E14b")
@pytest.mark.parametrize("op", CHANGES)
def test_the_hook_hears_of_each_denial_once_and_alike(
    own: Logs, stranger: Callable[[str], Logs], hook: Make, heard: Heard, op: str
) -> None:
    hook()
    client = stranger(op)
    ids = ("of-ann", "of-nobody", "missing", "sealed", "of-ann~2", "")
    for execution_id in ids:
        (answer,) = client.rows(CHANGES[op], execution_id, "mallory")
        assert (answer["outcome"], answer["reason"]) == ("denied", "execution")
    assert heard() == [(op, "mallory", execution_id, "execution") for execution_id in ids]
    # nobody is named
    (answer,) = client.rows(CHANGES[op], "of-ann", "")
    assert answer["outcome"] == "denied"
    assert heard() == [(op, None, "of-ann", "execution")]


@pytest.mark.clause("E14b")
def test_the_hook_hears_of_a_start_for_nobody(own: Logs, client: Logs, hook: Make, heard: Heard) -> None:
    hook()
    assert client.call("start_execution", FLOW, "", None, "new")["outcome"] == "denied"
    assert heard() == [("start", None, "new", "no-principal")]
    state = {"v": 1, "flow": FLOW, "flow_version": 1, "began_as": 1, "input": None, "events": []}
    assert client.call("restore_execution", json.dumps(state), "", "new")["outcome"] == "denied"
    assert heard() == [("start", None, "new", "no-principal")]
    items = [
        {"verb": "start", "execution_id": one, "flow": FLOW, "flow_version": 1, "principal": who}
        for one, who in (("a", "ann"), ("b", ""), ("c", None), ("of-ann", "bob"))
    ]
    written = own.calls("append_batch", json.dumps(items))
    assert [row["outcome"] for row in written] == ["started", "denied", "denied", "exists"]
    assert sorted(heard()) == [("start", None, "b", "no-principal"), ("start", None, "c", "no-principal")]


@pytest.mark.clause("E14b")
def test_the_hook_hears_of_no_query(own: Logs, client: Logs, hook: Make, heard: Heard) -> None:
    hook()
    for query in QUERIES:
        for execution_id in ("of-ann", "of-nobody", "missing", "sealed"):
            answer = own.rows(query, execution_id, "mallory")
            assert [row["outcome"] for row in answer] == ["denied"], query
    assert client.calls("list_executions", "")[0]["outcome"] == "denied"
    logs = json.dumps([{"execution_id": "sealed"}])
    assert [row["outcome"] for row in own.calls("read_logs", logs)] == ["denied"]
    assert heard() == []
    assert client.calls("list_executions", "mallory") == []


@pytest.mark.clause("E14b")
def test_the_hook_hears_nothing_of_what_is_allowed(own: Logs, client: Logs, hook: Make, heard: Heard) -> None:
    hook()
    assert client.call("send", "of-ann", "t", "1", "ann")["outcome"] == "sent"
    assert client.call("start_execution", FLOW, "ann", None, "of-ann")["outcome"] == "exists"
    assert client.call("cancel_execution", "of-ann", "ann", "x" * 1001)["outcome"] == "refused"
    assert client.call("cancel_execution", "of-ann", "ann")["outcome"] == "requested"
    assert heard() == []


@pytest.mark.clause("E14b")
def test_the_hook_goes_with_the_callers_transaction(
    own: Logs, client: Logs, hook: Make, heard: Heard
) -> None:
    hook()
    with client.connection.transaction(force_rollback=True):
        assert client.call("cancel_execution", "of-ann", "mallory")["outcome"] == "denied"
    assert heard() == []
    with client.connection.transaction():
        assert client.call("cancel_execution", "of-ann", "mallory")["outcome"] == "denied"
        # no row of an execution is locked
        assert len(own.rows("select 1 from underseal.execution for update nowait")) == 3
    assert len(heard()) == 1


FAILS = {
    "raises": "raise exception 'no';",
    "divides": HEARD + "perform 1 / 0;",
    "asserts": "assert false;",
    "looks at ours": "perform from underseal.execution;",
    "is not there": "",
    "may not be called": "",
    "is an invoker": "",
    "is ours": "",
}


@pytest.mark.clause("E14b", "E15b")
@pytest.mark.parametrize("how", FAILS)
def test_a_hook_that_fails_or_is_unfit_changes_nothing_and_is_reported_once(
    own: Logs, client: Logs, hook: Make, heard: Heard, admin: DictConnection, how: str
) -> None:
    hook(FAILS[how] or HEARD)
    if how == "is not there":
        admin.execute(f"drop function {HOOK}")
    elif how == "may not be called":
        admin.execute(f"revoke execute on function {HOOK} from public")
    elif how == "is an invoker":
        admin.execute(f"alter function {HOOK} security invoker")
        admin.execute("grant all on host.heard to public")
    elif how == "is ours":
        admin.execute(f"alter function {HOOK} owner to {OWNER}")
        admin.execute(f"grant all on host.heard to {OWNER}")
    usual = client.rows(CHANGES["send"], "missing", "ann")
    for execution_id in ("of-ann", "of-nobody", "missing"):
        assert client.rows(CHANGES["send"], execution_id, "mallory") == usual
    assert client.call("start_execution", FLOW, "", None, "new")["outcome"] == "denied"
    assert own.causes() == ["missing", "unknown-owner", "foreign", "missing"]
    assert heard() == []
    ((cause, times),) = reports(own)
    assert times == 1
    assert "host.on_denial" in cause
    assert "mallory" not in cause
    own.rows("delete from underseal.operator_report")
    client.rows(CHANGES["send"], "missing", "mallory")
    assert len(reports(own)) == 1


@pytest.mark.clause("E14b")
def test_who_is_turned_away_waits_for_nobody_elses_report(
    own: Logs, client: Logs, hook: Make, database: TestDatabase
) -> None:
    hook("raise exception 'no';")
    other = Logs(database.connect(OWNER, options="-c statement_timeout=10s"))
    with client.connection.transaction():
        client.rows(CHANGES["send"], "of-ann", "mallory")
        assert other.rows(CHANGES["send"], "of-ann", "mallory")[0]["outcome"] == "denied"
    assert len(reports(own)) == 1
    assert own.causes() == ["foreign", "foreign"]


@pytest.mark.clause("E14b", "E12c")
@pytest.mark.parametrize("body", [None, HEARD, "raise exception 'no';"])
@pytest.mark.parametrize("op", CHANGES)
def test_denials_are_alike_with_a_hook_and_without(
    own: Logs,
    stranger: Callable[[str], Logs],
    database: TestDatabase,
    hook: Make,
    heard: Heard,
    op: str,
    body: str | None,
) -> None:
    if body is not None:
        hook(body)
    own.start("a-first", "zz-last", owner="bob", steps=3)
    role = stranger(op).value("select session_user::text")

    def seen(execution_id: str) -> list[Any]:
        # reports that were rolled back are in the way of the next
        own.rows("vacuum underseal.operator_report")
        return trace(database, execution_id, "mallory", CHANGES[op], role)

    usual = seen("missing")
    for execution_id in ("of-ann", "of-nobody", "a-first", "zz-last", "zzz", "00", "of-ann~2", "sealed"):
        assert seen(execution_id) == usual, execution_id
    # every one of them was rolled back
    assert heard() == []
    assert reports(own) == []


@pytest.mark.clause("E14b")
@pytest.mark.parametrize("returns", ["boolean", "setof text", "host.heard", "integer"])
def test_what_the_hook_returns_is_not_looked_at(
    own: Logs, client: Logs, hook: Make, heard: Heard, returns: str
) -> None:
    hook(HEARD + (" return;" if returns.startswith("setof") else " return null;"), returns)
    client.rows(CHANGES["send"], "of-ann", "mallory")
    assert len(heard()) == 1
    assert reports(own) == []


@pytest.mark.clause("E14b", "E15b")
def test_the_hook_has_the_rights_of_its_own_owner(
    own: Logs, client: Logs, hook: Make, admin: DictConnection
) -> None:
    host = hook()
    client.rows(CHANGES["send"], "of-ann", "mallory")
    assert admin.execute("select distinct as_whom from host.heard").fetchall() == [{"as_whom": host}]


@pytest.mark.clause("E14b", "E15a")
def test_a_denial_hook_is_looked_at_before_it_is_set(
    own: Logs, client: Logs, hook: Make, heard: Heard, admin: DictConnection
) -> None:
    host = hook()
    for name, kind in (
        ("few(text)", "function returns void security definer"),
        ("many(text,text,text,text,text)", "function returns void security definer"),
        ("does(text,text,text,text)", "procedure security definer"),
        ("invoked(text,text,text,text)", "function returns void"),
        ("ours(text,text,text,text)", "function returns void security definer"),
    ):
        what, _, rest = kind.partition(" ")
        admin.execute(f"create {what} host.{name} {rest} language sql as ''")
        if not name.startswith("ours"):
            admin.execute(f'alter {what} host.{name} owner to "{host}"')
        with pytest.raises(psycopg.Error, match=r"underseal\.set_denial_hook") as caught:
            own.call("set_denial_hook", f"host.{name}")
        assert caught.value.sqlstate == "US011", name
    admin.execute("create schema closed")
    admin.execute("create function closed.hook(text,text,text,text) returns void language sql as ''")
    for other in ("host.absent(text,text,text,text)", "closed.hook(text,text,text,text)"):
        with pytest.raises(psycopg.Error) as caught:
            own.call("set_denial_hook", other)
        assert caught.value.sqlstate == "US011"
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        client.call("set_denial_hook", None)
    client.rows(CHANGES["send"], "of-ann", "mallory")
    assert len(heard()) == 1
    assert own.call("set_denial_hook", None)["outcome"] == "unset"
    client.rows(CHANGES["send"], "of-ann", "mallory")
    assert heard() == []


@pytest.mark.clause("E14b")
@pytest.mark.parametrize("is_async", [False, True])
def test_a_clients_denial_hook(
    own: Logs, database: TestDatabase, hook: Make, heard: Heard, is_async: bool
) -> None:
    hook()
    clients = Clients(database.conninfo_as(OWNER), is_async)
    try:
        assert clients.executions.set_denial_hook(None).outcome == "unset"
        own.rows(CHANGES["send"], "of-ann", "mallory")
        assert heard() == []
        assert clients.executions.set_denial_hook(HOOK).outcome == "set"
        own.rows(CHANGES["send"], "of-ann", "mallory")
        assert len(heard()) == 1
    finally:
        clients.close()
