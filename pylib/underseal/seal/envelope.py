"""Sealed envelopes: made, read strictly, and opened (DESIGN 6; clauses H2.3, H2.11, M17, M19;
docs/formats.md).

No function here raises from where a key or a plaintext is in scope: the inner ones return the reason, so that
no traceback frame and no chained exception holds anything secret.
"""

from __future__ import annotations

import hmac
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from underseal.errors import SealError, SealReason
from underseal.seal import ciphers, encoding, entropy
from underseal.seal.formats import COMMITTING, FORMATS, KEY_WRAP, PLAIN, SNAPSHOT, UNBOUND, Format
from underseal.seal.keys import Destroyed, Key, KeyRing, Purpose

MARK: Final = "__loomEnc"
VERSION: Final = 1

_MEMBERS: Final = {
    COMMITTING: frozenset({MARK, "v", "kid", "fmt", "org", "salt", "iv", "kc", "ct"}),
    PLAIN: frozenset({MARK, "v", "kid", "fmt", "org", "aad", "iv", "ct"}),
}
_KEY_ID = re.compile(r"[!-~]{1,128}")

Envelope = dict[str, str | int]
"""A sealed value as it is stored: a flat JSON object."""


@dataclass(frozen=True, slots=True)
class Header:
    """The fields of an envelope that say what it claims to be; all of them are authenticated."""

    cipher: str
    version: int
    key_id: str
    fmt: str
    origin: str


@dataclass(frozen=True, slots=True)
class _Sealed:
    header: Header
    salt: bytes
    iv: bytes
    commitment: bytes
    ciphertext: bytes


def seal(
    plaintext: bytes,
    key: Key,
    *,
    fmt: str,
    place: Sequence[str],
    origin: str,
    cipher: str = COMMITTING,
) -> Envelope:
    """Seal ``plaintext`` under ``key`` for one place and no other.

    Parameters:
        plaintext: the JSON text of the value, in UTF-8; at most 1 MiB for held formats.
        key: its purpose must be the format's.
        fmt: one of ``FORMATS``.
        place: where the value logically sits, as ``FORMATS[fmt].place`` names it; for a payload
            ``(operation id,)``, for a decision ``(operation id, approver)``.
        origin: what the value was first sealed for; the operation id for held formats, the execution for an
            event's field, the inbox for a message.
        cipher: ``underseal/aes-256-gcm-hkdf``, or ``loom/aes-256-gcm`` for formats that accept it; held ones
            do not.

    Returns:
        The envelope: a flat dict of strings and one integer, ready to be stored as JSON.

    Raises:
        SealError: ``unsupported`` for a format, cipher or key purpose that do not go together; ``malformed``
            for a place of another shape or a plaintext that is too long.
    """
    made = _make(plaintext, key, fmt, place, origin, cipher)
    del plaintext
    if isinstance(made, _Refusal):
        raise made.error(key.id)
    return made


def open_seal(
    envelope: object,
    ring: KeyRing,
    *,
    purpose: Purpose,
    fmt: str,
    place: Sequence[str],
    open_legacy: bool = False,
) -> bytes:
    """Open an envelope that must be a ``fmt`` at ``place`` under a key for ``purpose``.

    The commitment is compared, in constant time, before anything is decrypted, so that a seal from another
    place or under another key fails before any plaintext exists (M19).

    Parameters:
        envelope: the stored JSON value, as parsed.
        ring: where the key that the envelope names is looked up.
        purpose: what the key must be for (H2.11).
        fmt: the format that belongs in this slot; never taken from the envelope.
        place: where the envelope was found, as for ``seal``.
        open_legacy: whether to open what the record's cipher ties to no place: fields and messages.

    Returns:
        The plaintext.

    Raises:
        SealError: see its reasons. Nothing is chained to it, and it holds nothing of key or plaintext.
    """
    read = _parse(envelope, purpose, fmt, place, open_legacy)
    if isinstance(read, _Refusal):
        raise read.error(None)
    key_id = read.header.key_id
    opened = _open(read, ring.find(key_id), purpose, place)
    if isinstance(opened, _Refusal):
        raise opened.error(key_id)
    return opened


def key_id_of(envelope: object) -> str | None:
    """Return the key id that stands in an envelope, or ``None`` if there is none. Proves nothing."""
    kid = envelope.get("kid") if isinstance(envelope, Mapping) else None
    return kid if isinstance(kid, str) and _KEY_ID.fullmatch(kid) else None


def associated_data(header: Header, purpose: Purpose, place: Sequence[str]) -> bytes:
    """Return the associated data of a seal: RFC 8785 JSON of its header, purpose and place; never stored.

    Strings are taken as they are: bringing them to NFC would let two names stand for one place. With the
    record's cipher a snapshot has the record's literal instead (S2), which covers less, and fields and messages
    have none.

    Raises:
        UnicodeEncodeError: a string holds a lone surrogate.
    """
    if header.cipher == PLAIN and header.fmt in UNBOUND:
        return b""
    if header.cipher == PLAIN:
        return "|".join((SNAPSHOT, *place)).encode("utf-8")
    covered = {
        MARK: header.cipher,
        "v": header.version,
        "kid": header.key_id,
        "fmt": header.fmt,
        "org": header.origin,
        "purpose": purpose,
        "place": list(place),
    }
    # For ASCII member names and without floats this is RFC 8785, escapes included.
    return json.dumps(covered, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode("utf-8")


@dataclass(frozen=True, slots=True)
class _Refusal:
    reason: SealReason
    message: str

    def error(self, key_id: str | None) -> SealError:
        named = f" (key {key_id})" if key_id is not None else ""
        return SealError(self.reason, self.message + named, key_id)


_DOES_NOT_OPEN: Final = _Refusal(
    "does-not-open", "the seal does not open here: it was made for another place or changed"
)


def _accepts(fmt: str, cipher: str, purpose: Purpose) -> Format | _Refusal:
    form = FORMATS.get(fmt)
    if form is None:
        return _Refusal("unsupported", f"no such format; expected one of {', '.join(sorted(FORMATS))}")
    if cipher not in form.ciphers:
        return _Refusal(
            "unsupported", f"{fmt} accepts {' or '.join(sorted(form.ciphers))} and no other cipher"
        )
    if form.purpose is not None and form.purpose != purpose:
        return _Refusal("unsupported", f"{fmt} is sealed under a {form.purpose} key, not a {purpose} key")
    if purpose == "fingerprint":
        return _Refusal("unsupported", "a fingerprint key seals nothing")
    if purpose == "master" and fmt != KEY_WRAP:
        return _Refusal("unsupported", "a master key wraps keys of subjects and seals nothing else")
    return form


def _make(
    plaintext: bytes, key: Key, fmt: str, place: Sequence[str], origin: str, cipher: str
) -> Envelope | _Refusal:
    form = _accepts(fmt, cipher, key.purpose)
    if isinstance(form, _Refusal):
        return form
    flaw = form.place_flaw(place, origin)
    if flaw is not None:
        return _Refusal("malformed", f"{fmt}: {flaw}")
    if not isinstance(plaintext, bytes) or len(plaintext) > form.max_bytes:
        return _Refusal("malformed", f"{fmt}: the plaintext must be bytes, at most {form.max_bytes}")
    header = Header(cipher, VERSION, key.id, fmt, origin)
    covered = _covered(header, key.purpose, place)
    if covered is None:
        return _Refusal("malformed", f"{fmt}: its place or origin holds a lone surrogate")
    envelope: Envelope = {MARK: cipher, "v": VERSION, "kid": key.id, "fmt": fmt, "org": origin}
    secret = key.secret
    if cipher == COMMITTING:
        salt = entropy.random_bytes(ciphers.SALT_BYTES)
        secret, commitment = ciphers.derive(secret, salt, covered)
        envelope |= {"salt": encoding.encode(salt), "kc": encoding.encode(commitment)}
    elif fmt not in UNBOUND:
        envelope |= {"aad": fmt}
    iv = entropy.random_bytes(ciphers.IV_BYTES)
    ciphertext = ciphers.gcm_seal(secret, iv, plaintext, covered)
    return envelope | {"iv": encoding.encode(iv), "ct": encoding.encode(ciphertext)}


def _parse(
    envelope: object, purpose: Purpose, fmt: str, place: Sequence[str], open_legacy: bool
) -> _Sealed | _Refusal:
    fields = _fields(envelope, fmt)
    if isinstance(fields, _Refusal):
        return fields
    form = _accepts(fmt, fields[MARK], purpose)
    if isinstance(form, _Refusal):
        return form
    if fields[MARK] == PLAIN and fmt in UNBOUND and not open_legacy:
        return _Refusal(
            "unsupported", f"{PLAIN} ties a {fmt} to no place; it is opened only where open_legacy is on"
        )
    if fields["fmt"] != fmt or fields.get("aad", fmt) != fmt:
        return _Refusal("does-not-open", f"the envelope is of another format; {fmt} belongs here")
    flaw = form.place_flaw(place, fields["org"])
    if flaw is not None:
        return _Refusal("does-not-open", f"{fmt}: {flaw}")
    parts = _bytes_of(fields, form)
    if isinstance(parts, _Refusal):
        return parts
    header = Header(fields[MARK], VERSION, fields["kid"], fmt, fields["org"])
    return _Sealed(header, parts.get("salt", b""), parts["iv"], parts.get("kc", b""), parts["ct"])


def _fields(envelope: object, fmt: str) -> Mapping[str, str] | _Refusal:
    """Return the members of a well-formed envelope; all of them, but for ``v``, are text."""
    if not isinstance(envelope, Mapping) or not isinstance(envelope.get(MARK), str):
        return _Refusal("malformed", f"not an envelope: expected an object with a string member {MARK}")
    members = _MEMBERS.get(envelope[MARK])
    if members is None:
        return _Refusal("unsupported", f"unknown cipher; expected one of {', '.join(sorted(_MEMBERS))}")
    if fmt in UNBOUND:
        members -= {"aad"}
    if type(envelope.get("v")) is not int or envelope["v"] != VERSION:
        return _Refusal("unsupported", f"unknown version of the envelope; expected {VERSION}")
    if set(envelope) != members:
        return _Refusal("malformed", f"an envelope of this cipher has exactly {', '.join(sorted(members))}")
    if not all(isinstance(value, str) for member, value in envelope.items() if member != "v"):
        return _Refusal("malformed", "every member of an envelope but v is text")
    if not _KEY_ID.fullmatch(envelope["kid"]):
        return _Refusal("malformed", "kid is no key id: 1 to 128 printable ASCII characters without a space")
    return {member: value for member, value in envelope.items() if member != "v"}


def _bytes_of(fields: Mapping[str, str], form: Format) -> dict[str, bytes] | _Refusal:
    longest = form.max_bytes + ciphers.TAG_BYTES
    sizes = {
        "salt": (ciphers.SALT_BYTES, ciphers.SALT_BYTES),
        "iv": (ciphers.IV_BYTES, ciphers.IV_BYTES),
        "kc": (ciphers.COMMITMENT_BYTES, ciphers.COMMITMENT_BYTES),
        "ct": (ciphers.TAG_BYTES, longest),
    }
    parts: dict[str, bytes] = {}
    for member in sizes.keys() & fields.keys():
        least, most = sizes[member]
        # Judged on the text first, so that nothing huge is decoded.
        data = encoding.decode(fields[member]) if len(fields[member]) <= encoding.length(most) else None
        if data is None or not least <= len(data) <= most:
            size = f"{least}" if least == most else f"{least} to {most}"
            return _Refusal("malformed", f"{member} must be {size} bytes in base64url without padding")
        parts[member] = data
    return parts


def _open(
    sealed: _Sealed, key: Key | Destroyed | None, purpose: Purpose, place: Sequence[str]
) -> bytes | _Refusal:
    if isinstance(key, Destroyed):
        return _Refusal(
            "key-destroyed", "the key of this seal was destroyed; what it sealed is gone for good"
        )
    if key is None:
        return _Refusal(
            "key-unavailable", f"the key of this seal is not in this ring; give the process its {purpose} key"
        )
    if key.purpose != purpose:
        return _Refusal("does-not-open", f"the seal names a {key.purpose} key where a {purpose} key belongs")
    covered = _covered(sealed.header, purpose, place)
    if covered is None:
        return _DOES_NOT_OPEN
    secret = key.secret
    if sealed.header.cipher == COMMITTING:
        secret, commitment = ciphers.derive(secret, sealed.salt, covered)
        if not hmac.compare_digest(commitment, sealed.commitment):
            return _DOES_NOT_OPEN
    plaintext = ciphers.gcm_open(secret, sealed.iv, sealed.ciphertext, covered)
    return _DOES_NOT_OPEN if plaintext is None else plaintext


def _covered(header: Header, purpose: Purpose, place: Sequence[str]) -> bytes | None:
    try:
        return associated_data(header, purpose, place)
    except UnicodeEncodeError:
        return None
