"""What the replay of a long log takes, beside one of a tenth of it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from statistics import median
from typing import Any, Final

from bench.flows_setting import OWNER, calling, long, service
from bench.log_setting import array, make_log_database, new_id
from bench.nodes import running_node
from bench.setting import as_service
from bench.turns import ratio, take_turns, telling
from underseal.flow import items
from underseal.flow.gateway import Gateway
from underseal.flow.replay import Replay
from underseal.foundation.server import Server

DBNAME: Final = "flows_replay"
PAGE: Final = 1000


class Replayer:
    """Reads logs and replays them."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def replay(self, execution_id: str) -> tuple[float, float]:
        """Milliseconds of reading a log and of replaying it, up to the step that it does not hold."""
        begin = time.perf_counter()
        history: list[tuple[str, dict[str, Any]]] = []
        after, last = -1, PAGE
        while last == PAGE:
            rows = await self._gateway.read([{"execution_id": execution_id, "after": after}], PAGE)
            history += [(row["type"], row["data"]) for row in rows]
            after, last = len(history) - 1, len(rows)
        read = time.perf_counter()
        replay = Replay(long, execution_id)
        replay.foresee(history)
        for kind, data in history:
            replay.apply(kind, data)
        replay.caught_up()
        done = time.perf_counter()
        if [op.number for op in replay.fresh] != [len(history)]:
            raise RuntimeError("expected the flow to ask for the step after its log: nothing was measured")
        replay.close()
        return (read - begin) * 1e3, (done - read) * 1e3


@asynccontextmanager
async def replayer(conninfo: str) -> AsyncIterator[Replayer]:
    """A process that replays."""
    async with calling(conninfo) as gateway:
        yield Replayer(gateway)


def write_log(server: Server, events: int) -> str:
    """Make an execution with so many events, its start among them.

    Returns: its id.
    """
    execution_id = new_id()
    texts = [items.step_text(number, "step", str(number - 1)) for number in range(1, events)]
    batches = [items.start_text(execution_id, "long", 1, OWNER, str(events + 1), "bench", "1 hour")]
    batches += [
        items.append_text(execution_id, 1, texts[begin : begin + 500]) for begin in range(0, len(texts), 500)
    ]
    with service(server, DBNAME) as connection:
        for item in batches:
            ((outcome, message),) = connection.execute(
                "select outcome, message from underseal.append_batch(%s::json)", [array([item])]
            ).fetchall()
            if outcome not in ("started", "appended"):
                raise RuntimeError(f"expected a log, found {outcome}: {message}")
    return execution_id


def measure_replay(
    server: Server, *, events: int, rounds: int, tell: Callable[[str], None]
) -> dict[str, float]:
    """Measure the replay of a log and of one ten times as long.

    Parameters:
        server: where; a database is made.
        events: of the short one.
        rounds: how often.
        tell: is told how far it is.

    Returns: `replay.ms` and `replay.x10_ms` (medians, reading included), `replay.x10.ratio`, and of each what reading
    takes of it.
    """
    make_log_database(server, DBNAME)
    logs = {"short": write_log(server, events), "long": write_log(server, 10 * events)}
    reading: dict[str, list[float]] = {"short": [], "long": []}
    with running_node(replayer, as_service(server, DBNAME)) as node:

        def measure(side: str) -> float:
            read, replayed = node.ask("replay", logs[side])
            reading[side].append(read)
            return float(read + replayed)

        for side in logs:
            measure(side)
        figures = take_turns(list(logs), rounds, measure, telling(tell, "replays"))
    return {
        "replay.x10.ratio": ratio(figures, "long", "short"),
        "replay.x10_ms": median(figures["long"]),
        "replay.x10.read_ms": median(reading["long"]),
        "replay.ms": median(figures["short"]),
        "replay.read_ms": median(reading["short"]),
    }
