"""One subject's private directory: wrapped keys, tombs, a fence and a receipt, each a file (X9–X12)."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeVar

from underseal.errors import KeyStoreError
from underseal.seal.private import PrivateDirectory
from underseal.seal.rings import parse_json
from underseal.seal.store.model import Contents, KeyPlace, StoredKey, Tomb

VERSION: Final = 1
FENCE: Final = "fence"
RECEIPT: Final = "receipt"

_KEY_FILE: Final = re.compile(r"([0-9]{6,9})\.key")
_TOMB_FILE: Final = re.compile(r"([0-9]{6,9})\.(subject-[0-9a-f]{32})\.destroyed")
_KEY_ID: Final = re.compile(r"subject-[0-9a-f]{32}")
_ATTEMPTS: Final = 100


class _Placed(Protocol):
    @property
    def path(self) -> Path: ...


P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound=_Placed)


def telling(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Turn what the file system refuses into ``KeyStoreError``: an outage is never an answer (X10)."""

    @wraps(method)
    def told(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(self, *args, **kwargs)
        except OSError as error:
            why = os.strerror(error.errno or 0)
        raise KeyStoreError(f"{self.path} cannot be used: {why}; nothing is known about any key in it")

    return told


class FileDrawer:
    """What is kept of one subject on disk.

    Parameters:
        path: where it is, for messages.
        directory: the same, open.
        subject: whose it is; files of another subject are refused.
        store: identity of the store; fences and receipts of another are refused.
    """

    def __init__(self, path: Path, directory: PrivateDirectory, subject: str, store: str) -> None:
        self._path = path
        self._directory = directory
        self._subject = subject
        self._store = store

    @property
    def path(self) -> Path:
        """The directory."""
        return self._path

    @telling
    def look(self) -> Contents:
        """Return what is here, read again where it changed meanwhile."""
        for _ in range(_ATTEMPTS):
            contents = self._read()
            if contents is not None:
                return contents
        raise KeyStoreError(f"{self._path} kept changing while it was read; try again")

    @telling
    def add(self, key: StoredKey) -> bool:
        """Keep a key; False if its epoch is taken."""
        return self._directory.publish(_key_name(key), self._key_text(key))

    @telling
    def replace(self, key: StoredKey) -> None:
        """Keep a key in the place of the one with its epoch."""
        self._directory.replace(_key_name(key), self._key_text(key))

    @telling
    def fence(self) -> None:
        """Keep the subject from getting keys."""
        self._directory.publish(FENCE, self._note())

    @telling
    def bury(self, tomb: Tomb) -> None:
        """Remember that a key is destroyed; the file's name is what counts."""
        note = {"v": VERSION, "id": tomb.key_id, "epoch": tomb.epoch}
        self._directory.publish(f"{tomb.epoch:06d}.{tomb.key_id}.destroyed", text_of(note))

    @telling
    def clear(self) -> None:
        """Remove every key file, and the temporary files: a writer that died may have left a key in one."""
        for name in [*self._directory.names(), *self._directory.temporary_names()]:
            if _KEY_FILE.fullmatch(name) or name.startswith("."):
                self._directory.remove(name)
        self._directory.sync()

    @telling
    def certify(self) -> None:
        """Remember that the destruction was carried through."""
        self._directory.publish(RECEIPT, self._note())

    def _read(self) -> Contents | None:
        names = self._directory.names()
        keys, tombs = [], set()
        for name in names:
            if match := _KEY_FILE.fullmatch(name):
                content = self._directory.read(name)
                if content is None:
                    return None
                keys.append(self._key(name, int(match[1]), content))
            elif match := _TOMB_FILE.fullmatch(name):
                tombs.add(Tomb(match[2], int(match[1])))
        for name in {FENCE, RECEIPT} & set(names):
            self._demand_ours(name)
        return Contents(tuple(keys), frozenset(tombs), fenced=FENCE in names, certified=RECEIPT in names)

    def _key(self, name: str, epoch: int, content: bytes) -> StoredKey:
        data = object_of(content)
        wrapped = data.get("wrapped")
        if (
            data.keys() != {"v", "subject", "id", "epoch", "wrapped"}
            or (data["v"], data["subject"], data["epoch"]) != (VERSION, self._subject, epoch)
            or not isinstance(data["id"], str)
            or not _KEY_ID.fullmatch(data["id"])
            or not isinstance(wrapped, dict)
        ):
            raise KeyStoreError(
                f"{self._path / name} is damaged or not what its place says; restore it from a backup"
            )
        return StoredKey(KeyPlace(self._subject, data["id"], epoch), wrapped)

    def _demand_ours(self, name: str) -> None:
        data = object_of(self._directory.read(name) or b"")
        if (data.get("v"), data.get("store"), data.get("subject")) != (VERSION, self._store, self._subject):
            raise KeyStoreError(
                f"{self._path / name} is damaged, or of another store or subject; restore it from a backup"
            )

    def _key_text(self, key: StoredKey) -> bytes:
        place = key.place
        return text_of(
            {
                "v": VERSION,
                "subject": place.subject,
                "id": place.key_id,
                "epoch": place.epoch,
                "wrapped": dict(key.wrapped),
            }
        )

    def _note(self) -> bytes:
        return text_of({"v": VERSION, "store": self._store, "subject": self._subject})


def is_key_file(name: str) -> bool:
    """Return whether a file of this name holds a key."""
    return _KEY_FILE.fullmatch(name) is not None


def text_of(content: Mapping[str, object]) -> bytes:
    """Return the JSON of a file of ours."""
    return json.dumps(content, ensure_ascii=False).encode("utf-8") + b"\n"


def object_of(content: bytes) -> dict[str, Any]:
    """Return the object in a file of ours; an empty one if it holds anything else."""
    data = parse_json(content)
    return data if isinstance(data, dict) else {}


def _key_name(key: StoredKey) -> str:
    return f"{key.place.epoch:06d}.key"
