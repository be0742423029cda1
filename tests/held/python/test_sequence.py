"""The sequence of a run: every check refuses what it is there for, and they come in one order."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from tests.held.python import forging
from tests.held.python.worlds import HOUR, PayoutParams, PayoutSend, World
from underseal import Held, PermissionDenied, Principal
from underseal.canonical import params_hash
from underseal.foundation.steps import drive
from underseal.held import kernel
from underseal.held import payload as payload_module
from underseal.held.claim import Claim
from underseal.held.integrity import check_integrity
from underseal.held.refusal import Refusal
from underseal.held.sequence import run_sequence
from underseal.testing import TestClock


def refused(world: World, held: Held, reason: str) -> str:
    """Run it; it must be REFUSED for this reason, on the row too, and nothing may have happened."""
    report = world.us.run(held)
    row = world.row(held)
    assert (report.outcome, report.reason) == ("refused", reason), report
    assert (row["state"], row["outcome_reason"]) == ("REFUSED", reason)
    assert row["sealed_payload"] is None
    assert world.service.done == []
    return str(row["outcome_detail"])


def set_policy(world: World, **changes: Any) -> None:
    """Change the policy in force."""
    policy = dataclasses.replace(PayoutSend.policy, **changes)
    answer = world.owner.execute(
        "select r.outcome from underseal.operation_type t cross join lateral underseal.register_operation_type("
        "t.type, 1, 'ON_APPROVAL', t.parameters, %s::jsonb) r where t.type = 'payout.send'",
        [policy.as_json()],
    ).fetchone()
    assert answer is not None
    assert answer["outcome"] == "updated"


def new_version(world: World) -> None:
    """Register version 2 of the type."""
    world.owner.execute(
        "select underseal.register_operation_type(t.type, 2, 'ON_APPROVAL', t.parameters, %s::jsonb)"
        " from underseal.operation_type t where t.type = 'payout.send'",
        [PayoutSend.policy.as_json()],
    )


def test_what_nothing_refuses_runs(sync_world: World) -> None:
    held = sync_world.approved()
    assert sync_world.us.run(held).outcome == "succeeded"
    assert sync_world.service.done == [("payout.send", "rita", PayoutParams(order="o-1", cents=5))]


# -- integrity: the seals ---------------------------------------------------------------------------


@pytest.mark.clause("H2.5a", "H2.3a")
def test_a_payload_that_does_not_open(sync_world: World) -> None:
    held = sync_world.approved()
    sealed = sync_world.row(held)["sealed_payload"]
    flipped = ("B" if sealed["ct"][0] == "A" else "A") + sealed["ct"][1:]
    sync_world.edit(held, sealed_payload=json.dumps({**sealed, "ct": flipped}))
    refused(sync_world, held, "integrity")


@pytest.mark.clause("H2.3b", "H2.5a")
def test_a_payload_of_another_operation(sync_world: World) -> None:
    held, other = sync_world.approved(5), sync_world.approved(6)
    sync_world.edit(held, sealed_payload=json.dumps(sync_world.row(other)["sealed_payload"]))
    refused(sync_world, held, "integrity")


@pytest.mark.clause("H2.3c")
def test_a_decision_in_the_place_of_the_payload(sync_world: World) -> None:
    held = sync_world.approved()
    vote = forging.vote_row(sync_world, held, "ann")
    sync_world.edit(
        held, sealed_payload=json.dumps(vote["sealed_decision"]), payload_key_id=vote["decision_key_id"]
    )
    refused(sync_world, held, "integrity")


@pytest.mark.clause("H2.12a", "H2.5a")
def test_a_decision_that_does_not_open(sync_world: World) -> None:
    held = sync_world.approved()
    sealed = forging.vote_row(sync_world, held, "ann")["sealed_decision"]
    flipped = ("B" if sealed["ct"][0] == "A" else "A") + sealed["ct"][1:]
    sync_world.edit_vote(held, "ann", sealed_decision=json.dumps({**sealed, "ct": flipped}))
    refused(sync_world, held, "integrity")


@pytest.mark.clause("H2.3d", "H2.12a")
def test_a_decision_moved_to_another_approver(sync_world: World) -> None:
    held = sync_world.approved()
    sync_world.edit_vote(held, "ann", approver="bob")
    refused(sync_world, held, "integrity")


@pytest.mark.clause("H2.3b", "H2.12c")
def test_a_decision_of_another_operation(sync_world: World) -> None:
    held, other = sync_world.approved(5), sync_world.approved(6)
    sealed = forging.vote_row(sync_world, other, "ann")["sealed_decision"]
    sync_world.edit_vote(held, "ann", sealed_decision=json.dumps(sealed))
    refused(sync_world, held, "integrity")


# -- integrity: the identity, the hash --------------------------------------------------------------

IDENTITY: dict[str, Any] = {
    "type": "payout.other",
    "params_hash": b"\0" * 32,
    "requester": "ron",
    "auth_kind": "token",
    "token_id": "t-9",
    "policy_digest": b"\0" * 32,
    "state_key": "shut",
}


@pytest.mark.clause("H2.5c")
@pytest.mark.parametrize("column", IDENTITY)
def test_a_column_of_the_identity_that_was_edited(sync_world: World, column: str) -> None:
    class Other(PayoutSend):
        type = "payout.other"

    if column == "type":
        sync_world.gate(sync_world.us, Other(sync_world.service))
        sync_world.register()
    held = sync_world.approved()
    if column == "state_key":
        sync_world.service.state_key = "shut"
    sync_world.edit(held, **{column: IDENTITY[column]})
    assert f"column {column}" in refused(sync_world, held, "integrity")


@pytest.mark.clause("H2.5c")
def test_a_version_that_was_edited(sync_world: World) -> None:
    class Newer(PayoutSend):
        version = 2

    held = sync_world.approved()
    new_version(sync_world)
    sync_world.edit(held, type_version=2)
    newer = sync_world.client()
    sync_world.gate(newer, Newer(sync_world.service))
    assert newer.run(held).reason == "integrity"
    assert "column version" in sync_world.row(held)["outcome_detail"]
    newer.close()


@pytest.mark.clause("H2.5c")
@pytest.mark.parametrize(
    ("member", "value"),
    [("operation_id", None), ("mode", "BY_REQUESTER"), ("type", "payout.other"), ("version", 2), ("requester", "ron"),
     ("auth_kind", "token"), ("token_id", "t-9"), ("state_key", "shut"), ("policy_digest", "00" * 32)],
)  # fmt: skip
def test_a_seal_with_another_identity_than_the_row(sync_world: World, member: str, value: Any) -> None:
    held = sync_world.approved()
    payload = forging.payload_of(sync_world, held)
    if member == "operation_id":
        value = sync_world.hold(6).operation_id
        # Sealed for this row by somebody with the key, and saying that it is about another one.
        data = {**dataclasses.asdict(payload), "operation_id": value}
        sealed = payload_module._sealed(
            data, sync_world.ring, "payload", payload_module.PAYLOAD_FORMAT, (str(held.operation_id),)
        )
        sync_world.edit(held, sealed_payload=json.dumps(sealed))
    else:
        forging.reseal_payload(sync_world, held, **{member: value})
    assert f"column {member}" in refused(sync_world, held, "integrity")


@pytest.mark.clause("H2.5b")
def test_a_sealed_hash_that_is_not_that_of_the_parameters(sync_world: World) -> None:
    held = sync_world.approved()
    forging.reseal_payload(sync_world, held, canonical='{"cents":1000000,"order":"o-1"}')
    assert "hash of the opened parameters" in refused(sync_world, held, "integrity")


@pytest.mark.clause("H2.5b", "H1.1k")
def test_sealed_parameters_are_hashed_as_they_are(sync_world: World) -> None:
    """What is sealed means the same, and its canonical form has the sealed hash; its bytes have not."""
    held = sync_world.approved()
    forging.reseal_payload(sync_world, held, canonical='{"order": "o-1", "cents": 5}')
    assert "hash of the opened parameters" in refused(sync_world, held, "integrity")


@pytest.mark.clause("H2.5b")
def test_a_sealed_salt_that_is_another(sync_world: World) -> None:
    held = sync_world.approved()
    forging.reseal_payload(sync_world, held, salt=b"\0" * 32)
    assert "hash of the opened parameters" in refused(sync_world, held, "integrity")


@pytest.mark.clause("H2.12f")
def test_a_sealed_policy_that_is_not_that_of_the_digest(sync_world: World) -> None:
    held = sync_world.approved()
    forging.reseal_payload(sync_world, held, policy="{}")
    assert "digest of the sealed policy" in refused(sync_world, held, "integrity")


# -- integrity: the decisions -----------------------------------------------------------------------


@pytest.mark.clause("H2.12b")
def test_a_decision_that_says_reject(sync_world: World) -> None:
    held = sync_world.approved()
    forging.reseal_decision(sync_world, held, "ann", decision="reject", reason="no")
    sync_world.edit_vote(held, "ann", decision="reject", reason="no")
    assert "does not say approve" in refused(sync_world, held, "integrity")


@pytest.mark.clause("H2.12b")
def test_a_decision_that_says_another_word(sync_world: World) -> None:
    held = sync_world.approved()
    forging.reseal_decision(sync_world, held, "ann", decision="approve")
    forging.add_vote(sync_world, held, "bob")
    forging.reseal_decision(sync_world, held, "bob", decision="shrug")
    with sync_world.triggers_off():
        sync_world.admin.execute("alter table underseal.held_vote drop constraint held_vote_decision_known")
        sync_world.admin.execute("update underseal.held_vote set decision = 'shrug' where approver = 'bob'")
    assert "does not say approve" in refused(sync_world, held, "integrity")


@pytest.mark.clause("H2.12c")
@pytest.mark.parametrize(
    ("what", "changes"),
    [
        ("decision", {"decision": "reject"}),
        ("hash", {"params_hash": "00" * 32}),
        ("version", {"row_version": 2}),
    ],
)
def test_a_decision_for_something_else(sync_world: World, what: str, changes: dict[str, Any]) -> None:
    held = sync_world.approved()
    forging.reseal_decision(sync_world, held, "ann", **changes)
    assert f"another {what}" in refused(sync_world, held, "integrity")


@pytest.mark.clause("H2.12c")
@pytest.mark.parametrize("member", ["operation", "approver"])
def test_a_decision_that_names_another_place_than_its_own(sync_world: World, member: str) -> None:
    held = sync_world.approved()
    data = dataclasses.asdict(forging.decision_of(sync_world, held, "ann"))
    data |= (
        {"operation_id": sync_world.hold(6).operation_id} if member == "operation" else {"approver": "bob"}
    )
    place = (str(held.operation_id), "ann")
    sealed = payload_module._sealed(data, sync_world.ring, "decision", payload_module.DECISION_FORMAT, place)
    sync_world.edit_vote(held, "ann", sealed_decision=json.dumps(sealed))
    assert f"another {member}" in refused(sync_world, held, "integrity")


@pytest.mark.clause("H2.12c")
@pytest.mark.parametrize(
    ("what", "columns"),
    [("hash in the row", {"params_hash": b"\0" * 32}), ("version in the row", {"row_version": 2})],
)
def test_a_vote_whose_columns_were_edited(sync_world: World, what: str, columns: dict[str, Any]) -> None:
    held = sync_world.approved()
    sync_world.edit_vote(held, "ann", **columns)
    assert f"another {what}" in refused(sync_world, held, "integrity")


@pytest.mark.clause("H2.12e")
def test_a_decision_by_the_requester(sync_world: World) -> None:
    held = sync_world.approved()
    forging.add_vote(sync_world, held, "rita")
    assert "requester is among" in refused(sync_world, held, "integrity")


@pytest.mark.clause("H2.12d", "H2.12f")
def test_fewer_decisions_than_the_sealed_policy_demands(sync_world: World) -> None:
    set_policy(sync_world, votes_required=2)
    held = sync_world.hold()
    sync_world.approve(held, "ann")
    set_policy(sync_world)
    # By the columns one vote is enough: the policy in force says so, and the row was made to.
    row = sync_world.row(held)
    cast_at = forging.vote_row(sync_world, held, "ann")["cast_at"]
    sync_world.edit(
        held,
        votes_required=1,
        state="APPROVED",
        approved_at=cast_at,
        run_deadline=cast_at + row["run_within"],
    )
    assert "demands 2 approvals, 1 found" in refused(sync_world, held, "integrity")


@pytest.mark.clause("H2.12a", "H2.12f")
def test_no_decision_at_all(sync_world: World) -> None:
    held = sync_world.approved()
    with sync_world.triggers_off():
        sync_world.admin.execute("delete from underseal.held_vote")
    refused(sync_world, held, "integrity")


@pytest.mark.clause("H2.10b")
@pytest.mark.parametrize("columns", [{"redacted": '{"cents":1,"order":"o-1"}'}, {"effect": '{"pays":1}'}])
def test_what_the_row_shows_is_not_what_the_approver_was_shown(
    sync_world: World, columns: dict[str, str]
) -> None:
    held = sync_world.approved()
    sync_world.edit(held, **columns)
    assert "what ann was shown" in refused(sync_world, held, "integrity")


@pytest.mark.clause("H2.10a")
def test_a_requester_who_seals_one_thing_and_shows_another(
    sync_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = sync_world.us._core.kinds["payout.send"]
    with monkeypatch.context() as lying:
        lying.setattr(kind, "redacted", lambda canonical: '{"cents":10,"order":"o-1"}')
        held = sync_world.hold(1_000_000)
    voter = sync_world.client(run_on_approval=False)
    assert '"cents":10,' in voter.get(held, "ann").redacted
    assert voter.approve(voter.get(held, "ann"), "ann").outcome == "approved"
    voter.close()
    assert "redacted copy" in refused(sync_world, held, "integrity")


@pytest.mark.clause("H2.10a")
def test_a_column_without_canonical_form(sync_world: World) -> None:
    held = sync_world.approved()
    sync_world.edit(held, redacted="nonsense")
    refused(sync_world, held, "integrity")


# -- integrity: the deadlines -----------------------------------------------------------------------


@pytest.mark.clause("H9.3b")
@pytest.mark.parametrize("column", ["requested_at", "expires_at", "approved_at", "run_deadline"])
@pytest.mark.parametrize("seconds", [61, -61])
def test_a_deadline_that_was_moved(sync_world: World, clock: TestClock, column: str, seconds: int) -> None:
    held = sync_world.approved()
    sync_world.edit(held, **{column: sync_world.row(held)[column] + timedelta(seconds=seconds)})
    assert f"column {column}" in refused(sync_world, held, "integrity")


@pytest.mark.clause("H9.3b")
@pytest.mark.parametrize("column", ["requested_at", "expires_at", "approved_at", "run_deadline"])
def test_a_deadline_within_sixty_seconds(sync_world: World, clock: TestClock, column: str) -> None:
    held = sync_world.approved()
    sync_world.edit(held, **{column: sync_world.row(held)[column] + timedelta(seconds=60)})
    assert sync_world.us.run(held).outcome == "succeeded"


def claimed(world: World) -> Claim:
    """Claim a payout, and do nothing with it."""
    held, core = world.approved(), world.us._core
    steps = kernel.claim_runs("w", core.served(), core.key_ids(), 1, held.operation_id)
    return Claim.from_row(drive(world.us._source, steps)[0])


@pytest.mark.clause("H9.3c")
def test_a_claim_past_the_sealed_deadline(sync_world: World) -> None:
    """The claim itself would not give such a row away; whoever made it do so gains nothing."""
    claim, kind = claimed(sync_world), sync_world.us._core.kinds["payout.send"]
    sealed = check_integrity(claim, kind, sync_world.ring)
    late = dataclasses.replace(claim, claimed_at=sealed.run_deadline + timedelta(seconds=60))
    with pytest.raises(Refusal) as refusal:
        check_integrity(late, kind, sync_world.ring)
    assert (refusal.value.reason, refusal.value.detail) == (
        "integrity", "the run was claimed past the sealed run deadline",
    )  # fmt: skip
    in_time = dataclasses.replace(claim, claimed_at=sealed.run_deadline + timedelta(seconds=59))
    assert check_integrity(in_time, kind, sync_world.ring) == sealed


@pytest.mark.clause("H9.3b")
def test_a_vote_whose_instant_was_moved(sync_world: World) -> None:
    held = sync_world.approved()
    cast_at = forging.vote_row(sync_world, held, "ann")["cast_at"]
    sync_world.edit_vote(held, "ann", cast_at=cast_at + timedelta(seconds=61))
    assert "instant of ann's vote" in refused(sync_world, held, "integrity")


@pytest.mark.clause("H9.3b")
@pytest.mark.parametrize("away", [-timedelta(seconds=61), HOUR + timedelta(seconds=61)])
def test_a_decision_outside_the_time_of_the_request(
    sync_world: World, clock: TestClock, away: timedelta
) -> None:
    held = sync_world.approved()
    instant = forging.payload_of(sync_world, held).sealed_at + away
    forging.reseal_decision(sync_world, held, "ann", cast_at=instant)
    sync_world.edit_vote(held, "ann", cast_at=instant)
    sync_world.edit(held, approved_at=instant, run_deadline=instant + HOUR)
    assert "outside the time" in refused(sync_world, held, "integrity")


# -- the other checks -------------------------------------------------------------------------------


@pytest.mark.clause("H6.1a")
def test_a_type_switched_off_meanwhile(world: World) -> None:
    held = world.approved()
    world.us.set_armed("payout.send", 1, False, "ops")
    refused(world, held, "provider-disarmed")


@pytest.mark.clause("H6.2")
def test_a_type_with_a_new_version(world: World) -> None:
    held = world.approved()
    new_version(world)
    assert "request again" in refused(world, held, "version-changed")


@pytest.mark.clause("H6.2", "H2.10e")
def test_a_worker_with_the_new_version_refuses_the_old(sync_world: World) -> None:
    """And does not redact it: what the new version shows is no measure of what was shown of the old."""

    class Newer(PayoutSend):
        version = 2

        def redact(self, params: PayoutParams) -> dict[str, Any]:
            return {"order": params.order}

    held = sync_world.approved()
    new_version(sync_world)
    newer = sync_world.client()
    sync_world.gate(newer, Newer(sync_world.service))
    assert newer.run(held).reason == "version-changed"
    newer.close()


@pytest.mark.clause("H2.12h")
def test_an_approver_who_is_not_eligible_any_more(sync_world: World) -> None:
    held = sync_world.approved()
    set_policy(sync_world, approvers=("bob", "cy"))
    assert "ann" in refused(sync_world, held, "approval-lapsed")


@pytest.mark.clause("H2.12g")
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"votes_required": 2}, "demands 2 approvals"),
        ({"hold_for": timedelta(minutes=5)}, "holds for less time"),
    ],
)
def test_a_policy_that_became_stricter(
    sync_world: World, clock: TestClock, changes: dict[str, Any], said: str
) -> None:
    held = sync_world.hold()
    clock.advance(minutes=10)
    voter = sync_world.client(run_on_approval=False)
    voter.approve(voter.get(held, "ann"), "ann")
    voter.close()
    set_policy(sync_world, **changes)
    assert said in refused(sync_world, held, "approval-lapsed")


@pytest.mark.clause("H2.12g")
def test_a_run_later_than_the_policy_in_force_lets_it(sync_world: World) -> None:
    """The claim itself would not give such a row away; the sequence looks all the same."""
    claim, kind = claimed(sync_world), sync_world.us._core.kinds["payout.send"]
    policy = json.loads(claim.policy_in_force) | {"run_within": 600}
    late = dataclasses.replace(
        claim,
        policy_in_force=json.dumps(policy),
        claimed_at=claim.approved_at + timedelta(minutes=11, seconds=1),
    )
    rebuild = sync_world.service.principal
    ended = drive(sync_world.us._source, run_sequence(late, kind, sync_world.ring, rebuild, None))
    assert (ended.state, ended.reason, sync_world.service.done) == ("REFUSED", "approval-lapsed", [])
    assert "less time than has passed" in str(ended.detail)


@pytest.mark.clause("H2.12g")
@pytest.mark.parametrize("policy", ["nonsense", "[]", "{}", '{"votes_required": "many"}'])
def test_a_policy_that_cannot_be_read(sync_world: World, policy: str) -> None:
    held = sync_world.approved()
    with sync_world.triggers_off():
        sync_world.admin.execute(
            "update underseal.operation_type set policy = %s where type = 'payout.send'", [policy]
        )
    refused(sync_world, held, "approval-lapsed")


@pytest.mark.clause("H2.12g")
def test_a_policy_that_ends_at_fewer_rejections(sync_world: World) -> None:
    set_policy(sync_world, rejections_to_end=2)
    held = sync_world.hold()
    sync_world.us.reject(sync_world.us.get(held, "bob"), "bob", "no")
    voter = sync_world.client(run_on_approval=False)
    voter.approve(voter.get(held, "ann"), "ann")
    voter.close()
    set_policy(sync_world)
    assert "fewer rejections" in refused(sync_world, held, "approval-lapsed")


def test_a_rejection_that_the_policy_puts_up_with(sync_world: World) -> None:
    set_policy(sync_world, rejections_to_end=2)
    held = sync_world.hold()
    sync_world.us.reject(sync_world.us.get(held, "bob"), "bob", "no")
    assert sync_world.approve(held).run.outcome == "succeeded"


@pytest.mark.clause("H6.3")
def test_a_requester_who_is_gone(world: World) -> None:
    held = world.approved()
    world.service.people["rita"] = None
    refused(world, held, "requester-unavailable")


@pytest.mark.clause("H6.3")
def test_a_service_that_rebuilds_somebody_else(sync_world: World) -> None:
    held = sync_world.approved()
    sync_world.service.people["rita"] = Principal("ann")
    refused(sync_world, held, "requester-unavailable")


@pytest.mark.clause("H6.3")
def test_a_service_that_cannot_say(sync_world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    held = sync_world.approved()

    def away(*_: Any) -> None:
        raise ConnectionError("the directory at 10.0.0.1 is away")

    monkeypatch.setattr(sync_world.us._core, "rebuild", away)
    assert refused(sync_world, held, "requester-unavailable").endswith("ConnectionError")


@pytest.mark.clause("H6.4")
def test_a_state_that_changed(world: World) -> None:
    held = world.approved()
    world.service.state_key = "shut"
    refused(world, held, "state-changed")


@pytest.mark.clause("H2.10c")
@pytest.mark.parametrize("effect", [{"pays": 6}, {"more": 1}])
def test_an_effect_that_changed(world: World, effect: dict[str, int]) -> None:
    held = world.approved()
    world.service.effect = effect
    assert next(iter(effect)) in refused(world, held, "effect-changed")


@pytest.mark.clause("H2.10c")
def test_a_member_of_the_effect_that_is_gone(sync_world: World) -> None:
    sync_world.service.effect = {"more": None, "other": 1}
    held = sync_world.approved()
    sync_world.service.effect = {}
    assert "other" in refused(sync_world, held, "effect-changed")


@pytest.mark.clause("H2.10d")
def test_a_member_that_drifts_may_differ(world: World) -> None:
    world.service.effect = {"rate": 1}
    held = world.approved()
    world.service.effect = {"rate": 2}
    assert world.us.run(held).outcome == "succeeded"


@pytest.mark.clause("H6.5")
def test_a_check_that_does_not_agree(world: World) -> None:
    held = world.approved()
    world.service.check = "order-shipped"
    refused(world, held, "order-shipped")


@pytest.mark.clause("H6.8")
def test_a_permission_that_was_lost(world: World) -> None:
    held = world.approved()
    world.service.denied.add("rita")
    refused(world, held, "permission-denied")


@pytest.mark.clause("H6.8")
def test_a_permission_that_the_estimate_misses(sync_world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    held = sync_world.approved()

    def denied(*_: Any) -> None:
        raise PermissionDenied("no")

    monkeypatch.setattr(sync_world.us._core.kinds["payout.send"].provider, "estimate", denied)
    refused(sync_world, held, "permission-denied")


# -- the order --------------------------------------------------------------------------------------


class Register:
    """A spent register that has everything already."""

    def __init__(self) -> None:
        self.has_it = False

    def spend(self, operation_id: Any, keep_for: timedelta) -> bool:
        return not self.has_it


def _integrity(world: World, held: Held) -> None:
    row = world.row(held)
    world.edit(held, expires_at=row["expires_at"] + timedelta(days=1))


def _spent(world: World, held: Held) -> None:
    world.us._core.spent.has_it = True


def _disarmed(world: World, held: Held) -> None:
    world.us.set_armed("payout.send", 1, False, "ops")


def _version(world: World, held: Held) -> None:
    new_version(world)


def _lapsed(world: World, held: Held) -> None:
    set_policy(world, approvers=("bob", "cy"))


def _requester(world: World, held: Held) -> None:
    world.service.people["rita"] = None


def _state(world: World, held: Held) -> None:
    world.service.state_key = "shut"


def _effect(world: World, held: Held) -> None:
    world.service.effect = {"more": 1}


def _check(world: World, held: Held) -> None:
    world.service.check = "order-shipped"


def _denied(world: World, held: Held) -> None:
    world.service.denied.add("rita")


ORDER: list[tuple[str, Callable[[World, Held], None]]] = [
    ("integrity", _integrity),
    ("spent", _spent),
    ("provider-disarmed", _disarmed),
    ("version-changed", _version),
    ("approval-lapsed", _lapsed),
    ("requester-unavailable", _requester),
    ("state-changed", _state),
    ("effect-changed", _effect),
    ("order-shipped", _check),
    ("permission-denied", _denied),
]


@pytest.mark.clause("H6.11a", "H6.11b")
@pytest.mark.parametrize("first", range(len(ORDER)), ids=[reason for reason, _ in ORDER])
def test_the_first_refusal_wins(make_sync_world: Callable[..., World], first: int) -> None:
    world = make_sync_world(spent=Register())
    held = world.approved()
    for _, spoil in ORDER[first:]:
        spoil(world, held)
    refused(world, held, ORDER[first][0])


@pytest.mark.clause("H6.11a")
def test_a_ticket_comes_after_every_check(sync_world: World) -> None:
    held = sync_world.approved()
    sync_world.service.check = "order-shipped"
    refused(sync_world, held, "order-shipped")
    assert sync_world.admin.execute("select from underseal.replay_ticket").fetchone() is None


def test_a_digest_of_what_was_shown_is_what_the_formats_say(sync_world: World) -> None:
    held = sync_world.approved()
    asked = b'{"mode":"ON_APPROVAL","requester":"rita","type":"payout.send","version":1}'
    text = b"underseal-shown-v1\n" + asked + b'\n{"cents":5,"order":"o-1"}\n{"pays":5}'
    assert forging.decision_of(sync_world, held, "ann").shown == hashlib.sha256(text).hexdigest()
    assert params_hash("payout.send", 1, '{"cents":5,"order":"o-1"}') == held.params_hash
