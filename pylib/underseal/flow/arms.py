"""What a flow can wait for: a message, an instant, a gate, a child's end, a held operation's end."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from underseal.errors import ChildFailed, FlowError, HoldEnded

if TYPE_CHECKING:
    import asyncio

    from underseal.flow.replay import Replay

T = TypeVar("T")


class Arm(Generic[T]):
    """Something to wait for: await it, or give it to `ctx.select` with others. It can be used once."""

    def __init__(self, replay: Replay, label: str, spec: dict[str, Any], take: Callable[[Any], T]) -> None:
        """Made by the context alone."""
        self._replay = replay
        self._label = label
        self._spec = spec
        self._take = take
        self._used = False

    def __await__(self) -> Generator[Any, None, T]:
        """Wait for this alone."""
        picked = yield from self._replay.wait(self._label, (self,)).__await__()
        return self._take(picked[1])

    def __repr__(self) -> str:
        """Its kind and name."""
        return f"<{self._label}>"

    def use(self) -> None:
        """Count it as used.

        Errors:
            FlowError: it was.
        """
        if self._used:
            raise FlowError(
                f"expected {self._label} to be waited for once, found a second time: make another one"
            )
        self._used = True

    def take(self, payload: Any) -> T:
        """What the flow gets for a payload; raises what a bad end is."""
        return self._take(payload)

    def spec(self) -> dict[str, Any]:
        """The arm as a park names it."""
        return self._spec


class Started(Arm[T]):
    """An arm of something that was begun with it: a child, a held operation.

    Attributes:
        id: the child's execution id; the operation's id once it is held.
    """

    def __init__(
        self,
        replay: Replay,
        label: str,
        prefix: str,
        take: Callable[[Any], T],
        opened: asyncio.Future[str],
        known_as: Callable[[str], str],
    ) -> None:
        """Made by the context alone; `opened` gives the id, `known_as` what its topic calls it."""
        super().__init__(replay, label, {}, take)
        self._prefix = prefix
        self._opened = opened
        self._known_as = known_as

    @property
    def id(self) -> str | None:
        """The id, None until it is known."""
        ended = self._opened.done() and not self._opened.cancelled() and self._opened.exception() is None
        return self._opened.result() if ended else None

    def __await__(self) -> Generator[Any, None, T]:
        """Wait for its end."""
        yield from self._opened.__await__()
        return (yield from super().__await__())

    def spec(self) -> dict[str, Any]:
        """The arm as a park names it."""
        return {"topic": self._prefix + self._known_as(self._opened.result())}

    @property
    def opened(self) -> asyncio.Future[str]:
        """Done once there is something to wait for."""
        return self._opened


@dataclass(frozen=True, slots=True)
class Selected:
    """The arm that was answered first.

    Attributes:
        index: its place among the arms.
        value: what it gave; None for a sleep.
    """

    index: int
    value: Any


def not_carried_over(kind: str, which: str) -> dict[str, Any]:
    """What tells a flow that something it began stayed with the execution whose state it goes on from.

    Parameters:
        kind: `child` or `hold`.
        which: the id of the operation; a child has another by now.
    """
    error = {
        "type": "NotCarriedOver",
        "message": f"the {kind} belongs to the execution from which this state was exported",
    }
    if kind == "child":
        return {"status": "not-carried-over", "error": error}
    return {
        "operation_id": which,
        "state": "NOT_CARRIED_OVER",
        "reason": error["message"],
        "error": error,
    }


def child_result(payload: dict[str, Any], execution_id: str) -> Any:
    """The output of a child, from the message that tells its end.

    Errors:
        ChildFailed: it failed or was cancelled.
    """
    if payload["status"] == "completed":
        return payload.get("output")
    raise ChildFailed(execution_id, payload["status"], payload.get("error"))


def hold_result(payload: dict[str, Any]) -> Any:
    """The result of a held operation, from the message that tells its end.

    Errors:
        HoldEnded: it did not succeed.
    """
    if payload["state"] == "SUCCEEDED":
        return payload.get("result")
    raise HoldEnded(payload["operation_id"], payload["state"], payload.get("reason"))
