"""The primitives give what their specifications publish: constants from elsewhere, not from this code."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives import hashes

from underseal.seal import ciphers

# The Galois/Counter Mode of Operation (McGrew, Viega), appendix B, the AES-256 cases with a 96-bit IV.
_KEY = "feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308"
_PLAIN = (
    "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72"
    "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b391aafd255"
)
_CIPHER = (
    "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa"
    "8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662898015ad"
)
GCM = {
    13: ("00" * 32, "00" * 12, "", "", "", "530f8afbc74536b9a963b4f1c4cb738b"),
    14: (
        "00" * 32,
        "00" * 12,
        "00" * 16,
        "",
        "cea7403d4d606b6e074ec5d3baf39d18",
        "d0d1c8a799996bf0265b98b5d48ab919",
    ),
    15: (_KEY, "cafebabefacedbaddecaf888", _PLAIN, "", _CIPHER, "b094dac5d93471bdec1a502270e3cc6c"),
    16: (
        _KEY,
        "cafebabefacedbaddecaf888",
        _PLAIN[:120],
        "feedfacedeadbeeffeedfacedeadbeefabaddad2",
        _CIPHER[:120],
        "76fc6ece0f4e1768cddf8853bb2d551b",
    ),
}


@pytest.mark.parametrize("case", GCM)
def test_aes_256_gcm_gives_the_cases_of_its_specification(case: int) -> None:
    key, iv, plain, associated, cipher, tag = (bytes.fromhex(part) for part in GCM[case])
    assert ciphers.gcm_seal(key, iv, plain, associated) == cipher + tag
    assert ciphers.gcm_open(key, iv, cipher + tag, associated) == plain


@pytest.mark.parametrize("case", GCM)
def test_aes_256_gcm_opens_nothing_that_was_changed(case: int) -> None:
    key, iv, _, associated, cipher, tag = (bytes.fromhex(part) for part in GCM[case])
    sealed = cipher + tag
    for position in range(len(sealed)):
        changed = sealed[:position] + bytes([sealed[position] ^ 1]) + sealed[position + 1 :]
        assert ciphers.gcm_open(key, iv, changed, associated) is None
    assert ciphers.gcm_open(key, iv, sealed, associated + b"\0") is None


_ROW = bytes(range(256)).hex()
_SHORT = ("0b" * 22, "000102030405060708090a0b0c", "f0f1f2f3f4f5f6f7f8f9")
_LONG = (_ROW[: 2 * 0x50], _ROW[2 * 0x60 : 2 * 0xB0], _ROW[2 * 0xB0 :])
_BARE = ("0b" * 22, "", "")

# RFC 5869, appendix A.1 to A.3.
HKDF_SHA256 = [
    (
        *_SHORT,
        "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865",
    ),
    (
        *_LONG,
        "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c59045a99cac7827271cb41c65e590e09"
        "da3275600c2f09b8367793a9aca3db71cc30c58179ec3e87c14c01d5c1f3434f1d87",
    ),
    (
        *_BARE,
        "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8",
    ),
]
# The same inputs with SHA-512, as published by Kullo and used by several libraries; then Wycheproof's
# hkdf_sha512_test.json, cases 12 and 18: 64 bytes of output, as a seal takes.
HKDF_SHA512 = [
    (
        *_SHORT,
        "832390086cda71fb47625bb5ceb168e4c8e26a1a16ed34d9fc7fe92c1481579338da362cb8d9f925d7cb",
    ),
    (
        *_LONG,
        "ce6c97192805b346e6161e821ed165673b84f400a2b514b2fe23d84cd189ddf1b695b48cbd1c8388441137b3ce28f16a"
        "a64ba33ba466b24df6cfcb021ecff235f6a2056ce3af1de44d572097a8505d9e7a93",
    ),
    (
        *_BARE,
        "f5fa02b18298a72a8c23898a8703472c6eb179dc204c03425c970e3b164bf90fff22d04836d0e2343bac",
    ),
    (
        "7a00817689a3d79001825a864c69c120",
        "08bc01c053a6406c7c4a667c9b9b3894",
        "967ccd75395be6e96a67759f070487c9e2107791",
        "aed987bcc5ed33c4feec7b28aa9fe1c16b1181e00ff42c63cf692ec19242f6d4628604b3382db0806d5e61518f83fc65"
        "1e6f3bd0a9d1322926a76869b98b75d6",
    ),
    (
        "d515f58eed428b2bac233c8538580e2f",
        "c2a3ad9db6621fceb7498c0e6287522077acd2d47b55c09d52e114943b37",
        "14de8cffd89e49275f69d2e1e6b43fa0c3775451",
        "04039af015d1b63b0af171e0fc283c06d19a0e4b1093fa5f8c721d85580c52799f13d644543c2249497492f55029ce9c"
        "d19a29cd84acbc1488724941a3fc97fc",
    ),
]


@pytest.mark.parametrize(
    ("algorithm", "ikm", "salt", "info", "okm"),
    [
        *((hashes.SHA256(), *case) for case in HKDF_SHA256),
        *((hashes.SHA512(), *case) for case in HKDF_SHA512),
    ],
)
def test_hkdf_gives_the_published_output(
    algorithm: hashes.HashAlgorithm, ikm: str, salt: str, info: str, okm: str
) -> None:
    wanted = bytes.fromhex(okm)
    made = ciphers.hkdf(algorithm, bytes.fromhex(ikm), bytes.fromhex(salt), bytes.fromhex(info), len(wanted))
    assert made == wanted


# RFC 4231, section 4, without case 5, which is about truncation.
HMAC_SHA256 = [
    (
        b"\x0b" * 20,
        b"Hi There",
        "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7",
    ),
    (
        b"Jefe",
        b"what do ya want for nothing?",
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
    ),
    (
        b"\xaa" * 20,
        b"\xdd" * 50,
        "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe",
    ),
    (
        bytes(range(1, 26)),
        b"\xcd" * 50,
        "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b",
    ),
    (
        b"\xaa" * 131,
        b"Test Using Larger Than Block-Size Key - Hash Key First",
        "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
    ),
    (
        b"\xaa" * 131,
        b"This is a test using a larger than block-size key and a larger than block-size data. "
        b"The key needs to be hashed before being used by the HMAC algorithm.",
        "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2",
    ),
]


@pytest.mark.parametrize(("secret", "message", "mac"), HMAC_SHA256)
def test_hmac_sha_256_gives_the_cases_of_rfc_4231(secret: bytes, message: bytes, mac: str) -> None:
    assert ciphers.hmac_sha256(secret, message).hex() == mac
