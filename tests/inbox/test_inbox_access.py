"""Who may call which verb of the inbox, and that a denial tells and holds nothing (E12)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tests.held.sql.kernel import Kernel, outcome
from tests.inbox.box import OWNER, Box, box
from underseal.testing import OWNER as OWNING
from underseal.testing import DictConnection, TestClock, TestDatabase, in_background, wait_blocked

ACCESSES = ("client", "approver", "worker", "operator", "sealer", "reader")
VERBS = {
    "send": {"client", "worker"},
    "list_inbox": {"client", "worker", "operator"},
    "next_message": {"worker"},
    "consume_message": {"worker"},
    "deliver": {"worker"},
    "expire_inbox": {"worker"},
    "discard_inbox": {"operator"},
    "inbox_backlog": {"operator", "reader"},
}
As = Callable[..., Box]


@pytest.fixture
def own(db: DictConnection, clock: TestClock) -> Box:
    """An execution of ann's, in a database of the test's own."""
    return box(Kernel(db, clock))


@pytest.fixture
def policy(database: TestDatabase, db: DictConnection, admin: DictConnection) -> Callable[[str], None]:
    """Set a policy of the host's, by the body of its function."""

    def make(body: str) -> None:
        host = database.create_role("host")
        admin.execute("create schema host")
        admin.execute(f"grant usage on schema host to {OWNING}")
        admin.execute(
            "create function host.may(op text, principal text, owner text, execution_id text, flow text)"
            f" returns boolean language plpgsql security definer as $$ begin {body} return true; end $$"
        )
        admin.execute(f'grant usage, create on schema host to "{host}"')
        admin.execute(f'alter function host.may owner to "{host}"')
        db.execute("select underseal.set_access_policy('host.may(text,text,text,text,text)')")

    return make


@pytest.fixture
def as_login(database: TestDatabase, db: DictConnection, own: Box) -> As:
    """The same, as a login with an access sees it."""

    def make(access: str, mode: str | None = None, mapped: str | None = None) -> Box:
        role = database.create_role(access)
        db.execute("select underseal.grant_access(%s, %s, %s)", [role, access, mode])
        if mapped is not None:
            db.execute("select underseal.map_login(%s, %s)", [role, mapped])
        return own.on(Kernel(database.connect(role), own.k.clock))

    return make


@pytest.mark.clause("E12a")
def test_each_verb_is_open_to_its_accesses_alone(database: TestDatabase, db: DictConnection) -> None:
    found: dict[str, set[str]] = {verb: set() for verb in VERBS}
    for access in ACCESSES:
        role = database.create_role(access)
        db.execute("select underseal.grant_access(%s, %s)", [role, access])
        for row in db.execute(
            "select p.proname as verb, has_function_privilege(%s, p.oid, 'execute') as may from pg_proc p"
            " where p.pronamespace = 'underseal'::regnamespace and p.proname = any (%s)"
            " union all select c.relname, has_table_privilege(%s, c.oid, 'select') from pg_class c"
            " where c.relnamespace = 'underseal'::regnamespace and c.relname = 'inbox_backlog'",
            [role, list(VERBS), role],
        ).fetchall():
            if row["may"]:
                found[row["verb"]].add(access)
    assert found == VERBS


@pytest.mark.clause("E12b")
def test_the_owner_sends_and_looks(as_login: As, own: Box) -> None:
    client = as_login("client")
    assert client.put("a") == 1
    assert [row["inbox_seq"] for row in client.listed()] == [1]
    own.park(w=["a"])
    assert own.facts()[0]["sender"] == OWNER


@pytest.mark.clause("E12b")
def test_a_worker_drives_whosever_it_is(as_login: As, own: Box) -> None:
    worker = as_login("worker")
    own.park(w=["a", "b"])
    own.put("a")
    own.put("b", expires="1 second")
    found = worker.next()
    assert worker.consume(found)["outcome"] == "consumed"
    assert worker.deliver()["outcome"] == "none"
    own.k.clock.advance(seconds=1)
    assert worker.expire() == 1
    assert worker.k.calls("list_inbox", own.id, None) == []


DENIED: dict[str, tuple[str, dict[str, Any]]] = {
    "a stranger sends": ("client", {"send": "eve"}),
    "nobody sends": ("client", {"send": ""}),
    "a stranger looks": ("client", {"list": "eve"}),
    "nobody looks": ("client", {"list": ""}),
    "a login that maps to nobody discards": ("operator", {"discard": "op"}),
}


@pytest.mark.clause("E12a", "E12c", "I3a")
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize(("access", "call"), DENIED.values(), ids=DENIED.keys())
def test_who_may_not_is_told_one_thing_and_holds_nothing(
    as_login: As, own: Box, db: DictConnection, access: str, call: dict[str, str], missing: bool
) -> None:
    own.put("a")
    other = as_login(access)
    if missing:
        other.id = "nowhere"
    ((verb, who),) = call.items()
    before = own.k.everything()
    with other.k.connection.transaction():
        if verb == "send":
            row = other.send("a", who=who)
        elif verb == "discard":
            row = other.discard("a", who=who)
        else:
            (row,) = other.k.calls("list_inbox", other.id, who)
        db.execute("select from underseal.execution for update nowait")
    (told,) = own.k.rows("select * from underseal._execution_denied()")
    assert {name: row[name] for name in told} == told
    assert all(value is None for name, value in row.items() if name not in told)
    after = own.k.everything()
    assert {name for name in before if before[name] != after[name]} == {"execution_denial"}
    (denial,) = own.k.rows("select op from underseal.execution_denial")
    assert denial["op"] == {"send": "send", "list": "read", "discard": "discard"}[verb]


@pytest.mark.clause("E12c", "G13")
def test_who_may_not_send_is_not_told_what_is_wrong_with_the_message(own: Box) -> None:
    assert outcome(own.send("$bad", '{"__loomEnc": "x"}', who="eve")) == ("denied", "execution")


@pytest.mark.clause("E12b")
def test_no_operator_sends(as_login: As) -> None:
    operator = as_login("operator", mapped="op")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        operator.send("a")


@pytest.mark.clause("I3a", "I3b", "E13a", "E13b")
def test_an_operator_discards_under_the_name_its_login_is_mapped_to(as_login: As, own: Box) -> None:
    operator = as_login("operator", mapped="olga")
    own.put("a")
    own.put("a")
    assert outcome(operator.discard("a", who="somebody")) == ("denied", "execution")
    row = operator.k.call("discard_inbox", own.id, "a", None, "because", 1)
    assert row["discarded"] == 1
    assert operator.discard("a", who="olga")["discarded"] == 1
    assert [fact["operator"] for fact in own.facts()] == ["olga", "olga"]


@pytest.mark.clause("I3a", "E12b")
def test_an_owner_does_not_discard(as_login: As, own: Box) -> None:
    own.put("a")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        as_login("client").discard("a", who=OWNER)


@pytest.mark.clause("I3a", "E12a", "E12d")
@pytest.mark.parametrize("anything_goes", [False, True])
def test_the_name_of_a_client_discards_nothing(
    as_login: As, own: Box, db: DictConnection, policy: Callable[[str], None], anything_goes: bool
) -> None:
    own.put("a")
    both = as_login("operator", mapped="olga")
    role = both.k.value("select session_user::text")
    db.execute("select underseal.grant_access(%s, 'client')", [role])
    if anything_goes:
        policy("")
    assert both.put("a", who=OWNER) == 2
    assert outcome(both.discard("a", who=OWNER)) == ("denied", "execution")
    assert both.discard("a", who="olga")["discarded"] == 2


LATER = {
    "send": lambda b: b.send("a"),
    "discard": lambda b: b.discard("a"),
}


@pytest.mark.clause("E12c", "E12d")
@pytest.mark.parametrize("act", LATER.values(), ids=LATER.keys())
def test_what_was_judged_is_what_is_locked(
    database: TestDatabase,
    own: Box,
    admin: DictConnection,
    policy: Callable[[str], None],
    act: Callable[[Box], Any],
) -> None:
    """Between the judgement and the lock the execution is deleted, and its id taken by somebody else."""
    policy("perform pg_advisory_xact_lock(42);")
    mine = own.on(Kernel(database.connect(OWNING), own.k.clock))
    own.write("cancelled")
    with admin.transaction():
        admin.execute("select pg_advisory_xact_lock(42)")
        waiting = in_background(act, mine)
        wait_blocked(database.connect(), mine.k.connection.info.backend_pid)
        own.k.do("delete from underseal.execution where chain_id = %s", own.chain)
        Box(own.k, own.id, owner="eve").start().put_as("eve", "x")
    assert outcome(waiting.result(10)) == ("denied", "execution")
    assert own.pending() == [1]


CALLS = {
    "send": ("x", "a", None, OWNER),
    "next_message": ("x", 1),
    "consume_message": ("x", 1, "w", "a", 1, b"k"),
    "deliver": ("x", 1),
    "discard_inbox": ("x", "a", "op"),
    "expire_inbox": (),
}


@pytest.mark.parametrize("verb", CALLS)
def test_what_locks_and_judges_refuses_another_isolation_level(own: Box, verb: str) -> None:
    own.k.connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    places = ", ".join(["%s"] * len(CALLS[verb]))
    own.k.refused("US008", f"select from underseal.{verb}({places})", *CALLS[verb])
