"""A process is killed at every call that it makes: what comes of it is what comes of an undisturbed run (E6, E8)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import pairwise

import pytest

from tests.crash.stage import DROPPED, EVERYTHING, UNDONE, Kill, Played, Scenario, Stage, differences

SCENARIOS = {one.name: one for one in (EVERYTHING, UNDONE, DROPPED)}
WRITES = ("write", "hold", "await_operation", "cancel", "cancel_hold", "deliver")
AT_ONCE = 4


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


def boundaries(played: Played, *, all_of_them: bool = False) -> list[list[Kill]]:
    """The boundaries that an undisturbed run crossed: those of calls that write, and some of those that read."""
    crossed = [Kill(one["verb"], one["number"], one["side"]) for one in played.calls]
    assert len(set(crossed)) == len(crossed)
    return [[one] for n, one in enumerate(crossed) if all_of_them or one.verb in WRITES or n % 6 == 0]


async def play_all(
    stage: Stage, scenario: Scenario, rehearsed: Played, series: Sequence[Sequence[Kill]]
) -> list[str]:
    """Play each series of kills; what was different, and at which."""
    turns = asyncio.Semaphore(AT_ONCE)
    never = 0

    async def one(number: int, kills: Sequence[Kill]) -> list[str]:
        nonlocal never
        which = str(kills[0]) if len(kills) == 1 else f"{len(kills)} times {kills[0]}"
        async with turns:
            tag = f"{scenario.name}-{len(series)}-{number}-{which.replace(' ', '-')}"
            played = await stage.play(scenario, tag, kills)
        never += played.deaths[0].at is None
        deaths = "; ".join(f"{death.at}, in flight {sorted(death.in_flight)}" for death in played.deaths[:3])
        return [f"killed {which} [{deaths}]: {fault}" for fault in differences(played, rehearsed)]

    async with stage.open():
        found = await asyncio.gather(*(one(number, kills) for number, kills in enumerate(series)))
    faults = [fault for faults in found for fault in faults]
    if never > len(series) // 5:
        faults.append(f"{never} of {len(series)} kills were never come to")
    return faults


def check(stage: Stage, scenario: Scenario, rehearsed: Played, series: Sequence[Sequence[Kill]]) -> None:
    """Play each series of kills, and see that nothing is different."""
    faults = asyncio.run(play_all(stage, scenario, rehearsed, series))
    assert not faults, "\n".join(fault[:600] for fault in faults[:20])


PARTS = 4


@pytest.mark.clause("E5", "E6", "E8")
@pytest.mark.parametrize("part", range(PARTS))
def test_killed_anywhere_a_flow_of_everything_ends_as_if_nothing_had_been(
    stage: Stage, rehearsed: dict[str, Played], part: int
) -> None:
    played = rehearsed["all"]
    check(stage, EVERYTHING, played, boundaries(played)[part::PARTS])


@pytest.mark.clause("E6", "E8")
@pytest.mark.parametrize("name", ["undone", "dropped"])
def test_killed_anywhere_a_cancelled_flow_is_cancelled_with_what_it_began(
    stage: Stage, rehearsed: dict[str, Played], name: str
) -> None:
    played = rehearsed[name]
    check(stage, SCENARIOS[name], played, boundaries(played))


@pytest.mark.clause("E5", "E6", "E8")
@pytest.mark.parametrize("name", SCENARIOS)
def test_killed_again_and_again_it_ends_all_the_same(
    stage: Stage, rehearsed: dict[str, Played], name: str
) -> None:
    series = [[Kill("write", 2, "after")] * 30, [Kill("write", 3, "before")] * 30]
    check(stage, SCENARIOS[name], rehearsed[name], series)


@pytest.mark.soak
@pytest.mark.clause("E5", "E6", "E8")
@pytest.mark.parametrize("name", SCENARIOS)
def test_killed_at_every_call_it_ends_as_if_nothing_had_been(
    stage: Stage, rehearsed: dict[str, Played], name: str
) -> None:
    played = rehearsed[name]
    stage.connections = 4
    pairs = [[one, *other] for (one,), other in pairwise(boundaries(played))]
    check(stage, SCENARIOS[name], played, [*boundaries(played, all_of_them=True), *pairs])
