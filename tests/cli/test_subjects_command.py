"""`underseal keys subjects`: the life of subjects' keys from a command line; no database is needed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.cli.shop import Ended
from tests.cli.terminal import Terminal
from tests.seal.key_store_harness import KmsMasters, kms
from underseal.cli import main
from underseal.seal import Destroyed, FileKeyRing, MemoryKeyRing
from underseal.seal.store import FileKeyStore, RingMaster


class Vault:
    """A ring with a master, and places for a store."""

    def __init__(self, path: Path) -> None:
        self.ring = FileKeyRing(path / "ring")
        self.ring.generate("master")
        self.env = {
            "UNDERSEAL_KEYRING": str(path / "ring"),
            "UNDERSEAL_SUBJECT_KEYS": str(path / "keys"),
            "UNDERSEAL_SUBJECT_FENCES": str(path / "fences"),
        }

    def run(self, *args: object, **env: str | None) -> Ended:
        """Run one command after `underseal keys`."""
        result = CliRunner().invoke(main, ["keys", *map(str, args)], env={**self.env, **env})
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Ended(result.exit_code, result.stdout, result.stderr)

    @property
    def store(self) -> FileKeyStore:
        """The store, opened anew."""
        keys, fences = self.env["UNDERSEAL_SUBJECT_KEYS"], self.env["UNDERSEAL_SUBJECT_FENCES"]
        return FileKeyStore(keys, RingMaster(self.ring), fences=fences)


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    vault = Vault(tmp_path)
    assert vault.run("subjects", "create").code == 0
    return vault


def test_a_store_is_made_and_listed(vault: Vault) -> None:
    assert "no subject has a key here" in vault.run("subjects", "list").out
    made = vault.store.mint("customer-7", named=())
    vault.store.destroy("customer-8")
    listed: Any = vault.run("subjects", "list", "--json").json
    master = vault.ring.active("master").id
    assert listed == [
        {
            "subject": "customer-7",
            "state": "live",
            "keys": [{"epoch": 1, "key_id": made.key_id, "master": master}],
        },
        {"subject": "customer-8", "state": "erased", "keys": []},
    ]
    shown = vault.run("subjects", "list").out
    assert "customer-7" in shown
    assert made.key.secret.hex() not in shown + json.dumps(listed)


def test_a_subject_s_key_is_rotated(vault: Vault) -> None:
    vault.store.mint("a", named=())
    done = vault.run("subjects", "rotate", "a", "--json").json
    current = vault.store.current("a")
    assert current is not None
    assert (done["key_id"], done["epoch"]) == (current.key_id, 2)
    assert vault.run("subjects", "rotate", "nobody").code == 1


@pytest.mark.clause("X8")
def test_a_master_is_replaced(vault: Vault) -> None:
    made = [vault.store.mint(subject, named=()) for subject in ("a", "b", "c")]
    old = vault.ring.active("master").id
    assert vault.run("rotate", "master").code == 0
    refused = vault.run("destroy", old, "--yes", "--json")
    assert (refused.code, refused.json["reason"]) == (4, "key-needed")
    done = vault.run("subjects", "rewrap", "--batch", 2, "--json").json
    assert (done["subjects"], done["of"], done["rewrapped"], done["unopened"]) == (3, 3, 3, [])
    assert "0 keys are under the active master now." in vault.run("subjects", "rewrap").out
    assert vault.run("destroy", old, "--yes").code == 0
    assert isinstance(vault.ring.find(old), Destroyed)
    assert [vault.store.find(one.key_id, one.subject) for one in made] == [one.key for one in made]


@pytest.mark.clause("X8")
def test_a_master_is_not_destroyed_before_a_store_was_asked(vault: Vault) -> None:
    old = vault.ring.active("master").id
    vault.run("rotate", "master")
    for missing in vault.env:
        if missing != "UNDERSEAL_KEYRING":
            assert vault.run("destroy", old, "--yes", **{missing: None}).code == 2
    assert vault.run("destroy", old, "--yes", UNDERSEAL_SUBJECT_KEYS="/nowhere").code == 1
    active = vault.run("destroy", vault.ring.active("master").id, "--yes", "--json")
    assert (active.code, active.json["reason"]) == (4, "active-key")
    assert vault.run("destroy", old).code == 2
    assert not isinstance(vault.ring.find(old), Destroyed)


def test_a_rewrap_says_what_does_not_open_here(vault: Vault, tmp_path: Path) -> None:
    made = vault.store.mint("a", named=())
    other = FileKeyRing(tmp_path / "other")
    other.generate("master")
    done = vault.run("subjects", "rewrap", UNDERSEAL_KEYRING=str(other.path))
    assert (done.code, made.key_id in done.err) == (1, True)
    told = vault.run("subjects", "rewrap", "--json", UNDERSEAL_KEYRING=str(other.path))
    assert (told.code, told.json["unopened"]) == (1, [made.key_id])


def test_a_subject_is_destroyed_by_who_says_so(vault: Vault) -> None:
    made = vault.store.mint("a", named=())
    assert vault.run("subjects", "destroy", "a").code == 2
    assert vault.store.current("a") == made
    done = vault.run("subjects", "destroy", "a", "--yes", "--json")
    assert done.json == {"subject": "a", "key_ids": [made.key_id]}
    assert (
        "Destroyed: none: this store had no key of it." in vault.run("subjects", "destroy", "b", "--yes").out
    )
    assert vault.store.was_destroyed("a") is True


@pytest.mark.parametrize(("typed", "destroyed"), [("n", False), ("y", True)])
def test_destroying_a_subject_asks_a_person(vault: Vault, typed: str, destroyed: bool) -> None:
    vault.store.mint("a", named=())
    terminal = Terminal(["keys", "subjects", "destroy", "a"], vault.env)
    terminal.wait_for("Destroy every key of a for good?")
    terminal.type(f"{typed}\n")
    terminal.end()
    assert vault.store.was_destroyed("a") is destroyed


def test_a_wrong_directory_is_said_so(vault: Vault) -> None:
    done = vault.run("subjects", "list", UNDERSEAL_SUBJECT_KEYS="/nowhere")
    assert (done.code, "there is no directory /nowhere" in done.err) == (1, True)
    assert vault.run("subjects", "list", UNDERSEAL_SUBJECT_FENCES=None).code == 2


def test_the_master_may_be_in_kms(vault: Vault) -> None:
    with kms():
        masters = KmsMasters()
        vault.store.mint("a", named=())
        done = vault.run("subjects", "rewrap", UNDERSEAL_KMS=masters.arns[0])
        # A key under the ring's master is none of this KMS.
        assert (done.code, "unopened" in done.err) == (1, True)
        vault.env["UNDERSEAL_KMS"] = masters.arns[0]
        vault.env["UNDERSEAL_SUBJECT_KEYS"] += "-kms"
        vault.env["UNDERSEAL_SUBJECT_FENCES"] += "-kms"
        assert vault.run("subjects", "create", "--json").json["outcome"] == "created"
        store = FileKeyStore(
            vault.env["UNDERSEAL_SUBJECT_KEYS"], masters.now(), fences=vault.env["UNDERSEAL_SUBJECT_FENCES"]
        )
        store.mint("a", named=())
        next_arn = masters.arns[1]
        told = vault.run(
            "subjects", "rewrap", "--kms", next_arn, "--kms-older", masters.arns[0], "--json"
        ).json
        assert told["rewrapped"] == 1
        assert vault.run("subjects", "list", "--json").json[0]["keys"][0]["master"] == next_arn


@pytest.mark.clause("X8")
def test_a_master_that_is_needed_once_a_person_has_answered_is_kept(vault: Vault) -> None:
    old = vault.ring.active("master").id
    kept = (vault.ring.path / "master.000001.key").read_bytes()
    vault.run("rotate", "master")
    terminal = Terminal(["keys", "destroy", old], vault.env)
    terminal.wait_for(f"Destroy {old} for good?")
    # A process that has not seen the rotation yet.
    stale = MemoryKeyRing([key for key in vault.ring.live("master") if key.id == old])
    keys, fences = vault.env["UNDERSEAL_SUBJECT_KEYS"], vault.env["UNDERSEAL_SUBJECT_FENCES"]
    FileKeyStore(keys, RingMaster(stale), fences=fences).mint("a", named=())
    terminal.type("y\n")
    code, screen = terminal.end()
    assert (code, "found 1 keys" in screen) == (4, True), screen
    assert (vault.ring.path / "master.000001.key").read_bytes() == kept
