"""The items that a driver writes, as JSON text: what a step gave is encoded once and never again."""

from __future__ import annotations

from typing import Any

from underseal.flow.replay import End
from underseal.foundation.calls import json_text


def event_text(kind: str, data: dict[str, Any]) -> str:
    """An event as an item holds it."""
    return f'{{"type":"{kind}","data":{json_text(data)}}}'


def step_text(op: int, name: str, output: str) -> str:
    """STEP_COMPLETED, from the JSON text of its output."""
    return f'{{"type":"STEP_COMPLETED","data":{{"op":{op},"name":{json_text(name)},"output":{output}}}}}'


def start_text(
    execution_id: str, flow: str, version: int, principal: str, value: str, worker: str | None, lease: str
) -> str:
    """A start; with a worker its wake is claimed from the first instant."""
    claim = "" if worker is None else f',"worker":{json_text(worker)},"lease":"{lease}"'
    return (
        f'{{"verb":"start","execution_id":{json_text(execution_id)},"flow":{json_text(flow)},'
        f'"flow_version":{version},"principal":{json_text(principal)},"input":{value}{claim}}}'
    )


def append_text(execution_id: str, fence: int, events: list[str]) -> str:
    """An append."""
    return f"{_head('append', execution_id, fence, events)}}}"


def park_text(
    execution_id: str, fence: int, events: list[str], waits: list[dict[str, Any]], cancel_told: bool
) -> str:
    """A park; it is refused where a cancellation was asked for and the flow has not been told."""
    told = ',"cancel_told":true' if cancel_told else ""
    return f'{_head("park", execution_id, fence, events)},"waits":{json_text(waits)}{told}}}'


def end_text(execution_id: str, fence: int, events: list[str], end: End) -> str:
    """The end of a flow."""
    if end.kind == "completed":
        return f'{_head("complete", execution_id, fence, events)},"output":{end.text}}}'
    if end.kind == "failed":
        return f'{_head("fail", execution_id, fence, events)},"error":{end.text}}}'
    if end.kind == "cancelled":
        return f"{_head('cancelled', execution_id, fence, events)}}}"
    flow = "" if end.flow is None else f',"flow":{json_text(end.flow)}'
    version = "" if end.version is None else f',"flow_version":{end.version}'
    return f'{_head("continue", execution_id, fence, events)},"input":{end.text}{flow}{version}}}'


def _head(verb: str, execution_id: str, fence: int, events: list[str]) -> str:
    told = f',"events":[{",".join(events)}]' if events else ""
    return f'{{"verb":"{verb}","execution_id":{json_text(execution_id)},"fence":{fence}{told}'
