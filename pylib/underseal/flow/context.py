"""`ctx`: everything a flow may do that its log remembers."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NoReturn, ParamSpec, TypeVar, cast, overload
from uuid import UUID

from underseal.errors import FlowError
from underseal.flow.arms import Arm, Selected, Started, child_result, hold_result
from underseal.flow.definition import LAST_VERSION, Flow, Retry
from underseal.flow.ids import child_id
from underseal.flow.operation import ChildCall, HoldCall, StepCall
from underseal.flow.replay import ContinueAsNew
from underseal.seal.entropy import random_bytes

if TYPE_CHECKING:
    from underseal.flow.replay import Replay

T = TypeVar("T")
P = ParamSpec("P")

_ONCE: Final = Retry()
_CHILD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,59}")
_LONGEST_NAME: Final = 150
_LONGEST_MEMBER: Final = 90
"""Of the 100 characters that the kernel allows some are left for the numbers of continuations."""


class FlowContext:
    """What a flow's function is given. Its methods may be called from any of the flow's own tasks.

    Operations get numbers in the order of the calls, and begin at the call: two steps that are called before either is
    awaited run side by side.
    """

    __slots__ = ("_replay",)

    def __init__(self, replay: Replay) -> None:
        """Made by the runtime."""
        self._replay = replay

    # -- about this execution ----------------------------------------------------------------------

    @property
    def execution_id(self) -> str:
        """The id of this execution."""
        return self._replay.execution_id

    @property
    def owner(self) -> str:
        """The principal whose execution it is."""
        return self._replay.owner

    @property
    def version(self) -> int:
        """The flow version that the execution has at this place of its log; code that drives several asks it."""
        return self._replay.version

    @property
    def replaying(self) -> bool:
        """Whether this line ran before: for whoever logs, and for nothing that the flow decides by."""
        return self._replay.replaying

    # -- effects -----------------------------------------------------------------------------------

    @overload
    def run(
        self, name: str, function: Callable[..., Awaitable[T]], *args: Any,
        retry: Retry = ..., timeout: timedelta | None = ...,
    ) -> Awaitable[T]: ...  # fmt: skip
    @overload
    def run(
        self, name: str, function: Callable[..., T], *args: Any,
        retry: Retry = ..., timeout: timedelta | None = ...,
    ) -> Awaitable[T]: ...  # fmt: skip
    def run(
        self,
        name: str,
        function: Callable[..., Any],
        *args: Any,
        retry: Retry = _ONCE,
        timeout: timedelta | None = None,
    ) -> Awaitable[Any]:
        """Run a step: a function with effects, whose result is recorded once and never computed again.

        A crash while it runs makes it run again: use `current_step().key` where a repetition would matter.

        Parameters:
            name: 1 to 150 characters; a replay compares it.
            function: async or plain; a plain one runs in a thread. Its result must be JSON.
            args: its arguments.
            retry: how often it is tried, across crashes as well.
            timeout: how long one try may take. A plain function goes on in its thread; its result is not looked at.

        Returns: something to await; it has begun already.

        Errors (when awaited):
            StepError: the last try failed, or its result is no JSON.

        Source: clauses E5, E6.
        """
        _demand_name(name)
        return self._replay.begin("step", name, StepCall(function, args, retry, timeout)).future

    async def now(self) -> datetime:
        """The instant on the database's clock, recorded, in UTC."""
        text: str = await self._replay.begin("now", "now").future
        return datetime.fromisoformat(text)

    def random(self) -> float:
        """A number from 0 up to 1, drawn once and recorded before any step starts."""
        drawn: float = self._replay.value("random", lambda: int.from_bytes(random_bytes(7)) / 2**56)
        return drawn

    def uuid(self) -> UUID:
        """A random UUID, drawn once and recorded before any step starts."""
        return UUID(self._replay.value("uuid", lambda: str(UUID(bytes=random_bytes(16), version=4))))

    def child(
        self, flow: Flow | str, value: Any = None, *, name: str | None = None, version: int = 1
    ) -> Started[Any]:
        """Start a child execution in this chain, and wait for its end where this is awaited.

        It belongs to the same owner and lives in the same chain, so it is deleted with it. It goes on if this flow ends
        first, and is cancelled with it.

        Parameters:
            flow: the flow, or its name.
            value: its input, JSON.
            name: a letter, then letters, digits, `_` and `-`, at most 60; the flow's name if not given.
            version: of a flow that is given by name, from 1.

        Returns: an arm; await it, or select it. `id` is its execution id.

        Errors (when awaited):
            ChildFailed: it failed or was cancelled.

        Source: clause E6.
        """
        flow_name = flow.name if isinstance(flow, Flow) else flow
        _demand_version(version)
        label = name if name is not None else re.sub(r"[^A-Za-z0-9_-]+", "_", flow_name)[:60]
        if not _CHILD.fullmatch(label):
            raise FlowError(
                "expected a child's name to be a letter and at most 59 letters, digits, _ and -, found another: "
                "give `name`"
            )
        execution_id = child_id(self._replay.execution_id, label, self._replay.next_number)
        member = execution_id.partition("~")[2]
        if len(member) > _LONGEST_MEMBER:
            raise FlowError(f"expected children nested less deeply: the name {member[:40]}… grew too long")
        call = ChildCall(execution_id, flow_name, flow.version if isinstance(flow, Flow) else version, value)
        op = self._replay.begin("child", label, call)
        return Started(
            self._replay, f"child:{label}", "$child/",
            lambda payload: child_result(payload, execution_id), op.future, lambda known: known.partition("~")[2],
        )  # fmt: skip

    def hold(self, type: str, params: Any) -> Started[Any]:  # noqa: A002 -- what it is called everywhere
        """Have an operation held for approval, as the execution's owner, and wait for its end where this is awaited.

        Somebody else approves it; then it runs once, as the owner. Its end reaches the flow in the transaction that
        wrote it. If the flow is cancelled first, so is the operation.

        Parameters:
            type: the operation's type, of mode ON_APPROVAL.
            params: its parameters, JSON.

        Returns: an arm that gives the operation's result; `id` is the operation id once it is held.

        Errors (when awaited):
            HoldEnded: it was rejected, cancelled, expired, refused, failed, or its outcome is not known.
            StepError: it could not be requested.

        Source: clauses E6, H; DESIGN 8.
        """
        _demand_name(type)
        op = self._replay.begin("hold", type, HoldCall(type, params))
        return Started(self._replay, f"hold:{type}", "$hold/", hold_result, op.future, str)

    # -- waits -------------------------------------------------------------------------------------

    def sleep(
        self,
        duration: timedelta | None = None,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
    ) -> Arm[None]:
        """Wait for some time, by the database's clock; once it is parked, a crash does not prolong it.

        Parameters:
            duration, or days, hours, minutes and seconds: how long; 0 or more.
        """
        if duration is not None and not isinstance(cast("object", duration), timedelta):
            raise FlowError(
                "expected ctx.sleep(seconds=5) or ctx.sleep(timedelta(…)), found another kind of duration"
            )
        span = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds) + (duration or timedelta())
        if span < timedelta():
            raise FlowError("expected a duration of 0 or more, found a negative one")
        return Arm(self._replay, "sleep", {"for": span.total_seconds()}, lambda _: None)

    def receive(self, topic: str) -> Arm[Any]:
        """The next message of a topic, once, in the order in which they were sent.

        Parameters:
            topic: 1 to 150 characters, not beginning with `$`.
        """
        _demand_name(topic)
        if topic.startswith("$"):
            raise FlowError("expected a topic that does not begin with $, found one: those are the kernel's")
        return Arm(self._replay, f"receive:{topic}", {"topic": topic}, lambda payload: payload)

    def gate(self, name: str) -> Arm[Any]:
        """The answer to a gate: somebody resumes the execution at it.

        Parameters:
            name: 1 to 150 characters.
        """
        _demand_name(name)
        return Arm(self._replay, f"gate:{name}", {"gate": name}, lambda payload: payload)

    async def select(self, *arms: Arm[Any]) -> Selected:
        """Wait for the first of several arms; if several can be answered, the first named is.

        Parameters:
            arms: what to wait for.

        Returns: its place among them, and what it gave.
        """
        if not arms:
            raise FlowError("expected at least one arm to select, found none")
        index, payload = await self._replay.wait("select", arms)
        return Selected(index, arms[index].take(payload))

    # -- going on ----------------------------------------------------------------------------------

    def continue_as_new(
        self, value: Any = None, *, flow: Flow | str | None = None, version: int | None = None
    ) -> NoReturn:
        """End this execution, and start its successor with an empty log; the inbox goes on with it.

        Parameters:
            value: the successor's input.
            flow: another flow.
            version: another version of it, from 1; of a flow that is given as such, its own.

        Source: clause E6.
        """
        if version is not None:
            _demand_version(version)
        if isinstance(flow, Flow):
            raise ContinueAsNew(value, flow.name, flow.version)
        raise ContinueAsNew(value, flow, version)


def _demand_version(version: int) -> None:
    # it goes into the text of an item as it is
    if type(version) is not int or not 1 <= version <= LAST_VERSION:
        raise FlowError(f"expected a version from 1 to {LAST_VERSION}, found another")


def _demand_name(name: str) -> None:
    text = cast("object", name)
    if not isinstance(text, str) or not 1 <= len(text) <= _LONGEST_NAME or not text.isprintable():
        raise FlowError(f"expected a name of 1 to {_LONGEST_NAME} printable characters, found another")
