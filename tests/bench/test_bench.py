"""The measurements run, and leave every figure that is promised; what the figures are is for `make bench`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from bench.flows_peers import installed

ROOT: Final = Path(__file__).parents[2]
SIDES: Final = ("cycles_per_s", "bare_cycles_per_s", "vs_bare")
CALLS: Final = ("claim_ratio", "list_ratio", "sweep_ratio")
SHAPES: Final = ("100x1", "20x5", "10x10", "100x10")
WAYS: Final = ("vs_raw", "vs_raw_arrays", "vs_raw_values")
WRITTEN: Final = (
    *(f"append.{name}" for name in ("wal_bytes", "raw_wal_bytes", "us", "without_fold_us")),
    *(f"append_batch.{name}" for name in ("wal_bytes", "raw_wal_bytes", "table_bytes", "raw_table_bytes")),
    *(f"one_step.{name}" for name in ("wal_bytes", "raw3_wal_bytes", "table_bytes", "raw3_table_bytes")),
)
FLOWS: Final = (
    *(f"flow1.c64.{name}" for name in ("vs_raw3", "per_s", "client_cpu_us", "server_cpu_us", "cpu.vs_raw3")),
    *("flow10.c64.steps_per_s", "flow10.c64.client_cpu_us", "flow10.c64.server_cpu_us"),
    *("flow1.commits", "flow1.wal_bytes", "flow1.wal_bytes.vs_raw3", "flow1.table_bytes.vs_raw3"),
    *("flow1.worker.vs_own", "flow1.worker.single_starts.vs_own"),
    *("flow1.idle_p50_ms", "flow1.worker.idle_p50_ms", "send.idle_p50_ms"),
    *("drain.flat", "flow1.past.vs_empty", "drain.past.vs_empty"),
    *("replay.x10.ratio", "replay.x10_ms", "replay.ms"),
)
PEERS: Final = {
    "absurd": ("flow1.c64.vs_absurd", "flow10.c64.steps.vs_absurd", "flow1.c64.cpu.vs_absurd"),
    "dbos": ("flow1.c64.vs_dbos", "flow10.c64.steps.vs_dbos", "flow1.idle_p50.vs_dbos"),
}


def run_quickly(*options: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "bench", "--quick", *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr


@pytest.fixture(scope="module")
def figures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    """What a quick run wrote."""
    out = tmp_path_factory.mktemp("bench") / "out" / "latest.json"
    run_quickly("--out", str(out))
    written: dict[str, float] = json.loads(out.read_text())
    return written


@pytest.mark.parametrize("name", SIDES)
def test_cycles_are_measured_beside_the_bare_writes(figures: dict[str, float], name: str) -> None:
    assert figures[f"held.c1.{name}"] > 0
    assert figures[f"held.c4.{name}"] > 0


@pytest.mark.parametrize("name", CALLS)
def test_a_long_past_is_measured(figures: dict[str, float], name: str) -> None:
    assert figures[f"held.big.{name}"] > 0


def test_the_outbox_is_measured(figures: dict[str, float]) -> None:
    assert figures["held.outbox.events"] > 0
    assert figures["held.outbox.empty_poll_ratio"] > 0


def test_the_file_is_flat(figures: dict[str, float]) -> None:
    assert all(isinstance(value, int | float) for value in figures.values())


@pytest.mark.parametrize("amount", [1, 4])
def test_single_appends_are_measured_beside_raw_ones(figures: dict[str, float], amount: int) -> None:
    for name in ("per_s", "raw_per_s", "vs_raw"):
        assert figures[f"append.c{amount}.{name}"] > 0


@pytest.mark.parametrize("shape", SHAPES)
def test_batches_are_measured_beside_every_way_to_send_the_rows(
    figures: dict[str, float], shape: str
) -> None:
    for name in ("rows_per_s", "raw_rows_per_s", *WAYS):
        assert figures[f"append_batch.{shape}.{name}"] > 0


def test_the_target_for_batches_is_one_event_of_each_of_many_executions(figures: dict[str, float]) -> None:
    assert figures["append_batch.rows.vs_raw"] == figures["append_batch.100x1.vs_raw"]


@pytest.mark.parametrize("name", WRITTEN)
def test_what_is_written_is_counted(figures: dict[str, float], name: str) -> None:
    assert figures[name] > 0


def test_commits_are_counted(figures: dict[str, float]) -> None:
    assert figures["one_step.commits"] == pytest.approx(3 / 64, rel=0.35)
    assert figures["one_step.raw3_commits"] == pytest.approx(3, rel=0.02)


def test_the_folds_share_is_a_share(figures: dict[str, float]) -> None:
    assert figures["append.fold_share"] < 1
    assert figures["append_batch.fold_share"] < 1


@pytest.mark.parametrize("name", ["send", "park_send_deliver"])
def test_messages_are_measured(figures: dict[str, float], name: str) -> None:
    assert figures[f"{name}.c1.per_s"] > 0
    assert figures[f"{name}.c4.per_s"] > 0


def test_one_step_executions_are_measured_beside_raw_ones(figures: dict[str, float]) -> None:
    for name in ("per_s", "two_batches_per_s", "raw3_per_s", "vs_raw3", "two_batches_vs_raw3"):
        assert figures[f"one_step.{name}"] > 0


@pytest.mark.parametrize("name", FLOWS)
def test_flows_are_measured(figures: dict[str, float], name: str) -> None:
    assert figures[name] > 0


def test_an_idle_worker_is_measured(figures: dict[str, float]) -> None:
    assert figures["worker.idle_commits_per_s"] >= 0


@pytest.mark.parametrize("peer", list(PEERS))
def test_flows_are_measured_beside_peers_that_are_installed(figures: dict[str, float], peer: str) -> None:
    for name in PEERS[peer]:
        assert (figures.get(name, 0) > 0) is (peer in installed())


def test_a_part_can_be_measured_alone(tmp_path: Path) -> None:
    out = tmp_path / "part.json"
    run_quickly("--part", "one-step", "--out", str(out))
    assert {name.partition(".")[0] for name in json.loads(out.read_text())} == {"one_step"}
