"""One log: complete, begun and ended once, each operation recorded once, each wait answered once."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from underseal.testing.audit.books import TERMINAL, Row

RESULTS = {
    "STEP_COMPLETED",
    "STEP_FAILED",
    "VALUE_RECORDED",
    "CHILD_STARTED",
    "HOLD_OPENED",
    "CALL_REFUSED",
}


def audit_log(row: Row, log: list[Row]) -> Iterator[str]:
    """What is wrong with the log of one execution."""
    yield from _log(row, log)
    yield from _waits(row, log)


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
