"""The canonical form, from Python values and from JSON text (clauses H1.1, H1.2, H1.6)."""

from __future__ import annotations

from underseal.canonical.text import parse
from underseal.canonical.values import to_tree
from underseal.canonical.write import write


def canonical_json(value: object) -> str:
    """Write a Python value as canonical JSON.

    Parameters:
        value: a dict of dict (names are str), list, str, int, bool, None, datetime with a zone, UUID. Members that
            are None are left out; a datetime becomes UTC text, a UUID lower case text.

    Returns:
        The canonical text, at most `MAX_BYTES` bytes of UTF-8.

    Raises:
        CanonicalError: the reasons of docs/formats.md; a float, a naive datetime, a top level that is no dict and
            any other type among them.
    """
    return write(to_tree(value))


def canonicalise(text: str) -> str:
    """Write JSON text as canonical JSON, as SQL's `underseal.canonical_json` does.

    Parameters:
        text: JSON text of an object, at most `MAX_TEXT_BYTES` bytes; size and depth are judged before it is parsed.

    Returns:
        The canonical text, at most `MAX_BYTES` bytes of UTF-8. Strings that look like instants or UUIDs stay as they
        are: only a schema (`normalise`) or a Python type (`canonical_json`) says that they are any.

    Raises:
        CanonicalError: the reasons of docs/formats.md, with the path of the offender.
    """
    return write(parse(text))
