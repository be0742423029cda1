"""The ring on disk: private or refused, whole or not there, and what was destroyed stays destroyed (X9, X10, X12)."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from underseal.seal import Destroyed, FileKeyRing, Key, KeyRingError
from underseal.seal import private as private_module


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "vault" / "ring"


@pytest.fixture
def ring(path: Path) -> FileKeyRing:
    ring = FileKeyRing(path)
    ring.generate("payload")
    return ring


def refusal(act: Callable[[], object]) -> str:
    with pytest.raises(KeyRingError) as caught:
        act()
    assert caught.value.reason == "key-unavailable"
    assert caught.value.__context__ is None
    return str(caught.value)


def the_file(path: Path, pattern: str = "*.key") -> Path:
    (found,) = path.glob(pattern)
    return found


@pytest.mark.clause("X9")
def test_the_directory_is_0700_and_its_files_0600_whatever_the_umask(path: Path) -> None:
    before = os.umask(0)
    try:
        ring = FileKeyRing(path)
        old = ring.generate("payload")
        ring.rotate("payload")
        ring.destroy(old.id)
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o7777 == 0o700
    assert {file.name.rpartition(".")[2] for file in path.iterdir()} == {"key", "destroyed"}
    assert {file.stat().st_mode & 0o7777 for file in path.iterdir()} == {0o600}


@pytest.mark.clause("X9")
@pytest.mark.parametrize("mode", [0o701, 0o710, 0o740, 0o750, 0o755, 0o777, 0o1700, 0o2700])
def test_a_looser_directory_is_refused_with_the_remedy(ring: FileKeyRing, path: Path, mode: int) -> None:
    path.chmod(mode)
    for act in (lambda: ring.active("payload"), lambda: ring.rotate("payload"), ring.findings):
        said = refusal(act)
        assert f"{path} has mode {mode:04o}" in said
        assert f"run: chmod 700 {path}" in said
    path.chmod(0o700)
    assert len(ring.live("payload")) == 1


@pytest.mark.clause("X9")
@pytest.mark.parametrize("mode", [0o604, 0o640, 0o644, 0o660, 0o700, 0o4600])
def test_a_looser_key_file_is_refused_with_the_remedy(ring: FileKeyRing, path: Path, mode: int) -> None:
    ring.active("payload")
    file = the_file(path)
    file.chmod(mode)
    said = refusal(lambda: ring.active("payload"))
    assert f"{file} has mode {mode:04o}" in said
    assert f"run: chmod 600 {file}" in said
    file.chmod(0o400)
    assert len(ring.live("payload")) == 1


@pytest.mark.clause("X9")
def test_a_foreign_directory_is_refused_with_the_remedy(
    ring: FileKeyRing, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    said = refusal(lambda: ring.active("payload"))
    assert f"{path} belongs to user {owner}, and this process runs as {owner + 1}" in said
    assert f"run: chown {owner + 1} {path}" in said


@pytest.mark.clause("X9")
def test_a_foreign_key_file_is_refused(
    ring: FileKeyRing, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = os.fstat

    def foreign(fd: int) -> os.stat_result:
        found = original(fd)
        is_directory = found.st_ino == path.stat().st_ino
        parts = list(found)
        parts[4] = parts[4] if is_directory else parts[4] + 1
        return os.stat_result(parts)

    monkeypatch.setattr(os, "fstat", foreign)
    assert f"{the_file(path)} belongs to user" in refusal(lambda: FileKeyRing(path).active("payload"))


@pytest.mark.clause("X9")
def test_a_symbolic_link_is_not_followed_to_a_directory(
    ring: FileKeyRing, path: Path, tmp_path: Path
) -> None:
    link = tmp_path / "link"
    link.symlink_to(path)
    assert f"{link} is a symbolic link" in refusal(lambda: FileKeyRing(link).active("payload"))
    assert f"{link} is a symbolic link" in refusal(lambda: FileKeyRing(link).rotate("payload"))


@pytest.mark.clause("X9")
def test_a_symbolic_link_is_not_followed_to_a_key(ring: FileKeyRing, path: Path, tmp_path: Path) -> None:
    file = the_file(path)
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    assert f"{file} is a symbolic link" in refusal(lambda: ring.active("payload"))


@pytest.mark.clause("X9")
@pytest.mark.parametrize("kind", ["fifo", "directory"])
def test_what_is_no_regular_file_is_refused_and_not_waited_for(
    ring: FileKeyRing, path: Path, kind: str
) -> None:
    file = the_file(path)
    file.unlink()
    if kind == "fifo":
        os.mkfifo(file, 0o600)
    else:
        file.mkdir(0o600)
    assert str(file) in refusal(lambda: ring.active("payload"))


@pytest.mark.clause("X10")
def test_a_missing_directory_is_no_empty_ring(path: Path) -> None:
    ring = FileKeyRing(path)
    for act in (
        lambda: ring.active("payload"),
        lambda: ring.find("payload-" + "0" * 32),
        lambda: ring.live("payload"),
        lambda: ring.destroy("payload-" + "0" * 32),
    ):
        assert f"there is no directory {path}" in refusal(act)
    assert not path.exists()


def test_a_file_in_the_place_of_the_directory_is_refused(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("x")
    assert f"{path} cannot be opened" in refusal(lambda: FileKeyRing(path).active("payload"))
    assert f"{path} cannot be opened" in refusal(lambda: FileKeyRing(path).generate("payload"))


def edited(path: Path, **changes: Any) -> None:
    file = the_file(path)
    data = json.loads(file.read_text()) | changes
    file.write_text(json.dumps({name: value for name, value in data.items() if value is not None}))


@pytest.mark.clause("X10")
@pytest.mark.parametrize(
    "changes",
    [
        {"v": 2},
        {"generation": 2},
        {"generation": None},
        {"purpose": "decision"},
        {"purpose": "decision", "id": "decision-" + "0" * 32},
        {"id": "payload-1"},
        {"secret": None},
        {"secret": "AAAA"},
        {"note": "x"},
    ],
)
def test_a_damaged_file_is_refused_without_showing_it(
    ring: FileKeyRing, path: Path, changes: dict[str, Any]
) -> None:
    secret = json.loads(the_file(path).read_text())["secret"]
    edited(path, **changes)
    said = refusal(lambda: ring.active("payload"))
    assert f"{the_file(path)} is damaged" in said
    assert secret not in said


@pytest.mark.parametrize("text", ["", "{", "null", "[]", '"x"'])
def test_a_file_that_is_no_json_object_is_damaged(ring: FileKeyRing, path: Path, text: str) -> None:
    the_file(path).write_text(text)
    assert "is damaged" in refusal(lambda: ring.active("payload"))


def test_a_file_of_another_size_altogether_is_refused(ring: FileKeyRing, path: Path) -> None:
    the_file(path).write_text(" " * 5000)
    assert "has 5000 bytes" in refusal(lambda: ring.active("payload"))


def test_a_rotation_by_another_process_is_seen_at_the_next_call(ring: FileKeyRing, path: Path) -> None:
    first = ring.active("payload")
    second = FileKeyRing(path).rotate("payload")
    assert ring.live("payload") == [second, first]
    FileKeyRing(path).destroy(first.id)
    assert ring.find(first.id) == Destroyed(first.id, "payload")


@pytest.fixture
def backup(ring: FileKeyRing, path: Path, tmp_path: Path) -> tuple[Key, Path]:
    """A key that is destroyed, and a backup of the ring from before."""
    key = ring.active("payload")
    ring.rotate("payload")
    shutil.copytree(path, tmp_path / "backup", copy_function=shutil.copy2)
    ring.destroy(key.id)
    return key, tmp_path / "backup"


@pytest.mark.clause("X9", "X12")
def test_a_tombstone_survives_and_the_key_s_bytes_do_not(
    ring: FileKeyRing, path: Path, backup: tuple[Key, Path]
) -> None:
    key, _ = backup
    assert FileKeyRing(path).find(key.id) == Destroyed(key.id, "payload")
    secret = json.loads(the_file(backup[1], "payload.000001.key").read_text())["secret"]
    assert not any(secret in file.read_text() for file in path.iterdir())


@pytest.mark.clause("X12")
@pytest.mark.parametrize("name", ["payload.000001.key", "payload.000009.key"])
def test_a_restored_file_of_a_destroyed_key_does_not_bring_it_back(
    ring: FileKeyRing, path: Path, backup: tuple[Key, Path], name: str
) -> None:
    key, saved = backup
    content = json.loads((saved / "payload.000001.key").read_text()) | {"generation": int(name[8:14])}
    (path / name).write_text(json.dumps(content))
    (path / name).chmod(0o600)
    for seen in (ring, FileKeyRing(path)):
        assert seen.find(key.id) == Destroyed(key.id, "payload")
        assert key.id not in seen.key_ids("payload")
        assert seen.active("payload").id != key.id
    assert (
        f"{path / name} is a copy of a destroyed key; run: underseal keys destroy {key.id}" in ring.findings()
    )
    ring.destroy(key.id)
    assert not (path / name).exists()
    assert ring.findings() == []


@pytest.mark.clause("X11", "X12")
def test_a_generation_is_never_used_twice(ring: FileKeyRing, path: Path) -> None:
    first = ring.active("payload")
    ring.rotate("payload")
    ring.destroy(first.id)
    ring.rotate("payload")
    assert sorted(file.name for file in path.glob("*.key")) == ["payload.000002.key", "payload.000003.key"]
    # Even where the newest key file was lost and only its tombstone is left.
    tomb = the_file(path, "*.destroyed")
    tomb.rename(path / tomb.name.replace("000001", "000007"))
    ring.rotate("payload")
    assert (path / "payload.000008.key").exists()


@pytest.mark.clause("X9")
def test_a_destruction_that_was_interrupted_is_finished_by_the_next(
    ring: FileKeyRing, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = ring.active("payload")
    ring.rotate("payload")

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as interrupted:
        interrupted.setattr(private_module.PrivateDirectory, "remove", crash)
        with pytest.raises(KeyboardInterrupt):
            ring.destroy(key.id)
    assert FileKeyRing(path).find(key.id) == Destroyed(key.id, "payload")
    ring.destroy(key.id)
    assert not (path / "payload.000001.key").exists()


@pytest.mark.clause("X9")
def test_a_second_link_that_a_dead_writer_left_goes_with_the_key(ring: FileKeyRing, path: Path) -> None:
    key = ring.active("payload")
    left = path / (".tmp-" + "0" * 32)
    os.link(the_file(path), left)
    (path / (".tmp-" + "1" * 32)).touch(0o600)
    assert sum("was left by a process that died" in finding for finding in ring.findings()) == 2
    assert ring.active("payload") == key
    ring.rotate("payload")
    ring.destroy(key.id)
    assert not left.exists()


def test_an_unknown_file_is_reported_and_otherwise_left_alone(ring: FileKeyRing, path: Path) -> None:
    (path / "notes.txt").write_text("x")
    assert ring.findings() == [f"{path / 'notes.txt'} is no file of a key ring; remove it"]
    assert len(ring.live("payload")) == 1
    assert (path / "notes.txt").exists()


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is done to the disk from now on, in order."""
    calls: list[str] = []

    def noted(name: str, act: Callable[..., None]) -> Callable[..., None]:
        def call(*args: Any, **more: Any) -> None:
            on_directory = name == "fsync" and Path(f"/proc/self/fd/{args[0]}").is_dir()
            calls.append("fsync directory" if on_directory else name)
            act(*args, **more)

        return call

    for name in ("fsync", "link", "unlink"):
        monkeypatch.setattr(os, name, noted(name, getattr(os, name)))
    return calls


@pytest.mark.clause("X9")
def test_a_key_is_on_disk_before_its_name_and_the_name_before_the_key_is_used(
    path: Path, ring: FileKeyRing, done: list[str]
) -> None:
    ring.rotate("payload")
    assert done[:4] == ["fsync", "link", "unlink", "fsync directory"]
    done.clear()
    FileKeyRing(path).active("payload")
    assert done == ["fsync directory"]


@pytest.mark.clause("X9", "X12")
def test_a_tombstone_is_on_disk_before_the_key_goes(ring: FileKeyRing, done: list[str]) -> None:
    key = ring.active("payload")
    ring.rotate("payload")
    done.clear()
    ring.destroy(key.id)
    assert done == ["fsync", "link", "unlink", "fsync directory", "unlink", "fsync directory"]


@pytest.mark.clause("X9")
def test_a_mint_that_fails_leaves_nothing(
    ring: FileKeyRing, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = sorted(file.name for file in path.iterdir())

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(os, "link", full)
        with pytest.raises(OSError, match="No space left"):
            ring.rotate("payload")
    assert sorted(file.name for file in path.iterdir()) == before


@pytest.mark.clause("X9")
def test_a_read_only_ring_can_be_read(ring: FileKeyRing, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_only(_: int) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(os, "fsync", read_only)
    assert FileKeyRing(path).active("payload") == ring.active("payload")


def test_a_disk_that_cannot_sync_is_an_error(
    path: Path, ring: FileKeyRing, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(OSError, match="Input/output error"):
        FileKeyRing(path).active("payload")


@pytest.mark.clause("X9", "X12")
def test_a_directory_that_changes_while_it_is_read_is_read_again(
    ring: FileKeyRing, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = ring.active("payload")
    ring.rotate("payload")
    other = FileKeyRing(path)
    original = private_module.PrivateDirectory.read
    destroyed: list[str] = []

    def destroy_meanwhile(self: private_module.PrivateDirectory, name: str) -> bytes | None:
        if name == "payload.000002.key" and not destroyed:
            destroyed.append(name)
            other.destroy(key.id)
        return original(self, name)

    monkeypatch.setattr(private_module.PrivateDirectory, "read", destroy_meanwhile)
    assert FileKeyRing(path).find(key.id) == Destroyed(key.id, "payload")


@pytest.mark.clause("X10")
def test_a_directory_that_never_stands_still_is_an_error(
    ring: FileKeyRing, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = iter(range(10**6))
    monkeypatch.setattr(private_module.PrivateDirectory, "signature", lambda *_: (next(ticks),))
    assert "kept changing while it was read" in refusal(lambda: FileKeyRing(path).active("payload"))


def test_a_key_file_that_was_swapped_is_read_again(ring: FileKeyRing, path: Path) -> None:
    before = ring.active("payload")
    edited(path, secret="A" * 43)
    after = ring.active("payload")
    assert after.id == before.id
    assert after.secret == bytes(32) != before.secret
