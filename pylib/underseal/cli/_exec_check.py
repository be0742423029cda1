"""`underseal exec verify` and `denials`: whether tables and logs agree, and who was turned away why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from underseal.cli._exec_session import Here, executions, print_exact
from underseal.cli._exits import DONE, FAILED, REFUSED
from underseal.cli._json import print_json
from underseal.cli._render import console, print_table, said, wide
from underseal.cli._session import connect, demand_usable, options, principal_option
from underseal.cli._times import both, relative
from underseal.cli._visible import visible_value

if TYPE_CHECKING:
    from underseal.log.verify import Difference, Verification

_PAGE = 200
_STYLES = {"verified": "green", "different": "bold red", "unverifiable": "yellow"}
_CODES = {"verified": DONE, "different": FAILED, "unverifiable": REFUSED}


@click.command()
@click.argument("execution_ids", metavar="[ID]...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Every execution that you may read.")
@options(principal_option)
def verify(
    dsn: str | None, principal: str | None, execution_ids: tuple[str, ...], everything: bool, as_json: bool
) -> None:
    """Compare what the tables say of executions with what their logs say, and name each difference.

    Takes worker or operator access; without --principal it reads as a worker does. Nothing is mended.

    Exit code 1 if anything differs, 4 if something could not be verified (its events are sealed, and do not open here).
    """
    if bool(execution_ids) == everything:
        given = "both" if everything else "neither"
        raise click.UsageError(f"expected ids of executions or --all, found {given}")
    found = []
    with executions(dsn) as here:
        for one in _verified(here, execution_ids, principal):
            found.append(one)
            if not as_json and (execution_ids or one.outcome != "verified"):
                _print(one)
    counts = Counter(str(one.outcome) for one in found)
    if as_json:
        print_exact(found)
    elif everything:
        parts = ", ".join(f"{counts[name]} {name}" for name in _STYLES)
        console().print(Text(f"{len(found)} executions: {parts}", style=_STYLES[_worst(counts)]))
    click.get_current_context().exit(_CODES[_worst(counts)])


def _worst(counts: Counter[str]) -> str:
    return next((name for name in ("different", "unverifiable") if counts[name]), "verified")


def _verified(here: Here, execution_ids: tuple[str, ...], principal: str | None) -> Iterator[Verification]:
    from underseal.errors import ExecutionDeniedError

    for execution_id in execution_ids or _all(here, principal):
        try:
            yield here.executions.verify(execution_id, principal)
        except ExecutionDeniedError:
            if execution_ids:
                raise
            # deleted since it was listed


def _all(here: Here, principal: str | None) -> Iterator[str]:
    from underseal.foundation.steps import drive
    from underseal.log import verbs

    after = None
    while True:
        page = drive(here.source, verbs.list_executions(principal, None, None, _PAGE, after))  # type: ignore[arg-type]
        yield from (one.execution_id for one in page)
        if len(page) < _PAGE:
            return
        after = page[-1]


def _print(one: Verification) -> None:
    out = console()
    line = Text(f"{one.outcome}  ", style=_STYLES[one.outcome]).append(said(one.execution_id, "not bold"))
    if one.since is not None:
        line.append(f"  from the snapshot at event {one.since} on", "dim")
    out.print(line)
    if one.outcome == "unverifiable":
        out.print(Text("  what is left of its log is sealed, and does not open here"))
    for difference in one.differences:
        out.print(Text(f"  {difference.what}", style="bold"))
        for name, value in (("tables", difference.tables), ("log", difference.log)):
            out.print(Text.assemble((f"    {name:<8}", "dim"), _value(difference, value)))


def _value(difference: Difference, value: Any) -> Text:
    # why a log is none is a sentence of ours
    if difference.what == "log" and isinstance(value, str):
        return said(value)
    return Text("nothing", style="italic") if value is None else Text(visible_value(value))


@click.command()
@click.option(
    "--limit", default=50, show_default=True, type=click.IntRange(1, 10000), help="At most so many."
)
@click.option("--id", "execution_id", help="Only those that named this execution.")
@options()
def denials(dsn: str | None, limit: int, execution_id: str | None, as_json: bool) -> None:
    """List who was turned away from which execution, the newest first, with the cause that they were not told.

    Takes operator access. Denials are kept for 30 days.
    """
    from psycopg.rows import dict_row

    query = (
        "select d.denied_at, d.op, d.execution_id, d.principal, d.cause from underseal.execution_denials d"
        " where d.execution_id = coalesce(%s, d.execution_id) limit %s"
    )
    with connect(dsn) as connection, connection.cursor(row_factory=dict_row) as cursor:
        now = demand_usable(connection)
        rows = cursor.execute(query, (execution_id, limit)).fetchall()
    if as_json:
        print_json(rows)
        return
    show = both if wide() else relative
    print_table(
        ("when", "who", "asked to", "execution", "cause"),
        ([show(row["denied_at"], now), said(row["principal"]), said(row["op"]), said(row["execution_id"]),
          said(row["cause"], "bold")] for row in rows),
        empty="nobody was turned away",
    )  # fmt: skip
