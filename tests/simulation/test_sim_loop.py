"""The loop of the simulation: time is made up, and each life runs, stands still or dies by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from time import monotonic
from typing import Any

import pytest

from underseal.foundation.threads import in_thread
from underseal.testing.simulation.clock import Clock
from underseal.testing.simulation.loop import Life, SimLoop, SimulationStuck, current_life

Seen = list[tuple[str, float]]


@pytest.fixture
def unheard() -> list[str]:
    """Errors that nobody waited for."""
    return []


@pytest.fixture
def loop(unheard: list[str]) -> Iterator[SimLoop]:
    """A loop at 0."""
    loop = SimLoop(lambda life, what: unheard.append(f"{life.title} {what}"))
    yield loop
    loop.close()


def life(
    loop: SimLoop, name: str, main: Callable[[], Coroutine[Any, Any, Any]], clock: Clock | None = None
) -> Life:
    """Let one run."""
    one = Life(name, 1, clock or Clock())
    loop.begin(one, main())
    return one


def until(loop: SimLoop, instant: float) -> None:
    """Let the time go on to an instant."""
    done = loop.create_future()
    loop.at(instant, lambda: done.set_result(None))
    loop.run_until_complete(done)


@pytest.mark.clause("T2a")
def test_time_jumps_to_what_comes_next(loop: SimLoop) -> None:
    before = monotonic()
    loop.run_until_complete(asyncio.sleep(365 * 86400))

    assert loop.now == 365 * 86400
    assert monotonic() - before < 5


@pytest.mark.clause("T2a")
def test_a_node_sleeps_by_its_own_clock(loop: SimLoop) -> None:
    seen: Seen = []

    async def main() -> None:
        seen.append(("begins", asyncio.get_running_loop().time()))
        await asyncio.sleep(10)
        seen.append(("woke", asyncio.get_running_loop().time()))
        seen.append(("truly", loop.now))

    life(loop, "quick", main, Clock(offset=1000, rate=2))
    until(loop, 60)

    assert seen == [("begins", 1000), ("woke", 1010), ("truly", 5)]


@pytest.mark.clause("T2b")
@pytest.mark.parametrize(("seconds", "woke"), [(4, 6), (20, 3), (-7, 17)])
def test_who_sleeps_wakes_earlier_or_later_when_its_clock_is_set(
    loop: SimLoop, seconds: float, woke: float
) -> None:
    clock = Clock()
    seen: list[float] = []

    async def main() -> None:
        await asyncio.sleep(10)
        seen.append(loop.now)

    life(loop, "a", main, clock)
    loop.at(3, lambda: clock.step(seconds))
    until(loop, 60)

    assert seen == [woke]


@pytest.mark.clause("T2b")
def test_no_timer_of_a_life_that_stands_still_fires_until_it_goes_on(loop: SimLoop) -> None:
    seen: Seen = []

    async def tick(name: str) -> None:
        while loop.now < 10:
            await asyncio.sleep(1)
            seen.append((name, loop.now))

    a = life(loop, "a", lambda: tick("a"))
    life(loop, "b", lambda: tick("b"))
    loop.at(2.5, lambda: loop.stall(a, 4))
    until(loop, 20)

    assert [at for name, at in seen if name == "b"] == [float(at) for at in range(1, 11)]
    assert [at for name, at in seen if name == "a"] == [1, 2, 6.5, 7.5, 8.5, 9.5, 10.5]


@pytest.mark.clause("T2b")
def test_what_reaches_a_life_that_stands_still_waits(loop: SimLoop) -> None:
    reply: asyncio.Future[str] = loop.create_future()
    seen: Seen = []

    async def main() -> None:
        seen.append((await reply, loop.now))

    a = life(loop, "a", main)
    loop.at(1, lambda: loop.stall(a, 5))
    loop.at(2, lambda: reply.set_result("hello"))
    until(loop, 20)

    assert seen == [("hello", 6)]


@pytest.mark.clause("T2b")
def test_of_two_stalls_the_longer_counts(loop: SimLoop) -> None:
    seen: list[float] = []
    resumed: list[float] = []

    async def main() -> None:
        await asyncio.sleep(1.5)
        seen.append(loop.now)

    a = life(loop, "a", main)
    loop.at(1, lambda: loop.stall(a, 8, lambda: resumed.append(loop.now)))
    loop.at(1, lambda: loop.stall(a, 2, lambda: resumed.append(loop.now)))
    until(loop, 20)

    assert seen == resumed == [9]


@pytest.mark.clause("T2b")
def test_a_killed_life_does_nothing_any_more(loop: SimLoop) -> None:
    seen: list[str] = []
    reply: asyncio.Future[None] = loop.create_future()

    async def other() -> None:
        await asyncio.sleep(2)
        seen.append("a task of its own")

    async def main() -> None:
        task = asyncio.create_task(other())
        try:
            await reply
            seen.append("a reply")
        finally:
            seen.append("a finally block")
            await task

    a = life(loop, "a", main)
    loop.at(1, lambda: loop.kill(a))
    loop.at(1.5, lambda: reply.set_result(None))
    until(loop, 10)

    assert seen == []


@pytest.mark.clause("T2b")
def test_what_a_killed_life_was_about_to_do_is_not_done(loop: SimLoop) -> None:
    seen: list[str] = []
    lives: list[Life] = []

    async def kills() -> None:
        await asyncio.sleep(1)
        loop.kill(lives[0])

    async def next_in_turn() -> None:
        await asyncio.sleep(1)
        seen.append("done")

    async def main() -> None:
        await asyncio.gather(kills(), next_in_turn())

    lives.append(life(loop, "a", main))
    until(loop, 10)

    assert seen == []


def test_a_life_that_stands_still_can_be_killed(loop: SimLoop) -> None:
    seen: list[float] = []

    async def main() -> None:
        await asyncio.sleep(2)
        seen.append(loop.now)

    a = life(loop, "a", main)
    loop.at(1, lambda: loop.stall(a, 5))
    loop.at(3, lambda: loop.kill(a))
    until(loop, 10)

    assert seen == []


def test_tasks_belong_to_the_life_that_made_them(loop: SimLoop) -> None:
    seen: list[str] = []

    async def inner() -> None:
        await asyncio.sleep(1)
        one = current_life()
        assert one is not None
        seen.append(one.title)

    async def main() -> None:
        await asyncio.gather(inner(), inner())

    life(loop, "a", main)
    life(loop, "b", main)
    until(loop, 5)

    assert seen == ["a#1", "a#1", "b#1", "b#1"]
    assert current_life() is None


@pytest.mark.clause("T2c")
def test_a_set_of_tasks_has_the_order_in_which_they_were_made(loop: SimLoop) -> None:
    async def main() -> list[str]:
        tasks = [asyncio.create_task(asyncio.sleep(1), name=str(number)) for number in range(50)]
        done, _ = await asyncio.wait(tasks)
        return [task.get_name() for task in done]

    assert loop.run_until_complete(main()) == [str(number) for number in range(50)]


@pytest.mark.clause("T2c")
def test_plain_functions_run_where_they_are_called(loop: SimLoop) -> None:
    async def main() -> list[bool]:
        def here() -> bool:
            return asyncio.get_running_loop() is loop

        return [await in_thread(here), await asyncio.to_thread(here)]

    assert loop.run_until_complete(main()) == [True, True]


def test_it_is_told_when_nothing_will_ever_happen_again(loop: SimLoop) -> None:
    with pytest.raises(SimulationStuck, match="found nothing left"):
        loop.run_until_complete(loop.create_future())


@pytest.mark.parametrize("pause", [0.0, 1e-18])
@pytest.mark.clause("T2a")
def test_it_is_told_when_the_time_will_never_go_on(loop: SimLoop, pause: float) -> None:
    async def main() -> None:
        await asyncio.sleep(1)
        while True:  # noqa: ASYNC110 -- that is the point
            await asyncio.sleep(pause)

    life(loop, "a", main)
    with pytest.raises(SimulationStuck, match="expected the time to go on after 1"):
        until(loop, 5)


def test_an_error_that_nobody_waited_for_is_told(loop: SimLoop, unheard: list[str]) -> None:
    async def fails() -> None:
        raise ValueError("nobody listens")

    async def main() -> None:
        asyncio.create_task(fails())  # noqa: RUF006 -- that is the point
        await asyncio.sleep(1)

    a = life(loop, "a", main)
    b = life(loop, "b", main)
    until(loop, 0.5)
    loop.kill(b)
    until(loop, 5)
    assert a.gone is False
    loop.close()

    assert unheard == ["a#1 ValueError: nobody listens"]
