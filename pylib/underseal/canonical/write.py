"""Trees to canonical text: RFC 8785 on the values that are accepted (clauses H1.1, H1.2, H1.6)."""

from __future__ import annotations

import json
import re
import unicodedata

from underseal.canonical.limits import MAX_BYTES, MAX_INTEGER
from underseal.canonical.refusal import member_path, refusal
from underseal.canonical.tree import Members, Number, Tree
from underseal.canonical.unicode14 import has_unassigned

_SURROGATE = re.compile("[\ud800-\udfff]")
_MAX_DIGITS = len(str(MAX_INTEGER))


def _string(string: str, path: str) -> str:
    if "\x00" in string:
        raise refusal("nul", path, "U+0000 has no place in text; send the string without it")
    if string.isascii():
        return string
    if _SURROGATE.search(string):
        raise refusal(
            "lone-surrogate", path, "a surrogate without its partner is no character; send whole characters"
        )
    if has_unassigned(string):
        raise refusal(
            "unassigned",
            path,
            "expected text of Unicode 14.0, found a character that it does not assign; send the string without it",
        )
    return unicodedata.normalize("NFC", string)


def _number(written: str, path: str) -> str:
    # Judged by its characters: no float is ever made, and no int of thousands of digits.
    if not written.lstrip("-").isdigit():
        raise refusal(
            "float",
            path,
            "expected an integer without fraction and exponent; send a whole number of a smaller unit, or a string",
        )
    if written == "-0":
        raise refusal("negative-zero", path, "expected 0, found -0")
    if len(written.lstrip("-")) > _MAX_DIGITS or not -MAX_INTEGER <= int(written) <= MAX_INTEGER:
        raise refusal(
            "integer-range",
            path,
            f"expected an integer from {-MAX_INTEGER} to {MAX_INTEGER}; send a larger one as a string",
        )
    return written


def _names(members: Members, path: str) -> list[str]:
    canonical = [_string(name, member_path(path, name)) for name, _ in members.pairs]
    if len(set(canonical)) == len(canonical):
        return canonical
    given: set[str] = set()
    seen: set[str] = set()
    for (raw, _), name in zip(members.pairs, canonical, strict=True):
        if raw in given:
            raise refusal("duplicate-key", member_path(path, raw), "a member is named twice; send it once")
        if name in seen:
            raise refusal(
                "key-collision",
                member_path(path, raw),
                "two member names become equal under NFC; send one of them",
            )
        given.add(raw)
        seen.add(name)
    return canonical


def _object(members: Members, path: str) -> str:
    names = _names(members, path)
    pieces = [
        (name, _value(member, member_path(path, raw)))
        for name, (raw, member) in zip(names, members.pairs, strict=True)
        if member is not None
    ]
    pieces.sort(key=lambda piece: piece[0].encode("utf-16-be"))
    return "{" + ",".join(f"{_quoted(name)}:{text}" for name, text in pieces) + "}"


def _quoted(string: str) -> str:
    return json.dumps(string, ensure_ascii=False)


def _value(tree: Tree, path: str) -> str:
    if isinstance(tree, str):
        return _quoted(_string(tree, path))
    if isinstance(tree, Number):
        return _number(tree.token, path)
    if isinstance(tree, Members):
        return _object(tree, path)
    if isinstance(tree, list):
        return f"[{','.join(_value(element, f'{path}/{number}') for number, element in enumerate(tree))}]"
    return {True: "true", False: "false", None: "null"}[tree]


def _kind(tree: Tree) -> str:
    if tree is None:
        return "null"
    return {bool: "boolean", str: "string", Number: "number", list: "array"}[type(tree)]


def write(tree: Tree) -> str:
    """Write a tree in canonical form.

    Parameters:
        tree: what was parsed, or made from Python values.

    Returns:
        The canonical text: members sorted by UTF-16 code units, null members left out, strings and names in NFC.

    Raises:
        CanonicalError: `not-an-object`, `nul`, `lone-surrogate`, `unassigned`, `float`, `negative-zero`,
            `integer-range`, `duplicate-key`, `key-collision` or `too-large`.
    """
    if not isinstance(tree, Members):
        raise refusal("not-an-object", "", f"expected an object, found {_kind(tree)}")
    canonical = _object(tree, "")
    size = len(canonical.encode())
    if size > MAX_BYTES:
        raise refusal("too-large", "", f"expected at most {MAX_BYTES} bytes of canonical JSON, found {size}")
    return canonical
