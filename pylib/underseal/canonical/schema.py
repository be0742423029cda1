"""Whether a parameter schema can be used (clause H1.5), and whether it hides anything (clause H1.7)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from underseal.canonical.places import (
    REDIRECTING,
    Place,
    Schema,
    at_place,
    leaves_of,
    loops,
    pointer,
    reach,
    ref_target,
)
from underseal.canonical.refusal import refusal

_NOT_UNDERSTOOD = (
    "$dynamicRef",
    "$recursiveRef",
    "additionalItems",
    "contains",
    "dependencies",
    "dependentSchemas",
    "else",
    "if",
    "not",
    "patternProperties",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
)
_TYPES = {"object", "array", "string", "integer", "boolean", "null"}
_SHAPES: dict[str, type | tuple[type, ...]] = {
    "type": (str, list),
    "enum": list,
    "properties": Mapping,
    "prefixItems": list,
}
_STRUCTURE = {
    *REDIRECTING,
    *("type", "const", "enum", "properties", "additionalProperties", "propertyNames", "items", "prefixItems"),
}


def _types(leaf: Schema) -> set[str]:
    types = leaf.get("type", [])
    return {str(name) for name in ([types] if isinstance(types, str) else types)}


def _admits_float(leaf: Schema) -> bool:
    constants = [leaf.get("const"), *leaf.get("enum", [])]
    return "number" in _types(leaf) or any(isinstance(value, float) for value in constants)


def _misshapen(leaf: Schema) -> bool:
    return any(not isinstance(leaf[keyword], shape) for keyword, shape in _SHAPES.items() if keyword in leaf)


def _names_flaw(root: Schema, leaf: Schema) -> str | None:
    if "propertyNames" not in leaf:
        return None
    names = leaves_of(root, leaf["propertyNames"])
    if not names:
        return "has propertyNames that cannot be resolved; use a local $ref, or none"
    if any("writeOnly" in name for name in names):
        return "hides member names, which the redacted copy needs; hide the values instead"
    return None


def _leaf_flaw(root: Schema, leaf: Schema) -> str | None:
    if _misshapen(leaf):
        return "has a type, enum, properties or prefixItems of the wrong shape"
    types = _types(leaf)
    if _admits_float(leaf):
        return "admits a float, which has no canonical form; use an integer of a smaller unit, or a string"
    if "const" in leaf or "enum" in leaf:
        return None
    if not types:
        return "admits any value; give it a type"
    if not types <= _TYPES:
        return "names an unknown type; use object, array, string, integer, boolean or null"
    if "object" in types and not ("properties" in leaf or "additionalProperties" in leaf):
        return "admits any member; list its properties, or give additionalProperties a schema"
    if "array" in types and not ("items" in leaf or "prefixItems" in leaf):
        return "admits any element; give items or prefixItems a schema"
    return _names_flaw(root, leaf)


def _redirect_flaw(root: Schema, place: Place, node: Schema, keyword: str) -> str | None:
    branches = node[keyword]
    if _STRUCTURE & (node.keys() - {keyword}):
        return f"says more beside {keyword}; put it inside"
    if keyword == "$ref":
        if ref_target(root, branches) is None:
            return "has a $ref that cannot be resolved; use #/$defs/Name, and define Name"
    elif not isinstance(branches, list) or not branches or (keyword == "allOf" and len(branches) > 1):
        return f"has {keyword} without branches, or allOf with several; merge them into one schema"
    if loops(root, place):
        return "refers to itself without going deeper; break the circle"
    return None


def _node_flaw(root: Schema, place: Place) -> str | None:
    node = at_place(root, place)
    if node is False:
        return None
    if node is True:
        return "admits any value; give it a type"
    if not isinstance(node, Mapping):
        return "is no schema; expected an object or false"
    for keyword in _NOT_UNDERSTOOD:
        if keyword in node:
            return f"uses {keyword}, which is not understood here; say it with properties, items or anyOf"
    if not isinstance(node.get("writeOnly", False), bool):
        return "has a writeOnly that is neither true nor false"
    for keyword in REDIRECTING:
        if keyword in node:
            return _redirect_flaw(root, place, node, keyword)
    return _leaf_flaw(root, node)


def schema_flaw(schema: object) -> str | None:
    """Say why a parameter schema cannot be used, in the words of SQL's `underseal._schema_flaw`.

    Parameters:
        schema: a JSON Schema (2020-12, as pydantic writes it in validation mode).

    Returns:
        What is wrong with it and where, or None. A float that is admitted anywhere, an open object or array, a
        reference that cannot be resolved, a keyword that is not understood and a top level that is no object are.
    """
    if not isinstance(schema, Mapping):
        return (
            'the parameter schema is no schema of an object; expected {"type": "object", "properties": {…}}'
        )
    for place in sorted(reach(schema), key=lambda place: pointer(place).encode()):
        flaw = _node_flaw(schema, place)
        if flaw is not None:
            return f"the parameter schema at {pointer(place) or 'the top level'} {flaw}"
    top = leaves_of(schema, schema)
    if any(leaf.get("type") != "object" for leaf in top):
        return "the parameter schema at the top level admits something else than an object"
    if any(leaf.get("writeOnly") is True for leaf in top):
        return "the parameter schema at the top level hides everything; set writeOnly on the members to hide"
    return None


def check_schema(schema: Mapping[str, Any]) -> None:
    """Refuse a parameter schema that cannot be used.

    Parameters:
        schema: a JSON Schema (2020-12, as pydantic writes it in validation mode).

    Raises:
        CanonicalError: `schema`, with the words of `schema_flaw`.
    """
    flaw = schema_flaw(schema)
    if flaw is not None:
        raise refusal("schema", "", flaw)


def hides(schema: Mapping[str, Any]) -> bool:
    """Tell whether the redacted copy of some value differs from it (clause H1.7a).

    Parameters:
        schema: a parameter schema without flaw.

    Returns:
        Whether a `writeOnly` is reachable.
    """
    nodes = (at_place(schema, place) for place in reach(schema))
    return any(isinstance(node, Mapping) and node.get("writeOnly") is True for node in nodes)
