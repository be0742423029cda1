"""The vault: keys with purposes, key rings, and sealed envelopes (docs/seal.md, docs/formats.md)."""

from underseal.errors import KeyRingError, SealError
from underseal.seal.envelope import Envelope, associated_data, key_id_of, open_seal, seal
from underseal.seal.files import FileKeyRing
from underseal.seal.fingerprints import fingerprint
from underseal.seal.formats import (
    COMMITTING,
    FIELD,
    FORMATS,
    HELD_DECISION,
    HELD_PAYLOAD,
    MESSAGE,
    PLAIN,
    SNAPSHOT,
    Format,
)
from underseal.seal.keys import PURPOSES, Destroyed, Key, KeyRing, Purpose, RestrictedRing, restricted
from underseal.seal.rings import EnvKeyRing, MemoryKeyRing, environment_text

__all__ = [
    "COMMITTING",
    "FIELD",
    "FORMATS",
    "HELD_DECISION",
    "HELD_PAYLOAD",
    "MESSAGE",
    "PLAIN",
    "PURPOSES",
    "SNAPSHOT",
    "Destroyed",
    "EnvKeyRing",
    "Envelope",
    "FileKeyRing",
    "Format",
    "Key",
    "KeyRing",
    "KeyRingError",
    "MemoryKeyRing",
    "Purpose",
    "RestrictedRing",
    "SealError",
    "associated_data",
    "environment_text",
    "fingerprint",
    "key_id_of",
    "open_seal",
    "restricted",
    "seal",
]
