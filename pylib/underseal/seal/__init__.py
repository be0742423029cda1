"""The vault: keys with purposes, key rings, and sealed envelopes (docs/seal.md, docs/formats.md)."""

from underseal.errors import KeyRingError, SealError
from underseal.seal.capability import Capability, common_capability, opens
from underseal.seal.envelope import Envelope, associated_data, key_id_of, open_seal, seal
from underseal.seal.fields import (
    Sealed,
    open_fields,
    open_lineage,
    open_message,
    seal_fields,
    seal_lineage,
    seal_message,
)
from underseal.seal.files import FileKeyRing
from underseal.seal.fingerprints import fingerprint
from underseal.seal.formats import (
    COMMITTING,
    FIELD,
    FORMATS,
    HELD_DECISION,
    HELD_PAYLOAD,
    KEY_WRAP,
    MESSAGE,
    PLAIN,
    SNAPSHOT,
    Format,
)
from underseal.seal.keys import (
    HELD_PURPOSES,
    PURPOSES,
    Destroyed,
    Key,
    KeyRing,
    Purpose,
    RestrictedRing,
    restricted,
)
from underseal.seal.lineage import Lineage
from underseal.seal.rings import EnvKeyRing, MemoryKeyRing, environment_text
from underseal.seal.sensitive import SensitiveMap
from underseal.seal.state import open_state, seal_state

__all__ = [
    "COMMITTING",
    "FIELD",
    "FORMATS",
    "HELD_DECISION",
    "HELD_PAYLOAD",
    "HELD_PURPOSES",
    "KEY_WRAP",
    "MESSAGE",
    "PLAIN",
    "PURPOSES",
    "SNAPSHOT",
    "Capability",
    "Destroyed",
    "EnvKeyRing",
    "Envelope",
    "FileKeyRing",
    "Format",
    "Key",
    "KeyRing",
    "KeyRingError",
    "Lineage",
    "MemoryKeyRing",
    "Purpose",
    "RestrictedRing",
    "SealError",
    "Sealed",
    "SensitiveMap",
    "associated_data",
    "common_capability",
    "environment_text",
    "fingerprint",
    "key_id_of",
    "open_fields",
    "open_lineage",
    "open_message",
    "open_seal",
    "open_state",
    "opens",
    "restricted",
    "seal",
    "seal_fields",
    "seal_lineage",
    "seal_message",
    "seal_state",
]
