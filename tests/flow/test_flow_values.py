"""What a log can hold, and errors in one shape."""

from __future__ import annotations

import asyncio
import enum
import json
import math
from datetime import datetime
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from underseal.errors import FlowError
from underseal.flow.context import FlowContext
from underseal.flow.definition import Flows, Retry, flow
from underseal.flow.operation import ChildCall, HoldCall, Operation, StepCall
from underseal.flow.step import current_step
from underseal.flow.values import DEPTH, LIMIT, NotRecordable, as_recorded, error_of, text_of


def nested(levels: int, inner: Any = None) -> Any:
    """Lists in lists."""
    value: Any = [] if inner is None else [inner]
    for _ in range(levels - 1):
        value = [value]
    return value


class Order(BaseModel):
    """What people give back."""

    total: int


class Colour(enum.StrEnum):
    """An enumeration of texts."""

    RED = "red"


@pytest.mark.clause("E5a")
@pytest.mark.parametrize(
    ("value", "read"),
    [
        (None, None),
        (True, True),
        (0, 0),
        (-0.0, -0.0),
        (10**30, 10**30),
        (1.5, 1.5),
        ("ä☃😀", "ä☃😀"),
        ((1, (2,)), [1, [2]]),
        ({"a": (1,)}, {"a": [1]}),
        ({1: "a"}, {"1": "a"}),
        ({None: 1, True: 2}, {"null": 1, "true": 2}),
        (Colour.RED, "red"),
        ({Colour.RED: 1}, {"red": 1}),
        ("\\u0000", "\\u0000"),
        ("\\\\u0000", "\\\\u0000"),
        ("\x01", "\x01"),
        ({1: "a", "1": "b"}, {"1": "b"}),
        (math.pi, math.pi),
        (1e308, 1e308),
        ("'\"\\/", "'\"\\/"),
        ("", ""),
        ([], []),
        (
            ["__loomEnc", {"__loomEnc": 5, "$shredded": "true"}],
            ["__loomEnc", {"__loomEnc": 5, "$shredded": "true"}],
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_is_given_as_it_is_recorded(value: Any, read: Any) -> None:
    text = text_of(value, "it")
    assert as_recorded(value, text) == read == json.loads(text)
    assert type(as_recorded(value, text)) is type(read)


@pytest.mark.clause("E6a")
@pytest.mark.parametrize(
    ("value", "said"),
    [
        (math.nan, "finite"),
        (math.inf, "finite"),
        ([-math.inf], "finite"),
        ({math.nan: 1}, "finite"),
        ({1, 2}, "JSON"),
        (b"x", "bytes"),
        (datetime(2026, 1, 1), "datetime"),
        (object(), "object"),
        ({(1, 2): 3}, "JSON"),
        (Order(total=1), "Order"),
        ({"o": Order(total=1)}, "JSON"),
        (10**5000, "JSON"),
        ("a\0", "U+0000"),
        ({"\0": 1}, "U+0000"),
        ("\\\0", "U+0000"),
        ("\\\\\0", "U+0000"),
        ("\ud800", "surrogate"),
        ({"\udfff": 1}, "surrogate"),
        ("x" * (LIMIT + 1), "bytes"),
        ("ä" * (LIMIT // 2 + 1), "bytes"),
        (nested(DEPTH + 1), "levels"),
        (nested(100_000), "levels"),
        ({"__loomEnc": "x"}, "envelope"),
        ([{"a": {"$shredded": True}}], "envelope"),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) and value.isidentifier() else type(value).__name__,
)
def test_what_a_log_cannot_hold_is_refused_in_words(value: Any, said: str) -> None:
    with pytest.raises(NotRecordable, match="expected the result of step s") as caught:
        text_of(value, "the result of step s")
    assert said in str(caught.value)
    assert len(str(caught.value)) < 300


def test_a_value_that_holds_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(NotRecordable):
        text_of(value, "it")


def test_the_limits_themselves_are_allowed() -> None:
    assert len(text_of("x" * (LIMIT - 2), "it")) == LIMIT
    text_of(nested(DEPTH), "it")
    text_of(nested(DEPTH - 2, {"a": 1}), "it")


@settings(max_examples=60, deadline=None)
@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
))  # fmt: skip
def test_what_is_recorded_is_read_the_same(value: Any) -> None:
    try:
        text = text_of(value, "it")
    except NotRecordable:
        return
    assert json.loads(text) == as_recorded(value, text)
    assert "\\u0000" not in json.dumps(value, ensure_ascii=False).replace("\\\\", "")


# -- errors --------------------------------------------------------------------------------------------


class OddError(Exception):
    """Its constructor takes more than a message."""

    def __init__(self, code: int, *, detail: str) -> None:
        super().__init__()
        self.code, self.detail = code, detail

    def __str__(self) -> str:
        return f"{self.code}: {self.detail}"

    def __reduce__(self) -> Any:
        raise TypeError("cannot be pickled")


class MuteError(Exception):
    """It cannot say what it is."""

    def __str__(self) -> str:
        raise KeyError("nothing to say")


class WrongError(Exception):
    """It says no text."""

    def __str__(self) -> Any:
        return 5


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ValueError("no"), {"type": "ValueError", "message": "no"}),
        (OddError(5, detail="x"), {"type": "OddError", "message": "5: x"}),
        (MuteError(), {"type": "MuteError", "message": "(its message could not be made: KeyError)"}),
        (WrongError(), {"type": "WrongError", "message": "(its message could not be made: TypeError)"}),
        (SystemExit(3), {"type": "SystemExit", "message": "3"}),
        (ValueError("a\0b\ud800"), {"type": "ValueError", "message": "a\ufffdb?"}),
        (ValueError("x" * 10_000), {"type": "ValueError", "message": "x" * 4000}),
        (
            ExceptionGroup("both", [ValueError()]),
            {"type": "ExceptionGroup", "message": "both (1 sub-exception)"},
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_error_has_one_shape(error: BaseException, told: dict[str, str]) -> None:
    assert error_of(error) == told
    text_of(error_of(error), "an error")


def test_a_traceback_is_kept_only_if_it_is_asked_for() -> None:
    try:
        raise MuteError
    except MuteError as error:
        told = error_of(error, keep_traceback=True)
    assert "test_a_traceback_is_kept" in told["traceback"]
    text_of(told, "an error")


# -- flows and retries ---------------------------------------------------------------------------------


async def body(ctx: FlowContext) -> None:
    """A flow."""


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: flow(""),
        lambda: flow("x" * 201),
        lambda: flow("x", version=0),
        lambda: flow("x", journal=cast("Any", "odd")),
        lambda: flow("x")(cast("Any", lambda ctx: None)),
        lambda: flow("x")(_three),
        lambda: flow("x")(_none),
        lambda: Retry(attempts=0),
        lambda: Retry(factor=0.5),
        lambda: Flows([cast("Any", body)]),
        lambda: Flows([flow("x")(body), flow("x")(body)]),
        lambda: Flows().newest("x"),
        lambda: Flows([flow("x", version=2, also_drives=[1])(body), flow("x")(body)]),
    ],
)
def test_flows_that_make_no_sense_are_refused(wrong: Any) -> None:
    with pytest.raises(FlowError, match="expected"):
        wrong()


async def _three(a: Any, b: Any, c: Any) -> None:
    """Takes too much."""


async def _none() -> None:
    """Takes too little."""


@pytest.mark.clause("E6g")
def test_several_versions_of_a_flow_stand_side_by_side() -> None:
    old, new = flow("x", version=1)(body), flow("x", version=3, also_drives=[2])(body)
    known = Flows([new, old, new])
    assert known.find("x", 1) is old
    assert known.find("x", 2) is known.find("x", 3) is known.newest("x") is new
    assert known.find("x", 4) is None
    assert (known.names(), known.versions(), len(known)) == (["x"], [3], 1)


def test_waits_between_tries_grow_and_are_bounded() -> None:
    retry = Retry(attempts=9)
    assert [retry.wait_after(n) for n in (1, 2, 3, 4)] == [1, 2, 4, 8]
    assert retry.wait_after(10_000) == 3600


def test_who_asks_for_the_step_outside_of_one_is_told() -> None:
    with pytest.raises(FlowError, match="inside a step"):
        current_step()


async def test_no_repr_shows_what_a_flow_was_given() -> None:
    secret = "tell nobody"
    calls: list[StepCall | ChildCall | HoldCall] = [
        StepCall(print, (secret,), Retry(), None),
        HoldCall("t", {"a": secret}),
        ChildCall("c", "f", 1, secret),
    ]
    for call in calls:
        future = asyncio.get_running_loop().create_future()
        future.set_result(secret)
        assert secret not in repr(Operation(1, "step", "s", future, call))
