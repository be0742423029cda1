"""Who may do what with an execution, and what a denial tells: nothing (clause E12)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.log.logs import FLOW, OPENS, Logs
from underseal.testing import OWNER, DictConnection, TestClock, TestDatabase

OPS = (
    "read",
    "send",
    "resume",
    "cancel",
    "migrate",
    "fork",
    "outcome",
    "discard",
    "compact",
    "delete",
    "fly",
)
OWNERS = {"read", "send", "resume", "cancel", "migrate", "fork", "outcome"}
OPERATORS = {"read", "cancel", "migrate", "fork", "outcome", "discard", "compact", "delete"}
SCHEMA_OWNERS = {"discard", "compact", "delete"}
Hook = Callable[..., str]


@pytest.fixture
def own(db: DictConnection) -> Logs:
    """The schema's owner, with an execution each of ann's, of bob's and of nobody's."""
    logs = Logs(db)
    logs.start("of-ann", steps=2)
    logs.start("of-bob", owner="bob")
    logs.orphan("of-nobody")
    return logs


@pytest.fixture
def login(database: TestDatabase, db: DictConnection) -> Callable[..., Logs]:
    """Make a login with accesses and log in as it."""

    def make(*accesses: str, principal: str | None = None, mapped: str | None = None) -> Logs:
        role = database.create_role("login")
        for access in accesses:
            db.execute("select underseal.grant_access(%s, %s, %s)", [role, access, principal])
        if mapped is not None:
            db.execute("select underseal.map_login(%s, %s)", [role, mapped])
        return Logs(database.connect(role))

    return make


@pytest.fixture
def hook(database: TestDatabase, db: DictConnection, admin: DictConnection) -> Hook:
    """Make a policy of the host's and set it."""

    def make(body: str, volatility: str = "volatile") -> str:
        host = database.create_role("host")
        admin.execute("create schema host")
        admin.execute(f"grant usage on schema host to {OWNER}")
        admin.execute(
            f"""create function host.may(op text, principal text, owner text, execution_id text, flow text)
                returns boolean language plpgsql {volatility} security definer as $$ begin {body} end $$"""
        )
        admin.execute(f'alter function host.may owner to "{host}"')
        admin.execute(f'grant usage, create on schema host to "{host}"')
        db.execute("select underseal.set_access_policy('host.may(text,text,text,text,text)')")
        return host

    return make


def allowed(logs: Logs, owner: Logs, execution_id: str, principal: str | None) -> set[str]:
    """The operations that a login may do, asked through a function that any login may call."""
    owner.rows(
        """create or replace function underseal.ask(op text, execution_id text, principal text) returns boolean
           language sql volatile security definer
           as $$
             select a.allowed from underseal._allowed(op, execution_id, principal, '{client,operator,worker}') a $$"""
    )
    owner.rows("grant execute on function underseal.ask to public; grant usage on schema underseal to public")
    return {op for op in OPS if logs.value("select underseal.ask(%s, %s, %s)", op, execution_id, principal)}


@pytest.mark.clause("E12b", "E12c")
def test_an_owner_may_act_and_nobody_else(own: Logs, login: Callable[..., Logs]) -> None:
    service = login("client")
    assert allowed(service, own, "of-ann", "ann") == OWNERS
    for execution_id in ("of-ann", "of-nobody", "missing", "of-ann~2", "", "~", "of-ann~"):
        assert allowed(service, own, execution_id, "mallory") == set()
    assert allowed(service, own, "of-bob", "ann") == set()


@pytest.mark.clause("E12a")
def test_nobody_is_named_by_null_or_nothing(own: Logs, login: Callable[..., Logs]) -> None:
    service = login("client")
    for nobody in (None, ""):
        for execution_id in ("of-ann", "of-nobody", "missing"):
            assert allowed(service, own, execution_id, nobody) == set()
    assert set(own.causes()) == {"no-principal"}


@pytest.mark.clause("E12a", "E13b")
def test_a_login_that_is_bound_acts_for_itself_alone(own: Logs, login: Callable[..., Logs]) -> None:
    ann = login("client", principal="login", mapped="ann")
    assert allowed(ann, own, "of-ann", "ann") == OWNERS
    assert allowed(ann, own, "of-ann", None) == OWNERS
    assert allowed(ann, own, "of-bob", "bob") == set()
    unmapped = login("client", principal="login")
    assert allowed(unmapped, own, "of-ann", "ann") == set()


@pytest.mark.clause("E12a", "E12b", "I3a")
def test_an_operator_looks_and_clears_up_but_answers_for_nobody(
    own: Logs, login: Callable[..., Logs]
) -> None:
    operator = login("operator", mapped="olga")
    for execution_id in ("of-ann", "of-nobody"):
        assert allowed(operator, own, execution_id, "olga") == OPERATORS
        assert allowed(operator, own, execution_id, "ann") == set()
    assert allowed(operator, own, "missing", "olga") == set()
    own.start("of-olga", owner="olga")
    assert allowed(operator, own, "of-olga", "olga") == OPERATORS | OWNERS


@pytest.mark.clause("E12a", "E13b")
def test_a_service_whose_login_is_an_operator_names_no_other_operators(
    own: Logs, login: Callable[..., Logs], db: DictConnection
) -> None:
    service = login("client")
    role = service.value("select session_user::text")
    db.execute("select underseal.grant_access(%s, 'operator')", [role])
    db.execute("select underseal.map_login(%s, 'olga')", [role])
    assert allowed(service, own, "of-bob", "olga") == OPERATORS
    assert allowed(service, own, "of-bob", "ann") == set()
    assert allowed(service, own, "of-bob", "bob") == OWNERS
    listed = [len(service.calls("list_executions", who)) for who in ("olga", "ann", "bob", "zoe")]
    assert listed == [3, 1, 1, 0]


@pytest.mark.clause("E12a", "E12b")
def test_the_owner_of_the_schema_is_an_operator_only_where_operators_alone_are_asked(own: Logs) -> None:
    assert allowed(own, own, "of-ann", "mallory") == SCHEMA_OWNERS
    assert allowed(own, own, "of-ann", "ann") == OWNERS | SCHEMA_OWNERS


@pytest.mark.clause("E14c")
def test_what_the_system_reads_for_itself_asks_no_principal(
    own: Logs, login: Callable[..., Logs], hook: Hook
) -> None:
    hook("return false;")
    for system in (login("worker"), login("worker", principal="login", mapped="wanda"), own):
        for execution_id in ("of-ann", "of-nobody"):
            assert system.call("get_execution", execution_id, None)["outcome"] == "found"
            assert allowed(system, own, execution_id, None) == {"read"}
        assert system.call("get_execution", "missing", None)["outcome"] == "denied"
        assert len(system.calls("list_executions", None)) == 3
        assert own.causes()[0] == "missing"
    for other in (login("client"), login("operator", mapped="olga")):
        assert other.call("get_execution", "of-ann", None)["outcome"] == "denied"


@pytest.mark.clause("E12c", "E14a")
def test_a_denial_moves_no_head_and_writes_no_event(own: Logs, login: Callable[..., Logs]) -> None:
    service = login("client")
    before = own.rows("select * from underseal.execution order by chain_id")
    for execution_id in ("of-ann", "of-nobody", "missing"):
        allowed(service, own, execution_id, "mallory")
    assert own.rows("select * from underseal.execution order by chain_id") == before
    assert own.value("select count(*) from underseal.event") == 5


# -- what a denial leaves -------------------------------------------------------------------------------

TRACE = """
  select c.relname as name, pg_stat_get_xact_numscans(c.oid) as scans,
    pg_stat_get_xact_tuples_returned(c.oid) as returned,
    pg_stat_get_xact_tuples_fetched(c.oid) as fetched, pg_stat_get_xact_tuples_inserted(c.oid) as inserted,
    pg_stat_get_xact_tuples_updated(c.oid) as updated, pg_stat_get_xact_tuples_deleted(c.oid) as deleted
  from pg_class c where c.relnamespace = 'underseal'::regnamespace and c.relkind in ('r', 'i', 'S')
  order by 1
"""
LOCKS = """
  select l.locktype, l.relation::regclass::text as relation, l.mode, l.granted,
    l.page is not null or l.tuple is not null as of_a_row, l.virtualxid is null as other
  from pg_locks l
  where l.pid = pg_backend_pid() and l.relation is distinct from 'pg_locks'::regclass
  order by l::text
"""


def trace(
    database: TestDatabase, execution_id: str, principal: str, call: str, role: str = OWNER
) -> list[Any]:
    """All that a denied caller can observe of a call in a transaction of its own."""
    with psycopg.connect(database.conninfo_as(role), row_factory=psycopg.rows.dict_row) as connection:
        before = connection.execute(TRACE).fetchall()
        answer = connection.execute(call, [execution_id, principal]).fetchall()
        after = connection.execute(TRACE).fetchall()
        locks = connection.execute(LOCKS).fetchall()
        numbered = connection.execute(
            "select pg_current_xact_id_if_assigned() is not null as numbered"
        ).fetchall()
        connection.rollback()
    assert {row["outcome"] for row in answer} == {"denied"}
    counted = [
        {name: after_row[name] - before_row[name] for name in after_row if name != "name"}
        | {"of": after_row["name"]}
        for before_row, after_row in zip(before, after, strict=True)
    ]
    for lock in locks:
        lock.pop("other")
    return [answer, counted, sorted(map(str, locks)), numbered]


@pytest.mark.clause("E12c", "M8")
@pytest.mark.parametrize("analysed", [False, True])
@pytest.mark.parametrize(
    "call",
    [
        "select * from underseal.read_events(%s, %s)",
        "select * from underseal.get_execution(%s, %s)",
        """select d.outcome, a.allowed
           from underseal._allowed('cancel', %s, %s, '{client}') a, underseal._execution_denied() d""",
    ],
)
def test_denials_are_alike_in_everything_the_caller_can_observe(
    own: Logs, database: TestDatabase, call: str, analysed: bool
) -> None:
    own.start("a-first", "zz-last", owner="bob", steps=3)
    own.start("sealed", steps=1)
    own.seal("sealed")
    if analysed:
        # plans for tables of a page each
        own.rows("analyze underseal.execution; analyze underseal.event; analyze underseal.execution_denial")
    traces = {
        (execution_id, principal): trace(database, execution_id, principal, call)
        for execution_id in (
            "of-ann",
            "of-nobody",
            "of-bob",
            "zz-last",
            "missing",
            "00",
            "zzz",
            "of-ann~2",
            "sealed",
        )
        for principal in ("mallory",)
    }
    if "read_events" in call:
        traces["sealed", "ann"] = trace(database, "sealed", "ann", call)
    usual = traces["missing", "mallory"]
    assert usual[1] != []
    for whose, found in traces.items():
        assert found == usual, whose


@pytest.mark.clause("E12c", "M8")
def test_a_control_for_the_traces(own: Logs, database: TestDatabase) -> None:
    """They would show one more row that was read, one more scan, a lock on a row and a second row written."""
    call = "select * from underseal.get_execution(%s, %s)"
    usual = trace(database, "missing", "mallory", call)
    for more in (
        "lateral (select from underseal.execution x where x.chain_id = 'of-ann') more",
        "lateral (select from underseal.fence_floor x limit 1) more right join (values (1)) one on true",
        "underseal._record_denial('read', 'x', 'y', 'missing', true) more",
    ):
        assert trace(database, "missing", "mallory", f"{call} g, {more}") != usual


@pytest.mark.clause("E12c", "M8")
def test_every_denial_leaves_one_row_with_its_cause_for_operators(
    own: Logs, login: Callable[..., Logs]
) -> None:
    own.start("sealed")
    own.seal("sealed")
    service, bound = login("client"), login("client", principal="login", mapped="ann")
    operator, reader = login("operator", mapped="olga"), login("reader")
    asked = [
        (service, "missing", "ann", "ann", "missing"),
        (service, "of-bob", "ann", "ann", "foreign"),
        (service, "of-nobody", "ann", "ann", "unknown-owner"),
        (service, "sealed", "ann", "ann", "sealed"),
        (bound, "of-bob", "bob", None, "no-principal"),
    ]
    answers = [logs.calls("read_events", execution_id, who) for logs, execution_id, who, _, _ in asked]
    assert all(answer == answers[0] for answer in answers)
    found = operator.rows("select op, execution_id, principal, cause from underseal.execution_denials")
    assert [tuple(row.values()) for row in reversed(found)] == [("read", a[1], a[3], a[4]) for a in asked]
    for other in (service, reader):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            other.rows("select * from underseal.execution_denials")


def test_a_denial_keeps_no_more_than_the_first_characters(own: Logs) -> None:
    assert own.call("get_execution", "x" * 5000, "y" * 400)["outcome"] == "denied"
    assert own.call("get_execution", None, "mallory")["outcome"] == "denied"
    null, long = own.rows("select execution_id, principal from underseal.execution_denials")
    assert (len(long["execution_id"]), len(long["principal"])) == (400, 400)
    assert null == {"execution_id": "", "principal": "mallory"}


@pytest.mark.clause("E12c")
def test_a_denial_takes_no_lock_and_waits_for_none(own: Logs, database: TestDatabase) -> None:
    other = Logs(database.connect(OWNER, options="-c lock_timeout=2s"))
    with own.connection.transaction():
        own.rows("select from underseal.execution for update")
        assert other.call("get_execution", "of-ann", "mallory")["outcome"] == "denied"
        assert len(other.calls("read_events", "of-ann", "ann")) == 3
    with own.connection.transaction():
        assert own.call("get_execution", "of-ann", "mallory")["outcome"] == "denied"
        assert len(other.rows("select 1 from underseal.execution for update nowait")) == 3


def test_denials_are_kept_for_thirty_days(own: Logs, clock: TestClock, login: Callable[..., Logs]) -> None:
    for number in range(5):
        own.call("get_execution", f"m{number}", "ann")
        clock.advance(days=1)
    clock.advance(days=28)
    worker = login("worker")
    # the first three are 33, 32 and 31 days old
    assert worker.call("sweep_denials", 2)["swept"] == 2
    assert login("operator").call("sweep_denials")["swept"] == 1
    assert own.call("sweep_denials") == {
        "outcome": "swept", "reason": None, "message": "0 denials older than 30 days are gone.", "swept": 0,
    }  # fmt: skip
    left = [row["execution_id"] for row in own.rows("select execution_id from underseal.execution_denials")]
    assert left == ["m4", "m3"]
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        login("client").call("sweep_denials")


def test_sweepers_pass_each_other_by(own: Logs, clock: TestClock, database: TestDatabase) -> None:
    for number in range(4):
        own.call("get_execution", f"m{number}", "ann")
    clock.advance(days=31)
    other = Logs(database.connect(OWNER, options="-c lock_timeout=2s"))
    with own.connection.transaction():
        assert own.call("sweep_denials", 2)["swept"] == 2
        assert other.call("sweep_denials", 3)["swept"] == 1
    assert other.call("sweep_denials")["swept"] == 1


# -- a policy of the host's -----------------------------------------------------------------------------


@pytest.mark.clause("E12d", "E15a")
def test_the_policy_is_replaceable(own: Logs, login: Callable[..., Logs], hook: Hook) -> None:
    hook(
        "return op in ('read', 'send') and principal = 'zoe' or flow = 'other' or owner is null and principal = 'zoe';"
    )
    service, operator = login("client"), login("operator", mapped="olga")
    own.start("elsewhere", flow="other")
    assert allowed(service, own, "of-ann", "zoe") == {"read", "send"}
    assert allowed(service, own, "of-ann", "ann") == set()
    assert allowed(operator, own, "of-ann", "olga") == set()
    assert allowed(service, own, "elsewhere", "ann") == set(OPS)
    assert allowed(service, own, "of-nobody", "zoe") == set(OPS)
    assert set(own.causes()) == {"policy-hook"}
    # what is missing is denied whatever the policy says
    assert allowed(service, own, "missing", "zoe") == set()
    listed = {row["execution_id"] for row in service.calls("list_executions", "zoe")}
    assert listed == {"of-ann", "of-bob", "of-nobody", "elsewhere"}
    assert own.call("set_access_policy", None)["outcome"] == "unset"
    assert allowed(service, own, "of-ann", "ann") == OWNERS
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        service.call("set_access_policy", None)


@pytest.mark.clause("E12d")
def test_the_policy_is_told_what_is_asked_and_asked_of_what_is_missing(
    own: Logs, hook: Hook, admin: DictConnection
) -> None:
    hook("insert into host.asked values (op, principal, owner, execution_id, flow); return true;")
    admin.execute(
        "create table host.asked (op text, principal text, owner text, execution_id text, flow text)"
    )
    admin.execute("grant all on host.asked to public")
    own.call("get_execution", "of-ann", "mallory")
    own.call("get_execution", "missing", "mallory")
    asked = [tuple(row.values()) for row in admin.execute("select * from host.asked").fetchall()]
    assert asked == [("read", "mallory", "ann", "of-ann", FLOW), ("read", "mallory", None, "missing", None)]


@pytest.mark.clause("E15b", "E15c")
@pytest.mark.parametrize("body", ["return null;", "raise 'no';", "return 1 / 0 = 1;"])
def test_a_policy_that_fails_denies(own: Logs, hook: Hook, body: str) -> None:
    hook(body)
    assert own.call("get_execution", "of-ann", "ann")["outcome"] == "denied"
    assert own.calls("list_executions", "ann") == []


@pytest.mark.clause("E15b")
def test_a_policy_never_has_our_rights(own: Logs, hook: Hook, admin: DictConnection) -> None:
    hook(f"return current_user <> '{OWNER}' or execution_id = 'of-bob';")
    for execution_id in ("of-ann", "of-bob"):
        assert own.call("get_execution", execution_id, "zoe")["outcome"] == "found"
    # whoever owns it later is looked at before every call
    admin.execute(f"alter function host.may owner to {OWNER}")
    for execution_id in ("of-ann", "of-bob"):
        assert own.call("get_execution", execution_id, "zoe")["outcome"] == "denied"


@pytest.mark.clause("E15a")
def test_a_policy_is_looked_at_before_it_is_set(own: Logs, hook: Hook, admin: DictConnection) -> None:
    host = hook("return true;")
    admin.execute("create function host.few(text) returns boolean security definer return true")
    admin.execute(f'alter function host.few owner to "{host}"')
    admin.execute(
        "create function host.word(text, text, text, text, text) returns text security definer return 'yes'"
    )
    admin.execute(f'alter function host.word owner to "{host}"')
    admin.execute(
        "create function host.ours(text, text, text, text, text) returns boolean security definer return true"
    )
    admin.execute("create schema closed")
    admin.execute("create function closed.may(text,text,text,text,text) returns boolean return true")
    for wrong in (
        "closed.may(text,text,text,text,text)",
        "host.few(text)",
        "host.word(text,text,text,text,text)",
        "host.ours(text,text,text,text,text)",
        "host.absent(text,text,text,text,text)",
    ):
        with pytest.raises(psycopg.Error) as caught:
            own.call("set_access_policy", wrong)
        assert caught.value.sqlstate == "US011", wrong
    assert own.call("get_execution", "of-ann", "zoe")["outcome"] == "found"


# -- what a marker opens to -----------------------------------------------------------------------------


@pytest.mark.clause("M3", "M16")
@pytest.mark.parametrize(
    ("marker", "capability", "opens"),
    [
        (None, None, True),
        (None, {}, True),
        ({"v": 1, "cipher": "c", "covers": ["A.x"]}, None, False),
        ({"v": 1, "cipher": "c", "covers": ["A.x"]}, {}, False),
        ({"v": 1, "cipher": "c", "covers": ["A.x"]}, {"ciphers": ["c"], "covers": ["A.x"]}, True),
        ({"v": 1, "cipher": "c", "covers": ["A.x"]}, {"ciphers": ["b", "c"], "covers": ["B.y", "A.x"]}, True),
        ({"v": 1, "cipher": "c", "covers": ["A.x", "B.y"]}, {"ciphers": ["c"], "covers": ["A.x"]}, False),
        ({"v": 1, "cipher": "c", "covers": ["A.x"]}, {"ciphers": ["b"], "covers": ["A.x"]}, False),
        ({"v": 1, "cipher": "c", "covers": ["A.x"]}, {"ciphers": "c", "covers": ["A.x"]}, False),
        ({"v": 1, "cipher": "c", "covers": ["A.x"]}, {"ciphers": {"c": 1}, "covers": ["A.x"]}, False),
        ({"v": 1, "cipher": "c", "covers": ["A.x"]}, {"ciphers": ["c"], "covers": "A.x"}, False),
        ({"v": 1, "cipher": "c", "covers": ["A.x"]}, [], False),
        ({"v": 2, "cipher": "c", "covers": ["A.x"]}, {"ciphers": ["c"], "covers": ["A.x"]}, False),
        ({"v": "1", "cipher": "c", "covers": ["A.x"]}, {"ciphers": ["c"], "covers": ["A.x"]}, False),
        ({"cipher": "c", "covers": ["A.x"]}, {"ciphers": ["c"], "covers": ["A.x"]}, False),
        ({"v": 1, "covers": ["A.x"]}, {"ciphers": ["c"], "covers": ["A.x"]}, False),
        ({"v": 1, "cipher": ["c"], "covers": ["A.x"]}, {"ciphers": ["c"], "covers": ["A.x"]}, False),
        ({"v": 1, "cipher": "c"}, {"ciphers": ["c"], "covers": ["A.x"]}, False),
        ({"v": 1, "cipher": "c", "covers": []}, {"ciphers": ["c"], "covers": ["A.x"]}, False),
        ({"v": 1, "cipher": "c", "covers": "A.x"}, {"ciphers": ["c"], "covers": ["A.x"]}, False),
        ("c", {"ciphers": ["c"], "covers": ["A.x"]}, False),
    ],
)
def test_what_opens_a_marker(db: DictConnection, marker: object, capability: object, opens: bool) -> None:
    given = [None if value is None else Jsonb(value) for value in (marker, capability)]
    assert Logs(db).value("select underseal.seal_opens(%s, %s)", *given) is opens


@pytest.mark.clause("M3")
def test_a_null_in_place_of_a_marker_opens_for_nobody(db: DictConnection) -> None:
    assert Logs(db).value("select underseal.seal_opens('null'::jsonb, %s)", Jsonb(OPENS)) is False
