"""Flows a second in one process, beside raw commits and beside other engines."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Final

from bench.flows_peers import PEERS, installed, make_peer_database
from bench.flows_setting import STEPS, driver
from bench.log_setting import make_log_database
from bench.nodes import Done, running_node, stopped
from bench.one_step import raw_executions, script
from bench.server_cpu import children_seconds, server_seconds
from bench.setting import as_service
from bench.turns import Pace, ratio, take_turns, telling
from underseal.foundation.server import Server

DBNAME: Final = "flows_rate"
AT_ONCE: Final = 64


def measure_rate(
    server: Server, directory: Path, *, pace: Pace, tell: Callable[[str], None]
) -> dict[str, float]:
    """Measure one process of ours beside raw executions by pgbench, and beside one process of each peer.

    Parameters:
        server: where; a database is made for us and one for each peer.
        directory: an existing directory for pgbench's script.
        pace: how long and how often each side is measured.
        tell: is told how far it is.

    Returns: `flow1.c64.…` and `flow10.c64.…`: medians of flows (of ten steps: of steps) a second and their ratios to
    the sides beside ours; processor time that a flow takes of the client and of the server, all processes together; and
    how many times as much of both the others take (`….cpu.vs_…`), which a busy machine disturbs least.
    """
    make_log_database(server, DBNAME)
    file = directory / "flows_three_commits.sql"
    file.write_text(script())
    here: dict[str, list[float]] = {}
    there: dict[str, list[float]] = {}
    peers = installed()
    with ExitStack() as stack:
        nodes = {"own": stack.enter_context(running_node(driver, as_service(server, DBNAME)))}
        for peer in peers:
            tell(f"starting {peer}")
            nodes[peer] = stack.enter_context(
                running_node(PEERS[peer], make_peer_database(server, peer, peer))
            )

        def once(side: str) -> Done:
            if side == "raw3":
                before = children_seconds()
                with stopped(nodes.values()):
                    rate = raw_executions(server, file, pace.seconds, DBNAME)
                seconds = max(1, round(pace.seconds))
                return Done(round(rate * seconds), seconds, children_seconds() - before)
            who, flow = side.split(".")
            with stopped(node for name, node in nodes.items() if name != who):
                done: Done = nodes[who].ask("rate", flow, AT_ONCE, pace.seconds)
            return done

        def measure(side: str) -> float:
            before = server_seconds(server)
            done = once(side)
            here.setdefault(side, []).append(done.each(done.cpu))
            there.setdefault(side, []).append(done.each(server_seconds(server) - before))
            return done.rate * (STEPS if side.endswith(".ten") else 1)

        ours = ["own.one", "own.ten"]
        theirs = [f"{peer}.{flow}" for peer in peers for flow in ("one", "ten")]
        for side in ours:
            measure(side)
        here.clear()
        there.clear()
        figures = take_turns(["raw3", *ours, *theirs], pace.rounds, measure, telling(tell, "flows"))
    numbers = {
        "flow1.c64.vs_raw3": ratio(figures, "own.one", "raw3"),
        "flow1.c64.per_s": median(figures["own.one"]),
        "flow1.c64.raw3_per_s": median(figures["raw3"]),
        "flow10.c64.steps_per_s": median(figures["own.ten"]),
    }
    for peer in peers:
        numbers |= {
            f"flow1.c64.vs_{peer}": ratio(figures, "own.one", f"{peer}.one"),
            f"flow1.c64.{peer}_per_s": median(figures[f"{peer}.one"]),
            f"flow10.c64.steps.vs_{peer}": ratio(figures, "own.ten", f"{peer}.ten"),
            f"flow10.c64.{peer}_steps_per_s": median(figures[f"{peer}.ten"]),
        }
    for side in figures:
        who, _, flow = side.partition(".")
        name = f"flow{STEPS if flow == 'ten' else 1}.c64.{'' if who == 'own' else who + '_'}"
        numbers[f"{name}client_cpu_us"] = median(here[side]) * 1e6
        numbers[f"{name}server_cpu_us"] = median(there[side]) * 1e6
    for side in figures:
        who, _, flow = side.partition(".")
        if who != "own":
            whole = {each: [x + y for x, y in zip(here[each], there[each], strict=True)] for each in figures}
            numbers[f"flow{STEPS if flow == 'ten' else 1}.c64.cpu.vs_{who}"] = ratio(
                whole, side, f"own.{flow or 'one'}"
            )
    return numbers
