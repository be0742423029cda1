"""Every pair of functions that write, on one execution: one holds its locks, another comes, the first ends either way.

What comes out must be what comes out when the two act one after the other, or the second alone if the first is undone.
"""

from __future__ import annotations

import pytest

from tests.races.log_audit import audit
from tests.races.log_rivals import ACTS, Act, Case, Ring, Told, fork_of, told

pytestmark = pytest.mark.clause("T4b", "E1b", "E2a", "E2b", "E7a", "E7c")

Outcome = tuple[Told, str]


def alone(ring: Ring, case: Case, *names: str) -> Outcome:
    """What acts come to one after the other, each committed: what the last one was told, and what there is then."""
    answer: Told = []
    for rival, name in zip((ring.a, ring.b)[-len(names) :] if names else (), names, strict=True):
        answer = told(ACTS[name].do(rival, case))
    world = case.world(ring.admin)
    audit(world)
    return answer, world.looks(case.base)


def serial(
    ring: Ring, stage: str, continued: bool, old: bool, first: str | None, second: str | None
) -> Outcome:
    """The same, of a twin; looked up where it was done before."""
    key = (stage, continued, old, first, second)
    if key not in ring.known:
        case = ring.stage(stage, continued, old)
        if first is not None and second is None:
            told(ACTS[first].do(ring.a, case))
            world = case.world(ring.admin)
            ring.known[key] = [], world.looks(case.base)
        else:
            ring.known[key] = alone(ring, case, *(name for name in (first, second) if name is not None))
    return ring.known[key]


def race(ring: Ring, case: Case, first: Act, second: Act, *, undone: bool) -> tuple[bool, bool, Outcome]:
    """One acts and stays in its transaction, the other acts, the first ends.

    Returns: whether the first held the execution, whether the second waited, and what came of it.
    """
    with ring.a.connection.transaction(force_rollback=undone):
        told(first.do(ring.a, case))
        held = ring.locked(case.chain)
        work = ring.background(lambda: told(second.do(ring.b, case)))
        waited = ring.waits(ring.b, work)
    answer = work.result(20)
    world = case.world(ring.admin)
    audit(world, {case.place: case.fence})
    for rival in (rival for rival, act in ((ring.a, first), (ring.b, second)) if act is ACTS["fork"]):
        audit(world.of(ring.admin, fork_of(case, rival)))
    return held, waited, (answer, world.looks(case.base))


@pytest.mark.parametrize("second", ACTS)
@pytest.mark.parametrize("first", ACTS)
def test_two_writers_come_one_after_the_other(log_ring: Ring, first: str, second: str) -> None:
    ring, a, b = log_ring, ACTS[first], ACTS[second]
    old = "expire" in (first, second)
    for stage, continued, undone in ((a.stage, False, False), (a.stage, True, True), (b.stage, True, False)):
        case = ring.stage(stage, continued, old)
        held, waited, found = race(ring, case, a, b, undone=undone)
        at = f"{stage}, {'continued, ' if continued else ''}{'undone' if undone else 'committed'}"
        if stage == a.stage:
            assert held, f"{at}: the first did not lock the execution it writes to"
        passes = not b.waits or (b.sees_end and stage == "ended")
        assert waited == (held and not passes), f"{at}: held {held}, waited {waited}"
        if held and not b.waits:
            expected = serial(ring, stage, continued, old, None if undone else first, None)
        else:
            expected = serial(ring, stage, continued, old, None if undone else first, second)
            if b.waits and passes:
                # it came before the first ended, and saw that there was nothing to do
                expected = serial(ring, stage, continued, old, None, second)[0], expected[1]
        assert found == expected, at
