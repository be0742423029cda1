"""An application with flows, as `underseal worker tests.cli.mill:us` gets it; and some that are of no use."""

from __future__ import annotations

import os
from typing import Any

from underseal import AsyncUnderseal, FlowContext, MemoryKeyRing, Principal, Underseal, flow


async def _ground(grain: Any) -> Any:
    return {"flour": grain}


def _broken() -> None:
    raise ValueError("the stone is worn")


@flow("grind")
async def grind(ctx: FlowContext, grain: Any) -> Any:
    """Grinds."""
    return await ctx.run("ground", _ground, grain)


@flow("break")
async def break_down(ctx: FlowContext) -> None:
    """Breaks."""
    await ctx.run("broken", _broken)


@flow("ask")
async def ask(ctx: FlowContext) -> Any:
    """Asks at a gate."""
    return await ctx.gate("ok")


def us() -> AsyncUnderseal:
    """A client that serves them."""
    made = AsyncUnderseal(os.environ["SHOP_DSN"], keys=MemoryKeyRing.with_all())
    made.serve(grind, break_down, ask)
    return made


def bare() -> Underseal:
    """A client with nothing to do."""
    return Underseal(os.environ["SHOP_DSN"], keys=MemoryKeyRing(), principals=Principal)


def nowhere() -> Underseal:
    """A client whose database is away."""
    made = Underseal("host=/nowhere", keys=MemoryKeyRing())
    made.serve(grind)
    return made


def misspelt() -> Underseal:
    """A client whose connection string is none."""
    return Underseal("hots=db password=hunter2", keys=MemoryKeyRing())


def empty() -> Underseal:
    """A client of a database without Underseal."""
    made = Underseal(os.environ["EMPTY_DSN"], keys=MemoryKeyRing())
    made.serve(grind)
    return made
