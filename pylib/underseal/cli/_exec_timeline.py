"""The timeline of an execution: an event after the other beside a rail, with what lies between them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Text

from underseal.cli._exec_session import Kept
from underseal.cli._exec_values import value_rows
from underseal.cli._exec_words import Told
from underseal.cli._render import said
from underseal.cli._times import absolute, duration, relative

if TYPE_CHECKING:
    from underseal.log.model import LogEvent

_NARROWEST = 16


class Railed:
    """Something with a rail to its left, also where a terminal folds it.

    Parameters:
        content: what stands beside the rail.
        first: what stands in the rail's place in the first line.
        style: how that looks.
    """

    def __init__(self, content: RenderableType, first: str = "│", style: str = "dim") -> None:
        self._content = content
        self._first = first
        self._style = style

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Its lines."""
        rail = Segment("  │  ", Style(dim=True))
        width = max(options.max_width - 5, _NARROWEST)
        first = Segment(f"  {self._first}  ", console.get_style(self._style))
        for number, line in enumerate(
            console.render_lines(self._content, options.update_width(width), pad=False)
        ):
            yield rail if number else first
            yield from _without_padding(line)
            yield Segment.line()


def _without_padding(line: list[Segment]) -> list[Segment]:
    """A table fills its columns up; into a file that is only length."""
    end = len(line)
    while end and not line[end - 1].text.strip(" "):
        end -= 1
    if not end:
        return []
    last = line[end - 1]
    return [*line[: end - 1], Segment(last.text.rstrip(" "), last.style)]


class Timeline:
    """Prints events as they come.

    Parameters:
        out: where.
        words: how an event is told: `told` or `in_full`.
        most: rows of one value.
        now: the database's clock, for how long ago; None where events are followed.
    """

    def __init__(
        self, out: Console, words: Callable[[LogEvent], Told], most: int, now: datetime | None
    ) -> None:
        self._out = out
        self._words = words
        self._most = most
        self._now = now
        self._last: LogEvent | None = None

    def add(self, event: LogEvent) -> None:
        """Print one event.

        Parameters:
            event: the next one.
        """
        self._between(event)
        one = self._words(event)
        head = Text(f"{event.seq}  ", style="dim").append(absolute(event.recorded_at), "not dim").append("  ")
        if self._now is not None:
            head.append(f"{relative(event.recorded_at, self._now):<15}  ")
        head.append(Text(one.title, style=f"not dim {one.style}"))
        self._out.print(Railed(head, "●", one.style), end="")
        rows: list[RenderableType] = [*one.lines, *(self._value(name, value) for name, value in one.values)]
        if rows:
            self._out.print(Railed(Group(*rows)), end="")
        self._last = event

    def _between(self, event: LogEvent) -> None:
        if self._last is None:
            return
        words = []
        gap = event.seq - self._last.seq - 1
        if gap > 0:
            words.append(f"{gap} event{'' if gap == 1 else 's'} not shown")
        distance = event.recorded_at - self._last.recorded_at
        if distance >= timedelta(seconds=1):
            words.append(f"{duration(distance)} later")
        elif distance < timedelta(0) and self._last.seq == 0:
            words.append("copied from the log that it was forked from")
        if words:
            self._out.print(Railed(Text(", ".join(words), style="dim"), "┊" if gap > 0 else "│"), end="")

    def _value(self, name: str, value: Any) -> RenderableType:
        label = said(name, "dim") if name else None
        if isinstance(value, Kept) and not value.readable:
            only = Text("too deep to be shown; --json has it", style="dim italic")
            return Text.assemble(label, "  ", only) if label else only
        rows, more = value_rows(value, self._most)
        if len(rows) == 1 and not rows[0][0]:
            return Text.assemble(label, "  ", rows[0][1]) if label else rows[0][1]
        grid = Table.grid(padding=(0, 2))
        grid.add_column(overflow="fold", style="dim")
        grid.add_column(overflow="fold")
        for place, one in rows:
            grid.add_row(f"  {place}" if label else place, one)
        rest = [Text("… and more; --json has all of it", style="dim italic")] if more else []
        return Group(*([label] if label else []), grid, *rest)
