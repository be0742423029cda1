"""The harnesses that the suite of key stores runs on: in memory, on disk, and on disk under masters in AWS KMS."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
import moto
import pytest

from underseal.errors import KeyStoreError
from underseal.seal import MemoryKeyRing
from underseal.seal.store import FileKeyStore, KeyStore, Master, MemoryCabinet, MemoryKeyStore, RingMaster
from underseal.seal.store.kms import KmsMaster

REGION = "eu-central-1"


class RingMasters:
    """Masters of a ring in memory."""

    def __init__(self) -> None:
        self.ring = MemoryKeyRing()
        self.ring.generate("master")

    def now(self) -> Master:
        return RingMaster(self.ring)

    def another(self) -> Master:
        ring = MemoryKeyRing()
        ring.generate("master")
        return RingMaster(ring)

    def rotate(self) -> None:
        self.ring.rotate("master")

    def forget_older(self) -> None:
        for key_id in self.ring.key_ids("master")[1:]:
            self.ring.destroy(key_id)


class KmsMasters:
    """Masters in a KMS that moto plays, in this process and without a network.

    Every process knows the next keys before one of them wraps, as docs/seal.md asks for.
    """

    def __init__(self) -> None:
        self.client: Any = boto3.client("kms", region_name=REGION)
        self.arns = [self._key() for _ in range(7)]
        self.active = 0

    def _key(self) -> str:
        arn: str = self.client.create_key()["KeyMetadata"]["Arn"]
        return arn

    def now(self) -> Master:
        return KmsMaster(self.arns[self.active], older=self.arns, client=self.client)

    def another(self) -> Master:
        return KmsMaster(self._key(), client=self.client)

    def rotate(self) -> None:
        self.active += 1

    def forget_older(self) -> None:
        for arn in self.arns[: self.active]:
            self.client.disable_key(KeyId=arn.rpartition("/")[2])
        self.arns, self.active = [self.arns[self.active]], 0


@contextmanager
def kms() -> Iterator[None]:
    """Let calls to AWS be answered by moto; the credentials are made up."""
    with pytest.MonkeyPatch.context() as patch, moto.mock_aws():
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
            patch.setenv(name, "testing")
        yield


class MemoryHarness:
    """Stores over one dictionary."""

    def __init__(self, masters: RingMasters) -> None:
        self.masters = masters
        self.cabinet = MemoryCabinet()
        self.fences = MemoryCabinet(self.cabinet.identity())

    def open(self) -> KeyStore:
        return MemoryKeyStore(self.masters.now(), self.cabinet, fences=self.fences)

    def elsewhere(self) -> KeyStore:
        return MemoryKeyStore(self.masters.now())

    def unreachable(self) -> KeyStore:
        return MemoryKeyStore(self.masters.now(), _Away(), fences=self.fences)

    def masterless(self) -> KeyStore:
        return MemoryKeyStore(self.masters.another(), self.cabinet, fences=self.fences)

    def rotate_master(self) -> None:
        self.masters.rotate()

    def forget_older_masters(self) -> None:
        self.masters.forget_older()

    def backup(self) -> Callable[[], None]:
        kept = self.cabinet.copy()

        def restore() -> None:
            self.cabinet._kept = kept.copy()._kept

        return restore


class _Away(MemoryCabinet):
    def identity(self) -> str:
        raise KeyStoreError("it is away")


class FileHarness:
    """Stores over one pair of directories."""

    def __init__(self, path: Path, masters: RingMasters | KmsMasters) -> None:
        self.path = path
        self.masters = masters
        self.keys = path / "keys"
        self.fences = path / "fences"
        FileKeyStore.create(self.keys, masters.now(), fences=self.fences)

    def open(self) -> FileKeyStore:
        return FileKeyStore(self.keys, self.masters.now(), fences=self.fences)

    def elsewhere(self) -> FileKeyStore:
        other = self.path / "other"
        return FileKeyStore.create(other / "keys", self.masters.now(), fences=other / "fences")

    def unreachable(self) -> FileKeyStore:
        return FileKeyStore(self.path / "not mounted", self.masters.now(), fences=self.fences)

    def masterless(self) -> FileKeyStore:
        return FileKeyStore(self.keys, self.masters.another(), fences=self.fences)

    def rotate_master(self) -> None:
        self.masters.rotate()

    def forget_older_masters(self) -> None:
        self.masters.forget_older()

    def backup(self) -> Callable[[], None]:
        kept = self.path / "backup"
        shutil.copytree(self.keys, kept)

        def restore() -> None:
            shutil.rmtree(self.keys)
            shutil.copytree(kept, self.keys)

        return restore
