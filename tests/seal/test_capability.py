"""What a marker opens with: the database and its Python twin agree, whatever shape either is given."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from psycopg import sql

from underseal.errors import ShardSealingMismatchError
from underseal.foundation.server import Server
from underseal.seal.capability import common_capability, marker, opens
from underseal.testing import unique_name

SOURCE = Path(__file__).parents[2] / "sql" / "seal" / "opens.sql"
MARKER: dict[str, Any] = {"v": 1, "cipher": "c", "covers": ["A.x", "A.y"]}
CAPABLE: dict[str, Any] = {"ciphers": ["c", "d"], "covers": ["A.x", "A.y", "B.z"]}

entries = st.sampled_from(["A.x", "A.y", "B.z", "A", "a.x", "", "A.x "])
scalars = (
    st.none()
    | st.booleans()
    | st.integers(0, 2)
    | st.sampled_from([1.0, 1.5])
    | entries
    | st.sampled_from(["c", "1"])
)
anything = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["v", "c", "A.x"]), inner, max_size=2)
    ),
)
lists = st.lists(entries, max_size=4) | st.lists(anything, max_size=3) | anything
markers = anything | st.fixed_dictionaries(
    {},
    optional={
        "v": st.just(1) | anything,
        "cipher": st.sampled_from(["c", "d"]) | anything,
        "covers": lists,
        "w": scalars,
    },
)
capabilities = anything | st.fixed_dictionaries(
    {},
    optional={"ciphers": st.lists(st.sampled_from(["c", "d"])) | anything, "covers": lists, "more": scalars},
)


@pytest.fixture(scope="module")
def alone(postgres: Server) -> Iterator[psycopg.Connection[Any]]:
    """A database with nothing but this function."""
    name = unique_name("opens")
    with psycopg.connect(postgres.conninfo("postgres"), autocommit=True) as admin:
        admin.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        try:
            with psycopg.connect(postgres.conninfo(name), autocommit=True) as connection:
                connection.execute("create schema underseal")
                connection.execute(SOURCE.read_bytes())
                yield connection
        finally:
            admin.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


def both(
    connection: psycopg.Connection[Any], given_marker: str, capability: str | None
) -> tuple[object, bool]:
    """What each says; the twin is given what a client reads back."""
    row = connection.execute(
        "select m, c, underseal.seal_opens(m, c) from (select %s::jsonb as m, %s::jsonb as c) given",
        [given_marker, capability],
    ).fetchone()
    assert row is not None
    stored, declared, answer = row
    return answer, opens({} if stored is None else stored, declared)


@pytest.mark.clause("M3", "M16")
@settings(max_examples=600, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(given_marker=markers, capability=capabilities)
@example(MARKER, CAPABLE)
@example(MARKER, None)
@example(MARKER | {"v": 1.0}, CAPABLE)
@example(MARKER | {"w": 1}, CAPABLE)
@example(MARKER | {"covers": [["A.x"]]}, CAPABLE | {"covers": [["A.x", "A.y"]]})
@example(MARKER | {"covers": [1]}, CAPABLE | {"covers": [1]})
@example(MARKER | {"covers": [None]}, CAPABLE | {"covers": [None]})
@example(MARKER | {"covers": [{"a": 1}]}, CAPABLE | {"covers": [{"a": 1, "b": 2}]})
@example(MARKER | {"cipher": None}, CAPABLE | {"ciphers": [None]})
@example(MARKER, CAPABLE | {"ciphers": "c"})
@example(MARKER, CAPABLE | {"ciphers": [["c"]]})
@example(MARKER, CAPABLE | {"covers": {"A.x": 1, "A.y": 1}})
def test_database_and_twin_agree(
    alone: psycopg.Connection[Any], given_marker: object, capability: object
) -> None:
    declared = None if capability is None else json.dumps(capability)
    answer, twin = both(alone, json.dumps(given_marker), declared)
    assert answer is twin


@pytest.mark.clause("M3")
@pytest.mark.parametrize("version", ["1", "1e0"])
def test_the_version_is_one(alone: psycopg.Connection[Any], version: str) -> None:
    text = json.dumps(MARKER).replace('"v": 1', f'"v": {version}')
    assert both(alone, text, json.dumps(CAPABLE)) == (True, True)


@pytest.mark.clause("M3")
@pytest.mark.parametrize("version", ["1.0", "1.00000000000000000000001", '"1"', "true", "2", "10e-1", "null"])
def test_any_other_version_opens_for_nobody(alone: psycopg.Connection[Any], version: str) -> None:
    text = json.dumps(MARKER).replace('"v": 1', f'"v": {version}')
    assert both(alone, text, json.dumps(CAPABLE)) == (False, False)


@pytest.mark.clause("M3")
@pytest.mark.parametrize(
    ("change", "capability", "answer"),
    [
        ({}, {}, True),
        ({}, {"covers": ["A.x"]}, False),
        ({}, {"covers": ["A.x", "A.y.z"]}, False),
        ({}, {"ciphers": ["d"]}, False),
        ({"covers": ["A.x", "A.x"]}, {"covers": ["A.x"]}, True),
        ({"covers": []}, {}, False),
        ({"covers": [["A.x"]]}, {"covers": [["A.x", "A.y"]]}, False),
        ({"covers": [1]}, {"covers": [1]}, False),
        ({"more": 1}, {}, False),
    ],
)
def test_a_cipher_it_has_and_every_entry(
    alone: psycopg.Connection[Any], change: dict[str, Any], capability: dict[str, Any], answer: bool
) -> None:
    assert both(alone, json.dumps(MARKER | change), json.dumps(CAPABLE | capability)) == (answer, answer)


@pytest.mark.clause("M3", "M16")
def test_no_marker_opens_for_everybody_and_no_capability_opens_none(alone: psycopg.Connection[Any]) -> None:
    assert opens(None, None)
    assert not opens(MARKER, None)
    row = alone.execute(
        "select underseal.seal_opens(null, null), underseal.seal_opens('null', null)"
    ).fetchone()
    assert row == (True, False)


@pytest.mark.clause("M1")
def test_a_marker_is_sorted_and_names_each_entry_once() -> None:
    assert marker("c", ["B.y", "A.z", "B.y", "A.é"]) == {
        "v": 1,
        "cipher": "c",
        "covers": ["A.z", "A.é", "B.y"],
    }


ONE = {"ciphers": ["c"], "covers": ["A.x", "B.y"]}


@pytest.mark.clause("M4")
@pytest.mark.parametrize(
    ("given", "common"),
    [
        ([], None),
        ([None], None),
        ([None, None], None),
        ([ONE], ONE),
        ([ONE, {"covers": ["B.y", "A.x"], "ciphers": ["c"]}, ONE], ONE),
    ],
)
def test_equal_capabilities_add_up_to_that_one(given: Any, common: Any) -> None:
    assert common_capability(given) == common


@pytest.mark.clause("M4")
@pytest.mark.parametrize(
    "other",
    [None, ONE | {"covers": ["A.x"]}, ONE | {"covers": ["A.x", "B.y", "C.z"]}, ONE | {"ciphers": ["c", "d"]}],
)
def test_anything_else_is_a_mismatch_that_names_each(other: Any) -> None:
    for several in ([ONE, other], [other, ONE], [ONE, ONE, other]):
        with pytest.raises(ShardSealingMismatchError) as caught:
            common_capability(several)
        assert list(caught.value.capabilities) == several
        assert "A.x" in str(caught.value)
