"""Many executions at once: their flows, and a process that starts them, sends to them and cancels some."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Coroutine
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from tests.crash.witness import Effects
from underseal import AsyncUnderseal, FileKeyRing
from underseal.flow.context import FlowContext
from underseal.flow.definition import Flow, flow

SENDERS = ("ann", "ann's phone")
LETTERS = 4
"""Messages of each topic."""

KINDS = ("sleeps", "letters", "picks", "family", "stops", "races", "goes_on")
"""What an execution does, by its number."""

STAYS = 20
"""So many wait for what is never sent, to the end."""


def kind_of(number: int) -> str:
    """What an execution does."""
    return KINDS[number % len(KINDS)]


def id_of(prefix: str, number: int) -> str:
    """The id of an execution."""
    return f"{prefix}-{number}"


def make(effects: Effects) -> list[Flow]:  # noqa: C901 -- flows, one beside the other
    """The flows, each with steps whose effects are rows."""

    async def plain(value: Any) -> Any:
        return await effects.do_async(value)

    def threaded(value: Any) -> Any:
        return effects.do(value)

    async def run(ctx: FlowContext, name: str, function: Any, value: Any) -> Any:
        return (await ctx.run(name, function, value))["value"]

    @flow("storm.sleeps")
    async def sleeps(ctx: FlowContext, value: int) -> int:
        first = await run(ctx, "first", plain, value)
        await ctx.sleep(timedelta(milliseconds=20 + value % 50))
        return int(await run(ctx, "second", threaded if value % 10 == 0 else plain, first + 1))

    @flow("storm.letters")
    async def letters(ctx: FlowContext, value: int) -> dict[str, list[int]]:
        got: dict[str, list[int]] = {"a": [], "b": []}
        for _ in range(LETTERS):
            got["a"].append(await ctx.receive("a"))
            got["b"].append(await ctx.receive("b"))
        await run(ctx, "read", plain, value)
        return got

    @flow("storm.picks")
    async def picks(ctx: FlowContext, value: int) -> dict[str, list[int]]:
        got: dict[str, list[int]] = {"a": [], "b": []}
        for _ in range(2 * LETTERS):
            picked = await ctx.select(ctx.receive("a"), ctx.receive("b"), ctx.sleep(days=30))
            got["ab"[picked.index]].append(picked.value)
        await run(ctx, "read", plain, value)
        return got

    @flow("storm.child")
    async def child(ctx: FlowContext, value: int) -> int:
        await ctx.sleep(timedelta(milliseconds=5 + value % 30))
        return int(await run(ctx, "work", plain, value)) * 2

    @flow("storm.family")
    async def family(ctx: FlowContext, value: int) -> int:
        one, other = (ctx.child(child, value + n, name="child") for n in range(2))
        await run(ctx, "meanwhile", plain, value)
        return int(await one) + int(await other)

    @flow("storm.stops")
    async def stops(ctx: FlowContext, value: int) -> None:
        await run(ctx, "open", plain, value)
        kept = ctx.child(waits, value, name="kept")
        try:
            await ctx.select(ctx.receive("never"), kept)
        finally:
            await run(ctx, "close", plain, value)

    @flow("storm.waits")
    async def waits(ctx: FlowContext) -> None:
        await ctx.receive("never")

    @flow("storm.races")
    async def races(ctx: FlowContext, value: int) -> list[Any]:
        raced = await ctx.select(ctx.sleep(timedelta(milliseconds=value % 400)), ctx.receive("a"))
        late = None if raced.index == 1 else await ctx.receive("a")
        return [raced.value if raced.index == 1 else late, await ctx.gate("sign")]

    @flow("storm.goes_on")
    async def goes_on(ctx: FlowContext, value: list[int]) -> list[int]:
        if len(value) < LETTERS:
            got = await ctx.receive("a")
            await run(ctx, "step", plain, got)
            ctx.continue_as_new([*value, got])
        return value

    return [sleeps, letters, picks, child, family, stops, waits, races, goes_on]


class Director:
    """Starts, sends, answers and cancels, in an order that a seed decides."""

    def __init__(self, client: AsyncUnderseal, prefix: str, seed: str) -> None:
        self._client = client
        self._prefix = prefix
        self._chance = random.Random(seed)
        self._sent: list[tuple[Any, ...]] = []

    async def one(self, number: int) -> None:
        """All of one execution."""
        kind = kind_of(number)
        name = id_of(self._prefix, number)
        value: Any = [] if kind == "goes_on" else number
        await self._client.executions.start(f"storm.{kind}", "ann", value, execution_id=name)
        if number < len(KINDS) * STAYS and kind == "letters":
            await self.send(name, "a", 0, "ann")
            return
        if kind in ("letters", "picks"):
            await asyncio.gather(self.letters(name, "a", 0), self.letters(name, "b", LETTERS))
        elif kind == "goes_on":
            await self.letters(name, "a", 0)
        elif kind == "races":
            await asyncio.sleep(self._chance.random() * 0.3)
            await self.send(name, "a", 1, "ann")
            said = await self._client.executions.resume(name, "sign", number, "ann")
            assert said.outcome == "resumed", said
        elif kind == "stops":
            await self.until_it_waits(name)
            await self._client.executions.cancel(name, "ann", "enough")

    async def until_it_waits(self, name: str) -> None:
        """One that is cancelled has opened something, and so has its child."""
        while True:
            await asyncio.sleep(0.05 + self._chance.random() * 0.2)
            if (await self._client.executions.get(name, "ann")).status == "suspended":
                return

    async def letters(self, name: str, topic: str, first: int) -> None:
        """The messages of one topic, in their order, some of them twice."""
        for number in range(LETTERS):
            await self.send(name, topic, first + number, "ann")
            if self._chance.random() < 0.2:
                await asyncio.sleep(self._chance.random() * 0.3)
            if self._chance.random() < 0.25:
                await self.send(name, topic, self._chance.randint(first, first + number), "ann")

    async def send(self, name: str, topic: str, number: int, sender: str) -> None:
        """One message; its number is what it says and is its id."""
        said = await self._client.executions.send(name, topic, number, sender, message_id=f"m{number}")
        self._sent.append(
            (name, topic, sender, f"m{number}", said.outcome, said.inbox_seq, json.dumps(number))
        )

    async def all(self, roots: int, at_once: int) -> None:
        """Everything."""
        turns = asyncio.Semaphore(at_once)

        async def one(act: Coroutine[Any, Any, None]) -> None:
            async with turns:
                await act

        numbers = list(range(roots))
        self._chance.shuffle(numbers)
        await asyncio.gather(*(one(self.one(number)) for number in numbers))

    def note(self, conninfo: str) -> None:
        """Write down what was sent, for the audit."""
        with psycopg.connect(conninfo, autocommit=True) as connection, connection.cursor() as cursor:
            cursor.executemany("insert into crash.sent values (%s, %s, %s, %s, %s, %s, %s)", self._sent)


async def direct(order: dict[str, Any]) -> None:
    """The whole life of the process that starts and sends."""
    conninfo = make_conninfo(order["conninfo"], application_name=order["node"])
    async with AsyncUnderseal(
        conninfo, keys=FileKeyRing(Path(order["keys"])), max_connections=order["connections"]
    ) as client:
        director = Director(client, order["direct"], order["direct"])
        await director.all(order["roots"], order["at_once"])
    director.note(conninfo)


def expected(prefix: str, roots: int) -> dict[str, tuple[str, Any]]:
    """How every root ends; those that goes on ends in its last run, and `races` in either way.

    Parameters:
        prefix: of their ids.
        roots: how many there are.
    """
    ends: dict[str, tuple[str, Any]] = {}
    lists = {"a": list(range(LETTERS)), "b": list(range(LETTERS, 2 * LETTERS))}
    for number in range(roots):
        kind, name = kind_of(number), id_of(prefix, number)
        if number < len(KINDS) * STAYS and kind == "letters":
            ends[name] = ("suspended", None)
        elif kind == "sleeps":
            ends[name] = ("completed", number + 1)
        elif kind in ("letters", "picks"):
            ends[name] = ("completed", lists)
        elif kind == "family":
            ends[name] = ("completed", 4 * number + 2)
            for n in range(2):
                ends[f"{name}~child-{n + 1}"] = ("completed", 2 * (number + n))
        elif kind == "stops":
            ends[name] = ends[f"{name}~kept-2"] = ("cancelled", None)
        elif kind == "races":
            ends[name] = ("completed", [1, number])
        else:
            for run in range(1, LETTERS + 1):
                ends[name if run == 1 else f"{name}~{run}"] = ("continued", None)
            ends[f"{name}~{LETTERS + 1}"] = ("completed", lists["a"])
    return ends
