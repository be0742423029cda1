"""The exported suite of key stores: in memory, on disk, on disk under AWS KMS, and on stores with one fault each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance import pinned
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
