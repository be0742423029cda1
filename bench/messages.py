"""Sends a second, and what a wait costs from its park to its answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import cycle
from statistics import median
from typing import Final

from bench.clients import Side, running_clients
from bench.log_setting import Service, array, item, make_log_database, one, start, write_batch
from bench.setting import as_service
from bench.turns import Pace, telling
from underseal.foundation.server import Server

DBNAME: Final = "messages"
SEND: Final = "select outcome, reason, inbox_seq from underseal.send(%s, 'answers', %s, 'ann')"
DELIVER: Final = "select outcome, reason, answered from underseal.deliver(%s, 1)"
PAYLOAD: Final = '{"answer": "yes", "by": "ann", "note": "as discussed, from the first of next month"}'
WAITS: Final = '"waits": [{"wait": "answer", "arms": [{"topic": "answers"}]}]'


class Sends:
    """One message a call, to executions in turn that do not wait for it."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._ids: Iterator[str] = iter(())

    def prepare(self) -> None:
        self._ids = cycle(start(self._service, 20))

    def step(self) -> int:
        one(self._service, SEND, "sent", next(self._ids), PAYLOAD)
        return 1


class Answers:
    """Park, send, deliver: three calls."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._ids: Iterator[str] = iter(())

    def prepare(self) -> None:
        self._ids = cycle(start(self._service, 20))

    def step(self) -> int:
        execution_id = next(self._ids)
        write_batch(self._service, array([item("park", execution_id, WAITS)]), "parked")
        one(self._service, SEND, "sent", execution_id, PAYLOAD)
        one(self._service, DELIVER, "delivered", execution_id)
        return 1


def make_sides(service: Service) -> dict[str, Side]:
    """The sides of one client."""
    return {"send": Sends(service), "answer": Answers(service)}


def measure_messages(
    server: Server, *, amounts: tuple[int, ...], pace: Pace, tell: Callable[[str], None]
) -> dict[str, float]:
    """Measure both at every number of clients.

    Parameters:
        server: where; a database is made.
        amounts: numbers of clients.
        pace: how long and how often.
        tell: is told how far it is.

    Returns: `send.c<clients>.per_s` and `park_send_deliver.c<clients>.per_s`, medians.
    """
    make_log_database(server, DBNAME)
    numbers: dict[str, float] = {}
    with running_clients(as_service(server, DBNAME), max(amounts), make_sides) as clients:
        for side in ("send", "answer"):
            clients.round(side, max(amounts), pace.seconds)
        for amount in amounts:
            figures = clients.compare(
                ("send", "answer"), amount, pace, telling(tell, f"messages, {amount} clients")
            )
            numbers[f"send.c{amount}.per_s"] = median(figures["send"])
            numbers[f"park_send_deliver.c{amount}.per_s"] = median(figures["answer"])
    return numbers
