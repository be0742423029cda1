"""Requesting: canonical, hashed, redacted, estimated, sealed, held."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from pydantic import SecretStr

from tests.held.python.worlds import HOUR, REQUESTER, PayoutParams, PayoutSend, TokenIssue, TokenParams, World
from underseal import (
    CanonicalError,
    Effect,
    Held,
    MemoryKeyRing,
    ParametersRefused,
    Policy,
    Principal,
    RequestRefused,
    SealError,
    restricted,
)
from underseal.canonical import params_hash
from underseal.held.payload import Payload
from underseal.seal import PURPOSES
from underseal.testing import TestClock

SECRET = "correct horse battery staple"


def opened(world: World, held: Held) -> Payload:
    """The payload in an operation's seal."""
    return Payload.opened(world.row(held)["sealed_payload"], world.ring, held.operation_id)


@pytest.mark.clause("H2.1a", "H2.1b", "H2.1c", "H2.1d", "H9.3a")
def test_the_seal_holds_what_was_asked_for(world: World, clock: TestClock) -> None:
    held = world.send(Principal("rita", "token", "t-1"), PayoutParams(order="o-1", cents=7))
    payload, row = opened(world, held), world.row(held)
    assert payload.canonical == '{"cents":7,"order":"o-1"}'
    assert payload.params_hash == row["params_hash"].hex() == held.params_hash.hex()
    assert params_hash("payout.send", 1, payload.canonical, payload.salt) == held.params_hash
    assert (payload.requester, payload.auth_kind, payload.token_id) == ("rita", "token", "t-1")
    assert (payload.state_key, payload.policy_digest) == ("open", row["policy_digest"].hex())
    assert (payload.hold_for, payload.run_within) == (3600, 3600)
    assert payload.sealed_at == clock.now() == row["requested_at"]
    assert row["expires_at"] - payload.sealed_at == HOUR


@pytest.mark.clause("H2.8a")
def test_approvers_see_the_redacted_copy(world: World) -> None:
    held = world.issue(REQUESTER, TokenParams(name="ci", password=SecretStr(SECRET)))
    assert json.loads(world.us.get(held, "ann").redacted) == {"name": "ci"}


@pytest.mark.clause("H2.8b", "H1.7b", "H2.4b")
def test_a_secret_is_in_the_seal_alone(world: World, caplog: pytest.LogCaptureFixture) -> None:
    held = world.issue(REQUESTER, TokenParams(name="ci", password=SecretStr(SECRET)))
    payload = opened(world, held)
    assert SECRET in payload.canonical
    assert payload.salt is not None
    assert len(payload.salt) == 32
    everything = "".join(
        str(
            world.admin.execute(
                f"select coalesce(jsonb_agg(to_jsonb(t)), '[]')::text as all from {table} t"
            ).fetchone()
        )
        for (table,) in [
            tuple(row.values())
            for row in world.admin.execute(
                "select c.oid::regclass::text from pg_class c"
                " where c.relnamespace = 'underseal'::regnamespace and c.relkind in ('r', 'v')"
            )
        ]
    )
    assert SECRET not in everything
    assert payload.salt.hex() not in everything
    assert SECRET not in caplog.text
    assert SECRET not in repr(payload)


@pytest.mark.clause("H1.7a")
def test_the_hash_is_salted_where_something_is_hidden(world: World) -> None:
    held = world.issue(REQUESTER, TokenParams(name="ci", password=SecretStr(SECRET)))
    plain = world.hold()
    assert params_hash("token.issue", 1, opened(world, held).canonical) != held.params_hash
    assert opened(world, plain).salt is None


@pytest.mark.clause("H1.7a")
def test_a_redaction_of_the_providers_own_is_salted(world: World) -> None:
    class Shortened(PayoutSend):
        type = "payout.shortened"

        def redact(self, params: PayoutParams) -> dict[str, Any]:
            return {"cents": params.cents}

    send = world.gate(world.us, Shortened(world.service))
    world.register()
    held = send(REQUESTER, PayoutParams(order="o-1", cents=7))
    assert opened(world, held).salt is not None
    assert json.loads(world.us.get(held, "ann").redacted) == {"cents": 7}


@pytest.mark.clause("H1.7e", "H1.7g")
def test_a_duplicate_is_the_open_operation(world: World) -> None:
    held = world.hold()
    again = world.send(REQUESTER, {"cents": 5, "order": "o-1", "note": None})
    assert (again.duplicate, again.operation_id) == (True, held.operation_id)
    assert world.hold(6).operation_id != held.operation_id
    assert world.hold(requester=Principal("ron")).operation_id != held.operation_id


@pytest.mark.clause("H1.7e")
def test_a_duplicate_is_found_under_an_older_fingerprint_key(world: World) -> None:
    held = world.hold()
    world.ring.rotate("fingerprint")
    again = world.hold()
    assert (again.duplicate, again.operation_id) == (True, held.operation_id)


@pytest.mark.clause("H1.7g")
def test_a_fingerprint_alone_confirms_nothing(world: World) -> None:
    world.hold(5)
    other = world.row(world.hold(6))
    five = world.row(world.hold(5))
    # The seal of one request under the fingerprint of another, as a writer of the table could have it.
    payload = Payload.opened(other["sealed_payload"], world.ring, other["operation_id"])
    forged = Payload(
        **{name: getattr(payload, name) for name in payload.__slots__}
        | {"operation_id": five["operation_id"]}
    ).sealed(world.ring)
    with world.triggers_off():
        world.admin.execute(
            "update underseal.held_operation set sealed_payload = %s::jsonb where operation_id = %s",
            [json.dumps(forged), five["operation_id"]],
        )
    with pytest.raises(RequestRefused) as refused:
        world.hold(5)
    assert refused.value.reason == "duplicate-unconfirmed"


@pytest.mark.clause("H1.7g")
def test_a_duplicate_whose_seal_does_not_open_is_not_confirmed(world: World) -> None:
    held = world.hold()
    world.edit(held, sealed_payload=json.dumps({**world.row(held)["sealed_payload"], "ct": "A" * 40}))
    with pytest.raises(RequestRefused) as refused:
        world.hold()
    assert refused.value.reason == "duplicate-unconfirmed"


@pytest.mark.clause("H1.1k")
def test_parameters_are_normalised_at_the_request(world: World) -> None:
    held = world.send(REQUESTER, PayoutParams(order="e\u0301", cents=5))
    assert opened(world, held).canonical == '{"cents":5,"order":"é"}'


@pytest.mark.clause("H6.1b", "H6.1c")
def test_a_type_that_is_switched_off_takes_no_request_and_runs_nothing(world: World) -> None:
    assert world.us.set_armed("payout.send", 1, False, "ops").outcome == "set"
    with pytest.raises(RequestRefused) as refused:
        world.hold()
    assert refused.value.reason == "provider-disarmed"
    assert world.service.done == []


@pytest.mark.clause("H6.1d")
def test_a_gate_that_cannot_be_reached_runs_nothing(make_world: Callable[..., World]) -> None:
    world = make_world()
    away = world.client(conninfo="host=127.0.0.1 port=1 connect_timeout=1")
    send = world.gate(away, PayoutSend(world.service))
    with pytest.raises(psycopg.OperationalError):
        send(REQUESTER, PayoutParams(order="o-1", cents=5))
    assert world.service.done == []
    away.close()


@pytest.mark.clause("H6.1c")
def test_a_type_nobody_registered_runs_nothing(world: World) -> None:
    class Unregistered(PayoutSend):
        type = "payout.unregistered"

    send = world.gate(world.us, Unregistered(world.service))
    with pytest.raises(RequestRefused) as refused:
        send(REQUESTER, PayoutParams(order="o-1", cents=5))
    assert refused.value.reason == "unknown-type"
    assert world.service.done == []


def test_a_call_that_needs_no_approval_just_runs(world: World) -> None:
    world.service.needs_approval = lambda principal, params: params.cents > 100
    assert world.send(REQUESTER, PayoutParams(order="o-1", cents=100)) == {"ok": True}
    assert world.service.done == [("payout.send", "rita", PayoutParams(order="o-1", cents=100))]
    assert isinstance(world.send(REQUESTER, PayoutParams(order="o-1", cents=101)), Held)


def test_a_policy_that_changed_meanwhile_is_sealed_anew(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    from underseal.held import kernel

    begin = kernel.begin_request
    calls = []

    def changed_after(*args: Any) -> Any:
        row = yield from begin(*args)
        calls.append(row["policy_digest"])
        if len(calls) == 1:
            world.admin.execute(
                "select underseal.register_operation_type('payout.send', 1, 'ON_APPROVAL', t.parameters, %s::jsonb)"
                " from underseal.operation_type t where t.type = 'payout.send'",
                [
                    Policy(
                        votes_required=2, approvers=("ann", "bob"), hold_for=HOUR, run_within=HOUR
                    ).as_json()
                ],
            )
        return row

    monkeypatch.setattr(kernel, "begin_request", changed_after)
    held = world.hold()
    assert len(calls) == 2
    assert opened(world, held).policy_digest == calls[1].hex() != calls[0].hex()


@pytest.mark.clause("H9.3a")
def test_a_seal_that_got_stale_is_cancelled_and_made_again(
    world: World, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    from underseal.held import kernel

    begin, calls = kernel.begin_request, []

    def slow(*args: Any) -> Any:
        row = yield from begin(*args)
        calls.append(row["now"])
        if len(calls) == 1:
            clock.advance(seconds=31)
        return row

    monkeypatch.setattr(kernel, "begin_request", slow)
    held = world.hold()
    assert opened(world, held).sealed_at == calls[1] == world.row(held)["requested_at"]
    states = world.admin.execute(
        "select state, outcome_detail from underseal.held_operation order by requested_at, state"
    )
    assert [row["state"] for row in states] == ["CANCELLED", "HELD"]


@pytest.mark.clause("H9.3a")
def test_a_seal_that_is_always_stale_is_refused(
    world: World, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    from underseal.held import kernel

    begin = kernel.begin_request

    def slow(*args: Any) -> Any:
        row = yield from begin(*args)
        clock.advance(seconds=31)
        return row

    monkeypatch.setattr(kernel, "begin_request", slow)
    with pytest.raises(RequestRefused) as refused:
        world.hold()
    assert refused.value.reason == "stale-seal"
    assert [row["state"] for row in world.admin.execute("select state from underseal.held_operation")] == [
        "CANCELLED"
    ] * 5


@pytest.mark.clause("H9.2")
def test_a_client_whose_clock_is_years_off_changes_nothing(world: World, clock: TestClock) -> None:
    clock.advance(days=-3650)
    held = world.hold()
    assert opened(world, held).sealed_at == clock.now()
    assert world.approve(held).run.outcome == "succeeded"


@pytest.mark.clause("H1.5b")
@pytest.mark.parametrize("cents", [5.0, 5.5, float("nan")])
def test_a_float_is_refused_at_the_request(world: World, cents: float) -> None:
    with pytest.raises((ParametersRefused, CanonicalError)):
        world.send(REQUESTER, {"order": "o-1", "cents": cents})
    assert world.admin.execute("select from underseal.held_operation").fetchone() is None


def test_an_effect_with_a_float_is_refused_at_the_request(world: World) -> None:
    world.service.effect = {"rate": 1.5}
    with pytest.raises(CanonicalError):
        world.hold()


@pytest.mark.clause("H2.4b")
def test_a_refused_parameter_is_named_and_not_shown(world: World) -> None:
    with pytest.raises(ParametersRefused) as refused:
        world.issue(REQUESTER, {"name": "ci", "password": [SECRET]})
    assert refused.value.faults == (("/password", "string_type"),)
    assert SECRET not in str(refused.value)
    assert refused.value.__cause__ is None
    assert refused.value.__context__ is None


@pytest.mark.clause("H1.7h")
@pytest.mark.parametrize(
    ("effect", "state_key", "refused"),
    [
        ({"sets": SECRET}, "s", True), ({"sets": f"to {SECRET}."}, "s", True), ({"all": [{SECRET: 1}]}, "s", True),
        ({}, SECRET, True), ({"sets": "ci"}, "s", False), ({"sets": "a password"}, "s", False),
    ],
)  # fmt: skip
def test_an_effect_that_repeats_a_hidden_parameter_is_refused(
    sync_world: World, effect: dict[str, Any], state_key: str, refused: bool
) -> None:
    class Telling(TokenIssue):
        type = "token.telling"

        async def estimate(self, principal: Principal, params: TokenParams) -> Effect:
            return Effect(effect, state_key)

    issue = sync_world.gate(sync_world.us, Telling(sync_world.service))
    sync_world.register()
    params = TokenParams(name="ci", password=SecretStr(SECRET))
    if not refused:
        assert issue(REQUESTER, params).state == "HELD"
        return
    with pytest.raises(RequestRefused) as error:
        issue(REQUESTER, params)
    assert error.value.reason == "effect-tells"
    assert SECRET not in str(error.value)


@pytest.mark.clause("H2.11c")
def test_a_requester_needs_payload_and_fingerprint_keys_alone(world: World) -> None:
    requester = world.client(keys=restricted(world.ring, {"payload", "fingerprint"}))
    held = world.gate(requester, PayoutSend(world.service))(REQUESTER, PayoutParams(order="o-1", cents=5))
    assert held.state == "HELD"
    requester.close()


@pytest.mark.clause("H2.11c")
@pytest.mark.parametrize("purpose", ["payload", "fingerprint"])
def test_a_requester_without_one_of_them_holds_nothing(world: World, purpose: Any) -> None:
    others = [one for one in PURPOSES if one != purpose]
    requester = world.client(keys=restricted(world.ring, others))
    with pytest.raises(SealError) as refused:
        world.gate(requester, PayoutSend(world.service))(REQUESTER, PayoutParams(order="o-1", cents=5))
    assert refused.value.reason == "key-unavailable"
    assert world.admin.execute("select from underseal.held_operation").fetchone() is None
    requester.close()


def test_an_unknown_type_is_refused(world: World) -> None:
    with pytest.raises(RequestRefused) as refused:
        world.us.request("payout.never", REQUESTER, {})
    assert refused.value.reason == "unknown-type"


def test_a_request_by_name_is_the_same_request(world: World) -> None:
    held = world.hold()
    assert (
        world.us.request("payout.send", REQUESTER, {"order": "o-1", "cents": 5}).operation_id
        == held.operation_id
    )


def test_keys_of_a_new_ring_do_not_find_the_duplicate(world: World) -> None:
    world.hold()
    other = world.client(keys=MemoryKeyRing.with_all())
    held = world.gate(other, PayoutSend(world.service))(REQUESTER, PayoutParams(order="o-1", cents=5))
    assert not held.duplicate
    other.close()
