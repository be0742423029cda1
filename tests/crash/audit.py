"""An audit of executions by what the tables hold, which shares no code with what it audits.

It reads the logs, the inboxes, the wakes, and what the witnesses noted (tests/crash/witness.py), and says what
is wrong.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.rows import dict_row

Row = dict[str, Any]
Place = tuple[str, str]

TERMINAL = {
    "EXECUTION_COMPLETED": "completed",
    "EXECUTION_FAILED": "failed",
    "EXECUTION_CANCELLED": "cancelled",
    "EXECUTION_CONTINUED": "continued",
}
RESULTS = {
    "STEP_COMPLETED",
    "STEP_FAILED",
    "VALUE_RECORDED",
    "CHILD_STARTED",
    "HOLD_OPENED",
    "CALL_REFUSED",
}
BY_DRIVERS = RESULTS | {
    "STEP_ATTEMPT_FAILED",
    "HOLD_REQUESTED",
    "CANCELLATION_DELIVERED",
    "EXECUTION_SUSPENDED",
    "EXECUTION_COMPLETED",
    "EXECUTION_FAILED",
    "EXECUTION_CONTINUED",
    "EXECUTION_RECOVERED",
}

_QUERIES = {
    "executions": "select chain_id, member, line, status, head, waits, last_inbox_seq from underseal.execution",
    "events": "select chain_id, member, seq, type, data, recorded_at from underseal.event",
    "messages": "select chain_id, line, topic, inbox_seq from underseal.inbox_message",
    "wakes": "select chain_id, member, kind, wake_at, claimed_by from underseal.wake",
    "written": "select chain_id, member, seq, process, at from crash.written",
    "fences": "select chain_id, member, fence, process, at from crash.fence",
    "effects": "select *, split_part(execution, '~', 1) as chain_id from crash.effect",
    "sent": "select *, split_part(execution, '~', 1) as chain_id from crash.sent",
}


@dataclass
class Books:
    """The rows of some chains.

    Attributes:
        now: the database's clock when they were read.
        dead: processes that were killed; what these did last may have been done again.
    """

    executions: list[Row]
    events: list[Row]
    messages: list[Row]
    wakes: list[Row]
    written: list[Row]
    fences: list[Row]
    effects: list[Row]
    sent: list[Row]
    now: Any
    dead: frozenset[str]

    @classmethod
    def read(cls, conninfo: str, prefix: str, dead: Iterable[str] = ()) -> Books:
        """Read all chains whose ids begin so, as of one instant."""
        with psycopg.connect(conninfo, row_factory=dict_row) as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            tables = {
                name: connection.execute(
                    f"select * from ({query}) x where starts_with(x.chain_id, %s)", [prefix]
                ).fetchall()
                for name, query in _QUERIES.items()
            }
            (now,) = connection.execute("select underseal.clock() as now").fetchall()
        return cls(**tables, now=now["now"], dead=frozenset(dead))


def id_of(row: Row) -> str:
    """The id of the execution that a row belongs to."""
    return f"{row['chain_id']}~{row['member']}" if row["member"] else str(row["chain_id"])


def line_of(member: str) -> str:
    """The line of a member: what is left without the number of its run."""
    return re.sub(r"(^|\.)\d+$", "", member)


def run_of(member: str) -> int:
    """Which run of its line a member is."""
    found = re.search(r"(?:^|\.)(\d+)$", member)
    return int(found.group(1)) if found else 1


def audit(books: Books) -> list[str]:
    """What is wrong; nothing, one hopes."""
    logs: dict[Place, list[Row]] = defaultdict(list)
    for event in books.events:
        logs[event["chain_id"], event["member"]].append(event)
    for log in logs.values():
        log.sort(key=lambda event: int(event["seq"]))
    executions = {(row["chain_id"], row["member"]): row for row in books.executions}
    faults = [f"a log without an execution: {place}" for place in logs.keys() - executions.keys()]
    for place, row in executions.items():
        faults += [f"{id_of(row)}: {fault}" for fault in _log(row, logs[place])]
        faults += [f"{id_of(row)}: {fault}" for fault in _waits(row, logs[place])]
    faults += _lines(books, executions, logs)
    faults += _children(executions, logs)
    faults += _wakes(books, executions)
    faults += _drivers(books, logs)
    faults += _effects(books, logs)
    return faults


# -- one log ------------------------------------------------------------------------------------------


def _log(row: Row, log: list[Row]) -> Iterator[str]:
    numbers = [event["seq"] for event in log]
    if numbers != list(range(row["head"] + 1)):
        yield f"expected events 0 to {row['head']}, found {numbers}"
        return
    if log[0]["type"] != "EXECUTION_STARTED" or sum(one["type"] == "EXECUTION_STARTED" for one in log) != 1:
        yield "does not begin once"
    ends = [event for event in log if event["type"] in TERMINAL]
    ended = row["status"] in TERMINAL.values()
    if len(ends) != ended:
        yield f"{len(ends)} terminal events of one that is {row['status']}"
    if ends and (ends[0] is not log[-1] or TERMINAL[ends[0]["type"]] != row["status"]):
        yield f"{ends[0]['type']} is not the end of one that is {row['status']}"
    yield from _recorded_once(log)


def _recorded_once(log: list[Row]) -> Iterator[str]:
    results = Counter(event["data"]["op"] for event in log if event["type"] in RESULTS)
    yield from (f"operation {op} is recorded {times} times" for op, times in results.items() if times > 1)
    asked = Counter(event["data"]["op"] for event in log if event["type"] == "HOLD_REQUESTED")
    yield from (f"hold {op} is asked for {times} times" for op, times in asked.items() if times > 1)
    tries: dict[int, int] = defaultdict(int)
    done: set[int] = set()
    for event in log:
        op = event["data"].get("op")
        if event["type"] == "STEP_ATTEMPT_FAILED":
            if event["data"]["attempt"] != tries[op] + 1 or op in done:
                yield f"try {event['data']['attempt']} of step {op} fails after {tries[op]}"
            tries[op] = event["data"]["attempt"]
        elif event["type"] in RESULTS:
            done.add(op)


def _waits(row: Row, log: list[Row]) -> Iterator[str]:
    """Every answer is to a wait that is open, by an arm that it has, and no wait has two."""
    waits: dict[str, list[Row]] = {}
    answered: set[str] = set()
    for event in log:
        kind, data = event["type"], event["data"]
        if kind == "EXECUTION_SUSPENDED":
            waits = {one["wait"]: one["arms"] for one in data["waits"]}
            again = waits.keys() & answered
            if again:
                yield f"waits again for {sorted(again)}, which was answered"
        elif kind == "EXECUTION_CANCEL_REQUESTED":
            waits = {}
        elif kind in ("MESSAGE_CONSUMED", "TIMER_FIRED") and data.get("wait") is not None:
            arms = waits.pop(data["wait"], None)
            if arms is None:
                yield f"event {event['seq']} answers {data['wait']}, which is not open"
                continue
            answered.add(data["wait"])
            arm = arms[data["arm"]]
            if kind == "MESSAGE_CONSUMED" and arm.get("topic") != data["topic"]:
                yield f"event {event['seq']} answers an arm of {arm} with a message of {data['topic']}"
            if kind == "TIMER_FIRED" and "due" not in arm:
                yield f"event {event['seq']} answers an arm of {arm} with the time"
    if row["status"] == "suspended" and [one["wait"] for one in row["waits"] or ()] != list(waits):
        yield f"the log leaves {list(waits)} open, the table says {row['waits']}"


# -- inboxes ------------------------------------------------------------------------------------------


def _lines(books: Books, executions: dict[Place, Row], logs: dict[Place, list[Row]]) -> Iterator[str]:
    members: dict[Place, list[str]] = defaultdict(list)
    for chain, member in executions:
        members[chain, line_of(member)].append(member)
    pending: dict[Place, list[Row]] = defaultdict(list)
    for message in books.messages:
        pending[message["chain_id"], message["line"]].append(message)
    sent: dict[Place, list[Row]] = defaultdict(list)
    for one in books.sent:
        chain, _, member = one["execution"].partition("~")
        sent[chain, line_of(member)].append(one)
    for (chain, line), names in members.items():
        names.sort(key=run_of)
        last = executions[chain, names[-1]]
        consumed = [
            event["data"]
            for name in names
            for event in logs[chain, name]
            if event["type"] == "MESSAGE_CONSUMED"
        ]
        said = f"{chain}~{line}"
        yield from (f"{said}: {fault}" for fault in _inbox(consumed, pending[chain, line], last))
        yield from (
            f"{said}: {fault}"
            for fault in _against_senders(consumed, pending[chain, line], sent[chain, line])
        )


def _inbox(consumed: list[Row], pending: list[Row], last: Row) -> Iterator[str]:
    numbers = Counter(one["inbox_seq"] for one in consumed)
    numbers.update(one["inbox_seq"] for one in pending)
    yield from (f"message {seq} is there {times} times" for seq, times in numbers.items() if times > 1)
    keys = Counter(one["key"] for one in consumed if one["disposition"] == "delivered")
    yield from (f"key {key[:8]} is delivered {times} times" for key, times in keys.items() if times > 1)
    before: dict[str, int] = {}
    for one in consumed:
        if one["inbox_seq"] <= before.get(one["topic"], 0):
            yield f"message {one['inbox_seq']} of {one['topic']} comes after {before[one['topic']]}"
        before[one["topic"]] = one["inbox_seq"]
    if last["status"] == "suspended":
        awaited = {arm["topic"] for one in last["waits"] or () for arm in one["arms"] if "topic" in arm}
        left = [(one["topic"], one["inbox_seq"]) for one in pending if one["topic"] in awaited]
        if left:
            yield f"waits for {sorted(awaited)}, and {left} are pending"


def _against_senders(consumed: list[Row], pending: list[Row], sent: list[Row]) -> Iterator[str]:
    """What was accepted is delivered with what it said, or pending; what was a duplicate has its first's number."""
    delivered = {one["inbox_seq"]: one for one in consumed if one["disposition"] == "delivered"}
    waiting = {one["inbox_seq"] for one in pending}
    numbers: dict[tuple[str, str], int] = {}
    for one in sent:
        name = (one["sender"], one["message_id"])
        if one["outcome"] == "conflict":
            continue
        if numbers.setdefault(name, one["inbox_seq"]) != one["inbox_seq"]:
            yield f"{name} has the numbers {numbers[name]} and {one['inbox_seq']}"
        found = delivered.get(one["inbox_seq"])
        if found is None and one["inbox_seq"] not in waiting:
            yield f"{name} was sent to {one['topic']}, and is neither delivered nor pending"
        elif found is not None and (found["topic"], found["payload"]) != (one["topic"], one["payload"]):
            yield f"{name} said {one['payload']} to {one['topic']}, and {found['payload']} came from {found['topic']}"
    if len(set(numbers.values())) != len(numbers):
        yield "two messages have one number"


# -- chains -------------------------------------------------------------------------------------------


def _children(executions: dict[Place, Row], logs: dict[Place, list[Row]]) -> Iterator[str]:
    by_id = {id_of(row): place for place, row in executions.items()}
    asked = Counter(
        event["data"]["execution_id"]
        for log in logs.values()
        for event in log
        if event["type"] == "CHILD_STARTED"
    )
    for child, times in asked.items():
        if times != 1 or child not in by_id:
            yield f"child {child} is started {times} times, and is {'there' if child in by_id else 'missing'}"
    for name, (chain, member) in by_id.items():
        if re.search(r"[A-Za-z]", member) and run_of(member) == 1 and name not in asked:
            parent = executions.get((chain, line_of(member.rpartition(":")[0])))
            # one whose parent was cancelled between the start and its record
            if parent is None or parent["status"] != "cancelled":
                yield f"{name} is nobody's child"
    yield from _told_ends(by_id, logs)


def _told_ends(by_id: dict[str, Place], logs: dict[Place, list[Row]]) -> Iterator[str]:
    """A parent is told of a child's end once, and as it was."""
    told: dict[str, Row] = {}
    for log in logs.values():
        for event in log:
            data = event["data"]
            if event["type"] == "MESSAGE_CONSUMED" and data["topic"].startswith("$child/"):
                if data["message_id"] in told:
                    yield f"{data['message_id']} tells its end twice"
                told[data["message_id"]] = data["payload"]
    for name, payload in told.items():
        kind, data = logs[by_id[name]][-1]["type"], logs[by_id[name]][-1]["data"]
        if (TERMINAL.get(kind), data.get("output")) != (payload["status"], payload.get("output")):
            yield f"{name} ended with {kind}, and its parent was told {payload}"


def _wakes(books: Books, executions: dict[Place, Row]) -> Iterator[str]:
    """An execution that is to go on has something that wakes it, and one that has ended has nothing."""
    wakes: dict[Place, dict[str, Row]] = defaultdict(dict)
    for wake in books.wakes:
        wakes[wake["chain_id"], wake["member"]][wake["kind"]] = wake
    for place, row in executions.items():
        kinds = wakes[place].keys()
        if row["status"] in ("pending", "running") and "drive" not in kinds:
            yield f"{id_of(row)} is {row['status']} and nothing wakes it"
        timed = any("due" in arm for one in row["waits"] or () for arm in one["arms"])
        if row["status"] == "suspended" and timed and "timer" not in kinds:
            yield f"{id_of(row)} waits for an instant and nothing wakes it"
        if row["status"] in TERMINAL.values() and kinds:
            yield f"{id_of(row)} has ended, and {sorted(kinds)} would wake it"


# -- processes ----------------------------------------------------------------------------------------


class _Holders:
    """Who held the fence of an execution, and when."""

    def __init__(self, fences: list[Row]) -> None:
        self.taken: dict[Place, list[Row]] = defaultdict(list)
        for row in sorted(fences, key=lambda one: int(one["fence"])):
            self.taken[row["chain_id"], row["member"]].append(row)

    def at(self, place: Place, instant: Any) -> str | None:
        """Which process held it at an instant."""
        before = [row for row in self.taken[place] if row["at"] <= instant]
        return before[-1]["process"] if before else None


def _drivers(books: Books, logs: dict[Place, list[Row]]) -> Iterator[str]:
    """Fences only grow, and what drivers write is written by who holds the fence."""
    holders = _Holders(books.fences)
    for place, taken in holders.taken.items():
        instants = [row["at"] for row in taken]
        if len({row["fence"] for row in taken}) != len(taken) or instants != sorted(instants):
            yield f"{place}: the fences {[row['fence'] for row in taken]} were not taken in their order"
    writers = {(row["chain_id"], row["member"], row["seq"]): row for row in books.written}
    for place, log in logs.items():
        for event in log:
            if event["type"] not in BY_DRIVERS:
                continue
            wrote = writers[(*place, event["seq"])]
            holder = holders.at(place, wrote["at"])
            if event["type"] == "EXECUTION_RECOVERED":
                holder = event["data"]["worker"]
            if holder != wrote["process"]:
                yield f"{place}: {wrote['process']} wrote event {event['seq']}, and {holder} held the fence"


def _effects(books: Books, logs: dict[Place, list[Row]]) -> Iterator[str]:
    """Each recorded result is an effect of the process that recorded it; others are of processes that were killed."""
    holders = _Holders(books.fences)
    writers = {(row["chain_id"], row["member"], row["seq"]): row["process"] for row in books.written}
    effects = {row["effect"]: row for row in books.effects}
    recorded: set[int] = set()
    for place, log in logs.items():
        tries: Counter[int] = Counter()
        for event in log:
            data = event["data"]
            if event["type"] == "STEP_ATTEMPT_FAILED":
                tries[data["op"]] += 1
            if event["type"] != "STEP_COMPLETED" or not isinstance(data["output"], dict):
                continue
            number = data["output"]["effect"]
            effect = effects.get(number)
            if effect is None or number in recorded:
                which = "not there" if effect is None else "recorded before"
                yield f"{place}: the effect {number} of step {data['op']} is {which}"
                continue
            recorded.add(number)
            told = (effect["execution"], effect["step"], effect["attempt"], effect["process"])
            name = f"{place[0]}~{place[1]}" if place[1] else place[0]
            if told != (name, data["op"], tries[data["op"]] + 1, writers[(*place, event["seq"])]):
                yield f"{place}: step {data['op']} is recorded with the effect of {told}"
    failed = {
        (id_of(event), event["data"]["op"], writers[event["chain_id"], event["member"], event["seq"]])
        for log in logs.values()
        for event in log
        if event["type"] in ("STEP_ATTEMPT_FAILED", "STEP_FAILED")
    }
    for number, effect in effects.items():
        chain, _, member = effect["execution"].partition("~")
        holder = holders.at((chain, member), effect["began"]) if effect["step"] > 0 else None
        if effect["step"] > 0 and holder != effect["process"]:
            yield f"{effect['execution']}: {effect['process']} did step {effect['step']}, and {holder} held the fence"
        unrecorded = (
            number not in recorded and (effect["execution"], effect["step"], effect["process"]) not in failed
        )
        given_up = any(event["type"] == "EXECUTION_CANCEL_REQUESTED" for event in logs[chain, member])
        if effect["step"] > 0 and unrecorded and not given_up and effect["process"] not in books.dead:
            yield f"{effect['execution']}: {effect['process']} lives, and did step {effect['step']} in vain"
