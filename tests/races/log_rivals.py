"""Sessions that write to one execution, the states in which they find it, and everything that writes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from hashlib import sha256
from time import monotonic, sleep
from typing import Any, Final
from uuid import UUID

from psycopg.types.json import Json

from tests.races.log_audit import World
from underseal.testing import DictConnection, TestClock, TestDatabase, unique_name

Row = dict[str, Any]
Told = list[tuple[str, str | None]]

OWNER: Final = "ann"
LEASE: Final = timedelta(minutes=1)
STEP: Final = ({"type": "STEP_COMPLETED", "data": {"step": "s"}},)
PATIENCE: Final = 10.0
KEY: Final = sha256(f"{OWNER}\0news".encode()).digest()


@dataclass
class Rival:
    """One session of the schema's owner.

    Parameters:
        connection: in autocommit mode.
        name: what it calls itself as a worker, and its ids begin with.
    """

    connection: DictConnection
    name: str

    @property
    def pid(self) -> int:
        """Its server process."""
        return self.connection.info.backend_pid

    def rows(self, query: str, *params: object) -> list[Row]:
        """Run a statement and return its rows."""
        cursor = self.connection.execute(query.encode(), params or None)
        return cursor.fetchall() if cursor.description else []

    def calls(self, verb: str, *arguments: object) -> list[Row]:
        """All rows that a verb answers with."""
        places = ", ".join(["%s"] * len(arguments))
        return self.rows(f"select * from underseal.{verb}({places})", *arguments)

    def call(self, verb: str, *arguments: object) -> Row:
        """The one row that a verb answers with."""
        (row,) = self.calls(verb, *arguments)
        return row

    def write(self, *items: Mapping[str, Any]) -> list[Row]:
        """`append_batch`."""
        return self.calls("append_batch", Json(list(items)))

    def done(self, *items: Mapping[str, Any]) -> list[Row]:
        """`append_batch`, every item of which must be done."""
        written = self.write(*items)
        assert all(one["reason"] is None and one["outcome"] != "exists" for one in written), written
        return written

    def start(self, *ids: str, flow: str = "f") -> None:
        """Start executions."""
        self.done(*(starting(one, flow) for one in ids))

    def state(self, execution_id: str) -> Row:
        """An execution's row."""
        chain, _, member = execution_id.partition("~")
        (row,) = self.rows(
            "select * from underseal.execution where chain_id = %s and member = %s", chain, member
        )
        return row


def starting(execution_id: str, flow: str = "f", **more: Any) -> Row:
    """The item of a batch that starts an execution."""
    return {
        "verb": "start",
        "execution_id": execution_id,
        "flow": flow,
        "flow_version": 1,
        "principal": OWNER,
        **more,
    }


def item(verb: str, execution_id: str, fence: int, **more: Any) -> Row:
    """An item of a batch that a driver writes."""
    return {"verb": verb, "execution_id": execution_id, "fence": fence, **more}


@dataclass
class Case:
    """One execution and what everybody knew of it before the race.

    Parameters:
        id: the execution.
        flow: a flow that no other has.
        stage: running, parked, saved or ended.
        base: the clock then.
        seen: its row.
        news: number and key of the message that waits in topic news.
    """

    id: str
    flow: str
    stage: str
    base: datetime
    seen: Row
    news: tuple[int, bytes]

    @property
    def chain(self) -> str:
        """Its chain."""
        return self.id.partition("~")[0]

    @property
    def fence(self) -> int:
        """The fence in force before the race."""
        fence: int = self.seen["fence"]
        return fence

    @property
    def head(self) -> int:
        """The head before the race."""
        head: int = self.seen["head"]
        return head

    @property
    def incarnation(self) -> UUID:
        """Which execution of this id it is."""
        incarnation: UUID = self.seen["incarnation"]
        return incarnation

    @property
    def place(self) -> tuple[str, str]:
        """Chain and member."""
        chain, _, member = self.id.partition("~")
        return chain, member

    def world(self, admin: DictConnection) -> World:
        """Every row of its chain."""
        return World.of(admin, self.chain)


def fork_of(case: Case, rival: Rival) -> str:
    """What a rival calls its fork."""
    return f"{case.chain}-fork-{rival.name}"


PARK: Final = (
    {"wait": "bell", "arms": [{"topic": "bell"}, {"for": 3600}]},
    {"wait": "more", "arms": [{"topic": "more"}]},
)


@dataclass(frozen=True)
class Act:
    """One function that writes.

    Parameters:
        stage: in which execution it succeeds.
        do: the call. Its rows, of which outcome and reason are compared.
        waits: whether it waits for who holds the execution; what does not passes it by.
        sees_end: whether it leaves an ended execution without locking it.
    """

    stage: str
    do: Callable[[Rival, Case], Iterable[Row]]
    waits: bool = True
    sees_end: bool = False


def _one(verb: str, *arguments: Callable[[Case], object]) -> Callable[[Rival, Case], Iterable[Row]]:
    return lambda rival, case: rival.calls(verb, *(argument(case) for argument in arguments))


def _id(case: Case) -> str:
    return case.id


def _fence(case: Case) -> int:
    return case.fence


def _head(case: Case) -> int:
    return case.head


def _incarnation(case: Case) -> UUID:
    return case.incarnation


def _say(value: object) -> Callable[[Case], object]:
    return lambda case: value


def _batch(verb: str, **more: Any) -> Callable[[Rival, Case], Iterable[Row]]:
    return lambda rival, case: rival.write(item(verb, case.id, case.fence, **more))


def _recover(rival: Rival, case: Case) -> Iterable[Row]:
    return rival.calls(
        "recover_execution", case.id, case.head, case.fence, case.incarnation, rival.name, LEASE
    )


def _send(rival: Rival, case: Case) -> Iterable[Row]:
    return rival.calls("send", case.id, "bell", Json({"from": rival.name}), OWNER, f"bell-{rival.name}")


def _fork(rival: Rival, case: Case) -> Iterable[Row]:
    return rival.calls("fork_execution", case.id, 1, OWNER, fork_of(case, rival))


def _expire(rival: Rival, case: Case) -> Iterable[Row]:
    # it sweeps what other races left as well: its answer says nothing of this one
    return [row for row in rival.calls("expire_inbox", 10000) if row["reason"] is not None]


def _purge(rival: Rival, case: Case) -> Iterable[Row]:
    rows = rival.calls("purge_executions", timedelta(), 100000)
    return [row for row in rows if row["chain_id"] == case.chain]


def _claim(rival: Rival, case: Case) -> Iterable[Row]:
    return rival.calls("claim_due", rival.name, [case.flow], LEASE, 10)


ACTS: Final[Mapping[str, Act]] = {
    "append": Act("running", _one("append", _id, _fence, _say(Json(STEP)))),
    "append_batch": Act("running", _batch("append", events=STEP)),
    "append_if_unchanged": Act(
        "running", _one("append_if_unchanged", _id, _head, _fence, _incarnation, _say(Json(STEP)))
    ),
    "acquire_fence": Act("running", _one("acquire_fence", _id), sees_end=True),
    "acquire_fence_if": Act(
        "running", _one("acquire_fence_if", _id, _head, _fence, _incarnation), sees_end=True
    ),
    "recover": Act("running", _recover),
    "send": Act("parked", _send),
    "park": Act("running", _batch("park", events=STEP, waits=PARK)),
    "deliver": Act("parked", _one("deliver", _id, _fence)),
    "deliver_batch": Act(
        "parked", _one("deliver_batch", lambda c: Json([{"execution_id": c.id, "fence": c.fence}]))
    ),
    "consume": Act(
        "parked",
        _one(
            "consume_message", _id, _fence, _say("w"), _say("news"), lambda c: c.news[0], lambda c: c.news[1]
        ),
    ),
    "discard": Act("parked", _one("discard_inbox", _id, _say("news"), _say("op"))),
    "expire": Act("running", _expire, waits=False),
    "cancel": Act("running", _one("cancel_execution", _id, _say(OWNER), _say("why"))),
    "force_cancel": Act("parked", _one("cancel_execution", _id, _say(OWNER), _say("why"), _say(True))),
    "migrate": Act("parked", _one("migrate_execution", _id, _say(2), _say(OWNER))),
    "report_divergence": Act("running", _one("report_divergence", _id, _fence, _say("found another step"))),
    "resume_gate": Act("parked", _one("resume_gate", _id, _say("go"), _say(Json(True)), _say(OWNER))),
    "record_outcome": Act("ended", _one("record_outcome", _id, _say(Json("good")), _say(OWNER))),
    "fork": Act("running", _fork),
    "save_snapshot": Act("running", _one("save_snapshot", _id, _fence, _head, _say(Json({"at": 1})))),
    "truncate_prefix": Act("saved", _one("truncate_prefix", _id, _head)),
    "claim_due": Act("running", _claim, waits=False),
    "continue": Act("running", _batch("continue", events=STEP)),
    "complete": Act("running", _batch("complete", events=STEP, output=1)),
    "delete_chain": Act("ended", _one("delete_chain", lambda c: c.chain, _say("op"))),
    "purge": Act("ended", _purge, waits=False),
    "put_content": Act("running", _one("put_content", _id, _say(Json("large")), _fence)),
}


@dataclass
class Ring:
    """Two rivals, somebody who looks on, and a clock.

    Parameters:
        a, b: the rivals.
        c: a third, for what neither is to know.
        admin: a superuser's session.
        clock: moved by hand.
        database: where they are, for tests that need more sessions.
    """

    a: Rival
    b: Rival
    c: Rival
    admin: DictConnection
    clock: TestClock
    database: TestDatabase
    known: dict[object, tuple[Told, str]] = field(default_factory=dict)
    _pools: dict[tuple[bool, bool], list[Case]] = field(default_factory=dict)
    _threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(8))

    def stage(self, name: str, continued: bool = False, old: bool = False) -> Case:
        """An execution in one of the states that acts begin from, with a message that waits.

        Parameters:
            name: of the state.
            continued: whether another went before it in its line.
            old: whether there is also a message that has expired.
        """
        who, now = self.a, self.clock.now()
        pool = self._pools.setdefault((name == "parked", continued), [])
        # acts count from when an execution was made, so it must not be long ago
        if not pool or now - pool[-1].base > timedelta(minutes=1):
            pool[:] = self._made(name == "parked", continued, now)
        case = pool.pop()
        if old:
            who.call("send", case.id, "old", Json(1), OWNER, "old", timedelta(seconds=1))
            now = self.clock.advance(seconds=2)
        if name == "saved":
            assert who.call("save_snapshot", case.id, 1, 1, Json({"at": 1}))["outcome"] == "saved"
            who.done(item("append", case.id, 1, events=STEP))
        elif name == "ended":
            who.done(item("complete", case.id, 1))
        seen = who.state(case.id) if name in ("saved", "ended") else case.seen
        return replace(case, stage=name, base=now, seen=seen)

    def _made(self, parked: bool, continued: bool, now: datetime) -> list[Case]:
        """Many at once: one by one they would take longer than the races."""
        who, chains = self.a, [unique_name("x") for _ in range(24)]
        who.done(*(starting(chain, f"flow of {chain}") for chain in chains))
        ids = chains
        if continued:
            who.done(*(item("continue", chain, 1) for chain in chains))
            ids = [f"{chain}~2" for chain in chains]
        waits = [
            {"wait": "w", "arms": [{"topic": "news"}, {"for": 7200}]},
            {"wait": "g", "arms": [{"gate": "go"}, {"topic": "bell"}]},
        ]
        verb = "park" if parked else "append"
        who.done(*(item(verb, one, 1, events=STEP, waits=waits) for one in ids))
        who.rows(
            "select s.* from unnest(%s::text[]) i (id)"
            " cross join lateral underseal.send(i.id, 'news', '2', %s, 'news') s",
            ids, OWNER,
        )  # fmt: skip
        return [
            Case(one, row["flow"], "", now, row, (1, KEY))
            for one, row in ((one, who.state(one)) for one in ids)
        ]

    def locked(self, *chains: str) -> bool:
        """Whether somebody holds the row of an execution of these chains."""
        count, free = (
            self.admin.execute(
                f"select count(*) as n from (select from underseal.execution where chain_id = any (%s) {lock}) e",
                [list(chains)],
            ).fetchall()[0]["n"]
            for lock in ("", "for no key update skip locked")
        )
        return bool(count > free)

    def background(self, work: Callable[[], Any]) -> Future[Any]:
        """Run something in a thread."""
        return self._threads.submit(work)

    def waits(self, rival: Rival, work: Future[Any]) -> bool:
        """Wait until a rival has done its work, or waits for a lock. Whether it waits."""
        deadline = monotonic() + PATIENCE
        while not work.done():
            found = self.admin.execute(
                "select from pg_locks where pid = %s and not granted", [rival.pid], prepare=True
            ).rowcount
            if found:
                return True
            assert monotonic() < deadline, "neither done nor waiting"
            sleep(0.001)
        return False

    def blockers(self, rival: Rival) -> set[int]:
        """Whom a rival waits for."""
        (row,) = self.admin.execute("select pg_blocking_pids(%s) as pids", [rival.pid]).fetchall()
        return set(row["pids"])


def told(rows: Iterable[Row]) -> Told:
    """Outcomes and reasons."""
    return [(row["outcome"], row["reason"]) for row in rows]
