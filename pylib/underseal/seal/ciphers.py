"""The primitives under a seal: AES-256-GCM, HKDF-SHA-512 and HMAC-SHA-256, all from ``cryptography``."""

from __future__ import annotations

import hashlib
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes, hmac
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

SALT_BYTES: Final = 32
IV_BYTES: Final = 12
TAG_BYTES: Final = 16
COMMITMENT_BYTES: Final = 32
AES_KEY_BYTES: Final = 32


def hkdf(algorithm: hashes.HashAlgorithm, secret: bytes, salt: bytes, info: bytes, length: int) -> bytes:
    """HKDF of RFC 5869, extract and expand."""
    return HKDF(algorithm=algorithm, length=length, salt=salt, info=info).derive(secret)


def derive(secret: bytes, salt: bytes, associated: bytes) -> tuple[bytes, bytes]:
    """Return the AES key and the commitment for one seal.

    HKDF-SHA-512 of the key's secret with the seal's own salt and, as info, SHA-256 of the associated data;
    the first 32 bytes of its 64 are the AES key, the last 32 the commitment. So both depend on key, salt and
    place.
    """
    info = hashlib.sha256(associated).digest()
    okm = hkdf(hashes.SHA512(), secret, salt, info, AES_KEY_BYTES + COMMITMENT_BYTES)
    return okm[:AES_KEY_BYTES], okm[AES_KEY_BYTES:]


def gcm_seal(key: bytes, iv: bytes, plaintext: bytes, associated: bytes) -> bytes:
    """AES-256-GCM; returns ciphertext and 16-byte tag."""
    return AESGCM(key).encrypt(iv, plaintext, associated)


def gcm_open(key: bytes, iv: bytes, ciphertext: bytes, associated: bytes) -> bytes | None:
    """The reverse of ``gcm_seal``; ``None`` where the tag does not fit: no exception, nothing to chain."""
    try:
        return AESGCM(key).decrypt(iv, ciphertext, associated)
    except InvalidTag:
        return None


def hmac_sha256(secret: bytes, message: bytes) -> bytes:
    """HMAC-SHA-256 of RFC 2104."""
    mac = hmac.HMAC(secret, hashes.SHA256())
    mac.update(message)
    return mac.finalize()
