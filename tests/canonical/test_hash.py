"""The hash of parameters: frozen digests, and what is refused as its input."""

from __future__ import annotations

import hashlib
from typing import Any

import psycopg
import pytest

from underseal.canonical import params_hash
from underseal.errors import CanonicalError
from underseal.testing import DictConnection

CANONICAL = '{"amount":1000,"to":"ann"}'
# printf 'payout.send\n1\n{"amount":1000,"to":"ann"}' | sha256sum
DIGEST = "b618b109e7ca99b505353e338b7972fd89c04fd70935501366f74e1f76b23b09"
# the same, then \n and 32 bytes of 0x07
SALTED = "22af13f49a37c6382fbc0e093568f4b366dcb7f899ae053999ffc2136485a6d7"
SALT = b"\x07" * 32


def _sql_hash(db: DictConnection, *args: Any) -> str:
    row = db.execute("select underseal.params_hash(%s, %s, %s, %s) as hash", args).fetchone()
    assert row is not None
    return str(row["hash"].hex())


@pytest.mark.clause("H1.3a", "H1.3c", "H1.4c")
def test_frozen_digests(db: DictConnection) -> None:
    assert params_hash("payout.send", 1, CANONICAL).hex() == DIGEST
    assert params_hash("payout.send", 1, CANONICAL, SALT).hex() == SALTED
    assert _sql_hash(db, "payout.send", 1, CANONICAL, None) == DIGEST
    assert _sql_hash(db, "payout.send", 1, CANONICAL, SALT) == SALTED


@pytest.mark.clause("H1.3a")
def test_the_salt_is_optional_in_sql(db: DictConnection) -> None:
    row = db.execute("select underseal.params_hash('payout.send', 1, %s) as hash", [CANONICAL]).fetchone()
    assert row is not None
    assert row["hash"].hex() == DIGEST


@pytest.mark.clause("H1.1k")
def test_the_text_is_hashed_as_it_is(db: DictConnection) -> None:
    for text in (' {"b": 1.0, "a":null}', "e\u0301", ""):
        expected = hashlib.sha256(f"t\n7\n{text}".encode()).hexdigest()
        assert params_hash("t", 7, text).hex() == expected == _sql_hash(db, "t", 7, text, None)


@pytest.mark.clause("H1.3b")
@pytest.mark.parametrize("type_name", ["a\nb", "\n", "payout.send\n1"])
def test_a_type_with_a_line_feed(db: DictConnection, type_name: str) -> None:
    with pytest.raises(CanonicalError, match="without a line feed"):
        params_hash(type_name, 1, "{}")
    with pytest.raises(psycopg.DatabaseError, match="without a line feed") as refused:
        _sql_hash(db, type_name, 1, "{}", None)
    assert refused.value.sqlstate == "US010"


@pytest.mark.clause("H1.3c", "H1.7a")
@pytest.mark.parametrize("salt", [b"", b"x" * 31, b"x" * 33])
def test_a_salt_of_another_length(db: DictConnection, salt: bytes) -> None:
    with pytest.raises(CanonicalError, match=f"32 bytes, found {len(salt)}"):
        params_hash("a", 1, "{}", salt)
    with pytest.raises(psycopg.DatabaseError, match=f"32 bytes, found {len(salt)}"):
        _sql_hash(db, "a", 1, "{}", salt)


@pytest.mark.clause("H1.3a")
@pytest.mark.parametrize("args", [(None, 1, "{}"), ("a", None, "{}"), ("a", 1, None)])
def test_null_has_no_hash(db: DictConnection, args: tuple[Any, ...]) -> None:
    with pytest.raises(psycopg.DatabaseError, match="found null"):
        _sql_hash(db, *args, None)
