"""Named attacks by a writer with every right on the tables (clause T5): what each comes to."""

from __future__ import annotations

import dataclasses
import json
from datetime import timedelta
from typing import Any

import pytest

from tests.held.python.worlds import HOUR, REQUESTER, PayoutParams, PayoutSend, World
from tests.hostile.audit import Audit, PairSend
from tests.hostile.writer import Writer
from underseal import Held, MemoryKeyRing, ReplayRefused
from underseal.held.payload import DecisionSeal
from underseal.held.replay import Replay, replaying
from underseal.seal import Key, Purpose, seal
from underseal.testing import TestClock


def refused(world: World, held: Held, reason: str = "integrity") -> None:
    """Run it: it is REFUSED for this reason, and nothing has happened."""
    report = world.us.run(held)
    assert (report.outcome, report.reason, world.service.done) == ("refused", reason, [])


def approved(audit: Audit) -> Held:
    """An honest payout with both its approvals."""
    held = audit.hold()
    assert [audit.approve(held, "ann"), audit.approve(held, "bob")] == ["recorded", "approved"]
    return held


# -- seals where they do not belong ------------------------------------------------------------------

SEAL = ("sealed_payload", "payload_key_id")
SHOWN = ("params_hash", "redacted", "effect", "state_key")


@pytest.mark.clause("T5b", "H2.3b", "H2.5a")
@pytest.mark.parametrize("columns", [SEAL, (*SEAL, *SHOWN)], ids=["seals", "all-they-say"])
@pytest.mark.parametrize("state", ["HELD", "APPROVED"])
def test_two_rows_whose_seals_were_swapped(
    audit: Audit, writer: Writer, state: str, columns: tuple[str, ...]
) -> None:
    pair = [audit.hold() if state == "HELD" else approved(audit) for _ in range(2)]
    rows = [audit.world.row(held) for held in pair]
    for held, other in zip(pair, reversed(rows), strict=True):
        values = {column: other[column] for column in columns}
        writer.set(held.operation_id, **{**values, "sealed_payload": json.dumps(other["sealed_payload"])})
    for held in pair:
        if state == "HELD":
            assert [audit.approve(held, "ann"), audit.approve(held, "bob")] == ["recorded", "approved"]
        refused(audit.world, held)


@pytest.mark.clause("T5b", "H2.3b")
def test_decisions_moved_to_another_operation(audit: Audit, writer: Writer) -> None:
    agreed, other = approved(audit), audit.hold()
    writer.copy_vote(agreed.operation_id, other.operation_id)
    writer.call_approved(other.operation_id)
    refused(audit.world, other)


@pytest.mark.clause("T5b", "H2.3d")
def test_a_decision_counted_as_another_approver_s(audit: Audit, writer: Writer) -> None:
    held = audit.hold()
    audit.approve(held, "ann")
    writer.copy_vote(held.operation_id, held.operation_id, "bob")
    writer.call_approved(held.operation_id)
    refused(audit.world, held)


@pytest.mark.clause("T5b", "H2.3c")
@pytest.mark.parametrize("reverse", [False, True])
def test_one_kind_of_seal_over_the_other(sync_world: World, writer: Writer, reverse: bool) -> None:
    held = sync_world.approved()
    payload = sync_world.row(held)["sealed_payload"]
    decision = writer.rows("held_vote", held.operation_id)[0]["sealed_decision"]
    if reverse:
        forged = {**payload, "fmt": decision["fmt"]} if "fmt" in payload else payload
        writer.set(
            held.operation_id, "held_vote", sealed_decision=json.dumps(forged), decision_key_id=forged["kid"]
        )
    else:
        forged = {**decision, "fmt": payload["fmt"]} if "fmt" in payload else decision
        writer.set(held.operation_id, sealed_payload=json.dumps(forged), payload_key_id=forged["kid"])
    refused(sync_world, held)


@pytest.mark.clause("T5b", "H2.3b")
def test_a_vote_replayed_on_the_same_request_made_again(sync_world: World, writer: Writer) -> None:
    first = sync_world.approved()
    writer_copy = writer.rows("held_vote", first.operation_id)[0]
    assert sync_world.us.cancel(first, "rita").outcome == "cancelled"
    again = sync_world.hold()
    assert again.params_hash == first.params_hash
    writer.copy_vote(first.operation_id, again.operation_id)
    writer.call_approved(again.operation_id)
    assert (
        writer.rows("held_vote", again.operation_id)[0]["sealed_decision"] == writer_copy["sealed_decision"]
    )
    refused(sync_world, again)


@pytest.mark.clause("T5b", "H2.11a", "H2.12a")
@pytest.mark.parametrize("named", ["payload", "decision"])
def test_a_decision_sealed_with_another_purpose_s_key(
    sync_world: World, writer: Writer, named: Purpose
) -> None:
    """A requester's process, which has the payload key, and a writer who lists an approver of their own."""
    world = sync_world
    held = world.hold()
    writer.admin.execute("alter table underseal.operation_type disable trigger user")
    writer.admin.execute("update underseal.operation_type set approvers = approvers || '{mallory}'")
    shown = world.us.get(held, "mallory")
    secret = world.ring.active("payload").secret
    key_id = world.ring.active(named).id
    mallory = world.client(keys=_Forged(Key(key_id, "decision", secret), world.ring), run_on_approval=False)
    assert mallory.approve(shown, "mallory").outcome == "approved"
    mallory.close()
    refused(world, held)


class _Forged:
    """A ring that gives out one key as the active decision key."""

    def __init__(self, key: Key, others: MemoryKeyRing) -> None:
        self.key = key
        self.others = others

    def active(self, purpose: Any) -> Key:
        return self.key if purpose == "decision" else self.others.active(purpose)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.others, name)


# -- what approvers are shown ------------------------------------------------------------------------


@pytest.mark.clause("T5a", "H2.2c", "H2.10b")
@pytest.mark.parametrize("lie", [{"requester": "cleo"}, {"type": "payout.send"}, {"mode": "BY_REQUESTER"}])
def test_a_lie_that_was_shown_during_the_votes_and_taken_back(
    audit: Audit, writer: Writer, lie: dict[str, Any]
) -> None:
    """An approver cannot open the payload; what they believed is in their own seal."""
    held = audit.hold()
    row = audit.world.row(held)
    writer.set(held.operation_id, **lie)
    while audit.approve(held, "ann") == "recorded" and audit.approve(held, "bob") == "recorded":
        pass
    assert audit.world.row(held)["state"] == "APPROVED"
    writer.set(held.operation_id, **{column: row[column] for column in lie})
    refused(audit.world, held)


@pytest.mark.clause("T5a", "H2.10a", "H2.10c")
@pytest.mark.parametrize(
    ("lie", "reason"),
    [
        ({"redacted": '{"cents":10,"order":"o-1"}'}, "integrity"),
        ({"redacted": '{"cents":10,"order":"o-1"}', "effect": '{"pays":10}'}, "integrity"),
        ({"effect": '{"pays":10}'}, "effect-changed"),
    ],
)
def test_a_lie_that_was_shown_and_left(
    sync_world: World, writer: Writer, lie: dict[str, Any], reason: str
) -> None:
    held = sync_world.hold(1_000_000)
    writer.set(held.operation_id, **lie)
    voter = sync_world.client(run_on_approval=False)
    assert voter.approve(voter.get(held, "ann"), "ann").outcome == "approved"
    voter.close()
    refused(sync_world, held, reason)


@pytest.mark.clause("H2.10d")
def test_a_drifting_member_may_be_a_lie(sync_world: World, writer: Writer) -> None:
    """What docs/threat-model.md says of them: nobody compares a drifting member with anything."""
    sync_world.service.effect = {"rate": 3}
    held = sync_world.hold()
    writer.set(held.operation_id, effect='{"pays":5,"rate":1}')
    voter = sync_world.client(run_on_approval=False)
    assert voter.approve(voter.get(held, "ann"), "ann").outcome == "approved"
    voter.close()
    assert sync_world.us.run(held).outcome == "succeeded"


# -- deadlines ---------------------------------------------------------------------------------------


@pytest.mark.clause("T5a", "H9.3b")
@pytest.mark.parametrize("also_the_request", [False, True])
def test_an_expiry_that_was_stretched(
    sync_world: World, writer: Writer, clock: TestClock, also_the_request: bool
) -> None:
    held = sync_world.hold()
    row = sync_world.row(held)
    writer.admin.execute("alter table underseal.operation_type disable trigger user")
    writer.admin.execute("update underseal.operation_type set hold_for = '100 days'")
    moved = {"requested_at": row["requested_at"] + 1.5 * HOUR} if also_the_request else {}
    writer.set(held.operation_id, expires_at=row["expires_at"] + 9 * HOUR, **moved)
    clock.advance(hours=2)
    voter = sync_world.client(run_on_approval=False)
    assert voter.approve(voter.get(held, "ann"), "ann").outcome == "approved"
    voter.close()
    refused(sync_world, held)
    assert "outside the time" in sync_world.row(held)["outcome_detail"] or also_the_request


@pytest.mark.clause("T5a", "H9.3b", "H9.3c")
@pytest.mark.parametrize("also", [(), ("approved_at",), ("approved_at", "cast_at")])
def test_a_run_deadline_that_was_stretched(
    sync_world: World, writer: Writer, clock: TestClock, also: tuple[str, ...]
) -> None:
    held = sync_world.approved()
    row = sync_world.row(held)
    writer.admin.execute("alter table underseal.operation_type disable trigger user")
    writer.admin.execute("update underseal.operation_type set run_within = '100 days'")
    writer.set(held.operation_id, run_deadline=row["run_deadline"] + 9 * HOUR)
    if "approved_at" in also:
        writer.set(held.operation_id, approved_at=row["approved_at"] + 9 * HOUR)
    if "cast_at" in also:
        writer.set(held.operation_id, "held_vote", cast_at=row["approved_at"] + 9 * HOUR)
    clock.advance(hours=2)
    refused(sync_world, held)


@pytest.mark.clause("H9.3b")
def test_a_deadline_has_a_minute_of_tolerance_and_no_more(
    sync_world: World, writer: Writer, clock: TestClock
) -> None:
    """The columns of two payouts are stretched by a minute; one runs in it, one after it."""
    early, late = sync_world.approved(5), sync_world.approved(6)
    deadline = sync_world.row(early)["run_deadline"]
    writer.admin.execute("alter table underseal.operation_type disable trigger user")
    writer.admin.execute("update underseal.operation_type set run_within = '100 days'")
    for held in (early, late):
        writer.set(held.operation_id, run_deadline=deadline + timedelta(seconds=60))
    clock.set(deadline + timedelta(seconds=59))
    assert sync_world.us.run(early).outcome == "succeeded"
    sync_world.service.done.clear()
    writer.set(late.operation_id, run_deadline=deadline + timedelta(seconds=61))
    refused(sync_world, late)


def test_a_clock_that_is_turned_back_lets_a_run_be_late(sync_world: World, clock: TestClock) -> None:
    """What docs/threat-model.md says of whoever can replace the kernel's functions."""
    held = sync_world.approved()
    clock.advance(hours=2)
    assert sync_world.us.run(held).reason == "expired"
    clock.advance(hours=-2)
    assert sync_world.us.run(held).outcome == "succeeded"


# -- the policy --------------------------------------------------------------------------------------


@pytest.mark.clause("T5a", "H2.12f")
@pytest.mark.parametrize("with_text", [False, True])
def test_a_policy_that_was_lowered_by_hand(audit: Audit, writer: Writer, with_text: bool) -> None:
    held = audit.hold()
    lax = dataclasses.replace(PairSend.policy, votes_required=1).as_json()
    with writer.unguarded():
        writer.admin.execute(
            "update underseal.operation_type set votes_required = 1 where type = 'payout.pair'"
        )
        if with_text:
            writer.admin.execute(
                "update underseal.operation_type set policy = underseal.canonical_json(%(p)s),"
                " policy_digest = sha256(convert_to(underseal.canonical_json(%(p)s), 'UTF8'))"
                " where type = 'payout.pair'",
                {"p": lax},
            )
    writer.set(held.operation_id, votes_required=1)
    assert audit.approve(held, "ann") == "approved"
    refused(audit.world, held)


@pytest.mark.clause("T5a", "H2.5c")
def test_the_digest_of_a_laxer_policy(audit: Audit, writer: Writer) -> None:
    held = approved(audit)
    lax = writer.admin.execute(
        "select policy_digest from underseal.operation_type where type = 'payout.send'"
    ).fetchone()
    assert lax is not None
    writer.set(held.operation_id, policy_digest=lax["policy_digest"], votes_required=1)
    refused(audit.world, held)


class _SecondPayout(PayoutSend):
    version = 2


@pytest.mark.clause("T5a", "H2.5c")
def test_a_version_that_was_edited(sync_world: World, writer: Writer) -> None:
    held = sync_world.approved()
    sync_world.owner.execute(
        "select underseal.register_operation_type(t.type, 2, t.mode, t.parameters, %s) from underseal.operation_type t"
        " where t.type = 'payout.send'",
        [PayoutSend.policy.as_json()],
    )
    writer.set(held.operation_id, type_version=2)
    # No worker of version 1 takes it; one of version 2 opens the seal, which says 1.
    assert sync_world.us.run(held).reason == "unserved"
    second = sync_world.client()
    sync_world.gate(second, _SecondPayout(sync_world.service))
    report = second.run(held)
    second.close()
    assert (report.outcome, report.reason, sync_world.service.done) == ("refused", "integrity", [])


def test_what_is_in_force_now_is_what_the_database_says(sync_world: World, writer: Writer) -> None:
    """What docs/threat-model.md says: a writer can hide that a type was switched off since."""
    held = sync_world.approved()
    sync_world.us.set_armed("payout.send", 1, False, "oscar")
    with writer.unguarded():
        writer.admin.execute("update underseal.operation_type set armed = true")
    assert sync_world.us.run(held).outcome == "succeeded"


# -- tickets and tokens ------------------------------------------------------------------------------

TICKET = b"t" * 32


@pytest.mark.clause("T5a", "H6.6c", "H6.6d")
@pytest.mark.parametrize("state", ["HELD", "APPROVED", "SUCCEEDED"])
def test_a_forged_ticket_opens_nothing_outside_a_run(sync_world: World, writer: Writer, state: str) -> None:
    held = sync_world.hold() if state == "HELD" else sync_world.approved()
    if state == "SUCCEEDED":
        sync_world.us.run(held)
        sync_world.service.done.clear()
    with writer.unguarded():
        writer.admin.execute("delete from underseal.replay_ticket")
        writer.admin.execute(
            "insert into underseal.replay_ticket (operation_id, run_id, principal, ticket_hash, issued_at)"
            " select operation_id, coalesce(run_id, gen_random_uuid()), requester, sha256(%s), underseal.clock()"
            " from underseal.held_operation",
            [TICKET],
        )
    replay = Replay(held.operation_id, "payout.send", 1, REQUESTER, '{"cents":5,"order":"o-1"}', TICKET)
    token = replaying.set(replay)
    try:
        with pytest.raises(ReplayRefused, match="ticket"):
            sync_world.send(REQUESTER, PayoutParams(order="o-1", cents=5))
    finally:
        replaying.reset(token)
    assert sync_world.service.done == []


@pytest.mark.clause("T5a", "H6.6f")
def test_a_token_that_a_writer_knows_ends_a_run_and_runs_nothing(sync_world: World, writer: Writer) -> None:
    """A false record, which a writer can make in many ways; but no deed."""
    held = sync_world.approved()
    with writer.unguarded():
        writer.admin.execute(
            "update underseal.held_operation set state = 'EXECUTING', run_id = gen_random_uuid(), run_worker = 'm',"
            " run_audit_id = request_audit_id, run_token_hash = sha256(%s),"
            " run_lease_until = underseal.clock() + '10 minutes' where operation_id = %s",
            [TICKET, held.operation_id],
        )
    answer = writer.admin.execute(
        "select outcome from underseal.finish_run(%s, %s, 'SUCCEEDED')", [held.operation_id, TICKET]
    ).fetchone()
    assert answer == {"outcome": "finished"}
    assert sync_world.look(held).state == "SUCCEEDED"
    assert sync_world.us.run(held).outcome == "conflict"
    assert sync_world.service.done == []


# -- one damaged row ---------------------------------------------------------------------------------


UNREADABLE = [
    ("held_operation", "requested_at", "-infinity"),
    ("held_operation", "requested_at", "9000-01-01"),
    ("held_operation", "expires_at", "infinity"),
    ("held_operation", "approved_at", "10000-01-01"),
    ("held_operation", "run_deadline", "infinity"),
    ("held_vote", "cast_at", "0044-03-15 BC"),
]


@pytest.mark.clause("T5a", "H8.2d")
@pytest.mark.parametrize(("table", "column", "instant"), UNREADABLE)
def test_an_instant_that_no_calendar_has_stops_nobody_else(
    sync_world: World, writer: Writer, table: str, column: str, instant: str
) -> None:
    damaged, sound = sync_world.approved(5), sync_world.approved(6)
    writer.set(damaged.operation_id, table, **{column: instant})
    # The damaged one is tried first, reported, and left out from then on.
    reports = sync_world.us.run_approved(10) + sync_world.us.run_approved(10)
    assert [report.outcome for report in reports] == ["succeeded"]
    assert sync_world.look(sound).state == "SUCCEEDED"
    assert sync_world.us.run(damaged).reason == "damaged"
    told = writer.admin.execute("select kind from underseal.operator_report").fetchall()
    assert told == [{"kind": "claim-failed"}]


@pytest.mark.clause("T5a", "H2.5c")
@pytest.mark.parametrize("column", ["params_hash", "policy_digest", "redacted", "effect"])
def test_a_column_that_was_emptied_is_not_what_was_sealed(
    sync_world: World, writer: Writer, column: str
) -> None:
    held = sync_world.approved()
    writer.drop_constraints("held_operation")
    nothing: dict[str, Any] = {column: None}
    writer.set(held.operation_id, **nothing)
    refused(sync_world, held)


def test_a_seal_can_be_made_only_with_its_key(sync_world: World) -> None:
    """The control of the forged keys above: with the right key the same forgery opens."""
    held = sync_world.approved()
    key = sync_world.ring.active("decision")
    place = (str(held.operation_id), "ann")
    envelope = seal(b"{}", key, fmt="held-decision-v1", place=place, origin=place[0])
    with pytest.raises(Exception, match="not of version 1"):
        DecisionSeal.opened(envelope, sync_world.ring, held.operation_id, "ann")
