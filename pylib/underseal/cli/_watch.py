"""What a worker shows while it works: its log, and at a terminal one line that says what is under way."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from underseal.cli._times import absolute, iso
from underseal.cli._visible import visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from underseal import Progress

_FIELDS: Final = (
    "event", "worker", "duty", "execution_id", "execution_ids", "flow", "operation_id", "schedule", "outcome",
    "reason", "swept", "count",
)  # fmt: skip
_PER_SECOND: Final = 2
_SECONDS: Final = 5.0


@contextmanager
def logging_to(as_json: bool, verbose: bool) -> Iterator[Console | None]:
    """Log to the standard error.

    Parameters:
        as_json: one JSON object a line.
        verbose: also what is no trouble.

    Yields:
        The console, where a person looks at it.
    """
    from rich.console import Console

    seen = None if as_json or not sys.stderr.isatty() else Console(
        stderr=True, markup=False, emoji=False, highlight=False
    )  # fmt: skip
    handler = logging.StreamHandler() if seen is None else _Above(seen)
    handler.setFormatter(_JsonLines() if as_json else _Visible())
    logger = logging.getLogger("underseal")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO if verbose else logging.WARNING)
    try:
        yield seen
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


@contextmanager
def watching(console: Console | None, progress: Callable[[], Progress]) -> Iterator[None]:
    """Keep one line up to date.

    Parameters:
        console: where; None for nowhere.
        progress: what the worker has done and does.
    """
    if console is None:
        yield
        return
    from rich.live import Live

    line = _Line(progress)
    with Live(
        get_renderable=line.render,
        console=console,
        refresh_per_second=_PER_SECOND,
        transient=True,
        redirect_stderr=False,
        redirect_stdout=False,
    ):
        yield
    console.print(line.render(), no_wrap=True, overflow="ellipsis")


class _Line:
    def __init__(self, progress: Callable[[], Progress]) -> None:
        self._progress = progress
        self._seen: deque[tuple[float, int]] = deque()

    def render(self) -> Text:
        from rich.text import Text

        here = self._progress()
        flows = here.flows
        ended = flows.completed + flows.failed + flows.cancelled + flows.continued
        words = [
            ("under way", here.driving, "bold"), ("completed", flows.completed, "green"),
            ("failed", flows.failed, "red"), ("cancelled", flows.cancelled, "dim"),
            ("continued", flows.continued, ""), ("parked", flows.parked, ""), ("lost", flows.lost, "magenta"),
        ]  # fmt: skip
        line = Text("flows ", no_wrap=True, overflow="ellipsis", end="")
        shown = [one for one in words if one[1] or one[0] in ("under way", "completed")]
        for place, (word, count, style) in enumerate(shown):
            line.append("" if place == 0 else ", ").append(f"{count:,} {word}", style)
        rate = self._rate(ended)
        if rate:
            line.append(f", {rate:,.0f}/s")
        line.append(f"  operations {here.running} running")
        for outcome, count in sorted(here.operations.items()):
            line.append(f", {count:,} {visible(outcome)}")
        if here.scheduled:
            line.append(f"  schedules {here.scheduled:,} started")
        return line

    def _rate(self, ended: int) -> float:
        now = time.monotonic()
        self._seen.append((now, ended))
        while now - self._seen[0][0] > _SECONDS:
            self._seen.popleft()
        begun, before = self._seen[0]
        return (ended - before) / (now - begun) if now - begun > 1 else 0.0


class _Above(logging.Handler):
    """Prints above the line that is kept up to date."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._console.print(self.format(record), soft_wrap=True)
        except Exception:  # noqa: BLE001 -- as every handler does
            self.handleError(record)


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC)
        told: dict[str, Any] = {
            "at": iso(moment),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
        }
        for name in _FIELDS:
            value = getattr(record, name, None)
            if value is not None:
                told[name] = value
        return json.dumps(told)


class _Visible(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC)
        return f"{absolute(moment)}  {record.levelname.lower():<7}  {visible(record.getMessage())}"
