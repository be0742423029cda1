"""Random histories of executions: legal ones, event by event, and the same with one event that cannot be there."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st

from underseal.log.fold import Folding, IllegalHistory, line_of, member_of
from underseal.log.model import ENDED, LogEvent

BEGAN = datetime(2030, 1, 1, tzinfo=UTC)
TOPICS = ("order", "$gate/ok", "a topic")
KEYS = [hashlib.sha256(bytes([n])).hexdigest() for n in range(12)]
WAITS = ("w1", "w2", "w3")

_MOVING = (
    "STEP_COMPLETED",
    "EXECUTION_SUSPENDED",
    "EXECUTION_SUSPENDED",
    "EXECUTION_RECOVERED",
    "EXECUTION_MIGRATED",
    "EXECUTION_CANCEL_REQUESTED",
    "MESSAGE_CONSUMED",
    "TIMER_FIRED",
    "OUTCOME_RECORDED",
)
_PARKED = (
    "MESSAGE_CONSUMED",
    "MESSAGE_CONSUMED",
    "TIMER_FIRED",
    "EXECUTION_CANCEL_REQUESTED",
    "EXECUTION_MIGRATED",
    "OUTCOME_RECORDED",
)
_AFTER_THE_END = ("OUTCOME_RECORDED", "MESSAGE_CONSUMED")
_ENDS = ("EXECUTION_COMPLETED", "EXECUTION_FAILED", "EXECUTION_CANCELLED")

arms = st.one_of(
    st.sampled_from(TOPICS).map(lambda topic: {"topic": topic}),
    st.integers(0, 10**9).map(
        lambda n: {"due": (BEGAN + timedelta(microseconds=n)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")}
    ),
)
parks = st.lists(st.sampled_from(WAITS), max_size=3, unique=True).flatmap(
    lambda names: st.tuples(*[st.lists(arms, min_size=1, max_size=3) for _ in names]).map(
        lambda found: [{"wait": name, "arms": list(one)} for name, one in zip(names, found, strict=True)]
    )
)
numbers = st.one_of(st.integers(1, 40), st.integers(1, 3000))
carried_over = st.fixed_dictionaries(
    {
        "last_inbox_seq": st.integers(0, 100),
        "cursors": st.dictionaries(st.sampled_from(TOPICS), numbers, max_size=2),
        "seen": st.lists(
            st.tuples(st.sampled_from(KEYS), numbers), max_size=4, unique_by=lambda pair: pair[0]
        ),
    }
)


@dataclass
class History:
    """One execution's log, and what it folds to.

    Parameters:
        execution_id: whose.
    """

    execution_id: str
    events: list[LogEvent] = field(default_factory=list)
    state: Folding = field(init=False)
    at: datetime = BEGAN

    def __post_init__(self) -> None:
        self.state = Folding(member_of(self.execution_id))

    @property
    def place(self) -> tuple[str, str]:
        """Chain and member."""
        return self.execution_id.partition("~")[0], member_of(self.execution_id)

    def add(
        self, kind: str, data: dict[str, Any], metadata: dict[str, Any] | None = None, later: int = 0
    ) -> None:
        """Let something happen."""
        self.at += timedelta(microseconds=later)
        event = LogEvent(self.execution_id, len(self.events), kind, data, self.at, metadata)
        self.state.apply(event)
        self.events.append(event)

    def folded(self, current: bool) -> dict[str, Any]:
        """What it folds to."""
        return self.state.as_json(current)


def start_data(draw: st.DrawFn, **more: Any) -> dict[str, Any]:
    """What an EXECUTION_STARTED says."""
    start = {"flow": "f", "flow_version": draw(st.integers(1, 3)), "owner": "ann", "input": None, **more}
    if draw(st.integers(0, 3)) == 0:
        start["carried"] = more.get("carried") or draw(carried_over)
        start.setdefault("forked_from", {"execution_id": "another", "seq": 0})
    return start


def _event_data(draw: st.DrawFn, history: History, kind: str) -> dict[str, Any]:
    if kind == "EXECUTION_SUSPENDED":
        return {"waits": draw(parks)}
    if kind == "EXECUTION_MIGRATED":
        return {"flow_version": draw(st.integers(1, 9))}
    if kind == "TIMER_FIRED":
        return {"wait": draw(st.sampled_from(WAITS)), "arm": 0}
    if kind != "MESSAGE_CONSUMED":
        return {}
    data: dict[str, Any] = {
        "topic": draw(st.sampled_from(TOPICS)),
        "inbox_seq": draw(numbers),
        "key": draw(st.sampled_from(KEYS)),
        "message_id": "m",
        "sender": "ann",
    }
    if history.state.status not in ENDED and draw(st.booleans()):
        return {
            **data,
            "wait": draw(st.sampled_from(WAITS)),
            "arm": 0,
            "disposition": "delivered",
            "payload": 1,
        }
    return {**data, "disposition": draw(st.sampled_from(("duplicate", "discarded", "expired")))}


def grow(draw: st.DrawFn, history: History, most: int = 12) -> None:
    """Let legal things happen."""
    for _ in range(draw(st.integers(0, most))):
        status = history.state.status
        kinds: Sequence[str] = (
            _AFTER_THE_END if status in ENDED else _PARKED if status == "suspended" else _MOVING
        )
        kind = draw(st.sampled_from(kinds))
        seal = {"seal": {"v": 1}} if draw(st.integers(0, 15)) == 0 else None
        history.add(kind, _event_data(draw, history, kind), seal, draw(st.integers(-2, 5)))
    if history.state.status not in ENDED and draw(st.integers(0, 2)) == 0:
        kind = "EXECUTION_CANCELLED" if history.state.status == "suspended" else draw(st.sampled_from(_ENDS))
        history.add(kind, {})
        for _ in range(draw(st.integers(0, 2))):
            kind = draw(st.sampled_from(_AFTER_THE_END))
            history.add(kind, _event_data(draw, history, kind))


def carried_by(history: History) -> dict[str, Any]:
    """What a continuation takes over."""
    inbox = history.folded(True)["inbox"]
    return {**inbox, "last_inbox_seq": max([0, *inbox["cursors"].values()])}


@st.composite
def chains(draw: st.DrawFn) -> list[History]:
    """The histories of one chain: an execution, maybe its continuations, maybe a child."""
    histories = [History("c")]
    histories[0].add("EXECUTION_STARTED", start_data(draw))
    grow(draw, histories[0])
    for number in range(2, 2 + draw(st.integers(0, 2))):
        before = histories[-1]
        if before.state.status not in ("pending", "running"):
            break
        successor = f"c~{number}"
        before.add("EXECUTION_CONTINUED", {"successor": successor})
        after = History(successor, at=before.at)
        after.add(
            "EXECUTION_STARTED",
            {
                "flow": "f", "flow_version": 1, "owner": "ann", "input": None,
                "continued_from": before.execution_id, "carried": carried_by(before),
            },
        )  # fmt: skip
        grow(draw, after)
        histories.append(after)
    if draw(st.booleans()):
        child = History("c~pay")
        child.add("EXECUTION_STARTED", start_data(draw))
        grow(draw, child)
        histories.append(child)
    return histories


def current(histories: Sequence[History], history: History) -> bool:
    """Whether an execution is its line's current one."""
    line = line_of(member_of(history.execution_id))
    return [one for one in histories if line_of(member_of(one.execution_id)) == line][-1] is history


@st.composite
def groupings(draw: st.DrawFn, histories: Sequence[History]) -> list[list[LogEvent]]:
    """Statements that insert all the events, each execution's in order, and a successor's after its predecessor's."""
    left = [list(history.events) for history in histories]
    lines = [line_of(member_of(history.execution_id)) for history in histories]
    statements: list[list[LogEvent]] = []
    while any(left):
        statement: list[LogEvent] = []
        begun: set[str] = set()
        for place, events in enumerate(left):
            waits_for = any(left[other] for other in range(place) if lines[other] == lines[place])
            if not events or waits_for or lines[place] in begun:
                continue
            count = len(events) - draw(st.integers(0, len(events) - (not statement)))
            statement += events[:count]
            left[place] = events[count:]
            if count:
                begun.add(lines[place])
        statements.append(statement[::-1] if draw(st.booleans()) else statement)
    return statements


@st.composite
def impossible(draw: st.DrawFn) -> tuple[History, LogEvent]:
    """A history, and an event that cannot follow it."""
    history = History("c")
    history.add("EXECUTION_STARTED", start_data(draw))
    grow(draw, history)
    last = history.events[-1]
    kind = draw(st.sampled_from([*_MOVING, *_ENDS, "EXECUTION_STARTED"]))
    seq = draw(st.sampled_from([len(history.events), len(history.events) + 1, last.seq]))
    wrong = replace(last, seq=seq, type=kind, data=_event_data(draw, history, kind))
    return history, wrong


def is_impossible(history: History, event: LogEvent) -> bool:
    """Whether the reference fold refuses it."""
    state = Folding(history.state.member)
    for one in history.events:
        state.apply(one)
    try:
        state.apply(event)
    except IllegalHistory:
        return True
    return False
