"""The agent: plan, do what is harmless, have held what is not, ask a person, until there is an answer."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from examples.agent.brain import plan
from examples.agent.shop import HARMLESS
from underseal import FlowContext, HoldEnded, Retry, flow

PATIENT = Retry(attempts=5, first=timedelta(seconds=1))
TURNS = 20


@flow("support")
async def support(ctx: FlowContext, ticket: dict[str, Any]) -> dict[str, Any]:
    """Handle one ticket: `{"from", "order", "text"}`."""
    transcript: list[dict[str, Any]] = [ticket]
    for _ in range(TURNS):
        step = await ctx.run("plan", plan, transcript, retry=PATIENT)
        if "answer" in step:
            return {"answer": step["answer"], "turns": len(transcript)}
        if "ask" in step:
            transcript.append({"from": "agent", "text": step["ask"]})
            transcript.append({"from": "person", "text": await _reply(ctx)})
            continue
        # side by side: harmless calls begin now, dangerous ones wait for a person
        results = await asyncio.gather(*(_call(ctx, **call) for call in step["calls"]))
        transcript += results
    return {"answer": "This needs a person.", "turns": len(transcript)}


async def _call(ctx: FlowContext, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """One tool call; what is not known to be harmless is held."""
    if tool in HARMLESS:
        result: Any = await ctx.run(tool, HARMLESS[tool], arguments, retry=PATIENT)
    else:
        try:
            result = await ctx.hold(tool, arguments)
        except HoldEnded as no:
            result = {"refused": no.reason or no.state}
    return {"tool": tool, "result": result}


async def _reply(ctx: FlowContext) -> str:
    """What the person answers, or that there was no answer within three days."""
    reply = await ctx.select(ctx.receive("person"), ctx.sleep(days=3))
    return str(reply.value["text"]) if reply.index == 0 else "no answer"
