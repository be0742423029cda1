"""Registering what may be held, and under which policy."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.held.sql.kernel import PLAIN_SCHEMA, SCHEMA, TYPE, Kernel, outcome

FUNCTIONS = """
create schema app;
create function app.estimate(params jsonb, principal text) returns jsonb language sql as $$ select '{}'::jsonb $$;
create function app.check_run(params jsonb, principal text) returns text language sql as $$ select null::text $$;
create function app.run(params jsonb, principal text) returns jsonb language sql as $$ select '{}'::jsonb $$;
create function app.run_anew(params jsonb, principal text) returns jsonb language sql as $$ select '{}'::jsonb $$;
create function app.turned(principal text, params jsonb) returns jsonb language sql as $$ select '{}'::jsonb $$;
create function app.three(params jsonb, principal text, more text) returns jsonb language sql as 'select params';
create function app.says_text(params jsonb, principal text) returns text language sql as $$ select '' $$;
create function app.many(params jsonb, principal text) returns setof jsonb language sql as $$ select '{}'::jsonb $$;
"""


def test_a_type_is_registered_armed_and_in_force(bare: Kernel) -> None:
    answer = bare.register()
    (found,) = bare.calls("list_operation_types")
    assert outcome(answer) == ("registered", None)
    assert (found["armed"], found["current"], found["salted"], found["mode"]) == (
        True,
        True,
        True,
        "ON_APPROVAL",
    )
    assert (
        found["policy_digest"] == answer["policy_digest"] == hashlib.sha256(found["policy"].encode()).digest()
    )
    assert json.loads(found["policy"]) == {
        "approvers": ["bob", "carol"],
        "hold_for": 3600,
        "rejections_to_end": 1,
        "run_within": 7200,
        "votes_required": 1,
    }


def test_the_policy_text_is_canonical_whatever_order_it_came_in(bare: Kernel) -> None:
    bare.register("a", approvers=["carol", "bob", "carol"])
    bare.register("b", approvers=["bob", "carol"], votes_required=1, rejections_to_end=1)
    one, other = bare.calls("list_operation_types")
    assert one["policy"] == other["policy"]
    assert one["policy"] == bare.value("select underseal.canonical_json(%s)", one["policy"])


def test_the_same_again_changes_nothing(k: Kernel) -> None:
    before = k.everything()
    assert outcome(k.register()) == ("unchanged", None)
    assert k.everything() == before


def test_a_changed_policy_is_taken_and_has_another_digest(k: Kernel) -> None:
    before = k.digest()
    answer = k.register(votes_required=2, run_within=60)
    assert outcome(answer) == ("updated", None)
    assert answer["policy_digest"] == k.digest() != before


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("votes_required", 2),
        ("rejections_to_end", 2),
        ("approvers", ["bob"]),
        ("hold_for", 60),
        ("run_within", 60),
    ],
)
def test_every_member_of_a_policy_is_in_its_digest(k: Kernel, member: str, value: Any) -> None:
    before = k.digest()
    assert outcome(k.register(**{member: value})) == ("updated", None)
    assert k.digest() != before


@pytest.mark.parametrize(
    "change",
    [
        {"mode": "BY_REQUESTER"},
        {"parameters": {**SCHEMA, "title": "another"}},
        {"salted": True, "parameters": PLAIN_SCHEMA},
    ],
    ids=["mode", "parameters", "salted"],
)
def test_a_registered_version_is_frozen(bare: Kernel, change: dict[str, Any]) -> None:
    bare.register(parameters=change.get("parameters", SCHEMA) if "salted" in change else SCHEMA)
    before = bare.everything()
    assert outcome(bare.register(**change)) == ("refused", "version-frozen")
    assert bare.everything() == before
    assert outcome(bare.register(version=2, **change)) == ("registered", None)


def test_the_highest_version_is_in_force(k: Kernel) -> None:
    k.register(version=3)
    k.register(version=2)
    assert [(t["version"], t["current"]) for t in k.calls("list_operation_types")] == [
        (1, False),
        (2, False),
        (3, True),
    ]


BAD_POLICIES: dict[str, dict[str, Any]] = {
    "no-votes": {"votes_required": 0},
    "negative-votes": {"votes_required": -1},
    "half-a-vote": {"votes_required": 1.5},
    "votes-as-bool": {"votes_required": True},
    "more-votes-than-approvers": {"votes_required": 3},
    "more-votes-than-distinct-approvers": {"votes_required": 2, "approvers": ["bob", "bob"]},
    "no-rejections": {"rejections_to_end": 0},
    "no-time-to-decide": {"hold_for": 0},
    "no-time-to-run": {"run_within": 0},
    "without-hold-for": {"hold_for": ...},
    "without-run-within": {"run_within": ...},
    "hold-for-null": {"hold_for": None},
    "hold-for-more-than-a-year": {"hold_for": 365 * 86400 + 1},
    "run-within-more-than-a-year": {"run_within": 365 * 86400 + 1},
    "nobody": {"approvers": ...},
    "nobody-by-null": {"approvers": None},
    "an-empty-list": {"approvers": []},
    "a-name-alone": {"approvers": "bob"},
    "an-empty-name": {"approvers": ["bob", ""]},
    "a-number-among-the-names": {"approvers": ["bob", 7]},
    "null-among-the-names": {"approvers": ["bob", None]},
    "an-unknown-member": {"self_approval": True},
    "a-hook-that-is-not-there": {"approver_hook": "app.nothing"},
}


@pytest.mark.parametrize("change", BAD_POLICIES.values(), ids=BAD_POLICIES.keys())
def test_a_flawed_policy_is_refused(bare: Kernel, change: dict[str, Any]) -> None:
    before = bare.everything()
    answer = bare.register(**change)
    assert outcome(answer) == ("refused", "policy")
    assert answer["message"].startswith("Policy of account.close: expected ")
    if ... in change.values() and "approvers" not in change:
        assert answer["message"].endswith("expected hold_for and run_within, in seconds.")
    assert bare.everything() == before


@pytest.mark.parametrize("policy", [[], "x", 1, None], ids=str)
def test_a_policy_is_an_object(bare: Kernel, policy: Any) -> None:
    answer = bare.call("register_operation_type", TYPE, 1, "ON_APPROVAL", Jsonb(SCHEMA), Jsonb(policy), False)
    assert outcome(answer) == ("refused", "policy")


@pytest.mark.clause("H1.5a")
@pytest.mark.parametrize(
    "schema",
    [
        {"type": "number"},
        {"type": "array", "items": {"type": "number"}},
        {"anyOf": [{"type": "number"}, {"type": "null"}]},
    ],
    ids=["member", "element", "nullable"],
)
def test_parameters_that_admit_a_float_are_refused(bare: Kernel, schema: dict[str, Any]) -> None:
    parameters = {"type": "object", "properties": {"amount": schema}, "additionalProperties": False}
    assert outcome(bare.register(parameters=parameters)) == ("refused", "parameters")
    assert bare.calls("list_operation_types") == []
    parameters["properties"] = {"amount": {"type": "integer"}}
    assert outcome(bare.register(parameters=parameters)) == ("registered", None)


@pytest.mark.clause("H1.7a")
def test_a_type_that_hides_a_member_is_salted_whatever_it_says(bare: Kernel) -> None:
    bare.register("hides", parameters=SCHEMA, salted=False)
    bare.register("shows", parameters=PLAIN_SCHEMA, salted=False)
    bare.register("redacts", parameters=PLAIN_SCHEMA, salted=True)
    assert {t["type"]: t["salted"] for t in bare.calls("list_operation_types")} == {
        "hides": True,
        "shows": False,
        "redacts": True,
    }


def test_only_the_known_modes_are_taken(bare: Kernel) -> None:
    with pytest.raises(psycopg.errors.CheckViolation):
        bare.register(mode="LATER")


def register_sql(
    bare: Kernel, *functions: str | None, parameters: Any = PLAIN_SCHEMA, **policy: Any
) -> dict[str, Any]:
    wanted = {"approvers": ["bob"], "hold_for": 60, "run_within": 60, **policy}
    return bare.call(
        "register_sql_operation", "sql.close", 1, Jsonb(parameters), Jsonb(wanted), *functions, ["23505"]
    )


GOOD = ("app.estimate(jsonb,text)", "app.check_run(jsonb,text)", "app.run(jsonb,text)")


@pytest.fixture
def app(bare: Kernel) -> Kernel:
    with bare.login(None):
        bare.do(FUNCTIONS)
        bare.do("grant usage on schema app to public")
    return bare


@pytest.mark.clause("H6.10a")
def test_sql_functions_are_a_provider(app: Kernel) -> None:
    assert outcome(register_sql(app, *GOOD)) == ("registered", None)
    (found,) = app.calls("list_operation_types")
    assert (found["mode"], found["salted"], found["safe_sqlstates"]) == ("ON_APPROVAL", False, ["23505"])
    assert (found["sql_estimate"], found["sql_check_run"], found["sql_run"]) == GOOD
    assert outcome(register_sql(app, *GOOD)) == ("unchanged", None)
    assert outcome(register_sql(app, *GOOD, hold_for=61)) == ("updated", None)
    other = (*GOOD[:2], "app.run_anew(jsonb,text)")
    assert outcome(register_sql(app, *other)) == ("refused", "version-frozen")


@pytest.mark.clause("H6.10a")
def test_a_sql_provider_with_a_secret_parameter_is_refused(app: Kernel) -> None:
    assert outcome(register_sql(app, *GOOD, parameters=SCHEMA)) == ("refused", "secret-parameters")
    assert app.calls("list_operation_types") == []


@pytest.mark.parametrize(
    ("place", "function"),
    [
        (0, None),
        (1, None),
        (2, None),
        (0, "app.turned(text,jsonb)"),
        (0, "app.three(jsonb,text,text)"),
        (0, "app.says_text(jsonb,text)"),
        (1, "app.run(jsonb,text)"),
        (2, "app.says_text(jsonb,text)"),
        (2, "app.many(jsonb,text)"),
    ],
)
def test_functions_of_another_signature_are_refused(app: Kernel, place: int, function: str | None) -> None:
    given: list[str | None] = list(GOOD)
    given[place] = function
    assert outcome(register_sql(app, *given)) == ("refused", "signature")
    assert app.calls("list_operation_types") == []


@pytest.mark.clause("E15d")
def test_no_function_of_the_kernel_calls_a_provider(bare: Kernel) -> None:
    bodies = bare.rows(
        "select p.proname as name, p.prosrc as body from pg_proc p where p.pronamespace = 'underseal'::regnamespace"
    )
    executing = {body["name"] for body in bodies if "execute " in body["body"].lower()}
    # The grants and the four hooks build SQL; nothing else does, and none of them reads a provider's columns.
    assert executing == {
        "_grant", "revoke_access", "_ask_approver_hook", "_ask_access_hook", "_tell_denial", "role_of",
    }  # fmt: skip
    assert not any("sql_run" in b["body"] for b in bodies if b["name"] in executing)


def test_a_type_is_switched_off_and_on(k: Kernel) -> None:
    assert outcome(k.call("set_armed", TYPE, 1, False)) == ("set", None)
    assert [t["armed"] for t in k.calls("list_operation_types")] == [False]
    k.register(votes_required=2)
    assert [t["armed"] for t in k.calls("list_operation_types")] == [False]
    assert outcome(k.call("set_armed", TYPE, 1, True)) == ("set", None)
    assert [t["armed"] for t in k.calls("list_operation_types")] == [True]
    assert outcome(k.call("set_armed", TYPE, 2, True)) == ("not-found", None)
    assert outcome(k.call("set_armed", "other", 1, True)) == ("not-found", None)


@pytest.mark.parametrize("role", ["origin", "replica"])
def test_the_table_keeps_a_version_as_it_was_registered(k: Kernel, role: str) -> None:
    with k.login(None, role):
        for change in (
            "type = 'other'",
            "version = 2",
            "mode = 'BY_REQUESTER'",
            'parameters = \'{"type":"object","properties":{},"additionalProperties":false}\'',
            "salted = false",
        ):
            k.refused("US003", f"update underseal.operation_type set {change}")


def test_the_table_keeps_each_function_of_a_sql_provider(app: Kernel) -> None:
    register_sql(app, *GOOD)
    for column in ("sql_estimate", "sql_check_run", "sql_run"):
        app.refused("US003", f"update underseal.operation_type set {column} = 'app.other(jsonb,text)'")


@pytest.mark.parametrize("role", ["origin", "replica"])
def test_the_table_keeps_its_rows(k: Kernel, role: str) -> None:
    with k.login(None, role):
        k.refused("US007", "delete from underseal.operation_type")
        k.refused("US004", "truncate underseal.operation_type")


@pytest.mark.clause("H1.5a")
@pytest.mark.parametrize("role", ["origin", "replica"])
def test_the_table_refuses_a_float_and_a_hidden_member_without_salt(k: Kernel, role: str) -> None:
    insert = """
      insert into underseal.operation_type (type, version, mode, parameters, salted, votes_required, rejections_to_end,
        approvers, hold_for, run_within, policy, policy_digest)
      values ('by.hand', 1, 'ON_APPROVAL', %s, %s, 1, 1, '{bob}', '1 h', '1 h', 'x', 'x')"""
    number = {"type": "object", "properties": {"n": {"type": "number"}}, "additionalProperties": False}
    with k.login(None, role):
        k.refused("US001", insert, Jsonb(number), True)
        k.refused("US001", insert, Jsonb(SCHEMA), False)
        assert k.do(insert, Jsonb(SCHEMA), True) == 1


def test_the_policy_text_says_what_the_columns_say_whoever_writes_them(k: Kernel) -> None:
    k.do("update underseal.operation_type set votes_required = 2, policy = '{}', policy_digest = sha256('x')")
    (found,) = k.calls("list_operation_types")
    assert json.loads(found["policy"])["votes_required"] == 2
    assert found["policy_digest"] == hashlib.sha256(found["policy"].encode()).digest()


def test_the_table_refuses_a_policy_that_nobody_could_keep(k: Kernel) -> None:
    for change in (
        "votes_required = 0",
        "votes_required = 3",
        "rejections_to_end = 0",
        "approvers = null",
        "hold_for = '0 s'",
        "hold_for = '366 days'",
        "run_within = '0 s'",
        "run_within = '366 days'",
    ):
        k.refused("23514", f"update underseal.operation_type set {change}")
