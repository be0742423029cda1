"""SQL and Python agree on whatever can be generated, and with an independent RFC 8785 library where that applies."""

from __future__ import annotations

import json
from typing import Any

import pytest
import rfc8785
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.canonical.both import Answer, ask_sql, python_canonical, python_fitted
from tests.canonical.generated import PLAIN, documents, mangled, schemas, schemas_and_values
from underseal.canonical import (
    canonical_json,
    canonicalise,
    hides,
    params_hash,
    redaction_leak,
    schema_flaw,
)
from underseal.testing import DictConnection

# The database is made once a test: what is asked of it leaves nothing behind.
thorough = settings(
    max_examples=20,
    deadline=None,
    database=None,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
    ],
)
quick = settings(thorough, max_examples=200)
# fifty documents at once outgrow what one example may hold often enough
widest = settings(thorough, max_examples=40, suppress_health_check=list(HealthCheck))


@pytest.mark.clause("H1.4a", "H1.4b", "H1.6i", "T6a")
@widest
@given(texts=st.lists(st.one_of(documents(), documents(flawed=False), mangled()), min_size=50, max_size=60))
def test_sql_and_python_agree(db: DictConnection, texts: list[str]) -> None:
    assert ask_sql(db, "canonical", texts) == [python_canonical(text) for text in texts]


@pytest.mark.clause("H1.4a", "H1.3a")
@thorough
@given(
    texts=st.lists(documents(flawed=False), min_size=20, max_size=40),
    type=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00\n"), max_size=20),
    version=st.integers(-(2**31), 2**31 - 1),
    salt=st.none() | st.binary(min_size=32, max_size=32),
)
def test_hashes_agree(
    db: DictConnection,
    texts: list[str],
    type: str,  # noqa: A002
    version: int,
    salt: bytes | None,
) -> None:
    accepted = [answer.text for answer in map(python_canonical, texts) if answer.text is not None]
    rows = db.execute(
        "select underseal.params_hash(%s, %s, given.canonical, %s) as hash"
        " from unnest(%s::text[]) with ordinality as given (canonical, at) order by given.at",
        [type, version, salt, accepted],
    ).fetchall()
    assert [row["hash"] for row in rows] == [params_hash(type, version, text, salt) for text in accepted]


@pytest.mark.clause("H1.4a")
@thorough
@given(texts=st.lists(documents(flawed=False), min_size=20, max_size=40))
def test_canonical_is_its_own_canonical_form(db: DictConnection, texts: list[str]) -> None:
    accepted = [answer for answer in map(python_canonical, texts) if answer.text is not None]
    canonical = [answer.text or "" for answer in accepted]
    assert [python_canonical(text) for text in canonical] == accepted
    assert ask_sql(db, "canonical", canonical) == accepted


@pytest.mark.clause("H1.1a", "H1.1h", "H1.4a", "T6a")
@quick
@given(value=st.dictionaries(st.just("a"), PLAIN.filter(lambda value: value is not None)))
def test_python_is_rfc8785(value: dict[str, Any]) -> None:
    assert canonical_json(value).encode() == rfc8785.dumps(value)


@pytest.mark.clause("H1.4a")
@quick
@given(
    value=st.dictionaries(st.just("a"), PLAIN), ascii_only=st.booleans(), indent=st.none() | st.integers(0, 2)
)
def test_values_and_text_agree(value: dict[str, Any], ascii_only: bool, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    assert canonicalise(text) == canonical_json(value)


@pytest.mark.clause("H1.4b", "H1.5a")
@thorough
@given(given_schemas=st.lists(st.one_of(schemas(), schemas(flawed=True)), min_size=10, max_size=20))
def test_schemas_are_judged_alike(db: DictConnection, given_schemas: list[dict[str, Any]]) -> None:
    rows = db.execute(
        "select underseal._schema_flaw(given.schema::jsonb) as flaw,"
        " underseal._schema_hides(given.schema::jsonb) as hides"
        " from unnest(%s::text[]) with ordinality as given (schema, at) order by given.at",
        [[json.dumps(schema) for schema in given_schemas]],
    ).fetchall()
    assert [(row["flaw"], row["hides"]) for row in rows] == [
        (schema_flaw(s), hides(s)) for s in given_schemas
    ]


@pytest.mark.clause("H1.1d", "H1.1e", "H1.1f", "H1.1j", "H1.4a", "H1.4b", "H1.7c")
@thorough
@given(pairs=st.lists(schemas_and_values(), min_size=20, max_size=40))
def test_fitting_agrees(db: DictConnection, pairs: list[tuple[dict[str, Any], dict[str, Any]]]) -> None:
    given_schemas = [schema for schema, _ in pairs]
    texts = [json.dumps(value) for _, value in pairs]
    for which, redacting in (("normalise", False), ("redact", True)):
        expected = [python_fitted(s, t, redacting) for s, t in zip(given_schemas, texts, strict=True)]
        assert ask_sql(db, which, texts, given_schemas) == expected
        fitted = [(s, a) for s, a in zip(given_schemas, expected, strict=True) if a.text is not None]
        again = [python_fitted(s, a.text or "", redacting=False) for s, a in fitted]
        assert redacting or again == [Answer(a.text) for _, a in fitted]
        leaks = [redaction_leak(s, json.loads(a.text or "")) for s, a in fitted]
        assert not redacting or leaks == [None] * len(fitted)


def _sql_leaks(db: DictConnection, pairs: list[tuple[dict[str, Any], dict[str, Any]]]) -> list[str | None]:
    rows = db.execute(
        "select underseal._redaction_leak(given.schema::jsonb, given.copy::jsonb) as leak"
        " from unnest(%s::text[], %s::text[]) with ordinality as given (schema, copy, at) order by given.at",
        [[json.dumps(schema) for schema, _ in pairs], [json.dumps(copy) for _, copy in pairs]],
    ).fetchall()
    return [row["leak"] for row in rows]


@pytest.mark.clause("H1.4b", "H1.7c")
@thorough
@given(pairs=st.lists(schemas_and_values(), min_size=20, max_size=40))
def test_leaks_are_found_alike(
    db: DictConnection, pairs: list[tuple[dict[str, Any], dict[str, Any]]]
) -> None:
    assert _sql_leaks(db, pairs) == [redaction_leak(schema, value) for schema, value in pairs]
