"""Key rings that hold their keys in memory: for tests and embedding services, and for containers (X9)."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Collection, Iterable
from typing import Any, Final

from underseal.errors import KeyRingError
from underseal.seal import encoding
from underseal.seal.keys import (
    PURPOSES,
    SECRET_BYTES,
    Destroyed,
    Key,
    KeyRing,
    Purpose,
    mint,
    minted_purpose,
    no_active_key,
)

ENV_VERSION: Final = 1


class KeySet:
    """Keys in order, the active one of each purpose first, and the ids of destroyed ones. Immutable.

    A key whose id is among the destroyed is left out: a tombstone outlives any copy of its key (X12).

    Raises:
        KeyRingError: two keys share an id or a secret. A secret under two purposes would undo H2.11.
    """

    def __init__(self, keys: Iterable[Key], destroyed: Iterable[Destroyed] = (), *, where: str) -> None:
        self._where = where
        self._tombs = {tomb.key_id: tomb for tomb in destroyed}
        self._keys: dict[str, Key] = {}
        secrets: dict[bytes, str] = {}
        for key in keys:
            if key.id in self._tombs:
                continue
            if key.id in self._keys:
                raise KeyRingError(f"{where} holds key {key.id} twice; keep one of them")
            twin = secrets.setdefault(key.secret, key.id)
            if twin != key.id:
                raise KeyRingError(
                    f"{where}: keys {twin} and {key.id} have one secret; every key needs its own"
                )
            self._keys[key.id] = key

    def active(self, purpose: Purpose, remedy: str) -> Key:
        """Return the first key for ``purpose``, or raise ``key-unavailable``, naming ``remedy``."""
        for key in self._keys.values():
            if key.purpose == purpose:
                return key
        raise no_active_key(purpose, self._where, remedy)

    def find(self, key_id: str) -> Key | Destroyed | None:
        """Return key, tombstone or ``None``."""
        return self._tombs.get(key_id) or self._keys.get(key_id)

    def live(self, purpose: Purpose) -> list[Key]:
        """Return the keys for ``purpose``, the active one first."""
        return [key for key in self._keys.values() if key.purpose == purpose]

    def with_active(self, key: Key) -> KeySet:
        """Return the set with ``key`` in front."""
        return KeySet([key, *self._keys.values()], self._tombs.values(), where=self._where)

    def without(self, tomb: Destroyed) -> KeySet:
        """Return the set with that key destroyed."""
        return KeySet(self._keys.values(), [*self._tombs.values(), tomb], where=self._where)


class MemoryKeyRing:
    """A ring that lives and dies with the process: for tests, and for a service that fetches its keys itself.

    Parameters:
        keys: the keys to start with; the first of each purpose is the active one.
    """

    def __init__(self, keys: Iterable[Key] = ()) -> None:
        self._lock = threading.Lock()
        self._set = KeySet(keys, where="this memory ring")

    @classmethod
    def with_all(cls) -> MemoryKeyRing:
        """Return a ring with one fresh key for every purpose."""
        return cls(mint(purpose) for purpose in PURPOSES)

    def active(self, purpose: Purpose) -> Key:
        """Return the key that seals now."""
        return self._set.active(purpose, f'call generate("{purpose}") first')

    def find(self, key_id: str) -> Key | Destroyed | None:
        """Return the key, ``Destroyed``, or ``None`` for an id this ring never had."""
        return self._set.find(key_id)

    def live(self, purpose: Purpose) -> list[Key]:
        """Return every key that opens, the active one first."""
        return self._set.live(purpose)

    def key_ids(self, purpose: Purpose) -> list[str]:
        """Return the ids of ``live``."""
        return [key.id for key in self._set.live(purpose)]

    def generate(self, purpose: Purpose) -> Key:
        """Return the active key for ``purpose``, minted now if there is none."""
        with self._lock:
            if not self._set.live(purpose):
                self._set = self._set.with_active(mint(purpose))
            return self._set.live(purpose)[0]

    def rotate(self, purpose: Purpose) -> Key:
        """Mint a key for ``purpose`` and make it the active one; older keys still open (H2.6)."""
        with self._lock:
            key = mint(purpose)
            self._set = self._set.with_active(key)
            return key

    def destroy(self, key_id: str) -> None:
        """Forget a retired key for good; destroying it again changes nothing.

        Raises:
            KeyRingError: the key is unknown, or it is the active one.
        """
        with self._lock:
            found = self._set.find(key_id)
            if isinstance(found, Destroyed):
                return
            key = demand_retired(found, key_id, self._set, "this memory ring")
            self._set = self._set.without(Destroyed(key.id, key.purpose))

    def __repr__(self) -> str:
        return f"<MemoryKeyRing {describe(self)}>"


class EnvKeyRing:
    """A read-only ring from an environment variable, for containers; docs/seal.md has the JSON.

    Parameters:
        variable: the variable, read once, now.

    Raises:
        KeyRingError: the variable is missing or is not what docs/seal.md says. The message names the entry
            and shows nothing of the value.
    """

    def __init__(self, variable: str = "UNDERSEAL_KEYS") -> None:
        self._variable = variable
        text = os.environ.get(variable)
        if text is None:
            raise KeyRingError(
                f"the environment variable {variable} is not set; docs/seal.md says what it holds"
            )
        self._set = _parse_environment(text, f"the environment variable {variable}")

    def active(self, purpose: Purpose) -> Key:
        """Return the key that seals now: the first of its purpose."""
        return self._set.active(purpose, "add one and start the process again")

    def find(self, key_id: str) -> Key | Destroyed | None:
        """Return the key, ``Destroyed`` for an id listed as destroyed, or ``None``."""
        return self._set.find(key_id)

    def live(self, purpose: Purpose) -> list[Key]:
        """Return every key that opens, the active one first."""
        return self._set.live(purpose)

    def key_ids(self, purpose: Purpose) -> list[str]:
        """Return the ids of ``live``."""
        return [key.id for key in self._set.live(purpose)]

    def __repr__(self) -> str:
        return f"<EnvKeyRing {self._variable}: {describe(self)}>"


def environment_text(ring: KeyRing, purposes: Collection[Purpose]) -> str:
    """Return the JSON that gives a container the keys of ``ring`` for ``purposes``. It holds secrets.

    Parameters:
        ring: where the keys are now.
        purposes: what the container may do; an approver's needs ``{"decision"}`` alone (H2.11).
    """
    keys = [key for purpose in PURPOSES if purpose in purposes for key in ring.live(purpose)]
    entries = [{"id": key.id, "purpose": key.purpose, "secret": encoding.encode(key.secret)} for key in keys]
    return json.dumps({"v": ENV_VERSION, "keys": entries}, separators=(",", ":"))


def demand_retired(found: Key | None, key_id: str, keys: KeySet, where: str) -> Key:
    """Return ``found``, or raise ``KeyRingError`` unless it is known and not the active key."""
    if found is None:
        raise KeyRingError(f"{where} never had a key {key_id}; nothing was destroyed")
    if keys.live(found.purpose)[0].id == key_id:
        raise KeyRingError(
            f"key {key_id} is the active {found.purpose} key; rotate, rewrap what it sealed, then destroy it"
        )
    return found


def describe(ring: KeyRing) -> str:
    """Return the ids a ring has, for its repr."""
    return ", ".join(key_id for purpose in PURPOSES for key_id in ring.key_ids(purpose)) or "empty"


def _parse_environment(text: str, where: str) -> KeySet:
    data = parse_json(text)
    if not isinstance(data, dict) or data.get("v") != ENV_VERSION or not isinstance(data.get("keys"), list):
        raise KeyRingError(
            f'{where} must hold a JSON object {{"v": {ENV_VERSION}, "keys": […]}}; see docs/seal.md'
        )
    if not data.keys() <= {"v", "keys", "destroyed"}:
        raise KeyRingError(f"{where} has a member beside v, keys and destroyed; remove it")
    keys = []
    for number, entry in enumerate(data["keys"], start=1):
        key = key_from(entry)
        if key is None:
            raise KeyRingError(
                f"{where}: key {number} must have exactly id, purpose ({', '.join(PURPOSES)}) and secret "
                f"({SECRET_BYTES} bytes in base64url without padding), the id beginning with its purpose"
            )
        keys.append(key)
    gone = data.get("destroyed", [])
    if not isinstance(gone, list) or not all(isinstance(g, str) and minted_purpose(g) for g in gone):
        raise KeyRingError(f"{where}: destroyed must be a list of key ids")
    tombs = [Destroyed(g, purpose) for g in gone if (purpose := minted_purpose(g))]
    return KeySet(keys, tombs, where=where)


def parse_json(text: str | bytes) -> Any:
    """Return the parsed value, or ``None``: a parser's error quotes its input, which here holds keys."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def key_from(entry: object) -> Key | None:
    """Return the key of ``{"id", "purpose", "secret"}``, or ``None`` for anything else."""
    if not isinstance(entry, dict) or entry.keys() != {"id", "purpose", "secret"}:
        return None
    if not all(isinstance(value, str) for value in entry.values()):
        return None
    purpose, secret = minted_purpose(entry["id"]), encoding.decode(entry["secret"])
    if purpose is None or purpose != entry["purpose"] or secret is None or len(secret) != SECRET_BYTES:
        return None
    return Key(entry["id"], purpose, secret)
