"""What `--json` prints: one JSON document, all ASCII, so that no character in it can touch the terminal."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import PurePath
from typing import Any
from uuid import UUID

import click

from underseal.cli._times import iso


def plain(value: Any) -> Any:
    """A value as JSON has it: bytes as hex, instants as ISO 8601 in UTC, durations in seconds.

    Parameters:
        value: a dataclass, a mapping, a sequence or a single value.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {one.name: plain(getattr(value, one.name)) for one in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(one) for one in value]
    if isinstance(value, bytes | memoryview):
        return bytes(value).hex()
    if isinstance(value, datetime):
        return iso(value)
    if isinstance(value, timedelta):
        return int(value.total_seconds())
    if isinstance(value, UUID | PurePath):
        return str(value)
    return value


def embedded(text: str) -> Any:
    """JSON text as the value it stands for; text that is none stays text.

    Parameters:
        text: what a column holds.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def print_json(value: Any) -> None:
    """Print one JSON document.

    Parameters:
        value: whatever `plain` takes.
    """
    click.echo(json.dumps(plain(value)))
