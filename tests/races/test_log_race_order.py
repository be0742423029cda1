"""The order of locks (docs/decisions/0008-lock-order.md): row by row where it can be shown, and in a crowd."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from itertools import permutations
from threading import Event
from typing import Final

import psycopg
import pytest
from psycopg.types.json import Json

from tests.races.log_audit import World, audit
from tests.races.log_rivals import LEASE, OWNER, STEP, Ring, Rival, Row, item, starting, told
from underseal.testing import OWNER as LOGIN
from underseal.testing import unique_name

pytestmark = pytest.mark.clause("T4b")

LOCK: Final = (
    "select from underseal.execution where underseal._execution_id(chain_id, member) = %s for no key update"
)


@contextmanager
def holding(rival: Rival, *ids: str) -> Iterator[None]:
    """Hold the rows of executions, and change nothing."""
    with rival.connection.transaction():
        for one in ids:
            rival.rows(LOCK, one)
        yield


def free(ring: Ring, *ids: str) -> list[str]:
    """Which of these rows nobody holds."""
    return [one for one in ids if ring.admin.execute(f"{LOCK} skip locked", [one]).rowcount]


def locks_in_order(ring: Ring, ids: Sequence[str], act: Callable[[Rival], object]) -> None:
    """See that an act that waits for one of these rows holds those before it, and none behind it.

    Parameters:
        ring: where.
        ids: the rows it locks, in order.
        act: what locks them. What it does is undone, so that it can be done again.
    """

    def try_it() -> None:
        with ring.a.connection.transaction(force_rollback=True):
            act(ring.a)

    for place, wanted in enumerate(ids):
        with holding(ring.c, wanted):
            work = ring.background(try_it)
            assert ring.waits(ring.a, work), f"does not wait for {wanted}"
            assert free(ring, *ids) == list(ids[place + 1 :]), f"while it waits for {wanted}"
        work.result(20)


def chains(ring: Ring, count: int) -> list[str]:
    """Running executions whose ids sort as they come."""
    made = [unique_name(f"x{number}") for number in range(count)]
    ring.a.start(*made)
    return made


def line(ring: Ring, length: int) -> list[str]:
    """A line of executions, each but the last continued."""
    (chain,) = chains(ring, 1)
    made = [chain]
    while len(made) < length:
        ring.a.done(item("continue", made[-1], 1))
        made.append(f"{chain}~{len(made) + 1}")
    return made


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_a_batch_locks_in_the_order_of_ids_whatever_that_of_its_items(
    log_ring: Ring, order: Sequence[int]
) -> None:
    ids = chains(log_ring, 3)
    batch = [item("append", ids[place], 1, events=STEP) for place in order]
    locks_in_order(log_ring, ids, lambda rival: rival.done(*batch))


@pytest.mark.parametrize("verb", ["park", "complete", "fail", "cancelled", "continue"])
def test_so_does_every_verb_of_a_batch(log_ring: Ring, verb: str) -> None:
    ids = chains(log_ring, 3)
    batch = [item(verb, one, 1, waits=[]) for one in reversed(ids)]
    locks_in_order(log_ring, ids, lambda rival: rival.done(*batch))


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_so_does_a_delivery_to_many(log_ring: Ring, order: Sequence[int]) -> None:
    ids = chains(log_ring, 3)
    wanted = Json([{"execution_id": ids[place], "fence": 1} for place in order])
    locks_in_order(log_ring, ids, lambda rival: rival.calls("deliver_batch", wanted))


def test_a_continuation_locks_its_line_before_itself(log_ring: Ring) -> None:
    first, last = line(log_ring, 2)
    (other,) = chains(log_ring, 1)
    batch = [item("append", other, 1, events=STEP), item("continue", last, 1)]
    locks_in_order(log_ring, sorted([first, last, other]), lambda rival: rival.done(*batch))


def test_members_of_one_chain_are_locked_as_their_names_sort(log_ring: Ring) -> None:
    """'10' before '2', and a child after every number: as bytes, not as numbers."""
    ids = line(log_ring, 10)
    chain = ids[0]
    log_ring.a.start(f"{chain}~kid")
    batch = [
        item("append", f"{chain}~kid", 1),
        item("append", f"{chain}~2", 1),
        item("append", f"{chain}~10", 1),
    ]
    order = [f"{chain}~10", f"{chain}~2", f"{chain}~kid"]
    locks_in_order(log_ring, order, lambda rival: rival.write(*batch))


@pytest.mark.parametrize(
    ("verb", "arguments"),
    [
        ("send", ("news", Json(1), OWNER)),
        ("resume_gate", ("go", Json(1), OWNER)),
        ("discard_inbox", ("news", "op")),
    ],
)
@pytest.mark.parametrize("named", [0, 1])
@pytest.mark.clause("I6a")
def test_a_line_is_locked_before_who_goes_on_with_it(
    log_ring: Ring, verb: str, arguments: tuple[object, ...], named: int
) -> None:
    ids = line(log_ring, 2)
    locks_in_order(log_ring, ids, lambda rival: rival.call(verb, ids[named], *arguments))


@pytest.mark.parametrize("verb", ["complete", "fail", "cancelled", "cancel_execution"])
@pytest.mark.parametrize("parent", ["", "~kid"])
def test_a_child_s_end_locks_the_line_that_asked_for_it_first(log_ring: Ring, verb: str, parent: str) -> None:
    """Its first row, who goes on with it, then the child: the end is told there."""
    (chain,) = chains(log_ring, 1)
    asked, separator = f"{chain}{parent}", ":" if parent else "~"
    follower, child = (f"{chain}~kid.2", f"{asked}:sub") if parent else (f"{chain}~2", f"{chain}~sub")
    assert child == f"{asked}{separator}sub"
    log_ring.a.start(*{asked, child} - {chain})
    log_ring.a.done(item("continue", asked, 1), item("append", child, 1, events=STEP))

    def end(rival: Rival) -> object:
        if verb == "cancel_execution":
            return rival.call(verb, child, OWNER, None, True)
        return rival.done(item(verb, child, 1))

    locks_in_order(log_ring, [asked, follower, child], end)


def test_a_batch_that_ends_children_locks_them_and_their_parents_in_order(log_ring: Ring) -> None:
    (chain,) = chains(log_ring, 1)
    kid, other, sub = (f"{chain}~{name}" for name in ("kid", "kid-2", "kid:sub"))
    log_ring.a.start(kid, other, sub)
    log_ring.a.done(item("continue", kid, 1))
    batch = [item("complete", sub, 1), item("append", other, 1, events=STEP)]
    locks_in_order(log_ring, [kid, other, f"{kid}.2", sub], lambda rival: rival.done(*batch))


def test_a_deletion_locks_the_chain_in_order(log_ring: Ring) -> None:
    ids = line(log_ring, 3)
    log_ring.a.start(f"{ids[0]}~kid")
    log_ring.a.done(item("complete", ids[2], 1), item("complete", f"{ids[0]}~kid", 1))
    locks_in_order(log_ring, [*ids, f"{ids[0]}~kid"], lambda rival: rival.call("delete_chain", ids[0], "op"))


def test_two_batches_in_opposite_orders(log_ring: Ring) -> None:
    """The second waits for the first, which has what sorts first; in the order of items each would have what the other
    waits for."""
    ids = chains(log_ring, 2)
    forth, back = ([item("append", one, 1, events=STEP) for one in order] for order in (ids, ids[::-1]))
    with holding(log_ring.c, ids[1]):
        first = log_ring.background(lambda: log_ring.a.done(*forth))
        assert log_ring.waits(log_ring.a, first)
        second = log_ring.background(lambda: log_ring.b.done(*back))
        assert log_ring.waits(log_ring.b, second)
        assert log_ring.blockers(log_ring.b) == {log_ring.a.pid}
    assert [row["head"] for row in first.result(20)] == [1, 1]
    assert [row["head"] for row in second.result(20)] == [2, 2]
    audit(World.of(log_ring.admin, *ids))


def test_two_batches_that_start_the_same_ids_in_opposite_orders(log_ring: Ring) -> None:
    ids = [unique_name("x") for _ in range(2)]
    middle = f"{ids[0]}m"
    with log_ring.c.connection.transaction(force_rollback=True):
        log_ring.c.start(middle)
        first = log_ring.background(
            lambda: told(log_ring.a.write(*(starting(one) for one in (*ids, middle))))
        )
        assert log_ring.waits(log_ring.a, first)
        second = log_ring.background(
            lambda: told(log_ring.b.write(*(starting(one) for one in (middle, *ids[::-1]))))
        )
        assert log_ring.waits(log_ring.b, second)
    assert first.result(20) == [("started", None)] * 3
    assert second.result(20) == [("exists", None)] * 3


def test_a_chain_that_grows_while_its_deletion_waits_is_open(log_ring: Ring) -> None:
    """What came after the deletion's snapshot is not locked by it: it would come to wait for a batch
    that waits for it already."""
    ring = log_ring
    (chain,) = chains(ring, 1)
    kid = f"{chain}~kid"
    ring.a.start(kid)
    ring.a.done(item("complete", kid, 1))
    with ring.admin.transaction():
        with ring.c.connection.transaction():
            ring.c.done(item("continue", chain, 1))
            ring.c.done(item("complete", f"{chain}~2", 1))
            deletion = ring.background(lambda: ring.b.call("delete_chain", chain, "op"))
            assert ring.waits(ring.b, deletion)
            ring.admin.execute(LOCK, [kid])
        blocked_by(ring, ring.b, ring.admin.info.backend_pid)
        batch = ring.background(
            lambda: ring.a.write(item("append", f"{chain}~2", 1), item("append", kid, 1, events=STEP))
        )
        blocked_by(ring, ring.a, ring.b.pid)
    assert told([deletion.result(20)]) == [("conflict", "open")]
    assert told(batch.result(20)) == [("conflict", "ended")] * 2
    audit(World.of(ring.admin, chain))
    assert ring.b.call("delete_chain", chain, "op")["deleted"] == 3


def blocked_by(ring: Ring, rival: Rival, pid: int) -> None:
    """Wait until a session waits for another one, and for it alone or in a queue behind it."""
    while pid not in ring.blockers(rival):
        Event().wait(0.002)


FLOW: Final = "storm"
WAITS: Final = (
    {"wait": "n", "arms": [{"topic": "news"}, {"for": 40}]},
    {"wait": "g", "arms": [{"gate": "go"}]},
    {"wait": "b", "arms": [{"topic": "bell"}]},
    {"wait": "k", "arms": [{"topic": "$child/kid"}]},
    {"wait": "s", "arms": [{"topic": "$child/kid:sub"}]},
)


class Caller:
    """One connection of a crowd, which does things at random to a few chains.

    Parameters:
        rival: the session.
        ring: where.
        chains: the chains.
        seed: of what it does; when it does it is not ours to say.
    """

    def __init__(self, rival: Rival, ring: Ring, chains: Sequence[str], seed: int) -> None:
        self.rival, self.ring, self.chains, self.random = rival, ring, chains, random.Random(seed)
        self.faults: list[str] = []
        self.fences: Counter[tuple[str, int]] = Counter()
        self.outcomes: Counter[tuple[str, str, str | None]] = Counter()
        self.seen: list[Row] = []
        self.last = ""

    def run(self, times: int) -> None:
        """Act."""
        acts = [(act, weight) for act, weight in self.acts()]
        for _ in range(times):
            self.seen = self.rival.rows(
                "select underseal._execution_id(chain_id, member) as execution_id, * from underseal.execution"
                " where chain_id = any (%s)",
                list(self.chains),
            )
            (act,) = self.random.choices([act for act, _ in acts], [weight for _, weight in acts])
            try:
                with self.rival.connection.transaction():
                    rows = act(self.target())
                    if self.random.random() < 0.3:
                        self.rival.rows("select pg_sleep(%s)", self.random.random() / 250)
            except psycopg.Error as fault:
                self.faults.append(f"{act.__name__}: {fault.sqlstate} {fault}")
                continue
            self.outcomes.update((act.__name__, row["outcome"], row["reason"]) for row in rows)
            if act in (self.acquire, self.claim, self.recover):
                self.fences.update(
                    (str(row.get("execution_id", self.last)), int(row["fence"]))
                    for row in rows
                    if row["outcome"] in ("acquired", "claimed", "recovered")
                )

    def acts(self) -> Iterator[tuple[Callable[[Row], list[Row]], int]]:
        """What it does, and how often."""
        for weight, acts in {
            20: (self.batch,),
            4: (self.send, self.deliver, self.deliver_all, self.claim, self.cancel),
            3: (self.consume, self.gate, self.acquire, self.recover, self.start),
            2: (
                self.migrate,
                self.discard,
                self.outcome,
                self.fork,
                self.snapshot,
                self.content,
                self.delete,
                self.tick,
            ),
            1: (self.truncate, self.expire, self.purge, self.sweep, self.renew),
        }.items():
            yield from ((act, weight) for act in acts)

    def target(self) -> Row:
        """An execution, mostly one that is open; a chain's name alone where there is none."""
        alive = [
            row for row in self.seen if row["status"] not in ("completed", "failed", "cancelled", "continued")
        ]
        pool = alive if alive and self.random.random() < 0.8 else self.seen
        row = (
            self.random.choice(pool)
            if pool
            else {"execution_id": self.random.choice(self.chains), "fence": 1, "head": 0}
        )
        self.last = str(row["execution_id"])
        return row

    def batch(self, _: Row) -> list[Row]:
        """Two to five items, in any order."""
        some = {row["execution_id"]: row for row in (self.target() for _ in range(self.random.randint(2, 5)))}
        items = [self.item(row) for row in some.values()]
        names = {one["execution_id"] for one in items}
        if self.random.random() < 0.5:
            new = self.random.choice(self.chains) + self.random.choice(["", "~kid", "~kid-2", "~kid:sub"])
            items += [] if new in names else [starting(new, FLOW)]
        self.random.shuffle(items)
        return self.rival.write(*items)

    def item(self, row: Row) -> Row:
        """A driver's write, now and then with a fence that is none."""
        verb = self.random.choices(["append", "park", "complete", "fail", "continue"], [8, 8, 1, 1, 4])[0]
        fence = row["fence"] - (self.random.random() < 0.05)
        return item(verb, row["execution_id"], fence, waits=list(WAITS), events=list(STEP), flow=FLOW)

    def start(self, _: Row) -> list[Row]:
        return self.rival.write(*(starting(one, FLOW) for one in self.random.sample(self.chains, 2)))

    def send(self, row: Row) -> list[Row]:
        topic, expiry = self.random.choice(["news", "bell"]), self.random.choice([None, timedelta(seconds=5)])
        number = f"m{self.random.randrange(50)}"
        return self.rival.calls("send", row["execution_id"], topic, Json(1), OWNER, number, expiry)

    def deliver(self, row: Row) -> list[Row]:
        return self.rival.calls("deliver", row["execution_id"], row["fence"])

    def deliver_all(self, _: Row) -> list[Row]:
        some = [self.target() for _ in range(self.random.randint(2, 6))]
        wanted = [{"execution_id": row["execution_id"], "fence": row["fence"]} for row in some]
        return self.rival.calls("deliver_batch", Json(wanted))

    def consume(self, row: Row) -> list[Row]:
        (found,) = self.rival.calls("next_message", row["execution_id"], row["fence"])
        if found["outcome"] != "message":
            return [found]
        told = [found[name] for name in ("wait", "topic", "inbox_seq", "message_key")]
        return self.rival.calls("consume_message", row["execution_id"], row["fence"], *told)

    def gate(self, row: Row) -> list[Row]:
        return self.rival.calls("resume_gate", row["execution_id"], "go", Json(1), OWNER)

    def discard(self, row: Row) -> list[Row]:
        return self.rival.calls("discard_inbox", row["execution_id"], "news", "op")

    def cancel(self, row: Row) -> list[Row]:
        return self.rival.calls(
            "cancel_execution", row["execution_id"], OWNER, None, self.random.random() < 0.5
        )

    def migrate(self, row: Row) -> list[Row]:
        return self.rival.calls("migrate_execution", row["execution_id"], self.random.randint(1, 3), OWNER)

    def outcome(self, row: Row) -> list[Row]:
        return self.rival.calls("record_outcome", row["execution_id"], Json(1), OWNER)

    def acquire(self, row: Row) -> list[Row]:
        if self.random.random() < 0.5:
            return self.rival.calls("acquire_fence", row["execution_id"])
        observed = (row["head"], row["fence"], row.get("incarnation"))
        return self.rival.calls("acquire_fence_if", row["execution_id"], *observed)

    def recover(self, row: Row) -> list[Row]:
        observed = (row["head"], row["fence"], row.get("incarnation"))
        return self.rival.calls("recover_execution", row["execution_id"], *observed, self.rival.name, LEASE)

    def claim(self, _: Row) -> list[Row]:
        return self.rival.calls("claim_due", self.rival.name, [FLOW], LEASE, self.random.randint(1, 5))

    def renew(self, row: Row) -> list[Row]:
        return self.rival.calls("renew_claims", self.rival.name, [row["execution_id"]], LEASE)

    def fork(self, row: Row) -> list[Row]:
        target = self.random.choice(self.chains)
        return self.rival.calls(
            "fork_execution", row["execution_id"], self.random.randint(0, row["head"]), OWNER, target
        )

    def snapshot(self, row: Row) -> list[Row]:
        return self.rival.calls("save_snapshot", row["execution_id"], row["fence"], row["head"], Json(1))

    def truncate(self, row: Row) -> list[Row]:
        return self.rival.calls("truncate_prefix", row["execution_id"], row["head"])

    def content(self, row: Row) -> list[Row]:
        return self.rival.calls(
            "put_content", row["execution_id"], Json(self.random.randrange(4)), row["fence"]
        )

    def delete(self, row: Row) -> list[Row]:
        return self.rival.calls("delete_chain", row["execution_id"].partition("~")[0], "op")

    def purge(self, _: Row) -> list[Row]:
        return self.rival.calls("purge_executions", timedelta(seconds=20), 3)

    def sweep(self, _: Row) -> list[Row]:
        return self.rival.calls("sweep_content", 3, timedelta(seconds=20))

    def expire(self, _: Row) -> list[Row]:
        return self.rival.calls("expire_inbox", 20)

    def tick(self, _: Row) -> list[Row]:
        # one of them moves the clock: two could move it back
        if self.rival.name == "caller0":
            self.ring.clock.advance(seconds=self.random.randint(1, 20))
        return []


def storm(
    ring: Ring, seed: int, callers: int, times: int, chains: int = 4
) -> Counter[tuple[str, str, str | None]]:
    """Let a crowd loose on a few chains, and audit what they leave."""
    names = sorted(unique_name("s") for _ in range(chains))
    options = "-c lock_timeout=20s"
    sessions = [Rival(ring.database.connect(LOGIN, options=options), f"caller{n}") for n in range(callers)]
    crowd = [Caller(rival, ring, names, seed * 100 + n) for n, rival in enumerate(sessions)]
    try:
        for work in [ring.background(partial(one.run, times)) for one in crowd]:
            work.result(1800)
    finally:
        for rival in sessions:
            rival.connection.close()
    faults = [fault for one in crowd for fault in one.faults]
    assert not faults, f"{len(faults)} faults, the first: {faults[:3]}"
    audit(World.of(ring.admin, *names))
    fences = sum((one.fences for one in crowd), Counter[tuple[str, int]]())
    assert not [one for one, times in fences.items() if times > 1], "a fence was given twice"
    return sum((one.outcomes for one in crowd), Counter())


DONE: Final = {
    ("batch", "appended"), ("batch", "parked"), ("batch", "answered"), ("batch", "continued"), ("batch", "started"),
    ("batch", "completed"), ("send", "sent"), ("deliver", "delivered"), ("deliver_all", "delivered"),
    ("consume", "consumed"), ("claim", "claimed"), ("cancel", "cancelled"), ("cancel", "requested"),
    ("migrate", "migrated"), ("recover", "recovered"), ("delete", "deleted"), ("gate", "resumed"),
    ("discard", "discarded"), ("fork", "forked"), ("snapshot", "saved"),
}  # fmt: skip


@pytest.mark.clause("E1b", "E7a")
def test_a_crowd_never_ends_in_a_deadlock(log_ring: Ring) -> None:
    outcomes = storm(log_ring, seed=1, callers=5, times=700)
    missing = DONE - {(act, outcome) for act, outcome, _ in outcomes}
    assert not missing, f"not done even once: {sorted(missing)}"


@pytest.mark.soak
@pytest.mark.clause("E1b", "E7a")
@pytest.mark.parametrize("seed", range(2, 12))
def test_a_crowd_never_ends_in_a_deadlock_for_long(log_ring: Ring, seed: int) -> None:
    storm(log_ring, seed, callers=6, times=3000, chains=random.Random(seed).randint(2, 6))
