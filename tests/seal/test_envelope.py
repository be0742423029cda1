"""A seal opens under its key, for its purpose, in its place, and nowhere else."""

from __future__ import annotations

import hmac
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from underseal.seal import (
    COMMITTING,
    FORMATS,
    HELD_DECISION,
    HELD_PAYLOAD,
    PLAIN,
    SNAPSHOT,
    Destroyed,
    Envelope,
    Key,
    MemoryKeyRing,
    Purpose,
    SealError,
    associated_data,
    ciphers,
    encoding,
    key_id_of,
    open_seal,
    seal,
)
from underseal.seal.envelope import Header

OPERATION = "0198c5f2-6a4e-7c1d-9b3a-5e2f8d7c6b1a"
OTHER = "0198c5f2-6a4e-7c1d-9b3a-5e2f8d7c6b1b"
SECRET_TEXT = b'{"password":"correct horse battery staple"}'


@pytest.fixture
def ring() -> MemoryKeyRing:
    return MemoryKeyRing.with_all()


def payload(ring: MemoryKeyRing, operation: str = OPERATION, text: bytes = SECRET_TEXT) -> Envelope:
    return seal(text, ring.active("payload"), fmt=HELD_PAYLOAD, place=(operation,), origin=operation)


def decision(ring: MemoryKeyRing, approver: str, operation: str = OPERATION) -> Envelope:
    key = ring.active("decision")
    return seal(SECRET_TEXT, key, fmt=HELD_DECISION, place=(operation, approver), origin=operation)


def open_payload(ring: Any, sealed: object, operation: str = OPERATION) -> bytes:
    return open_seal(sealed, ring, purpose="payload", fmt=HELD_PAYLOAD, place=(operation,))


def open_decision(ring: Any, sealed: object, approver: str, operation: str = OPERATION) -> bytes:
    return open_seal(sealed, ring, purpose="decision", fmt=HELD_DECISION, place=(operation, approver))


def snapshot(key: Key, place: Sequence[str] = ("e1", "7"), origin: str = "e1", **more: str) -> Envelope:
    return seal(SECRET_TEXT, key, fmt=SNAPSHOT, place=place, origin=origin, **more)


def open_snapshot(ring: Any, sealed: object, *, purpose: Purpose = "payload", **more: Any) -> bytes:
    return open_seal(sealed, ring, **{"purpose": purpose, "fmt": SNAPSHOT, "place": ("e1", "7")} | more)


def refusal(act: Callable[[], object]) -> SealError:
    with pytest.raises(SealError) as caught:
        act()
    return caught.value


class Answers:
    """A ring that gives one answer to every lookup."""

    def __init__(self, answer: Key | Destroyed | None) -> None:
        self._answer = answer

    def find(self, *_: str) -> Key | Destroyed | None:
        return self._answer

    def active(self, *_: Purpose) -> Key:
        raise AssertionError("opening asks for no active key")

    def live(self, *_: Purpose) -> list[Key]:
        raise AssertionError("opening tries no other key")

    def key_ids(self, *_: Purpose) -> list[str]:
        raise AssertionError("opening tries no other key")


@pytest.mark.clause("H2.3a", "M19")
@pytest.mark.parametrize("text", [b"", b"null", b'""', SECRET_TEXT, b"\xff\x00", b"x" * (1024 * 1024)])
def test_what_was_sealed_comes_back_as_it_went_in(ring: MemoryKeyRing, text: bytes) -> None:
    assert open_payload(ring, payload(ring, text=text)) == text
    sealed = seal(
        text, ring.active("decision"), fmt=HELD_DECISION, place=(OPERATION, "ann"), origin=OPERATION
    )
    assert open_decision(ring, sealed, "ann") == text


def test_an_envelope_says_what_it_is_and_nothing_of_what_is_inside(ring: MemoryKeyRing) -> None:
    sealed = payload(ring)
    assert sealed.keys() == {"__loomEnc", "v", "kid", "fmt", "org", "salt", "iv", "kc", "ct"}
    assert sealed["__loomEnc"] == COMMITTING
    assert (sealed["v"], sealed["fmt"], sealed["org"]) == (1, HELD_PAYLOAD, OPERATION)
    assert sealed["kid"] == ring.active("payload").id == key_id_of(sealed)
    assert "horse" not in str(sealed)


@pytest.mark.clause("M17")
def test_two_seals_of_one_value_share_nothing(ring: MemoryKeyRing) -> None:
    first, second = payload(ring), payload(ring)
    assert all(first[member] != second[member] for member in ("salt", "iv", "kc", "ct"))


@pytest.mark.clause("H2.3a")
@pytest.mark.parametrize("member", ["salt", "iv", "kc", "ct"])
def test_a_changed_bit_does_not_open(ring: MemoryKeyRing, member: str) -> None:
    sealed = payload(ring)
    data = encoding.decode(str(sealed[member]))
    assert data is not None
    for position in range(len(data)):
        changed = data[:position] + bytes([data[position] ^ 0x80]) + data[position + 1 :]
        tampered = sealed | {member: encoding.encode(changed)}
        assert refusal(lambda: open_payload(ring, tampered)).reason == "does-not-open"  # noqa: B023


@pytest.mark.clause("H2.3a")
def test_a_shortened_ciphertext_does_not_open(ring: MemoryKeyRing) -> None:
    sealed = payload(ring)
    data = encoding.decode(str(sealed["ct"]))
    assert data is not None
    cut = sealed | {"ct": encoding.encode(data[:-1])}
    assert refusal(lambda: open_payload(ring, cut)).reason == "does-not-open"


@pytest.mark.clause("H2.3b")
def test_a_seal_copied_to_another_row_does_not_open(ring: MemoryKeyRing) -> None:
    sealed = payload(ring)
    assert refusal(lambda: open_payload(ring, sealed, OTHER)).reason == "does-not-open"
    relabelled = sealed | {"org": OTHER}
    assert refusal(lambda: open_payload(ring, relabelled, OTHER)).reason == "does-not-open"
    vote = decision(ring, "ann") | {"org": OTHER}
    assert refusal(lambda: open_decision(ring, vote, "ann", OTHER)).reason == "does-not-open"


@pytest.mark.clause("H2.3c")
def test_one_kind_pasted_over_the_other_does_not_open(ring: MemoryKeyRing) -> None:
    assert refusal(lambda: open_decision(ring, payload(ring), "ann")).reason == "does-not-open"
    assert refusal(lambda: open_payload(ring, decision(ring, "ann"))).reason == "does-not-open"
    relabelled = decision(ring, "ann") | {"fmt": HELD_PAYLOAD}
    assert refusal(lambda: open_payload(ring, relabelled)).reason == "does-not-open"


@pytest.mark.clause("H2.3d")
def test_a_decision_moved_to_another_approver_does_not_open(ring: MemoryKeyRing) -> None:
    sealed = decision(ring, "ann")
    assert refusal(lambda: open_decision(ring, sealed, "bob")).reason == "does-not-open"


@pytest.mark.clause("H2.3d")
def test_approvers_that_differ_only_in_normal_form_are_two(ring: MemoryKeyRing) -> None:
    sealed = decision(ring, "Ren\u00e9")
    assert open_decision(ring, sealed, "Ren\u00e9") == SECRET_TEXT
    assert refusal(lambda: open_decision(ring, sealed, "Rene\u0301")).reason == "does-not-open"


# Each part of the associated data on its own: everything else equal, that part differs.
HEADER = Header(COMMITTING, 1, "k-1", HELD_DECISION, OPERATION)
PLACE = (OPERATION, "ann")


@pytest.mark.clause("H2.3b", "H2.3c", "H2.3d", "H2.11a", "M19")
@pytest.mark.parametrize(
    ("header", "purpose", "place"),
    [
        pytest.param(replace(HEADER, cipher="another"), "decision", PLACE, id="cipher"),
        pytest.param(replace(HEADER, version=2), "decision", PLACE, id="v"),
        pytest.param(replace(HEADER, key_id="k-2"), "decision", PLACE, id="kid"),
        pytest.param(replace(HEADER, fmt=HELD_PAYLOAD), "decision", PLACE, id="fmt"),
        pytest.param(replace(HEADER, origin=OTHER), "decision", PLACE, id="org"),
        pytest.param(HEADER, "payload", PLACE, id="purpose"),
        pytest.param(HEADER, "decision", (OTHER, "ann"), id="operation"),
        pytest.param(HEADER, "decision", (OPERATION, "bob"), id="approver"),
        pytest.param(HEADER, "decision", (OPERATION,), id="one element less"),
        pytest.param(HEADER, "decision", (OPERATION + "ann",), id="elements run together"),
    ],
)
def test_every_part_is_covered(header: Header, purpose: Purpose, place: tuple[str, ...]) -> None:
    assert associated_data(header, purpose, place) != associated_data(HEADER, "decision", PLACE)


@pytest.mark.clause("H2.3b", "M19")
def test_origin_and_place_are_each_bound(ring: MemoryKeyRing) -> None:
    sealed = snapshot(ring.active("payload"))
    assert open_snapshot(ring, sealed) == SECRET_TEXT
    assert refusal(lambda: open_snapshot(ring, sealed | {"org": "e2"})).reason == "does-not-open"
    assert refusal(lambda: open_snapshot(ring, sealed, place=("e2", "7"))).reason == "does-not-open"
    assert refusal(lambda: open_snapshot(ring, sealed, place=("e1", "8"))).reason == "does-not-open"


@pytest.mark.clause("M19")
def test_the_key_id_is_bound(ring: MemoryKeyRing) -> None:
    key = ring.active("payload")
    sealed = snapshot(key)
    alias = Key("payload-alias", "payload", key.secret)
    renamed = sealed | {"kid": alias.id}
    assert refusal(lambda: open_snapshot(Answers(alias), renamed)).reason == "does-not-open"


@pytest.mark.clause("H2.3c", "M19")
def test_the_format_is_bound(ring: MemoryKeyRing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FORMATS, "loom-snap-v2", FORMATS[SNAPSHOT])
    relabelled = snapshot(ring.active("payload")) | {"fmt": "loom-snap-v2"}
    assert refusal(lambda: open_snapshot(ring, relabelled, fmt="loom-snap-v2")).reason == "does-not-open"


@pytest.mark.clause("H2.11a")
def test_the_purpose_is_bound(ring: MemoryKeyRing) -> None:
    key = ring.active("payload")
    sealed = snapshot(key)
    other_purpose = Answers(Key(key.id, "decision", key.secret))
    assert refusal(lambda: open_snapshot(other_purpose, sealed, purpose="decision")).reason == "does-not-open"


@pytest.mark.clause("H2.11a")
def test_a_seal_under_a_key_of_another_purpose_does_not_open(ring: MemoryKeyRing) -> None:
    key = ring.active("payload")
    sealed = snapshot(key)
    # The place and the secret fit, and the caller's purpose is the one sealed; only the ring's key is for another.
    repurposed = Answers(Key(key.id, "decision", key.secret))
    assert refusal(lambda: open_snapshot(repurposed, sealed)).reason == "does-not-open"


@pytest.mark.clause("H2.11a")
@pytest.mark.parametrize(
    ("fmt", "place", "wrong"),
    [
        (HELD_PAYLOAD, (OPERATION,), "decision"),
        (HELD_PAYLOAD, (OPERATION,), "fingerprint"),
        (HELD_DECISION, (OPERATION, "ann"), "payload"),
        (SNAPSHOT, ("e1", "7"), "fingerprint"),
    ],
)
def test_no_format_is_sealed_under_a_key_for_something_else(
    ring: MemoryKeyRing, fmt: str, place: tuple[str, ...], wrong: Purpose
) -> None:
    key = ring.active(wrong)
    error = refusal(lambda: seal(b"{}", key, fmt=fmt, place=place, origin=place[0]))
    assert (error.reason, error.key_id) == ("unsupported", key.id)


@pytest.mark.clause("M19")
def test_another_key_under_the_same_id_does_not_open(ring: MemoryKeyRing) -> None:
    sealed = payload(ring)
    impostor = Key(str(sealed["kid"]), "payload", b"\x01" * 32)
    assert refusal(lambda: open_payload(Answers(impostor), sealed)).reason == "does-not-open"


@pytest.mark.clause("M19")
def test_nothing_is_decrypted_before_the_commitment_agrees(
    ring: MemoryKeyRing, monkeypatch: pytest.MonkeyPatch
) -> None:
    sealed = payload(ring)

    def never(*_: object) -> bytes:
        raise AssertionError("a plaintext was about to be made")

    monkeypatch.setattr(ciphers, "gcm_open", never)
    wrong_key = Answers(Key(str(sealed["kid"]), "payload", b"\x01" * 32))
    assert refusal(lambda: open_payload(wrong_key, sealed)).reason == "does-not-open"
    moved = sealed | {"org": OTHER}
    assert refusal(lambda: open_payload(ring, moved, OTHER)).reason == "does-not-open"


@pytest.mark.clause("M19")
def test_a_ciphertext_that_authenticates_does_not_open_without_its_commitment(ring: MemoryKeyRing) -> None:
    sealed = payload(ring)
    salt = encoding.decode(str(sealed["salt"]))
    iv = encoding.decode(str(sealed["iv"]))
    assert salt is not None
    assert iv is not None
    header = Header(COMMITTING, 1, str(sealed["kid"]), HELD_PAYLOAD, OPERATION)
    covered = associated_data(header, "payload", (OPERATION,))
    key, commitment = ciphers.derive(ring.active("payload").secret, salt, covered)
    forged = ciphers.gcm_seal(key, iv, b"forged", covered)
    assert open_payload(ring, sealed | {"ct": encoding.encode(forged)}) == b"forged"
    for wrong in (bytes(32), commitment[:31] + bytes([commitment[31] ^ 1])):
        uncommitted = sealed | {"ct": encoding.encode(forged), "kc": encoding.encode(wrong)}
        assert refusal(lambda: open_payload(ring, uncommitted)).reason == "does-not-open"  # noqa: B023


@pytest.mark.clause("M19")
def test_the_commitment_is_compared_in_constant_time(
    ring: MemoryKeyRing, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[tuple[bytes, bytes]] = []
    original = hmac.compare_digest

    def spy(ours: bytes, theirs: bytes) -> bool:
        compared.append((ours, theirs))
        return original(ours, theirs)

    monkeypatch.setattr(hmac, "compare_digest", spy)
    sealed = payload(ring)
    open_payload(ring, sealed)
    commitment = encoding.decode(str(sealed["kc"]))
    assert compared == [(commitment, commitment)]


@pytest.mark.clause("H2.3a", "M19")
def test_key_and_commitment_depend_on_key_salt_and_place() -> None:
    key, commitment = ciphers.derive(bytes(32), bytes(32), b"place")
    assert len(key) == len(commitment) == 32
    assert key != commitment
    for other in (
        ciphers.derive(b"\x01" * 32, bytes(32), b"place"),
        ciphers.derive(bytes(32), b"\x01" * 32, b"place"),
        ciphers.derive(bytes(32), bytes(32), b"elsewhere"),
    ):
        assert key != other[0]
        assert commitment != other[1]


@pytest.mark.clause("X10")
def test_a_missing_key_and_a_destroyed_one_are_told_apart(ring: MemoryKeyRing) -> None:
    sealed = payload(ring)
    retired = ring.active("payload")
    missing = refusal(lambda: open_payload(MemoryKeyRing.with_all(), sealed))
    assert (missing.reason, missing.key_id) == ("key-unavailable", retired.id)
    ring.rotate("payload")
    assert open_payload(ring, sealed) == SECRET_TEXT
    ring.destroy(retired.id)
    gone = refusal(lambda: open_payload(ring, sealed))
    assert (gone.reason, gone.key_id) == ("key-destroyed", retired.id)


@pytest.mark.clause("H2.6a", "H2.6b")
def test_a_new_key_seals_and_older_ones_still_open(ring: MemoryKeyRing) -> None:
    old = payload(ring)
    new_key = ring.rotate("payload")
    new = payload(ring)
    assert new["kid"] == new_key.id != old["kid"]
    assert open_payload(ring, old) == open_payload(ring, new) == SECRET_TEXT


@pytest.mark.parametrize("fmt", [HELD_PAYLOAD, HELD_DECISION])
def test_held_formats_are_never_sealed_with_the_plain_cipher(ring: MemoryKeyRing, fmt: str) -> None:
    place = (OPERATION,) if fmt == HELD_PAYLOAD else (OPERATION, "ann")
    key = ring.active("payload" if fmt == HELD_PAYLOAD else "decision")
    error = refusal(lambda: seal(b"{}", key, fmt=fmt, place=place, origin=OPERATION, cipher=PLAIN))
    assert error.reason == "unsupported"


def test_held_formats_are_never_opened_with_the_plain_cipher(ring: MemoryKeyRing) -> None:
    key = ring.active("payload")
    header = Header(PLAIN, 1, key.id, HELD_PAYLOAD, OPERATION)
    covered = associated_data(header, "payload", (OPERATION,))
    iv = bytes(12)
    forged = {
        "__loomEnc": PLAIN,
        "v": 1,
        "kid": key.id,
        "fmt": HELD_PAYLOAD,
        "org": OPERATION,
        "aad": HELD_PAYLOAD,
        "iv": encoding.encode(iv),
        "ct": encoding.encode(ciphers.gcm_seal(key.secret, iv, b"{}", covered)),
    }
    assert refusal(lambda: open_payload(ring, forged)).reason == "unsupported"


def test_a_snapshot_in_the_record_s_cipher_has_the_record_s_associated_data(ring: MemoryKeyRing) -> None:
    key = ring.active("payload")
    sealed = snapshot(key, cipher=PLAIN)
    assert sealed.keys() == {"__loomEnc", "v", "kid", "fmt", "org", "aad", "iv", "ct"}
    assert (sealed["__loomEnc"], sealed["aad"]) == ("loom/aes-256-gcm", "loom-snap-v1")
    iv, ct = encoding.decode(str(sealed["iv"])), encoding.decode(str(sealed["ct"]))
    assert iv is not None
    assert ct is not None
    assert ciphers.gcm_open(key.secret, iv, ct, b"loom-snap-v1|e1|7") == SECRET_TEXT
    assert open_snapshot(ring, sealed) == SECRET_TEXT
    assert refusal(lambda: open_snapshot(ring, sealed, place=("e1", "8"))).reason == "does-not-open"
    assert refusal(lambda: open_snapshot(ring, sealed, place=("e2", "7"))).reason == "does-not-open"


@pytest.mark.clause("H2.4b")
def test_no_failure_says_anything_about_key_or_plaintext(ring: MemoryKeyRing) -> None:
    sealed = payload(ring)
    secret = ring.active("payload").secret
    attempts: list[Callable[[], object]] = [
        lambda: open_payload(ring, sealed, OTHER),
        lambda: open_payload(ring, sealed | {"ct": sealed["kc"]}),
        lambda: open_payload(ring, sealed | {"kc": sealed["salt"]}),
        lambda: open_payload(ring, sealed | {"__loomEnc": "x"}),
        lambda: open_payload(MemoryKeyRing(), sealed),
        lambda: seal(
            SECRET_TEXT, ring.active("decision"), fmt=HELD_PAYLOAD, place=(OPERATION,), origin=OPERATION
        ),
        lambda: payload(ring, text=SECRET_TEXT * 100_000),
        lambda: seal(SECRET_TEXT, ring.active("payload"), fmt=HELD_PAYLOAD, place=("1",), origin="1"),
    ]
    for attempt in attempts:
        error = refusal(attempt)
        assert error.__cause__ is None
        assert error.__context__ is None
        told = "".join(traceback.format_exception(error)) + repr(vars(error))
        assert "horse" not in told
        assert repr(secret) not in told
        assert secret.hex() not in told
        # From where we raise, no frame of ours holds a key or a plaintext that a crash reporter could collect.
        frame = error.__traceback__
        while frame is not None:
            if frame.tb_frame.f_globals.get("__name__", "").startswith("underseal."):
                held = repr(frame.tb_frame.f_locals)
                assert "horse" not in held
                assert repr(secret) not in held
            frame = frame.tb_next


@pytest.mark.parametrize(
    ("fmt", "place", "origin"),
    [
        (HELD_PAYLOAD, (), OPERATION),
        (HELD_PAYLOAD, (OPERATION, "ann"), OPERATION),
        (HELD_PAYLOAD, OPERATION, OPERATION),
        (HELD_PAYLOAD, (OPERATION.upper(),), OPERATION.upper()),
        (HELD_PAYLOAD, ("42",), "42"),
        (HELD_PAYLOAD, (OPERATION,), OTHER),
        (HELD_PAYLOAD, (OPERATION,), ""),
        (HELD_DECISION, (OPERATION, ""), OPERATION),
        (HELD_DECISION, (OPERATION, "\ud800"), OPERATION),
        (SNAPSHOT, ("e1", "07"), "e1"),
        (SNAPSHOT, ("e1|2", "x"), "e1"),
    ],
)
def test_a_place_of_the_wrong_shape_is_not_sealed(
    ring: MemoryKeyRing, fmt: str, place: tuple[str, ...], origin: str
) -> None:
    key = ring.active("decision" if fmt == HELD_DECISION else "payload")
    assert refusal(lambda: seal(b"{}", key, fmt=fmt, place=place, origin=origin)).reason == "malformed"


def test_an_unknown_format_or_cipher_is_not_sealed(ring: MemoryKeyRing) -> None:
    key = ring.active("payload")
    place = {"place": (OPERATION,), "origin": OPERATION}
    assert refusal(lambda: seal(b"{}", key, fmt="held-payload-v2", **place)).reason == "unsupported"  # type: ignore[arg-type]
    unknown = refusal(lambda: seal(b"{}", key, fmt=HELD_PAYLOAD, cipher="rot13", **place))  # type: ignore[arg-type]
    assert unknown.reason == "unsupported"


def test_a_plaintext_is_bytes_and_at_most_a_mebibyte(ring: MemoryKeyRing) -> None:
    key = ring.active("payload")
    for wrong in ("{}", b"x" * (1024 * 1024 + 1)):
        error = refusal(
            lambda: seal(wrong, key, fmt=HELD_PAYLOAD, place=(OPERATION,), origin=OPERATION)  # type: ignore[arg-type]  # noqa: B023
        )
        assert error.reason == "malformed"


def test_a_text_is_no_place(ring: MemoryKeyRing) -> None:
    error = refusal(lambda: snapshot(ring.active("payload"), place="e1"))
    assert error.reason == "malformed"


@pytest.mark.parametrize("origin", ["", 7, None])
def test_an_origin_is_text_and_not_empty(ring: MemoryKeyRing, origin: Any) -> None:
    error = refusal(lambda: snapshot(ring.active("payload"), origin=origin))
    assert error.reason == "malformed"


def test_two_places_with_one_text_in_the_record_s_cipher_are_kept_apart(ring: MemoryKeyRing) -> None:
    sealed = snapshot(ring.active("payload"), place=("e|1", "2"), cipher=PLAIN)
    assert open_snapshot(ring, sealed, place=("e|1", "2")) == SECRET_TEXT
    assert refusal(lambda: open_snapshot(ring, sealed, place=("e", "1|2"))).reason == "does-not-open"
