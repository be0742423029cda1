"""JSON text at the limits: judged before anything is parsed or cast, in both languages."""

from __future__ import annotations

import json

import psycopg
import pytest

from tests.canonical.both import ask_sql, python_canonical
from underseal.canonical import canonicalise
from underseal.errors import CanonicalError
from underseal.testing import DictConnection

LIMITS = [
    ('{"a":"' + "x" * 65_529 + '"}', "at most 65536 bytes of canonical JSON, found 65537"),
    ("{}" + " " * 393_215, "at most 393216 bytes of JSON text, found 393217"),
    ('{"a":' + "[" * 64 + "]" * 64 + "}", "at most 64 levels of nesting, found 65"),
    ("[" * 32_000 + "]" * 32_000, "at most 64 levels of nesting, found 32000"),
]


@pytest.mark.clause("H1.2d")
@pytest.mark.parametrize(("text", "words"), LIMITS)
def test_limits_are_named(db: DictConnection, text: str, words: str) -> None:
    (answer,) = ask_sql(db, "canonical", [text])
    assert words in (answer.message or "")
    assert answer == python_canonical(text)


@pytest.mark.clause("H1.2c")
def test_no_nesting_breaks_the_stack(db: DictConnection) -> None:
    # Malformed all the same: had a parser seen them first, it would have said so or run out of stack.
    texts = ["[" * 200_000, '{"a":' * 70_000, "[{" * 100_000 + "x", '"' + "[" * 100 + '"' + "[" * 65]
    answers = ask_sql(db, "canonical", texts)
    assert [answer.reason for answer in answers] == ["too-deep"] * len(texts)
    assert answers == [python_canonical(text) for text in texts]


@pytest.mark.clause("H1.2c")
def test_hostile_quotes_are_scanned_in_one_pass(db: DictConnection) -> None:
    db.execute("set statement_timeout = '20s'")
    texts = ['\\"' * 190_000, '"' + "\\" * 390_000, '"\\' * 190_000 + "[" * 100, "[" * 65 + '"\\"' * 130_000]
    answers = ask_sql(db, "canonical", texts)
    assert {answer.reason for answer in answers} <= {"malformed", "too-deep"}
    assert answers == [python_canonical(text) for text in texts]


@pytest.mark.clause("H1.4b", "H1.6i")
def test_the_sqlstate_and_its_detail(db: DictConnection) -> None:
    with pytest.raises(psycopg.DatabaseError) as refused:
        db.execute("select underseal.canonical_json(%s)", ['{"a":[1.5]}'])
    assert refused.value.sqlstate == "US010"
    assert json.loads(refused.value.diag.message_detail or "") == {"reason": "float", "path": "/a/0"}
    assert str(refused.value).startswith("canonical JSON refused: float at /a/0: ")


@pytest.mark.clause("H1.6i")
def test_an_error_holds_no_value(db: DictConnection) -> None:
    for text in [
        '{"a":"hunter2", x}',
        '{"a":"hunter2\\u0000"}',
        '{"a":"hunter2\\ud800"}',
        '{"a":["hunter2", 1.5]}',
    ]:
        with pytest.raises(psycopg.DatabaseError) as refused:
            db.execute("select underseal.canonical_json(%s)", [text])
        diag = refused.value.diag
        assert "hunter2" not in f"{refused.value} {diag.message_detail} {diag.message_hint} {diag.context}"
        assert "hunter2" not in str(python_canonical(text))


@pytest.mark.clause("H1.6i")
def test_a_long_path_is_cut_alike(db: DictConnection) -> None:
    text = json.dumps({"k" * 511: 1.5}), json.dumps({"k" * 512: 1.5}), json.dumps({"\u00e9~" * 400: 1.5})
    answers = ask_sql(db, "canonical", text)
    assert answers == [python_canonical(one) for one in text]
    assert [len(answer.path or "") for answer in answers] == [512, 512, 512]


@pytest.mark.clause("H1.6e")
def test_text_that_is_not_unicode() -> None:
    with pytest.raises(CanonicalError) as refused:
        canonicalise('{"a":"\ud800"}')
    assert (refused.value.reason, refused.value.path) == ("lone-surrogate", "")


@pytest.mark.clause("H1.4a")
def test_settings_of_the_caller_change_nothing(db: DictConnection) -> None:
    text = '{"b":"\\u0041\\u030a\\u001f","a":[null,"\\ud83d\\ude00"],"\\uff5e":1,"\\ud83d\\ude00":2}'
    (before,) = ask_sql(db, "canonical", [text])
    db.execute("set search_path = pg_temp, public")
    db.execute("set datestyle = 'German'")
    db.execute("set standard_conforming_strings = off")
    assert ask_sql(db, "canonical", [text]) == [before] == [python_canonical(text)]
