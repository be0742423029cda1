"""A process is killed at every call that it makes: what comes of it is what comes of an undisturbed run (E6, E8)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from tests.crash.stage import DROPPED, EVERYTHING, UNDONE, Kill, Played, Scenario, Stage, differences

SCENARIOS = {one.name: one for one in (EVERYTHING, UNDONE, DROPPED)}
WRITES = ("write", "hold", "await_operation", "cancel", "cancel_hold", "deliver")
AT_ONCE = 6


@pytest.fixture(scope="session")
def rehearsed(stage: Stage) -> dict[str, Played]:
    """Undisturbed runs."""

    async def rehearse() -> dict[str, Played]:
        async with stage.open():
            played = await asyncio.gather(
                *(stage.play(one, f"{name}-0", [], tell=True) for name, one in SCENARIOS.items())
            )
        return dict(zip(SCENARIOS, played, strict=True))

    found = asyncio.run(rehearse())
    for played in found.values():
        assert played.faults == []
        assert all(times == 1 for times in played.effects.values())
        assert not played.recovered
    return found


def boundaries(played: Played) -> list[Kill]:
    """Every boundary that an undisturbed run crossed, in their order."""
    return [Kill(one["verb"], one["number"], one["side"]) for one in played.calls]


def always(kill: Kill) -> bool:
    """Whether a boundary is one of a call that writes."""
    return kill.verb in WRITES


async def play_all(
    stage: Stage, scenario: Scenario, rehearsed: Played, series: Sequence[Sequence[Kill]]
) -> list[str]:
    """Play each series of kills; what was different, and at which."""
    turns = asyncio.Semaphore(AT_ONCE)
    never = 0

    async def one(kills: Sequence[Kill]) -> list[str]:
        nonlocal never
        which = ", ".join(f"{one.side}-{one.verb}-{one.number}" for one in kills)
        async with turns:
            played = await stage.play(scenario, f"{scenario.name}-{which.replace(', ', '+')}", kills)
        never += played.deaths[0].at is None
        told = [
            f"{death.process} at {death.at}, in flight {sorted(death.in_flight)}" for death in played.deaths
        ]
        return [f"killed {which}: {fault} [{'; '.join(told)}]" for fault in differences(played, rehearsed)]

    async with stage.open():
        found = [fault for faults in await asyncio.gather(*map(one, series)) for fault in faults]
    if never > len(series) // 5:
        found.append(f"{never} of {len(series)} kills were never come to")
    return found


PARTS = 4


@pytest.mark.clause("E6", "E8", "E5")
@pytest.mark.parametrize("part", range(PARTS))
def test_killed_anywhere_a_flow_of_everything_ends_as_if_nothing_had_been(
    stage: Stage, rehearsed: dict[str, Played], part: int
) -> None:
    played = rehearsed["all"]
    kills = [[one] for one in boundaries(played)]
    faults = asyncio.run(play_all(stage, EVERYTHING, played, kills[part::PARTS]))
    assert not faults, "\n".join(faults)


@pytest.mark.clause("E6", "E8")
@pytest.mark.parametrize("name", ["undone", "dropped"])
def test_killed_anywhere_a_cancelled_flow_is_cancelled_with_what_it_began(
    stage: Stage, rehearsed: dict[str, Played], name: str
) -> None:
    played = rehearsed[name]
    kills = [[one] for one in boundaries(played)]
    faults = asyncio.run(play_all(stage, SCENARIOS[name], played, kills))
    assert not faults, "\n".join(faults)
