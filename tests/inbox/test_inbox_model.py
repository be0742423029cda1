"""The inbox against a simple model of it, under random sends, parks, deliveries, discards and time (T6)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.held.sql.kernel import Kernel
from tests.inbox.box import CAPABLE, OWNER, Box, box, key, set_limit

BACKLOG = 3
TOPICS = st.sampled_from("abc")
ARMS = st.lists(st.one_of(TOPICS, st.sampled_from([0.0, 2.0, 5.0])), min_size=1, max_size=3)


@dataclass
class Message:
    """A message as the model keeps it."""

    number: int
    topic: str
    key: bytes
    expires: float | None
    sealed: bool = False


@dataclass
class Model:
    """What an inbox is: messages in order, keys remembered, waits in order."""

    now: float = 0
    last: int = 0
    pending: list[Message] = field(default_factory=list)
    seen: dict[bytes, int] = field(default_factory=dict)
    cursors: dict[str, int] = field(default_factory=dict)
    waits: list[tuple[str, list[str | float]]] = field(default_factory=list)
    told: list[tuple[str, str | None, int | None]] = field(default_factory=list)
    status: str = "pending"
    woken: bool = False

    def expired(self, message: Message) -> bool:
        return message.expires is not None and message.expires <= self.now

    def leave(self, message: Message, how: str, wait: str | None = None) -> None:
        self.pending.remove(message)
        self.told.append((how, wait, message.number))
        self.seen[message.key] = message.number
        self.cursors[message.topic] = max(message.number, self.cursors.get(message.topic, 0))

    def send(self, topic: str, name: bytes, expires: float | None) -> str:
        if name in self.seen or any(m.key == name for m in self.pending):
            return "duplicate"
        if sum(m.topic == topic for m in self.pending) >= BACKLOG:
            for message in [m for m in self.pending if m.topic == topic and self.expired(m)]:
                self.leave(message, "expired")
                self.bring_forward()
            if sum(m.topic == topic for m in self.pending) >= BACKLOG:
                return "inbox-full"
        self.last += 1
        self.pending.append(Message(self.last, topic, name, None if expires is None else self.now + expires))
        if self.status == "suspended" and any(topic in arms for _, arms in self.waits):
            self.woken = True
        return "sent"

    def bring_forward(self) -> None:
        """Something left without being delivered: who is parked on something that is there now is woken."""
        if self.status == "suspended" and self.plan(trusted=True)[0]:
            self.woken = True

    def plan(self, trusted: bool = False) -> tuple[list[tuple[str, str | None, Message | None]], bool]:
        """What would be recorded, in order, and whether a sealed head cut it off."""
        steps: list[tuple[str, str | None, Message | None]] = []
        taken: set[int] = set()
        for wait, arms in self.waits:
            for arm in arms:
                if isinstance(arm, float):
                    if arm <= self.now:
                        steps.append(("timer", wait, None))
                        break
                    continue
                answer = None
                for message in [m for m in self.pending if m.topic == arm and m.number not in taken]:
                    if not self.expired(message) and message.sealed and not trusted:
                        return steps, True
                    taken.add(message.number)
                    if self.expired(message):
                        steps.append(("expired", None, message))
                    else:
                        answer = message
                        break
                if answer is not None:
                    steps.append(("delivered", wait, answer))
                    break
        return steps, False

    def answer(self) -> int:
        """Deliver whatever needs no key."""
        steps, held = self.plan()
        if held:
            while steps and steps[-1][1] is None:
                steps.pop()
        answered = [wait for _, wait, _ in steps if wait is not None]
        self.record(steps)
        if not answered and self.status == "suspended":
            self.woken = held
        return len(answered)

    def record(self, steps: list[tuple[str, str | None, Message | None]]) -> None:
        for how, wait, message in steps:
            if message is None:
                self.told.append((how, wait, None))
            else:
                self.leave(message, how, wait)
        answered = [wait for _, wait, _ in steps if wait is not None]
        if answered:
            self.waits = [w for w in self.waits if w[0] not in answered]
            self.status, self.woken = "running", False


class InboxMachine(RuleBasedStateMachine):
    """Does the same to a real inbox and to the model."""

    kernel: Kernel

    @initialize()
    def begin(self) -> None:
        self.undo = rolled_back_on(self.kernel)
        self.undo.__enter__()
        set_limit(self.kernel, "backlog", BACKLOG)
        self.b: Box = box(self.kernel)
        self.m = Model()
        self.names = count(1)

    def teardown(self) -> None:
        if hasattr(self, "undo"):
            self.b.audit()
            self.undo.__exit__(None, None, None)

    @rule(topic=TOPICS, expires=st.one_of(st.none(), st.sampled_from([1, 3, 6])), again=st.integers(0, 40))
    def send(self, topic: str, expires: int | None, again: int) -> None:
        """Send, now and then under an id used before."""
        message_id = str(again if again < 8 else f"n{next(self.names)}")
        row = self.b.send(
            topic, message_id=message_id, expires=None if expires is None else f"{expires} seconds"
        )
        expected = self.m.send(topic, key(OWNER, message_id), expires)
        assert (row["reason"] or row["outcome"]) == expected

    @rule(topic=TOPICS)
    def seal(self, topic: str) -> None:
        """Seal the head of a topic."""
        for message in [m for m in self.m.pending if m.topic == topic and not m.sealed][:1]:
            message.sealed = True
            self.b.seal(message.number)

    @precondition(lambda self: self.m.status != "suspended")
    @rule(arms=st.lists(ARMS, min_size=1, max_size=3))
    def park(self, arms: list[list[str | float]]) -> None:
        """Park on new waits, beside those that are left over."""
        left = [(wait, list(was)) for wait, was in self.m.waits]
        new = [(f"w{next(self.names)}", chosen) for chosen in arms]
        outcome = self.b.park(**{wait: list(chosen) for wait, chosen in [*left, *new]})
        kept = {wait for wait, _ in left}
        self.m.waits = [
            (wait, [a if isinstance(a, str) or wait in kept else a + self.m.now for a in chosen])
            for wait, chosen in [*left, *new]
        ]
        self.m.status, self.m.woken = "suspended", False
        assert (outcome == "answered") == (self.m.answer() > 0)

    @rule()
    def deliver(self) -> None:
        """Deliver in one call."""
        row = self.b.deliver()
        assert row["answered"] == self.m.answer()

    @rule(capable=st.booleans())
    def three_steps(self, capable: bool) -> None:
        """Look, and consume what was found."""
        steps, held = self.m.plan(trusted=capable)
        found = self.b.next(CAPABLE if capable else None)
        first = next((s for s in steps if s[1] is not None), None)
        if first is None:
            assert found["outcome"] == ("held" if held else "none")
            if held and self.m.status == "suspended":
                self.m.woken = True
            return
        _, wait, message = first
        if message is None:
            assert (found["outcome"], found["wait"]) == ("timer", wait)
            return
        assert (found["outcome"], found["wait"], found["inbox_seq"]) == ("message", wait, message.number)
        assert self.b.consume(found)["outcome"] == "consumed"
        self.m.record(steps[: steps.index(first) + 1])

    @rule(topic=TOPICS, head=st.booleans())
    def discard(self, topic: str, head: bool) -> None:
        """Discard a topic, or its head."""
        waiting = [m for m in self.m.pending if m.topic == topic]
        number = waiting[0].number if head and waiting else None
        row = self.b.discard(topic, number=number)
        gone = waiting[:1] if head and waiting else waiting
        assert row["discarded"] == len(gone)
        for message in gone:
            self.m.leave(message, "discarded")
        if gone:
            self.m.bring_forward()

    @rule(seconds=st.integers(1, 4))
    def wait(self, seconds: int) -> None:
        """Let time pass."""
        self.m.now += seconds
        self.kernel.clock.advance(seconds=seconds)

    @rule()
    def expire(self) -> None:
        """Sweep."""
        gone = [m for m in self.m.pending if self.m.expired(m)]
        assert self.b.expire() == len(gone)
        for message in gone:
            self.m.leave(message, "expired")
        if gone:
            self.m.bring_forward()

    @precondition(lambda self: self.m.status == "running")
    @rule()
    def go_on(self) -> None:
        """Continue as new."""
        self.b.go_on()
        self.m.status, self.m.waits = "pending", []

    @invariant()
    def agree(self) -> None:
        """The two say the same."""
        if not hasattr(self, "m"):
            return
        assert self.b.pending() == [m.number for m in self.m.pending]
        assert self.b.cursors() == self.m.cursors
        assert self.b.seen() == self.m.seen
        assert self.b.open_waits() == [wait for wait, _ in self.m.waits]
        assert self.b.status == self.m.status
        assert ("inbox" in self.b.wakes()) == self.m.woken
        told = [
            ("timer", event["data"]["wait"], None)
            if event["type"] == "TIMER_FIRED"
            else (event["data"]["disposition"], event["data"].get("wait"), event["data"]["inbox_seq"])
            for event in self.b.log()
            if event["type"] in ("TIMER_FIRED", "MESSAGE_CONSUMED")
        ]
        assert told == self.m.told


@contextmanager
def rolled_back_on(kernel: Kernel) -> Iterator[None]:
    """Undo what is done meanwhile, inside the test's own transaction."""
    start: Any = kernel.clock.now()
    with kernel.connection.transaction(force_rollback=True):
        yield
    kernel.clock.set(start)


@pytest.mark.clause("T6d", "I1a", "I1b", "I2a", "I2b", "I3a", "I3b", "I3c", "I4", "I6a", "E7a")
def test_the_inbox_does_what_a_simple_model_says(k: Kernel) -> None:
    machine = type("Machine", (InboxMachine,), {"kernel": k})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
