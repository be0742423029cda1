"""Keys of subjects: one per subject and epoch, wrapped by a master, kept outside the log's database (docs/seal.md).

``KmsMaster`` is in ``underseal.seal.store.kms``, which alone needs boto3.
"""

from underseal.errors import KeyStoreError, SubjectErasingError
from underseal.seal.store.cache import KeyCache
from underseal.seal.store.files import FileKeyStore
from underseal.seal.store.memory import MemoryCabinet, MemoryKeyStore
from underseal.seal.store.model import (
    KeyPlace,
    KeyState,
    Receipt,
    StoreRewrap,
    SubjectKey,
    SubjectState,
    Wrapped,
)
from underseal.seal.store.protocols import KeyStore, Master, Named
from underseal.seal.store.ring_master import RingMaster

__all__ = [
    "FileKeyStore",
    "KeyCache",
    "KeyPlace",
    "KeyState",
    "KeyStore",
    "KeyStoreError",
    "Master",
    "MemoryCabinet",
    "MemoryKeyStore",
    "Named",
    "Receipt",
    "RingMaster",
    "StoreRewrap",
    "SubjectErasingError",
    "SubjectKey",
    "SubjectState",
    "Wrapped",
]
