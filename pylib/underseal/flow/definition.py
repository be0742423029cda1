"""`flow`: what makes an async function a flow, and the flows that a worker knows."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

from underseal.errors import FlowError

if TYPE_CHECKING:
    from underseal.flow.context import FlowContext

JournalMode: TypeAlias = Literal["safe", "behind"]
Body: TypeAlias = Callable[..., Coroutine[Any, Any, Any]]

LAST_VERSION: Final = 2**31 - 1
SNAPSHOT_EVERY: Final = 1000
"""Events from one snapshot of an execution to the next, unless a flow says otherwise."""


@dataclass(frozen=True, slots=True)
class Retry:
    """How often a step is tried, and how long is waited in between.

    Attributes:
        attempts: most tries, the first included.
        first: the wait after the first try.
        factor: how much longer each wait is than the one before.
        longest: no wait is longer.
        only: what is tried again; anything else fails at once.
    """

    attempts: int = 1
    first: timedelta = timedelta(seconds=1)
    factor: float = 2.0
    longest: timedelta = timedelta(hours=1)
    only: tuple[type[BaseException], ...] = (Exception,)

    def __post_init__(self) -> None:
        """Refuse what makes no sense."""
        if self.attempts < 1 or self.factor < 1 or self.first < timedelta(0) or self.longest < timedelta(0):
            raise FlowError(
                "expected at least 1 attempt, a factor of at least 1 and waits of 0 or more, found others"
            )
        kinds = self.only if isinstance(self.only, tuple) else (self.only,)
        if not all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in kinds):
            raise FlowError("expected classes of errors in a tuple as `only`, found something else")

    def wait_after(self, attempt: int) -> float:
        """Seconds to wait after a try, counted from 1.

        Parameters:
            attempt: which try failed.
        """
        longest = self.longest.total_seconds()
        first = self.first.total_seconds()
        if first == 0:
            return 0.0
        try:
            return float(min(longest, first * self.factor ** (attempt - 1)))
        except OverflowError:
            return longest


@dataclass(frozen=True, slots=True)
class Flow:
    """An async function that can be driven, crash after crash, to its end. Made by `flow`.

    Attributes:
        name: what executions of it are started by.
        version: the version of its code; new executions get it.
        body: the function, `async def body(ctx, value)` or `async def body(ctx)`.
        drives: versions of executions that this code can replay.
        journal: `safe` or `behind`.
        keep_traceback: whether errors are recorded with their traceback.
        takes_value: whether the body takes the input.
        snapshot_every: after how many events its state is saved; None for never.
    """

    name: str
    version: int
    body: Body
    drives: frozenset[int]
    journal: JournalMode
    keep_traceback: bool
    takes_value: bool
    snapshot_every: int | None = SNAPSHOT_EVERY

    def begin(self, ctx: FlowContext, value: Any) -> Coroutine[Any, Any, Any]:
        """The coroutine of one execution.

        Parameters:
            ctx: its context.
            value: its input.
        """
        return self.body(ctx, value) if self.takes_value else self.body(ctx)


def flow(
    name: str,
    *,
    version: int = 1,
    also_drives: Iterable[int] = (),
    journal: JournalMode = "safe",
    keep_traceback: bool = False,
    snapshot_every: int | None = SNAPSHOT_EVERY,
) -> Callable[[Body], Flow]:
    """Make an async function a flow.

    Its code must do the same each time it is given the same results: everything else (time, chance, files, other
    services, globals that change) belongs into steps.

    Parameters:
        name: 1 to 200 printable characters.
        version: from 1; raise it when the order or the names of what it does change.
        also_drives: older versions whose executions this code can replay as well (it looks at `ctx.version`).
        journal: `safe`: a step starts only when all that was recorded before it is on disk. `behind`: it does not
            wait, for flows whose steps are harmless to repeat.
        keep_traceback: record errors with their traceback. It may hold values, so not by default.
        snapshot_every: after how many events an execution's state is saved, so that whoever takes it over need not read
            its whole log; None for never.

    Errors:
        FlowError: it is no async function, or a value is out of range.

    Source: clauses E5, E6; DESIGN 8.
    """
    if not isinstance(cast("object", name), str):
        raise FlowError('expected a name, as in @flow("onboard"), found none')
    # one that the database does not take would keep a worker from claiming any flow
    if not 1 <= len(name) <= 200 or not name.isprintable() or not 1 <= version <= LAST_VERSION:
        raise FlowError(
            f"expected a name of 1 to 200 printable characters and a version from 1 to {LAST_VERSION}, found others"
        )
    if journal not in ("safe", "behind"):
        raise FlowError("expected journal 'safe' or 'behind', found another")
    if snapshot_every is not None and snapshot_every < 1:
        raise FlowError("expected a snapshot after 1 or more events, or None for never, found fewer")

    def make(body: Body) -> Flow:
        if not inspect.iscoroutinefunction(body):
            raise FlowError(f"expected flow {name} to be an async function, found {body!r}")
        count = len(inspect.signature(body).parameters)
        if count not in (1, 2):
            raise FlowError(
                f"expected flow {name} to take ctx, or ctx and one value, found {count} parameters"
            )
        return Flow(
            name,
            version,
            body,
            frozenset({version, *also_drives}),
            journal,
            keep_traceback,
            takes_value=count == 2,
            snapshot_every=snapshot_every,
        )

    return make


class Flows:
    """The flows that a process can drive, several versions of one name among them."""

    def __init__(self, flows: Iterable[Flow] = ()) -> None:
        """Take some.

        Parameters:
            flows: what `flow` made.
        """
        self._by_version: dict[tuple[str, int], Flow] = {}
        self._newest: dict[str, Flow] = {}
        for one in flows:
            self.add(one)

    def add(self, one: Flow) -> None:
        """Take one more.

        Errors:
            FlowError: it is no flow, or a version of it is taken by another.
        """
        if not isinstance(one, Flow):
            raise FlowError(f"expected what @flow(…) makes, found a {type(one).__name__}")
        for version in one.drives:
            taken = self._by_version.get((one.name, version))
            if taken is not None and taken is not one:
                raise FlowError(
                    f"expected one code for each version, found two for flow {one.name} version {version}"
                )
        for version in one.drives:
            self._by_version[one.name, version] = one
        newest = self._newest.get(one.name)
        if newest is None or newest.version < one.version:
            self._newest[one.name] = one

    def newest(self, name: str) -> Flow:
        """The code that new executions get.

        Errors:
            FlowError: no such flow is known here.
        """
        if isinstance(cast("object", name), Flow):
            raise FlowError("expected the name of a flow, found the flow itself: give its `name`")
        found = self._newest.get(name)
        if found is None:
            raise FlowError(
                f"expected a flow that this process knows, found {name}; it knows {self.names() or 'none'}"
            )
        return found

    def find(self, name: str, version: int) -> Flow | None:
        """The code for an execution; None where no version here drives it."""
        return self._by_version.get((name, version))

    def names(self) -> list[str]:
        """The names, in the order in which they came."""
        return list(self._newest)

    def versions(self) -> list[int]:
        """The highest version of each name, in the same order."""
        return [max(v for n, v in self._by_version if n == name) for name in self._newest]

    def __len__(self) -> int:
        """How many names."""
        return len(self._newest)
