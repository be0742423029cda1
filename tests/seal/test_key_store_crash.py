"""A process that is killed at any step of a mint, a rewrap or a destruction: what it leaves is whole, and goes on.

A helper program forks for each step, and the child sends itself SIGKILL right before that step of the file system.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from underseal.errors import SubjectErasingError
from underseal.seal import Destroyed, FileKeyRing
from underseal.seal.store import FileKeyStore, RingMaster, SubjectKey
from underseal.seal.store.drawer import FileDrawer

PROGRAM = """
import json, os, signal, sys
from pathlib import Path
from underseal.seal import FileKeyRing
from underseal.seal.store import FileKeyStore, RingMaster

STEPS = ("mkdir", "open", "fsync", "link", "unlink", "rename")

def killing(step):
    left = [step]
    def wrap(call):
        def stepped(*args, **kwargs):
            # Reading changes nothing.
            if call.__name__ != "open" or "O_CREAT" in str(kwargs) or any(
                isinstance(one, int) and one & os.O_CREAT for one in args[1:2]
            ):
                left[0] -= 1
                if left[0] == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **kwargs)
        return stepped
    for name in STEPS:
        setattr(os, name, wrap(getattr(os, name)))

def act(case, what):
    store = FileKeyStore(case / "keys", RingMaster(FileKeyRing(case / "ring")), fences=case / "fences")
    if what == "create":
        FileKeyStore.create(case / "keys", None, fences=case / "fences")
    elif what == "mint":
        store.mint("a", named=())
    elif what == "rotate":
        store.rotate("a")
    elif what == "rewrap":
        list(store.rewrap())
    elif what == "destroy":
        store.destroy("a")

what, died = sys.argv[1], []
for number, case in enumerate(map(Path, sys.argv[2:]), start=1):
    child = os.fork()
    if child == 0:
        killing(number)
        act(case, what)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        died.append(str(case))
    elif status == 0:
        break
    else:
        sys.exit("a child failed")
print(json.dumps(died))
"""
MOST = 80


def opened(case: Path) -> FileKeyStore:
    return FileKeyStore(case / "keys", RingMaster(FileKeyRing(case / "ring")), fences=case / "fences")


def killed_at_every_step(template: Path, what: str) -> list[Path]:
    """A copy of ``template`` for each step of ``what``, in which a process was killed right before it."""
    cases = [template.parent / f"{what}-{number:02d}" for number in range(MOST)]
    for case in cases:
        shutil.copytree(template, case)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, what, *map(str, cases)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    died = [Path(case) for case in json.loads(done.stdout)]
    assert 3 <= len(died) < MOST
    return died


@pytest.fixture
def template(tmp_path: Path) -> Path:
    case = tmp_path / "template"
    FileKeyRing(case / "ring").generate("master")
    FileKeyStore.create(case / "keys", RingMaster(FileKeyRing(case / "ring")), fences=case / "fences")
    return case


def files(case: Path) -> Iterator[bytes]:
    yield from (file.read_bytes() for file in case.rglob("*") if file.is_file())


def masters_of(store: FileKeyStore) -> set[str | None]:
    return {key.master for subject in store.subjects() for key in subject.keys}


@pytest.mark.clause("X9")
def test_a_store_whose_making_was_killed_is_made_by_the_next_try(tmp_path: Path) -> None:
    case = tmp_path / "template"
    FileKeyRing(case / "ring").generate("master")
    for died in killed_at_every_step(case, "create"):
        master = RingMaster(FileKeyRing(died / "ring"))
        store = FileKeyStore.create(died / "keys", master, fences=died / "fences")
        assert store.mint("a", named=()) == opened(died).current("a")


@pytest.mark.clause("X9", "X11")
@pytest.mark.parametrize("what", ["mint", "rotate"])
def test_a_mint_that_was_killed_leaves_a_whole_key_or_none(template: Path, what: str) -> None:
    before = opened(template).mint("a", named=()) if what == "rotate" else None
    epochs = set()
    for died in killed_at_every_step(template, what):
        found = opened(died).current("a")
        epochs.add(found.epoch if found else 0)
        if before is not None:
            assert opened(died).find(before.key_id, "a") == before.key
        made = getattr(opened(died), what)("a", **({"named": ()} if what == "mint" else {}))
        assert made == opened(died).current("a")
        if found is not None:
            assert opened(died).find(found.key_id, "a") == found.key
    # It was killed before its key was there, and after.
    assert epochs == ({0, 1} if what == "mint" else {1, 2})


@pytest.mark.clause("X8")
def test_a_rewrap_that_was_killed_loses_no_key_and_goes_on(template: Path) -> None:
    store = opened(template)
    made = [store.mint("a", named=()), store.rotate("a"), store.mint("b", named=())]
    old = FileKeyRing(template / "ring").active("master")
    new = FileKeyRing(template / "ring").rotate("master")
    seen = set()
    for died in killed_at_every_step(template, "rewrap"):
        assert [opened(died).find(one.key_id, one.subject) for one in made] == [one.key for one in made]
        seen.add(len(masters_of(opened(died))))
        *_, end = opened(died).rewrap()
        assert end.unopened == ()
        assert masters_of(opened(died)) == {new.id}
        FileKeyRing(died / "ring").destroy(old.id)
        assert [opened(died).find(one.key_id, one.subject) for one in made] == [one.key for one in made]
    assert seen == {1, 2}


@pytest.fixture
def doomed(template: Path) -> list[SubjectKey]:
    store = opened(template)
    store.mint("b", named=())
    return [store.mint("a", named=()), store.rotate("a")]


@pytest.mark.clause("X10", "X12")
def test_a_destruction_that_was_killed_is_finished_by_the_next_call(
    template: Path, doomed: list[SubjectKey]
) -> None:
    other = opened(template).current("b")
    receipt = ("a", tuple(one.key_id for one in doomed))
    # A link that a writer left which died: clearing the key files alone would leave the key.
    (key_file,) = (template / "keys").glob("*/000002.key")
    key_file.with_name(".tmp-" + 32 * "0").hardlink_to(key_file)
    wrapped = [json.loads(file.read_bytes())["wrapped"]["ct"] for file in key_file.parent.glob("*.key")]
    unfenced = []
    for died in killed_at_every_step(template, "destroy"):
        before = [opened(died).find(one.key_id, "a") for one in doomed]
        # As one: from the fence on, all of them are gone.
        assert before in ([one.key for one in doomed], [Destroyed(one.key_id, "subject") for one in doomed])
        unfenced.append(before == [one.key for one in doomed])
        given = opened(died).destroy("a")
        assert (given.subject, given.key_ids) == receipt
        store = opened(died)
        assert store.was_destroyed("a") is True
        assert [store.find(one.key_id, "a") for one in doomed] == [
            Destroyed(one.key_id, "subject") for one in doomed
        ]
        assert store.current("b") == other
        assert not any(ct.encode() in content for ct in wrapped for content in files(died / "keys"))
        with pytest.raises(SubjectErasingError):
            store.mint("a", named=())
    assert {True, False} == set(unfenced)


@pytest.mark.clause("X12")
def test_a_destruction_that_was_killed_does_not_come_undone_by_a_restore(
    template: Path, doomed: list[SubjectKey]
) -> None:
    """A restored copy serves a key again only where none had been destroyed yet."""
    for died in killed_at_every_step(template, "destroy"):
        left = list((died / "keys").glob("*/00000?.key"))
        shutil.rmtree(died / "keys")
        shutil.copytree(template / "keys", died / "keys")
        found = opened(died).find(doomed[0].key_id, "a")
        assert isinstance(found, Destroyed) or len(left) == 3
        opened(died).destroy("a")
        assert opened(died).was_destroyed("a") is True


@pytest.mark.clause("X12")
def test_the_first_answer_of_a_store_finishes_what_is_fenced_outside(
    template: Path, doomed: list[SubjectKey]
) -> None:
    finished = 0
    for died in killed_at_every_step(template, "destroy"):
        opened(died).current("b")
        left = list((died / "keys").glob("*/00000?.key"))
        if any((died / "fences").glob("*/fence")):
            assert len(left) == 1
            finished += 1
    assert finished > 3


@pytest.mark.clause("X10")
def test_a_fence_alone_is_no_destruction(template: Path, doomed: list[SubjectKey]) -> None:
    """Half-way, whoever has the store open is told that nothing opens any more, and not that it is done."""

    def fail(_: str) -> None:
        raise RuntimeError("not now")

    watching = opened(template)
    assert watching.was_destroyed("a") is False
    master = RingMaster(FileKeyRing(template / "ring"))
    failing = FileKeyStore(template / "keys", master, fences=template / "fences", derived=[fail])
    with pytest.raises(RuntimeError, match="not now"):
        failing.destroy("a")
    assert isinstance(watching.find(doomed[0].key_id, "a"), Destroyed)
    assert watching.was_destroyed("a") is False
    assert {one.subject: one.state for one in watching.subjects()} == {"a": "erasing", "b": "live"}
    opened(template).destroy("a")
    assert watching.was_destroyed("a") is True


@pytest.mark.clause("X10", "X12")
def test_from_the_fence_on_every_key_is_destroyed(
    template: Path, doomed: list[SubjectKey], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where no tombstone is there yet: a destruction is seen as one."""
    watching = opened(template)
    watching.current("b")

    def fail(*_: object) -> None:
        raise RuntimeError("not now")

    monkeypatch.setattr(FileDrawer, "bury", fail)
    with pytest.raises(RuntimeError, match="not now"):
        opened(template).destroy("a")
    found = [watching.find(one.key_id, "a") for one in doomed]
    assert found == [Destroyed(one.key_id, "subject") for one in doomed]
    assert watching.was_destroyed("a") is False
