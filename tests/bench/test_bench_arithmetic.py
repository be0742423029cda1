"""What the measurements make of what they measure: turns, ratios, differences of counters, texts."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
import pytest

from bench.costs import Written, each, under
from bench.log_setting import DATA, EVENT, append_item, array, item, new_id, start_item
from bench.nodes import Done, running_node
from bench.one_step import read_tps, script
from bench.report import target
from bench.server_cpu import server_seconds
from bench.turns import ratio, take_turns
from underseal.foundation.server import Server


def test_sides_take_turns_and_the_order_alternates() -> None:
    asked: list[str] = []

    def measure(side: str) -> float:
        asked.append(side)
        return float(len(asked))

    figures = take_turns(("kernel", "raw"), 3, measure, lambda _: None)
    assert asked == ["raw", "kernel", "kernel", "raw", "raw", "kernel"]
    assert figures == {"kernel": [2.0, 3.0, 6.0], "raw": [1.0, 4.0, 5.0]}


def test_a_ratio_compares_within_rounds() -> None:
    # the second round was disturbed for both; medians over all rounds would say 0.1
    figures = {"kernel": [50.0, 10.0, 60.0], "raw": [100.0, 20.0, 500.0]}
    assert ratio(figures, "kernel", "raw") == 0.5


def test_a_ratio_wants_both_sides_in_every_round() -> None:
    with pytest.raises(ValueError, match="zip"):
        ratio({"kernel": [1.0], "raw": [1.0, 2.0]}, "kernel", "raw")


def test_what_was_written_is_the_difference_by_what_was_done() -> None:
    assert each((1000.0, 10.0, 8192.0), (3000.0, 13.0, 24576.0), 64) == Written(
        wal=2000 / 64, commits=3 / 64, table=16384 / 64
    )


@pytest.mark.parametrize(
    ("name", "prefix"),
    [("append", "append."), ("append.raw", "append.raw_"), ("one_step.raw3", "one_step.raw3_")],
)
def test_a_sides_figures_stand_beside_the_kernels(name: str, prefix: str) -> None:
    assert under(name) == prefix


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("append.c16.vs_raw", 0.5, "at least 0.5: yes"),
        ("append.c16.vs_raw", 0.49, "at least 0.5: NO"),
        ("append_batch.rows.vs_raw", 0.39, "at least 0.4: NO"),
        ("held.big.claim_ratio", 1.5, "below 1.5: NO"),
        ("append.c1.vs_raw", 0.1, ""),
        ("flow1.commits", 0.1, "at most 0.1: yes"),
        ("flow1.commits", 0.11, "at most 0.1: NO"),
    ],
)
def test_a_target_is_met_or_not(name: str, value: float, expected: str) -> None:
    assert target(name, value) == expected


def test_pgbench_tells_of_transactions_a_second() -> None:
    assert (
        read_tps(
            "number of failed transactions: 0 (0.000%)\ntps = 6612.25 (without initial connection time)\n"
        )
        == 6612.25
    )


@pytest.mark.parametrize(
    "output",
    ["", "number of failed transactions: 3 (0.100%)\ntps = 6612.25 (without initial connection time)\n"],
)
def test_a_run_that_failed_is_no_figure(output: str) -> None:
    with pytest.raises(RuntimeError, match="pgbench"):
        read_tps(output)


def test_pgbench_gets_the_statements_of_the_raw_side() -> None:
    lines = script().splitlines()
    assert [line.split()[0] for line in lines] == ["\\set", "insert", "insert", "update"]
    assert all(line.count("lpad(:number, 32, '0')") == 1 for line in lines[1:])
    assert not any("%" in line for line in lines)
    # pgbench takes a word right after a colon for a variable
    assert all(re.findall(r":[A-Za-z]\w*", line) == [":number"] for line in lines[1:])


def test_an_event_says_about_a_hundred_bytes() -> None:
    assert 90 <= len(DATA) <= 110


def test_the_items_of_a_batch_are_json() -> None:
    execution_id = new_id()
    batch = json.loads(
        array(
            [
                start_item(execution_id, worker="w"),
                append_item(execution_id, 3),
                item("complete", execution_id, '"output": null'),
            ]
        )
    )
    assert [each_["verb"] for each_ in batch] == ["start", "append", "complete"]
    assert batch[0]["lease"] == "30 seconds"
    assert batch[1]["events"] == [json.loads(EVENT)] * 3
    assert "worker" not in json.loads(start_item(execution_id))


def test_ids_are_as_long_as_the_kernels_and_go_up() -> None:
    ids = [new_id() for _ in range(100)]
    assert {len(each_) for each_ in ids} == {32}
    assert sorted(each_[:12] for each_ in ids) == [each_[:12] for each_ in ids]


def test_what_was_done_has_a_rate() -> None:
    assert Done(30, 1.5, 0.2).rate == 20


def test_what_each_took_counts_what_was_done_beside() -> None:
    assert Done(30, 1.5, 0.2).each(6.0) == 0.2
    assert Done(30, 1.5, 0.2, all=40).each(6.0) == 0.15


def test_a_process_answers_and_tells_what_went_wrong() -> None:
    with running_node(echo, 3) as node:
        assert node.ask("times", 4) == 12
        node.tell("later", 5)
        assert node.said() == 15
        with pytest.raises(RuntimeError, match="no such thing"):
            node.ask("fail")
        assert node.ask("times", 2) == 6


def test_a_process_that_does_not_start_is_told_of() -> None:
    with pytest.raises(RuntimeError, match="found that it ended"), running_node(echo):
        pass


def test_the_servers_processor_time_grows_with_its_work(postgres: Server) -> None:
    before = server_seconds(postgres)
    with psycopg.connect(postgres.conninfo(), autocommit=True) as connection:
        connection.execute("select count(*) from generate_series(1, 2000000)")
    assert server_seconds(postgres) - before > 0.05


class Echo:
    """Answers with what it is asked."""

    def __init__(self, factor: int) -> None:
        self._factor = factor

    def times(self, value: int) -> int:
        return value * self._factor

    async def later(self, value: int) -> int:
        return value * self._factor

    def fail(self) -> None:
        raise ValueError("no such thing")


@asynccontextmanager
async def echo(factor: int) -> AsyncIterator[Echo]:
    """A process for the tests."""
    yield Echo(factor)
