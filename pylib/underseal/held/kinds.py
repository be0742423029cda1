"""One type version as the request and the run handle it, whoever provides it.

`PythonKind` stands for a `Provider` and the method it gates; `sqlkind.SqlKind` for SQL functions.
The sequence of a run (sequence.py) knows neither: it knows `Kind`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Protocol

from pydantic import BaseModel, SecretBytes, SecretStr, ValidationError
from pydantic_core import to_jsonable_python

from underseal.canonical import canonical_json, hides, normalise, redact, schema_flaw
from underseal.errors import ParametersRefused, ProviderRefused
from underseal.foundation.steps import Steps, call
from underseal.held.claim import Claim
from underseal.held.model import Effect, Mode, Principal, State
from underseal.held.provider import Provider
from underseal.held.replay import replay_steps
from underseal.held.schemas import bare, lost_null

Schema = Mapping[str, Any]


class Kind(Protocol):
    """A type version: what it is, its parameters in their three shapes, and what to ask of it.

    Attributes:
        type, version, mode: what it is.
        schema: JSON Schema of the parameters.
        salted: whether the hash needs a salt, because the redacted copy can differ.
        drifting: members of the effect that may differ at the run.
        functions: the SQL functions that do it, as a request's seal names them; None where code here does.
    """

    type: str
    version: int
    mode: Mode
    schema: Schema
    salted: bool
    drifting: frozenset[str]
    functions: list[str] | None

    def canonical(self, params: Any) -> str:
        """Validate and normalise parameters; their canonical text."""
        ...

    def arguments(self, canonical: str) -> Any:
        """Parameters as the provider wants them, from their canonical text."""
        ...

    def redacted(self, canonical: str) -> str:
        """What approvers see of them, as canonical text."""
        ...

    def estimate(self, principal: Principal, arguments: Any) -> Steps[Effect]:
        """Ask what a run would do."""
        ...

    def check_run(self, principal: Principal, arguments: Any) -> Steps[str | None]:
        """Ask whether it agrees to a run."""
        ...

    def as_requester(
        self, principal: Principal, steps: Callable[[], Steps[Any]], *, keep: bool
    ) -> Steps[Any]:
        """Carry steps out with the rights of the requester, where the database gives them.

        Parameters:
            principal: the requester.
            steps: what is to be done.
            keep: whether what they change in the database stays.
        """
        ...

    def run(self, claim: Claim, principal: Principal, arguments: Any, canonical: str) -> Steps[Any]:
        """Do it."""
        ...

    def failure(self, error: Exception) -> tuple[State, str, str]:
        """State, reason and detail to record for an exception; never its arguments."""
        ...


class PythonKind:
    """A `Provider` and the gated method it belongs to; see `Kind`."""

    functions: list[str] | None = None

    def __init__(self, provider: Provider[Any], method: Callable[..., Any] | None = None) -> None:
        """Judge the provider.

        Parameters:
            provider: the provider.
            method: the public method, gated; a run calls it.

        Errors:
            ProviderRefused: `parameters` (the model admits a float, or has another flaw), or `incomplete`
                (a class attribute is missing).
        """
        self.provider = provider
        self.method = method
        for name in ("type", "version", "params", "policy"):
            if not hasattr(provider, name):
                raise ProviderRefused(
                    "incomplete", f"{provider.__class__.__name__} must have a class attribute {name}"
                )
        self.type = provider.type
        self.version = provider.version
        self.mode = provider.mode
        self.drifting = frozenset(provider.drifting)
        self.schema: Schema = bare(provider.params.model_json_schema(mode="validation"))
        _judge_schema(provider, self.schema)
        self.salted = provider.__class__.redact is not Provider.redact or hides(self.schema)

    def canonical(self, params: Any) -> str:
        """Canonical text of a model, or of whatever the model validates.

        Errors:
            ParametersRefused: the model refuses them, or they come back from the canonical form as others.
            CanonicalError: they have no canonical form.
        """
        text = self.canonical_of(params)
        if self.canonical_of(self.arguments(text)) != text:
            raise ParametersRefused(
                f"the parameters of {self.type} do not come back from their canonical form as they were: "
                "a validator or a default of the model changes them; make it keep what it has already made"
            )
        return text

    def canonical_of(self, params: Any) -> str:
        """Canonical text without the round trip: what a replay compares with the opened bytes."""
        model = params if isinstance(params, self.provider.params) else self._validated(params)
        # Without warnings: those of pydantic show the value, which may be a secret; the round trip judges it.
        value = _plain(model.model_dump(mode="python", by_alias=True, warnings=False))
        return canonical_json(normalise(self.schema, value))

    def arguments(self, canonical: str) -> Any:
        """The parameter model."""
        return self._validated(json.loads(canonical))

    def redacted(self, canonical: str) -> str:
        """The provider's redaction, or the schema's."""
        own = self.provider.redact(self.arguments(canonical))
        if own is None:
            return canonical_json(redact(self.schema, json.loads(canonical)))
        return canonical_json(_plain(dict(own)))

    def estimate(self, principal: Principal, arguments: Any) -> Steps[Effect]:
        """Ask the provider."""
        effect = yield from call(self.provider.estimate, principal, arguments)
        if not isinstance(effect, Effect):
            raise TypeError(f"{self.provider.__class__.__name__}.estimate must return an Effect")
        return effect

    def check_run(self, principal: Principal, arguments: Any) -> Steps[str | None]:
        """Ask the provider."""
        answer: str | None = yield from call(self.provider.check_run, principal, arguments)
        return answer

    def as_requester(
        self,
        principal: Principal,  # noqa: ARG002
        steps: Callable[[], Steps[Any]],
        *,
        keep: bool,  # noqa: ARG002
    ) -> Steps[Any]:
        """As they are: the rights of the requester are the method's own affair."""
        return steps()

    def run(self, claim: Claim, principal: Principal, arguments: Any, canonical: str) -> Steps[Any]:
        """Call the gated method under a replay ticket."""
        assert self.method is not None, "a kind that is claimed has its method"
        return replay_steps(claim, self.method, principal, arguments, canonical)

    def failure(self, error: Exception) -> tuple[State, str, str]:
        """The type's name, and the message where the provider calls it safe (clauses H2.4, H6.8)."""
        name = error.__class__.__name__
        detail = f"{name}: {error}" if isinstance(error, self.provider.safe_errors) else name
        if isinstance(error, PermissionError):
            return "REFUSED", "permission-denied", detail
        return "FAILED", "exception", detail

    def _validated(self, params: Any) -> BaseModel:
        if (path := _first_float(params, "")) is not None:
            # A lenient model would turn 5.0 into 5, and what was asked for would not be what is held.
            raise ParametersRefused(f"the parameters of {self.type} are not valid", [(path, "float")])
        try:
            # JSON mode, since a UUID or an instant may come as text; strict models stay strict about the rest.
            if isinstance(params, Mapping):
                return self.provider.params.model_validate_json(_json_of(params))
            return self.provider.params.model_validate(params)
        except ValidationError as error:
            faults = [("".join(f"/{part}" for part in one["loc"]), one["type"]) for one in error.errors()]
        # Outside the handler: the validation error holds the values, and must not be chained.
        raise ParametersRefused(f"the parameters of {self.type} are not valid", faults)


def _json_of(params: Mapping[str, Any]) -> str:
    return json.dumps(_plain(dict(params)), default=to_jsonable_python)


def _plain(value: Any) -> Any:
    """A dumped model as values that have a canonical form; secrets come out, since the seal is where they go."""
    if isinstance(value, SecretStr | SecretBytes):
        return _plain(value.get_secret_value())
    if isinstance(value, Enum):
        return _plain(value.value)
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if (
        isinstance(value, str | int | float | bool | set | frozenset | bytes)
        or value is None
        or _is_timed(value)
    ):
        return value
    return to_jsonable_python(value)


def _first_float(value: Any, path: str) -> str | None:
    if isinstance(value, float):
        return path
    if isinstance(value, Mapping):
        pairs = list(value.items())
    elif isinstance(value, list | tuple):
        pairs = list(enumerate(value))
    else:
        return None
    found = (_first_float(one, f"{path}/{name}") for name, one in pairs)
    return next((one for one in found if one is not None), None)


def _is_timed(value: Any) -> bool:
    return value.__class__.__name__ in ("datetime", "UUID")


def _judge_schema(provider: Provider[Any], schema: Schema) -> None:
    name = provider.__class__.__name__
    flaw, path = schema_flaw(schema), ""
    if flaw is None:
        path = lost_null(schema) or ""
        if not path:
            return
        flaw = (
            f"the parameter schema at {path} is required and may be null, "
            "and a null member is left out of the canonical form; give it the default None"
        )
    raise ProviderRefused("parameters", f"{name} cannot be gated: {flaw}", path)
