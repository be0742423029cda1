"""Events a second through the log, beside a table made by hand: one at a time, and in batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import cycle
from statistics import median
from typing import Any, Final

from bench.clients import Side, running_clients
from bench.log_setting import (
    DATA,
    EVENT,
    TYPE,
    Service,
    append_item,
    array,
    make_log_database,
    new_id,
    one,
    start,
    write_batch,
)
from bench.setting import as_service
from bench.turns import Pace, ratio, telling
from underseal.foundation.server import Server

DBNAME: Final = "appends"
APPEND: Final = "select outcome, reason, head from underseal.append(%s, 1, %s)"
INSERT: Final = """
  insert into raw.event (chain_id, member, seq, recorded_at, type, data)
  values (%s, '', %s, clock_timestamp(), %s, %s)
"""
INSERT_JSON: Final = """
  insert into raw.event (chain_id, member, seq, recorded_at, type, data)
  select e.id, '', e.seq, clock_timestamp(), e.type, e.data
  from json_to_recordset(%s) as e (id text, seq bigint, type text, data json)
"""
INSERT_ARRAYS: Final = """
  insert into raw.event (chain_id, member, seq, recorded_at, type, data)
  select e.id, '', e.seq, clock_timestamp(), e.type, e.data::json
  from unnest(%s::text[], %s::bigint[], %s::text[], %s::text[]) as e (id, seq, type, data)
"""
IN_TURN: Final = 100
"""Executions that one client appends to in turn, made anew for every round."""
SHAPES: Final = ((100, 1), (20, 5), (10, 10), (100, 10))
"""Executions in a batch, and events of each. Group commit gathers what many executions record while the last batch is
under way, which is one event each: the first shape."""


class KernelAppends:
    """One event a call."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._ids: Iterator[str] = iter(())
        self._events = array([EVENT])

    def prepare(self) -> None:
        self._ids = cycle(start(self._service, IN_TURN))

    def step(self) -> int:
        one(self._service, APPEND, "appended", next(self._ids), self._events)
        return 1


class RawAppends:
    """One row a call."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._rows: Iterator[tuple[str, int]] = iter(())

    def prepare(self) -> None:
        ids = [new_id() for _ in range(IN_TURN)]
        self._rows = ((each, seq) for seq in range(1, 1_000_000) for each in ids)

    def step(self) -> int:
        self._service.execute(INSERT, [*next(self._rows), TYPE, DATA], prepare=True)
        return 1


class KernelBatches:
    """One batch a call, its text made before."""

    def __init__(self, service: Service, executions: int, events: int) -> None:
        self._service = service
        self._executions = executions
        self._events = events
        self._batches: Iterator[str] = iter(())

    def prepare(self) -> None:
        batches = []
        for _ in range(3):
            ids = start(self._service, self._executions)
            batches.append(array([append_item(each, self._events) for each in ids]))
        self._batches = cycle(batches)

    def step(self) -> int:
        write_batch(self._service, next(self._batches), "appended")
        return self._executions * self._events


class RawBatches:
    """One INSERT of the same rows; `way` is how they are sent."""

    def __init__(self, service: Service, executions: int, events: int, way: str) -> None:
        self._service = service
        self._executions = executions
        self._events = events
        self._way = way
        values = ", ".join(["(%s, '', %s, clock_timestamp(), %s, %s)"] * executions * events)
        self._values = (
            f"insert into raw.event (chain_id, member, seq, recorded_at, type, data) values {values}"
        )
        self._batches: list[list[Any]] = []

    def prepare(self) -> None:
        self._batches = [self._batch() for _ in range(20)]

    def _batch(self) -> list[Any]:
        rows = [
            (each, seq, TYPE, DATA)
            for each in [new_id() for _ in range(self._executions)]
            for seq in range(1, self._events + 1)
        ]
        if self._way == "values":
            return [value for row in rows for value in row]
        if self._way == "arrays":
            return [list(column) for column in zip(*rows, strict=True)]
        texts = [
            f'{{"id": "{each}", "seq": {seq}, "type": "{kind}", "data": {data}}}'
            for each, seq, kind, data in rows
        ]
        return [array(texts)]

    def step(self) -> int:
        batch = self._batches.pop() if self._batches else self._batch()
        query = {"values": self._values, "arrays": INSERT_ARRAYS, "json": INSERT_JSON}[self._way]
        self._service.execute(query.encode(), batch, prepare=True)
        return self._executions * self._events


def make_sides(service: Service) -> dict[str, Side]:
    """The sides of one client."""
    sides: dict[str, Side] = {"append": KernelAppends(service), "raw": RawAppends(service)}
    for executions, events in SHAPES:
        shape = f"{executions}x{events}"
        sides[f"{shape}.kernel"] = KernelBatches(service, executions, events)
        for way in ("json", "arrays", "values"):
            sides[f"{shape}.{way}"] = RawBatches(service, executions, events, way)
    return sides


def measure_appends(
    server: Server, *, amounts: tuple[int, ...], pace: Pace, tell: Callable[[str], None]
) -> dict[str, float]:
    """Single appends at several numbers of clients, and batches of one client.

    Parameters:
        server: where; a database is made.
        amounts: numbers of clients for single appends.
        pace: how long and how often each side is measured.
        tell: is told how far it is.

    Returns: `append.c<clients>.…` and `append_batch.<executions>x<events>.…`: medians of events a second, and ratios
    to the rows a second of raw inserts beside them. `append_batch.rows.vs_raw` is that of the first shape, beside the
    raw side that gets the same JSON in one parameter.
    """
    make_log_database(server, DBNAME)
    numbers: dict[str, float] = {}
    with running_clients(as_service(server, DBNAME), max(amounts), make_sides) as clients:
        for side in ("append", "raw"):
            clients.round(side, max(amounts), pace.seconds)
        for amount in amounts:
            figures = clients.compare(
                ("append", "raw"), amount, pace, telling(tell, f"single appends, {amount} clients")
            )
            numbers[f"append.c{amount}.per_s"] = median(figures["append"])
            numbers[f"append.c{amount}.raw_per_s"] = median(figures["raw"])
            numbers[f"append.c{amount}.vs_raw"] = ratio(figures, "append", "raw")
        for executions, events in SHAPES:
            shape = f"{executions}x{events}"
            sides = [f"{shape}.{way}" for way in ("kernel", "json", "arrays", "values")]
            for side in sides:
                clients.round(side, 1, pace.seconds / 4)
            figures = clients.compare(sides, 1, pace, telling(tell, f"batches of {shape}"))
            name = f"append_batch.{shape}"
            numbers[f"{name}.rows_per_s"] = median(figures[sides[0]])
            numbers[f"{name}.raw_rows_per_s"] = median(figures[sides[1]])
            numbers[f"{name}.vs_raw"] = ratio(figures, sides[0], sides[1])
            numbers[f"{name}.vs_raw_arrays"] = ratio(figures, sides[0], sides[2])
            numbers[f"{name}.vs_raw_values"] = ratio(figures, sides[0], sides[3])
    first = "x".join(str(number) for number in SHAPES[0])
    return {"append_batch.rows.vs_raw": numbers[f"append_batch.{first}.vs_raw"]} | numbers
