"""A private directory with a directory a subject, and a marker that says of which store it is (X9, X10)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Final, Literal, TypeAlias

from underseal.errors import KeyStoreError
from underseal.seal.private import PrivateDirectory
from underseal.seal.store.drawer import RECEIPT, VERSION, FileDrawer, is_key_file, object_of, telling, text_of
from underseal.seal.store.model import Contents

Holds: TypeAlias = Literal["keys", "fences"]

_MARKER: Final = "store"
_DRAWER: Final = re.compile(r"[0-9a-f]{64}")
_IDENTITY: Final = re.compile(r"[0-9a-f]{32}")


class FileCabinet:
    """A place on disk for many subjects. A directory without our marker is refused, an empty one too (X10).

    Parameters:
        path: the directory; mode 0700, its files 0600, anything looser is refused.
        holds: what it is for; one that is for the other is refused.
    """

    def __init__(self, path: Path, holds: Holds) -> None:
        self._path = path
        self._holds = holds

    @property
    def path(self) -> Path:
        """The directory."""
        return self._path

    @telling
    def marked(self) -> str | None:
        """Return the identity; None if there is no directory, or no marker in it."""
        if not self._path.exists():
            return None
        with PrivateDirectory.open(self._path, KeyStoreError, create=False) as root:
            return None if root.signature(_MARKER) is None else self._identity(root)

    @telling
    def mark(self, identity: str) -> str:
        """Make the directory and its marker where they are missing; return the identity that it has then."""
        with PrivateDirectory.open(self._path, KeyStoreError, create=True) as root:
            root.publish(_MARKER, text_of({"v": VERSION, "store": identity, "holds": self._holds}))
            return self._identity(root)

    @telling
    def identity(self) -> str:
        """Return the id that the place was given when it was made."""
        with self._root() as (_, identity):
            return identity

    @telling
    def look(self, subject: str) -> Contents:
        """Return what is kept of a subject."""
        name = _name(subject)
        with self._root() as (root, identity):
            if root.signature(name) is None:
                return Contents()
            with root.within(name, create=False) as directory:
                return FileDrawer(self._path / name, directory, subject, identity).look()

    @contextmanager
    def hold(self, subject: str) -> Iterator[FileDrawer]:
        """Change what is kept of a subject, one at a time among all threads and processes."""
        with ExitStack() as held:
            yield self._held(subject, held)

    @telling
    def secure(self, subject: str) -> None:
        """Put the subject's directory and its name on disk."""
        with self._root() as (root, _), root.within(_name(subject), create=False) as directory:
            directory.sync()
            root.sync()

    @telling
    def drawers(self) -> list[str]:
        """Return the names of the subjects' directories."""
        with self._root() as (root, _):
            return [name for name in root.names() if _DRAWER.fullmatch(name)]

    @telling
    def subject_of(self, drawer: str) -> str | None:
        """Return the subject of a directory, told by a file in it that fits its name; None where there is none yet."""
        with self._root() as (root, _), root.within(drawer, create=False) as directory:
            for name in directory.names():
                subject = object_of(directory.read(name) or b"").get("subject")
                if isinstance(subject, str) and _name(subject) == drawer:
                    return subject
        return None

    @telling
    def settled(self, drawer: str) -> bool:
        """Return whether a destruction was carried through there and no key has come back."""
        with self._root() as (root, _):
            if root.signature(drawer) is None:
                return False
            with root.within(drawer, create=False) as directory:
                names = directory.names()
        return RECEIPT in names and not any(is_key_file(name) for name in names)

    def __repr__(self) -> str:
        return f"<FileCabinet {self._path}>"

    @telling
    def _held(self, subject: str, held: ExitStack) -> FileDrawer:
        name = _name(subject)
        root, identity = held.enter_context(self._root())
        directory = held.enter_context(root.within(name, create=True))
        held.enter_context(directory.alone())
        return FileDrawer(self._path / name, directory, subject, identity)

    @contextmanager
    def _root(self) -> Iterator[tuple[PrivateDirectory, str]]:
        with self._opened() as root:
            yield root, self._identity(root)

    def _opened(self) -> AbstractContextManager[PrivateDirectory]:
        return PrivateDirectory.open(self._path, KeyStoreError, create=False)

    def _identity(self, root: PrivateDirectory) -> str:
        content = root.read(_MARKER)
        if content is None:
            raise KeyStoreError(
                f"{self._path} holds no key store: its file {_MARKER} is missing; name the right directory, mount it, "
                "restore it, or create a store there"
            )
        data = object_of(content)
        identity = data.get("store")
        if (
            data.get("v") != VERSION
            or data.get("holds") != self._holds
            or not isinstance(identity, str)
            or not _IDENTITY.fullmatch(identity)
        ):
            raise KeyStoreError(
                f"{self._path} does not hold the {self._holds} of a key store; name the right directory"
            )
        return identity


def _name(subject: str) -> str:
    return hashlib.sha256(subject.encode("utf-8")).hexdigest()
