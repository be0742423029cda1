"""What a parameter model's JSON Schema must also fulfil on the Python side, and its bare form for the database."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Schema = Mapping[str, Any]

_ANNOTATIONS = frozenset({"title", "description", "examples", "deprecated", "$comment"})
_BY_NAME = frozenset({"properties", "$defs", "definitions", "patternProperties"})
_AS_DATA = frozenset({"default", "const", "enum", "examples"})


def bare(schema: Any) -> Any:
    """A schema without what is only for readers, so that a reworded docstring is no new version of a type.

    Parameters:
        schema: a JSON Schema, or one of its subschemas.
    """
    if isinstance(schema, list):
        return [bare(one) for one in schema]
    if not isinstance(schema, Mapping):
        return schema
    kept = {}
    for keyword, value in schema.items():
        if keyword in _ANNOTATIONS:
            continue
        if keyword in _BY_NAME and isinstance(value, Mapping):
            kept[keyword] = {name: bare(one) for name, one in value.items()}
        else:
            kept[keyword] = value if keyword in _AS_DATA else bare(value)
    return kept


def lost_null(schema: Schema) -> str | None:
    """Where a required member admits null: null has no canonical form there, so it would be missing at the run.

    Parameters:
        schema: the whole JSON Schema.

    Returns:
        RFC 6901 pointer to the member's schema, or None.
    """
    for path, node in _nodes(schema, ""):
        properties = node.get("properties")
        if not isinstance(properties, Mapping):
            continue
        for name in node.get("required", ()):
            if _admits_null(schema, properties.get(name)):
                return f"{path}/properties/{name}"
    return None


def _nodes(schema: Any, path: str) -> Iterator[tuple[str, Schema]]:
    if isinstance(schema, list):
        for place, one in enumerate(schema):
            yield from _nodes(one, f"{path}/{place}")
    elif isinstance(schema, Mapping):
        yield path, schema
        for keyword, value in schema.items():
            if keyword in _BY_NAME and isinstance(value, Mapping):
                for name, one in value.items():
                    yield from _nodes(one, f"{path}/{keyword}/{name}")
            elif keyword not in _AS_DATA:
                yield from _nodes(value, f"{path}/{keyword}")


def _admits_null(root: Schema, schema: Any) -> bool:
    if not isinstance(schema, Mapping):
        return False
    if "$ref" in schema:
        target: Any = root
        for part in str(schema["$ref"]).removeprefix("#/").split("/"):
            name = part.replace("~1", "/").replace("~0", "~")
            target = target.get(name, {}) if isinstance(target, Mapping) else {}
        return target is not schema and _admits_null(root, target)
    kinds = schema.get("type")
    if kinds == "null" or (isinstance(kinds, list) and "null" in kinds):
        return True
    return any(_admits_null(root, one) for word in ("anyOf", "oneOf") for one in schema.get(word, ()))
