"""Random lives of a store, against the simplest thing that could be right: dictionaries (T6, X10, X12).

The store is opened anew for every act or shared, backed up and restored, and its master is rotated. What was minted
after a backup is unknown once it is restored; what was destroyed stays so.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.seal.key_store_harness import FileHarness, MemoryHarness, RingMasters
from underseal.errors import KeyStoreError, SubjectErasingError
from underseal.seal import Destroyed
from underseal.seal.store import KeyStore, SubjectKey

SUBJECTS = st.sampled_from(["a", "b", "c"])


class Life(RuleBasedStateMachine):
    """Over one harness. Dictionaries: subject → its keys; subjects that were destroyed; what a backup would restore."""

    harness: Callable[[Path], MemoryHarness | FileHarness]

    def __init__(self) -> None:
        super().__init__()
        self.path = Path(tempfile.mkdtemp(prefix="underseal-life-"))
        self.house = type(self).harness(self.path)
        self.long: KeyStore = self.house.open()
        self.keys: dict[str, list[SubjectKey]] = {}
        self.gone: dict[str, bool] = {}
        self.ever: list[SubjectKey] = []
        self.dead: set[str] = set()
        self.saved: tuple[Callable[[], None], dict[str, list[SubjectKey]], dict[str, bool]] | None = None

    def teardown(self) -> None:
        shutil.rmtree(self.path)

    def store(self, fresh: bool) -> KeyStore:
        return self.house.open() if fresh else self.long

    @rule(subject=SUBJECTS, fresh=st.booleans())
    def mint(self, subject: str, fresh: bool) -> None:
        if subject in self.gone:
            with pytest.raises(SubjectErasingError):
                self.store(fresh).mint(subject, named=())
            return
        made = self.store(fresh).mint(subject, named=())
        known = self.keys.setdefault(subject, [made])
        assert made == known[-1]
        self.ever += [made] if made not in self.ever else []

    @rule(subject=SUBJECTS, fresh=st.booleans())
    def rotate(self, subject: str, fresh: bool) -> None:
        if subject in self.gone:
            with pytest.raises(SubjectErasingError):
                self.store(fresh).rotate(subject)
        elif not self.keys.get(subject):
            with pytest.raises(KeyStoreError):
                self.store(fresh).rotate(subject)
        else:
            made = self.store(fresh).rotate(subject)
            assert made.epoch == self.keys[subject][-1].epoch + 1
            self.keys[subject].append(made)
            self.ever.append(made)

    @rule(subject=SUBJECTS, fresh=st.booleans())
    def destroy(self, subject: str, fresh: bool) -> None:
        ids = self.store(fresh).destroy(subject).key_ids
        if subject not in self.gone:
            assert ids == tuple(one.key_id for one in self.keys.get(subject, []))
            self.gone[subject] = bool(ids)
            self.dead.update(ids)
            self.keys[subject] = []

    @rule(batch=st.integers(1, 3))
    def rewrap(self, batch: int) -> None:
        self.house.rotate_master()
        for told in self.house.open().rewrap(batch):
            assert told.unopened == ()

    @rule()
    def back_up(self) -> None:
        if self.saved is None:
            kept = {subject: list(keys) for subject, keys in self.keys.items()}
            self.saved = (self.house.backup(), kept, dict(self.gone))

    @rule()
    def restore(self) -> None:
        if self.saved is not None:
            restore, kept, _ = self.saved
            restore()
            self.keys = {s: [] if s in self.gone else list(keys) for s, keys in kept.items()}
            # Only a process that begins after a restore has to find everything replayed.
            self.long = self.house.open()

    @invariant()
    def every_lookup_is_right(self) -> None:
        for store in (self.long, self.house.open()):
            for subject in ("a", "b", "c"):
                self._demand_right(store, subject)

    def _demand_right(self, store: KeyStore, subject: str) -> None:
        live = {one.key_id: one.key for one in self.keys.get(subject, [])}
        for one in self.ever:
            found = store.find(one.key_id, subject)
            if one.subject != subject:
                assert found is None
            elif one.key_id in self.dead:
                assert found == Destroyed(one.key_id, "subject")
            else:
                assert found == live.get(one.key_id)
        assert store.was_destroyed(subject) is self.gone.get(subject, False)
        if subject in self.gone:
            with pytest.raises(SubjectErasingError):
                store.current(subject)
        else:
            current = store.current(subject)
            assert (current and current.key_id) == next(reversed(live), None)


class MemoryLife(Life):
    """In memory."""

    harness = staticmethod(lambda _: MemoryHarness(RingMasters()))


class FileLife(Life):
    """On disk."""

    harness = staticmethod(lambda path: FileHarness(path / "store", RingMasters()))


_QUIET = settings(
    max_examples=25, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
TestMemoryLife = pytest.mark.clause("X10", "X12")(MemoryLife.TestCase)
TestMemoryLife.settings = _QUIET
TestFileLife = pytest.mark.clause("X10", "X12")(FileLife.TestCase)
TestFileLife.settings = _QUIET
