"""Normalising and redacting parameters under their schema: one walk, as SQL's `underseal._fitted` does it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from underseal.canonical.form import canonical_json
from underseal.canonical.instants import canonical_instant
from underseal.canonical.narrow import admits, element_leaves, kind_of, member_leaves, narrowed
from underseal.canonical.places import Schema, leaves_of
from underseal.canonical.refusal import member_path, refusal
from underseal.canonical.schema import check_schema

_UUID_FORMAT = re.compile(r"uuid[1-8]?")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


class _Hidden:
    """Stands for a value that the redacted copy does not show."""


_HIDDEN: Final = _Hidden()


def stored_order(name: str) -> tuple[int, bytes]:
    """Sort member names as jsonb stores them, so that SQL and Python meet the same offender first.

    Parameters:
        name: a member's name.

    Returns:
        A sort key: the shorter first, then by bytes.
    """
    return len(name.encode()), name.encode()


def _string_form(leaf: Schema, string: str) -> str | None:
    kind = leaf.get("format")
    if "const" in leaf or "enum" in leaf or not isinstance(kind, str):
        return string
    if _UUID_FORMAT.fullmatch(kind):
        return string.lower() if _UUID.fullmatch(string) else None
    return canonical_instant(string) if kind == "date-time" else string


def _normal_string(leaves: list[Schema], string: str, path: str) -> str:
    forms = {form for leaf in leaves if (form := _string_form(leaf, string)) is not None}
    if len(forms) == 1:
        return forms.pop()
    if forms:
        raise refusal(
            "ambiguous",
            path,
            "the schema lets this be plain text and a UUID or instant, which differ in canonical form; "
            "send the canonical form",
        )
    if any(leaf.get("format") == "date-time" for leaf in leaves):
        raise refusal(
            "instant",
            path,
            "expected an RFC 3339 instant with its offset, years 0001 to 9999 in UTC, at most 6 fraction digits, "
            "no second 60",
        )
    raise refusal("uuid", path, "expected a UUID of 36 characters")


def _check_name(root: Schema, leaves: list[Schema], name: str, path: str) -> None:
    for leaf in leaves:
        if "propertyNames" not in leaf:
            continue
        named: list[Schema] = [
            {"type": "string", **choice} for choice in leaves_of(root, leaf["propertyNames"])
        ]
        named = [choice for choice in named if admits(choice, name)]
        if not named or _normal_string(named, name, path) != name:
            raise refusal(
                "member-name",
                path,
                "the schema admits no member of this name; send the canonical form of the name",
            )


def _fitted_object(
    root: Schema, leaves: list[Schema], value: dict[str, Any], path: str, hiding: bool
) -> object:
    applying = narrowed(root, leaves, value)
    result = {}
    for name in sorted(value, key=stored_order):
        below = member_path(path, name)
        declared = [choice for leaf in applying for choice in member_leaves(root, leaf, name)]
        if not declared:
            raise refusal("undeclared", below, "the schema declares no such member; leave it out")
        _check_name(root, applying, name, below)
        fitted = _fitted(root, declared, value[name], below, hiding)
        if fitted is not _HIDDEN:
            result[name] = fitted
    return result


def _fitted_array(root: Schema, leaves: list[Schema], value: list[Any], path: str, hiding: bool) -> object:
    result = []
    for number, element in enumerate(value):
        below = f"{path}/{number}"
        declared = [choice for leaf in leaves for choice in element_leaves(root, leaf, number)]
        if not declared:
            raise refusal("undeclared", below, "the schema declares no such element; leave it out")
        fitted = _fitted(root, declared, element, below, hiding)
        result.append(None if fitted is _HIDDEN else fitted)
    return result


def _fitted(root: Schema, leaves: list[Schema], value: Any, path: str, hiding: bool) -> object:
    admitting = [leaf for leaf in leaves if admits(leaf, value)]
    if not admitting:
        raise refusal("type-mismatch", path, f"the schema admits no such {kind_of(value)} here")
    if hiding and any(leaf.get("writeOnly") is True for leaf in admitting):
        return _HIDDEN
    if isinstance(value, dict):
        return _fitted_object(root, admitting, value, path, hiding)
    if isinstance(value, list):
        return _fitted_array(root, admitting, value, path, hiding)
    return _normal_string(admitting, value, path) if isinstance(value, str) else value


def _fit(schema: Schema, value: object, hiding: bool) -> dict[str, Any]:
    check_schema(schema)
    fitted = _fitted(schema, leaves_of(schema, schema), json.loads(canonical_json(value)), "", hiding)
    result: dict[str, Any] = json.loads(canonical_json(fitted))
    return result


def normalise(schema: Mapping[str, Any], value: object) -> dict[str, Any]:
    """Bring parameters into the form that is hashed, as SQL's `underseal.normalise_params` does.

    Parameters:
        schema: a parameter schema; it decides which strings are UUIDs and instants (clause H1.1j).
        value: what `canonical_json` accepts.

    Returns:
        Plain JSON whose `canonical_json` is the canonical text: UUIDs in lower case, instants in UTC, no null members.

    Raises:
        CanonicalError: `schema` for a flawed schema; `undeclared`, `type-mismatch`, `uuid`, `instant`, `ambiguous` or
            `member-name` for what does not fit it; whatever `canonical_json` refuses.
    """
    return _fit(schema, value, hiding=False)


def redact(schema: Mapping[str, Any], value: object) -> dict[str, Any]:
    """Make the redacted copy, as SQL's `underseal.redact_params` does.

    Parameters:
        schema: a parameter schema.
        value: what `canonical_json` accepts.

    Returns:
        `normalise(schema, value)` without the members that are `writeOnly`; None stands for a hidden element of an
        array, so that the others keep their places.

    Raises:
        CanonicalError: as `normalise`.
    """
    return _fit(schema, value, hiding=True)
