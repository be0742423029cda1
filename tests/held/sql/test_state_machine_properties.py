"""Any sequence of verbs and leaps of time leaves what a simple model says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, ClassVar
from uuid import UUID

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tests.held.sql.kernel import ENDED, HASH, Claimed, Kernel, outcome, payload
from tests.held.sql.shared import rolled_back

HOLD, WITHIN, LEASE, KEEP = (
    timedelta(seconds=100),
    timedelta(seconds=200),
    timedelta(minutes=15),
    timedelta(days=90),
)
APPROVERS = ("bob", "carol", "dave")
PEOPLE = (*APPROVERS, *APPROVERS, "ann", "zed")
NUMBERS = st.sampled_from((0, 0, 0, 1, 1, 2))


@dataclass
class Operation:
    """What the model knows of an operation."""

    id: UUID
    fingerprint: bytes
    expires_at: datetime
    state: str = "HELD"
    version: int = 1
    votes: dict[str, str] = field(default_factory=dict)
    run_deadline: datetime | None = None
    run: Claimed | None = None
    lease_until: datetime | None = None
    ended_at: datetime | None = None
    ticket: bytes | None = None
    ticket_used: bool = False
    late: bool = False
    events: list[str] = field(default_factory=lambda: ["requested"])

    def end(self, state: str, now: datetime) -> None:
        """It has ended."""
        self.state, self.ended_at = state, now
        self.events.append(state.lower().replace("_", "-"))

    def overdue(self, now: datetime) -> str | None:
        """End it if time has ended it: what a sweep says of it."""
        if self.state == "HELD" and self.expires_at <= now:
            self.end("EXPIRED", now)
            return "expired"
        if self.state == "APPROVED" and self.run_deadline and self.run_deadline <= now:
            self.end("EXPIRED", now)
            return "missed"
        if self.state == "EXECUTING" and self.lease_until and self.lease_until <= now:
            self.end("OUTCOME_UNKNOWN", now)
            return "outcome-unknown"
        return None


class HeldOperations(RuleBasedStateMachine):
    """Verbs in any order against the model."""

    kernel: ClassVar[Kernel]

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[Operation] = []
        self.purged: set[UUID] = set()
        self.frozen: dict[UUID, Any] = {}
        self.undo = rolled_back(self.kernel)
        self.undo.__enter__()

    def teardown(self) -> None:
        self.undo.__exit__(None, None, None)

    @property
    def now(self) -> datetime:
        return self.kernel.clock.now()

    def pick(self, number: int) -> Operation | None:
        """One of the latest operations, if there is one."""
        return self.operations[-1 - number % len(self.operations)] if self.operations else None

    @initialize()
    def register(self) -> None:
        self.kernel.register(
            approvers=list(APPROVERS),
            votes_required=2,
            rejections_to_end=2,
            hold_for=HOLD.seconds,
            run_within=WITHIN.seconds,
        )
        self.request(mark=0)
        self.request(mark=1)

    @rule(mark=st.integers(0, 5))
    def request(self, mark: int) -> None:
        fingerprint = bytes([mark]) * 32
        live = [o for o in self.operations if o.fingerprint == fingerprint and o.ended_at is None]
        live = [o for o in live if not o.overdue(self.now)]
        answer = self.kernel.request(fingerprint=fingerprint)
        if live:
            assert outcome(answer) == ("duplicate", None)
            assert (answer["held_id"], answer["state"]) == (live[0].id, live[0].state)
        else:
            assert outcome(answer) == ("held", None)
            self.operations.append(Operation(answer["held_id"], fingerprint, self.now + HOLD))

    @rule(
        number=NUMBERS,
        who=st.sampled_from(PEOPLE),
        what=st.sampled_from(("approve", "approve", "reject")),
        params_hash=st.sampled_from((HASH,) * 7 + (b"x" * 32,)),
        version=st.sampled_from((0,) * 7 + (1,)),
    )
    def vote(self, number: int, who: str, what: str, params_hash: bytes, version: int) -> None:
        operation = self.pick(number)
        if operation is None:
            return
        answer = self.kernel.vote(
            operation.id, who, what, "because", params_hash, operation.version + version
        )
        expected = self.verdict(operation, who, params_hash, version)
        if expected is not None:
            assert outcome(answer) == expected
            return
        operation.votes[who] = what
        if list(operation.votes.values()).count(what) < 2:
            assert outcome(answer) == ("recorded", None)
            operation.events.append("voted")
        elif what == "approve":
            assert outcome(answer) == ("approved", None)
            operation.state, operation.run_deadline = "APPROVED", self.now + WITHIN
            operation.events.append("approved")
        else:
            assert outcome(answer) == ("rejected", None)
            operation.end("REJECTED", self.now)

    @rule(number=NUMBERS)
    def hurry(self, number: int) -> None:
        """As far as a run, if it can be."""
        self.approve(number=number)
        self.claim(number=number, keys=("k1", "k2"))

    @rule(number=NUMBERS)
    def approve(self, number: int) -> None:
        for who in APPROVERS[:2]:
            self.vote(number=number, who=who, what="approve", params_hash=HASH, version=0)

    def verdict(
        self, operation: Operation, who: str, params_hash: bytes, version: int
    ) -> tuple[str, str | None] | None:
        """Why a vote does not count, if it does not."""
        reasons = (
            (who == "ann", "self-approval"),
            (operation.state != "HELD", "already-decided"),
            (operation.expires_at <= self.now, "expired"),
            (who in operation.votes, "already-voted"),
            (params_hash != HASH, "hash-mismatch"),
            (version != 0, "version-mismatch"),
        )
        if who == "zed" or operation.id in self.purged:
            return "not-found", None
        return next((("conflict", reason) for applies, reason in reasons if applies), None)

    @rule(number=NUMBERS, who=st.sampled_from(("ann", "ann", "bob", "zed")))
    def cancel(self, number: int, who: str) -> None:
        operation = self.pick(number)
        if operation is None:
            return
        answer = outcome(self.kernel.cancel(operation.id, who))
        if who == "zed" or operation.id in self.purged:
            assert answer == ("not-found", None)
        elif who == "bob":
            assert answer == ("conflict", "not-yours")
        elif operation.state not in ("HELD", "APPROVED"):
            assert answer == ("conflict", "already-decided")
        elif (operation.run_deadline or operation.expires_at) <= self.now:
            assert answer == ("conflict", "expired")
        else:
            assert answer == ("cancelled", None)
            operation.end("CANCELLED", self.now)

    @rule(number=NUMBERS, keys=st.sampled_from((("k1", "k2"), ("k1", "k2"), ())))
    def claim(self, number: int, keys: tuple[str, ...]) -> None:
        operation = self.pick(number)
        if operation is None:
            return
        (row,) = self.kernel.claims(keys=keys, only=operation.id)
        if operation.id in self.purged:
            assert outcome(row) == ("conflict", "not-found")
        elif operation.state != "APPROVED":
            assert outcome(row) == ("conflict", "not-approved")
        elif operation.run_deadline is None or operation.run_deadline <= self.now:
            assert outcome(row) == ("conflict", "expired")
        elif not keys:
            assert outcome(row) == ("conflict", "unserved")
        else:
            assert outcome(row) == ("claimed", None)
            operation.run = Claimed(operation.id, row["run_id"], row["run_token"])
            operation.state, operation.lease_until = "EXECUTING", self.now + LEASE
            operation.events.append("claimed")

    def expected_of_a_run(self, operation: Operation) -> str | None:
        """Why the owner of a run may not go on, if so."""
        if operation.id in self.purged:
            return "not-found"
        if operation.run is None:
            return "not-your-run"
        lost = operation.lease_until is not None and operation.lease_until <= self.now
        if operation.state == "OUTCOME_UNKNOWN" or (operation.state == "EXECUTING" and lost):
            return "lease-lost"
        return None if operation.state == "EXECUTING" else "already-ended"

    @rule(number=NUMBERS, verb=st.sampled_from(("renew", "progress", "ticket")))
    def go_on(self, number: int, verb: str) -> None:
        operation = self.pick(number)
        if operation is None:
            return
        token = operation.run.token if operation.run else b"none"
        why = self.expected_of_a_run(operation)
        if verb == "renew":
            answer = self.kernel.call("renew_run", operation.id, token)
            if why is None:
                operation.lease_until = self.now + LEASE
        elif verb == "progress":
            answer = self.kernel.call("record_progress", operation.id, token, "half")
        else:
            answer = self.kernel.call("issue_ticket", operation.id, token)
            if why is None and operation.ticket is not None:
                why = "already-issued"
            elif why is None:
                operation.ticket = answer["ticket"]
        said = {"renew": "renewed", "progress": "recorded", "ticket": "issued"}[verb]
        assert outcome(answer) == (("conflict", why) if why else (said, None))

    @rule(number=NUMBERS, who=st.sampled_from(("ann", "ann", "bob")))
    def use_ticket(self, number: int, who: str) -> None:
        operation = self.pick(number)
        if operation is None or operation.ticket is None:
            return
        opens = who == "ann" and not operation.ticket_used and self.expected_of_a_run(operation) is None
        answer = outcome(self.kernel.call("consume_ticket", operation.id, operation.ticket, who))
        assert answer == (("consumed", None) if opens else ("refused", "ticket"))
        operation.ticket_used = operation.ticket_used or opens

    @rule(number=NUMBERS, state=st.sampled_from(("SUCCEEDED", "FAILED", "REFUSED", "OUTCOME_UNKNOWN")))
    def finish(self, number: int, state: str) -> None:
        operation = self.pick(number)
        if operation is None or operation.run is None:
            return
        why = self.expected_of_a_run(operation)
        answer = outcome(self.kernel.finish(operation.run, state, "said-so"))
        assert answer == (("conflict", why) if why else ("finished", None))
        if why is None:
            operation.end(state, self.now)
        elif why == "lease-lost":
            if operation.state == "EXECUTING":
                operation.end("OUTCOME_UNKNOWN", self.now)
            if not operation.late:
                operation.late = True
                operation.events.append("late-finish")
                self.frozen.pop(operation.id, None)

    @rule()
    def sweep(self) -> None:
        expected: dict[UUID, str] = {}
        for operation in self.operations:
            if what := operation.overdue(self.now):
                expected[operation.id] = what
        answers = self.kernel.calls("sweep_operations")
        assert {answer["operation_id"]: answer["outcome"] for answer in answers} == expected

    @rule(number=NUMBERS, key=st.sampled_from(("k1", "k2")))
    def rewrap(self, number: int, key: str) -> None:
        operation = self.pick(number)
        if operation is None or operation.ended_at is not None:
            return
        row = self.kernel.operation(operation.id)
        if row["payload_key_id"] == key:
            return
        answer = self.kernel.call(
            "rewrap_operation",
            operation.id,
            payload(row["payload_key_id"]),
            payload(key),
            row["fingerprint"],
            row["fingerprint_key_id"],
        )
        assert outcome(answer) == ("rewrapped", None)

    @rule(number=NUMBERS)
    def show_something_else(self, number: int) -> None:
        operation = self.pick(number)
        if operation is None or operation.state != "HELD" or operation.votes:
            return
        operation.version += 1
        self.kernel.do(
            "update underseal.held_operation set redacted = %s where operation_id = %s",
            f'{{"account":"{operation.version}"}}',
            operation.id,
        )

    @rule()
    def purge(self) -> None:
        due = {o.id for o in self.operations if o.ended_at and o.ended_at + KEEP <= self.now} - self.purged
        assert {row["operation_id"] for row in self.kernel.calls("purge_operations")} == due
        self.purged |= due

    @rule(
        leap=st.sampled_from(
            (timedelta(seconds=1),) * 3
            + (timedelta(seconds=60), HOLD, WITHIN, timedelta(minutes=10), LEASE, KEEP)
        )
    )
    def wait(self, leap: timedelta) -> None:
        self.kernel.clock.set(self.now + leap)

    @invariant()
    def rows_are_as_the_model_says(self) -> None:
        rows = {
            row["operation_id"]: row for row in self.kernel.rows("select * from underseal.held_operation")
        }
        events: dict[UUID, list[Any]] = {}
        for event in self.kernel.rows("select * from underseal.held_event order by operation_id, seq"):
            events.setdefault(event["operation_id"], []).append(event)
        assert set(rows) == set(events) == {o.id for o in self.operations} - self.purged
        for operation in self.operations:
            if operation.id not in self.purged:
                self.check(operation, rows[operation.id], events[operation.id])

    def check(self, operation: Operation, row: dict[str, Any], events: list[dict[str, Any]]) -> None:
        """Look at one operation and its timeline."""
        ended = row["state"] in ENDED
        assert (row["state"], row["row_version"]) == (operation.state, operation.version)
        assert (row["ended_at"], row["run_deadline"]) == (operation.ended_at, operation.run_deadline)
        assert (row["sealed_payload"] is None) == (row["fingerprint"] is None) == ended
        # The timeline is contiguous, tells of every change once, and each event begins where the one before ended.
        assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
        assert [event["type"] for event in events] == operation.events
        assert [event["from_state"] for event in events[1:]] == [event["to_state"] for event in events[:-1]]
        assert events[-1]["to_state"] == row["state"]
        assert all(a["recorded_at"] <= b["recorded_at"] for a, b in pairwise(events))
        if ended:
            assert self.frozen.setdefault(operation.id, row) == row


@pytest.fixture
def committed(kernel: Kernel) -> Iterator[Kernel]:
    HeldOperations.kernel = kernel
    yield kernel
    del HeldOperations.kernel


@pytest.mark.clause("T6e", "H3.1a", "H3.4b", "H3.5b", "H3.6a")
def test_any_sequence_of_verbs(committed: Kernel) -> None:
    run_state_machine_as_test(
        HeldOperations,
        settings=settings(
            max_examples=40,
            stateful_step_count=40,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
