"""The inboxes of lines: every message once, in its order, and as its sender said it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from underseal.testing.audit.books import Books, Logs, Place, Row, line_of, run_of


def audit_inboxes(books: Books, executions: dict[Place, Row], logs: Logs) -> Iterator[str]:
    """What is wrong with messages, line by line."""
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
        start = logs[chain, names[0]][0]["data"] if logs[chain, names[0]] else {}
        if not start.keys() & {"carried", "forked_from"}:  # such a line goes on with another's numbers
            numbers = {one["inbox_seq"] for one in (*consumed, *pending[chain, line])}
            missing = set(range(1, executions[chain, names[0]]["last_inbox_seq"] + 1)) - numbers
            yield from (
                f"{said}: message {number} is neither in a log nor pending" for number in sorted(missing)
            )
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
    for one in (one for one in consumed if one["disposition"] == "delivered"):
        if one["inbox_seq"] <= before.get(one["topic"], 0):
            yield f"message {one['inbox_seq']} of {one['topic']} comes after {before[one['topic']]}"
        before[one["topic"]] = one["inbox_seq"]
    if last["status"] == "suspended":
        awaited = {arm["topic"] for one in last["waits"] or () for arm in one["arms"] if "topic" in arm}
        left = [(one["topic"], one["inbox_seq"]) for one in pending if one["topic"] in awaited]
        if left:
            yield f"waits for {sorted(awaited)}, and {left} are pending"


def _against_senders(consumed: list[Row], pending: list[Row], sent: list[Row]) -> Iterator[str]:
    """What was accepted is delivered with what it said, or went another way, or is pending; what was a duplicate has
    its first's number."""
    delivered = {one["inbox_seq"]: one for one in consumed if one["disposition"] == "delivered"}
    elsewhere = {one["inbox_seq"] for one in consumed if one["disposition"] != "delivered"}
    elsewhere |= {one["inbox_seq"] for one in pending}
    numbers: dict[tuple[str, str], int] = {}
    for one in sent:
        name = (one["sender"], one["message_id"])
        if one["outcome"] not in ("sent", "duplicate"):
            continue
        if numbers.setdefault(name, one["inbox_seq"]) != one["inbox_seq"]:
            yield f"{name} has the numbers {numbers[name]} and {one['inbox_seq']}"
        found = delivered.get(one["inbox_seq"])
        if found is None and one["inbox_seq"] not in elsewhere:
            yield f"{name} was sent to {one['topic']}, and is neither delivered nor pending"
        elif found is not None and (found["topic"], found["payload"]) != (one["topic"], one["payload"]):
            yield f"{name} said {one['payload']} to {one['topic']}, and {found['payload']} came from {found['topic']}"
    if len(set(numbers.values())) != len(numbers):
        yield "two messages have one number"
