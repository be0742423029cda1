"""Senders, a driver and an operator at once, each by chance; then the log is audited."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import count
from threading import Thread

import psycopg
import pytest
from psycopg.rows import dict_row

from tests.held.sql.kernel import Kernel
from tests.inbox.box import Arm, Box, box
from tests.races.arena import Arena

TOPICS = "abc"
SENDS = 60
TURNS = 120


class Storm:
    """What happens to one execution.

    Parameters:
        arena: where.
        seed: what each does, though not in which order.
    """

    def __init__(self, arena: Arena, seed: int) -> None:
        self.arena = arena
        self.seed = seed
        self.box = box(arena.a, "storm")
        self.failures: list[BaseException] = []
        self.numbers = count()

    def thread(self, name: str, act: Callable[[Box, random.Random], None], rounds: int) -> Thread:
        """Somebody in a session of their own."""
        chance = random.Random(f"{self.seed}-{name}")

        def body() -> None:
            try:
                with psycopg.connect(
                    self.arena.a.connection.info.dsn,
                    autocommit=True,
                    row_factory=dict_row,
                    options="-c lock_timeout=8s",
                ) as connection:
                    mine = Box(Kernel(connection, self.arena.clock), self.box.id, self.box.first)
                    for _ in range(rounds):
                        act(mine, chance)
            except BaseException as error:  # noqa: BLE001 - shown by the test
                self.failures.append(error)

        return Thread(target=body, name=name)

    def send(self, mine: Box, chance: random.Random) -> None:
        """Send to the line's first execution, now and then under an id used before."""
        mine.send(
            chance.choice(TOPICS),
            str(chance.randrange(100)),
            message_id=f"m{chance.randrange(SENDS)}",
            expires=chance.choice([None, None, "1 second", "1 hour"]),
        )

    def operate(self, mine: Box, chance: random.Random) -> None:
        """Discard, sweep, or let time pass."""
        turn = chance.random()
        if turn < 0.2:
            mine.discard(chance.choice(TOPICS))
        elif turn < 0.6:
            mine.expire()
        else:
            mine.k.clock.advance(seconds=chance.random())

    def drive(self, mine: Box, chance: random.Random) -> None:
        """Deliver where a wake calls, else record, continue or park."""
        if mine.status == "suspended":
            if "inbox" in mine.wakes() or chance.random() < 0.2:
                self.answer(mine, chance)
            return
        if mine.status == "running" and chance.random() < 0.1:
            mine.go_on()
        left = mine.execution()["waits"] or []
        waits: dict[str, list[Arm]] = {w["wait"]: [("topic", a["topic"]) for a in w["arms"]] for w in left}
        for _ in range(chance.randint(1, 2)):
            waits[f"w{next(self.numbers)}"] = list(chance.sample(TOPICS, chance.randint(1, 3)))
        mine.park(**waits)

    def answer(self, mine: Box, chance: random.Random) -> None:
        """Deliver in one call, or in three steps."""
        mine.take()
        found = mine.next()
        if found["outcome"] == "message" and chance.random() < 0.5:
            mine.consume(found)
        else:
            mine.deliver()

    def rage(self) -> None:
        """Let all of them act."""
        threads = [self.thread(f"sender-{n}", self.send, SENDS) for n in range(3)]
        threads += [self.thread("operator", self.operate, SENDS), self.thread("driver", self.drive, TURNS)]
        for one in threads:
            one.start()
        for one in threads:
            one.join(60)
        goes_on = self.arena.a.value(
            "select coalesce(current_member, '') from underseal.execution where chain_id = %s and member = ''",
            self.box.chain,
        )
        self.box.id = f"{self.box.chain}~{goes_on}" if goes_on else self.box.chain


@pytest.mark.clause("E7a", "I1a", "I1b", "I2a", "I2b", "I3a", "I3b", "I3c", "I6a", "T4b")
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_storm_loses_nothing_and_delivers_nothing_twice(arena: Arena, seed: int) -> None:
    storm = Storm(arena, seed)
    storm.rage()
    assert not storm.failures, storm.failures
    b = storm.box
    assert {"delivered"} <= {how for how, _ in b.told()} <= {"delivered", "discarded", "expired"}
    if b.status == "suspended":
        there = {row["topic"] for row in b.listed()}
        waited = {a["topic"] for wait in b.execution()["waits"] for a in wait["arms"]}
        assert "inbox" in b.wakes() or not there & waited
    b.audit()
