"""The exported suite of key stores: in memory, on disk, on disk under AWS KMS, and on stores with one fault each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conformance import cases_of, pinned
from tests.seal.broken_key_stores import BROKEN_KEY_STORES, BrokenHarness
from tests.seal.key_store_harness import FileHarness, KmsMasters, MemoryHarness, RingMasters, kms
from underseal.testing.conformance import KeyStoreConformance


@pinned("T1d", "X9")
class TestMemoryKeys(KeyStoreConformance):
    @pytest.fixture
    def store(self) -> MemoryHarness:
        return MemoryHarness(RingMasters())


@pinned("T1d", "X9")
class TestFileKeys(KeyStoreConformance):
    @pytest.fixture
    def store(self, tmp_path: Path) -> FileHarness:
        return FileHarness(tmp_path, RingMasters())


@pinned("T1d", "X9")
class TestFileKeysUnderKms(KeyStoreConformance):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[FileHarness]:
        with kms():
            yield FileHarness(tmp_path, KmsMasters())


@pytest.mark.clause("T1d")
@pytest.mark.parametrize(("broken", "test"), BROKEN_KEY_STORES, ids=[test for _, test in BROKEN_KEY_STORES])
def test_the_suite_finds_a_broken_key_store(broken: Callable[[], BrokenHarness], test: str) -> None:
    # pytest.raises fails with an exception of its own kind where nothing was refused.
    with pytest.raises((AssertionError, LookupError, pytest.fail.Exception)):
        getattr(KeyStoreConformance(), test)(broken())


def test_every_test_of_the_suite_of_key_stores_finds_something() -> None:
    assert set(cases_of(KeyStoreConformance)) == {test for _, test in BROKEN_KEY_STORES}
