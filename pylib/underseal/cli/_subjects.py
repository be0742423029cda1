"""`underseal keys subjects`: look after the keys of subjects in a store on disk."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from underseal.cli._exits import FAILED, REFUSED, Stop, friendly
from underseal.cli._json import print_json
from underseal.cli._render import print_table, said
from underseal.cli._session import confirm, json_option, keyring_option, needed, needed_ring
from underseal.cli._visible import visible

if TYPE_CHECKING:
    from underseal.seal import FileKeyRing
    from underseal.seal.store import FileKeyStore, Master, StoreRewrap

F = TypeVar("F", bound=Callable[..., Any])

store_option = click.option(
    "--store",
    envvar="UNDERSEAL_SUBJECT_KEYS",
    type=click.Path(path_type=Path),
    help="Directory of the subjects' keys. [UNDERSEAL_SUBJECT_KEYS]",
)
fences_option = click.option(
    "--fences",
    envvar="UNDERSEAL_SUBJECT_FENCES",
    type=click.Path(path_type=Path),
    help="Directory of their fences, which no backup has together with the keys. [UNDERSEAL_SUBJECT_FENCES]",
)
_kms_option = click.option(
    "--kms",
    envvar="UNDERSEAL_KMS",
    help="ARN of the AWS KMS key that wraps, in the ring's place. [UNDERSEAL_KMS]",
)
_older_option = click.option(
    "--kms-older", multiple=True, help="ARN of an AWS KMS key that wrapped before and still opens."
)
_subject_argument = click.argument("subject")


def _options(command: F) -> F:
    decorated: Any = friendly(command)
    for option in (json_option, _older_option, _kms_option, keyring_option, fences_option, store_option):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]


@click.group()
def subjects() -> None:
    """Look after the keys of subjects, which sealed executions are sealed under: docs/seal.md.

    To replace a master: underseal keys rotate master; keys subjects rewrap, on every store; then keys destroy.
    """


@subjects.command()
@_options
def create(as_json: bool, **given: Any) -> None:
    """Make a store and its fences, once. What is there already stays."""
    from underseal.seal.store import FileKeyStore

    store = FileKeyStore.create(_place(given, "store"), _master(given), fences=_place(given, "fences"))
    _say({"outcome": "created", "store": str(store.path)}, f"{store.path} is a key store.", as_json)


@subjects.command("list")
@_options
def list_subjects(as_json: bool, **given: Any) -> None:
    """List every subject's keys, and how far it is erased. Shows no secret."""
    found = sorted(_opened(given).subjects(), key=lambda one: one.subject)
    if as_json:
        print_json(found)
        return
    print_table(
        ("subject", "state", "epoch", "key", "master"),
        ([said(one.subject), said(one.state, "" if one.state == "live" else "red"), str(key.epoch),
          said(key.key_id), said(key.master or "destroyed")] for one in found for key in one.keys),
        empty="no subject has a key here",
    )  # fmt: skip


@subjects.command()
@_subject_argument
@_options
def rotate(subject: str, as_json: bool, **given: Any) -> None:
    """Make the next key of SUBJECT; the older ones still open."""
    made = _opened(given).rotate(subject)
    _say({"outcome": "rotated", "key_id": made.key_id, "epoch": made.epoch}, made.key_id, as_json)


@subjects.command()
@click.option(
    "--batch", default=100, show_default=True, type=click.IntRange(1, 10000), help="Subjects at once."
)
@_options
def rewrap(batch: int, as_json: bool, **given: Any) -> None:
    """Wrap what is under older masters under the active one, while the system runs.

    It can be stopped and started again. Exit code 1 if a key did not open here.
    """
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("wrapping anew", total=None)
        for told in _opened(given).rewrap(batch):
            bar.update(task, completed=told.subjects, total=told.of)
    _say(told, f"{told.rewrapped} keys are under the active master now.", as_json)
    _demand_opened(told, as_json)


@subjects.command()
@_subject_argument
@click.option("--yes", is_flag=True, help="Do not ask.")
@_options
def destroy(subject: str, yes: bool, as_json: bool, **given: Any) -> None:
    """Destroy every key of SUBJECT for good, and let it have none again. Call it again after a crash.

    No log is told: this is the store's part of an erasure alone.
    """
    store = _opened(given)
    if not yes:
        confirm(
            f"Destroy every key of {visible(subject)} for good? Nothing sealed for it can ever be opened again"
        )
    receipt = store.destroy(subject)
    ids = ", ".join(receipt.key_ids) or "none: this store had no key of it"
    _say(receipt, f"{subject} is fenced for good. Destroyed: {ids}.", as_json)


def destroy_master(
    key_id: str, store: Path | None, fences: Path | None, ring: FileKeyRing, yes: bool
) -> None:
    """Destroy a retired master key, if the store that was named has no key under it.

    Parameters:
        key_id: the master.
        store, fences: the store's directories.
        ring: the ring that has it.
        yes: whether nobody is asked.

    Errors:
        click.UsageError: no store was named, or nobody is there to be asked.
        Stop: a key is under it.
    """
    from underseal.seal.store import FileKeyStore, RingMaster

    given = {"store": store, "fences": fences}
    kept = FileKeyStore(_place(given, "store"), RingMaster(ring), fences=_place(given, "fences"))
    _demand_unneeded(kept, key_id)
    if not yes:
        confirm(f"Destroy {key_id} for good? No key of a subject that it wrapped can ever be opened again")
        # A service that has not seen the rotation yet may have minted while the question stood there.
        _demand_unneeded(kept, key_id)
    ring.destroy(key_id)


def _demand_unneeded(kept: FileKeyStore, key_id: str) -> None:
    needed_by = sum(key.master == key_id for one in kept.subjects() for key in one.keys)
    if needed_by:
        raise Stop(
            REFUSED, "refused", "key-needed",
            f"expected a master that no key of a subject is under, found {needed_by} keys under {key_id}; "
            "first: underseal keys subjects rewrap",
        )  # fmt: skip


def _place(given: dict[str, Any], name: str) -> Path:
    variable = {"store": "UNDERSEAL_SUBJECT_KEYS", "fences": "UNDERSEAL_SUBJECT_FENCES"}[name]
    path = given[name]
    return Path(needed(str(path) if path else None, f"--{name}", variable, f"/srv/{name}"))


def _master(given: dict[str, Any]) -> Master:
    from underseal.seal.store import RingMaster

    if given["kms"]:
        from underseal.seal.store.kms import KmsMaster

        return KmsMaster(given["kms"], older=given["kms_older"])
    return RingMaster(needed_ring(given["keyring"]))


def _opened(given: dict[str, Any]) -> FileKeyStore:
    from underseal.seal.store import FileKeyStore

    return FileKeyStore(_place(given, "store"), _master(given), fences=_place(given, "fences"))


def _say(told: object, words: str, as_json: bool) -> None:
    if as_json:
        print_json(told)
    else:
        click.echo(visible(words))


def _demand_opened(told: StoreRewrap, as_json: bool) -> None:
    if not told.unopened:
        return
    if as_json:
        click.get_current_context().exit(FAILED)
    raise Stop(
        FAILED, "error", "unopened",
        f"expected every key to open with these masters, found some that do not: {', '.join(told.unopened)}. "
        "They are as they were; do not destroy the master they are under",
    )  # fmt: skip
