"""A process is killed at every call that it makes: what comes of it is what comes of an undisturbed run (E6, E8)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest

from tests.crash.stage import DROPPED, EVERYTHING, UNDONE, Kill, Played, Scenario, Stage, differences

SCENARIOS = {one.name: one for one in (EVERYTHING, UNDONE, DROPPED)}
WRITES = ("write", "hold", "await_operation", "cancel", "cancel_hold", "deliver")
AT_ONCE = 4
Check = Callable[[str, Sequence[Sequence[Kill]]], None]


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
) -> tuple[list[str], list[str]]:
    """Play each series of kills: what was different and at which, and which steps were in flight."""
    turns = asyncio.Semaphore(AT_ONCE)
    never, in_flight = 0, []

    async def one(number: int, kills: Sequence[Kill]) -> list[str]:
        nonlocal never
        which = str(kills[0]) if len(kills) == 1 else f"{len(kills)} times {kills[0]}"
        async with turns:
            tag = f"{scenario.name}-{len(series)}-{number}-{which.replace(' ', '-')}"
            played = await stage.play(scenario, tag, kills)
        never += played.deaths[0].at is None
        steps = sorted(key for death in played.deaths for key in death.in_flight)
        in_flight.extend([f"{which}: {member or 'first'} {name}" for member, _, _, name in steps])
        deaths = "; ".join(f"{death.at}, in flight {sorted(death.in_flight)}" for death in played.deaths[:3])
        return [f"killed {which} [{deaths}]: {fault}" for fault in differences(played, rehearsed)]

    async with stage.open():
        found = await asyncio.gather(*(one(number, kills) for number, kills in enumerate(series)))
    faults = [fault for faults in found for fault in faults]
    if never > len(series) // 5:
        faults.append(f"{never} of {len(series)} kills were never come to")
    return faults, in_flight


@pytest.fixture
def check(
    stage: Stage, rehearsed: dict[str, Played], record_property: Callable[[str, object], None]
) -> Check:
    """Play each series of kills, and see that nothing is different; the report says which steps were in flight."""

    def play(name: str, series: Sequence[Sequence[Kill]]) -> None:
        faults, in_flight = asyncio.run(play_all(stage, SCENARIOS[name], rehearsed[name], series))
        record_property("in flight when killed", "; ".join(in_flight))
        assert not faults, "\n".join(fault[:600] for fault in faults[:20])

    return play


PARTS = 4


@pytest.mark.clause("E5a", "E6a", "E6b", "E6c", "E6d", "E6h", "E8a")
@pytest.mark.parametrize("part", range(PARTS))
def test_killed_anywhere_a_flow_of_everything_ends_as_if_nothing_had_been(
    check: Check, rehearsed: dict[str, Played], part: int
) -> None:
    check("all", boundaries(rehearsed["all"])[part::PARTS])


@pytest.mark.clause("E6e", "E8a")
@pytest.mark.parametrize("name", ["undone", "dropped"])
def test_killed_anywhere_a_cancelled_flow_is_cancelled_with_what_it_began(
    check: Check, rehearsed: dict[str, Played], name: str
) -> None:
    check(name, boundaries(rehearsed[name]))


@pytest.mark.clause("E5a", "E6a", "E6b", "E6c", "E6d", "E6h", "E8a")
@pytest.mark.parametrize("name", SCENARIOS)
def test_killed_again_and_again_it_ends_all_the_same(check: Check, name: str) -> None:
    check(name, [[Kill("write", 2, "after")] * 30, [Kill("write", 3, "before")] * 30])


@pytest.mark.soak
@pytest.mark.clause("E5a", "E6a", "E6b", "E6c", "E6d", "E6h", "E8a")
@pytest.mark.parametrize("name", SCENARIOS)
def test_killed_at_every_call_it_ends_as_if_nothing_had_been(
    check: Check, stage: Stage, rehearsed: dict[str, Played], name: str
) -> None:
    played = rehearsed[name]
    stage.connections = 4
    pairs = [[one, *other] for (one,), other in pairwise(boundaries(played))]
    check(name, [*boundaries(played, all_of_them=True), *pairs])
