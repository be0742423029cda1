"""JSON text to a tree, judged before it is parsed (clauses H1.2c, H1.6)."""

from __future__ import annotations

import json
import re

from underseal.canonical.limits import MAX_DEPTH, MAX_TEXT_BYTES
from underseal.canonical.refusal import refusal
from underseal.canonical.tree import Members, Number, Tree

# An unterminated string reaches to the end of the text: the text is malformed, and scanning it stays linear.
_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)', re.DOTALL)
_BRACKET = re.compile(r"[][{}]")


def judge_size(text: str) -> None:
    """Refuse a text that is too large to look at.

    Parameters:
        text: JSON text.

    Raises:
        CanonicalError: `too-large`, with the number of bytes; `lone-surrogate` for a text that is not Unicode.
    """
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise refusal(
            "lone-surrogate", "", "a surrogate without its partner is no character; send whole characters"
        ) from None
    if size > MAX_TEXT_BYTES:
        raise refusal("too-large", "", f"expected at most {MAX_TEXT_BYTES} bytes of JSON text, found {size}")


def judge_depth(text: str) -> None:
    """Refuse a text that is nested too deep to parse.

    Parameters:
        text: JSON text, well-formed or not.

    Raises:
        CanonicalError: `too-deep`, with the number of levels.
    """
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return
    level = deepest = 0
    for bracket in _BRACKET.finditer(_STRING.sub("", text)):
        level += 1 if bracket.group() in "[{" else -1
        deepest = max(deepest, level)
    if deepest > MAX_DEPTH:
        raise refusal("too-deep", "", f"expected at most {MAX_DEPTH} levels of nesting, found {deepest}")


def parse(text: str) -> Tree:
    """Parse JSON text without losing what canonical form judges.

    Parameters:
        text: JSON text of at most `MAX_TEXT_BYTES` bytes and `MAX_DEPTH` levels.

    Returns:
        The tree: no float and no int is made of any number, no member is dropped.

    Raises:
        CanonicalError: `too-large`, `too-deep` or `malformed`.
    """
    judge_size(text)
    judge_depth(text)
    try:
        tree: Tree = json.loads(
            text, object_pairs_hook=Members, parse_int=Number, parse_float=Number, parse_constant=Number
        )
    except json.JSONDecodeError:
        # Without its cause, which quotes the document.
        raise refusal("malformed", "", "expected JSON text (RFC 8259), found something else") from None
    return tree
