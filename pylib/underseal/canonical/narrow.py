"""Which leaves apply to a value. Where several may, all count: a member that one of them hides is hidden."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from underseal.canonical.places import Schema, leaves_of

_KINDS = {dict: "object", list: "array", str: "string", int: "number", bool: "boolean", type(None): "null"}


def kind_of(value: object) -> str:
    """Name the JSON type of a value.

    Parameters:
        value: a plain JSON value without floats.

    Returns:
        `object`, `array`, `string`, `number`, `boolean` or `null`.
    """
    return _KINDS[type(value)]


def _same(one: object, other: object) -> bool:
    # Python takes True for 1.
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def admits(leaf: Schema, value: object) -> bool:
    """Tell whether a leaf admits a value by its const, enum or type.

    Parameters:
        leaf: a leaf; its ranges, lengths and patterns are the business of the parameter model.
        value: a plain JSON value without floats.

    Returns:
        Whether it does.
    """
    if "const" in leaf:
        return _same(leaf["const"], value)
    if "enum" in leaf:
        return any(_same(listed, value) for listed in leaf["enum"])
    types = leaf.get("type", [])
    kind = "integer" if kind_of(value) == "number" else kind_of(value)
    return kind in ([types] if isinstance(types, str) else types)


def member_leaves(root: Schema, leaf: Schema, name: str) -> list[Schema]:
    """Collect the leaves that an object leaf declares for a member.

    Parameters:
        root: the whole schema.
        leaf: an object leaf.
        name: the member's name.

    Returns:
        Its leaves; none if it is not declared.
    """
    properties = leaf.get("properties", {})
    return leaves_of(root, properties[name] if name in properties else leaf.get("additionalProperties"))


def element_leaves(root: Schema, leaf: Schema, number: int) -> list[Schema]:
    """Collect the leaves that an array leaf declares for an element.

    Parameters:
        root: the whole schema.
        leaf: an array leaf.
        number: the element's, from 0.

    Returns:
        Its leaves; none if it is not declared.
    """
    prefix = leaf.get("prefixItems", [])
    return leaves_of(root, prefix[number] if number < len(prefix) else leaf.get("items"))


def _contradicts(root: Schema, leaf: Schema, name: str, member: object) -> bool:
    declared = leaves_of(root, leaf.get("properties", {}).get(name))
    return bool(declared) and all(
        ("const" in choice or "enum" in choice) and not admits(choice, member) for choice in declared
    )


def narrowed(root: Schema, leaves: list[Schema], value: Mapping[str, Any]) -> list[Schema]:
    """Choose among several object leaves.

    Parameters:
        root: the whole schema.
        leaves: those that admit an object.
        value: the object.

    Returns:
        Those whose const and enum members agree with the value and that declare all its members; where no leaf does
        one of the two, that one chooses nothing.
    """
    if len(leaves) < 2:
        return leaves
    agreeing = [
        leaf for leaf in leaves if not any(_contradicts(root, leaf, name, value[name]) for name in value)
    ] or leaves
    return [leaf for leaf in agreeing if all(member_leaves(root, leaf, name) for name in value)] or agreeing
