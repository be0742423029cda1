"""Paths into JSON, as pointers and dotted."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from underseal.seal.paths import (
    MISSING,
    dotted,
    look,
    outermost,
    parse_dotted,
    parse_pointer,
    pointer,
    replaced,
)

names = st.text(st.sampled_from("ab.\\/~01*é\n"), max_size=4) | st.text(max_size=4)
paths = st.lists(names, min_size=1, max_size=4).map(tuple)
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=12,
)


@given(paths)
def test_each_path_has_one_text_of_each_kind(path: tuple[str, ...]) -> None:
    assert parse_pointer(pointer(path)) == path
    assert parse_dotted(dotted(path)) == path


@given(st.text(st.sampled_from("a.\\/~01"), max_size=8))
def test_no_two_texts_are_one_path(text: str) -> None:
    for parse, write in ((parse_pointer, pointer), (parse_dotted, dotted)):
        path = parse(text)
        assert path is None or write(path) == text


@pytest.mark.parametrize(
    ("path", "as_pointer", "as_dotted"),
    [
        (("output",), "/output", "output"),
        (("a", "0", "b"), "/a/0/b", "a.0.b"),
        (("a.b", "c/d", "e~f", "g\\h"), "/a.b/c~1d/e~0f/g\\h", "a\\.b.c/d.e~f.g\\\\h"),
        (("", ""), "//", "."),
        (("~1", "/0"), "/~01/~10", "~1./0"),
    ],
)
def test_what_they_look_like(path: tuple[str, ...], as_pointer: str, as_dotted: str) -> None:
    assert (pointer(path), dotted(path)) == (as_pointer, as_dotted)


@pytest.mark.parametrize("text", ["", "a", "/a~", "/a~2", "a/b"])
def test_what_is_no_pointer(text: str) -> None:
    assert parse_pointer(text) is None


@pytest.mark.parametrize("text", ["\\", "a\\b", "a.\\", "a\\\\\\"])
def test_what_is_no_dotted_path(text: str) -> None:
    assert parse_dotted(text) is None


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (("a", "0", "b"), 1),
        (("a", "1"), None),
        (("a", "00"), MISSING),
        (("a", "01"), MISSING),
        (("a", "2"), MISSING),
        (("a", "-1"), MISSING),
        (("a", "-"), MISSING),
        (("a", "٠"), MISSING),
        (("a", "b"), MISSING),
        (("o", "0"), "member"),
        (("t", "0"), MISSING),
        (("n", "x"), MISSING),
    ],
)
def test_indexes_and_members(path: tuple[str, ...], found: object) -> None:
    data = {"a": [{"b": 1}, None], "o": {"0": "member"}, "t": "text", "n": None}
    assert look(data, path) is found


@given(st.dictionaries(names, values, min_size=1), st.data())
def test_a_replacement_changes_that_place_alone_and_no_copy_of_it(data: dict[str, Any], draw: Any) -> None:
    path: list[str] = []
    value: Any = data
    while isinstance(value, dict | list) and value and (not path or draw.draw(st.booleans())):
        token = draw.draw(
            st.sampled_from(sorted(value) if isinstance(value, dict) else [*map(str, range(len(value)))])
        )
        value = value[token] if isinstance(value, dict) else value[int(token)]
        path.append(token)
    before = json.dumps(data)
    new = replaced(data, tuple(path), "NEW")
    assert look(new, tuple(path)) == "NEW"
    assert json.dumps(data) == before
    assert replaced(new, tuple(path), value) == data


def test_the_outermost_of_some_paths() -> None:
    some = [("b", "c"), ("a",), ("b", "c"), ("a", "x", "y"), ("ab",), ("b", "cd")]
    assert outermost(some) == [("a",), ("ab",), ("b", "c"), ("b", "cd")]
