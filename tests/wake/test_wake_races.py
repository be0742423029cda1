"""Claims among sessions that hold each other's rows: nothing waits, nothing is claimed twice, nothing is lost."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from threading import Barrier
from time import monotonic
from typing import Any

import psycopg
import pytest

from tests.wake.wakes import MINUTE, Wakes, claimed, outcome
from underseal.testing import OWNER, DictConnection, TestClock, TestDatabase, in_background, wait_blocked

pytestmark = pytest.mark.clause("T4b")
LOCK = "select from underseal.{} where chain_id = %s for no key update"


def test_two_claimers_share_what_is_due(w: Wakes, v: Wakes) -> None:
    w.start(*(f"e{n}" for n in range(10)))
    with w.connection.transaction():
        first = claimed(w.claim(most=4))
        second = claimed(v.claim("w2", most=4))
        rest = claimed(v.claim("w2"))
    assert (len(first), len(second), len(rest)) == (4, 4, 2)
    assert sorted([*first, *second, *rest]) == sorted(f"e{n}" for n in range(10))


def test_a_claim_undone_is_anybodys(w: Wakes, v: Wakes) -> None:
    w.start("a")
    fence = w.execution("a")["fence"]
    with w.connection.transaction(force_rollback=True):
        assert claimed(w.claim()) == ["a"]
        assert v.claim("w2") == []
    (claim,) = v.claim("w2")
    assert (claim["fence"], claim["attempts"]) == (fence + 1, 1)


@pytest.mark.parametrize("table", ["execution", "wake"])
def test_a_row_that_somebody_holds_is_passed_by(w: Wakes, v: Wakes, table: str) -> None:
    w.start("a", "b")
    with w.connection.transaction():
        w.rows(LOCK.format(table), "a")
        assert claimed(v.claim("w2", most=1)) == ["b"]
        assert v.claim("w2") == []
    assert claimed(v.claim("w2")) == ["a"]


def test_an_execution_is_passed_by_while_one_of_its_wakes_is_held(
    w: Wakes, v: Wakes, clock: TestClock
) -> None:
    w.parked("a", arms=({"for": 30}, {"topic": "news"}))
    w.message("a")
    with w.connection.transaction():
        w.rows("select from underseal.wake where kind = 'timer' for no key update")
        fence = w.execution("a")["fence"]
        assert v.claim("w2") == []
        assert v.execution("a")["fence"] == fence
    assert claimed(v.claim("w2")) == ["a"]


def test_an_expired_claim_that_is_being_renewed_is_passed_by(w: Wakes, v: Wakes, clock: TestClock) -> None:
    w.start("a")
    w.claim()
    clock.advance(hours=1)
    with w.connection.transaction():
        assert w.renew("a") == {"a": "renewed"}
        assert v.claim("w2") == []
    assert v.claim("w2") == []


def test_renewing_and_giving_back_wait_for_nobody(w: Wakes, v: Wakes) -> None:
    w.start("a", "b")
    w.claim()
    with w.connection.transaction():
        w.rows(LOCK.format("execution"), "a")
        w.rows(LOCK.format("wake"), "a")
        assert v.renew("a", "b") == {"a": "busy", "b": "renewed"}
        assert outcome(v.release("a")) == ("busy", None)
        assert outcome(v.release("b")) == ("released", None)
    assert v.renew("a") == {"a": "renewed"}


@pytest.mark.clause("E2b")
def test_a_driver_whose_execution_is_being_claimed_waits_and_is_told(
    w: Wakes, v: Wakes, admin: DictConnection, clock: TestClock
) -> None:
    w.start("a")
    (old,) = w.claim()
    clock.advance(hours=1)
    with w.connection.transaction():
        (new,) = w.claim("w2")
        late = in_background(v.write, {**v.mine(old), "verb": "complete"})
        wait_blocked(admin, v.connection.info.backend_pid)
    assert [outcome(row) for row in late.result(10)] == [("conflict", "stale-fence")]
    w.complete(new)


@pytest.mark.parametrize(("verb", "left"), [("park", ["timer"]), ("complete", []), ("cancelled", [])])
@pytest.mark.clause("E7e")
def test_a_claim_beside_a_driver_that_is_writing(
    w: Wakes, v: Wakes, clock: TestClock, verb: str, left: list[str]
) -> None:
    w.start("a")
    (claim,) = w.claim()
    clock.advance(hours=1)
    waits: dict[str, Any] = {"waits": [{"wait": "w", "arms": [{"for": 60}]}]} if verb == "park" else {}
    with w.connection.transaction():
        w.done({**w.mine(claim), "verb": verb, **waits})
        assert v.claim("w2") == []
    assert v.claim("w2") == []
    assert list(w.wakes("a")) == left
    clock.advance(minutes=1)
    assert [row["kind"] for row in v.claim("w2")] == left


@pytest.mark.clause("E7e")
def test_a_claim_beside_a_message_on_its_way(w: Wakes, v: Wakes, database: TestDatabase) -> None:
    w.parked("a")
    sender = Wakes(database.connect(OWNER))
    with w.connection.transaction():
        w.message("a")
        assert v.claim("w2") == []
        sender.rows("set lock_timeout = 50")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            sender.rows(LOCK.format("execution"), "a")
    assert [row["kind"] for row in v.claim("w2")] == ["inbox"]


def test_two_workers_claim_a_schedule_once(w: Wakes, v: Wakes, clock: TestClock) -> None:
    w.add()
    clock.advance(hours=1)
    with w.connection.transaction():
        assert len(w.claim_schedules()) == 1
        assert v.claim_schedules("w2") == []
    assert v.claim_schedules("w2") == []


CHANGES: dict[str, Callable[[Wakes], Any]] = {
    "changed": lambda w: w.add(cron="0 4 * * *"),
    "input-changed": lambda w: w.add(input={"x": 1}),
    "paused": lambda w: w.pause(),
    "removed": lambda w: w.remove(),
    "removed-and-added": lambda w: (w.remove(), w.add()),
    "paused-and-resumed": lambda w: (w.pause(), w.pause(paused=False, first_in=timedelta(hours=1))),
}


@pytest.mark.parametrize("change", CHANGES)
def test_firing_waits_for_a_change_and_starts_nothing(
    w: Wakes, v: Wakes, admin: DictConnection, clock: TestClock, change: str
) -> None:
    w.add()
    clock.advance(hours=1)
    (claim,) = v.claim_schedules()
    with w.connection.transaction():
        CHANGES[change](w)
        fired = in_background(v.fire, claim)
        wait_blocked(admin, v.connection.info.backend_pid)
    assert outcome(fired.result(10)) == ("conflict", "not-claimed")
    assert w.started() == []


@pytest.mark.parametrize("change", ["changed", "paused", "removed"])
def test_a_change_waits_for_the_firing_and_goes_on_from_there(
    w: Wakes, v: Wakes, admin: DictConnection, clock: TestClock, change: str
) -> None:
    w.add()
    clock.advance(hours=1)
    (claim,) = w.claim_schedules()
    with w.connection.transaction():
        assert len(w.fire(claim)["started"]) == 1
        changed = in_background(CHANGES[change], v)
        wait_blocked(admin, v.connection.info.backend_pid)
    assert outcome(changed.result(10)) == (change, None)
    assert len(w.started()) == 1
    wake = w.schedule_wake()
    assert (wake and wake["wake_at"]) == (clock.now() + timedelta(hours=1) if change == "changed" else None)


def test_two_firings_of_one_claim_start_once(
    w: Wakes, v: Wakes, admin: DictConnection, clock: TestClock
) -> None:
    w.add()
    clock.advance(hours=1)
    (claim,) = w.claim_schedules()
    with w.connection.transaction():
        assert outcome(w.fire(claim)) == ("fired", None)
        again = in_background(v.fire, claim)
        wait_blocked(admin, v.connection.info.backend_pid)
    assert outcome(again.result(10)) == ("conflict", "not-claimed")
    assert len(w.started()) == 1


def test_a_stranger_holds_up_no_schedule(w: Wakes, v: Wakes) -> None:
    w.add()
    with w.connection.transaction():
        w.rows("select from underseal.schedule for no key update")
        assert outcome(v.pause(principal="bob")) == ("not-found", None)
        assert outcome(v.remove(principal="bob")) == ("not-found", None)


def test_two_add_one_name_at_once(w: Wakes, v: Wakes, admin: DictConnection) -> None:
    for second, expected in (("ann", ("unchanged", None)), ("bob", ("conflict", "name-taken"))):
        with w.connection.transaction():
            w.add()
            added = in_background(v.add, principal=second)
            wait_blocked(admin, v.connection.info.backend_pid)
        assert outcome(added.result(10)) == expected
        w.remove()


class _Actor:
    """One worker of the storm: claims, renews, parks, gives back and ends what it drives, and sends messages."""

    def __init__(self, connection: DictConnection, name: str, ids: list[str], until: float) -> None:
        self.w = Wakes(connection)
        self.name = name
        self.ids = ids
        self.until = until
        self.random = random.Random(name)
        self.mine: dict[str, dict[str, Any]] = {}
        self.ended: list[str] = []
        self.seen: Counter[str] = Counter()

    def storm(self, barrier: Barrier) -> None:
        barrier.wait()
        while monotonic() < self.until:
            act = self.random.choice(
                [self._claim, self._claim, self._drive, self._drive, self._renew, self._send, self._give_back]
            )
            # several acts in one transaction, as a host may have them
            if self.random.random() < 0.15:
                with self.w.connection.transaction():
                    self._claim()
                    self._renew()
            else:
                act()

    def _claim(self) -> None:
        lease = timedelta(seconds=self.random.choice([1, 1, 60]))
        for claim in self.w.claim(self.name, lease=lease, most=self.random.randint(1, 8)):
            assert claim["outcome"] == "claimed", claim
            self.mine[claim["execution_id"]] = claim
            self.seen["claimed"] += 1

    def _drive(self) -> None:
        batch = [self.mine.pop(one) for one in self.random.sample(list(self.mine), min(len(self.mine), 4))]
        items: list[dict[str, Any]] = []
        for claim in batch:
            if claim["status"] == "suspended":
                self.w.rows("select * from underseal.deliver(%s, %s)", claim["execution_id"], claim["fence"])
            end = self.random.random() < 0.3
            waits = [{"wait": "w", "arms": [{"for": self.random.choice([0, 0.05, 1])}, {"topic": "news"}]}]
            items.append(
                {**self.w.mine(claim), **({"verb": "complete"} if end else {"verb": "park", "waits": waits})}
            )
        if not items:
            return
        for one in self.w.write(*items):
            self.seen[one["reason"] or one["outcome"]] += 1
            if one["outcome"] == "completed":
                self.ended.append(one["execution_id"])

    def _renew(self) -> None:
        if self.mine:
            for execution_id, said in self.w.renew(*self.mine, worker=self.name).items():
                self.seen[said] += 1
                if said == "lost":
                    del self.mine[execution_id]

    def _send(self) -> None:
        self.w.message(self.random.choice(self.ids))

    def _give_back(self) -> None:
        if self.mine:
            execution_id = self.random.choice(list(self.mine))
            del self.mine[execution_id]
            self.seen[self.w.release(execution_id, self.name)["outcome"]] += 1


@pytest.mark.clause("E7e", "E8a", "E2b")
def test_a_storm_of_workers_ends_every_execution_once(database: TestDatabase) -> None:
    w = Wakes(database.connect(OWNER))
    ids = [f"e{n:03}" for n in range(120)]
    w.start(*ids)
    until = monotonic() + 5
    actors = [_Actor(database.connect(OWNER), f"w{n}", ids, until) for n in range(4)]
    barrier = Barrier(len(actors))
    for running in [in_background(actor.storm, barrier) for actor in actors]:
        running.result(30)  # no deadlock, no error
    seen = sum((actor.seen for actor in actors), Counter())
    ended = [one for actor in actors for one in actor.ended]
    assert len(ended) == len(set(ended))
    assert seen["claimed"] > len(ids), seen
    assert set(ended) == {one for one in ids if w.execution(one)["status"] == "completed"}

    # nothing was lost: whatever is open is claimable once leases and timers are over
    stray = w.rows(
        """select e.chain_id from underseal.execution e
           where not underseal._is_ended(e.status)
             and not exists (
               select from underseal.wake w where w.chain_id = e.chain_id and w.kind in ('drive', 'timer'))"""
    )
    assert stray == []
    assert w.rows("select 1 from underseal.wake w join underseal.execution e using (chain_id, member)"
                  " where underseal._is_ended(e.status)") == []  # fmt: skip
    w.rows("update underseal.wake set claimed_until = underseal.clock() where claimed_by is not null")
    w.rows("update underseal.wake set wake_at = underseal.clock()")
    last = w.claim("last", lease=MINUTE, most=1000)
    assert sorted(claimed(last)) == sorted(set(ids) - set(ended))


@pytest.mark.clause("E7e")
def test_a_claim_is_judged_again_under_the_locks(
    w: Wakes, v: Wakes, admin: DictConnection, clock: TestClock
) -> None:
    w.parked("a", arms=({"for": 30}, {"topic": "news"}))
    w.message("a")
    # the search stops here, with what it saw before
    w.rows(
        """create or replace function underseal._is_claimed(chain_id text, member text, moment timestamptz)
           returns boolean language plpgsql
           as $$ begin perform pg_advisory_xact_lock_shared(7); return false; end $$"""
    )
    v.rows("set lock_timeout = 0")
    with w.connection.transaction():
        w.rows("select pg_advisory_xact_lock(7)")
        late = in_background(v.claim, "w2")
        wait_blocked(admin, v.connection.info.backend_pid)
        w.rows(LOCK.format("execution"), "a")
        w.rows(
            "update underseal.wake set claimed_by = 'w1', claimed_until = underseal.clock() + interval '1 minute'"
            " where kind = 'timer'"
        )
    assert late.result(10) == []
    assert w.wakes("a")["timer"]["claimed_by"] == "w1"
