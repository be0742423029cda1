"""Who waits for a lock is judged by what is true when it is his (clauses E2, E3, E7, E8, T4b)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from tests.held.sql.kernel import Kernel, outcome
from tests.inbox.box import Box, box
from underseal.testing import (
    OWNER,
    DictConnection,
    TestClock,
    TestDatabase,
    in_background,
    unique_name,
    wait_blocked,
)

T = TypeVar("T")
U = TypeVar("U")


class Pair:
    """Two sessions in one database."""

    def __init__(self, database: TestDatabase, clock: TestClock, admin: DictConnection) -> None:
        self.a = Kernel(database.connect(OWNER), clock)
        self.b = Kernel(database.connect(OWNER), clock)
        self.clock = clock
        self.admin = admin

    def race(
        self,
        first: Callable[[Kernel], T],
        second: Callable[[Kernel], U],
        meanwhile: Callable[[], object] | None = None,
        rollback: bool = False,
    ) -> tuple[T, U]:
        """One acts and stays in its transaction; the other comes to wait for it; then the first ends."""
        with self.a.connection.transaction(force_rollback=rollback):
            one = first(self.a)
            waiting = in_background(second, self.b)
            wait_blocked(self.admin, self.b.connection.info.backend_pid)
            if meanwhile is not None:
                meanwhile()
        return one, waiting.result(10)


@pytest.fixture
def pair(database: TestDatabase, clock: TestClock, admin: DictConnection) -> Pair:
    """Two sessions of the schema's owner, on a clock that stands still."""
    return Pair(database, clock, admin)


def seen(b: Box) -> list[Any]:
    """Head, fence and incarnation as they are."""
    return [b.execution()[name] for name in ("head", "fence", "incarnation")]


def lock(b: Box) -> Callable[[Kernel], object]:
    """Lock its row and change nothing."""
    return lambda k: k.rows("select from underseal.execution where chain_id = %s for no key update", b.chain)


CONTROL: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("cancel_execution", ("ann",)),
    ("record_outcome", ("1", "ann")),
    ("fork_execution", (0, "ann")),
    ("truncate_prefix", (1, "op")),
    ("resume_gate", ("ok", "1", "ann")),
    ("delete_chain", ("op",)),
)


@pytest.mark.clause("E12c", "T4b")
@pytest.mark.parametrize("taken", [False, True])
@pytest.mark.parametrize(("verb", "arguments"), CONTROL)
def test_what_is_deleted_while_one_waits_is_denied(
    pair: Pair, verb: str, arguments: tuple[Any, ...], taken: bool
) -> None:
    b = box(pair.a)
    b.write("complete")

    def replace(k: Kernel) -> None:
        assert k.call("delete_chain", b.chain, "op")["outcome"] == "deleted"
        if taken:
            Box(k, b.id, owner="mallory").start()

    _, answer = pair.race(replace, lambda k: k.call(verb, b.id, *arguments))
    assert outcome(answer) == ("denied", "execution")
    assert pair.a.rows("select cause from underseal.execution_denials")[0]["cause"] == "missing"
    if taken:
        assert (b.status, b.types()) == ("pending", ["EXECUTION_STARTED"])


@pytest.mark.clause("E2c", "E2d", "T4b")
@pytest.mark.parametrize(
    ("first", "reason"),
    [
        (lambda b: b.step(), "moved"),
        (lambda b: b.take(), "stale-fence"),
        (lambda b: b.write("fail"), "ended"),
    ],
)
def test_an_observation_that_was_overtaken_takes_no_fence(
    pair: Pair, first: Callable[[Box], object], reason: str
) -> None:
    b = box(pair.a)
    observed = seen(b)
    _, answer = pair.race(lambda k: first(b.on(k)), lambda k: k.call("acquire_fence_if", b.id, *observed))
    assert outcome(answer) == ("conflict", reason)


@pytest.mark.clause("E2c", "T4b")
def test_one_of_two_who_saw_the_same_takes_the_fence(pair: Pair) -> None:
    b = box(pair.a)
    observed = seen(b)

    def take(k: Kernel) -> Any:
        return k.call("acquire_fence_if", b.id, *observed)

    one, other = pair.race(take, take)
    assert (outcome(one), outcome(other)) == (("acquired", None), ("conflict", "stale-fence"))


@pytest.mark.clause("E2a", "E2b", "T4b")
def test_a_stale_driver_that_waited_behind_a_takeover_writes_nothing(pair: Pair) -> None:
    b = box(pair.a)
    _, answer = pair.race(lambda k: k.call("acquire_fence", b.id), lambda k: b.on(k).step())
    assert outcome(answer) == ("conflict", "stale-fence")


@pytest.mark.clause("E8a", "T4b")
@pytest.mark.parametrize("seconds", [29, 30])
def test_a_claim_is_judged_when_the_lock_is_held(pair: Pair, seconds: int) -> None:
    b = box(pair.a)
    b.k.call("recover_execution", b.id, *seen(b), "w1", "30 seconds")
    observed = seen(b)
    _, answer = pair.race(
        lock(b),
        lambda k: k.call("recover_execution", b.id, *observed, "w2", "30 seconds"),
        meanwhile=lambda: pair.clock.advance(seconds=seconds),
    )
    assert answer["outcome"] == ("recovered" if seconds == 30 else "conflict")


@pytest.mark.clause("E8a", "T4b")
def test_one_of_two_takes_over(pair: Pair) -> None:
    b = box(pair.a)
    observed = seen(b)
    one, other = pair.race(
        lambda k: k.call("recover_execution", b.id, *observed, "w1", "30 seconds"),
        lambda k: k.call("recover_execution", b.id, *observed, "w2", "30 seconds"),
    )
    assert (outcome(one), outcome(other)) == (("recovered", None), ("conflict", "stale-fence"))
    assert b.types().count("EXECUTION_RECOVERED") == 1


@pytest.mark.clause("E7c", "T4b")
@pytest.mark.parametrize("first", ["gate", "park"])
def test_a_gate_and_its_answer_meet_in_either_order(pair: Pair, first: str) -> None:
    b = box(pair.a)

    def resume(k: Kernel) -> Any:
        return k.call("resume_gate", b.id, "ok", "1", "ann")["outcome"]

    def park(k: Kernel) -> Any:
        return b.on(k).park(w=[("gate", "ok")])

    if first == "gate":
        assert pair.race(resume, park) == ("resumed", "answered")
    else:
        assert pair.race(park, resume) == ("parked", "resumed")
        assert b.deliver()["answered"] == 1
    assert b.delivered() == [("w", 1)]


@pytest.mark.clause("E7c", "T4b")
@pytest.mark.parametrize("rollback", [False, True])
def test_one_of_two_answers_is_taken(pair: Pair, rollback: bool) -> None:
    b = box(pair.a)

    def answer(k: Kernel) -> Any:
        return outcome(k.call("resume_gate", b.id, "ok", "1", "ann"))

    one, other = pair.race(answer, answer, rollback=rollback)
    assert one == ("resumed", None)
    assert other == (("resumed", None) if rollback else ("conflict", "already-answered"))
    assert len(b.pending()) == 1


@pytest.mark.clause("E6e", "T4b")
@pytest.mark.parametrize("force", [False, True])
def test_a_cancel_that_waited_behind_the_end_is_told(pair: Pair, force: bool) -> None:
    b = box(pair.a)
    _, answer = pair.race(
        lambda k: b.on(k).write("complete"), lambda k: k.call("cancel_execution", b.id, "ann", None, force)
    )
    assert outcome(answer) == ("conflict", "ended")
    assert b.status == "completed"


@pytest.mark.clause("E6e", "T4b")
def test_an_end_that_waited_behind_a_cancel_is_shut_out(pair: Pair) -> None:
    b = box(pair.a)
    _, answer = pair.race(
        lambda k: k.call("cancel_execution", b.id, "ann"), lambda k: b.on(k).write("complete")
    )
    assert outcome(answer) == ("conflict", "stale-fence")
    assert b.status == "cancelled"


@pytest.mark.clause("E6f", "E9b", "T4b")
def test_a_fork_that_waited_behind_a_compaction_copies_no_hole(pair: Pair) -> None:
    b = box(pair.a)
    b.step()
    b.k.call("save_snapshot", b.id, 1, 1, "1")
    _, answer = pair.race(
        lambda k: k.call("truncate_prefix", b.id, 2, "op"), lambda k: k.call("fork_execution", b.id, 1, "ann")
    )
    assert outcome(answer) == ("refused", "compacted")


@pytest.mark.clause("E3", "T4b")
@pytest.mark.parametrize("rollback", [False, True])
@pytest.mark.parametrize("how", ["start", "fork"])
def test_one_of_two_gets_an_id(pair: Pair, how: str, rollback: bool) -> None:
    wanted = unique_name("wanted")
    sources = [box(pair.a), box(pair.a)]

    def take(k: Kernel, source: Box) -> Any:
        if how == "start":
            return k.call("start_execution", "f", "ann", None, wanted)["outcome"]
        return k.call("fork_execution", source.id, 0, "ann", wanted)["outcome"]

    done = "started" if how == "start" else "forked"
    answers = pair.race(lambda k: take(k, sources[0]), lambda k: take(k, sources[1]), rollback=rollback)
    assert answers == (done, done if rollback else "exists")


@pytest.mark.clause("I6b", "T4b")
def test_a_deletion_that_waited_behind_a_continuation_is_told(pair: Pair) -> None:
    b = box(pair.a)
    _, answer = pair.race(lambda k: b.on(k).go_on(), lambda k: k.call("delete_chain", b.chain, "op"))
    assert outcome(answer) == ("conflict", "open")


@pytest.mark.clause("I6b", "E10b", "T4b")
def test_sweepers_wait_for_nobody(pair: Pair) -> None:
    over, busy = box(pair.a), box(pair.a)
    for b in (over, busy):
        b.k.call("put_content", b.id, "1", 1)
    pair.clock.advance(hours=2)
    with pair.a.connection.transaction():
        lock(busy)(pair.a)
        swept = {row["chain_id"]: (row["outcome"], row["reason"]) for row in pair.b.calls("sweep_content")}
    assert swept == {over.chain: ("swept", None), busy.chain: ("skipped", "busy")}
    assert [row["chain_id"] for row in pair.b.calls("sweep_content")] == [busy.chain]
    for b in (over, busy):
        b.write("complete")
    with pair.a.connection.transaction():
        lock(busy)(pair.a)
        assert [row["chain_id"] for row in pair.b.calls("purge_executions", "0")] == [over.chain]
    assert busy.status == "completed"


@pytest.mark.clause("E10b", "T4b")
def test_content_that_is_stored_again_while_a_sweep_comes_stays(pair: Pair) -> None:
    b = box(pair.a)
    b.k.call("put_content", b.id, "1", 1)
    pair.clock.advance(hours=2)
    with pair.a.connection.transaction():
        assert pair.a.call("put_content", b.id, "1", 1)["outcome"] == "stored"
        assert [row["reason"] for row in pair.b.calls("sweep_content")] == ["busy"]
    assert pair.b.calls("sweep_content") == []


@pytest.mark.clause("I6b", "T4b")
def test_a_purge_takes_chains_it_has_whole(pair: Pair) -> None:
    b = box(pair.a)
    b.go_on().write("complete")
    with pair.a.connection.transaction():
        pair.a.rows(
            "select from underseal.execution where chain_id = %s and member = '2' for no key update", b.chain
        )
        assert pair.b.calls("purge_executions", "0") == []
    assert [row["deleted"] for row in pair.b.calls("purge_executions", "0")] == [2]
