"""The store on disk: private or refused, never taken for another or for an empty one, and its fences apart (X9–X12)."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.seal.key_store_harness import FileHarness, RingMasters
from underseal.errors import KeyStoreError
from underseal.seal import Destroyed, Key
from underseal.seal import private as private_module
from underseal.seal.store import FileKeyStore, SubjectKey
from underseal.seal.store.cabinet import FileCabinet
from underseal.seal.store.drawer import FileDrawer


@pytest.fixture
def house(tmp_path: Path) -> FileHarness:
    return FileHarness(tmp_path, RingMasters())


@pytest.fixture
def made(house: FileHarness) -> SubjectKey:
    return house.open().mint("a", named=())


def refusal(act: Callable[[], object]) -> str:
    with pytest.raises(KeyStoreError) as caught:
        act()
    assert caught.value.reason == "key-unavailable"
    assert caught.value.__context__ is None
    return str(caught.value)


def the_file(root: Path, pattern: str) -> Path:
    (found,) = root.glob(pattern)
    return found


def find(house: FileHarness, made: SubjectKey) -> object:
    return house.open().find(made.key_id, "a")


@pytest.mark.clause("X9")
def test_everything_is_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        house = FileHarness(tmp_path / "made", RingMasters())
        store = house.open()
        store.mint("a", named=())
        store.mint("b", named=())
        store.destroy("a")
        house.rotate_master()
        list(house.open().rewrap())
    finally:
        os.umask(before)
    everything = [house.keys, house.fences, *house.keys.rglob("*"), *house.fences.rglob("*")]
    assert {path.stat().st_mode & 0o7777 for path in everything if path.is_dir()} == {0o700}
    assert {path.stat().st_mode & 0o7777 for path in everything if path.is_file()} == {0o600}


@pytest.mark.clause("X9")
@pytest.mark.parametrize("mode", [0o701, 0o710, 0o740, 0o755, 0o777, 0o1700])
@pytest.mark.parametrize("which", ["keys", "fences", "keys/*/", "fences/*/"])
def test_a_looser_directory_of_a_store_is_refused(
    house: FileHarness, made: SubjectKey, which: str, mode: int
) -> None:
    house.open().destroy("a")
    path = the_file(house.path, which)
    path.chmod(mode)
    assert f"{path} has mode {mode:04o}" in refusal(lambda: find(house, made))
    path.chmod(0o700)
    assert isinstance(find(house, made), Destroyed)


@pytest.mark.clause("X9")
@pytest.mark.parametrize("mode", [0o604, 0o640, 0o644, 0o660, 0o700, 0o4600])
@pytest.mark.parametrize("which", ["keys/*/*.key", "keys/store", "fences/store"])
def test_a_looser_file_of_a_store_is_refused(
    house: FileHarness, made: SubjectKey, which: str, mode: int
) -> None:
    path = the_file(house.path, which)
    path.chmod(mode)
    said = refusal(lambda: find(house, made))
    assert f"{path} has mode {mode:04o}" in said
    assert f"run: chmod 600 {path}" in said
    path.chmod(0o400)
    assert find(house, made) == made.key


@pytest.mark.clause("X9")
@pytest.mark.parametrize("which", ["keys", "keys/*/", "keys/*/*.key", "fences"])
def test_a_symbolic_link_is_not_followed_in_a_store(house: FileHarness, made: SubjectKey, which: str) -> None:
    path = the_file(house.path, which)
    path.rename(house.path / "moved")
    path.symlink_to(house.path / "moved")
    assert "is a symbolic link" in refusal(lambda: find(house, made))


@pytest.mark.clause("X10")
def test_a_directory_without_a_marker_is_no_empty_store(house: FileHarness, made: SubjectKey) -> None:
    empty = house.path / "empty"
    empty.mkdir(0o700)
    master = house.masters.now()
    assert "its file store is missing" in refusal(
        lambda: FileKeyStore(empty, master, fences=house.fences).find(made.key_id, "a")
    )
    assert "its file store is missing" in refusal(
        lambda: FileKeyStore(house.keys, master, fences=empty).find(made.key_id, "a")
    )
    assert list(empty.iterdir()) == []


@pytest.mark.clause("X10", "X12")
def test_the_fences_of_another_store_are_refused(house: FileHarness, made: SubjectKey) -> None:
    house.elsewhere()
    fences = house.path / "other" / "fences"
    store = FileKeyStore(house.keys, house.masters.now(), fences=fences)
    assert "found those of another store" in refusal(lambda: store.find(made.key_id, "a"))
    assert "found those of another store" in refusal(lambda: store.destroy("a"))
    assert find(house, made) == made.key
    assert list(fences.glob("*/*")) == []


@pytest.mark.clause("X10")
def test_keys_and_fences_are_not_taken_for_each_other(house: FileHarness, made: SubjectKey) -> None:
    swapped = FileKeyStore(house.fences, house.masters.now(), fences=house.keys)
    assert "does not hold the keys of a key store" in refusal(lambda: swapped.find(made.key_id, "a"))
    (house.fences / "store").write_bytes((house.keys / "store").read_bytes())
    assert "does not hold the fences of a key store" in refusal(lambda: find(house, made))


@pytest.mark.clause("X12")
@pytest.mark.parametrize(
    ("keys", "fences"), [("s", "s"), ("s", "s/fences"), ("f/keys", "f"), ("s", "x/../s/f")]
)
def test_fences_are_kept_apart_from_the_keys(tmp_path: Path, keys: str, fences: str) -> None:
    master = RingMasters().now()
    said = refusal(lambda: FileKeyStore.create(tmp_path / keys, master, fences=tmp_path / fences))
    assert "expected fences apart from the keys" in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.clause("X10", "X12")
def test_a_store_is_made_once(house: FileHarness, made: SubjectKey, tmp_path: Path) -> None:
    master = house.masters.now()
    again = FileKeyStore.create(house.keys, master, fences=house.fences)
    assert again.current("a") == made
    # A store whose fences are lost would serve what a backup brings back.
    new = tmp_path / "new fences"
    assert "there is no directory" in refusal(lambda: FileKeyStore.create(house.keys, master, fences=new))
    assert not new.exists()
    # Fences whose store is not there may be of a volume that is not mounted.
    again.destroy("a")
    empty = tmp_path / "not mounted"
    assert "mount or restore it there" in refusal(
        lambda: FileKeyStore.create(empty, master, fences=house.fences)
    )
    assert not empty.exists()


@pytest.mark.clause("X10")
@pytest.mark.parametrize(
    "changes",
    [
        {"v": 2},
        {"subject": "b"},
        {"id": "subject-1"},
        {"id": 7},
        {"epoch": 2},
        {"wrapped": "secret"},
        {"more": 1},
        {"wrapped": {}},
        {"id": "subject-" + 32 * "0"},
    ],
)
def test_a_damaged_key_file_of_a_subject_is_no_answer(
    house: FileHarness, made: SubjectKey, changes: dict[str, object]
) -> None:
    path = the_file(house.keys, "*/*.key")
    path.write_text(json.dumps(json.loads(path.read_bytes()) | changes))
    refusal(lambda: house.open().current("a"))


@pytest.mark.clause("X10")
@pytest.mark.parametrize("content", ["", "null", "[]", "{", "\udcff", '"x"'])
@pytest.mark.parametrize(
    "which", ["keys/*/*.key", "keys/store", "fences/store", "keys/*/fence", "keys/*/receipt"]
)
def test_a_file_that_is_no_json_of_ours_is_no_answer(
    house: FileHarness, made: SubjectKey, which: str, content: str
) -> None:
    if which.endswith(("fence", "receipt")):
        house.open().destroy("a")
    the_file(house.path, which).write_bytes(content.encode("utf-8", "surrogateescape"))
    refusal(lambda: find(house, made))


@pytest.mark.clause("X10")
def test_a_key_file_in_the_place_of_another_does_not_open(house: FileHarness, made: SubjectKey) -> None:
    store = house.open()
    store.rotate("a")
    store.mint("b", named=())
    first, second = sorted(the_file(house.keys, "*/000002.key").parent.glob("*.key"))
    # Another subject's file, and another epoch's, each under the name and the words that the place asks for.
    for source in (second, *(set(house.keys.glob("*/000001.key")) - {first})):
        data = json.loads(source.read_bytes()) | {"subject": "a", "epoch": 1}
        kept = first.read_bytes()
        first.write_text(json.dumps(data))
        assert "does not unwrap" in refusal(lambda data=data: house.open().find(data["id"], "a"))  # type: ignore[misc]
        first.write_bytes(kept)


@pytest.mark.clause("X10", "X12")
@pytest.mark.parametrize("name", ["fence", "receipt"])
def test_a_fence_or_receipt_of_another_store_is_no_erasure(
    house: FileHarness, made: SubjectKey, name: str
) -> None:
    other = house.elsewhere()
    other.mint("a", named=())
    other.destroy("a")
    here = the_file(house.keys, "*/*.key").parent
    shutil.copy2(the_file(house.path / "other" / "keys", f"*/{name}"), here / name)
    assert "of another store or subject" in refusal(lambda: find(house, made))
    assert "of another store or subject" in refusal(lambda: house.open().was_destroyed("a"))


@pytest.mark.clause("X12")
def test_a_copy_of_a_destroyed_key_is_not_served_and_is_removed_again(
    house: FileHarness, made: SubjectKey
) -> None:
    path = the_file(house.keys, "*/*.key")
    kept = path.read_bytes()
    running = house.open()
    assert running.current("a") == made
    running.destroy("a")
    path.write_bytes(kept)
    path.chmod(0o600)
    assert isinstance(running.find(made.key_id, "a"), Destroyed)
    assert running.replay() == ["a"]
    assert not path.exists()
    # The tombstone alone is enough, whatever became of the fences.
    path.write_bytes(kept)
    path.chmod(0o600)
    (path.parent / "fence").unlink()
    (path.parent / "receipt").unlink()
    shutil.rmtree(house.fences / path.parent.name)
    assert isinstance(find(house, made), Destroyed)
    assert house.open().current("a") is None


@pytest.mark.clause("X12")
def test_the_keys_of_today_and_the_fences_of_yesterday_bring_nothing_back(
    house: FileHarness, made: SubjectKey
) -> None:
    shutil.copytree(house.fences, house.path / "yesterday")
    house.open().destroy("a")
    shutil.rmtree(house.fences)
    (house.path / "yesterday").rename(house.fences)
    assert isinstance(find(house, made), Destroyed)
    assert house.open().was_destroyed("a") is True


@pytest.mark.clause("X12")
def test_a_backup_is_searched_for_fenced_keys_before_the_first_answer(
    house: FileHarness, made: SubjectKey
) -> None:
    other = house.open().mint("b", named=())
    restore = house.backup()
    house.open().destroy("a")
    restore()
    wrapped = json.loads(the_file(house.path / "backup", f"{directory_of(house)}/*.key").read_bytes())
    assert house.open().current("b") == other
    ct = wrapped["wrapped"]["ct"].encode()
    assert not any(ct in file.read_bytes() for file in house.keys.rglob("*") if file.is_file())


def directory_of(house: FileHarness) -> str:
    """The name of the directory of subject a."""
    (name,) = (path.parent.name for path in house.fences.glob("*/fence"))
    return name


@pytest.mark.clause("X9")
def test_a_key_is_served_only_once_its_name_is_on_disk(
    house: FileHarness, made: SubjectKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    original = os.fsync

    def fsync(fd: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{fd}").readlink()))
        original(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    assert find(house, made) == made.key
    assert synced == [str(the_file(house.keys, "*/*.key").parent), str(house.keys)]


@pytest.mark.clause("X9")
def test_what_a_destruction_does_is_on_disk_in_order(
    house: FileHarness, made: SubjectKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each thing and its name are synced before the next: a loss of power leaves a beginning of it."""
    done: list[str] = []

    def noting(name: str) -> None:
        original = getattr(os, name)

        def call(*given: object, **named: object) -> object:
            if name == "fsync":
                path = Path(f"/proc/self/fd/{given[0]}").readlink()
                if path.is_dir():
                    done.append(f"sync {path.relative_to(house.path).parts[0]}")
            elif not str(given[0]).startswith(".tmp") or name == "link":
                done.append(f"{name} {str(given[-1]).rpartition('.')[2]}")
            return original(*given, **named)

        monkeypatch.setattr(os, name, call)

    store = house.open()
    store.current("a")
    for name in ("fsync", "link", "unlink"):
        noting(name)
    store.destroy("a")
    assert [step for step in done if not step.startswith("sync")] == [
        "link fence",
        "link destroyed",
        "link fence",
        "link destroyed",
        "unlink key",
        "link receipt",
    ]
    places = ["fences", "fences", "keys", "keys", "keys", "keys"]
    steps = [number for number, step in enumerate(done) if not step.startswith("sync")]
    assert [done[number + 1] for number in steps] == [f"sync {place}" for place in places]


@pytest.mark.clause("X10")
@pytest.mark.parametrize("call", ["listdir", "stat", "fsync", "open"])
def test_a_disk_that_fails_is_no_answer(
    house: FileHarness, made: SubjectKey, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    store = house.open()
    store.was_destroyed("a")

    def broken(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, call, broken)
    assert "Input/output error" in refusal(lambda: store.find(made.key_id, "a"))
    assert "Input/output error" in refusal(lambda: store.mint("b", named=()))
    monkeypatch.undo()
    assert store.find(made.key_id, "a") == made.key


@pytest.mark.clause("X9")
def test_a_store_on_a_read_only_file_system_can_be_read(
    house: FileHarness, made: SubjectKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(_: int) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(os, "fsync", read_only)
    assert find(house, made) == made.key


@pytest.mark.clause("X10", "X12")
def test_a_key_that_goes_while_it_is_read_is_looked_for_again(
    house: FileHarness, made: SubjectKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = private_module.PrivateDirectory.read
    other, once = house.open(), [True]

    def destroy_meanwhile(self: private_module.PrivateDirectory, name: str) -> bytes | None:
        if name == "000001.key" and once:
            once.clear()
            other.destroy("a")
        return original(self, name)

    monkeypatch.setattr(private_module.PrivateDirectory, "read", destroy_meanwhile)
    found = FileCabinet(house.keys, "keys").look("a")
    assert (found.keys, found.fenced, [tomb.key_id for tomb in found.tombs]) == ((), True, [made.key_id])


@pytest.mark.clause("X10")
def test_a_subject_whose_files_never_stand_still_is_no_answer(
    house: FileHarness, made: SubjectKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FileDrawer, "_read", lambda *_: None)
    assert "kept changing while it was read" in refusal(lambda: find(house, made))


def test_the_longest_subject_fits(house: FileHarness) -> None:
    store = house.open()
    for subject in (200 * "\U0001d11e", 200 * '"', 200 * "\\"):
        made = store.mint(subject, named=())
        assert house.open().find(made.key_id, subject) == made.key
        assert store.destroy(subject).key_ids == (made.key_id,)


@pytest.mark.clause("X9")
def test_files_that_are_not_ours_are_left_alone(house: FileHarness, made: SubjectKey) -> None:
    (house.keys / "lost+found").mkdir(0o700)
    (house.keys / ("0" * 64)).mkdir(0o700)
    (house.fences / ("0" * 64)).mkdir(0o700)
    (the_file(house.keys, "*/*.key").parent / "notes").write_text("x")
    store = house.open()
    assert [one.subject for one in store.subjects()] == ["a"]
    assert isinstance(store.find(made.key_id, "a"), Key)
    assert list(store.rewrap())[-1].unopened == ()


@pytest.mark.clause("X12")
def test_a_replay_passes_by_what_is_settled(house: FileHarness, made: SubjectKey) -> None:
    house.open().destroy("a")
    assert house.open().replay() == []


def test_a_directory_tells_only_the_subject_that_it_is_named_for(
    house: FileHarness, made: SubjectKey
) -> None:
    """A file that a stranger left does not decide whose directory it is."""
    (the_file(house.keys, "*/*.key").parent / "000000").write_text('{"subject": "b"}')
    the_file(house.keys, "*/000000").chmod(0o600)
    assert [one.subject for one in house.open().subjects()] == ["a"]


def _synced(monkeypatch: pytest.MonkeyPatch, calls: tuple[str, ...]) -> list[str]:
    """What is synced from now on, and the calls in between."""
    done: list[str] = []

    def noting(name: str) -> Callable[..., object]:
        original = getattr(os, name)

        def call(*given: object, **named: object) -> object:
            path = Path(f"/proc/self/fd/{given[0]}").readlink() if name == "fsync" else None
            if path is None or path.is_dir():
                done.append(f"sync {path}" if path else name)
            return original(*given, **named)

        return call

    for name in ("fsync", *calls):
        monkeypatch.setattr(os, name, noting(name))
    return done


@pytest.mark.clause("X8", "X9")
def test_what_a_rewrap_replaces_is_on_disk(
    house: FileHarness, made: SubjectKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.rotate_master()
    done = _synced(monkeypatch, ("rename",))
    list(house.open().rewrap())
    assert done[done.index("rename") + 1] == f"sync {the_file(house.keys, '*/*.key').parent}"


@pytest.mark.clause("X9")
def test_a_subject_s_directory_is_on_disk_before_its_first_file(
    house: FileHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = _synced(monkeypatch, ("mkdir", "link"))
    house.open().mint("a", named=())
    assert done[:3] == ["mkdir", f"sync {house.keys}", "link"]
