"""The text that is sealed: a value's JSON, so that every JSON value comes back as it went in (clause G13).

Nothing here raises: what is wrong is returned, since a parser's error quotes its input, which here is a secret.
"""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any, Final

DEPTH: Final = 512
"""How deep a value may be nested, as in a log that is not sealed."""

_DIGITS: Final = 4300
"""Python makes no integer of more digits from a text."""


class Flaw(str):
    """What is wrong with a value, in words that tell nothing of it."""

    __slots__ = ()


def encode(value: Any) -> bytes | Flaw:
    """The JSON text of a value, in UTF-8, or why there is none.

    Parameters:
        value: dicts with text keys, lists, text, integers, finite floats, booleans, None.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except Exception:  # noqa: BLE001 -- a value of the host's own may fail in any way
        return Flaw("it is no JSON")
    if any(name in text for name in _RESERVED) and holds_reserved(value):
        return Flaw("it holds an envelope, or the mark of a shredded value")
    if len(text) > DEPTH and _deeper(value):
        return Flaw(f"it is nested more than {DEPTH} levels deep")
    try:
        return text.encode()
    except UnicodeEncodeError:
        # half a surrogate pair has no UTF-8, and an escape that says the same
        return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()


def decode(plaintext: bytes, *, reserved: bool = False) -> tuple[Any] | Flaw:
    """What a sealed text says, in a tuple of one, or why that cannot be handed out.

    Parameters:
        plaintext: what was opened.
        reserved: whether it may hold an envelope of another's, as an old state may.
    """
    try:
        value = json.loads(plaintext.decode(), parse_int=_integer)
    except (ValueError, RecursionError):
        return Flaw("what is sealed is no JSON")
    if not reserved and holds_reserved(value):
        return Flaw("what is sealed holds an envelope, or the mark of a shredded value")
    return (value,)


def holds_reserved(value: Any) -> bool:
    """Whether an envelope or the mark of a shredded value is anywhere in a value; as the kernel judges (G3, G13)."""
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, dict):
            if isinstance(one.get("__loomEnc"), str) or one.get("$shredded") is True:
                return True
            left.extend(one.values())
        elif isinstance(one, list | tuple):
            left.extend(one)
    return False


_RESERVED: Final = ('"__loomEnc"', '"$shredded"')


def _integer(digits: str) -> int | Decimal:
    return int(digits) if len(digits) <= _DIGITS else Decimal(digits)


def _deeper(value: Any) -> bool:
    layer = [value]
    for _ in range(DEPTH + 1):
        layer = [one for one in layer if isinstance(one, dict | list | tuple)]
        if not layer:
            return False
        layer = [inner for one in layer for inner in (one.values() if isinstance(one, dict) else one)]
    return True
