"""Paths into JSON: RFC 6901 pointers, and the record's dotted paths, which markers and capabilities are written in.

A path is a tuple of tokens here. In an object a token is a member's name; in an array it is an index, in decimal
without leading zeros.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

Path: TypeAlias = tuple[str, ...]

_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,8}")
_POINTER: Final = re.compile(r"(/([^~/]|~[01])*)+", re.DOTALL)
_DOTTED: Final = re.compile(r"([^.\\]|\\[.\\])*(\.([^.\\]|\\[.\\])*)*", re.DOTALL)
_NAME: Final = re.compile(r"(?:[^.\\]|\\[.\\])*", re.DOTALL)


class Missing:
    """What a path that leads nowhere leads to."""


MISSING: Final = Missing()


def parse_pointer(text: str) -> Path | None:
    """The tokens of an RFC 6901 pointer; None for the empty one, and for what is none."""
    if not _POINTER.fullmatch(text):
        return None
    return tuple(token.replace("~1", "/").replace("~0", "~") for token in text[1:].split("/"))


def parse_dotted(text: str) -> Path | None:
    r"""The tokens of a dotted path: names joined by ``.``; in a name ``\.`` is a dot and ``\\`` a backslash.

    None for what is none. One text for each path: ``parse_dotted(dotted(path)) == path``.
    """
    if not _DOTTED.fullmatch(text):
        return None
    names: list[str] = []
    at = 0
    while at <= len(text):
        name = _NAME.match(text, at)
        if name is None:
            return None
        names.append(re.sub(r"\\(.)", r"\1", name[0]))
        at = name.end() + 1
    return tuple(names)


def pointer(path: Path) -> str:
    """The RFC 6901 pointer of a path."""
    return "".join("/" + token.replace("~", "~0").replace("/", "~1") for token in path)


def dotted(path: Path) -> str:
    r"""The dotted text of a path: names joined by ``.``, with ``\`` before a dot or backslash in a name."""
    return ".".join(token.replace("\\", "\\\\").replace(".", "\\.") for token in path)


def is_within(path: Path, outer: Path) -> bool:
    """Whether ``path`` is ``outer`` or leads into it."""
    return path[: len(outer)] == outer


def outermost(paths: Iterable[Path]) -> list[Path]:
    """Those that lead into no other of them, sorted, each once."""
    kept: list[Path] = []
    for path in sorted(set(paths)):
        if not kept or not is_within(path, kept[-1]):
            kept.append(path)
    return kept


def look(value: Any, path: Path) -> Any:
    """What a path leads to, or ``MISSING``."""
    for token in path:
        if isinstance(value, Mapping) and token in value:
            value = value[token]
        elif isinstance(value, list) and _INDEX.fullmatch(token) and int(token) < len(value):
            value = value[int(token)]
        else:
            return MISSING
    return value


def replaced(value: Any, path: Path, new: Any) -> Any:
    """A copy of a value with something else where a path leads; only what lies on the path is copied.

    Parameters:
        value: JSON.
        path: leads somewhere in it.
        new: what is put there.
    """
    if not path:
        return new
    if isinstance(value, list):
        items = list(value)
        items[int(path[0])] = replaced(items[int(path[0])], path[1:], new)
        return items
    return {**value, path[0]: replaced(value[path[0]], path[1:], new)}
