"""Asking: what is judged, and what is held then."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from tests.held.sql.kernel import (
    HASH,
    HOLD_FOR,
    PLAIN_SCHEMA,
    RUN_LEASE_MINUTES,
    RUN_WITHIN,
    TYPE,
    Kernel,
    decision,
    envelope,
    outcome,
    payload,
)


def test_begin_request_says_what_a_client_seals(k: Kernel) -> None:
    answer = k.call("begin_request", TYPE, 1, "ann")
    (registered,) = k.calls("list_operation_types")
    assert outcome(answer) == ("ready", None)
    assert {name: answer[name] for name in ("mode", "parameters", "policy", "policy_digest", "salted")} == {
        name: registered[name] for name in ("mode", "parameters", "policy", "policy_digest", "salted")
    }
    assert (answer["effective_principal"], answer["hold_for"], answer["run_within"]) == (
        "ann",
        HOLD_FOR,
        RUN_WITHIN,
    )


@pytest.mark.clause("H9.3a")
def test_begin_request_reads_the_database_s_clock(k: Kernel) -> None:
    for _ in range(2):
        assert k.call("begin_request", TYPE, 1, "ann")["now"] == k.clock.now()
        k.clock.advance(days=3)


def test_a_request_is_held_under_the_policy_in_force(k: Kernel) -> None:
    answer = k.request(token_id="t1")
    row = k.operation(answer["held_id"])
    assert outcome(answer) == ("held", None)
    assert (answer["state"], answer["mode"], answer["row_version"]) == ("HELD", "ON_APPROVAL", 1)
    assert answer["live_payload"] is None
    assert row["requested_at"] == row["changed_at"] == k.clock.now() == answer["requested_at"]
    assert row["expires_at"] - row["requested_at"] == timedelta(seconds=HOLD_FOR)
    assert row["run_within"] == timedelta(seconds=RUN_WITHIN)
    assert (row["requester"], row["auth_kind"], row["token_id"], row["changed_by"]) == (
        "ann",
        "session",
        "t1",
        "ann",
    )
    assert (row["params_hash"], row["policy_digest"], row["votes_required"]) == (HASH, k.digest(), 1)
    assert (row["sealed_payload"], row["payload_key_id"]) == (payload().obj, "k1")
    assert k.events(answer["held_id"]) == ["requested"]


def test_a_request_is_audited(k: Kernel) -> None:
    answer = k.request()
    (entry,) = k.audit(answer["held_id"], "request")
    assert (entry["id"], entry["parent_id"], entry["principal"]) == (answer["audit_id"], None, "ann")
    assert entry["detail"] == {"type": TYPE, "version": 1, "params_hash": HASH.hex(), "auth_kind": "session"}


@pytest.mark.parametrize("verb", ["begin_request", "request_operation"])
@pytest.mark.parametrize(
    ("kind", "version", "reason"),
    [("other", 1, "unknown-type"), (TYPE, 1, "version-changed"), (TYPE, 3, "version-changed")],
)
def test_only_the_version_in_force_is_requested(
    k: Kernel, verb: str, kind: str, version: int, reason: str
) -> None:
    k.register(version=2)
    before = k.everything()
    answer = (
        k.call("begin_request", kind, version, "ann")
        if verb == "begin_request"
        else k.request(type=kind, version=version)
    )
    assert outcome(answer) == ("refused", reason)
    assert k.everything() == before


@pytest.mark.clause("H6.1b", "H6.1c")
def test_a_disarmed_type_takes_no_request_and_lets_nothing_through(k: Kernel) -> None:
    digest = k.digest()
    k.call("set_armed", TYPE, 1, False)
    before = k.everything()
    assert outcome(k.call("begin_request", TYPE, 1, "ann")) == ("refused", "provider-disarmed")
    assert outcome(k.request(policy_digest=digest)) == ("refused", "provider-disarmed")
    assert k.everything() == before


def test_a_request_under_another_policy_is_refused(k: Kernel) -> None:
    old = k.digest()
    k.register(votes_required=2)
    before = k.everything()
    assert outcome(k.request(policy_digest=old)) == ("conflict", "policy-changed")
    assert outcome(k.request(policy_digest=None)) == ("conflict", "policy-changed")
    assert k.everything() == before


@pytest.mark.clause("H2.8b")
@pytest.mark.parametrize("redacted", ['{"account":"a","pin":"1"}', '{"account":"a","other":"1"}'])
def test_a_redacted_copy_that_shows_too_much_is_refused(k: Kernel, redacted: str) -> None:
    before = k.everything()
    assert outcome(k.request(redacted=redacted)) == ("refused", "redaction-leak")
    assert k.everything() == before


def test_what_approvers_see_has_a_bounded_size(k: Kernel) -> None:
    room = 65536 - len('{"account":""}')
    assert outcome(k.request(redacted='{"account":"%s"}' % ("x" * (room + 1)))) == ("refused", "too-large")
    assert outcome(k.request(redacted='{"account":"%s"}' % ("x" * room))) == ("held", None)
    assert outcome(k.request(effect="x" * 65537)) == ("refused", "too-large")
    assert outcome(k.request(effect="x" * 65536)) == ("held", None)
    assert outcome(k.request(state_key="x" * 1025)) == ("refused", "too-large")
    assert outcome(k.request(state_key="x" * 1024)) == ("held", None)


@pytest.mark.clause("H7.2a")
def test_a_repeat_gives_the_live_row_and_its_seal(k: Kernel) -> None:
    first = k.request(fingerprint=b"f" * 32)
    before = k.everything()
    again = k.request(fingerprint=b"f" * 32, sealed_payload=payload("k2"))
    assert outcome(again) == ("duplicate", None)
    assert (again["held_id"], again["state"], again["live_payload"]) == (
        first["held_id"],
        "HELD",
        payload().obj,
    )
    assert (again["held_hash"], again["audit_id"]) == (HASH, first["audit_id"])
    assert k.everything() == before


@pytest.mark.clause("H1.7e")
def test_a_repeat_is_found_under_an_older_key(k: Kernel) -> None:
    first = k.hold(fingerprint=b"o" * 32)
    again = k.request(fingerprint=b"n" * 32, older_fingerprints=[b"x" * 32, b"o" * 32])
    assert (outcome(again), again["held_id"]) == (("duplicate", None), first)


@pytest.mark.parametrize("state", ["APPROVED", "EXECUTING"])
def test_a_repeat_finds_any_open_row(k: Kernel, state: str) -> None:
    operation = k.reach(state)
    again = k.request(fingerprint=k.operation(operation)["fingerprint"])
    assert (outcome(again), again["held_id"], again["state"]) == (("duplicate", None), operation, state)


def test_what_has_ended_is_no_duplicate(k: Kernel) -> None:
    operation = k.hold(fingerprint=b"f" * 32)
    k.cancel(operation)
    assert k.hold(fingerprint=b"f" * 32) != operation


@pytest.mark.clause("H7.4a")
def test_somebody_else_s_fingerprint_shows_nothing_of_the_row(k: Kernel) -> None:
    operation = k.hold(fingerprint=b"f" * 32)
    answer = k.request(fingerprint=b"f" * 32, principal="zed")
    assert outcome(answer) == ("conflict", "fingerprint-taken")
    assert {value for name, value in answer.items() if name not in ("outcome", "reason", "message")} == {None}
    assert str(operation) not in answer["message"]
    (report,) = k.rows("select * from underseal.operator_reports")
    assert (report["subject"], report["kind"]) == (str(operation), "foreign-fingerprint")


def test_an_id_that_is_taken_is_refused(k: Kernel) -> None:
    operation = k.hold()
    before = k.everything()
    assert outcome(k.request(operation)) == ("conflict", "id-taken")
    assert k.everything() == before


@pytest.mark.parametrize(
    "seal",
    [None, decision(), envelope("other-v1"), payload(kid=""), payload(content="ab=+")],
    ids=["none", "a decision's", "another format", "no key id", "not base64url"],
)
def test_a_payload_that_is_no_envelope_is_refused(k: Kernel, seal: Any) -> None:
    with pytest.raises(psycopg.Error) as caught:
        k.request(sealed_payload=seal)
    assert caught.value.sqlstate == "US013"


@pytest.mark.parametrize(
    "change",
    [{"params_hash": b"short"}, {"fingerprint": None}, {"fingerprint_key_id": None}, {"auth_kind": None}],
    ids=str,
)
def test_a_malformed_request_holds_nothing(k: Kernel, change: dict[str, Any]) -> None:
    with pytest.raises(psycopg.IntegrityError):
        k.request(**change)
    assert k.rows("select from underseal.held_operation") == []


@pytest.mark.clause("H7.1")
def test_the_mode_comes_from_the_type(bare: Kernel) -> None:
    bare.register("in.background", parameters=PLAIN_SCHEMA)
    bare.register("in.person", mode="BY_REQUESTER", parameters=PLAIN_SCHEMA)
    assert bare.request(type="in.background")["mode"] == "ON_APPROVAL"
    assert bare.request(type="in.person")["mode"] == "BY_REQUESTER"


def test_a_caller_without_a_principal_is_denied(k: Kernel) -> None:
    digest = k.digest()
    before = k.everything()
    for nobody in (None, ""):
        assert outcome(k.call("begin_request", TYPE, 1, nobody)) == ("denied", "no-principal")
        assert outcome(k.request(uuid4(), principal=nobody, policy_digest=digest)) == (
            "denied",
            "no-principal",
        )
    assert k.everything() == before


@pytest.mark.clause("H1.7f", "H5.4")
@pytest.mark.parametrize("state", ["HELD", "APPROVED", "EXECUTING"])
def test_what_time_has_ended_is_no_duplicate(k: Kernel, state: str) -> None:
    """The vote and the run say: request again. So that must work before a sweep has come by."""
    same = os.urandom(32)
    first = k.hold(fingerprint=same)
    if state != "HELD":
        k.approve(first)
    if state == "EXECUTING":
        k.run(first)
    late = {"HELD": HOLD_FOR, "APPROVED": RUN_WITHIN, "EXECUTING": RUN_LEASE_MINUTES * 60}[state]
    k.clock.advance(seconds=late - 1)
    assert outcome(k.request(fingerprint=same)) == ("duplicate", None)
    k.clock.advance(seconds=1)
    assert outcome(k.request(fingerprint=same)) == ("held", None)
    assert k.state(first) == ("OUTCOME_UNKNOWN" if state == "EXECUTING" else "EXPIRED")
