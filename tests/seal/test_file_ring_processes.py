"""Many processes at one key ring: one mint wins, and all of them agree (X9, X11)."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from underseal.seal import FileKeyRing

# Each process says that it is ready, waits for the word, acts at once, and prints what it got.
PROGRAM = """
import json, sys
from underseal.seal import FileKeyRing
ring = FileKeyRing(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
print(json.dumps([getattr(ring, act)("payload").id for act in sys.argv[2].split(",")]), flush=True)
"""
PROCESSES = 4


def race(path: Path, acts: str) -> list[list[str]]:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(path), acts],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(PROCESSES)
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        answers = [process.communicate(timeout=60)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return [json.loads(answer) for answer in answers]


@pytest.mark.clause("X9", "X11")
def test_processes_that_generate_the_first_key_at_once_get_the_same_one(tmp_path: Path) -> None:
    answers = race(tmp_path / "ring", "generate")
    ring = FileKeyRing(tmp_path / "ring")
    assert answers == [[ring.active("payload").id]] * PROCESSES
    assert len(ring.live("payload")) == 1
    assert ring.findings() == []


@pytest.mark.clause("X9")
def test_processes_that_rotate_at_once_leave_one_order_of_keys(tmp_path: Path) -> None:
    ring = FileKeyRing(tmp_path / "ring")
    first = ring.generate("payload")
    answers = race(tmp_path / "ring", "rotate,rotate,rotate")
    oldest_first = ring.key_ids("payload")[::-1]
    assert oldest_first[0] == first.id
    assert 4 <= len(oldest_first) <= 1 + 3 * PROCESSES
    for got in answers:
        positions = [oldest_first.index(key_id) for key_id in got]
        assert positions == sorted(set(positions))
        assert positions[0] > 0
    names = sorted(file.name for file in ring.path.iterdir())
    assert names == [f"payload.{number:06d}.key" for number in range(1, len(oldest_first) + 1)]
    assert ring.findings() == []


@pytest.mark.clause("X11")
def test_threads_that_generate_at_once_get_the_same_key(tmp_path: Path) -> None:
    ring, gate = FileKeyRing(tmp_path / "ring"), threading.Barrier(8)
    got: list[str] = []

    def generate() -> None:
        gate.wait()
        got.append(ring.generate("payload").id)

    threads = [threading.Thread(target=generate) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == [ring.active("payload").id] * 8


@pytest.mark.clause("X9", "X11")
def test_the_loser_of_a_mint_takes_the_winner_s_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same race, at the one point where it matters: between looking and linking."""
    path = tmp_path / "ring"
    loser, winner = FileKeyRing(path), FileKeyRing(path)
    original = FileKeyRing._mint
    won: list[str] = []

    def lose(self: FileKeyRing, *args: object) -> None:
        if self is loser:
            won.append(winner.generate("payload").id)
        original(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(FileKeyRing, "_mint", lose)
    assert [loser.generate("payload").id] == won
    assert len(loser.live("payload")) == 1
