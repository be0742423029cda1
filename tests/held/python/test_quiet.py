"""What libraries would say about a parameter is not said."""

from __future__ import annotations

import warnings
from datetime import timedelta

import pytest
from pydantic import BaseModel, Field

from underseal import CanonicalError, Policy, Provider
from underseal.held.kinds import PythonKind

SECRET = "hunter2-hunter2"


class PinParams(BaseModel):
    """A secret that is no text."""

    name: str
    pin: int = Field(json_schema_extra={"writeOnly": True})


class PinSet(Provider[PinParams]):
    """Whatever; it is never run."""

    type = "pin.set"
    version = 1
    params = PinParams
    policy = Policy(approvers=("ann",), hold_for=timedelta(hours=1), run_within=timedelta(hours=1))


@pytest.mark.clause("H2.4b")
def test_a_parameter_of_the_wrong_type_is_in_no_warning() -> None:
    params = PinParams(name="ann", pin=1)
    params.pin = SECRET  # type: ignore[assignment]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with pytest.raises(CanonicalError) as refused:
            PythonKind(PinSet()).canonical(params)
    assert SECRET not in f"{[one.message for one in said]} {refused.value!r}"
    assert (refused.value.__cause__, refused.value.__context__) == (None, None)
