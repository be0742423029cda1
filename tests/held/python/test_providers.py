"""What can be gated, and what is refused when it is."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel, Field, SecretStr, field_validator

from tests.held.python.worlds import PayoutParams, PayoutSend, Service, TokenParams
from underseal import (
    AsyncUnderseal,
    Effect,
    MemoryKeyRing,
    ParametersRefused,
    Policy,
    Provider,
    ProviderRefused,
    Underseal,
)
from underseal.held.kinds import PythonKind
from underseal.held.schemas import bare


@pytest.fixture
def us() -> Iterator[Underseal]:
    """A client that never connects."""
    with Underseal("host=127.0.0.1 port=1", keys=MemoryKeyRing.with_all()) as client:
        yield client


def kind_of(model: type[BaseModel], **attributes: Any) -> PythonKind:
    """A kind with this parameter model."""
    body = {"type": "x.y", "version": 1, "params": model, "policy": Policy(approvers=("ann",)), **attributes}
    return PythonKind(type("Made", (Provider,), body)())


class Inner(BaseModel):
    weights: list[float] = []


class WithFloat(BaseModel):
    amount: float


class WithNestedFloat(BaseModel):
    inner: Inner | None = None


class WithDecimal(BaseModel):
    amount: Decimal


class WithAnything(BaseModel):
    data: dict[str, Any]


@pytest.mark.clause("H1.5a")
@pytest.mark.parametrize("model", [WithFloat, WithNestedFloat, WithDecimal, WithAnything])
def test_a_model_that_admits_a_float_is_refused(us: Underseal, model: type[BaseModel]) -> None:
    provider = type("Made", (PayoutSend,), {"params": model})(Service())
    with pytest.raises(ProviderRefused) as refused:
        us.gate(provider)
    assert refused.value.reason == "parameters"


class RequiredNull(BaseModel):
    note: str | None


class RequiredNullBelow(BaseModel):
    below: list[RequiredNull]


@pytest.mark.parametrize(
    ("model", "path"),
    [(RequiredNull, "/properties/note"), (RequiredNullBelow, "/$defs/RequiredNull/properties/note")],
)
def test_a_required_member_that_may_be_null_is_refused(model: type[BaseModel], path: str) -> None:
    with pytest.raises(ProviderRefused) as refused:
        kind_of(model)
    assert refused.value.path == path


def test_one_method_a_type(us: Underseal) -> None:
    us.gate(PayoutSend(Service()))
    with pytest.raises(ProviderRefused) as refused:
        us.gate(PayoutSend(Service()))
    assert refused.value.reason == "type-taken"


@pytest.mark.parametrize("missing", ["type", "version", "params", "policy"])
def test_a_provider_says_what_it_is(missing: str) -> None:
    body = {"type": "x.y", "version": 1, "params": PayoutParams, "policy": Policy(approvers=("ann",))}
    del body[missing]
    with pytest.raises(ProviderRefused, match=missing):
        PythonKind(type("Made", (Provider,), body)())


async def test_a_method_belongs_to_its_client(us: Underseal) -> None:
    async def later(principal: Any, params: Any) -> None: ...

    def now(principal: Any, params: Any) -> None: ...

    with pytest.raises(TypeError, match="AsyncUnderseal"):
        us.gate(PayoutSend(Service()))(later)
    asynchronous = AsyncUnderseal("host=127.0.0.1 port=1", keys=MemoryKeyRing.with_all())
    with pytest.raises(TypeError, match="gate it with Underseal"):
        asynchronous.gate(PayoutSend(Service()))(now)  # type: ignore[arg-type]
    await asynchronous.close()


def test_a_provider_must_estimate() -> None:
    with pytest.raises(NotImplementedError, match="estimate"):
        Provider[PayoutParams]().estimate(None, None)  # type: ignore[arg-type]


class Colour(enum.StrEnum):
    RED = "red"


class Everything(BaseModel):
    id: UUID
    at: datetime
    colour: Colour
    secret: SecretStr
    tags: tuple[str, ...] = ()
    renamed: int = Field(default=0, alias="re-named")
    below: list[TokenParams] = []


def test_a_model_has_one_canonical_form_however_it_is_given() -> None:
    kind = kind_of(Everything)
    at = datetime(2026, 1, 1, 1, tzinfo=timezone(timedelta(hours=1)))
    below = [TokenParams(name="n", password=SecretStr("q"))]
    model = Everything(
        id=UUID("AAAAAAAA-0000-4000-8000-000000000000"), at=at, colour=Colour.RED, secret=SecretStr("p"), tags=("a",),
        below=below, **{"re-named": 3},
    )  # fmt: skip
    expected = (
        '{"at":"2026-01-01T00:00:00Z","below":[{"name":"n","password":"q"}],"colour":"red",'
        '"id":"aaaaaaaa-0000-4000-8000-000000000000","re-named":3,"secret":"p","tags":["a"]}'
    )
    assert kind.canonical(model) == expected
    raw = {
        "id": "AAAAAAAA-0000-4000-8000-000000000000", "at": "2026-01-01T01:00:00+01:00", "colour": "red", "secret": "p",
        "tags": ["a"], "re-named": 3, "below": [{"name": "n", "password": "q"}],
    }  # fmt: skip
    assert kind.canonical(raw) == expected
    assert kind.canonical({**raw, "at": at, "id": model.id}) == expected
    assert kind.arguments(expected) == model
    assert kind.redacted(expected) == (
        '{"at":"2026-01-01T00:00:00Z","below":[{"name":"n"}],"colour":"red",'
        '"id":"aaaaaaaa-0000-4000-8000-000000000000","re-named":3,"tags":["a"]}'
    )
    assert model.at.astimezone(UTC).hour == 0


class Growing(BaseModel):
    name: str

    @field_validator("name")
    @classmethod
    def grow(cls, name: str) -> str:
        return name + "!"


class Surprising(BaseModel):
    count: int | None = 5


@pytest.mark.parametrize(("model", "value"), [(Growing, {"name": "a"}), (Surprising, {"count": None})])
def test_parameters_that_do_not_come_back_as_they_were_are_refused(
    model: type[BaseModel], value: Any
) -> None:
    with pytest.raises(ParametersRefused, match="do not come back"):
        kind_of(model).canonical(value)


@pytest.mark.parametrize(
    "value", [{"cents": 5}, {"order": "o", "cents": "many"}, {"order": "o", "cents": 5.0}, 7, "x"]
)
def test_what_the_model_does_not_validate_is_refused(value: Any) -> None:
    with pytest.raises(ParametersRefused):
        kind_of(PayoutParams).canonical(value)


@pytest.mark.clause("H1.7a")
def test_what_can_be_hidden_is_salted() -> None:
    assert kind_of(PayoutParams).salted is False
    assert kind_of(TokenParams).salted is True
    assert kind_of(PayoutParams, redact=lambda self, params: None).salted is True


@pytest.mark.clause("H2.10e")
def test_redact_sees_the_parameters_and_nothing_else() -> None:
    seen: list[Any] = []

    def redact(self: Any, *given: Any) -> dict[str, int]:
        seen.append(given)
        return {"cents": 1}

    kind = kind_of(PayoutParams, redact=redact)
    assert kind.redacted('{"cents":5,"order":"o-1"}') == '{"cents":1}'
    assert seen == [(PayoutParams(order="o-1", cents=5),)]


def test_words_for_readers_are_no_part_of_the_schema() -> None:
    class Before(BaseModel):
        """One docstring."""

        title: str = Field(description="one", examples=["x"])
        description: int = Field(default=1, title="T")

    class After(BaseModel):
        """Another."""

        title: str
        description: int = 1

    before = bare(Before.model_json_schema())
    assert before == bare(After.model_json_schema())
    assert set(before["properties"]) == {"title", "description"}
    assert before["properties"]["description"]["default"] == 1


def test_an_estimate_must_be_an_effect() -> None:
    kind = kind_of(PayoutParams, estimate=lambda self, principal, params: {"pays": 1})
    steps = kind.estimate(None, None)  # type: ignore[arg-type]
    command: Any = next(steps)
    with pytest.raises(TypeError, match="must return an Effect"):
        steps.send(command.function(*command.args))
    assert Effect({"a": 1}, "k").state_key == "k"
