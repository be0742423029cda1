"""What the scenes share: workers, callers that may begin anew, and how executions are expected to end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from random import Random
from typing import Any, Final, TypeAlias, TypeVar

from underseal import AsyncUnderseal, MemoryKeyRing
from underseal.errors import ExecutionAlreadyExistsError, ExecutionDeniedError, FlowError
from underseal.flow.definition import Flow
from underseal.flow.runtime import Limits
from underseal.testing.audit import audit
from underseal.testing.simulation import Node, Scenario, Simulation, Stage, at_rest, books_of
from underseal.testing.simulation.server import Server

T = TypeVar("T")
Row: TypeAlias = dict[str, Any]

OWNER: Final = "ann"
LEASE: Final = timedelta(seconds=3)
TICK: Final = timedelta(milliseconds=50)
SECOND: Final = timedelta(seconds=1)
OPEN: Final = ("pending", "running", "suspended")

MISSING: Final = "missing"

_TAKEN_OVER: Final = 50
"""Of an execution that a storm of faults keeps from recording anything; `recoveries` are another test's."""
_LOOK: Final = 0.4


class Play:
    """One run of a scene: what its callers were told, and what it should come to.

    Attributes:
        sim: the run.
        ring: the keys that all nodes have.
        sent: what senders were told, for the audit.
        runs: what the bodies of gated methods did, for the audit; None where there are none.
        ends: by execution, the statuses that it may end with, and its output where it completes.
    """

    def __init__(self, sim: Simulation) -> None:
        """Prepare it.

        Parameters:
            sim: the run.
        """
        self.sim = sim
        self.ring = MemoryKeyRing.with_all()
        self.sent: list[Row] = []
        self.runs: list[Row] | None = None
        self.ends: dict[str, tuple[Sequence[str], Callable[[Any], bool]]] = {}

    def chance(self, name: str) -> Random:
        """What is drawn from the run's seed under a name: the same in each life of whoever draws."""
        return Random(f"{self.sim.plan.seed} {name}")

    def expect(self, execution_id: str, *statuses: str, output: Any = ...) -> None:
        """Say how an execution is to end.

        Parameters:
            execution_id: which.
            statuses: one of these, or `MISSING` if it need not be there; `completed` if none is given.
            output: of one that completes: a value, or a function that says whether one is right.
        """
        right = output if callable(output) else lambda found: output is ... or found == output
        self.ends[execution_id] = statuses or ("completed",), right

    def worker(self, name: str, flows: Iterable[Flow], *, after: float = 0.0, **options: Any) -> None:
        """A node that drives flows.

        Parameters:
            name: its name.
            flows: what it serves.
            after: seconds until it begins.
            options: of `AsyncUnderseal.worker`, of `AsyncUnderseal`, and `setup`, which is given each client.
        """
        served = list(flows)
        setup: Callable[[AsyncUnderseal], None] | None = options.pop("setup", None)
        of_client = {key: options.pop(key) for key in ("principals", "renew_every") if key in options}

        async def main(node: Node) -> None:
            us = node.client(keys=self.ring, **of_client)
            us.serve(*served)
            if setup is not None:
                setup(us)
            limits = Limits(recoveries=_TAKEN_OVER)
            await us.worker(
                lease=LEASE, poll_every=TICK, idle_poll_every=SECOND, limits=limits, **options
            ).serve()

        self.sim.node(name, main, serves=True, after=after)

    def caller(self, name: str, script: Callable[[Caller], Awaitable[None]], *, after: float = 0.0) -> None:
        """A node that asks for things.

        Parameters:
            name: its name.
            script: what it does, from the beginning in each life.
            after: seconds until it begins.
        """

        async def main(node: Node) -> None:
            await script(Caller(self, node))

        self.sim.node(name, main, after=after)

    def faults(self, stage: Stage) -> list[str]:
        """What is wrong after the run."""
        found = audit(books_of(self.sim, stage, sent=self.sent, runs=self.runs))
        return [*found, *self._ended(stage)]

    def _ended(self, stage: Stage) -> list[str]:
        found = []
        rows = {row["execution_id"]: row for row in stage.ask(_ENDS)}
        for name, (statuses, right) in self.ends.items():
            row = rows.get(name)
            if row is None:
                if MISSING not in statuses:
                    found.append(f"{name} was never started")
            elif row["status"] not in statuses:
                found.append(f"expected {name} to be {' or '.join(statuses)}, found it {row['status']}")
            elif row["status"] == "completed" and not right(json.loads(row["output"] or "null")):
                found.append(f"{name} came to {row['output']}")
        return found


_ENDS: Final = """
    select case e.member when '' then e.chain_id else e.chain_id || '~' || e.member end as execution_id, e.status,
      (select (v.data -> 'output')::text from underseal.event v
       where v.chain_id = e.chain_id and v.member = e.member and v.type = 'EXECUTION_COMPLETED') as output
    from underseal.execution e"""


class Caller:
    """One life of a node that asks for things, as a principal. All of it bears repetition.

    Attributes:
        node: whose.
        us: its client.
        calls: `us.executions`.
    """

    def __init__(self, play: Play, node: Node, principal: str = OWNER) -> None:
        """Connect.

        Parameters:
            play: the run.
            node: whose life.
            principal: who asks.
        """
        self.play = play
        self.node = node
        self.us = node.client(keys=play.ring)
        self.calls = self.us.executions
        self.principal = principal

    async def start(self, flow: str, execution_id: str, value: Any = None, **how: Any) -> None:
        """Start an execution, unless a life before this one has."""

        async def act() -> None:
            with suppress(ExecutionAlreadyExistsError):
                await self.calls.start(flow, self.principal, value, execution_id=execution_id, **how)

        await self.node.patiently(act)

    async def send(self, execution_id: str, topic: str, payload: Any, message_id: str, **how: Any) -> str:
        """Send a message, and note what was said to it.

        Returns: the outcome.
        """
        said = await self.node.patiently(
            lambda: self.calls.send(
                execution_id, topic, payload, self.principal, message_id=message_id, **how
            )
        )
        self.play.sent.append(
            {
                "execution": execution_id, "topic": topic, "sender": self.principal, "message_id": message_id,
                "outcome": said.outcome, "inbox_seq": said.inbox_seq, "payload": payload,
            }
        )  # fmt: skip
        return said.outcome

    async def answer(self, execution_id: str, gate: str, answer: Any) -> None:
        """Answer a gate."""
        await self.node.patiently(lambda: self.calls.resume(execution_id, gate, answer, self.principal))

    async def cancel(self, execution_id: str, *, force: bool = False) -> None:
        """Cancel an execution, which may have ended."""
        await self.node.patiently(
            lambda: self.calls.cancel(execution_id, self.principal, "enough", force=force)
        )

    async def until(self, execution_id: str, *statuses: str) -> Any:
        """Wait until an execution is there, and in one of some states or ended.

        Returns: what is known of it.
        """
        while True:
            with suppress(ExecutionDeniedError):  # it is not there yet
                seen = await self.node.patiently(lambda: self.calls.get(execution_id, self.principal))
                if seen.status in (statuses or OPEN) or seen.ended:
                    return seen
            await asyncio.sleep(_LOOK)

    async def pause(self, seconds: float) -> None:
        """Wait for a while, by its own clock."""
        await asyncio.sleep(seconds)


def rested(server: Server) -> str | None:
    """What is still to be done, sleeps of less than a day among it."""
    left = at_rest(server)
    if left is not None:
        return left
    (row,) = server.ask(
        "select count(*) as soon from underseal.wake w where w.wake_at < underseal.clock() + interval '1 day'"
    )
    return f"there were {row['soon']} wakes to come" if row["soon"] else None


def scene(
    name: str,
    play: Callable[[Play], None],
    *,
    nodes: Sequence[str],
    also: Callable[[Stage], list[str]] = lambda _: [],
    **options: Any,
) -> Scenario:
    """A scenario whose callers' notes are audited, and whose executions end as they should.

    Parameters:
        name: its name.
        play: adds the nodes, and says what is expected.
        nodes: which may be hit.
        also: what else is wrong after a run.
        options: of `Scenario`; `optional` are nodes without which all comes to the same.
    """
    runs: list[Play] = []

    def build(sim: Simulation) -> None:
        runs[:] = [Play(sim)]
        play(runs[0])

    return Scenario(
        name,
        build,
        lambda _, stage: [*runs[0].faults(stage), *also(stage)],
        **{"rest": rested, "nodes": tuple(nodes), **options},
    )


def steps_of(sim: Simulation) -> Callable[..., Awaitable[Any]]:
    """`done = await step(ctx, name, value)`: a step that is noted, and what it was given back."""

    async def do(value: Any) -> Row:
        return sim.effect("do", value)

    async def step(ctx: Any, name: str, value: Any, function: Any = None, **how: Any) -> Any:
        found = await ctx.run(name, function or do, value, **how)
        if not isinstance(found, dict) or found["value"] != value:
            raise FlowError(f"expected {value!r} back, found {found!r}")
        return found["value"]

    return step
