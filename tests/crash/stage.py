"""Plays a flow to its end while its processes are killed, and tells what came of it."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
from psycopg.rows import dict_row

from tests.crash import flows
from tests.crash.nursery import Node, Nursery, until
from underseal import AsyncUnderseal, FileKeyRing, Principal
from underseal.testing import OWNER, TestDatabase

Key = tuple[str, int, int, str]
"""An effect: of which member of the chain, its step's number, which try, its name."""

ENDED = ("completed", "failed", "cancelled", "continued")


@dataclass(frozen=True)
class Kill:
    """Where a process ends itself: right before or after so many calls of a kind."""

    verb: str
    number: int
    side: str

    def __str__(self) -> str:
        return f"{self.side} {self.verb} {self.number}"


@dataclass
class Death:
    """One process's end, and how the database was when it had gone.

    Attributes:
        process: which.
        at: at which call, and what that wrote; None for one that lived on to the end.
        driven: the members that it was driving, whose next driver records a recovery.
        in_flight: effects it had done whose result was not recorded: these alone may be done again.
    """

    process: str
    at: dict[str, Any] | None
    driven: frozenset[str] = frozenset()
    in_flight: frozenset[Key] = frozenset()


@dataclass
class Played:
    """What came of one scenario.

    Attributes:
        chain: its executions.
        kills: where its processes were to end.
        deaths: how they ended.
        ends: status and output of each member.
        effects: how often each was done.
        values: what each was done with; the same at every repetition.
        held: state of each held operation, and how often it ran.
        recovered: member and worker of each recovery that is recorded.
        faults: what is wrong with it by itself.
    """

    chain: str
    kills: Sequence[Kill | None]
    deaths: list[Death] = field(default_factory=list)
    ends: dict[str, Any] = field(default_factory=dict)
    effects: Counter[Key] = field(default_factory=Counter)
    values: dict[Key, set[str]] = field(default_factory=dict)
    held: list[tuple[int, str, int]] = field(default_factory=list)
    recovered: Counter[tuple[str, str]] = field(default_factory=Counter)
    calls: list[dict[str, Any]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


class Stage:
    """A database, a client that sends and approves, and processes."""

    def __init__(self, database: TestDatabase, nursery: Nursery, keys: Path) -> None:
        self.database = database
        self.nursery = nursery
        self.keys = keys
        self.conninfo = database.conninfo_as(OWNER)
        # each new session plans its first calls, for longer than all that it does then
        self.connections = 1
        self._look: dict[str, list[dict[str, Any]]] = {}
        self._seen = asyncio.Event()
        self.admin: psycopg.AsyncConnection[Any]
        self.client: AsyncUnderseal

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Stage]:
        """Connect, and look at the executions that are played now and then."""
        async with (
            await psycopg.AsyncConnection.connect(
                self.database.conninfo, autocommit=True, row_factory=dict_row
            ) as self.admin,
            AsyncUnderseal(
                self.conninfo, keys=FileKeyRing(self.keys), principals=flows.principal, max_connections=3
            ) as self.client,
        ):

            @self.client.gate(flows.Pay())
            async def pay(who: Principal, params: flows.Payment) -> dict[str, Any]:
                await self.rows(
                    "insert into crash.effect (execution, step, attempt, name, process, value)"
                    " values (%s, 0, 0, 'pay', 'approver', %s)",
                    params.chain, json.dumps(params.cents),
                )  # fmt: skip
                return {"paid": params.cents}

            looking = asyncio.create_task(self._watch())
            try:
                yield self
            finally:
                looking.cancel()

    async def rows(self, sql: str, *params: Any) -> list[dict[str, Any]]:
        """What a query gives, asked as the superuser."""
        cursor = await self.admin.execute(sql, params)
        return await cursor.fetchall() if cursor.description is not None else []

    async def _watch(self) -> None:
        while True:
            if self._look:
                found = await self.rows(
                    "select e.chain_id, e.member, e.status, e.waits from underseal.execution e"
                    " where e.chain_id = any (%s)",
                    list(self._look),
                )
                for chain in self._look:
                    self._look[chain] = [row for row in found if row["chain_id"] == chain]
            seen, self._seen = self._seen, asyncio.Event()
            seen.set()
            await asyncio.sleep(0.015)

    async def members(self, chain: str) -> list[dict[str, Any]]:
        """A chain's executions, as a look that begins now finds them."""
        self._look.setdefault(chain, [])
        await self._seen.wait()
        return self._look[chain]

    # -- playing -----------------------------------------------------------------------------------

    async def play(
        self, scenario: Scenario, tag: str, kills: Sequence[Kill | None], *, tell: bool = False
    ) -> Played:
        """Play one to its end, each process killed where it is told to be; the last one is not.

        Parameters:
            scenario: what is played.
            tag: names it.
            kills: where the processes end themselves, in the order in which they come.
            tell: note the calls.
        """
        chain = f"c-{tag}"
        played = Played(chain, kills)
        player = scenario.player(self, chain, tag, eager=len(kills) % 2 == 0 or hash_of(kills) % 2 == 0)
        await player.begin()
        try:
            async with asyncio.timeout(90):
                for place, kill in enumerate([*kills, None]):
                    if await self._live(played, player, f"{tag}/{place + 1}", kill, tell, len(kills) + 3):
                        break
        except TimeoutError:
            stuck = [(one["member"], one["status"], one["waits"]) for one in await self.members(chain)]
            played.faults.append(f"does not end: {stuck}")
            for name, node in self.nursery.nodes.items():
                if name.startswith(f"{tag}/"):
                    await node.kill()
        self._look.pop(chain, None)
        await self._tell(played, scenario)
        return played

    async def _live(
        self, played: Played, player: Player, name: str, kill: Kill | None, tell: bool, recoveries: int
    ) -> bool:
        """One process's life; whether everything has ended with it."""
        order: dict[str, Any] = {
            "conninfo": self.conninfo, "keys": str(self.keys), "tag": player.tag, "chain": player.chain, "tell": tell,
            "kill": kill and {"verb": kill.verb, "number": kill.number, "side": kill.side},
            "recoveries": recoveries, "connections": self.connections,
            **player.scenario.order,
        }  # fmt: skip
        if "start" in order:
            begun = await self.members(player.chain)
            order["start"] = None if begun else f"{order['start']}.{player.tag}"
        node = self.nursery.fork(name, **order)
        done = False
        while node.exit is None and not done:
            members = await self.members(player.chain)
            done = bool(members) and all(one["status"] in ENDED for one in members)
            if not done:
                await player.act(members)
        await node.kill()
        played.calls += node.calls
        if node.broken or node.exit != -9:
            played.faults.append(f"process {name} ended with {node.exit}: {node.broken}")
        played.deaths.append(await self.bury(node, player.chain))
        return done

    async def quiet(self, process: str) -> None:
        """Wait until no session of a process is left."""

        async def none_is_left() -> bool:
            return not await self.rows("select from pg_stat_activity where application_name = %s", process)

        await until(none_is_left)

    async def bury(self, node: Node, chain: str) -> Death:
        """Wait until nothing of a process is left at work in the database; then its claims run out at once."""
        await self.quiet(node.name)
        driven = await self.rows(
            "select e.member from underseal.execution e where e.chain_id = %s and e.status in ('pending', 'running')"
            " and exists (select from underseal.wake w where w.chain_id = e.chain_id and w.member = e.member"
            "   and w.claimed_by = %s)",
            chain, node.name,
        )  # fmt: skip
        in_flight = await self.rows(
            "select f.execution, f.step, f.attempt, f.name from crash.effect f where f.process = %s and not exists ("
            " select from underseal.event v where v.chain_id = %s"
            "   and v.chain_id || case v.member when '' then '' else '~' || v.member end = f.execution"
            "   and v.data ->> 'op' = f.step::text and ("
            "     v.type in ('STEP_COMPLETED', 'STEP_FAILED')"
            "     or v.type = 'STEP_ATTEMPT_FAILED' and v.data ->> 'attempt' = f.attempt::text))",
            node.name, chain,
        )  # fmt: skip
        await self.rows(
            "update underseal.wake set claimed_until = underseal.clock() - interval '1 second'"
            " where chain_id = %s and claimed_by = %s",
            chain, node.name,
        )  # fmt: skip
        return Death(
            node.name,
            node.killed,
            frozenset(one["member"] for one in driven),
            frozenset(
                (one["execution"].removeprefix(chain), one["step"], one["attempt"], one["name"])
                for one in in_flight
            ),
        )

    # -- telling -----------------------------------------------------------------------------------

    async def _tell(self, played: Played, scenario: Scenario) -> None:
        chain = played.chain
        for row in await self.rows(
            "select e.member, e.status, (select v.data from underseal.event v where v.chain_id = e.chain_id"
            "   and v.member = e.member order by v.seq desc limit 1) as last"
            " from underseal.execution e where e.chain_id = %s",
            chain,
        ):
            output = row["last"].get("output", row["last"].get("error"))
            if isinstance(output, dict) and "drawn" in output:
                await self._check_drawn(played, output.pop("drawn"))
            played.ends[row["member"]] = (row["status"], output)
        for row in await self.rows("select * from crash.effect where execution like %s", f"{chain}%"):
            if row["execution"] != chain and not row["execution"].startswith(f"{chain}~"):
                continue
            key = (row["execution"].removeprefix(chain), row["step"], row["attempt"], row["name"])
            played.effects[key] += 1
            played.values.setdefault(key, set()).add(json.dumps(row["value"], sort_keys=True))
        for row in await self.rows(
            "select (o.redacted::json ->> 'cents')::integer as cents, o.state,"
            " (select count(*) from underseal.held_event h"
            "   where h.operation_id = o.operation_id and h.type = 'claimed') as runs"
            " from underseal.held_operation o where o.redacted::json ->> 'chain' = %s",
            chain,
        ):
            played.held.append((row["cents"], row["state"], row["runs"]))
        for row in await self.rows(
            "select member, data ->> 'worker' as worker from underseal.event"
            " where chain_id = %s and type = 'EXECUTION_RECOVERED'",
            chain,
        ):
            played.recovered[row["member"], row["worker"]] += 1
        for member in played.ends:
            execution = f"{chain}~{member}" if member else chain
            said = await self.client.executions.verify(execution)
            if said.outcome != "verified":
                played.faults.append(f"{execution} is {said.outcome}: {said.differences}")

    async def _check_drawn(self, played: Played, drawn: dict[str, str]) -> None:
        """What was drawn is what is recorded, once each, and what the steps got."""
        recorded = await self.rows(
            "select data ->> 'kind' as kind, data -> 'value' as value from underseal.event"
            " where chain_id = %s and type = 'VALUE_RECORDED' order by seq",
            played.chain,
        )
        if sorted((row["kind"], row["value"]) for row in recorded) != sorted(drawn.items()):
            played.faults.append(f"drew {drawn}, recorded {recorded}")
        spent = await self.rows(
            "select distinct value from crash.effect where execution = %s and name = 'spend'", played.chain
        )
        if [row["value"] for row in spent] != [drawn]:
            played.faults.append(f"drew {drawn}, spent {spent}")


def hash_of(kills: Sequence[Kill | None]) -> int:
    """A number that is the same in every process."""
    return sum(len(one.side) + one.number for one in kills if one)


@dataclass
class Player:
    """Gives a flow what it waits for, when its log says that it does.

    Parameters:
        eager: approve a held operation as soon as there is one, even before the flow waits for its end.
    """

    stage: Stage
    scenario: Scenario
    chain: str
    tag: str
    eager: bool
    done: set[str] = field(default_factory=set)

    async def begin(self) -> None:
        """Before any process is there."""
        await self.scenario.begin(self)

    async def act(self, members: Iterable[dict[str, Any]]) -> None:
        """Do what is to be done now."""
        waiting = {
            wait["wait"]: (one["member"], arm)
            for one in members
            if one["status"] == "suspended"
            for wait in one["waits"] or ()
            for arm in wait["arms"]
        }
        topics = {
            (one["member"], arm["topic"])
            for one in members
            if one["status"] == "suspended"
            for wait in one["waits"] or ()
            for arm in wait["arms"]
            if "topic" in arm
        }
        for wait in waiting:
            if ":retry:" in wait and wait not in self.done:
                self.done.add(wait)
                await self.stage.rows(
                    "select setval('crash.moved', last_value + %s) from crash.moved",
                    int(flows.LATER.total_seconds() * 1e6),
                )
        await self.scenario.act(self, topics)

    async def once(self, what: str, act: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """Do something the first time that it is asked for."""
        if what not in self.done:
            self.done.add(what)
            await act()

    async def send(self, topic: str, payload: Any, message_id: str) -> None:
        """Send a message, and again under the same id."""
        for outcome in ("sent", "duplicate"):
            said = await self.stage.client.executions.send(
                self.chain, topic, payload, flows.OWNER, message_id=message_id
            )
            assert said.outcome == outcome, said

    async def approve(self) -> None:
        """Approve what is held for this chain; it runs here and now."""
        found = await self.stage.rows(
            "select operation_id from underseal.held_operation"
            " where redacted::json ->> 'chain' = %s and state = 'HELD'",
            self.chain,
        )
        for row in found:
            operation: UUID = row["operation_id"]
            shown = await self.stage.client.get(operation, flows.APPROVER)
            assert shown is not None
            said = await self.stage.client.approve(shown, flows.APPROVER)
            assert said.outcome == "approved", said


@dataclass(frozen=True)
class Scenario:
    """Which flow is played, and what it is given.

    Attributes:
        name: the flow.
        order: what its processes are told besides.
        begin: what is done before.
        act: what is done when it waits for something: its members and topics.
    """

    name: str
    begin: Callable[[Player], Coroutine[Any, Any, None]]
    act: Callable[[Player, set[tuple[str, str]]], Coroutine[Any, Any, None]]
    order: dict[str, Any] = field(default_factory=dict)

    def player(self, stage: Stage, chain: str, tag: str, *, eager: bool) -> Player:
        """Who plays it once."""
        return Player(stage, self, chain, tag, eager)


async def _begin_everything(player: Player) -> None:
    await player.stage.client.executions.start(
        f"all.{player.tag}", flows.OWNER, {"round": 1}, execution_id=player.chain
    )
    await player.send("orders", "first", "1")  # long before the flow waits for it


async def _give_everything(player: Player, topics: set[tuple[str, str]]) -> None:
    names = {topic for _, topic in topics}
    if ("", "orders") in topics:
        await player.once("second", lambda: player.send("orders", "second", "2"))
    if ("2", "orders") in topics:
        await player.once("third", lambda: player.send("orders", "third", "3"))
    if "answer" in names:
        await player.once("answer", lambda: player.send("answer", "yes", "4"))
    if "$gate/sign" in names:
        await player.once(
            "sign",
            lambda: player.stage.client.executions.resume(
                player.chain, "sign", {"signed": True}, flows.OWNER
            ),
        )
    if any(topic.startswith("$hold/") for topic in names) or (player.eager and "sign" in player.done):
        await player.approve()


async def _begin_nothing(player: Player) -> None:
    """The process starts it."""


async def _cancel(player: Player, topics: set[tuple[str, str]]) -> None:
    waiting = [member for member, topic in topics if topic == "never"]
    if len(waiting) == 2:  # the flow and its child
        await player.once(
            "cancel", lambda: player.stage.client.executions.cancel(player.chain, flows.OWNER, "enough")
        )


EVERYTHING = Scenario(
    "all", _begin_everything, _give_everything, {"serve": ["all", "child", "below", "doomed"]}
)
UNDONE = Scenario("undone", _begin_nothing, _cancel, {"start": "undone", "serve": ["undone", "waits"]})
DROPPED = Scenario("dropped", _begin_nothing, _cancel, {"start": "dropped", "serve": ["dropped", "waits"]})


SIDE_BY_SIDE = ({"left", "right", "flaky"}, {"lay", "dig", "try"}, {"close", "sweep", "tidy"})
"""Steps that may run at the same time; of all others at most one is in flight."""


def differences(played: Played, rehearsed: Played) -> list[str]:
    """How what was played differs from an undisturbed run; empty for not at all."""
    found = list(played.faults)
    if played.ends != rehearsed.ends:
        found.append(f"expected the ends {rehearsed.ends}, found {played.ends}")
    if sorted(played.held) != sorted(rehearsed.held):
        found.append(f"expected the held operations {rehearsed.held}, found {played.held}")
    repeatable: Counter[Key] = Counter()
    for death in played.deaths:
        repeatable.update(death.in_flight)
        steps = {name for _, _, _, name in death.in_flight}
        if len(death.in_flight) > 1 and not any(steps <= group for group in SIDE_BY_SIDE):
            found.append(f"{death.process} had {sorted(steps)} in flight at once")
    for key in {*played.effects, *rehearsed.effects}:
        most = rehearsed.effects[key] + repeatable[key]
        if not rehearsed.effects[key] <= played.effects[key] <= most:
            found.append(
                f"effect {key}: done {played.effects[key]} times, expected {rehearsed.effects[key]} to {most}"
            )
    found += [
        f"effect {key}: done with {values}" for key, values in played.values.items() if len(values) != 1
    ]
    expected: Counter[tuple[str, str]] = Counter()
    for death, after in zip(played.deaths, played.deaths[1:], strict=False):
        expected.update((member, after.process) for member in death.driven)
    if played.recovered != expected:
        found.append(f"expected the recoveries {expected}, found {played.recovered}")
    return found
