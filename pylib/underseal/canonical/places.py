"""Where a JSON Schema leads: its leaves, and the places that some value can reach.

A *leaf* is a schema without `$ref`, `anyOf`, `oneOf` and `allOf`; the leaves of a place are all that may apply there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

Schema: TypeAlias = Mapping[str, Any]
Place: TypeAlias = tuple[str, ...]

BRANCHING = ("anyOf", "oneOf", "allOf")
REDIRECTING = ("$ref", *BRANCHING)

_REF = re.compile(r"#/(\$defs|definitions)/([^/]+)")
_MAX_HOPS = 64


def _parsed_ref(ref: object) -> Place | None:
    if ref == "#":
        return ()
    found = _REF.fullmatch(ref) if isinstance(ref, str) else None
    return (found[1], found[2].replace("~1", "/").replace("~0", "~")) if found else None


def ref_target(root: Schema, ref: object) -> Any:
    """Follow a local reference.

    Parameters:
        root: the whole schema.
        ref: the value of `$ref`: `#`, `#/$defs/Name` or `#/definitions/Name`.

    Returns:
        What it names; None if nothing, or if it is another kind of reference.
    """
    place = _parsed_ref(ref)
    if not place:
        return None if place is None else root
    definitions = root.get(place[0])
    return definitions.get(place[1]) if isinstance(definitions, Mapping) else None


def at_place(root: Any, place: Place) -> Any:
    """Look up a place.

    Parameters:
        root: the whole schema.
        place: names and numbers on the way.

    Returns:
        What is there; None if nothing is.
    """
    node = root
    for step in place:
        if isinstance(node, Mapping):
            node = node.get(step)
        elif isinstance(node, list):
            node = node[int(step)]
        else:
            return None
    return node


def leaves_of(root: Schema, node: object, hidden: bool = False, hops: int = 0) -> list[Schema]:
    """Collect what may apply at a place.

    Parameters:
        root: the whole schema.
        node: the schema at the place.
        hidden: whether something on the way said `writeOnly`.
        hops: how many references and branches were followed; a circle of them has no leaf of its own.

    Returns:
        The leaves in order, each with `writeOnly` true if it or anything on the way says so.
    """
    if not isinstance(node, Mapping) or hops > _MAX_HOPS:
        return []
    hidden = hidden or node.get("writeOnly") is True
    if "$ref" in node:
        return leaves_of(root, ref_target(root, node["$ref"]), hidden, hops + 1)
    for keyword in BRANCHING:
        if keyword in node:
            return [leaf for branch in node[keyword] for leaf in leaves_of(root, branch, hidden, hops + 1)]
    return [{**node, "writeOnly": True} if hidden else node]


def pointer(place: Place) -> str:
    """Write a place as an RFC 6901 pointer.

    Parameters:
        place: names and numbers on the way.

    Returns:
        The pointer, empty for the top.
    """
    return "".join(f"/{step.replace('~', '~0').replace('/', '~1')}" for step in place)


def _same_place_steps(root: Schema, place: Place, node: Schema) -> Iterator[Place]:
    target = _parsed_ref(node.get("$ref"))
    if target is not None and ref_target(root, node["$ref"]) is not None:
        yield target
    for keyword in BRANCHING:
        if isinstance(node.get(keyword), list):
            yield from ((*place, keyword, str(number)) for number in range(len(node[keyword])))


def _deeper_steps(place: Place, node: Schema) -> Iterator[Place]:
    if isinstance(node.get("prefixItems"), list):
        yield from ((*place, "prefixItems", str(number)) for number in range(len(node["prefixItems"])))
    if isinstance(node.get("properties"), Mapping):
        yield from ((*place, "properties", name) for name in node["properties"])
    yield from ((*place, keyword) for keyword in ("additionalProperties", "items") if keyword in node)


def _closure(root: Schema, first: list[Place], deeper: bool) -> set[Place]:
    reached: set[Place] = set()
    waiting = list(first)
    while waiting:
        place = waiting.pop()
        if place in reached:
            continue
        reached.add(place)
        node = at_place(root, place)
        if isinstance(node, Mapping):
            waiting.extend(_same_place_steps(root, place, node))
            waiting.extend(_deeper_steps(place, node) if deeper else ())
    return reached


def reach(root: Schema) -> set[Place]:
    """Find every place in a schema that some value can reach.

    Parameters:
        root: the whole schema.

    Returns:
        The places; definitions that nothing refers to are not among them.
    """
    return _closure(root, [()], deeper=True)


def loops(root: Schema, place: Place) -> bool:
    """Tell whether a place leads back to itself without consuming any of the value.

    Parameters:
        root: the whole schema.
        place: a place in it that holds an object.

    Returns:
        Whether it does.
    """
    return place in _closure(root, list(_same_place_steps(root, place, at_place(root, place))), deeper=False)
