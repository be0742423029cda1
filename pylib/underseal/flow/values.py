"""Values as the log holds them: JSON, the same live as at a replay; errors in one stable shape."""

from __future__ import annotations

import json
import re
import traceback
from typing import Any, Final

from underseal.foundation.calls import json_text

LIMIT: Final = 1_048_576 - 4096
"""Bytes of JSON that one value may have, so that the event around it stays within 1 MiB."""
DEPTH: Final = 500
_MESSAGE: Final = 4000
_UNREADABLE: Final = re.compile(r"(?<!\\)(?:\\\\)*\\u(?:0000|[dD][89a-fA-F])")
_RESERVED: Final = ('"__loomEnc"', '"$shredded"')
_AS_THEY_ARE: Final = (str, bool, int, type(None))


class NotRecordable(ValueError):  # noqa: N818 -- what is wrong with a value
    """A value that a log cannot hold."""


def text_of(value: Any, what: str) -> str:
    """The JSON text of a value.

    Parameters:
        value: what a flow or a step gave.
        what: what it is, for the message.

    Errors:
        NotRecordable: JSON, or a log, cannot hold it; nothing of the value is in the message.
    """
    try:
        text = json_text(value)
        size = len(text) if text.isascii() else len(text.encode())
    except RecursionError:
        raise NotRecordable(f"expected {what} of at most {DEPTH} levels, found a deeper one") from None
    except UnicodeEncodeError:
        raise NotRecordable(f"expected {what} to be text, found half a surrogate pair in it") from None
    except Exception as error:  # noqa: BLE001 -- what it is may be the host's own, and fail in any way
        raise NotRecordable(
            f"expected {what} to be JSON (dicts with text keys, lists, text, finite numbers, booleans, None), "
            f"found a {type(value).__name__} that is not ({type(error).__name__})"
        ) from None
    if size > LIMIT:
        raise NotRecordable(f"expected {what} of at most {LIMIT} bytes of JSON, found {size}")
    if "\\u" in text and _UNREADABLE.search(text):
        raise NotRecordable(f"expected {what} without the character U+0000, found one")
    if (_RESERVED[0] in text or _RESERVED[1] in text) and _is_reserved(json.loads(text)):
        raise NotRecordable(
            f"expected {what} without a reserved key, found one: it would pass for an envelope"
        )
    if size > DEPTH and _deeper(value, DEPTH):
        raise NotRecordable(f"expected {what} of at most {DEPTH} levels, found a deeper one")
    return text


def as_recorded(value: Any, text: str) -> Any:
    """The value as a replay will read it: what was a tuple is a list, whatever was a key is text.

    Parameters:
        value: what was given.
        text: its JSON text.
    """
    return value if type(value) in _AS_THEY_ARE else json.loads(text)


def error_of(error: BaseException, *, keep_traceback: bool = False) -> dict[str, Any]:
    """An error as the log holds it: `type`, `message`, and `traceback` if it is kept.

    Nothing is pickled, so an exception with an odd constructor is recorded like any other.

    Parameters:
        error: what was raised.
        keep_traceback: whether the traceback goes along; it may name values, so not by default.
    """
    try:
        message = str(error)
    except Exception as broken:  # noqa: BLE001 -- a class of the host's may be broken in any way
        message = f"(its message could not be made: {type(broken).__name__})"
    told: dict[str, Any] = {"type": type(error).__name__, "message": _clean(message)[:_MESSAGE]}
    if keep_traceback:
        told["traceback"] = _clean("".join(traceback.format_exception(error)))[-4 * _MESSAGE :]
    return told


def _clean(text: str) -> str:
    """Text that a log can hold, whatever was in it."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")


def _is_reserved(value: Any) -> bool:
    """Whether a value holds an envelope or the mark of a shredded value, at any depth; as the kernel judges (G3)."""
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, dict):
            if isinstance(one.get("__loomEnc"), str) or one.get("$shredded") is True:
                return True
            left.extend(one.values())
        elif isinstance(one, list):
            left.extend(one)
    return False


def _deeper(value: Any, levels: int) -> bool:
    layer = [value]
    for _ in range(levels):
        layer = [
            inner
            for one in layer
            if isinstance(one, dict | list | tuple)
            for inner in (one.values() if isinstance(one, dict) else one)
        ]
        if not layer:
            return False
    return True
