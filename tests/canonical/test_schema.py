"""Which parameter schemas are refused, which hide something, and what a redacted copy may show."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from underseal.canonical import check_schema, hides, normalise, redaction_leak, schema_flaw
from underseal.errors import CanonicalError
from underseal.testing import DictConnection


def _top(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "$defs": {
            "Money": {"type": "object", "properties": {"amount": {"type": "number"}}},
            "Secret": {"type": "string", "writeOnly": True},
            "Tree": {
                "type": "object",
                "properties": {"left": {"$ref": "#/$defs/Tree"}, "pin": {"$ref": "#/$defs/Secret"}},
            },
            "Loop": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/Pool"}]},
            "Pool": {"allOf": [{"$ref": "#/$defs/Loop"}]},
            "a/b~c": {"type": "integer"},
        },
    }


def _ask(
    db: DictConnection, call: str, schemas: Sequence[Any], copies: Sequence[Any] | None = None
) -> list[Any]:
    """What an SQL expression gives for each schema, with the copy beside it."""
    rows = db.execute(
        f"select {call} as answer from unnest(%s::jsonb[], %s::jsonb[])"
        " with ordinality as asked (schema, copy, at) order by asked.at",
        [
            [json.dumps(schema) for schema in schemas],
            [json.dumps(copy) for copy in copies or [None] * len(schemas)],
        ],
    ).fetchall()
    return [row["answer"] for row in rows]


FLOAT = "admits a float"
FLAWS: list[tuple[str, Any, str]] = [
    ("number", _top(a={"type": "number"}), f"/properties/a {FLOAT}"),
    ("number in a list of types", _top(a={"type": ["null", "number"]}), f"/properties/a {FLOAT}"),
    (
        "number in anyOf",
        _top(a={"anyOf": [{"type": "string"}, {"type": "number"}]}),
        f"/properties/a/anyOf/1 {FLOAT}",
    ),
    (
        "number in an array",
        _top(a={"type": "array", "items": {"type": "number"}}),
        f"/properties/a/items {FLOAT}",
    ),
    (
        "number in a tuple",
        _top(a={"type": "array", "prefixItems": [{"type": "number"}]}),
        f"/a/prefixItems/0 {FLOAT}",
    ),
    (
        "number in free members",
        _top(a={"type": "object", "additionalProperties": {"type": "number"}}),
        f"/properties/a/additionalProperties {FLOAT}",
    ),
    (
        "number behind a reference",
        _top(a={"$ref": "#/$defs/Money"}),
        f"/$defs/Money/properties/amount {FLOAT}",
    ),
    ("float in enum", _top(a={"enum": ["x", 1.5]}), f"/properties/a {FLOAT}"),
    ("float as const", _top(a={"const": 1.5}), f"/properties/a {FLOAT}"),
    ("anything", _top(a={}), "/properties/a admits any value"),
    ("true", _top(a=True), "/properties/a admits any value"),
    ("no schema", _top(a=1), "/properties/a is no schema"),
    ("unknown type", _top(a={"type": "decimal"}), "/properties/a names an unknown type"),
    ("type that is no name", _top(a={"type": 1}), "/properties/a has a type, enum"),
    ("type of no name", _top(a={"type": ["string", None]}), "/properties/a names an unknown type"),
    ("enum that is no list", _top(a={"enum": "x"}), "/properties/a has a type, enum"),
    (
        "properties that are no object",
        _top(a={"type": "object", "properties": 1}),
        "/properties/a has a type, enum",
    ),
    (
        "a tuple that is no list",
        _top(a={"type": "array", "prefixItems": {}}),
        "/properties/a has a type, enum",
    ),
    (
        "definitions that are no object",
        {"$ref": "#/$defs/0", "$defs": [{"type": "object"}]},
        "top level has a $ref",
    ),
    ("open object", _top(a={"type": "object"}), "/properties/a admits any member"),
    (
        "open object, said",
        _top(a={"type": "object", "properties": {}, "additionalProperties": True}),
        "/properties/a/additionalProperties admits any value",
    ),
    ("open array", _top(a={"type": "array"}), "/properties/a admits any element"),
    ("open array, said", _top(a={"type": "array", "items": {}}), "/properties/a/items admits any value"),
    (
        "items of old",
        _top(a={"type": "array", "items": [{"type": "string"}]}),
        "/properties/a/items is no schema",
    ),
    ("missing definition", _top(a={"$ref": "#/$defs/Nothing"}), "/properties/a has a $ref"),
    ("foreign reference", _top(a={"$ref": "https://example.org/x"}), "/properties/a has a $ref"),
    ("deep reference", _top(a={"$ref": "#/$defs/Money/properties/amount"}), "/properties/a has a $ref"),
    ("reference that is no text", _top(a={"$ref": 1}), "/properties/a has a $ref"),
    ("circle", _top(a={"$ref": "#/$defs/Loop"}), "/$defs/Loop refers to itself"),
    ("itself", _top(a={"anyOf": [{"$ref": "#/$defs/Tree"}, {"$ref": "#/$defs/Pool"}]}), "refers to itself"),
    (
        "type beside $ref",
        _top(a={"$ref": "#/$defs/Tree", "type": "object"}),
        "/properties/a says more beside $ref",
    ),
    (
        "properties beside anyOf",
        _top(a={"anyOf": [{"type": "null"}], "properties": {}}),
        "says more beside anyOf",
    ),
    (
        "two ways",
        _top(a={"anyOf": [{"type": "null"}], "oneOf": [{"type": "null"}]}),
        "says more beside anyOf",
    ),
    ("no branches", _top(a={"anyOf": []}), "has anyOf without branches"),
    ("branches that are no list", _top(a={"oneOf": {"type": "null"}}), "has oneOf without branches"),
    ("allOf of several", _top(a={"allOf": [{"type": "null"}, {"type": "null"}]}), "allOf with several"),
    *(
        (k, _top(a={"type": "string", k: {}}), f"uses {k}")
        for k in ("if", "not", "patternProperties", "contains")
    ),
    ("writeOnly that is no boolean", _top(a={"type": "string", "writeOnly": "yes"}), "has a writeOnly"),
    (
        "hidden names",
        _top(
            a={
                "type": "object",
                "additionalProperties": {"type": "null"},
                "propertyNames": {"writeOnly": True},
            }
        ),
        "/properties/a hides member names",
    ),
    (
        "lost names",
        _top(
            a={"type": "object", "additionalProperties": {"type": "null"}, "propertyNames": {"$ref": "#/x"}}
        ),
        "/properties/a has propertyNames",
    ),
    (
        "no object at the top",
        {"type": "array", "items": {"type": "null"}},
        "the top level admits something else",
    ),
    (
        "perhaps no object at the top",
        {"type": ["object", "null"], "properties": {}},
        "the top level admits something",
    ),
    ("null beside the top", {"anyOf": [{"type": "null"}, _top()]}, "the top level admits something else"),
    ("an enum at the top", {"enum": ["x"]}, "the top level admits something else"),
    (
        "hidden as a whole",
        {"type": "object", "properties": {}, "writeOnly": True},
        "the top level hides everything",
    ),
    ("no schema at all", [], "is no schema of an object"),
    ("null", None, "is no schema of an object"),
]


@pytest.mark.clause("H1.5a")
@pytest.mark.parametrize(("schema", "words"), [flaw[1:] for flaw in FLAWS], ids=[flaw[0] for flaw in FLAWS])
def test_flaws_in_python(schema: Any, words: str) -> None:
    assert words in (schema_flaw(schema) or "")
    with pytest.raises(CanonicalError, match="schema at the top level"):
        check_schema(schema)


@pytest.mark.clause("H1.5a", "H1.4b")
def test_flaws_in_sql(db: DictConnection) -> None:
    given = [schema for _, schema, _ in FLAWS]
    rows = _ask(db, "underseal._schema_flaw(asked.schema)", given)
    for (name, _, words), flaw in zip(FLAWS, rows, strict=True):
        assert words in (flaw or ""), name
    assert rows == [schema_flaw(schema) for schema in given]
    assert "is no schema of an object" in _ask(db, "underseal._schema_flaw(null)", [None])[0]


FINE: list[tuple[dict[str, Any], bool]] = [
    (_top(), False),
    (
        _top(
            a={"type": "integer"},
            b={"type": ["string", "null"]},
            c={"enum": ["x", None, 1]},
            d={"const": True},
        ),
        False,
    ),
    (_top(a={"$ref": "#/$defs/a~1b~0c"}), False),
    (_top(a={"$ref": "#"}), False),
    (_top(a=False), False),
    (_top(a={"type": "object", "additionalProperties": False}), False),
    (_top(a={"type": "array", "prefixItems": [{"type": "null"}], "items": False}), False),
    (_top(a={"$ref": "#/$defs/Tree"}), True),
    (_top(a={"$ref": "#/$defs/Secret"}), True),
    (_top(a={"$ref": "#/$defs/a~1b~0c", "writeOnly": True}), True),
    (_top(a={"anyOf": [{"type": "string", "writeOnly": True}, {"type": "null"}]}), True),
    (_top(a={"type": "string", "writeOnly": False}), False),
    (_top(writeOnly={"type": "string"}), False),
    (_top(a={"type": "array", "items": {"type": "integer", "writeOnly": True}}), True),
    ({"$ref": "#/$defs/T", "$defs": {"T": {"type": "object", "properties": {}}}}, False),
    ({"anyOf": [_top(), _top()]}, False),
]


@pytest.mark.clause("H1.5a", "H1.7a")
@pytest.mark.parametrize(("schema", "hiding"), FINE)
def test_fine_in_python(schema: dict[str, Any], hiding: bool) -> None:
    check_schema(schema)
    assert hides(schema) is hiding


@pytest.mark.clause("H1.5a", "H1.7a")
def test_fine_in_sql(db: DictConnection) -> None:
    given = [schema for schema, _ in FINE]
    assert _ask(db, "underseal._schema_flaw(asked.schema)", given) == [None] * len(FINE)
    assert _ask(db, "underseal._schema_hides(asked.schema)", given) == [hiding for _, hiding in FINE]


CARD = {
    "type": "object",
    "properties": {"kind": {"const": "card"}, "number": {"type": "string", "writeOnly": True}},
}
IBAN = {"type": "object", "properties": {"kind": {"const": "iban"}, "number": {"type": "string"}}}
NARROW = {"type": "object", "properties": {"x": {"type": "string", "writeOnly": True}}}
WIDE = {"type": "object", "properties": {"x": {"type": "string"}, "y": {"type": "string"}}}
LEAKY = _top(
    open={"type": "string"},
    count={"type": "integer"},
    pin={"type": "string", "writeOnly": True},
    maybe={"anyOf": [{"type": "string", "writeOnly": True}, {"type": "null"}]},
    mixed={"anyOf": [{"type": "string", "writeOnly": True}, {"type": "integer"}]},
    tree={"$ref": "#/$defs/Tree"},
    vault={"$ref": "#/$defs/a~1b~0c", "writeOnly": True},
    list={"type": "array", "items": {"$ref": "#/$defs/Secret"}},
    pair={"type": "array", "prefixItems": [{"type": "string"}, {"type": "string", "writeOnly": True}]},
    free={"type": "object", "additionalProperties": {"type": "string", "writeOnly": True}},
    pay={"oneOf": [CARD, IBAN]},
    either={"anyOf": [NARROW, WIDE]},
)
LEAKS: list[tuple[Any, str | None]] = [
    ({}, None),
    ({"open": "x", "count": 1}, None),
    ({"count": "•••"}, None),
    ({"pin": "1"}, "/pin"),
    ({"pin": 1}, "/pin"),
    ({"pin": ""}, "/pin"),
    ({"pin": None, "maybe": None}, None),
    ({"maybe": "x"}, "/maybe"),
    ({"maybe": 1}, "/maybe"),
    ({"mixed": 1}, None),
    ({"mixed": "x"}, "/mixed"),
    ({"mixed": True}, "/mixed"),
    ({"else": 1}, "/else"),
    ({"else": None}, "/else"),
    ({"a/b": 1}, "/a~1b"),
    ({"open": {"x": 1}}, "/open"),
    ({"open": []}, "/open"),
    ({"tree": {"left": {"left": {}}}}, None),
    ({"tree": {"left": {"left": {"pin": "x"}}}}, "/tree/left/left/pin"),
    ({"tree": {"left": {"right": {}}}}, "/tree/left/right"),
    ({"tree": "x"}, None),
    ({"vault": 1}, "/vault"),
    ({"list": [None, None]}, None),
    ({"list": [None, "x"]}, "/list/1"),
    ({"pair": ["x", None]}, None),
    ({"pair": ["x", "y"]}, "/pair/1"),
    ({"pair": ["x", None, "z"]}, "/pair/2"),
    ({"free": {"x": None}}, None),
    ({"free": {"x": "y"}}, "/free/x"),
    ({"pay": {"kind": "iban", "number": "1"}}, None),
    ({"pay": {"kind": "card"}}, None),
    ({"pay": {"kind": "card", "number": "1"}}, "/pay/number"),
    ({"pay": {"number": "1"}}, "/pay/number"),
    ({"pay": {"kind": "cash", "number": "1"}}, "/pay/number"),
    ({"either": {"x": "1"}}, "/either/x"),
    ({"either": {"x": "1", "y": "2"}}, None),
    ({"tree": {"right": None}}, "/tree/right"),
    ([], ""),
    ("x", ""),
    (None, ""),
]


TOP_LEAKS: list[tuple[Any, Any, str | None]] = [
    (
        {"$ref": "#/$defs/T", "$defs": {"T": _top(pin={"type": "string", "writeOnly": True})}},
        {"pin": "x"},
        "/pin",
    ),
    ({**_top(), "additionalProperties": {"type": "string", "writeOnly": True}}, {"x": "y"}, "/x"),
    ({**_top(), "additionalProperties": {"type": "string"}}, {"x": "y"}, None),
    ({**_top(), "additionalProperties": False}, {"x": "y"}, "/x"),
    ({**_top(a={"type": "string"}), "writeOnly": True}, {"a": "y"}, ""),
    (_top(a=False), {"a": "y"}, "/a"),
]
ALL_LEAKS = [*((LEAKY, shown, leak) for shown, leak in LEAKS), *TOP_LEAKS]


@pytest.mark.clause("H1.7c")
@pytest.mark.parametrize(("schema", "shown", "leak"), ALL_LEAKS)
def test_leaks_in_python(schema: Any, shown: Any, leak: str | None) -> None:
    assert redaction_leak(schema, shown) == leak


@pytest.mark.clause("H1.7c")
def test_leaks_in_sql(db: DictConnection) -> None:
    given, shown = [leak[0] for leak in ALL_LEAKS], [leak[1] for leak in ALL_LEAKS]
    found = _ask(db, "underseal._redaction_leak(asked.schema, asked.copy)", given, shown)
    assert list(zip(shown, found, strict=True)) == [(copy, leak) for _, copy, leak in ALL_LEAKS]
    assert _ask(db, "underseal._redaction_leak(asked.schema, null)", [LEAKY]) == [""]


@pytest.mark.clause("H1.4b")
def test_true_is_not_1() -> None:
    schema = _top(a={"const": 1}, b={"enum": [True]})
    assert normalise(schema, {"a": 1, "b": True}) == {"a": 1, "b": True}
    for value, path in (({"a": True}, "/a"), ({"b": 1}, "/b")):
        with pytest.raises(CanonicalError) as refused:
            normalise(schema, value)
        assert (refused.value.reason, refused.value.path) == ("type-mismatch", path)
