"""What a store of subject keys keeps and tells; nothing here holds a secret but ``SubjectKey`` (DESIGN 6)."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from underseal.errors import SealError
from underseal.seal.keys import Key

SUBJECT_CHARACTERS: Final = 200

Wrapped: TypeAlias = Mapping[str, str | int]
"""A subject's key as its master wrapped it: a flat JSON object, an envelope or what a KMS answered."""

State: TypeAlias = Literal["live", "erasing", "erased"]


@dataclass(frozen=True, slots=True)
class KeyPlace:
    """Which key it is: what the wrapping is bound to.

    Attributes:
        subject: whose data the key seals.
        key_id: its opaque id.
        epoch: which of the subject's keys it is, from 1.
    """

    subject: str
    key_id: str
    epoch: int

    @property
    def elements(self) -> tuple[str, str, str]:
        """The place as ``key-wrap-v1`` has it."""
        return (self.subject, self.key_id, str(self.epoch))


@dataclass(frozen=True, slots=True)
class StoredKey:
    """A wrapped key, and which one it is."""

    place: KeyPlace
    wrapped: Wrapped = field(repr=False)


@dataclass(frozen=True, slots=True)
class Tomb:
    """What stays of a destroyed key."""

    key_id: str
    epoch: int


@dataclass(frozen=True, slots=True)
class SubjectKey:
    """A key and whose it is. Like the key, it is in no repr with its secret and cannot be pickled.

    Attributes:
        subject: whose data it seals.
        epoch: which of the subject's keys it is, from 1.
        key: the key itself.
    """

    subject: str
    epoch: int
    key: Key

    @property
    def key_id(self) -> str:
        """The key's id."""
        return self.key.id


@dataclass(frozen=True, slots=True)
class Contents:
    """What is kept of one subject.

    Attributes:
        keys: wrapped keys, from the oldest epoch to the newest; copies of destroyed ones included.
        tombs: the destroyed ones.
        fenced: the subject gets no key any more, and those it has are as good as destroyed.
        certified: the destruction was carried through, here.
    """

    keys: tuple[StoredKey, ...] = ()
    tombs: frozenset[Tomb] = frozenset()
    fenced: bool = False
    certified: bool = False

    def with_fences(self, fences: Contents) -> Contents:
        """Return the same under what is kept outside the store: fences and tombs, and nothing else (X12)."""
        return Contents(self.keys, self.tombs | fences.tombs, self.fenced or fences.fenced, self.certified)

    @property
    def live(self) -> tuple[StoredKey, ...]:
        """The keys that open, from the oldest to the newest; a tomb outlives any copy of its key (X12)."""
        gone = {tomb.key_id for tomb in self.tombs}
        return () if self.fenced else tuple(key for key in self.keys if key.place.key_id not in gone)

    @property
    def doomed(self) -> tuple[Tomb, ...]:
        """Every key that is or was here, from the oldest to the newest."""
        here = {Tomb(key.place.key_id, key.place.epoch) for key in self.keys}
        return tuple(sorted(self.tombs | here, key=lambda tomb: (tomb.epoch, tomb.key_id)))

    @property
    def next_epoch(self) -> int:
        """An epoch that no key of the subject ever had."""
        return max((tomb.epoch for tomb in self.doomed), default=0) + 1

    @property
    def state(self) -> State:
        """How far the subject's erasure is, if there is one."""
        if not self.fenced:
            return "live"
        return "erased" if self.certified else "erasing"


@dataclass(frozen=True, slots=True)
class KeyState:
    """A key in a listing.

    Attributes:
        epoch: which of the subject's keys it is.
        key_id: its id.
        master: id of the master key that it is wrapped under; None for a destroyed one.
    """

    epoch: int
    key_id: str
    master: str | None


@dataclass(frozen=True, slots=True)
class SubjectState:
    """A subject in a listing.

    Attributes:
        subject: which.
        state: ``live``; ``erasing``, where a destruction stopped half-way (call it again); ``erased``.
        keys: from the oldest epoch to the newest.
    """

    subject: str
    state: State
    keys: tuple[KeyState, ...]


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a store says when every key of a subject is destroyed.

    Attributes:
        subject: whose.
        key_ids: the keys that this store destroyed, from the oldest; with none of them it proves nothing (X4).
    """

    subject: str
    key_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StoreRewrap:
    """How far a ``rewrap`` is (X8).

    Attributes:
        subjects: how many subjects were looked at.
        of: how many there were when it began.
        rewrapped: how many keys are under the active master that were not before.
        unopened: ids of keys that did not open here and were left as they are.
    """

    subjects: int
    of: int
    rewrapped: int
    unopened: tuple[str, ...]


def demand_subject(subject: object) -> str:
    """Return ``subject``, or refuse what the database would refuse too.

    Raises:
        SealError: ``malformed``; it is not 1 to 200 characters of text without control characters and lone surrogates.
    """
    if not isinstance(subject, str) or not 1 <= len(subject) <= SUBJECT_CHARACTERS or _unprintable(subject):
        raise SealError(
            "malformed",
            f"a subject is 1 to {SUBJECT_CHARACTERS} characters, none of them a control character",
        )
    return subject


def _unprintable(text: str) -> bool:
    return any(unicodedata.category(character) in ("Cc", "Cs") for character in text)
