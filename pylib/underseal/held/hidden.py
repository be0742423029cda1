"""What must not be told: the texts that are in the parameters and not in their redacted copy (clause H1.7h)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pydantic_core import PydanticSerializationError, to_jsonable_python

_TELLING = 8
"""From so many characters on, a hidden text inside a longer one is no coincidence."""


def hidden_texts(canonical: str, redacted: str) -> frozenset[str]:
    """The hidden texts of a request.

    Parameters:
        canonical: all parameters.
        redacted: what approvers see of them.
    """
    # Names of members are the model's, and no secret.
    everything, shown = (frozenset(_texts(json.loads(text), names=False)) for text in (canonical, redacted))
    return everything - shown - {""}


def tells(value: Any, hidden: frozenset[str]) -> bool:
    """Whether a value repeats a hidden text, whole or (from 8 characters on) inside a longer one.

    It catches the slip, not the will: a digest, or a number, tells just as much and looks like nothing.

    Parameters:
        value: an effect, a state key, a result.
        hidden: the hidden texts.
    """
    if not hidden:
        return False
    try:
        plain = to_jsonable_python(value)
    except PydanticSerializationError:
        # What has no JSON form is stored nowhere.
        return False
    long = [text for text in hidden if len(text) >= _TELLING]
    return any(text in hidden or any(one in text for one in long) for text in _texts(plain, names=True))


def _texts(value: Any, *, names: bool) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        if names:
            yield from map(str, value)
        for one in value.values():
            yield from _texts(one, names=names)
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one, names=names)
