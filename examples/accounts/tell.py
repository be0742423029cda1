"""How the demo tells its story: who did what, and the command line's own view of it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING
from uuid import UUID

from rich.console import Console
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from underseal import Operation
from underseal.cli import main

if TYPE_CHECKING:
    from examples.accounts.stage import Stage


class Teller:
    """Prints the story.

    Attributes:
        secrets: what must be found nowhere in the database.
    """

    def __init__(self) -> None:
        """Begin."""
        self.secrets: list[str] = []
        width = None if sys.stdout.isatty() else 110
        self._out = Console(markup=False, highlight=False, width=width)

    def scene(self, number: int, title: str, what: str) -> None:
        """Announce a scene."""
        self._out.print()
        self._out.print(Rule(Text(f"{number}  {title}", style="bold"), align="left"))
        self._out.print(Text(what, style="italic"))

    def does(self, who: str, what: str, outcome: str | None) -> None:
        """Somebody does something, and this comes of it."""
        line = Text("  ").append(who, style="bold cyan").append(f" {what}")
        if outcome:
            line.append("  →  ", style="dim").append(outcome)
        self._out.print(line)

    def passes(self, span: str) -> None:
        """Time passes."""
        self._out.print(Text(f"  ⧗ {span}", style="yellow"))

    def fact(self, what: str) -> None:
        """Something that can be seen from outside."""
        self._out.print(Text(f"  = {what}", style="green"))

    def line(self, what: str) -> None:
        """What somebody types."""
        self._out.print(Text(f"  {what}", style="bold"))

    def shows(self, operation: Operation | None) -> None:
        """What an approver sees of an operation."""
        assert operation is not None
        self._out.print(Text(f"    they see  {operation.redacted}", style="dim"))
        self._out.print(Text(f"    and that  {operation.effect}", style="dim"))

    def timeline(self, stage: Stage, operation_id: UUID) -> None:
        """`underseal log`, as its requester types it."""
        requester = stage.row(operation_id)["requester"]
        self.line(f"$ underseal log {operation_id} --principal {requester}")
        arguments = [
            "log",
            str(operation_id),
            "--principal",
            requester,
            "--dsn",
            stage.dsn("accounts_service"),
        ]
        main(arguments, standalone_mode=False)

    def ends(self, rows: list[tuple[str, str, str]]) -> None:
        """The whole story in a table: title, end, reason."""
        table = Table(title="What became of each", title_justify="left", show_edge=False)
        for column in ("scene", "ended", "reason"):
            table.add_column(column)
        for row in rows:
            table.add_row(*row)
        self._out.print()
        self._out.print(table)
