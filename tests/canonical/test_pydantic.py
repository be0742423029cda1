"""What pydantic writes for a parameter model is understood: normalised, redacted, refused, in both languages."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from pydantic import UUID4, AwareDatetime, BaseModel, ConfigDict, Field, SecretStr

from tests.canonical.both import Answer, ask_sql, python_fitted
from underseal.canonical import canonical_json, check_schema, hides, normalise, redact
from underseal.testing import DictConnection

ID = UUID("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11")
NOON = datetime(2026, 1, 1, 14, tzinfo=timezone(timedelta(hours=2)))


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Party(BaseModel):
    model_config = ConfigDict(extra="forbid")
    id: UUID4
    pin: SecretStr | None = None
    sub: Party | None = None


class Card(BaseModel):
    kind: Literal["card"]
    number: Annotated[str, Field(json_schema_extra={"writeOnly": True})]


class Transfer(BaseModel):
    kind: Literal["transfer"]
    number: str
    due: AwareDatetime


class Payout(BaseModel):
    id: UUID
    at: AwareDatetime | None = None
    amount: int
    colour: Colour = Colour.RED
    party: Party
    pay: Annotated[Card | Transfer, Field(discriminator="kind")]
    limits: dict[str, int] = {}
    by_id: dict[UUID, int] = {}
    pair: tuple[int, SecretStr] | None = None
    many: list[Party] = []
    flag: bool | None = None


SCHEMA = Payout.model_json_schema(mode="validation")
VALUE: dict[str, Any] = {
    "id": str(ID).upper(),
    "at": "2026-01-01T14:00:00+02:00",
    "amount": 5,
    "colour": "blue",
    "party": {"id": str(ID).upper(), "pin": "1234", "sub": {"id": str(ID), "pin": "5678", "sub": None}},
    "pay": {"kind": "transfer", "number": "DE00", "due": "2026-01-01T14:00:00.50+02:00"},
    "limits": {"b": 1, "a": 2},
    "by_id": {str(ID): 1},
    "pair": [1, "9999"],
    "many": [{"id": str(ID).upper(), "pin": "0000"}],
    "flag": None,
}
NORMAL: dict[str, Any] = {
    "id": str(ID),
    "at": "2026-01-01T12:00:00Z",
    "amount": 5,
    "colour": "blue",
    "party": {"id": str(ID), "pin": "1234", "sub": {"id": str(ID), "pin": "5678"}},
    "pay": {"kind": "transfer", "number": "DE00", "due": "2026-01-01T12:00:00.5Z"},
    "limits": {"a": 2, "b": 1},
    "by_id": {str(ID): 1},
    "pair": [1, "9999"],
    "many": [{"id": str(ID), "pin": "0000"}],
}
REDACTED: dict[str, Any] = {
    **NORMAL,
    "party": {"id": str(ID), "sub": {"id": str(ID)}},
    "pair": [1, None],
    "many": [{"id": str(ID)}],
}


@pytest.mark.clause("H1.1d", "H1.1f", "H1.1j", "H1.4a")
def test_normalised(db: DictConnection) -> None:
    check_schema(SCHEMA)
    assert hides(SCHEMA)
    assert normalise(SCHEMA, VALUE) == NORMAL
    assert ask_sql(db, "normalise", [json.dumps(VALUE)], [SCHEMA]) == [Answer(canonical_json(NORMAL))]


@pytest.mark.clause("H1.7a", "H1.7c")
def test_redacted(db: DictConnection) -> None:
    assert redact(SCHEMA, VALUE) == REDACTED
    assert ask_sql(db, "redact", [json.dumps(VALUE)], [SCHEMA]) == [Answer(canonical_json(REDACTED))]
    row = db.execute(
        "select underseal._redaction_leak(%(s)s::jsonb, %(r)s::jsonb) as redacted,"
        " underseal._redaction_leak(%(s)s::jsonb, %(n)s::jsonb) as whole",
        {"s": json.dumps(SCHEMA), "r": json.dumps(REDACTED), "n": json.dumps(NORMAL)},
    ).fetchone()
    assert row == {"redacted": None, "whole": "/many/0/pin"}


@pytest.mark.clause("H1.7a")
def test_the_branch_of_a_union_decides_what_is_hidden(db: DictConnection) -> None:
    value = {**VALUE, "pay": {"kind": "card", "number": "4111"}}
    shown = {**REDACTED, "pay": {"kind": "card"}}
    assert redact(SCHEMA, value) == shown
    assert ask_sql(db, "redact", [json.dumps(value)], [SCHEMA]) == [Answer(canonical_json(shown))]


@pytest.mark.clause("H1.1j", "H1.4a")
def test_python_types_and_text_give_the_same() -> None:
    typed = {**VALUE, "id": ID, "at": NOON, "pay": {**VALUE["pay"], "due": NOON.replace(microsecond=500_000)}}
    assert normalise(SCHEMA, typed) == NORMAL
    assert normalise(SCHEMA, {**VALUE, "at": NOON.astimezone(UTC)}) == NORMAL


UNFIT: list[tuple[dict[str, Any], str, str]] = [
    ({"extra": 1}, "undeclared", "/extra"),
    ({"party": {"id": str(ID), "extra": 1}}, "undeclared", "/party/extra"),
    ({"pay": {"kind": "card", "due": "x"}}, "undeclared", "/pay/due"),
    ({"amount": "5"}, "type-mismatch", "/amount"),
    ({"amount": True}, "type-mismatch", "/amount"),
    ({"colour": "green"}, "type-mismatch", "/colour"),
    ({"id": "not one"}, "uuid", "/id"),
    ({"at": "2026-01-01T14:00:00"}, "instant", "/at"),
    ({"by_id": {str(ID).upper(): 1}}, "member-name", f"/by_id/{str(ID).upper()}"),
    ({"by_id": {"x": 1}}, "uuid", "/by_id/x"),
    ({"pair": [1, "x", 2]}, "undeclared", "/pair/2"),
    ({"limits": {"a": None, "b": 1.5}}, "float", "/limits/b"),
]


@pytest.mark.clause("H1.4b", "H1.6i")
def test_unfit(db: DictConnection) -> None:
    texts = [json.dumps({**VALUE, **change}) for change, _, _ in UNFIT]
    answers = ask_sql(db, "normalise", texts, [SCHEMA] * len(UNFIT))
    assert [(answer.reason, answer.path) for answer in answers] == [unfit[1:] for unfit in UNFIT]
    assert answers == [python_fitted(SCHEMA, text, redacting=False) for text in texts]


class Named(BaseModel):
    colours: dict[Colour, int]


@pytest.mark.clause("H1.4b")
def test_names_out_of_an_enum(db: DictConnection) -> None:
    schema = Named.model_json_schema()
    texts = ['{"colours":{"red":1}}', '{"colours":{"green":1}}']
    answers = ask_sql(db, "normalise", texts, [schema, schema])
    assert answers == [python_fitted(schema, text, redacting=False) for text in texts]
    assert [answer.reason for answer in answers] == [None, "member-name"]


class Ambiguous(BaseModel):
    who: UUID | str


@pytest.mark.clause("H1.1j", "H1.4b")
def test_what_may_be_a_uuid_is_not_guessed(db: DictConnection) -> None:
    schema = Ambiguous.model_json_schema()
    texts = [json.dumps({"who": who}) for who in (str(ID), str(ID).upper(), "ann")]
    answers = ask_sql(db, "normalise", texts, [schema] * 3)
    assert answers == [python_fitted(schema, text, redacting=False) for text in texts]
    assert [answer.reason for answer in answers] == [None, "ambiguous", None]


class Price(BaseModel):
    amount: Decimal


class Ratio(BaseModel):
    ratio: float


class Nested(BaseModel):
    prices: list[dict[str, Price | None]]


class Anything(BaseModel):
    value: Any


class Free(BaseModel):
    value: dict[str, object]


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")


class SecretNames(BaseModel):
    value: dict[SecretStr, int]


@pytest.mark.clause("H1.5a")
def test_models_that_cannot_be_held(db: DictConnection) -> None:
    models: list[type[BaseModel]] = [Price, Ratio, Nested, Anything, Free, Open, SecretNames]
    given = [model.model_json_schema() for model in models]
    answers = ask_sql(db, "normalise", ["{}"] * len(given), given)
    assert [(answer.reason, answer.path) for answer in answers] == [("schema", "")] * len(given)
    assert answers == [python_fitted(schema, "{}", redacting=False) for schema in given]


class Empty(BaseModel):
    pass


@pytest.mark.clause("H1.5a")
def test_no_parameters_at_all(db: DictConnection) -> None:
    schema = Empty.model_json_schema()
    check_schema(schema)
    assert [answer.text for answer in ask_sql(db, "normalise", ["{}"], [schema])] == ["{}"]
