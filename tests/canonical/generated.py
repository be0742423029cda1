"""Generated documents: JSON text in every spelling, good and bad, and schemas with values that nearly fit."""

from __future__ import annotations

import json
import unicodedata
from typing import Any, TypeAlias

from hypothesis import strategies as st

Draw: TypeAlias = st.DrawFn

# Where canonical form is won or lost: combining marks, Hangul, composition exclusions, both sides of the surrogates,
# astral, private use, noncharacters, and what Unicode 15 and 16 assigned.
DELICATE = (
    'aA~/\\"\x01\x1f\x7f\u0085\u00e9\u00c5\u212be\u0301\u030a\u0323\u0958\u1100\u1161\u11a8\uac00\ud7a3\ue000\uf8ff\ufb33'
    "\uff5e\ufffd\ufffe\ufdd0\ufdd1\ufdd2\u2028\U00010000\U0001f600\U0001fae8\U00016d68\U0010fffd\U0010ffff\U0001d15e\u0378"
)
CHARACTERS = st.one_of(
    st.sampled_from(DELICATE),
    st.characters(codec="ascii", exclude_characters="\x00"),
    st.characters(exclude_categories=["Cs"], exclude_characters="\x00"),
)
ASSIGNED = CHARACTERS.filter(lambda char: unicodedata.category(char) != "Cn")
INTEGERS = st.one_of(
    st.integers(-20, 20),
    st.integers(-(2**53) - 2, -(2**53) + 3),
    st.integers(2**53 - 3, 2**53 + 2),
    st.integers(),
)
ODD_NUMBERS = st.sampled_from(
    ["-0", "1.0", "1e2", "1E-2", "-0.0", "0e0", "NaN", "Infinity", "-Infinity", "01", "+1", "-"]
)
SPACES = st.sampled_from(["", "", "", " ", "\n", "\t\r "])


@st.composite
def _spelled(draw: Draw, characters: st.SearchStrategy[str], min_size: int, max_size: int) -> str:
    spelled = []
    for char in draw(st.lists(characters, min_size=min_size, max_size=max_size)):
        plain = json.dumps(char, ensure_ascii=False)[1:-1]
        escaped = "".join(f"\\u{int(unit, 16):04x}" for unit in _units(char))
        spelled.append(draw(st.sampled_from([plain, plain, escaped, escaped.upper().replace("\\U", "\\u")])))
    return f'"{"".join(spelled)}"'


def _units(char: str) -> list[str]:
    coded = char.encode("utf-16-be").hex()
    return [coded[at : at + 4] for at in range(0, len(coded), 4)]


BAD_STRINGS = st.sampled_from(
    [
        '"\\ud800"',
        '"\\udc00\\ud800"',
        '"a\\u0000"',
        '"\\\\u0000"',
        '"\\x"',
        '"\t"',
        '"',
        '"\\ud83d\\ud83d\\ude00"',
    ]
)


@st.composite
def documents(draw: Draw, level: int = 0, flawed: bool = True) -> str:
    """JSON text; `flawed` lets in what canonical form refuses, and what is no JSON."""
    kinds = ["object"] if level == 0 else ["object", "array", "string", "integer", "word"]
    kind = draw(st.sampled_from(kinds if level < 4 else kinds[-3:]))
    odd = flawed and draw(st.integers(0, 24)) == 0
    if kind == "object":
        names = _spelled(CHARACTERS if odd else ASSIGNED, draw(st.sampled_from([0, 1, 2, 2])), 4)
        parts = [
            f"{draw(BAD_STRINGS if odd else names)}{draw(SPACES)}:{draw(documents(level + 1, flawed))}"
            for _ in range(draw(st.integers(0, 4)))
        ]
        text = "{" + draw(SPACES) + ",".join(parts) + "}"
    elif kind == "array":
        text = (
            "[" + ",".join(draw(documents(level + 1, flawed)) for _ in range(draw(st.integers(0, 3)))) + "]"
        )
    elif kind == "string":
        text = draw(BAD_STRINGS if odd else _spelled(CHARACTERS if flawed else ASSIGNED, 0, 6))
    elif kind == "integer":
        text = draw(ODD_NUMBERS if odd else INTEGERS.map(str))
    else:
        text = draw(st.sampled_from(["null", "true", "false"]))
    return f"{draw(SPACES)}{text}{draw(SPACES)}"


@st.composite
def mangled(draw: Draw) -> str:
    """JSON text with one piece cut out or put in."""
    text = draw(documents())
    at, cut = draw(st.integers(0, len(text))), draw(st.integers(0, 3))
    piece = draw(
        st.sampled_from(
            ["", *'{}[],:"\\', "1", "NaN", "\\u0000", "\\ud800", "null", "\ufeff", "\u00a0", "e", "."]
        )
    )
    return f"{text[:at]}{piece}{text[at + cut :]}"


PLAIN = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**53) + 1, 2**53 - 1),
        st.text(ASSIGNED, max_size=6).map(lambda text: unicodedata.normalize("NFC", text)),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(
            st.text(ASSIGNED, max_size=3).map(lambda text: unicodedata.normalize("NFC", text)),
            inner.filter(lambda value: value is not None),
            max_size=4,
        ),
    ),
    max_leaves=12,
)
"""Values that canonical form only has to sort and write."""

NAMES = st.sampled_from(["a", "b", "kind", "long name", "é"])
UUIDS = st.sampled_from(
    ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11", "a0eebc99", ""]
)
INSTANTS = st.builds(
    "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}{}{}".format,
    st.sampled_from([0, 1, 4, 1900, 2000, 2026, 9999]),
    st.sampled_from([1, 2, 6, 12, 13]),
    st.sampled_from([0, 1, 28, 29, 30, 31, 32]),
    st.sampled_from([0, 12, 23, 24]),
    st.sampled_from([0, 59, 60]),
    st.sampled_from([0, 59, 60]),
    st.sampled_from(["", ".0", ".5", ".120", ".123456", ".1234567"]),
    st.sampled_from(["Z", "z", "+00:00", "-00:00", "+14:00", "-23:59", "+24:00", "+01:60", ""]),
)
SCALAR_LEAVES: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [
        {"type": "string"},
        {"type": "string", "format": "uuid"},
        {"type": "string", "format": "uuid4"},
        {"type": "string", "format": "date-time"},
        {"type": "string", "format": "password", "writeOnly": True},
        {"type": "integer"},
        {"type": "integer", "writeOnly": True},
        {"type": "boolean"},
        {"type": "null"},
        {"type": ["string", "null"]},
        {"enum": ["x", 1, None, True]},
        {"const": "x"},
        {"const": 1, "type": "integer"},
        {"$ref": "#/$defs/Node"},
        {"$ref": "#/$defs/Kind", "writeOnly": True},
        {"$ref": "#"},
    ]
)
FLAWED_LEAVES: st.SearchStrategy[Any] = st.sampled_from(
    [
        {"type": "number"},
        {"type": ["integer", "number"]},
        {"enum": [1, 1.5]},
        {"const": 0.5},
        {"type": "decimal"},
        {"type": "array"},
        {"type": "object"},
        {},
        True,
        False,
        7,
        {"$ref": "#/$defs/Missing"},
        {"$ref": "https://example.org/schema"},
        {"$ref": 1},
        {"$ref": "#/$defs/Circle"},
        {"$ref": "#/$defs/Node", "type": "object"},
        {"anyOf": []},
        {"allOf": [{"type": "string"}, {"type": "string"}]},
        {"type": "string", "writeOnly": "yes"},
        {"type": "object", "properties": {}, "patternProperties": {"^a": {"type": "string"}}},
        {"type": "object", "additionalProperties": {"type": "integer"}, "propertyNames": {"writeOnly": True}},
        {"type": "object", "additionalProperties": True},
    ]
)


def _wider(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    hidden = st.sampled_from([{}, {}, {"writeOnly": True}, {"title": "T"}])
    properties = st.dictionaries(NAMES, inner, max_size=3)
    return st.one_of(
        st.builds(lambda p, h: {"type": "object", "properties": p, **h}, properties, hidden),
        st.builds(
            lambda p, h: {"type": "object", "properties": p, "additionalProperties": False, **h},
            properties,
            hidden,
        ),
        st.builds(
            lambda p, a: {"type": "object", "properties": p, "additionalProperties": a}, properties, inner
        ),
        st.builds(
            lambda a: {"type": "object", "additionalProperties": a, "propertyNames": {"format": "uuid"}},
            inner,
        ),
        st.builds(lambda i, h: {"type": "array", "items": i, **h}, inner, hidden),
        st.builds(lambda i: {"type": "array", "prefixItems": i}, st.lists(inner, min_size=1, max_size=2)),
        st.builds(
            lambda k, b, h: {k: b, **h},
            st.sampled_from(["anyOf", "oneOf"]),
            st.lists(inner, min_size=1, max_size=3),
            hidden,
        ),
        st.builds(lambda b: {"allOf": [b]}, inner),
    )


@st.composite
def schemas(draw: Draw, flawed: bool = False) -> dict[str, Any]:
    """Parameter schemas; `flawed` lets in what the kernel refuses to register."""
    leaves = st.one_of(SCALAR_LEAVES, SCALAR_LEAVES, FLAWED_LEAVES) if flawed else SCALAR_LEAVES
    properties = draw(st.dictionaries(NAMES, st.recursive(leaves, _wider, max_leaves=6), max_size=4))
    return {
        "type": "object",
        "properties": properties,
        "$defs": {
            "Node": {
                "type": "object",
                "properties": {"a": {"$ref": "#/$defs/Node"}, "kind": {"const": "n"}, "b": draw(leaves)},
            },
            "Kind": {"enum": ["x", "y"], "type": "string"},
            "Circle": {"anyOf": [{"$ref": "#/$defs/Circle"}, {"type": "string"}]},
        },
    }


VALUES = st.recursive(
    st.one_of(
        st.sampled_from(["x", "y", "n", "secret", "", 1, 0, True, False, None]),
        UUIDS,
        INSTANTS,
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.one_of(NAMES, UUIDS), inner, max_size=4),
    ),
    max_leaves=8,
)


def _leaf_value(draw: Draw, node: dict[str, Any], root: dict[str, Any], level: int) -> Any:
    if "const" in node:
        return node["const"]
    if "enum" in node:
        return draw(st.sampled_from(node["enum"]))
    kind = node.get("type")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "object":
        properties = {
            n: fitting(draw, s, root, level + 1)
            for n, s in node.get("properties", {}).items()
            if draw(st.booleans())
        }
        extra = node.get("additionalProperties")
        if isinstance(extra, dict) and draw(st.booleans()):
            properties[draw(UUIDS)] = fitting(draw, extra, root, level + 1)
        return properties
    if kind == "array":
        items = [node["items"]] * draw(st.integers(0, 2)) if "items" in node else node.get("prefixItems", [])
        return [fitting(draw, item, root, level + 1) for item in items]
    scalars = {"integer": st.integers(-5, 5), "boolean": st.booleans(), "null": st.none()}
    formats = {"uuid": UUIDS, "uuid4": UUIDS, "date-time": INSTANTS}
    return draw(
        scalars.get(str(kind), formats.get(str(node.get("format")), st.sampled_from(["x", "secret"])))
    )


def fitting(draw: Draw, node: Any, root: dict[str, Any], level: int = 0) -> Any:
    """A value that mostly fits a schema without flaw, and sometimes does not."""
    if level > 5 or not isinstance(node, dict) or draw(st.integers(0, 20)) == 0:
        return draw(VALUES)
    if "$ref" in node:
        name = node["$ref"].removeprefix("#/$defs/")
        return fitting(draw, root if name == "#" else root["$defs"][name], root, level + 1)
    for keyword in ("anyOf", "oneOf", "allOf"):
        if keyword in node:
            return fitting(draw, draw(st.sampled_from(node[keyword])), root, level)
    return _leaf_value(draw, node, root, level)


@st.composite
def schemas_and_values(draw: Draw) -> tuple[dict[str, Any], dict[str, Any]]:
    """A schema without flaw and an object that mostly fits it."""
    schema = draw(schemas())
    value = fitting(draw, {"type": "object", "properties": schema["properties"]}, schema)
    return schema, value if isinstance(value, dict) else {"a": value}
