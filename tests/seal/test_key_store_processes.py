"""Many processes at one key store: one mint wins, and no destruction is overtaken (X9, X11)."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from underseal.errors import SubjectErasingError
from underseal.seal import Destroyed, FileKeyRing, Key, MemoryKeyRing
from underseal.seal.store import FileKeyStore, KeyPlace, RingMaster, Wrapped
from underseal.seal.store.cabinet import FileCabinet
from underseal.seal.store.drawer import FileDrawer
from underseal.seal.store.model import Contents

# Each process says that it is ready, waits for the word, acts at once, and prints what it got.
PROGRAM = """
import json, sys
from pathlib import Path
from underseal.errors import SubjectErasingError
from underseal.seal import FileKeyRing
from underseal.seal.store import FileKeyStore, RingMaster

case, act = Path(sys.argv[1]), sys.argv[2]
store = FileKeyStore(case / "keys", RingMaster(FileKeyRing(case / "ring")), fences=case / "fences")
print("ready", flush=True)
sys.stdin.readline()
got = []
for number in range(int(sys.argv[3])):
    subject = f"s{number}"
    try:
        if act == "mint":
            got.append([store.mint(subject, named=()).key_id])
        elif act == "rotate":
            got.append([store.rotate(subject).key_id])
        elif act == "rewrap":
            got.append([list(store.rewrap())[-1].unopened])
        else:
            got.append(list(store.destroy(subject).key_ids))
    except SubjectErasingError:
        got.append([])
print(json.dumps(got), flush=True)
"""


@pytest.fixture
def case(tmp_path: Path) -> Path:
    ring = FileKeyRing(tmp_path / "ring")
    ring.generate("master")
    FileKeyStore.create(tmp_path / "keys", RingMaster(ring), fences=tmp_path / "fences")
    return tmp_path


def opened(case: Path) -> FileKeyStore:
    return FileKeyStore(case / "keys", RingMaster(FileKeyRing(case / "ring")), fences=case / "fences")


def race(case: Path, acts: list[str], subjects: int) -> list[list[Any]]:
    """Let a process for each of ``acts`` do it for every subject, all at once; what each got."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(case), act, str(subjects)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for act in acts
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
def test_processes_that_mint_at_once_get_the_same_keys(case: Path) -> None:
    answers = race(case, ["mint"] * 4, 20)
    store = opened(case)
    found = [store.current(f"s{number}") for number in range(20)]
    assert answers == [[[one.key_id] for one in found if one]] * 4
    assert {len(subject.keys) for subject in store.subjects()} == {1}


@pytest.mark.clause("X8", "X9")
def test_processes_that_rotate_at_once_leave_one_order_of_subject_keys(case: Path) -> None:
    for number in range(10):
        opened(case).mint(f"s{number}", named=())
    answers = race(case, ["rotate"] * 4, 10)
    for subject in opened(case).subjects():
        ids = [key.key_id for key in subject.keys]
        assert [key.epoch for key in subject.keys] == list(range(1, len(ids) + 1))
        assert 2 <= len(ids) <= 5
        number = int(subject.subject[1:])
        assert {answer[number][0] for answer in answers} <= {*ids[1:]}


@pytest.mark.clause("X11", "X12")
def test_processes_that_mint_rewrap_and_destroy_at_once_leave_no_key(case: Path) -> None:
    """Whoever got a key got one that the receipt names; nothing is left of any."""
    FileKeyRing(case / "ring").rotate("master")
    first, *_, told = race(case, ["mint", "mint", "rewrap", "destroy"], 30)
    store = opened(case)
    for number, (minted, receipt) in enumerate(zip(first, told, strict=True)):
        subject = f"s{number}"
        assert {*minted} <= {*receipt}
        assert [store.find(one, subject) for one in receipt] == [Destroyed(one, "subject") for one in receipt]
        with pytest.raises(SubjectErasingError):
            store.current(subject)
    assert list((case / "keys").glob("*/*.key")) == []
    assert list((case / "keys").glob("*/.tmp-*")) == []


class _Interrupted(RingMaster):
    """A master in whose work something happens once."""

    def __init__(self, ring: MemoryKeyRing, meanwhile: Callable[[], object]) -> None:
        super().__init__(ring)
        self.meanwhile: list[Callable[[], object]] = [meanwhile]

    def wrap(self, key: Key, place: KeyPlace) -> Wrapped:
        if self.meanwhile:
            self.meanwhile.pop()()
        return super().wrap(key, place)


@pytest.fixture
def ring() -> MemoryKeyRing:
    ring = MemoryKeyRing()
    ring.generate("master")
    return ring


def over(case: Path, master: RingMaster) -> FileKeyStore:
    return FileKeyStore(case / "keys", master, fences=case / "fences")


@pytest.mark.clause("X8", "X12")
def test_a_rewrap_that_a_destruction_overtakes_brings_nothing_back(case: Path, ring: MemoryKeyRing) -> None:
    store = over(case, RingMaster(ring))
    store.mint("a", named=())
    ring.rotate("master")
    *_, end = over(case, _Interrupted(ring, lambda: store.destroy("a"))).rewrap()
    assert (end.rewrapped, end.unopened) == (0, ())
    assert list((case / "keys").glob("*/*.key")) == []


@pytest.mark.clause("X8")
def test_a_rewrap_that_another_overtakes_leaves_its_work(case: Path, ring: MemoryKeyRing) -> None:
    store = over(case, RingMaster(ring))
    made = store.mint("a", named=())
    ring.rotate("master")

    def overtake() -> None:
        ring.rotate("master")
        list(store.rewrap())

    *_, end = over(case, _Interrupted(ring, overtake)).rewrap()
    assert end.rewrapped == 0
    ((listed,),) = [subject.keys for subject in store.subjects()]
    assert listed.master == ring.active("master").id
    assert store.find(made.key_id, "a") == made.key


@pytest.mark.clause("X11", "X12")
@pytest.mark.parametrize("act", ["mint", "rotate"])
def test_a_mint_that_a_destruction_overtakes_leaves_nothing(
    case: Path, ring: MemoryKeyRing, act: str
) -> None:
    store = over(case, RingMaster(ring))
    if act == "rotate":
        store.mint("a", named=())
    late = over(case, _Interrupted(ring, lambda: store.destroy("a")))
    with pytest.raises(SubjectErasingError):
        late.mint("a", named=()) if act == "mint" else late.rotate("a")
    assert list((case / "keys").glob("*/*.key")) == []


@pytest.mark.clause("X11")
@pytest.mark.parametrize("act", ["mint", "rotate"])
def test_the_loser_of_a_race_takes_the_winner_s_key(case: Path, ring: MemoryKeyRing, act: str) -> None:
    store = over(case, RingMaster(ring))
    if act == "rotate":
        store.mint("a", named=())
    won: list[object] = []

    def win() -> None:
        won.append(store.mint("a", named=()) if act == "mint" else store.rotate("a"))

    late = over(case, _Interrupted(ring, win))
    assert [late.mint("a", named=()) if act == "mint" else late.rotate("a")] == won
    assert [len(subject.keys) for subject in store.subjects()] == [1 if act == "mint" else 2]


@pytest.mark.clause("X11")
def test_a_first_key_and_its_epoch_come_from_one_look(
    case: Path, ring: MemoryKeyRing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The race between looking and minting: a second look would find another's key, and make the next."""
    late, winner = over(case, RingMaster(ring)), over(case, RingMaster(ring))
    won: list[object] = []
    original = FileCabinet.look

    def look(self: FileCabinet, subject: str) -> Contents:
        found = original(self, subject)
        if self is late._cabinet and not won:
            won.append(winner.mint("a", named=()))
        return found

    monkeypatch.setattr(FileCabinet, "look", look)
    assert [late.mint("a", named=())] == won


@pytest.mark.clause("X9")
def test_whoever_changes_a_subject_is_alone_with_it(
    case: Path, ring: MemoryKeyRing, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone: list[str] = []

    def watched(name: str, original: Callable[..., object]) -> Callable[..., object]:
        def call(self: FileDrawer, *given: object) -> object:
            fd = os.open(self.path, os.O_RDONLY)
            try:
                with pytest.raises(BlockingIOError) as caught:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            finally:
                os.close(fd)
            assert caught.value.errno == errno.EWOULDBLOCK
            alone.append(name)
            return original(self, *given)

        return call

    names = ("add", "replace", "fence", "bury", "clear", "certify")
    for name in names:
        monkeypatch.setattr(FileDrawer, name, watched(name, getattr(FileDrawer, name)))
    store = over(case, RingMaster(ring))
    store.mint("a", named=())
    ring.rotate("master")
    list(store.rewrap())
    store.destroy("a")
    assert {*alone} == {*names}
    fd = os.open(next((case / "keys").glob("*/")), os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(fd)
