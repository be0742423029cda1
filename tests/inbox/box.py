"""One execution and its inbox, in terse calls."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from psycopg.types.json import Jsonb

from tests.held.sql.kernel import Kernel, Row
from underseal.testing import unique_name

OWNER: Final = "ann"
CIPHER: Final = "underseal/aes-256-gcm-hkdf"
COVERED: Final = "INBOX_MESSAGE.payload"
MARKER: Final[Mapping[str, Any]] = {"v": 1, "cipher": CIPHER, "covers": [COVERED]}
CAPABLE: Final[Mapping[str, Any]] = {"ciphers": [CIPHER], "covers": [COVERED]}
SEALED: Final = '{"__loomEnc": "x", "ct": "abc"}'

Arm = str | float | tuple[str, str]


def key(sender: str, message_id: str) -> bytes:
    """What a duplicate is found by."""
    return hashlib.sha256(sender.encode() + b"\0" + message_id.encode()).digest()


def arm(what: Arm) -> dict[str, Any]:
    """An arm of a wait: a topic, seconds, or a pair of its kind and value."""
    if isinstance(what, tuple):
        return {what[0]: what[1]}
    return {"topic": what} if isinstance(what, str) else {"for": what}


@dataclass
class Box:
    """An execution, as its driver and those who send to it see it.

    Parameters:
        k: the session.
        id: the execution that goes on with the line now.
        first: the one that began it.
        owner: whose it is.
        fence: what its driver holds.
    """

    k: Kernel
    id: str
    first: str = ""
    owner: str = OWNER
    fence: int = 1
    sent: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.first = self.first or self.id

    @property
    def place(self) -> tuple[str, str]:
        """Chain and member."""
        chain, _, member = self.id.partition("~")
        return chain, member

    @property
    def chain(self) -> str:
        """The chain."""
        return self.place[0]

    @property
    def line(self) -> str:
        """The line."""
        return self.first.partition("~")[2]

    def on(self, k: Kernel) -> Box:
        """The same execution in another session."""
        return replace(self, k=k)

    def write(self, verb: str, **item: Any) -> Row:
        """One item of a batch."""
        wanted = {"verb": verb, "execution_id": self.id, "fence": self.fence, **item}
        (row,) = self.k.rows("select * from underseal.append_batch(%s::json)", json.dumps([wanted]))
        return row

    def start(self) -> Box:
        """Start it."""
        assert self.write("start", flow="f", flow_version=1, principal=self.owner)["outcome"] == "started"
        return self

    def park(self, **waits: Sequence[Arm]) -> str:
        """Park it on waits, each with its arms. The outcome: parked or answered."""
        wanted = [{"wait": name, "arms": [arm(one) for one in arms]} for name, arms in waits.items()]
        row = self.write("park", waits=wanted)
        assert row["outcome"] in ("parked", "answered"), row
        return str(row["outcome"])

    def step(self) -> Row:
        """Let its driver record something."""
        return self.write("append", events=[{"type": "STEP_COMPLETED", "data": {}}])

    def go_on(self) -> Box:
        """Continue as new: the same inbox from the successor's side."""
        assert self.write("continue")["outcome"] == "continued"
        chain, member = self.place
        number = member.rpartition(".")[2]
        follower = str(int(number) + 1) if number.isdigit() else "2"
        prefix = member.rpartition(".")[0] if number.isdigit() else member
        after = f"{prefix}.{follower}" if prefix else follower
        self.id, self.fence = f"{chain}~{after}", 1
        return self

    def take(self) -> int:
        """Take the fence, as another driver does."""
        self.fence = self.k.call("acquire_fence", self.id)["fence"]
        return self.fence

    def send(
        self,
        topic: str = "a",
        payload: str = "1",
        who: str | None = None,
        message_id: str | None = None,
        expires: str | None = None,
        to: str | None = None,
    ) -> Row:
        """Send, as its owner unless said otherwise. `payload` is JSON text."""
        (row,) = self.k.rows(
            "select * from underseal.send(%s, %s, %s::json, %s, %s, %s::interval)",
            to or self.id,
            topic,
            payload,
            self.owner if who is None else who,
            message_id,
            expires,
        )
        if row["outcome"] == "sent":
            self.sent[row["inbox_seq"]] = payload
        return row

    def put(self, topic: str = "a", payload: str = "1", **rest: Any) -> int:
        """Send what is accepted: its number."""
        row = self.send(topic, payload, **rest)
        assert row["outcome"] == "sent", row
        number: int = row["inbox_seq"]
        return number

    def put_as(self, sender: str, message_id: str, topic: str = "a") -> tuple[str, int]:
        """Put a message of somebody else's, as the verbs for gates and children do."""
        (row,) = self.k.rows(
            "select * from underseal._put_message(%s, %s, %s, '1', %s, %s, null, null)",
            self.chain, self.line, topic, sender, message_id,
        )  # fmt: skip
        return row["outcome"], row["inbox_seq"]

    def fill(self, topic: str, count: int) -> None:
        """Let messages wait that nobody sent, the first in an empty inbox."""
        self.k.do(
            "update underseal.execution set last_inbox_seq = %s where chain_id = %s and member = %s",
            count, self.chain, self.line,
        )  # fmt: skip
        self.k.do(
            "insert into underseal.inbox_message"
            " (chain_id, line, inbox_seq, topic, message_key, sender, message_id, payload, sent_at)"
            " select %s, %s, n, %s, sha256(n::text::bytea), 'x', n::text, '1', underseal.clock()"
            " from generate_series(1, %s) n",
            self.chain, self.line, topic, count,
        )  # fmt: skip

    def seal(self, number: int, marker: Mapping[str, Any] | None = MARKER, payload: str = SEALED) -> int:
        """Make a message that waits a sealed one, by hand; without a marker where that is None."""
        metadata = None if marker is None else Jsonb({"seal": marker})
        self.k.together(
            ("alter table underseal.inbox_message disable trigger inbox_message_fixed", ()),
            (
                "update underseal.inbox_message set payload = %s::json, metadata = %s"
                " where chain_id = %s and line = %s and inbox_seq = %s",
                (payload, metadata, self.chain, self.line, number),
            ),
            ("alter table underseal.inbox_message enable always trigger inbox_message_fixed", ()),
        )
        return number

    def deliver(self, fence: int | None = None) -> Row:
        """Deliver in one call."""
        return self.k.call("deliver", self.id, self.fence if fence is None else fence)

    def next(self, capability: Mapping[str, Any] | None = None, fence: int | None = None) -> Row:
        """Look at what comes next."""
        return self.k.call(
            "next_message",
            self.id,
            self.fence if fence is None else fence,
            None if capability is None else Jsonb(capability),
        )

    def consume(self, found: Mapping[str, Any], fence: int | None = None, **changes: Any) -> Row:
        """Consume what was found; `changes` are other arguments."""
        told = {**{name: found[name] for name in ("wait", "topic", "inbox_seq", "message_key")}, **changes}
        return self.k.call("consume_message", self.id, self.fence if fence is None else fence, *told.values())

    def discard(
        self, topic: str = "a", who: str = "op", note: str | None = None, number: int | None = None
    ) -> Row:
        """Discard, as an operator."""
        return self.k.call("discard_inbox", self.id, topic, who, note, number)

    def expire(self, most: int = 100) -> int:
        """Sweep: how many expired."""
        expired: int = self.k.call("expire_inbox", most)["expired"]
        return expired

    def listed(self, who: str | None = None) -> list[Row]:
        """What list_inbox shows."""
        return self.k.calls("list_inbox", self.id, who or self.owner)

    def execution(self) -> Row:
        """Its row."""
        (row,) = self.k.rows(
            "select * from underseal.execution where chain_id = %s and member = %s", *self.place
        )
        return row

    @property
    def status(self) -> str:
        """Its status."""
        return str(self.execution()["status"])

    def open_waits(self) -> list[str]:
        """The waits that are not answered."""
        return [wait["wait"] for wait in self.execution()["waits"] or []]

    def pending(self, topic: str | None = None) -> list[int]:
        """Numbers of what waits."""
        rows = self.k.rows(
            "select inbox_seq from underseal.inbox_message where chain_id = %s and line = %s"
            " and topic = coalesce(%s, topic) order by 1",
            self.chain, self.line, topic,
        )  # fmt: skip
        return [row["inbox_seq"] for row in rows]

    def log(self) -> list[Row]:
        """The events of the line's executions, in order; `text` is the data as it is stored."""
        return self.k.rows(
            "select member, seq, type, data, data::text as text, metadata, recorded_at from underseal.event"
            " where chain_id = %s and underseal._line_of(member) = %s order by length(member), member, seq",
            self.chain, self.line,
        )  # fmt: skip

    def types(self) -> list[str]:
        """The types of its events."""
        return [event["type"] for event in self.log()]

    def facts(self) -> list[Row]:
        """What its MESSAGE_CONSUMED say."""
        return [event["data"] for event in self.log() if event["type"] == "MESSAGE_CONSUMED"]

    def told(self) -> list[tuple[str, int]]:
        """Of each message that left: how, and its number."""
        return [(fact["disposition"], fact["inbox_seq"]) for fact in self.facts()]

    def delivered(self) -> list[tuple[str, int]]:
        """Which wait got which message."""
        return [
            (fact["wait"], fact["inbox_seq"]) for fact in self.facts() if fact["disposition"] == "delivered"
        ]

    def wakes(self) -> list[str]:
        """The kinds of its wakes."""
        rows = self.k.rows(
            "select kind from underseal.wake where chain_id = %s and member = %s order by 1", *self.place
        )
        return [row["kind"] for row in rows]

    def cursors(self) -> dict[str, int]:
        """How far each topic is."""
        rows = self.k.rows(
            "select topic, inbox_seq from underseal.inbox_cursor where chain_id = %s and line = %s",
            self.chain, self.line,
        )  # fmt: skip
        return {row["topic"]: row["inbox_seq"] for row in rows}

    def seen(self) -> dict[bytes, int]:
        """The keys remembered."""
        rows = self.k.rows(
            "select message_key, inbox_seq from underseal.inbox_seen where chain_id = %s and line = %s",
            self.chain, self.line,
        )  # fmt: skip
        return {bytes(row["message_key"]): row["inbox_seq"] for row in rows}

    def audit(self) -> None:
        """Every number waits or left once; each topic was delivered in order; the log's payloads are those sent."""
        (first,) = self.k.rows(
            "select last_inbox_seq from underseal.execution where chain_id = %s and member = %s",
            self.chain, self.line,
        )  # fmt: skip
        left = [fact["inbox_seq"] for fact in self.facts()]
        assert sorted(left + self.pending()) == list(range(1, first["last_inbox_seq"] + 1))
        order: dict[str, list[int]] = {}
        keys = []
        for fact in self.facts():
            if fact["disposition"] == "delivered":
                order.setdefault(fact["topic"], []).append(fact["inbox_seq"])
                keys.append(fact["key"])
            else:
                assert "payload" not in fact
        assert all(numbers == sorted(numbers) for numbers in order.values())
        assert len(keys) == len(set(keys)) or first["last_inbox_seq"] > 1024
        for event in self.log():
            number = event["data"].get("inbox_seq")
            if (
                event["data"].get("disposition") == "delivered"
                and number in self.sent
                and event["metadata"] is None
            ):
                assert self.sent[number] in event["text"]


def box(k: Kernel, prefix: str = "e", **rest: Any) -> Box:
    """A new execution, started."""
    return Box(k, unique_name(prefix), **rest).start()


def set_limit(k: Kernel, name: str, value: object) -> None:
    """Set a setting of the inbox, as the schema's owner."""
    k.do(
        "insert into underseal.setting (key, value) values (%s, %s)"
        " on conflict on constraint setting_pkey do update set value = excluded.value",
        f"inbox.{name}",
        str(value),
    )
