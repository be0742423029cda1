"""The key ring on disk: one private directory, one file a key, one tombstone a destroyed key (X9–X12).

Generations make it single-winner: the key file of generation 3 has one name, ``payload.000003.key``, and
whoever links it first has made generation 3. The highest generation is the active key, so there is no pointer
that could disagree.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from underseal.errors import KeyRingError
from underseal.seal import encoding
from underseal.seal.keys import Destroyed, Key, Purpose, as_purpose, mint
from underseal.seal.private import PrivateDirectory, Signature
from underseal.seal.rings import KeySet, demand_retired, key_from, parse_json

VERSION: Final = 1

_KEY_FILE: Final = re.compile(r"(payload|decision|fingerprint|master)\.([0-9]{6,9})\.key")
_TOMB_FILE: Final = re.compile(
    r"((payload|decision|fingerprint|master)-[0-9a-f]{32})\.([0-9]{6,9})\.destroyed"
)
_GENERATE: Final = "run: underseal keys generate"
_ATTEMPTS: Final = 100


@dataclass(frozen=True, slots=True)
class _Contents:
    keys: KeySet
    files: dict[str, Key]  # key file → key, copies of destroyed ones included
    last: dict[str, int]  # purpose → highest generation ever used here
    signatures: dict[str, Signature | None]
    findings: list[str]


class FileKeyRing:
    """Keys in a directory (mode 0700) of files (mode 0600) that belong to this user; anything looser is
    refused.

    Every call looks at the directory, so a rotation by another process is seen at the next call. Safe between
    threads and between processes. docs/seal.md describes the files.

    Parameters:
        path: the directory. ``generate`` and ``rotate`` make it; every other call refuses a missing one,
            because a wrong directory must not look like an empty ring (X10).

    Raises, in every method:
        KeyRingError: the directory or a file of it is missing, loose, foreign, a symbolic link or damaged;
            the message says what was found and what to run.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._lock = threading.Lock()
        self._seen: _Contents | None = None

    @property
    def path(self) -> Path:
        """The directory."""
        return self._path

    def active(self, purpose: Purpose) -> Key:
        """Return the key that seals now: the newest generation."""
        return self._contents().keys.active(purpose, _GENERATE)

    def find(self, key_id: str) -> Key | Destroyed | None:
        """Return the key, ``Destroyed`` where its tombstone is here, or ``None``."""
        return self._contents().keys.find(key_id)

    def live(self, purpose: Purpose) -> list[Key]:
        """Return every key that opens, from the newest generation to the oldest."""
        return self._contents().keys.live(purpose)

    def key_ids(self, purpose: Purpose) -> list[str]:
        """Return the ids of ``live``."""
        return [key.id for key in self.live(purpose)]

    def generate(self, purpose: Purpose) -> Key:
        """Return the active key for ``purpose``, minted now if there is none.

        Any number of processes that do this at once get one and the same key (X11).
        """
        with self._open(create=True) as directory:
            before = self._load(directory)
            if not before.keys.live(purpose):
                self._mint(directory, purpose, before)
            return self._load(directory).keys.active(purpose, _GENERATE)

    def rotate(self, purpose: Purpose) -> Key:
        """Make a new key for ``purpose`` the active one and return it; older keys still open (H2.6).

        Processes that rotate at the same moment make one rotation, and all get its key.
        """
        with self._open(create=True) as directory:
            self._mint(directory, purpose, self._load(directory))
            return self._load(directory).keys.active(purpose, _GENERATE)

    def destroy(self, key_id: str) -> None:
        """Destroy a retired key: first the tombstone, then every file that holds the key. Can be repeated.

        From then on ``find`` answers ``Destroyed``, also when a backup brings the key's file back (X12).

        Raises:
            KeyRingError: the key is unknown, or it is the active one.
        """
        with self._open(create=False) as directory:
            contents = self._load(directory)
            found = contents.keys.find(key_id)
            if not isinstance(found, Destroyed):
                key = demand_retired(found, key_id, contents.keys, f"the key ring {self._path}")
                generation = max(_generation(name) for name, k in contents.files.items() if k.id == key_id)
                note = {"v": VERSION, "id": key.id, "purpose": key.purpose, "generation": generation}
                directory.publish(f"{key.id}.{generation:06d}.destroyed", _text(note))
            for name in [*contents.files, *directory.temporary_names()]:
                # A writer that died may have left a second link to the very key that is destroyed.
                if _id_in(directory.read(name)) == key_id:
                    directory.remove(name)
            directory.sync()

    def findings(self) -> list[str]:
        """Return what an operator should see to: copies of destroyed keys, left-over and unknown files."""
        with self._open(create=False) as directory:
            contents = self._load(directory)
            left = [
                f"{self._path / name} was left by a process that died; remove it while none is at work here"
                for name in directory.temporary_names()
            ]
        return [*contents.findings, *left]

    def __repr__(self) -> str:
        return f"<FileKeyRing {self._path}>"

    def _open(self, *, create: bool) -> AbstractContextManager[PrivateDirectory]:
        return PrivateDirectory.open(self._path, KeyRingError, create=create)

    def _contents(self) -> _Contents:
        with self._open(create=False) as directory:
            return self._load(directory)

    def _load(self, directory: PrivateDirectory) -> _Contents:
        # The directory is read again until nothing changed while it was read: between two looks another
        # process may have destroyed a key, and its tombstone must not be missed together with its file.
        for _ in range(_ATTEMPTS):
            signatures = {name: directory.signature(name) for name in directory.names()}
            with self._lock:
                seen = self._seen
            if seen is not None and seen.signatures == signatures:
                return seen
            contents = self._read(directory, signatures)
            if contents is not None and signatures == {n: directory.signature(n) for n in directory.names()}:
                # What another process has just linked is used only once it is on disk.
                directory.sync()
                with self._lock:
                    self._seen = contents
                return contents
        raise KeyRingError(f"the key ring {self._path} kept changing while it was read; try again")

    def _read(self, directory: PrivateDirectory, signatures: dict[str, Signature | None]) -> _Contents | None:
        files: dict[str, Key] = {}
        tombs: list[Destroyed] = []
        last: dict[str, int] = {}
        findings: list[str] = []
        for name in signatures:
            if tomb := _TOMB_FILE.fullmatch(name):
                purpose = tomb[2]
                tombs.append(Destroyed(tomb[1], as_purpose(purpose)))
                last[purpose] = max(last.get(purpose, 0), int(tomb[3]))
            elif match := _KEY_FILE.fullmatch(name):
                content = directory.read(name)
                if content is None:
                    return None
                files[name] = self._key(name, content)
                last[match[1]] = max(last.get(match[1], 0), int(match[2]))
            else:
                findings.append(f"{self._path / name} is no file of a key ring; remove it")
        gone = {tomb.key_id for tomb in tombs}
        for name, key in files.items():
            if key.id in gone:
                findings.append(
                    f"{self._path / name} is a copy of a destroyed key; run: underseal keys destroy {key.id}"
                )
        newest_first = [files[name] for name in sorted(files, key=_generation, reverse=True)]
        keys = KeySet(newest_first, tombs, where=f"the key ring {self._path}")
        return _Contents(keys, files, last, signatures, findings)

    def _key(self, name: str, content: bytes) -> Key:
        data = parse_json(content)
        fields = dict(data) if isinstance(data, dict) else {}
        version, generation = fields.pop("v", None), fields.pop("generation", None)
        key = key_from(fields)
        if (
            key is None
            or version != VERSION
            or generation != _generation(name)
            or not name.startswith(key.purpose)
        ):
            raise KeyRingError(
                f"{self._path / name} is damaged or not what its name says; restore it from a backup"
            )
        return key

    def _mint(self, directory: PrivateDirectory, purpose: Purpose, before: _Contents) -> None:
        key, generation = mint(purpose), before.last.get(purpose, 0) + 1
        content = {
            "v": VERSION,
            "id": key.id,
            "purpose": purpose,
            "generation": generation,
            "secret": encoding.encode(key.secret),
        }
        # Losing is fine: then this generation is there, made by another process, and it is the one to use.
        directory.publish(f"{purpose}.{generation:06d}.key", _text(content))


def _generation(name: str) -> int:
    return int(name.split(".")[1])


def _text(content: Mapping[str, object]) -> bytes:
    return json.dumps(content).encode("ascii") + b"\n"


def _id_in(content: bytes | None) -> str | None:
    data = parse_json(content) if content is not None else None
    return data.get("id") if isinstance(data, dict) else None
