"""One claim, one run."""

from __future__ import annotations

import hashlib
from datetime import timedelta
from uuid import UUID, uuid4

import pytest

from tests.held.sql.kernel import (
    ENDED,
    HASH,
    PLAIN_SCHEMA,
    RUN_LEASE_MINUTES,
    RUN_WITHIN,
    TYPE,
    Kernel,
    as_text,
    decision,
    outcome,
    payload,
)


def approved(k: Kernel, **changes: object) -> UUID:
    operation = k.hold(**changes)
    k.approve(operation)
    return operation


@pytest.mark.clause("H8.1a", "H9.3c")
def test_a_claim_gives_all_that_a_run_needs(k: Kernel) -> None:
    requested = k.request(token_id="t1")
    operation = requested["held_id"]
    k.clock.advance(seconds=10)
    k.vote(operation, "bob", "approve", "yes")
    k.clock.advance(seconds=10)
    (row,) = k.claims()
    stored = k.operation(operation)
    assert outcome(row) == ("claimed", None)
    assert row["claimed_at"] == stored["changed_at"] == k.clock.now()
    assert (
        row["lease_until"]
        == stored["run_lease_until"]
        == k.clock.now() + timedelta(minutes=RUN_LEASE_MINUTES)
    )
    assert (row["type"], row["version"], row["current_version"], row["armed"]) == (TYPE, 1, 1, True)
    assert (row["mode"], row["requester"], row["auth_kind"], row["token_id"]) == (
        "ON_APPROVAL",
        "ann",
        "session",
        "t1",
    )
    assert (row["params_hash"], row["policy_digest"], row["policy_in_force_digest"]) == (
        HASH,
        k.digest(),
        k.digest(),
    )
    assert (row["state_key"], row["effect"], row["redacted"]) == ("s1", '{"closes":1}', '{"account":"a"}')
    assert (row["eligible"], row["votes_required"], row["row_version"]) == (["bob"], 1, 1)
    assert (row["sealed_payload"], row["request_audit_id"]) == (payload().obj, requested["audit_id"])
    assert (row["run_id"], row["run_audit_id"]) == (stored["run_id"], stored["run_audit_id"])
    (vote,) = row["votes"]
    assert (vote["approver"], vote["decision"], vote["row_version"]) == ("bob", "approve", 1)
    assert (vote["params_hash"], vote["sealed_decision"]) == (HASH.hex(), decision().obj)
    assert (stored["state"], stored["run_worker"], stored["changed_by"]) == ("EXECUTING", "w1", "worker:w1")
    last = k.timeline(operation)[-1]
    assert (last["type"], last["actor"]) == ("claimed", "worker:w1")


@pytest.mark.clause("H6.7a", "H6.7b", "H6.9")
def test_a_run_is_audited_under_its_request_with_its_approval(k: Kernel) -> None:
    operation = k.hold()
    k.approve(operation)
    k.run(operation)
    (request,) = k.audit(operation, "request")
    (run,) = k.audit(operation, "run")
    stored = k.operation(operation)
    assert (run["parent_id"], run["id"], run["principal"]) == (request["id"], stored["run_audit_id"], "ann")
    assert (run["detail"]["worker"], run["detail"]["run_id"]) == ("w1", str(stored["run_id"]))
    assert [approval["approver"] for approval in run["detail"]["approvals"]] == ["bob"]
    assert run["detail"]["approved_at"] is not None


@pytest.mark.clause("H6.7c")
def test_the_audit_entry_of_a_run_is_there_only_with_the_claim(k: Kernel) -> None:
    operation = k.hold()
    k.approve(operation)
    with k.connection.transaction(force_rollback=True):
        k.run(operation)
        assert len(k.audit(operation, "run")) == 1
    assert (k.state(operation), k.audit(operation, "run")) == ("APPROVED", [])


@pytest.mark.clause("H6.6e")
def test_a_row_holds_the_hash_of_the_token_alone(k: Kernel) -> None:
    run = k.executing()
    assert len(run.token) == 32
    assert k.operation(run.operation)["run_token_hash"] == hashlib.sha256(run.token).digest()
    assert run.token.hex() not in as_text([k.everything()])


def test_no_two_claims_have_a_token_in_common(k: Kernel) -> None:
    for _ in range(4):
        approved(k)
    rows = k.claims()
    assert len({row["run_token"] for row in rows}) == len({row["run_id"] for row in rows}) == 4


@pytest.mark.clause("H5.1a")
@pytest.mark.parametrize("state", ["HELD", "EXECUTING", *ENDED])
def test_a_claim_takes_only_an_approved_row(k: Kernel, state: str) -> None:
    operation = k.reach(state)
    before = k.everything()
    assert k.claims() == []
    (answer,) = k.claims(only=operation)
    assert outcome(answer) == ("conflict", "not-approved")
    assert state in answer["message"]
    assert answer["run_token"] is None
    assert k.everything() == before


@pytest.mark.clause("H5.1b", "H5.4", "H9.1a")
def test_a_claim_takes_only_a_row_before_its_run_deadline(k: Kernel) -> None:
    operation = k.reach("APPROVED")
    k.clock.advance(seconds=RUN_WITHIN)
    before = k.everything()
    assert k.claims() == []
    (answer,) = k.claims(only=operation)
    assert outcome(answer) == ("conflict", "expired")
    assert k.everything() == before
    k.clock.advance(microseconds=-1)
    assert outcome(k.claims()[0]) == ("claimed", None)


def test_a_shorter_time_to_run_counts(k: Kernel) -> None:
    operation = k.reach("APPROVED")
    k.register(run_within=60)
    k.clock.advance(seconds=60)
    before = k.everything()
    assert k.claims() == []
    (answer,) = k.claims(only=operation)
    assert outcome(answer) == ("conflict", "expired")
    assert k.everything() == before
    k.clock.advance(microseconds=-1)
    assert outcome(k.claims()[0]) == ("claimed", None)


@pytest.mark.clause("H5.1b")
def test_a_policy_that_became_laxer_gives_no_more_time_to_run(bare: Kernel) -> None:
    bare.register(run_within=60)
    operation = bare.reach("APPROVED")
    bare.register(run_within=3600)
    bare.clock.advance(seconds=60)
    assert outcome(bare.claims(only=operation)[0]) == ("conflict", "expired")


def damage(k: Kernel, operation: UUID) -> None:
    """Leave an event in the way of the one that a claim must write."""
    with k.login(None):
        k.connection.execute("alter table underseal.held_event disable trigger user")
        k.connection.execute(
            "insert into underseal.held_event (operation_id, seq, type, actor, from_state, to_state, recorded_at)"
            " values (%s, 9, 'claimed', 'hand', 'APPROVED', 'EXECUTING', underseal.clock())",
            [operation],
        )
        for trigger in ("check", "append_only", "no_truncate"):
            k.connection.execute(
                f"alter table underseal.held_event enable always trigger held_event_{trigger}"
            )
        k.connection.execute("alter table underseal.held_event enable trigger held_event_queue")


def test_a_damaged_row_stops_nobody_else_s_run(k: Kernel) -> None:
    operations = []
    for _ in range(3):
        operations.append(approved(k))
        k.clock.advance(seconds=1)
    damage(k, operations[0])
    assert [row["operation_id"] for row in k.claims(max_runs=1)] == [operations[1]]
    assert [row["operation_id"] for row in k.claims(max_runs=2)] == [operations[2]]
    (report,) = k.rows("select * from underseal.operator_reports")
    assert (report["subject"], report["kind"], report["times"]) == (str(operations[0]), "claim-failed", 1)
    (answer,) = k.claims(only=operations[0])
    assert (outcome(answer), answer["sealed_payload"]) == (("conflict", "damaged"), None)
    assert (k.state(operations[0]), k.audit(operations[0], "run")) == ("APPROVED", [])
    k.call("clear_report", str(operations[0]), "claim-failed", "olga")
    with k.login(None):
        k.connection.execute("alter table underseal.held_event disable trigger user")
        k.connection.execute("delete from underseal.held_event where seq = 9")
        for trigger in ("check", "append_only", "no_truncate"):
            k.connection.execute(
                f"alter table underseal.held_event enable always trigger held_event_{trigger}"
            )
    assert [row["operation_id"] for row in k.claims()] == [operations[0]]


@pytest.mark.clause("H5.5a", "H5.5c")
def test_a_claim_takes_only_types_its_worker_serves(k: Kernel) -> None:
    operation = k.reach("APPROVED")
    before = k.everything()
    for types, versions in (([], []), (["other"], [1]), (["other", TYPE], [1, 2])):
        assert k.claims(types=types, versions=versions) == []
        (answer,) = k.claims(types=types, versions=versions, only=operation)
        assert outcome(answer) == ("conflict", "unserved")
    assert k.everything() == before
    assert outcome(k.claims(types=["other", TYPE], versions=[2, 1])[0]) == ("claimed", None)


@pytest.mark.clause("H6.2")
def test_a_version_no_longer_in_force_is_claimed_by_who_knows_the_type(k: Kernel) -> None:
    k.reach("APPROVED")
    k.register(version=2)
    assert k.claims(types=["other"], versions=[1]) == []
    (row,) = k.claims(types=[TYPE], versions=[2])
    assert (row["version"], row["current_version"]) == (1, 2)


@pytest.mark.clause("H5.5b", "H5.5c", "H5.5e")
@pytest.mark.parametrize("keys", [[], ["k2"], ["p"], ["d"]])
def test_a_claim_takes_no_row_sealed_under_a_key_that_is_not_there(k: Kernel, keys: list[str]) -> None:
    operation = k.hold(sealed_payload=payload("p"))
    k.vote(operation, seal=decision("d"))
    before = k.everything()
    assert k.claims(keys=keys) == []
    (answer,) = k.claims(keys=keys, only=operation)
    assert outcome(answer) == ("conflict", "unserved")
    assert k.everything() == before
    assert outcome(k.claims(keys=["d", "p"])[0]) == ("claimed", None)


@pytest.mark.clause("H5.5b")
def test_a_claim_needs_the_key_of_every_decision(bare: Kernel) -> None:
    bare.register(votes_required=2)
    operation = bare.hold()
    bare.vote(operation, "bob", seal=decision("d1"))
    bare.vote(operation, "carol", seal=decision("d2"))
    for keys in (["k1", "d1"], ["k1", "d2"]):
        assert bare.claims(keys=keys) == []
    assert len(bare.claims(keys=["k1", "d1", "d2"])) == 1


@pytest.mark.clause("H5.3a")
def test_claims_come_in_batches_the_nearest_deadline_first(k: Kernel) -> None:
    operations = []
    for _ in range(5):
        operations.append(approved(k))
        k.clock.advance(seconds=1)
    assert [row["operation_id"] for row in k.claims(max_runs=2)] == operations[:2]
    assert [row["operation_id"] for row in k.claims(max_runs=2)] == operations[2:4]
    assert [row["operation_id"] for row in k.claims(max_runs=2)] == operations[4:]
    assert k.claims(max_runs=2) == []


@pytest.mark.clause("H5.1c")
def test_a_row_is_claimed_once(k: Kernel) -> None:
    operation = k.reach("APPROVED")
    assert len(k.claims()) == 1
    assert k.claims(worker="w2") == []
    assert outcome(k.claims(worker="w2", only=operation)[0]) == ("conflict", "not-approved")


@pytest.mark.clause("H7.2e")
def test_no_worker_claims_what_the_requester_runs(bare: Kernel) -> None:
    bare.register(mode="BY_REQUESTER")
    operation = bare.reach("APPROVED")
    before = bare.everything()
    assert bare.claims() == []
    assert outcome(bare.claims(only=operation)[0]) == ("conflict", "other-mode")
    assert bare.everything() == before


def test_who_may_not_claim_is_told_nothing(k: Kernel) -> None:
    operation = k.reach("APPROVED")
    before = k.everything()
    for only in (None, operation, uuid4()):
        (answer,) = k.claims(worker=None, only=only)
        assert (outcome(answer), answer["sealed_payload"]) == (("denied", "no-principal"), None)
    assert k.everything() == before
    assert outcome(k.claims(only=uuid4())[0]) == ("conflict", "not-found")


@pytest.mark.clause("H2.12h")
def test_a_claim_says_who_of_its_voters_is_eligible_now(bare: Kernel) -> None:
    bare.register(approvers=["bob", "carol", "dave"], votes_required=2)
    operation = bare.hold()
    bare.approve(operation, "bob")
    bare.approve(operation, "carol")
    bare.register(approvers=["carol", "dave"], votes_required=2)
    (row,) = bare.claims(only=operation)
    assert row["eligible"] == ["carol"]
    assert row["policy_in_force_digest"] == bare.digest() != row["policy_digest"]


@pytest.mark.clause("H5.5c", "H5.5d")
def test_what_a_worker_cannot_serve_is_reported_first_and_then_every_16th_time(k: Kernel) -> None:
    operation = k.reach("APPROVED")
    said = []
    for _ in range(33):
        (answer,) = k.calls("report_unserved", "w1", [TYPE], [1], ["k2"])
        assert (answer["operation_id"], answer["reason"]) == (operation, "unserved-key")
        said.append(answer["outcome"])
    assert [number for number, what in enumerate(said, 1) if what == "reported"] == [1, 16, 32]
    assert set(said) == {"reported", "quiet"}
    (report,) = k.rows("select * from underseal.operator_reports")
    assert (report["subject"], report["kind"], report["times"]) == (str(operation), "unserved-key", 33)
    assert k.state(operation) == "APPROVED"


@pytest.mark.clause("H5.5d")
def test_a_report_says_whether_the_type_or_the_key_is_missing(k: Kernel) -> None:
    k.reach("APPROVED")
    k.reach("HELD")
    k.reach("EXECUTING")
    assert [a["reason"] for a in k.calls("report_unserved", "w1", ["other"], [1], ["k1"])] == [
        "unserved-type"
    ]
    assert [a["reason"] for a in k.calls("report_unserved", "w1", [TYPE], [2], ["k1"])] == ["unserved-key"]
    assert k.calls("report_unserved", "w1", [TYPE], [1], ["k1"]) == []
    assert [outcome(a) for a in k.calls("report_unserved", None, [], [], [])] == [("denied", "no-principal")]
    k.clock.advance(seconds=RUN_WITHIN)
    assert k.calls("report_unserved", "w1", [], [], []) == []


def test_what_the_requester_runs_is_not_reported(bare: Kernel) -> None:
    bare.register(mode="BY_REQUESTER", parameters=PLAIN_SCHEMA)
    bare.reach("APPROVED")
    assert bare.calls("report_unserved", "w1", [], [], []) == []
