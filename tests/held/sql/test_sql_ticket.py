"""A replay ticket opens one call of one run."""

from __future__ import annotations

import hashlib
from typing import Any
from uuid import uuid4

import pytest

from tests.held.sql.kernel import Claimed, Kernel, as_text, outcome

REFUSED = ("refused", "ticket")


def issue(k: Kernel, run: Claimed) -> bytes:
    answer = k.call("issue_ticket", run.operation, run.token)
    assert outcome(answer) == ("issued", None)
    ticket: bytes = answer["ticket"]
    return ticket


def consume(
    k: Kernel, operation: Any, ticket: bytes | None, who: str | None = "ann"
) -> tuple[str, str | None]:
    return outcome(k.call("consume_ticket", operation, ticket, who))


@pytest.mark.clause("H6.6b")
def test_a_ticket_opens_one_call(k: Kernel) -> None:
    run = k.executing()
    ticket = issue(k, run)
    assert consume(k, run.operation, ticket) == ("consumed", None)
    (row,) = k.rows("select * from underseal.replay_ticket")
    assert (row["consumed_at"], row["principal"], row["run_id"]) == (k.clock.now(), "ann", run.run)
    before = k.everything()
    assert consume(k, run.operation, ticket) == REFUSED
    assert k.everything() == before


@pytest.mark.clause("H6.6e")
def test_a_row_holds_the_hash_of_a_ticket_alone(k: Kernel) -> None:
    ticket = issue(k, k.executing())
    (row,) = k.rows("select * from underseal.replay_ticket")
    assert len(ticket) == 32
    assert row["ticket_hash"] == hashlib.sha256(ticket).digest()
    assert ticket.hex() not in as_text([k.everything()])


@pytest.mark.clause("H6.6b")
def test_a_run_has_one_ticket(k: Kernel) -> None:
    run = k.executing()
    ticket = issue(k, run)
    before = k.everything()
    answer = k.call("issue_ticket", run.operation, run.token)
    assert (outcome(answer), answer["ticket"]) == (("conflict", "already-issued"), None)
    assert k.everything() == before
    consume(k, run.operation, ticket)
    assert outcome(k.call("issue_ticket", run.operation, run.token)) == ("conflict", "already-issued")


@pytest.mark.clause("H6.6c")
def test_a_ticket_of_another_operation_is_refused(k: Kernel) -> None:
    run, other = k.executing(), k.executing()
    ticket, foreign = issue(k, run), issue(k, other)
    before = k.everything()
    for nothing in (foreign, b"", b"x" * 32, None, hashlib.sha256(ticket).digest()):
        assert consume(k, run.operation, nothing) == REFUSED
    assert consume(k, uuid4(), ticket) == REFUSED
    assert consume(k, k.reach("APPROVED"), ticket) == REFUSED
    assert k.rows("select from underseal.replay_ticket where consumed_at is not null") == []
    assert before["replay_ticket"] == k.everything()["replay_ticket"]
    assert consume(k, run.operation, ticket) == ("consumed", None)


@pytest.mark.clause("H6.6c")
def test_a_ticket_of_another_principal_is_refused(k: Kernel) -> None:
    run = k.executing()
    ticket = issue(k, run)
    for somebody in ("bob", "w1", "", None):
        assert consume(k, run.operation, ticket, somebody) == REFUSED
    assert consume(k, run.operation, ticket) == ("consumed", None)


@pytest.mark.clause("H6.6c")
def test_a_ticket_of_another_run_is_refused(k: Kernel) -> None:
    run = k.executing()
    ticket = issue(k, run)
    with k.login(None):
        k.connection.execute("alter table underseal.replay_ticket disable trigger user")
        k.connection.execute("update underseal.replay_ticket set run_id = gen_random_uuid()")
        k.connection.execute("alter table underseal.replay_ticket enable always trigger replay_ticket_check")
    assert consume(k, run.operation, ticket) == REFUSED


@pytest.mark.clause("H6.6d")
@pytest.mark.parametrize("state", ["SUCCEEDED", "FAILED", "REFUSED", "OUTCOME_UNKNOWN"])
def test_a_ticket_is_worthless_once_its_run_is_over(k: Kernel, state: str) -> None:
    run = k.executing()
    ticket = issue(k, run)
    k.finish(run, state, "because")
    assert consume(k, run.operation, ticket) == REFUSED


@pytest.mark.clause("H6.6d", "H4.4d")
def test_a_ticket_is_worthless_once_the_lease_is_lost(k: Kernel) -> None:
    run = k.executing()
    ticket = issue(k, run)
    k.clock.advance(minutes=15)
    assert consume(k, run.operation, ticket) == REFUSED
    k.clock.advance(microseconds=-1)
    assert consume(k, run.operation, ticket) == ("consumed", None)
