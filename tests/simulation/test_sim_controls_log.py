"""Negative controls: with one safeguard of the log or of drivers switched off, the audit fails, within so many seeds.

A control that stays green shows that the scenes or the audit would not notice the safeguard's loss. The scenes
themselves, with nothing switched off, are in test_sim_flows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import pytest

from tests.simulation.scenes.mail import MAIL
from tests.simulation.scenes.messages import MESSAGES
from tests.simulation.scenes.relay import RELAY
from tests.simulation.switches import switch
from underseal.flow.keeper import ClaimKeeper
from underseal.testing.simulation import Scenario, Stage, simulate

pytestmark = pytest.mark.clause("T3b")


@dataclass(frozen=True)
class Control:
    """One safeguard, and how its loss is found.

    Attributes:
        scenario: with which.
        seeds: within how many, from 1: two where nearly each shows it, more where one in five or ten does.
        said: a piece of what the audit says then.
        pieces: of which functions what is replaced by what, and how often it stands there.
    """

    scenario: Scenario
    seeds: int
    said: str
    pieces: tuple[tuple[str, str, str, int], ...] = ()


_CLAIM: Final = "underseal.claim_due(text,text[],interval,integer,integer[])"
_PUT: Final = "underseal._put_message(text,text,text,json,text,text,interval,jsonb,integer)"
_ANSWERS: Final = "underseal._plan_answers(text,text,jsonb,timestamptz,jsonb,boolean,integer)"
_OF_THE_LINE: Final = "where s.chain_id = _put_message.chain_id and s.line = _put_message.line"

CONTROLS: Final = {
    "the fence of a write is not compared": Control(
        RELAY,
        20,
        "held the fence",
        (
            (
                "underseal._append_conflict(bigint,bigint,uuid,text,bigint,bigint,uuid)",
                "when fence is distinct from is_fence then",
                "when false then",
                1,
            ),
        ),
    ),
    "a send does not lock": Control(
        MAIL,
        25,
        "are pending",
        (
            (
                "underseal.send(text,text,json,text,text,interval)",
                "not underseal._lock_line(chain, me, asked.incarnation)",
                "false",
                1,
            ),
        ),
    ),
    "what was delivered is forgotten": Control(
        MESSAGES, 2, "has the numbers", ((_PUT, _OF_THE_LINE, f"{_OF_THE_LINE} and false", 1),)
    ),
    "a claim is made whoever has one": Control(
        RELAY,
        2,
        "held the fence",
        (
            (_CLAIM, "w.claimed_until is null or w.claimed_until <= moment", "true", 3),
            (_CLAIM, "not underseal._is_claimed(w.chain_id, w.member, moment)", "true", 2),
        ),
    ),
    "a claim takes no fence": Control(
        RELAY, 2, "held the fence", ((_CLAIM, "set fence = e.fence + 1", "set fence = e.fence", 1),)
    ),
    "the newest message comes first": Control(
        MESSAGES,
        2,
        " comes after ",
        ((_ANSWERS, "order by m.inbox_seq\n", "order by m.inbox_seq desc\n", 1),),
    ),
    "what has expired is delivered": Control(
        MESSAGES, 25, "m-3 came to", ((_ANSWERS, "if head.expired or head.seen", "if head.seen", 1),)
    ),
    "a park does not look into the inbox": Control(
        MAIL,
        2,
        "are pending",
        (("underseal._write_logs(json,text[])", "underseal._answerable(writes)", "'{}'", 1),),
    ),
}


def found(control: Control, stage: Stage) -> bool:
    """Whether the audit says it within so many seeds."""
    return any(
        control.said in fault
        for seed in range(1, control.seeds + 1)
        for fault in simulate(control.scenario, stage, seed).faults
    )


@pytest.mark.parametrize("name", CONTROLS)
def test_the_audit_fails_where(own_stage: Stage, name: str) -> None:
    for function, old, new, times in CONTROLS[name].pieces:
        switch(own_stage, function, old, new, times)
    assert found(CONTROLS[name], own_stage)


def test_the_audit_fails_where_a_driver_begins_steps_though_its_claim_is_over(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def always(*_: Any) -> bool:
        return True

    monkeypatch.setattr(ClaimKeeper, "entitled", always)
    assert found(Control(RELAY, 40, "held the fence"), stage)
