"""Saves flows' states as snapshots, beside their runs: nothing that a flow does waits for it, and it may fail."""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from underseal.flow.state import LIMIT, Event, Recorded
from underseal.foundation.steps import Row

if TYPE_CHECKING:
    from underseal.flow.drive import Drive

log = logging.getLogger("underseal.flow")

_AT_ONCE: Final = 4
_MOST_WAITING: Final = 64
_LONGEST_PAUSE: Final = 64
_BREATH: Final = 200
_REMEMBERED: Final = 10_000


@dataclass(slots=True, eq=False)
class Gathering:
    """The state of one execution, on its way to a snapshot.

    Attributes:
        recorded: the state.
        upto: the last event in it.
        reading: what is missing is being read; what is written meanwhile goes to `behind`.
        behind: number of the last event, and the events, of each such write.
        saving: it was sent.
        misses: how often the log had moved on by then.
        pause: so many writes are let pass before it is sent again.
    """

    recorded: Recorded = field(default_factory=Recorded)
    upto: int = -1
    reading: bool = False
    behind: list[tuple[int, Sequence[str]]] = field(default_factory=list)
    saving: bool = False
    misses: int = 0
    pause: int = 0

    def take(self, head: int, texts: Sequence[str]) -> bool:
        """Take the events of a write, if nothing is missing before them.

        Parameters:
            head: number of the last of them.
            texts: each as an item holds it.
        """
        fresh = head - self.upto
        if fresh > len(texts):
            return False
        for text in texts[len(texts) - fresh :] if fresh > 0 else ():
            told = json.loads(text)
            self.recorded.add(told["type"], told["data"])
        self.upto = max(self.upto, head)
        return True


class Checkpoints:
    """The snapshots of what one process drives."""

    def __init__(
        self,
        read: Callable[[str, int, int], Awaitable[tuple[int, list[Event]]]],
        save: Callable[[str, int, int, str], Awaitable[Row]],
        spawn: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        """Prepare them.

        Parameters:
            read: the events of a log behind a number, those of a snapshot for -1 included, and the number of the last,
                which is another number at least.
            save: sends a state, under a fence, as of an event.
            spawn: carries something out in the background.
        """
        self._read = read
        self._save = save
        self._spawn = spawn
        self._turn = asyncio.Semaphore(1)
        self._lanes = asyncio.Semaphore(_AT_ONCE)
        self._jobs = 0
        self._unfit: dict[str, None] = {}
        self._said: set[tuple[str, str]] = set()

    def due_at(self, drive: Drive, seq: int) -> float:
        """From which event on there should be another snapshot.

        What is saved grows with the log, so the longer that is, the more events lie between two: all snapshots together
        are then no more than a few times the log.

        Parameters:
            drive: of which execution.
            seq: where the last one was; 0 for none.
        """
        every = drive.flow.snapshot_every
        if every is None or drive.execution_id in self._unfit:
            return math.inf
        return seq + max(every, seq // 2)

    def loaded(self, drive: Drive, history: Sequence[Event]) -> None:
        """A log was replayed that is long enough for one: there is no need to read it again.

        Parameters:
            drive: its execution.
            history: what was replayed.
        """
        self._gather(drive, Gathering(), (drive.head, history))

    def written(self, drive: Drive, texts: Sequence[str], appended: bool) -> None:
        """Something was written, where one is due.

        Parameters:
            drive: of which execution; its head is the last event of the write.
            texts: the events that it recorded.
            appended: nothing came behind them in the same write.
        """
        one = drive.gathering
        if one is None:
            self._gather(drive, Gathering())
        elif one.reading:
            one.behind.append((drive.head, texts if appended else ()))
        elif one.take(drive.head, texts if appended else ()):
            self._offer(drive, one)
        else:
            self._gather(drive, one)

    # -- gathering ---------------------------------------------------------------------------------

    def _gather(self, drive: Drive, one: Gathering, known: tuple[int, Sequence[Event]] | None = None) -> None:
        if self._jobs >= _MOST_WAITING:
            drive.gathering = None  # another time
            return
        drive.gathering = one
        one.reading = True
        self._jobs += 1
        self._spawn(self._read_up(drive, one, known))

    async def _read_up(self, drive: Drive, one: Gathering, known: tuple[int, Sequence[Event]] | None) -> None:
        try:
            async with self._turn:
                while self._wanted(drive, one):
                    upto, events = known or await self._read(drive.execution_id, one.upto, drive.head)
                    known = None
                    for place, (kind, data) in enumerate(events, 1):
                        one.recorded.add(kind, data)
                        if place % _BREATH == 0:
                            await asyncio.sleep(0)  # others go on meanwhile
                    one.upto = max(one.upto, upto)
                    if one.recorded.size > LIMIT:
                        self._unfit_for(drive, "too-large")
                        return
                    behind, one.behind = one.behind, []
                    if all(one.take(*write) for write in behind) and one.upto >= drive.head:
                        break
            one.reading = False
            if one.upto == drive.head and drive.quiet:
                self._offer(drive, one)
        except Exception as error:  # noqa: BLE001 -- it can be done without
            self._put_off(drive, type(error).__name__)
        finally:
            self._jobs -= 1

    def _wanted(self, drive: Drive, one: Gathering) -> bool:
        return drive.gathering is one and drive.state in ("driving", "parked")

    # -- saving ------------------------------------------------------------------------------------

    def _offer(self, drive: Drive, one: Gathering) -> None:
        """Send it, if it can be sent now: while the flow goes on its log stands still for a moment only."""
        if one.recorded.size > LIMIT:
            self._unfit_for(drive, "too-large")
        elif one.pause > 0 and drive.state == "driving":
            one.pause -= 1
        elif not one.saving and not (drive.state == "driving" and self._lanes.locked()):
            one.saving = True
            self._spawn(self._send(drive, one, drive.fence, one.upto, one.recorded.text()))

    async def _send(self, drive: Drive, one: Gathering, fence: int, seq: int, text: str) -> None:
        try:
            async with self._lanes:
                row = await self._save(drive.execution_id, fence, seq, text)
        except Exception as error:  # noqa: BLE001 -- it can be done without
            self._put_off(drive, type(error).__name__)
            return
        one.saving = False
        if row["outcome"] in ("saved", "unchanged"):
            drive.snapshot_at = self.due_at(drive, seq)
            drive.gathering = None
        elif row["outcome"] == "refused":
            self._unfit_for(drive, row["reason"])
        elif row["reason"] == "moved":
            one.misses += 1
            one.pause = min(2**one.misses, _LONGEST_PAUSE)
            if drive.state == "parked" and seq < one.upto == drive.head and not one.reading:
                self._offer(drive, one)
        else:
            drive.gathering, drive.snapshot_at = None, math.inf

    def _put_off(self, drive: Drive, why: str) -> None:
        log.info("execution %s: no snapshot could be made (%s); the log is there", drive.execution_id, why)
        drive.gathering = None
        drive.snapshot_at = self.due_at(drive, drive.head)

    def _unfit_for(self, drive: Drive, reason: str) -> None:
        """No snapshot of it is kept: it goes on from its log."""
        if (drive.flow.name, reason) not in self._said:
            self._said.add((drive.flow.name, reason))
            log.warning(
                "execution %s of flow %s has no snapshot (%s) and goes on from its log; "
                "of others of this flow the same is not said again",
                drive.execution_id, drive.flow.name, reason,
            )  # fmt: skip
        if len(self._unfit) >= _REMEMBERED:
            del self._unfit[next(iter(self._unfit))]
        self._unfit[drive.execution_id] = None
        drive.gathering, drive.snapshot_at = None, math.inf
