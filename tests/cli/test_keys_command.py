"""The life of keys: generate, rotate, rewrap, destroy; and no destruction of what an open operation needs."""

from __future__ import annotations

import stat

import pytest

from tests.cli.shop import Shop
from underseal import FileKeyRing
from underseal.seal import HELD_PURPOSES, Destroyed, environment_text


def test_generate_makes_a_private_ring_and_keeps_what_is_there(shop: Shop) -> None:
    fresh = shop.keys.parent / "fresh"
    made = shop.run("keys", "generate", "--keyring", fresh, "--json").json
    assert [one["purpose"] for one in made] == list(HELD_PURPOSES)
    assert stat.S_IMODE(fresh.stat().st_mode) == 0o700
    assert shop.run("keys", "generate", "--keyring", fresh, "--json").json == made


def test_a_ring_may_hold_one_purpose(shop: Shop) -> None:
    fresh = shop.keys.parent / "fresh"
    made = shop.run("keys", "generate", "--keyring", fresh, "decision")
    assert made.out.startswith("decision")
    assert FileKeyRing(fresh).key_ids("payload") == []


def test_a_ring_that_cannot_be_made_is_said_so(shop: Shop) -> None:
    done = shop.run("keys", "generate", "--keyring", "/proc/nothing/ring")
    assert (done.code, "cannot be made" in done.err, "unexpected" in done.err) == (1, True, False), done


def test_list_says_what_is_needed(shop: Shop) -> None:
    shop.hold()
    listed = {one["purpose"]: one for one in shop.run("keys", "list", "--json").json}
    assert {name: (one["state"], one["open_rows"]) for name, one in listed.items()} == {
        "payload": ("active", 1),
        "decision": ("active", 0),
        "fingerprint": ("active", 1),
    }
    offline = shop.run("keys", "list", "--json", env={"UNDERSEAL_DSN": None}).json
    assert {one["open_rows"] for one in offline} == {None}
    assert "active" in shop.run("keys", "list").out


def test_list_names_keys_that_are_not_here(shop: Shop) -> None:
    shop.hold()
    other = shop.keys.parent / "other"
    shop.run("keys", "generate", "--keyring", other)
    states = [one["state"] for one in shop.run("keys", "list", "--keyring", other, "--json").json]
    assert states.count("missing") == 2
    assert "missing" in shop.run("keys", "list", "--keyring", other).out


@pytest.mark.clause("H2.6d")
@pytest.mark.parametrize("purpose", HELD_PURPOSES)
def test_a_key_is_destroyed_only_once_nothing_open_needs_it(shop: Shop, purpose: str) -> None:
    operation = shop.hold("payout.pair")
    shop.vote(operation, "ann")
    old = shop.ring.active(purpose).id  # type: ignore[arg-type]
    assert shop.run("keys", "rotate", "--json").code == 0

    refused = shop.run("keys", "destroy", old, "--yes", "--json")
    assert (refused.code, refused.json["reason"]) == (4, "key-needed")
    assert not isinstance(shop.ring.find(old), Destroyed)

    rewrapped = shop.run("keys", "rewrap", "--batch", 1, "--json")
    assert (rewrapped.code, rewrapped.json["payloads"], rewrapped.json["decisions"]) == (0, 1, 1)
    assert shop.run("keys", "destroy", old, "--yes").code == 0
    assert isinstance(shop.ring.find(old), Destroyed)

    shop.vote(operation, "bob")
    ran = shop.run("run", operation, "--app", "tests.cli.shop:make", "--json")
    assert ran.json["state"] == "SUCCEEDED"


def test_the_active_key_and_unknown_keys_are_not_destroyed(shop: Shop) -> None:
    active = shop.ring.active("payload").id
    refused = shop.run("keys", "destroy", active, "--yes", "--json")
    assert (refused.code, refused.json["reason"]) == (4, "active-key")
    unknown = shop.run("keys", "destroy", "payload-" + "0" * 32, "--yes", "--json")
    assert (unknown.code, unknown.json["reason"]) == (4, "unknown-key")


def test_a_copy_of_a_destroyed_key_is_removed_again(shop: Shop) -> None:
    old = shop.ring.active("payload").id
    file = next(shop.keys.glob("payload.*.key"))
    content = file.read_bytes()
    shop.run("keys", "rotate", "payload")
    assert shop.run("keys", "destroy", old, "--yes").code == 0
    file.write_bytes(content)
    file.chmod(0o600)
    assert shop.run("keys", "destroy", old, "--json").json == {"outcome": "destroyed", "key_id": old}
    assert not file.exists()


def test_destroying_asks_a_person(shop: Shop) -> None:
    old = shop.ring.active("payload").id
    shop.run("keys", "rotate")
    asked = shop.run("keys", "destroy", old, stdin="y\n")
    assert asked.code == 2
    assert not isinstance(shop.ring.find(old), Destroyed)


def test_destroying_without_a_database_is_refused(shop: Shop) -> None:
    old = shop.ring.active("payload").id
    shop.run("keys", "rotate")
    assert shop.run("keys", "destroy", old, "--yes", env={"UNDERSEAL_DSN": None}).code == 2
    assert shop.run("keys", "destroy", old, "--yes", "--dsn", "host=/nowhere").code == 1
    assert not isinstance(shop.ring.find(old), Destroyed)


def test_rewrap_says_what_does_not_open(shop: Shop) -> None:
    operation = shop.hold()
    other = shop.keys.parent / "other"
    shop.run("keys", "generate", "--keyring", other)
    done = shop.run("keys", "rewrap", "--keyring", other)
    assert done.code == 1
    assert operation in done.err
    assert shop.run("keys", "rewrap", "--keyring", other, "--json").json["unopened"] == [operation]


def test_rewrap_counts_for_people(shop: Shop) -> None:
    shop.hold()
    shop.run("keys", "rotate", "fingerprint")
    assert "1 payloads and 0 decisions" in shop.run("keys", "rewrap").out


def test_keys_may_come_from_the_environment(shop: Shop) -> None:
    operation = shop.hold()
    seen = shop.run("show", operation, "--principal", "ann", "--json").json
    done = shop.run(
        "approve", operation, "--principal", "ann", "--yes", "--hash", seen["params_hash"], "--row-version", 1,
        env={"UNDERSEAL_KEYRING": None, "UNDERSEAL_KEYS": environment_text(shop.ring, {"decision"})},
    )  # fmt: skip
    assert done.code == 0, done


def test_a_loose_ring_is_refused_with_what_to_run(shop: Shop) -> None:
    shop.keys.chmod(0o755)
    done = shop.run("keys", "list")
    assert done.code == 1
    assert "chmod 700" in done.err
