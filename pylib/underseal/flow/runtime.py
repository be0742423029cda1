"""Drives many executions in one process: claims them, replays them, writes for them in common calls."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from contextvars import Context, copy_context
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Final, Protocol, Self, TypeAlias, TypeVar
from uuid import UUID

from underseal.errors import ExecutionAlreadyExistsError, ExecutionFailed, ExecutionRefusedError, FlowError
from underseal.flow import items
from underseal.flow.batches import AWAY, Batcher, Journal, NotWritten
from underseal.flow.checkpoints import Checkpoints
from underseal.flow.definition import Flow, Flows
from underseal.flow.drive import Drive
from underseal.flow.gateway import Gateway
from underseal.flow.ids import Mint, successor_id
from underseal.flow.keeper import ClaimKeeper, Keeper
from underseal.flow.replay import End
from underseal.flow.state import NOTHING, Loaded, loaded
from underseal.flow.step import Threads
from underseal.flow.values import as_recorded, text_of
from underseal.foundation.calls import interval_text
from underseal.foundation.steps import Row
from underseal.held.pace import Pace
from underseal.wake.model import Claim

log = logging.getLogger("underseal.flow")

Event = tuple[str, dict[str, Any]]
T = TypeVar("T")
Hint: TypeAlias = Callable[[Callable[[], None]], Coroutine[Any, Any, None]]

_PAGE: Final = 1000
_AT_ONCE: Final = 5 * _PAGE
"""Events of several logs that are read in one call."""
_MOST_CLAIMS: Final = 200
_NO_CODE: Final = timedelta(minutes=1)
_HELD_UP: Final = timedelta(seconds=30)
_EXHAUSTED: Final = timedelta(hours=1)
_REFUSED: Final = timedelta(minutes=5)
_LAST_WORDS: Final = 5.0
_NEAR: Final = 60.0
_SLOT: Final = 0.01
_LOOK_FOR_END: Final = 1.0


class Holds(Protocol):
    """Holds operations for flows."""

    async def request(self, kind: str, principal: str, params: Any, operation_id: UUID) -> UUID:
        """Request one in somebody's name, under an id that a request before a crash may have: the id that is live."""

    async def cancel(self, operation_id: UUID, principal: str) -> None:
        """Cancel one in its requester's name."""


class NoHolds:
    """Where there is no client that could seal a request."""

    async def request(self, kind: str, principal: str, params: Any, operation_id: UUID) -> UUID:  # noqa: ARG002
        """Refused."""
        raise FlowError("expected a worker of a client with keys for ctx.hold, found one without")

    async def cancel(self, operation_id: UUID, principal: str) -> None:
        """Nothing was held here."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a process takes on.

    Attributes:
        executions: driven at once; parked ones do not count.
        steps: running at once.
        threads: plain functions running at once.
        recoveries: how often an execution that records nothing is taken over before it is left alone (clause E8).
        lanes: writing calls at once.
    """

    executions: int = 1000
    steps: int = 1000
    threads: int = 32
    recoveries: int = 3
    lanes: int = 3

    def __post_init__(self) -> None:
        """Refuse what would let nothing run."""
        least = {name: 0 if name == "recoveries" else 1 for name in self.__dataclass_fields__}
        for name, lowest in least.items():
            given: object = getattr(self, name)
            if not isinstance(given, int) or given < lowest:
                raise FlowError(f"expected {name} to be a number of at least {lowest}, found another")


@dataclass(slots=True)
class Counts:
    """What a process has done since it began.

    Attributes:
        started, claimed: executions that were begun here, and that were taken over from the database.
        completed, failed, cancelled, continued: how they ended.
        parked: how often one was put aside to wait.
        lost: how often somebody else had one by then.
    """

    started: int = 0
    claimed: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    continued: int = 0
    parked: int = 0
    lost: int = 0


class FlowRuntime:
    """Claims and drives executions of the flows it knows, until it is told to stop."""

    def __init__(
        self,
        gateway: Gateway,
        flows: Iterable[Flow] | Flows,
        *,
        holds: Holds | None = None,
        limits: Limits | None = None,
        poll_every: timedelta = timedelta(milliseconds=20),
        idle_poll_every: timedelta = timedelta(seconds=1),
        claims: bool = True,
        grace: timedelta = timedelta(seconds=30),
        hint: Hint | None = None,
        close: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Prepare it. `async with` it: it works inside the block; at its end it drains.

        Parameters:
            gateway: its calls.
            flows: what it can drive.
            holds: what `ctx.hold` asks.
            limits: how much at once.
            poll_every: the wait after a look at the database that found something.
            idle_poll_every: the wait that grows to while there is nothing.
            claims: whether it claims what is due; otherwise it drives only what it starts.
            grace: how long steps may take to end at the end of an `async with` block.
            hint: runs beside it, and calls what it is given when something may be due.
            close: called when it has ended.
        """
        self.gateway = gateway
        self.flows = flows if isinstance(flows, Flows) else Flows(flows)
        self.holds: Holds = NoHolds() if holds is None else holds
        self.limits = limits or Limits()
        self.draining = False
        self._over = False
        self.counts = Counts()
        self._mint = Mint()
        self.journal = Journal(gateway.write, lanes=self.limits.lanes)
        self.keeper: Keeper = ClaimKeeper(gateway, gateway.lease, self._claim_lost)
        self.slots = asyncio.Semaphore(self.limits.steps)
        self.threads = Threads(self.limits.threads)
        self.active: dict[str, Drive] = {}
        self._reader: Batcher[tuple[str, int], list[tuple[int, Event]]] = Batcher(self._read_pages)
        self._releases: Batcher[str, None] = Batcher(self._release)
        self.checkpoints = Checkpoints(self._read_state, gateway.save_snapshot, self._in_background)
        self._claims = claims
        self._claiming = False
        self._grace = grace.total_seconds()
        self._hint = hint
        self._close = close
        self._serving: asyncio.Task[None] | None = None
        self._pace = Pace(poll_every.total_seconds(), idle_poll_every.total_seconds())
        self._nudge = asyncio.Event()
        self._alarms: set[int] = set()
        self._space = asyncio.Event()
        self._space.set()
        self._starting: dict[str, asyncio.Future[None]] = {}
        self._awaited: dict[str, _Awaited] = {}
        self._queue: deque[asyncio.Future[None]] = deque()
        self._promised = 0
        self._background: set[asyncio.Task[None]] = set()
        self._context = copy_context()
        self._no_code_said: set[tuple[str, int]] = set()

    # -- life --------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Begin to work."""
        self._serving = asyncio.create_task(self.serve())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Drain, and end."""
        assert self._serving is not None
        try:
            await self.drain(self._grace)
        finally:
            self._serving.cancel()
            await asyncio.wait([self._serving])
        if kind is None and not self._serving.cancelled():
            self._serving.result()

    async def serve(self) -> None:
        """Work until cancelled; `drain` first ends what runs."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.journal.run())
                group.create_task(self._reader.run())
                group.create_task(self._releases.run())
                group.create_task(self.keeper.run())
                group.create_task(self._look_for_wishes())
                if self._claims:
                    group.create_task(self._poll())
                    if self._hint is not None:
                        group.create_task(self._hint(self.look))
        finally:
            # what is not written any more must not run any more, and nobody is to wait for it
            self.draining = self._over = True
            for drive in list(self.active.values()):
                self._forget(drive, "gone")
            self._admit()
            for one in list(self._awaited.values()):
                one.give_up(_stopped())
            self._end_starts()
            for task in self._background:
                task.cancel()
            if self._close is not None:
                await self._close()

    async def drain(self, grace: float) -> None:
        """Take on nothing more, let steps that run end and be recorded, and give every claim back.

        Parameters:
            grace: seconds that steps may take; one that has not ended then is begun anew elsewhere.
        """
        self.draining = True
        self._admit()
        for drive in list(self.active.values()):
            drive.pump()
        if self.active:
            log.info("%s executions under way may take %s s", len(self.active), grace)
        await self._until(lambda: not self._claiming, _LAST_WORDS)  # that is to be given back too
        await self._until(lambda: not self.active, grace)
        for drive in list(self.active.values()):
            self.give_back(drive)
        self._end_starts()
        if self._background:
            await asyncio.wait(self._background, timeout=_LAST_WORDS)

    def _end_starts(self) -> None:
        for waiting in self._starting.values():
            if not waiting.done():
                waiting.set_exception(_stopped())

    async def _until(self, done: Callable[[], bool], seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not done():
                    self._space.clear()
                    await self._space.wait()

    def look(self) -> None:
        """Look for due work soon: something was made due just now."""
        self._nudge.set()

    # -- starting here -----------------------------------------------------------------------------

    async def start(
        self, flow: str, principal: str, value: Any = None, *, execution_id: str | None = None
    ) -> str:
        """Start an execution and drive it here. Waits while as many are driven as may be.

        Parameters:
            flow: a flow that this process knows.
            principal: its owner.
            value: its input, JSON.
            execution_id: its id; None for a new one.

        Returns: its id, once its start is on disk.

        Errors:
            ExecutionAlreadyExistsError: the id is taken (clause E3).
            ExecutionRefusedError: the input, the id or the principal was refused.
            FlowError: the flow is not known here, or the runtime stops.
        """
        code = self.flows.newest(flow)
        text = text_of(value, "the input of the flow")
        chosen = execution_id if execution_id is not None else self._mint.new()
        await self.journal.room()
        try:
            await self._place()
            if self.draining:
                raise FlowError("expected a runtime that takes something on, found one that stops")
            if chosen in self.active or chosen in self._starting:
                raise ExecutionAlreadyExistsError(chosen, "expected an id that is free, found one in use")
        except BaseException:
            self._space.set()
            self._admit()  # somebody else may have its place
            raise
        loop = asyncio.get_running_loop()
        drive = Drive(self, code, chosen, state="starting", since=loop.time())
        drive.start = items.start_text(
            chosen,
            flow,
            code.version,
            principal,
            text,
            self.gateway.worker,
            interval_text(self.gateway.lease),
        )
        drive.first = {
            "flow": flow,
            "flow_version": code.version,
            "owner": principal,
            "input": as_recorded(value, text),
        }
        self.active[chosen] = drive
        begun = self._starting[chosen] = loop.create_future()
        self.journal.submit(drive)
        await begun
        return chosen

    async def run(
        self, flow: str, principal: str, value: Any = None, *, execution_id: str | None = None
    ) -> Any:
        """Start an execution, drive it here, and wait for its output; also while it is parked, or driven elsewhere.

        Errors:
            ExecutionFailed: it failed or was cancelled.
            as `start`.
        """
        return await self.result(await self.start(flow, principal, value, execution_id=execution_id))

    async def result(self, execution_id: str) -> Any:
        """The output of an execution, or of the one that it continues as, once it has ended.

        Errors:
            ExecutionFailed: it failed or was cancelled, or there is no such execution.
        """
        while True:
            end = await self._end_of(execution_id)
            if end.kind == "continued":
                execution_id = successor_id(execution_id)
                continue
            if end.kind == "completed":
                return _reread(end.text)
            raise ExecutionFailed(execution_id, end.kind, _reread(end.text) if end.kind == "failed" else None)

    async def _end_of(self, execution_id: str) -> End:
        one = self._awaited.get(execution_id)
        if one is None:
            one = self._awaited[execution_id] = _Awaited(asyncio.get_running_loop().create_future())
        one.waiting += 1
        if execution_id not in self.active:
            self._look_for_end(execution_id, one)
        try:
            # whoever gives up must not take the others along
            return await asyncio.shield(one.end)
        finally:
            one.waiting -= 1
            if one.waiting == 0:
                one.give_up()
                if self._awaited.get(execution_id) is one:
                    del self._awaited[execution_id]

    def _look_for_end(self, execution_id: str, one: _Awaited) -> None:
        """It is not driven here: look from time to time how it stands, as long as somebody waits."""

        async def looking() -> None:
            while not one.end.done() and execution_id not in self.active:
                try:
                    end = await self.gateway.end(execution_id)
                except AWAY:
                    if self._over:
                        one.give_up(_stopped())
                        return
                    end = None
                except Exception as error:  # noqa: BLE001 -- whoever waits is told
                    if not one.end.done():
                        one.end.set_exception(error)
                    return
                if end is not None:
                    self._tell_end(execution_id, end)
                    return
                await asyncio.sleep(_LOOK_FOR_END)

        if one.looking is None or one.looking.done():
            one.looking = asyncio.create_task(looking())

    def _tell_end(self, execution_id: str, end: End) -> None:
        one = self._awaited.pop(execution_id, None)
        if one is not None and not one.end.done():
            one.end.set_result(end)

    # -- what drives tell --------------------------------------------------------------------------

    def begun(self, drive: Drive) -> None:
        """Its start is on disk."""
        self.counts.started += 1
        self.keeper.held(drive.execution_id, drive.since)
        self._start_known(drive)

    def _start_known(self, drive: Drive) -> None:
        waiting = self._starting.pop(drive.execution_id, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    def not_started(self, drive: Drive, row: Row) -> None:
        """Its start was refused."""
        if row["outcome"] == "exists" and drive.tried_before:
            self._in_background(self._start_after_doubt(drive), drive)
            return
        self._forget(drive, "gone")
        error: Exception = (
            ExecutionAlreadyExistsError(drive.execution_id, row["message"])
            if row["outcome"] == "exists"
            else ExecutionRefusedError(row["reason"] or row["outcome"], row["message"])
        )
        self._start_failed(drive, error)

    def _start_failed(self, drive: Drive, error: Exception) -> None:
        waiting = self._starting.pop(drive.execution_id, None)
        if waiting is not None and not waiting.done():
            waiting.set_exception(error)

    def parked(self, drive: Drive) -> None:
        """It waits; its claim went with the park."""
        self.counts.parked += 1
        soonest = drive.soonest
        self._forget(drive, "parked")
        if soonest is not None and soonest <= _NEAR and self._claims:
            self._look_in(soonest)

    def _look_in(self, seconds: float) -> None:
        """Look when something becomes due; one alarm for all that is due within a few milliseconds."""
        loop = asyncio.get_running_loop()
        slot = math.ceil((loop.time() + seconds) / _SLOT)
        if slot not in self._alarms:
            self._alarms.add(slot)
            loop.call_at(slot * _SLOT, self._alarm, slot)

    def _alarm(self, slot: int) -> None:
        self._alarms.discard(slot)
        self.look()

    def ended(self, drive: Drive, end: End | None) -> None:
        """It has ended."""
        if end is not None:
            setattr(self.counts, end.kind, getattr(self.counts, end.kind) + 1)
            level = logging.WARNING if end.kind == "failed" else logging.INFO
            if log.isEnabledFor(level):
                log.log(
                    level, "execution %s: %s", drive.execution_id, end.kind,
                    extra={"execution_id": drive.execution_id, "flow": drive.flow.name, "outcome": end.kind},
                )  # fmt: skip
            self._tell_end(drive.execution_id, end)
            if end.kind == "continued" or "~" in drive.execution_id:
                self.look()  # the successor is due, or the parent may be
        self._forget(drive, "ended")

    def lost(self, drive: Drive, reason: str) -> None:
        """Somebody else has it; nothing of it is done here any more."""
        if drive.state == "gone":
            return
        self.counts.lost += 1
        log.info(
            "execution %s is driven elsewhere (%s)", drive.execution_id, reason,
            extra={"execution_id": drive.execution_id, "outcome": "lost", "reason": reason},
        )  # fmt: skip
        self._forget(drive, "gone")

    def _claim_lost(self, execution_id: str) -> None:
        drive = self.active.get(execution_id)
        if drive is not None:
            self.lost(drive, "claim")

    def give_back(self, drive: Drive) -> None:
        """Let another worker have it, now."""
        self._forget(drive, "gone")
        self._in_background(self._releases.get(drive.execution_id))

    def put_off(self, drive: Drive) -> None:
        """Let it be tried again later: not even its failure could be recorded."""
        self._forget(drive, "gone")
        self._in_background(self.gateway.put_off(drive.execution_id, _REFUSED))

    def read_news(self, drive: Drive) -> None:
        """Read what was added to its log, and let it go on."""
        self._in_background(self._read_news(drive), drive)

    def report_divergence(self, drive: Drive, cause: str) -> None:
        """Tell operators."""
        self._in_background(self.gateway.report_divergence(drive.execution_id, drive.fence, cause))

    def reconcile(self, drive: Drive) -> None:
        """Find out what became of a write, once the database is back."""
        self._in_background(self._reconcile(drive), drive)

    def clean_context(self) -> Context:
        """For an effect: what another has set in its own does not reach it, whoever's end began it."""
        return self._context.copy()

    async def may_act(self, drive: Drive) -> bool:
        """Whether an effect of it may be started: its claim holds; if not, it is let go."""
        if await self.keeper.entitled(drive.execution_id) and drive.state == "driving":
            return True
        self.lost(drive, "claim")
        return False

    async def start_child(self, item: str, parent: str | None = None) -> Row:
        """Have another execution started.

        Parameters:
            item: its start.
            parent: the execution whose claim must hold as it is sent; None for none.

        Errors:
            NotWritten: nobody knows whether it was, or the claim did not hold any more.
        """
        return await _Start(item, self.journal, lambda: parent is None or self.keeper.holds(parent)).answer

    def _forget(self, drive: Drive, state: Any) -> None:
        self.keeper.dropped(drive.execution_id)
        drive.drop(state)
        if self.active.get(drive.execution_id) is drive:
            del self.active[drive.execution_id]
        one = self._awaited.get(drive.execution_id)
        if one is not None:
            self._look_for_end(drive.execution_id, one)
        self._space.set()
        self._admit()

    # -- room --------------------------------------------------------------------------------------

    def _free(self) -> int:
        return self.limits.executions - len(self.active) - self._promised

    async def _place(self) -> None:
        """Wait for a place, first come first served; it is to be taken before anything else is awaited."""
        if self._free() > 0 and not self._queue:
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(turn)
        try:
            await turn
        finally:
            if turn.done() and not turn.cancelled():
                self._promised -= 1

    def _admit(self) -> None:
        while self._queue and (self.draining or self._free() > 0):
            turn = self._queue.popleft()
            if not turn.done():
                self._promised += 1
                turn.set_result(None)

    # -- looking for work --------------------------------------------------------------------------

    async def _poll(self) -> None:
        while not self.draining:
            found = 0
            room = max(0, min(_MOST_CLAIMS, self._free()))
            self._promised += room
            try:
                if room > 0 and len(self.flows):
                    self._claiming = True
                    await self.journal.room()
                    found = await self._claim(room)
            except Exception as error:  # noqa: BLE001 -- one look's error ends no worker
                log.warning("could not look for due executions (%s), trying again", type(error).__name__)
                await self._wait(self._pace.failed())
                continue
            finally:
                self._claiming = False
                self._promised -= room
                self._space.set()
                self._admit()
            if room <= 0:
                self._space.clear()
                await self._space.wait()
            elif found < room:
                await self._wait(self._pace.worked() if found else self._pace.idled())

    async def _wait(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._nudge.wait()
        self._nudge.clear()

    async def _claim(self, room: int) -> int:
        since = asyncio.get_running_loop().time()
        claims = await self.gateway.claim(self.flows.names(), self.flows.versions(), room)
        self.counts.claimed += len(claims)
        taken: list[Drive] = []
        gone: list[tuple[Drive, Claim]] = []
        waiting: list[tuple[Drive, Claim]] = []
        for claim in claims:
            code = self.flows.find(claim.flow, claim.flow_version)
            if code is None:
                self._no_code(claim)
                continue
            old = self.active.get(claim.execution_id)
            if old is not None:
                self._start_known(old)  # whoever waits for its start: it has begun, and is driven here
                self.lost(old, "claimed anew")
            drive = Drive(self, code, claim.execution_id, claim.fence, since=since, head=claim.head)
            self.active[claim.execution_id] = drive
            self.keeper.held(claim.execution_id, since)
            if claim.status == "suspended":
                waiting.append((drive, claim))
            elif claim.attempts > 1:
                gone.append((drive, claim))
            else:
                taken.append(drive)
        if claims:
            drives = [*taken, *(drive for drive, _ in (*waiting, *gone))]
            self._in_background(self._take(taken, waiting, gone), *drives)
        return len(claims)

    def _no_code(self, claim: Claim) -> None:
        which = (claim.flow, claim.flow_version)
        if which not in self._no_code_said:
            self._no_code_said.add(which)
            log.warning(
                "no code here drives flow %s version %s; its executions are left to other workers, or migrate them",
                *which,
            )
        self._in_background(self.gateway.put_off(claim.execution_id, _NO_CODE))

    async def _take(
        self, taken: list[Drive], waiting: list[tuple[Drive, Claim]], gone: list[tuple[Drive, Claim]]
    ) -> None:
        for drive, claim in gone:
            if await self._patiently(partial(self._recover, drive, claim), drive):
                taken.append(drive)
        if waiting:
            drives = [drive for drive, _ in waiting]
            taken += await self._patiently(partial(self._deliver, drives), *drives) or []
        for group in _readable(taken):
            await self._replay(group)

    async def _replay(self, taken: list[Drive]) -> None:
        # a log that is short is read as it is; of a longer one there may be a snapshot
        asked = [(drive.execution_id, drive.head, drive.head >= drive.snapshot_at) for drive in taken]
        histories = await self._patiently(partial(self._load, asked), *taken) or []
        for drive, found in zip(taken, histories, strict=bool(histories)):
            if drive.state == "driving":
                drive.head = found.head
                drive.snapshot_at = self.checkpoints.due_at(drive, found.saved)
                drive.load(found.events, found.missing)
                if found.missing is None and found.head >= drive.snapshot_at:
                    self.checkpoints.loaded(drive, found.events)
                await asyncio.sleep(0)  # replaying many must not keep the others waiting

    async def _patiently(self, act: Callable[[], Awaitable[T]], *drives: Drive) -> T | None:
        """Do something, again while the database is away; None once none of these is driven here any more."""
        pause = 0.05
        while any(drive.state in ("driving", "starting") for drive in drives):
            try:
                return await act()
            except AWAY:
                await asyncio.sleep(pause)
                pause = min(5.0, pause * 2)
        return None

    async def _recover(self, drive: Drive, claim: Claim) -> bool:
        """Take over from a driver whose claim ran out, so often (clause E8)."""
        got = await self.gateway.recover(claim, self.limits.recoveries)
        if got.outcome == "recovered" and got.fence is not None:
            drive.fence = got.fence
            return True
        self._forget(drive, "gone")
        if got.reason == "exhausted":
            log.error(
                "execution %s: taken over too often without any progress; left alone", drive.execution_id,
                extra={"execution_id": drive.execution_id, "outcome": "exhausted"},
            )  # fmt: skip
            await self.gateway.put_off(drive.execution_id, _EXHAUSTED)
        return False

    async def _deliver(self, drives: list[Drive]) -> list[Drive]:
        asked = [{"execution_id": drive.execution_id, "fence": drive.fence} for drive in drives]
        taken = []
        for drive, row in zip(drives, await self.gateway.deliver(asked), strict=True):
            if row["outcome"] == "delivered":
                taken.append(drive)
            elif row["outcome"] == "held":
                self._forget(drive, "gone")
                self._in_background(self.gateway.put_off(drive.execution_id, _HELD_UP))
            elif row["outcome"] == "none":
                self.give_back(drive)
            else:
                self.lost(drive, row["reason"] or row["outcome"])
        return taken

    # -- reading -----------------------------------------------------------------------------------

    async def _load(self, logs: Sequence[tuple[str, int, bool]]) -> list[Loaded]:
        """The whole log of each, or its snapshot and what is behind that.

        Parameters:
            logs: id, an event that is known to have been there, and whether a snapshot is asked for.
        """
        found = await self._load_once(logs)
        # compacted without having been asked; or no snapshot that this release reads, and the log may be whole
        again = [place for place, one in enumerate(found) if one.missing is not None]
        if again:
            other = await self._load_once([(*logs[place][:2], not logs[place][2]) for place in again])
            for place, one in zip(again, other, strict=True):
                if one.missing is None or one.saved:
                    found[place] = one
        return found

    async def _load_once(self, logs: Sequence[tuple[str, int, bool]]) -> list[Loaded]:
        saved: dict[int, tuple[int, Any]] = {}
        wanted = [place for place, (_, _, snapshot) in enumerate(logs) if snapshot]
        pages = await self._read_all([(execution_id, -1) for execution_id, _, _ in logs], saved, wanted)
        return [loaded(saved.get(place), page, logs[place][1]) for place, page in enumerate(pages)]

    async def _read_state(self, execution_id: str, after: int, head: int) -> tuple[int, list[Event]]:
        """What a snapshot is to be made of, behind an event and up to another at least."""
        if after < 0:
            (found,) = await self._load([(execution_id, head, True)])
        else:
            (page,) = await self._read_all([(execution_id, after)])
            found = loaded((after, NOTHING), page, head)
        if found.missing is not None:
            raise FlowError(f"expected {found.missing}, found it gone")
        return found.head, found.events

    async def _read_all(
        self,
        logs: Sequence[tuple[str, int]],
        saved: dict[int, tuple[int, Any]] | None = None,
        wanted: Sequence[int] = (),
    ) -> list[list[tuple[int, Event]]]:
        if not logs:
            return []
        found = list(await self._read_pages(logs, saved, wanted))
        for place, page in enumerate(found):
            last = page
            while len(last) == _PAGE:
                last = (await self._read_pages([(logs[place][0], last[-1][0])]))[0]
                page += last
        return found

    async def _read_pages(
        self,
        logs: Sequence[tuple[str, int]],
        saved: dict[int, tuple[int, Any]] | None = None,
        wanted: Sequence[int] = (),
    ) -> Sequence[list[tuple[int, Event]]]:
        asked: list[dict[str, Any]] = [
            {"execution_id": execution_id, "after": after} for execution_id, after in logs
        ]
        for place in wanted:
            asked[place]["snapshot"] = True
        pages: list[list[tuple[int, Event]]] = [[] for _ in logs]
        for row in await self.gateway.read(asked, _PAGE):
            if row["outcome"] == "event":
                pages[row["item"] - 1].append((row["seq"], (row["type"], row["data"])))
            elif row["outcome"] == "snapshot" and saved is not None:
                saved[row["item"] - 1] = (row["seq"], row["data"])
        return pages

    async def _read_news(self, drive: Drive) -> None:
        asked = (drive.execution_id, drive.head_before)

        async def read() -> list[tuple[int, Event]]:
            page = await self._reader.get(asked)
            return page if len(page) < _PAGE else (await self._read_all([asked]))[0]

        news = await self._patiently(read, drive)
        if drive.state != "driving" or news is None:
            return
        if news:
            drive.head = news[-1][0]
        drive.news([event for _, event in news])

    async def _look_for_wishes(self) -> None:
        """Find, as often as claims are renewed, who is to be cancelled while a long step runs: no write tells of it."""
        every = self.gateway.lease.total_seconds() / 3
        while True:
            await asyncio.sleep(every)
            drives = [drive for drive in self.active.values() if drive.in_a_step]
            heads = [drive.head for drive in drives]
            try:
                tails = await self._read_all([(drive.execution_id, drive.head) for drive in drives])
            except Exception as error:  # noqa: BLE001 -- the next look is made
                log.warning("could not look for cancellations (%s), trying again", type(error).__name__)
                continue
            for drive, head, tail in zip(drives, heads, tails, strict=True):
                asked = [event for _, event in tail if event[0] == "EXECUTION_CANCEL_REQUESTED"]
                # what was written meanwhile has told of it
                if asked and drive.in_a_step and drive.head == head:
                    drive.news(asked)

    # -- after doubt -------------------------------------------------------------------------------

    async def _reconcile(self, drive: Drive) -> None:
        """Take a new fence, so that what was sent cannot be written any more, and see whether it was."""
        while await self._patiently(partial(self._settled, drive), drive) is False:
            pass  # it moved between a look and the next

    async def _settled(self, drive: Drive) -> bool:
        if drive.state == "starting":
            drive.restart()
            return True
        seen = await self.gateway.head(drive.execution_id)
        if seen.outcome != "found" or seen.fence != drive.fence:
            self.lost(drive, "after the database was away")
            return True
        got = await self.gateway.refence(drive.execution_id, seen)
        if got.reason == "moved":
            return False
        if got.outcome != "acquired" or got.fence is None:
            if got.reason == "ended" and drive.ending is not None and drive.ending.kind == seen.status:
                self.ended(drive, drive.ending)
            else:
                self.lost(drive, got.reason or got.outcome)
            return True
        tail = (await self._read_all([(drive.execution_id, drive.head)]))[0]
        if tail:
            drive.head = tail[-1][0]
        drive.settle(got.fence, [event for _, event in tail])
        return True

    async def _start_after_doubt(self, drive: Drive) -> None:
        """A start that may have been ours: if its claim is ours, it was."""

        async def look() -> int | None:
            said = await self.gateway.renew([drive.execution_id])
            seen = await self.gateway.head(drive.execution_id)
            # busy: somebody has just locked it, and it is ours still
            return seen.fence if said.get(drive.execution_id) in ("renewed", "busy") else None

        fence = await self._patiently(look, drive)
        if fence is not None and drive.state == "starting":
            drive.started(fence)
            return
        self._forget(drive, "gone")
        self._start_failed(
            drive,
            ExecutionAlreadyExistsError(drive.execution_id, "expected an id that is free, found one in use"),
        )

    # -- small things ------------------------------------------------------------------------------

    async def _release(self, execution_ids: Sequence[str]) -> Sequence[None]:
        await self.gateway.release(execution_ids)
        return [None] * len(execution_ids)

    def _in_background(self, work: Coroutine[Any, Any, Any], *drives: Drive) -> None:
        """Do something beside; if it fails, what cannot go on without it is left to whoever claims it next."""

        async def guarded() -> None:
            try:
                await work
            except Exception as error:  # noqa: BLE001 -- what fails here is tried again by whoever claims next
                log.warning("a call for an execution failed (%s); its claim runs out", type(error).__name__)
                for drive in drives:
                    if drive.state in ("driving", "starting"):
                        self._forget(drive, "gone")
                        self._start_failed(drive, error)

        task = asyncio.create_task(guarded())
        self._background.add(task)
        task.add_done_callback(self._background.discard)


@dataclass(slots=True)
class _Awaited:
    """An end that somebody waits for.

    Attributes:
        end: what comes.
        waiting: how many wait.
        looking: looks for it while it is not driven here.
    """

    end: asyncio.Future[End]
    waiting: int = 0
    looking: asyncio.Task[None] | None = None

    def give_up(self, why: Exception | None = None) -> None:
        """Nobody waits any more, or nobody can tell."""
        if why is None:
            self.end.cancel()
        elif not self.end.done():
            self.end.set_exception(why)
        if self.looking is not None:
            self.looking.cancel()


class _Start:
    """The start of an execution that is not driven by whoever asks for it."""

    def __init__(self, item: str, journal: Journal, allowed: Callable[[], bool]) -> None:
        self._item = item
        self._journal = journal
        self._allowed = allowed
        self.answer: asyncio.Future[Row] = asyncio.get_running_loop().create_future()
        journal.submit(self)

    def take(self) -> str | None:
        if self.answer.done():
            return None  # whoever wanted it is gone
        if self._allowed():
            return self._item
        self.uncertain()
        return None

    def answered(self, row: Row) -> None:
        if row["reason"] == "same-execution":
            self._journal.submit(self)  # it is being driven, and was written to in the same call
        elif not self.answer.done():
            self.answer.set_result(row)

    def uncertain(self) -> None:
        if not self.answer.done():
            self.answer.set_exception(NotWritten("expected an answer to a start, found none"))

    def impossible(self, error: Exception) -> None:
        self.answered(
            {
                "outcome": "refused",
                "reason": type(error).__name__,
                "message": "the database could not take it",
            }
        )


def _readable(drives: Iterable[Drive]) -> list[list[Drive]]:
    """In groups that are read together: of long logs not all at once, or they would fill the memory."""
    groups: list[list[Drive]] = []
    room = 0
    for drive in drives:
        events = min(drive.head + 1, _PAGE)
        if events > room:
            groups.append([])
            room = _AT_ONCE
        groups[-1].append(drive)
        room -= events
    return groups


def _stopped() -> FlowError:
    return FlowError("expected a runtime that goes on, found one that has stopped")


def _reread(text: str) -> Any:
    return as_recorded((), text)
