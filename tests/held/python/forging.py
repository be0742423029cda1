"""What somebody who has the keys, or all rights on the tables, can put into a row."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from tests.held.python.worlds import World
from underseal import Held
from underseal.held.payload import DecisionSeal, Payload


def payload_of(world: World, held: Held) -> Payload:
    """The request in an operation's seal."""
    return Payload.opened(world.row(held)["sealed_payload"], world.ring, held.operation_id)


def vote_row(world: World, held: Held, approver: str) -> dict[str, Any]:
    """The row of a vote."""
    row = world.admin.execute(
        "select * from underseal.held_vote where operation_id = %s and approver = %s",
        [held.operation_id, approver],
    ).fetchone()
    assert row is not None
    return row


def decision_of(world: World, held: Held, approver: str) -> DecisionSeal:
    """The decision in a vote's seal."""
    return DecisionSeal.opened(
        vote_row(world, held, approver)["sealed_decision"], world.ring, held.operation_id, approver
    )


def reseal_payload(world: World, held: Held, **changes: Any) -> None:
    """Seal another request into the row, as only a holder of the payload key can."""
    forged = dataclasses.replace(payload_of(world, held), **changes).sealed(world.ring)
    world.edit(held, sealed_payload=json.dumps(forged))


def reseal_decision(world: World, held: Held, approver: str, **changes: Any) -> None:
    """Seal another decision into the vote, as only a holder of the decision key can."""
    forged = dataclasses.replace(decision_of(world, held, approver), **changes).sealed(world.ring)
    world.edit_vote(held, approver, sealed_decision=json.dumps(forged))


def add_vote(world: World, held: Held, approver: str, **changes: Any) -> None:
    """Add a vote by hand, a copy of ann's with a seal of its own."""
    like = vote_row(world, held, "ann")
    decision = dataclasses.replace(decision_of(world, held, "ann"), approver=approver, **changes)
    with world.triggers_off():
        world.admin.execute(
            "insert into underseal.held_vote (operation_id, approver, decision, reason, params_hash, row_version,"
            " cast_at, sealed_decision, decision_key_id) values (%s, %s, %s, 'why', %s, %s, %s, %s::jsonb, %s)",
            [
                held.operation_id, approver, decision.decision, like["params_hash"], like["row_version"],
                like["cast_at"], json.dumps(decision.sealed(world.ring)), like["decision_key_id"],
            ],
        )  # fmt: skip
