"""Somebody has a dump of everything, knows all but the secret, and tries every secret there is (clause H1.7)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import itertools
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from pydantic import SecretStr

from tests.held.python import forging
from tests.held.python.worlds import REQUESTER, PayoutParams, TokenParams, World
from tests.hostile.dump import dump
from underseal import Held
from underseal.canonical import canonical_json, params_hash
from underseal.held.model import shown_digest
from underseal.seal import Key, fingerprint

PINS = [f"{pin:04}" for pin in range(7300, 7330)]
PIN = "7313"


def found_by(attack: Iterable[bytes], known: set[bytes]) -> bool:
    """Whether one of the digests, or its first 16 bytes, is among the byte strings of a dump."""
    heads = {value[:16] for value in known if len(value) >= 16}
    return any(digest[:16] in heads for digest in attack)


def values_in(dumped: str) -> set[bytes]:
    """Every byte string in a dump, be it a digest, a salt, a key or an id: hex, base64, words."""
    found: set[bytes] = {b"", bytes(32)}
    dumped = dumped.replace("\\\\x", " ")
    for word in set(re.findall(r"[A-Za-z0-9+/_=-]{8,128}", dumped)):
        found.add(word.encode())
        if re.fullmatch(r"(?:[0-9a-f]{2})+", plain := word.replace("-", "")):
            found.add(bytes.fromhex(plain))
        padded = word.rstrip("=") + "=" * (-len(word.rstrip("=")) % 4)
        try:
            found.add(
                base64.b64decode(padded, altchars=b"-_" if re.search("[-_]", word) else None, validate=True)
            )
        except ValueError:
            continue
    return found


def digests(
    type_: str, canonical: str, secret: str, known: set[bytes], row: dict[str, Any]
) -> Iterator[bytes]:
    """What an attacker computes for one guess: hashes with everything that may be the salt, HMACs with every key."""
    yield params_hash(type_, 1, canonical)
    bare = [
        canonical,
        json.dumps(json.loads(canonical)),
        secret,
        json.dumps(secret),
        f"{type_}\n1\n{canonical}",
    ]
    told = [f"{row['redacted']}{canonical}", f"{row['effect']}{secret}", f"{row['state_key']}{secret}"]
    for text in (*bare, *told):
        for make in (hashlib.sha256, hashlib.sha512, hashlib.sha1, hashlib.md5):
            yield make(text.encode()).digest()
    yield bytes.fromhex(shown_digest(type_, 1, row["mode"], "rita", canonical, row["effect"]))
    for value in known:
        yield hashlib.sha256(f"{type_}\n1\n{canonical}\n".encode() + value).digest()
        for text in bare:
            yield hashlib.sha256(value + text.encode()).digest()
            yield hashlib.sha256(text.encode() + value).digest()
            yield hmac.digest(value, text.encode(), "sha256")
        if len(value) == 32:
            yield params_hash(type_, 1, canonical, value)
            yield fingerprint(
                Key("fingerprint-" + "0" * 32, "fingerprint", value), "rita", type_, 1, canonical
            )


def token(world: World, state: str) -> Held:
    """A token with a secret pin, in a state."""
    params = TokenParams(name="door", password=SecretStr(PIN))
    held = world.issue(REQUESTER, params)
    assert isinstance(held, Held)
    if state == "REJECTED":
        world.us.reject(world.us.get(held, "ann"), "ann", "no")
    elif state != "HELD":
        world.approve(held)
    if state == "SUCCEEDED":
        assert world.issue(REQUESTER, params) == {"ok": True}
    assert world.row(held)["state"] == state
    return held


def guess(world: World, held: Held, guesses: Iterable[tuple[str, str]]) -> list[str]:
    """The guesses, pairs of secret and canonical text, that something in the database confirms."""
    known, row = values_in(dump(world.admin)), world.row(held)
    assert row["params_hash"] in known
    return [
        secret
        for secret, canonical in guesses
        if found_by(digests(row["type"], canonical, secret, known, row), known)
    ]


@pytest.mark.clause("H1.7a", "H1.7c", "H1.7h", "T5b")
@pytest.mark.parametrize("state", ["HELD", "APPROVED", "SUCCEEDED", "REJECTED"])
def test_no_guess_of_a_hidden_parameter_is_confirmed(sync_world: World, state: str) -> None:
    held = token(sync_world, state)
    texts = [(pin, canonical_json({"name": "door", "password": pin})) for pin in PINS]
    if state == "HELD":
        assert forging.payload_of(sync_world, held).canonical == dict(texts)[PIN]
    assert guess(sync_world, held, texts) == []


@pytest.mark.clause("H1.7c")
@pytest.mark.parametrize("ended", [False, True])
def test_the_same_attack_finds_what_is_not_hidden(sync_world: World, ended: bool) -> None:
    """The control. A type that hides nothing is not salted."""
    held = sync_world.hold(7313)
    if ended:
        sync_world.approve(held)
    texts = [(pin, canonical_json(PayoutParams(order="o-1", cents=int(pin)).model_dump())) for pin in PINS]
    assert guess(sync_world, held, texts) == [PIN]


@pytest.mark.clause("H1.7d", "H2.11e")
@pytest.mark.parametrize("state", ["HELD", "SUCCEEDED"])
def test_the_fingerprint_key_confirms_a_guess_while_it_is_open(sync_world: World, state: str) -> None:
    """What docs/threat-model.md says its holder can do, and until when."""
    token(sync_world, state)
    key, known = sync_world.ring.active("fingerprint"), values_in(dump(sync_world.admin))
    confirmed = [
        pin
        for pin in PINS
        if found_by(
            [fingerprint(key, "rita", "token.issue", 1, canonical_json({"name": "door", "password": pin}))],
            known,
        )
    ]
    assert confirmed == ([PIN] if state == "HELD" else [])


@pytest.mark.clause("H1.7b")
@pytest.mark.parametrize("ended", [False, True])
def test_the_salt_is_in_the_seal_alone(sync_world: World, ended: bool) -> None:
    held = token(sync_world, "APPROVED")
    payload = forging.payload_of(sync_world, held)
    assert payload.salt is not None
    assert len(payload.salt) == 32
    if ended:
        sync_world.issue(REQUESTER, TokenParams(name="door", password=SecretStr(PIN)))
    known = values_in(dump(sync_world.admin))
    assert not found_by([payload.salt], known)
    assert found_by([held.params_hash], known)
    # With the salt the guess is confirmed: it is what stands between.
    assert found_by([params_hash("token.issue", 1, payload.canonical, payload.salt)], known)


@pytest.mark.clause("H1.7a")
def test_one_secret_asked_for_twice_has_two_hashes(sync_world: World) -> None:
    hashes = []
    for _ in range(2):
        held = token(sync_world, "HELD")
        hashes.append(held.params_hash)
        sync_world.us.cancel(held, "rita")
    assert len(set(hashes)) == 2
    assert all(one != two for one, two in itertools.pairwise(hashes))
