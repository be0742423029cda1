"""Held operations: a timeline without gaps that leads where the row is, and the votes that it speaks of."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from underseal.testing.audit.books import Books, Row

ENDS = {"REJECTED", "CANCELLED", "EXPIRED", "SUCCEEDED", "FAILED", "REFUSED", "OUTCOME_UNKNOWN"}
STEPS = {
    (None, "HELD"): "requested",
    ("HELD", "HELD"): "voted",
    ("HELD", "APPROVED"): "approved",
    ("HELD", "REJECTED"): "rejected",
    ("HELD", "CANCELLED"): "cancelled",
    ("HELD", "EXPIRED"): "expired",
    ("APPROVED", "EXECUTING"): "claimed",
    ("APPROVED", "CANCELLED"): "cancelled",
    ("APPROVED", "EXPIRED"): "expired",
    ("EXECUTING", "SUCCEEDED"): "succeeded",
    ("EXECUTING", "FAILED"): "failed",
    ("EXECUTING", "REFUSED"): "refused",
    ("EXECUTING", "OUTCOME_UNKNOWN"): "outcome-unknown",
    ("OUTCOME_UNKNOWN", "OUTCOME_UNKNOWN"): "late-finish",
}

_LIMITS = (
    (("voted", "approved", "rejected"), "expires_at"),
    (("claimed",), "run_deadline"),
    (("succeeded", "failed", "refused"), "run_lease_until"),
)
_DAMAGED = {"claim-failed", "sweep-failed", "foreign-fingerprint"}

Timelines = dict[str, list[Row]]


def timelines_of(books: Books) -> Timelines:
    """The timeline of each operation, in its order."""
    found: Timelines = defaultdict(list)
    for event in books.timelines:
        found[str(event["operation_id"])].append(event)
    for timeline in found.values():
        timeline.sort(key=lambda event: int(event["seq"]))
    return found


def event_of(timeline: list[Row], *kinds: str) -> Row | None:
    """The event of one of these types."""
    return next((event for event in timeline if event["type"] in kinds), None)


def audit_held(books: Books, timelines: Timelines) -> Iterator[str]:
    """What is wrong with the operations themselves."""
    operations = {str(row["operation_id"]): row for row in books.operations}
    votes: dict[str, list[Row]] = defaultdict(list)
    for vote in books.votes:
        votes[str(vote["operation_id"])].append(vote)
    for name in sorted((timelines.keys() | votes.keys()) - operations.keys()):
        yield f"{name}: a timeline or votes without an operation"
    for row in books.asked:
        if str(row["operation_id"]) not in operations:
            yield f"{row['operation_id']}: its requester was told that it is held, and it is not there"
    for row in books.reports:
        if row["kind"] in _DAMAGED:
            yield f"{row['operation_id']}: is reported as {row['kind']}, {row['cause']}"
    for name, row in operations.items():
        timeline = timelines[name]
        for part in (_timeline(row, timeline), _instants(row, timeline), _votes(row, timeline, votes[name])):
            yield from (f"{name}: {fault}" for fault in part)
        yield from (f"{name}: {fault}" for fault in _left_open(books, row))


def _timeline(row: Row, timeline: list[Row]) -> Iterator[str]:
    numbers = [event["seq"] for event in timeline]
    if not numbers or numbers != list(range(1, len(numbers) + 1)):
        yield f"expected events from 1 without a gap, found {numbers}"
        return
    state = None
    for event in timeline:
        step = (event["from_state"], event["to_state"])
        if step[0] != state or STEPS.get(step) != event["type"]:
            yield f"event {event['seq']}, {event['type']}, leads from {step[0]} to {step[1]}, and it was {state}"
        state = event["to_state"]
    if state != row["state"]:
        yield f"its timeline leads to {state}, and it is {row['state']}"
    ends = [event for event in timeline if event["to_state"] in ENDS and event["type"] != "late-finish"]
    if len(ends) != (row["state"] in ENDS):
        yield f"{len(ends)} ends of one that is {row['state']}"
    elif ends and (ends[0]["reason"], ends[0]["recorded_at"]) != (row["outcome_reason"], row["ended_at"]):
        yield f"its timeline ends with {ends[0]['reason']} at {ends[0]['recorded_at']}, and its row says otherwise"
    if sum(event["type"] == "late-finish" for event in timeline) > 1:
        yield "comes too late twice"
    places = [event["position"] for event in timeline if event["position"] is not None]
    if places != sorted(set(places)) or any((one["position"] is None) != one["pending"] for one in timeline):
        yield f"its events have the places {places} in the outbox, and others are neither there nor pending"


def _instants(row: Row, timeline: list[Row]) -> Iterator[str]:
    """Each was in time, by the clock that it was recorded with."""
    for kinds, limit in _LIMITS:
        for event in timeline:
            if event["type"] in kinds and (row[limit] is None or event["recorded_at"] >= row[limit]):
                yield f"was {event['type']} at {event['recorded_at']}, past {row[limit]}"
    lost = event_of(timeline, "outcome-unknown")
    if lost and lost["reason"] == "lease-lost" and lost["recorded_at"] < row["run_lease_until"]:
        yield f"was given up at {lost['recorded_at']}, and its lease was until {row['run_lease_until']}"
    approved = event_of(timeline, "approved")
    if (approved and approved["recorded_at"]) != row["approved_at"]:
        yield f"was approved at {row['approved_at']}, and its timeline says otherwise"


def _votes(row: Row, timeline: list[Row], votes: list[Row]) -> Iterator[str]:
    """The votes of distinct people who may, on what is held, as many as it takes."""
    cast = Counter(event["actor"] for event in timeline if event["type"] in ("voted", "approved", "rejected"))
    if cast != Counter(vote["approver"] for vote in votes):
        yield f"its timeline has the votes of {sorted(cast.elements())}, and other votes are there"
    for vote in votes:
        who = vote["approver"]
        if who == row["requester"]:
            yield f"{who} asked for it and voted"
        if row["approvers"] is not None and who not in row["approvers"]:
            yield f"{who} voted, who is none of {row['approvers']}"
        if (vote["params_hash"], vote["row_version"]) != (row["params_hash"], row["row_version"]):
            yield f"{who} voted on something else"
    by_whom = {vote["approver"]: vote["decision"] for vote in votes}
    for kind, decision, needed in (("approved", "approve", row["votes_required"]), ("rejected", "reject", 1)):
        end = event_of(timeline, kind)
        if end is None:
            continue
        count = len({one["actor"] for one in timeline[: end["seq"]] if by_whom.get(one["actor"]) == decision})
        if count < needed:
            yield f"was {kind} by {count} votes of {needed}"


def _left_open(books: Books, row: Row) -> Iterator[str]:
    """What time has ended was ended."""
    limit = {"EXECUTING": "run_lease_until", "APPROVED": "run_deadline"}.get(row["state"])
    if limit is not None and row[limit] <= books.now:
        yield f"is left {row['state']}, though its time was over at {row[limit]}"
