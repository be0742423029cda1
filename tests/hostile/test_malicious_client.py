"""A requester's own process lies: it has the payload and fingerprint keys and calls the functions itself (T5b)."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from tests.held.python.worlds import World
from underseal import Held
from underseal.canonical import params_hash
from underseal.foundation.steps import drive
from underseal.held import kernel
from underseal.held.payload import Payload
from underseal.seal import fingerprint, restricted

Lie = Callable[[dict[str, Any], Payload], tuple[dict[str, Any], Payload]]

MILLION = '{"cents":1000000,"order":"o-1"}'
TEN = '{"cents":10,"order":"o-1"}'


def request(world: World, lie: Lie) -> dict[str, Any]:
    """What the kernel answers to a request for a million that lies."""
    ring = restricted(world.ring, ("payload", "fingerprint"))
    login = world.database.create_role("requester")
    world.owner.execute("select underseal.grant_access(%s, 'client', 'asserted')", [login])
    connection = world.database.connect(login)
    begun = drive(connection, kernel.begin_request("payout.send", 1, "rita"))
    payload = Payload(
        operation_id=uuid4(), type="payout.send", version=1, mode="ON_APPROVAL", canonical=MILLION,
        params_hash=params_hash("payout.send", 1, MILLION).hex(), salt=None, requester="rita", auth_kind="session",
        token_id=None, policy=begun["policy"], policy_digest=begun["policy_digest"].hex(), state_key="open",
        sealed_at=begun["now"], hold_for=begun["hold_for"], run_within=begun["run_within"],
    )  # fmt: skip
    key = ring.active("fingerprint")
    arguments = {
        "operation_id": payload.operation_id, "type": "payout.send", "version": 1, "principal": "rita",
        "auth_kind": "session", "token_id": None, "policy_digest": begun["policy_digest"], "state_key": "open",
        "effect": '{"pays":1000000}', "redacted": MILLION, "params_hash": bytes.fromhex(payload.params_hash),
        "fingerprint": fingerprint(key, "rita", "payout.send", 1, MILLION), "fingerprint_key_id": key.id,
        "older_fingerprints": [],
    }  # fmt: skip
    arguments, payload = lie(arguments, payload)
    return dict(
        drive(connection, kernel.request_operation({**arguments, "sealed_payload": payload.sealed(ring)}))
    )


def truth(arguments: dict[str, Any], payload: Payload) -> tuple[dict[str, Any], Payload]:
    """No lie: the control."""
    return arguments, payload


def told(**changes: Any) -> Lie:
    """Tell the kernel, and approvers, something else than is sealed."""
    return lambda arguments, payload: ({**arguments, **changes}, payload)


def sealed(**changes: Any) -> Lie:
    """Seal something else than the kernel is told."""
    return lambda arguments, payload: (arguments, dataclasses.replace(payload, **changes))


def lax(arguments: dict[str, Any], payload: Payload) -> tuple[dict[str, Any], Payload]:
    """Seal a policy of one's own, under a digest of one's own."""
    policy = payload.policy.replace('"votes_required":1', '"votes_required":0')
    digest = hashlib.sha256(policy.encode()).digest()
    return (
        {**arguments, "policy_digest": digest},
        dataclasses.replace(payload, policy=policy, policy_digest=digest.hex()),
    )


def outcome_of(world: World, lie: Lie) -> tuple[str, str | None]:
    """Request, have it approved by somebody who reads what is there, and run it."""
    answer = request(world, lie)
    assert answer["outcome"] == "held"
    held = Held(
        answer["held_id"],
        "HELD",
        False,
        answer["held_hash"],
        answer["requested_at"],
        answer["expires_at"],
        "",
    )
    voter = world.client(run_on_approval=False)
    assert voter.approve(voter.get(held, "ann"), "ann").outcome == "approved"
    voter.close()
    report = world.us.run(held)
    return report.outcome, report.reason


@pytest.mark.clause("T5b", "H2.10a", "H2.5c")
@pytest.mark.parametrize(
    ("lie", "reason"),
    [
        (told(redacted=TEN), "integrity"),
        (told(redacted=TEN, effect='{"pays":10}'), "integrity"),
        (
            told(redacted=TEN, effect='{"pays":10}', params_hash=params_hash("payout.send", 1, TEN)),
            "integrity",
        ),
        (told(effect='{"pays":10}'), "effect-changed"),
        (told(state_key="shut"), "integrity"),
        (sealed(requester="cleo"), "integrity"),
        (sealed(auth_kind="token"), "integrity"),
        (sealed(type="payout.other"), "integrity"),
        (sealed(mode="BY_REQUESTER"), "integrity"),
        (sealed(hold_for=10**8), "integrity"),
        (sealed(run_within=10**8), "integrity"),
        (sealed(policy='{"votes_required":0}'), "integrity"),
        (sealed(operation_id=uuid4()), "integrity"),
        (sealed(canonical=TEN), "integrity"),
        (sealed(salt=b"x" * 32), "integrity"),
    ],
)
def test_a_lie_ends_in_a_refusal(sync_world: World, lie: Lie, reason: str) -> None:
    assert outcome_of(sync_world, lie) == ("refused", reason)
    assert sync_world.service.done == []


@pytest.mark.clause("T5b")
def test_the_truth_runs(sync_world: World) -> None:
    assert outcome_of(sync_world, truth) == ("succeeded", None)


@pytest.mark.clause("T5b", "H2.1c")
def test_a_policy_of_one_s_own_is_not_even_held(sync_world: World) -> None:
    answer = request(sync_world, lax)
    assert (answer["outcome"], answer["reason"]) == ("conflict", "policy-changed")


@pytest.mark.clause("T5b", "H9.3b")
@pytest.mark.parametrize("seconds", [-61, 61])
def test_an_instant_of_one_s_own(sync_world: World, seconds: int) -> None:
    def lie(arguments: dict[str, Any], payload: Payload) -> tuple[dict[str, Any], Payload]:
        return arguments, dataclasses.replace(
            payload, sealed_at=payload.sealed_at + timedelta(seconds=seconds)
        )

    assert outcome_of(sync_world, lie) == ("refused", "integrity")
