"""What a flow asks for: an operation with a number, which its results in the log refer to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from underseal.flow.definition import Retry

if TYPE_CHECKING:
    from underseal.flow.arms import Arm

Kind: TypeAlias = Literal["step", "now", "child", "hold", "wait"]


@dataclass(frozen=True, slots=True)
class StepCall:
    """A function to call, and how.

    Attributes:
        function, args: what is called.
        retry: how often.
        timeout: how long one try may take; None for any time.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...] = field(repr=False)
    retry: Retry
    timeout: timedelta | None


@dataclass(frozen=True, slots=True)
class ChildCall:
    """An execution to start in the same chain.

    Attributes:
        execution_id: its id, which follows from the operation's number.
        flow, version: what drives it.
        value: its input.
    """

    execution_id: str
    flow: str
    version: int
    value: Any = field(repr=False)


@dataclass(frozen=True, slots=True)
class HoldCall:
    """An operation to be held for approval.

    Attributes:
        type: its type.
        params: its parameters.
    """

    type: str
    params: Any = field(repr=False)


@dataclass(slots=True, eq=False)
class Operation:
    """One thing that a flow asked for and has not got yet.

    Attributes:
        number: its place among all that the flow asked for, from 1.
        kind: what it is.
        name: the step's name; for a wait its kind and name, such as `receive:decision`; the flow or type otherwise.
        future: what the flow awaits, on the flow's own loop.
        call: what is to be done outside; None for a wait.
        arms: of a wait, what can answer it.
        attempts: of a step, how many tries have failed.
        intent: of a hold, the operation id that was recorded before it was requested.
        resting: of a step, seconds until the next try, where these are waited for by a park.
        began: by the driver's monotonic clock, when it was asked for; None for one that was replayed.
    """

    number: int
    kind: Kind
    name: str
    future: asyncio.Future[Any] = field(repr=False)
    call: StepCall | ChildCall | HoldCall | None = None
    arms: tuple[Arm[Any], ...] = ()
    attempts: int = 0
    intent: str | None = None
    resting: float | None = None
    began: float | None = None

    @property
    def wait_id(self) -> str:
        """By what the log knows what it waits for."""
        if self.kind == "step":
            return f"{self.number}:retry:{self.attempts}"
        return f"{self.number}:{self.name}"

    @property
    def waits(self) -> bool:
        """Whether nothing but an answer or time can move it."""
        return self.kind == "wait" or self.resting is not None
