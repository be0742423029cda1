"""The audit of held operations: it finds what is broken by hand in books that it had nothing against."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pytest_postgresql.executors import NoopExecutor

from tests.databases import own_database
from tests.simulation.held_house import House
from underseal.foundation.server import Server
from underseal.testing.audit import audit
from underseal.testing.audit.books import Row


@pytest.fixture(scope="module")
def house(postgres: Server, template: NoopExecutor) -> Iterator[House]:
    """One in which everything has happened."""
    with own_database(postgres, template, "house") as database:
        house = House(database)

        async def live() -> None:
            async with house.open():
                await house.live()

        asyncio.run(live())
        yield house


class Ledger:
    """Books to be broken, and their rows by the names of orders."""

    def __init__(self, house: House) -> None:
        self.ids = house.ids
        self.books = copy.deepcopy(house.books(runs=house.runs))
        assert self.books.runs is not None
        self.runs = self.books.runs

    def row(self, name: str) -> Row:
        """The operation of an order."""
        (found,) = (one for one in self.books.operations if one["operation_id"] == self.ids[name])
        return found

    def event(self, name: str, kind: str) -> Row:
        """An event of its timeline, the last of its type."""
        return [
            one
            for one in self.books.timelines
            if one["operation_id"] == self.ids[name] and one["type"] == kind
        ][-1]

    def vote(self, name: str) -> Row:
        """The vote that approved it."""
        who = self.event(name, "approved")["actor"]
        (found,) = (
            one for one in self.books.votes if (one["operation_id"], one["approver"]) == (self.ids[name], who)
        )
        return found

    def run(self, name: str) -> Row:
        """What its body noted."""
        (found,) = (one for one in self.runs if one["operation_id"] == self.ids[name])
        return found

    def add_run(self, name: str, like: str = "done", **changes: Any) -> None:
        """Let a body have noted something more."""
        self.runs.append({**self.run(like), "operation_id": self.ids[name], **changes})

    def add_event(self, name: str, like: str) -> None:
        """The same once more, at the end of the timeline."""
        event = self.event(name, like)
        last = max(one["seq"] for one in self.books.timelines if one["operation_id"] == event["operation_id"])
        self.books.timelines.append({**event, "seq": last + 1, "position": None, "pending": True})

    def told(self) -> Row:
        """The event by which a flow was told."""
        (found,) = (
            one
            for one in self.books.events
            if one["type"] == "MESSAGE_CONSUMED" and one["data"]["topic"].startswith("$hold/")
        )
        return found


Break = Callable[[Ledger], Any]


def voted_by(name: str) -> Break:
    """Somebody else cast the last vote."""

    def change(ledger: Ledger) -> None:
        ledger.vote("done")["approver"] = ledger.event("done", "approved")["actor"] = name

    return change


def told_again(ledger: Ledger) -> None:
    """The same end, as another message."""
    event = ledger.told()
    for other in ledger.books.events:
        if other["chain_id"] == event["chain_id"] and other["seq"] > event["seq"]:
            other["seq"] += 1
    data = {**event["data"], "inbox_seq": event["data"]["inbox_seq"] + 1, "key": "another"}
    ledger.books.events.append({**event, "seq": event["seq"] + 1, "data": data})
    (row,) = (one for one in ledger.books.executions if one["chain_id"] == event["chain_id"])
    row["head"] += 1


BROKEN: dict[str, tuple[Break, str]] = {
    "gap": (
        lambda one: one.books.timelines.remove(one.event("done", "claimed")),
        "without a gap, found [1, 2, 3, 5]",
    ),
    "no beginning": (
        lambda one: one.books.timelines.remove(one.event("held", "requested")),
        "without a gap, found [2]",
    ),
    "another state": (lambda one: one.row("done").update(state="FAILED"), "its timeline leads to SUCCEEDED"),
    "step left out": (
        lambda one: one.event("done", "approved").update(type="voted", to_state="HELD"),
        "leads from APPROVED to EXECUTING, and it was HELD",
    ),
    "other word": (
        lambda one: one.event("done", "claimed").update(type="approved"),
        "event 4, approved, leads from",
    ),
    "two ends": (lambda one: one.add_event("done", "succeeded"), "2 ends of one that is SUCCEEDED"),
    "other reason": (lambda one: one.row("refused").update(outcome_reason="why"), "its row says otherwise"),
    "late twice": (lambda one: one.add_event("stalled", "late-finish"), "comes too late twice"),
    "place twice": (
        lambda one: one.event("done", "claimed").update(position=one.event("done", "requested")["position"]),
        "in the outbox",
    ),
    "in no outbox": (
        lambda one: one.event("held", "voted").update(pending=False),
        "neither there nor pending",
    ),
    "voted late": (
        lambda one: one.event("done", "voted").update(recorded_at=one.row("done")["expires_at"]),
        "was voted at",
    ),
    "claimed late": (
        lambda one: one.event("done", "claimed").update(recorded_at=one.row("done")["run_deadline"]),
        "was claimed at",
    ),
    "ended late": (
        lambda one: one.row("done").update(run_lease_until=one.event("done", "succeeded")["recorded_at"]),
        "was succeeded at",
    ),
    "given up early": (
        lambda one: one.row("stalled").update(run_lease_until=one.row("stalled")["run_deadline"]),
        "was given up at",
    ),
    "damaged": (
        lambda one: one.books.reports.append(
            {"operation_id": one.ids["done"], "kind": "claim-failed", "cause": "edited"}
        ),
        "is reported as claim-failed",
    ),
    "approved at another time": (
        lambda one: one.row("done").update(approved_at=one.row("done")["expires_at"]),
        "and its timeline says otherwise",
    ),
    "own vote": (voted_by("rita"), "rita asked for it and voted"),
    "stranger's vote": (voted_by("mallory"), "mallory voted, who is none of"),
    "vote on something else": (
        lambda one: one.vote("done").update(params_hash=b"x" * 32),
        "voted on something else",
    ),
    "vote lost": (lambda one: one.books.votes.remove(one.vote("done")), "and other votes are there"),
    "too few votes": (lambda one: one.row("done").update(votes_required=3), "was approved by 2 votes of 3"),
    "approved by a rejection": (
        lambda one: one.vote("done").update(decision="reject"),
        "was approved by 1 votes of 2",
    ),
    "rejected by nobody": (
        lambda one: next(
            vote for vote in one.books.votes if vote["operation_id"] == one.ids["rejected"]
        ).update(decision="approve"),
        "was rejected by 0 votes of 1",
    ),
    "operation lost": (
        lambda one: one.books.operations.remove(one.row("held")),
        "votes without an operation",
    ),
    "request lost": (lambda one: one.books.operations.remove(one.row("held")), "its requester was told"),
    "approval left": (
        lambda one: one.row("approved").update(run_deadline=one.books.now),
        "is left APPROVED",
    ),
    "run left": (
        lambda one: one.row("stalled").update(state="EXECUTING", run_lease_until=one.books.now),
        "is left EXECUTING",
    ),
    "unseen": (lambda one: one.event("done", "voted").update(process=None), "nobody saw who wrote"),
    "run twice": (lambda one: one.add_run("done"), "was run 2 times"),
    "nothing done": (lambda one: one.runs.remove(one.run("done")), "and nobody did it"),
    "done though refused": (lambda one: one.add_run("refused"), "is recorded as REFUSED, and worker did it"),
    "done unapproved": (lambda one: one.add_run("held"), "worker did it, and nobody had claimed it"),
    "done by another": (
        lambda one: one.run("done").update(process="desk"),
        "desk did it, and worker had claimed it",
    ),
    "done before the claim": (lambda one: one.run("done").update(at=0), "did it before it was claimed"),
    "something else done": (lambda one: one.run("done")["params"].update(cents=6), "'cents': 6} was run"),
    "done as another": (
        lambda one: one.run("done").update(principal="ann"),
        "rita asked for it, and it was run as ann",
    ),
    "nothing to be done": (
        lambda one: one.runs.append({**one.run("done"), "operation_id": "none"}),
        "none: was run, and is not there",
    ),
    "guessed": (
        lambda one: one.event("failed", "failed").update(process="desk"),
        "desk says that it failed, and worker had claimed it",
    ),
    "told otherwise": (lambda one: one.told()["data"]["payload"].update(state="FAILED"), "is told {"),
    "told of another result": (lambda one: one.told()["data"]["payload"].update(result=None), "is told {"),
    "told twice": (told_again, "is told 2 times"),
    "told of nothing": (lambda one: one.books.operations.remove(one.row("told")), "is told of $hold/"),
    "never told": (lambda one: one.row("waits").update(state="EXPIRED"), "and it was never told"),
    "nobody tells": (lambda one: one.books.waiters.clear(), "and nobody will tell it"),
    "not its own": (lambda one: one.row("waits").update(requester="sam"), "which is not its own"),
}
"""What breaks the books, and what is said of it."""


def test_the_audit_has_nothing_against_sound_operations(house: House) -> None:
    books = house.books(runs=house.runs)
    assert audit(books) == []
    assert {row["state"] for row in books.operations} == {
        "HELD", "APPROVED", "REJECTED", "CANCELLED", "EXPIRED", "SUCCEEDED", "FAILED", "REFUSED", "OUTCOME_UNKNOWN",
    }  # fmt: skip
    assert len(house.runs) == 5


@pytest.mark.clause("T3b")
@pytest.mark.parametrize("name", BROKEN)
def test_the_audit_finds_what_was_broken_by_hand_in_operations(house: House, name: str) -> None:
    ledger = Ledger(house)
    change, said = BROKEN[name]
    change(ledger)
    found = audit(ledger.books)
    assert any(said in fault for fault in found), found


@pytest.mark.clause("T3b")
def test_only_a_process_that_something_happened_to_may_lose_its_run_or_act_after_its_end(
    house: House,
) -> None:
    ledger = Ledger(house)
    ledger.run("done")["at"] = 10**9
    assert audit(ledger.books) == []
    ledger.books.excused = frozenset()
    found = audit(ledger.books)
    assert len(found) == 2
    assert any("did it after its end" in fault for fault in found)
    assert any("worker lives, and its run is given up" in fault for fault in found)


def test_where_bodies_noted_nothing_nothing_is_said_of_their_runs(house: House) -> None:
    assert audit(house.books()) == []


def test_with_a_prefix_only_what_the_flows_held_is_read(house: House) -> None:
    books = house.books("f-t")
    assert [row["operation_id"] for row in books.operations] == [house.ids["told"]]
    assert {row["operation_id"] for row in (*books.votes, *books.timelines)} == {house.ids["told"]}
    assert {row["chain_id"] for row in books.executions} == {"f-told"}
    books.asked.clear()
    assert audit(books) == []
