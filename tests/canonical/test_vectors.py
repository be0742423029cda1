"""The published vectors, held against SQL, Python and an independent RFC 8785 library."""

from __future__ import annotations

import json
from typing import Any

import pytest
import rfc8785

from tests.canonical.both import (
    VECTORS,
    Answer,
    ask_sql,
    expand,
    python_canonical,
    python_fitted,
)
from underseal.canonical import MAX_BYTES, params_hash
from underseal.testing import DictConnection

ACCEPTED: list[dict[str, Any]] = VECTORS["accepted"]
REFUSED: list[dict[str, Any]] = VECTORS["refused"]
NORMALISED: list[dict[str, Any]] = VECTORS["normalised"]
UNFIT: list[dict[str, Any]] = VECTORS["unfit"]
SCHEMA: dict[str, Any] = VECTORS["schema"]


def _salt(vector: dict[str, Any]) -> bytes | None:
    return bytes.fromhex(vector["salt"]) if vector["salt"] else None


def _name(vector: dict[str, Any]) -> str:
    return str(vector["name"])


def _check_text(vector: dict[str, Any], text: str) -> None:
    if "canonical" in vector:
        assert text == vector["canonical"]
    else:
        assert len(text.encode()) == vector["canonical_bytes"] == MAX_BYTES


CLAUSES_ACCEPTED = ["H1.1a", "H1.1b", "H1.1g", "H1.1h", "H1.1j", "H1.2a", "H1.2b", "H1.3a", "H1.3c", "H1.4c"]
CLAUSES_REFUSED = [
    *("H1.1c", "H1.1i", "H1.2a", "H1.2b", "H1.4c", "H1.5b", "H1.6a", "H1.6b", "H1.6c", "H1.6d", "H1.6e"),
    *("H1.6f", "H1.6g", "H1.6h", "H1.6i"),
]


@pytest.mark.clause(*CLAUSES_ACCEPTED)
@pytest.mark.parametrize("vector", ACCEPTED, ids=_name)
def test_accepted_in_python(vector: dict[str, Any]) -> None:
    text = python_canonical(expand(vector["input"])).text
    assert text is not None
    _check_text(vector, text)
    assert params_hash(vector["type"], vector["version"], text, _salt(vector)).hex() == vector["hash"]


@pytest.mark.clause(*CLAUSES_ACCEPTED)
def test_accepted_in_sql(db: DictConnection) -> None:
    answers = ask_sql(db, "canonical", [expand(vector["input"]) for vector in ACCEPTED])
    for vector, answer in zip(ACCEPTED, answers, strict=True):
        assert answer.text is not None, vector["name"]
        _check_text(vector, answer.text)
        row = db.execute(
            "select underseal.params_hash(%s, %s, %s, %s) as hash",
            [vector["type"], vector["version"], answer.text, _salt(vector)],
        ).fetchone()
        assert row is not None
        assert row["hash"].hex() == vector["hash"], vector["name"]


@pytest.mark.clause("H1.1a", "H1.1h")
@pytest.mark.parametrize("vector", [v for v in ACCEPTED if "canonical" in v], ids=_name)
def test_accepted_is_rfc8785(vector: dict[str, Any]) -> None:
    assert rfc8785.dumps(json.loads(vector["canonical"])).decode() == vector["canonical"]


@pytest.mark.clause(*CLAUSES_REFUSED)
@pytest.mark.parametrize("vector", REFUSED, ids=_name)
def test_refused_in_python(vector: dict[str, Any]) -> None:
    answer = python_canonical(expand(vector["input"]))
    assert (answer.reason, answer.path) == (vector["reason"], vector["path"])


@pytest.mark.clause(*CLAUSES_REFUSED)
def test_refused_in_sql(db: DictConnection) -> None:
    answers = ask_sql(db, "canonical", [expand(vector["input"]) for vector in REFUSED])
    found = {v["name"]: (a.reason, a.path) for v, a in zip(REFUSED, answers, strict=True)}
    assert found == {v["name"]: (v["reason"], v["path"]) for v in REFUSED}


@pytest.mark.clause("H1.4b", "H1.6i")
def test_refusals_say_the_same(db: DictConnection) -> None:
    texts = [expand(vector["input"]) for vector in REFUSED]
    assert ask_sql(db, "canonical", texts) == [python_canonical(text) for text in texts]


CLAUSES_NORMALISED = ["H1.1d", "H1.1e", "H1.1f", "H1.1j", "H1.4a", "H1.4c"]


@pytest.mark.clause(*CLAUSES_NORMALISED)
@pytest.mark.parametrize("vector", NORMALISED, ids=_name)
def test_normalised_in_python(vector: dict[str, Any]) -> None:
    assert python_fitted(SCHEMA, vector["input"], redacting=False) == Answer(vector["canonical"])
    assert python_fitted(SCHEMA, vector["input"], redacting=True) == Answer(vector["redacted"])


@pytest.mark.clause(*CLAUSES_NORMALISED)
def test_normalised_in_sql(db: DictConnection) -> None:
    inputs, schemas = [v["input"] for v in NORMALISED], [SCHEMA] * len(NORMALISED)
    assert [a.text for a in ask_sql(db, "normalise", inputs, schemas)] == [v["canonical"] for v in NORMALISED]
    assert [a.text for a in ask_sql(db, "redact", inputs, schemas)] == [v["redacted"] for v in NORMALISED]


@pytest.mark.clause("H1.1e", "H1.4b", "H1.4c", "H1.6i")
@pytest.mark.parametrize("vector", UNFIT, ids=_name)
def test_unfit_in_python(vector: dict[str, Any]) -> None:
    answer = python_fitted(SCHEMA, vector["input"], redacting=False)
    assert (answer.reason, answer.path) == (vector["reason"], vector["path"])


@pytest.mark.clause("H1.1e", "H1.4b", "H1.4c", "H1.6i")
def test_unfit_in_sql(db: DictConnection) -> None:
    inputs = [vector["input"] for vector in UNFIT]
    answers = ask_sql(db, "normalise", inputs, [SCHEMA] * len(UNFIT))
    found = {v["name"]: (a.reason, a.path) for v, a in zip(UNFIT, answers, strict=True)}
    assert found == {v["name"]: (v["reason"], v["path"]) for v in UNFIT}
    assert answers == [python_fitted(SCHEMA, given, redacting=False) for given in inputs]
