"""The store on disk: wrapped keys in one place, its fences in a second (X9–X12; docs/seal.md)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Self

from underseal.errors import KeyStoreError
from underseal.seal import entropy
from underseal.seal.store.cabinet import FileCabinet
from underseal.seal.store.cabinet_store import CabinetKeyStore
from underseal.seal.store.cache import KeyCache
from underseal.seal.store.protocols import Master


class FileKeyStore(CabinetKeyStore):
    """A key store in a private directory of this user. Safe between threads and between processes.

    Make it once with ``create``. Every call looks at both directories, so what another process minted, rotated or
    destroyed counts at the next call.

    Parameters:
        path: the directory of the keys.
        master: wraps and unwraps.
        fences: the directory of the fences, outside of ``path`` and of what is backed up together with it: a backup
            of the keys that is restored after a destruction does not bring them back while the fences are there (X12).
        cache: unwrapped keys; one of its own if None.
        derived: as of ``CabinetKeyStore``.

    Raises:
        KeyStoreError: the one directory is, or is in, the other. In every method: as of ``KeyStore``.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        master: Master,
        *,
        fences: str | os.PathLike[str],
        cache: KeyCache | None = None,
        derived: Iterable[Callable[[str], object]] = (),
    ) -> None:
        keys, outside = Path(path), Path(fences)
        _demand_apart(keys, outside)
        self._path = keys
        self._fences_path = outside
        super().__init__(
            master, FileCabinet(keys, "keys"), FileCabinet(outside, "fences"), cache=cache, derived=derived
        )

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        master: Master,
        *,
        fences: str | os.PathLike[str],
        cache: KeyCache | None = None,
        derived: Iterable[Callable[[str], object]] = (),
    ) -> Self:
        """Make both directories, each with a marker, and return the store. What is there already stays.

        Parameters: as of the class.

        Raises:
            KeyStoreError: one of the two belongs to another store, or is there and the other is not: fences that know
                destroyed keys need their store back, and a store needs its fences back.
        """
        store = cls(path, master, fences=fences, cache=cache, derived=derived)
        keys, outside = FileCabinet(Path(path), "keys"), FileCabinet(Path(fences), "fences")
        known, fenced = keys.marked(), outside.marked()
        if known is None:
            if fenced is not None and outside.drawers():
                raise KeyStoreError(
                    f"{outside.path} holds fences of a store that is not in {keys.path}; mount or restore it there, or "
                    "name other fences"
                )
            # The fences first: a store that is there always had its fences.
            known = keys.mark(outside.mark(entropy.random_bytes(16).hex()))
        store._demand_pair()
        return store

    @property
    def path(self) -> Path:
        """The directory of the keys."""
        return self._path

    @property
    def fences(self) -> Path:
        """The directory of the fences."""
        return self._fences_path

    def __repr__(self) -> str:
        return f"<FileKeyStore {self._path}>"


def _demand_apart(keys: Path, fences: Path) -> None:
    one, other = keys.resolve(), fences.resolve()
    if one == other or one in other.parents or other in one.parents:
        raise KeyStoreError(
            f"expected fences apart from the keys, found {keys} and {fences}: one backup would take both, and "
            "restoring it would bring destroyed keys back"
        )
