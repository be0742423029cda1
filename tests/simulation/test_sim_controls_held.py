"""Negative controls: with one safeguard of held operations switched off, the audit fails, within so many seeds.

A control that stays green shows that the scenarios or the audit would not notice the safeguard's loss. The scenarios
themselves, with nothing switched off, are in test_sim_operations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pytest

from tests.simulation.operations import PAYOUTS, RUNNERS, SWITCHES
from tests.simulation.switches import switch
from underseal.testing.simulation import Scenario, Stage, simulate

FINISH: Final = "underseal.finish_run(uuid,bytea,text,text,text,jsonb)"
CLAIM: Final = "underseal._claim(uuid,boolean,text,text,text[],integer[],text[])"


@dataclass(frozen=True)
class Control:
    """Safeguards, and how their loss is found.

    Attributes:
        scenario: with which.
        seeds: within how many, from 1.
        said: a piece of what the audit says then.
        pieces: of which functions what is replaced by what.
    """

    scenario: Scenario
    seeds: int
    said: str
    pieces: tuple[tuple[str, str, str], ...]


_ANYBODY = (FINISH, "    and o.run_token_hash = sha256(run_token)\n", "")
_AT_ANY_TIME = (FINISH, "    and o.run_lease_until > moment\n", "")
_IN_ANY_STATE = (CLAIM, "      and o.state = 'APPROVED'\n", "")
_CLAIMED_ANEW = (
    "underseal._check_held_update()",
    "and not (old.state = 'APPROVED' and new.state = 'EXECUTING')",
    "and false",
)
_TOLD_SO = (
    "underseal._check_held_event()",
    "when new.to_state = 'HELD' then 'voted'",
    "when new.to_state in ('HELD', 'EXECUTING') then 'voted'",
)
_WHOEVER_VOTED = (
    CLAIM,
    "coalesce(array_agg(v.approver)\n"
    "          filter (where underseal._is_eligible(op.type, op.type_version, v.approver, op.operation_id)), '{}')",
    "coalesce(array_agg(v.approver), '{}')",
)

CONTROLS: Final = {
    "anybody ends a run": Control(PAYOUTS, 3, "says that it failed", (_ANYBODY,)),
    "a run ends after its lease": Control(RUNNERS, 12, "was succeeded at", (_AT_ANY_TIME,)),
    "a claim takes what is claimed, and only triggers mind": Control(
        RUNNERS, 3, "is reported as claim-failed", (_IN_ANY_STATE,)
    ),
    "a claim takes what is claimed": Control(
        RUNNERS, 3, "was run 2 times", (_IN_ANY_STATE, _CLAIMED_ANEW, _TOLD_SO)
    ),
    "who approved may have lost the right to by the claim": Control(
        SWITCHES, 15, "was run though cy may not approve", (_WHOEVER_VOTED,)
    ),
}


@pytest.mark.clause("T3b")
@pytest.mark.parametrize("name", CONTROLS)
def test_the_audit_of_held_operations_fails_where(own_stage: Stage, name: str) -> None:
    control = CONTROLS[name]
    for piece in control.pieces:
        switch(own_stage, *piece)
    assert any(
        control.said in fault
        for seed in range(1, control.seeds + 1)
        for fault in simulate(control.scenario, own_stage, seed).faults
    )
