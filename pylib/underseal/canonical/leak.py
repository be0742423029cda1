"""Whether a redacted copy shows what its schema hides, as SQL's `underseal._redaction_leak` judges it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from underseal.canonical.fit import stored_order
from underseal.canonical.narrow import admits, element_leaves, member_leaves, narrowed
from underseal.canonical.places import Schema, leaves_of
from underseal.canonical.refusal import member_path


def _parts(
    root: Schema, leaves: list[Schema], value: Any, path: str
) -> Iterator[tuple[str, Any, list[Schema]]]:
    if isinstance(value, dict):
        applying = narrowed(root, leaves, value)
        for name in sorted(value, key=stored_order):
            declared = [choice for leaf in applying for choice in member_leaves(root, leaf, name)]
            yield member_path(path, name), value[name], declared
    elif isinstance(value, list):
        for number, element in enumerate(value):
            yield (
                f"{path}/{number}",
                element,
                [c for leaf in leaves for c in element_leaves(root, leaf, number)],
            )


def _shown_leak(root: Schema, leaves: list[Schema], value: Any, path: str) -> str | None:
    if value is None:
        return None
    admitting = [leaf for leaf in leaves if admits(leaf, value)]
    # A scalar may be a mask of another type than the schema's (a redact of the provider's own); an object or array of
    # an undeclared shape may not.
    if not admitting and not isinstance(value, dict | list):
        admitting = leaves
    if not admitting or any(leaf.get("writeOnly") is True for leaf in admitting):
        return path
    for below, part, declared in _parts(root, admitting, value, path):
        if not declared:
            return below
        leak = _shown_leak(root, declared, part, below)
        if leak is not None:
            return leak
    return None


def redaction_leak(schema: Mapping[str, Any], redacted: object) -> str | None:
    """Find what a redacted copy should not show.

    Parameters:
        schema: a parameter schema without flaw.
        redacted: the copy, a plain JSON value.

    Returns:
        The RFC 6901 pointer of the first member that the schema hides or does not declare; empty for a copy that is no
        object; None if there is none. A null shows nothing.
    """
    if not isinstance(redacted, dict):
        return ""
    return _shown_leak(schema, leaves_of(schema, schema), redacted, "")
