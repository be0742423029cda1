"""What a method returned, as it may be stored."""

from __future__ import annotations

import json
import re
from typing import Any

from pydantic_core import PydanticSerializationError, to_jsonable_python

MAX_BYTES = 65536
"""Longest result that is stored, in bytes of JSON text; a longer one is left out, and the row says so."""

# An escape of U+0000, which jsonb refuses; behind an escaped backslash it is only text.
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


def result_text(value: Any) -> tuple[str | None, str | None]:
    """JSON text of a result, and what to say about it if there is none.

    The effect has happened by now, so a result that cannot be stored never makes a run fail.

    Parameters:
        value: whatever the method returned; pydantic models, dataclasses, dates and UUIDs are turned into JSON.

    Returns:
        The text or None, and a remark or None.
    """
    if value is None:
        return None, None
    try:
        text = json.dumps(
            to_jsonable_python(value), ensure_ascii=False, allow_nan=False, separators=(",", ":")
        )
        size = len(text.encode())
    except (PydanticSerializationError, TypeError, ValueError, RecursionError):
        return None, f"the result is not stored: a {type(value).__name__} without a JSON form"
    if _NUL.search(text):
        return None, "the result is not stored: it holds U+0000"
    if size > MAX_BYTES:
        return None, f"the result is not stored: {size} bytes, at most {MAX_BYTES} are"
    return text, None
