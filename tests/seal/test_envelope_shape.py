"""Only one text is an envelope: whatever else is there, or missing, or written another way, is refused."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from underseal.seal import (
    HELD_DECISION,
    HELD_PAYLOAD,
    Envelope,
    MemoryKeyRing,
    SealError,
    encoding,
    key_id_of,
    open_seal,
    seal,
)

OPERATION = "0198c5f2-6a4e-7c1d-9b3a-5e2f8d7c6b1a"
RING = MemoryKeyRing.with_all()
SEALED: Envelope = seal(
    b'{"amount":10}', RING.active("payload"), fmt=HELD_PAYLOAD, place=(OPERATION,), origin=OPERATION
)
MISSING: Any = object()


def reason(envelope: object, **more: Any) -> str:
    slot = {"purpose": "payload", "fmt": HELD_PAYLOAD, "place": (OPERATION,)} | more
    with pytest.raises(SealError) as caught:
        open_seal(envelope, RING, **slot)
    return caught.value.reason


def with_member(member: str, value: object) -> dict[str, object]:
    changed: dict[str, object] = dict(SEALED)
    if value is MISSING:
        del changed[member]
    else:
        changed[member] = value
    return changed


@pytest.mark.parametrize("value", [None, 1, "text", [], [SEALED], {}, b"{}", {"__loomEnc": 1}])
def test_what_is_no_envelope_is_malformed(value: object) -> None:
    assert reason(value) == "malformed"


@pytest.mark.parametrize("member", ["v", "kid", "fmt", "org", "salt", "iv", "kc", "ct"])
def test_a_missing_member_is_refused(member: str) -> None:
    assert reason(with_member(member, MISSING)) == ("unsupported" if member == "v" else "malformed")


@pytest.mark.parametrize("member", ["aad", "tag", "alg", "V", "", "x"])
def test_an_unknown_member_is_refused(member: str) -> None:
    assert reason(with_member(member, "x")) == "malformed"


@pytest.mark.parametrize("member", ["kid", "fmt", "org", "salt", "iv", "kc", "ct"])
@pytest.mark.parametrize("value", [None, 1, True, ["x"], {}])
def test_a_member_that_is_no_text_is_refused(member: str, value: object) -> None:
    assert reason(with_member(member, value)) == "malformed"


@pytest.mark.parametrize("value", [0, 2, -1, True, 1.0, "1", None])
def test_any_other_version_is_unsupported(value: object) -> None:
    assert reason(with_member("v", value)) == "unsupported"


@pytest.mark.parametrize(
    "value", ["", "aes-256-gcm", "underseal/aes-256-gcm-hkdf ", "UNDERSEAL/AES-256-GCM-HKDF"]
)
def test_any_other_cipher_is_unsupported(value: str) -> None:
    assert reason(with_member("__loomEnc", value)) == "unsupported"


def test_the_slot_says_which_format_belongs_there() -> None:
    assert reason(SEALED, fmt="held-payload-v2") == "unsupported"
    assert reason(SEALED, fmt=HELD_DECISION, place=(OPERATION, "ann"), purpose="decision") == "does-not-open"
    assert reason(SEALED, purpose="decision") == "unsupported"
    assert reason(with_member("fmt", "held-payload-v2")) == "does-not-open"


@pytest.mark.parametrize("value", ["", "a b", "a\n", "k" * 129, "clé"])
def test_a_key_id_of_another_shape_is_malformed(value: str) -> None:
    assert reason(with_member("kid", value)) == "malformed"
    assert key_id_of(with_member("kid", value)) is None


@pytest.mark.parametrize("value", [None, [], "x", {}, {"kid": 1}])
def test_what_has_no_key_id_gives_none(value: object) -> None:
    assert key_id_of(value) is None


@pytest.mark.parametrize(
    ("member", "size"),
    [
        ("salt", 31),
        ("salt", 33),
        ("salt", 0),
        ("iv", 11),
        ("iv", 16),
        ("kc", 31),
        ("kc", 64),
        ("ct", 15),
        ("ct", 0),
    ],
)
def test_a_part_of_another_size_is_malformed(member: str, size: int) -> None:
    assert reason(with_member(member, encoding.encode(bytes(size)))) == "malformed"


def test_a_ciphertext_longer_than_any_plaintext_is_malformed() -> None:
    assert reason(with_member("ct", encoding.encode(bytes(1024 * 1024 + 17)))) == "malformed"
    assert reason(with_member("ct", encoding.encode(bytes(1024 * 1024 + 16)))) == "does-not-open"


def rewritten(text: str) -> list[str]:
    """Other texts that a lenient decoder turns into the same bytes."""
    spare = chr(ord(text[-1]) + 1)
    return [text + "=", text + "\n", " " + text, text[:-1] + spare, text[:4] + "\n" + text[4:]]


@pytest.mark.parametrize("member", ["salt", "kc"])
def test_a_part_written_another_way_is_malformed(member: str) -> None:
    for text in rewritten(str(SEALED[member])):
        assert text != SEALED[member]
        assert reason(with_member(member, text)) == "malformed"


def test_the_other_base64_alphabet_is_refused() -> None:
    assert encoding.encode(b"\xfb\xff\xbf") == "-_-_"
    assert encoding.decode("-_-_") == b"\xfb\xff\xbf"
    assert encoding.decode("+/+/") is None


@pytest.mark.parametrize("text", ["A", "AAAAA", "AA==", "AB", "AAB", "AA\n", "AÄ", "A A="])
def test_a_text_that_is_no_base64_of_anything_is_refused(text: str) -> None:
    assert encoding.decode(text) is None


@given(st.binary(max_size=100))
def test_every_byte_string_has_exactly_one_text(data: bytes) -> None:
    text = encoding.encode(data)
    assert encoding.decode(text) == data
    assert len(text) == encoding.length(len(data))
    assert base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)) == data


@given(st.text(alphabet="ABCDwxyz0189-_=+/ \n", max_size=12))
def test_a_text_that_decodes_is_the_one_that_encodes(text: str) -> None:
    data = encoding.decode(text)
    assert data is None or encoding.encode(data) == text


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=50),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.sampled_from(sorted(SEALED)), JSON)
def test_no_other_value_in_any_member_opens(member: str, value: object) -> None:
    if value != SEALED[member] or type(value) is not type(SEALED[member]):
        assert reason(with_member(member, value)) in {
            "malformed",
            "unsupported",
            "does-not-open",
            "key-unavailable",
        }


@given(JSON)
def test_no_json_value_makes_anything_but_a_seal_error(value: object) -> None:
    assert reason(value) in {"malformed", "unsupported"}


def test_an_unknown_cipher_is_unsupported_whatever_its_members_are() -> None:
    assert reason({"__loomEnc": "someone/aes-512", "v": 1, "parts": [1, 2]}) == "unsupported"


def test_nothing_longer_than_it_may_be_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[str] = []
    original = encoding.decode

    def spy(text: str) -> bytes | None:
        decoded.append(text)
        return original(text)

    monkeypatch.setattr(encoding, "decode", spy)
    for member in ("salt", "iv", "kc", "ct"):
        assert reason(with_member(member, "A" * 2_000_000)) == "malformed"
    assert max(map(len, decoded)) <= 43
