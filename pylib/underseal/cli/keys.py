"""`underseal keys`: make, rotate, rewrap and destroy the keys of a ring."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from underseal.cli._exits import FAILED, REFUSED, Stop, friendly
from underseal.cli._json import print_json
from underseal.cli._render import print_table, said
from underseal.cli._session import confirm, json_option, keyring_option, needed, needed_ring, options, session
from underseal.cli._subjects import destroy_master, fences_option, store_option, subjects
from underseal.seal.keys import HELD_PURPOSES, PURPOSES, Destroyed, as_purpose, minted_purpose

if TYPE_CHECKING:
    from underseal import FileKeyRing, KeyRing, KeyUse, RewrapProgress
    from underseal.seal import Key, Purpose

_purposes_argument = click.argument("purposes", nargs=-1, metavar="[PURPOSE]...", type=click.Choice(PURPOSES))


@click.group()
def keys() -> None:
    """Look after the key ring: a directory of this user's own, outside the database.

    To replace keys: rotate; rewrap, on every database that uses the ring; then destroy the retired ones.
    """


def _files(path: Path | None) -> FileKeyRing:
    from underseal import FileKeyRing

    return FileKeyRing(
        needed(str(path) if path else None, "--keyring", "UNDERSEAL_KEYRING", "~/.underseal/keys")
    )


def _print_made(made: list[Key], as_json: bool) -> None:
    if as_json:
        print_json([{"purpose": key.purpose, "key_id": key.id} for key in made])
        return
    for key in made:
        click.echo(f"{key.purpose:<12} {key.id}")


@keys.command()
@_purposes_argument
@keyring_option
@json_option
@friendly
def generate(keyring: Path | None, purposes: tuple[Purpose, ...], as_json: bool) -> None:
    """Make the ring and, for each PURPOSE that has none, a key. What is there stays.

    Purposes are payload, decision, fingerprint and master; without any, the first three: a master key wraps the
    keys of subjects and is needed for sealed executions alone.
    """
    ring = _files(keyring)
    _print_made([ring.generate(purpose) for purpose in purposes or HELD_PURPOSES], as_json)


@keys.command()
@_purposes_argument
@keyring_option
@json_option
@friendly
def rotate(keyring: Path | None, purposes: tuple[Purpose, ...], as_json: bool) -> None:
    """Make new keys that seal from now on; the older ones still open.

    For each PURPOSE named, or for payload, decision and fingerprint.
    """
    ring = _files(keyring)
    _print_made([ring.rotate(purpose) for purpose in purposes or HELD_PURPOSES], as_json)


@keys.command("list")
@options(keyring_option)
def list_keys(dsn: str | None, keyring: Path | None, as_json: bool) -> None:
    """List the keys of the ring and, where a database is named, how many open seals are under each."""
    ring = needed_ring(keyring)
    uses = None
    if dsn:
        with session(dsn, ring) as here:
            uses = {use.key_id: use for use in here.us.key_uses()}
    rows = _listed(ring, uses)
    if as_json:
        print_json(rows)
        return
    print_table(
        ("purpose", "key", "state", "open seals"),
        ([row["purpose"], said(row["key_id"]), said(row["state"], "red" if row["state"] in _LOST else ""),
          "not asked" if row["open_rows"] is None else str(row["open_rows"])] for row in rows),
        empty="the ring is empty; run: underseal keys generate",
    )  # fmt: skip


_LOST = ("missing", "destroyed")


def _listed(ring: KeyRing, uses: dict[str, KeyUse] | None) -> list[dict[str, Any]]:
    rows = [
        {"purpose": purpose, "key_id": key_id, "state": "retired" if place else "active",
         "open_rows": None if uses is None else uses[key_id].open_rows if key_id in uses else 0}
        for purpose in PURPOSES
        for place, key_id in enumerate(ring.key_ids(purpose))
    ]  # fmt: skip
    here = {row["key_id"] for row in rows}
    for use in (uses or {}).values():
        if use.key_id not in here:
            lost = "destroyed" if isinstance(ring.find(use.key_id), Destroyed) else "missing"
            rows.append(
                {"purpose": use.purpose, "key_id": use.key_id, "state": lost, "open_rows": use.open_rows}
            )
    return rows


@keys.command()
@click.option(
    "--batch",
    default=100,
    show_default=True,
    type=click.IntRange(1, 10000),
    help="Rows of each kind at once.",
)
@options(keyring_option)
def rewrap(dsn: str | None, keyring: Path | None, batch: int, as_json: bool) -> None:
    """Seal what is open anew under the active keys, while the system runs. Takes worker or operator access.

    It can be stopped and started again. Exit code 1 if a seal did not open here.
    """
    from rich.console import Console
    from rich.progress import Progress

    from underseal import RewrapProgress

    ring = needed_ring(keyring)
    last = RewrapProgress(0, 0, 0, ())
    with (
        session(dsn, ring) as here,
        Progress(console=Console(stderr=True), disable=not sys.stderr.isatty()) as bar,
    ):
        task = bar.add_task("sealing anew", total=_due(here.us.key_uses(), _active(ring)))
        for last in here.us.rewrap(batch):
            bar.update(task, completed=last.payloads + last.decisions + last.moved_on)
    if as_json:
        print_json(last)
    else:
        click.echo(f"{last.payloads} payloads and {last.decisions} decisions are under the active keys now.")
    _demand_opened(last, as_json)


def _due(uses: Iterable[KeyUse], active: set[str]) -> int:
    """How many seals are not under an active key. A payload and its fingerprint are made anew together."""
    rows = dict.fromkeys(PURPOSES, 0)
    for use in uses:
        if use.key_id not in active:
            rows[as_purpose(use.purpose)] += use.open_rows
    return rows["decision"] + max(rows["payload"], rows["fingerprint"])


def _active(ring: KeyRing) -> set[str]:
    return {key_id for purpose in PURPOSES for key_id in ring.key_ids(purpose)[:1]}


def _demand_opened(last: RewrapProgress, as_json: bool) -> None:
    if not last.unopened:
        return
    if as_json:
        click.get_current_context().exit(FAILED)
    listed = ", ".join(map(str, last.unopened))
    raise Stop(
        FAILED, "error", "unopened",
        f"expected every seal to open with this ring, found some that do not, of: {listed}. "
        "Run underseal doctor with this ring; do not destroy the old key",
    )  # fmt: skip


@keys.command()
@click.argument("key_id", metavar="KEY")
@click.option("--yes", is_flag=True, help="Do not ask.")
@store_option
@fences_option
@options(keyring_option)
def destroy(
    dsn: str | None,
    keyring: Path | None,
    store: Path | None,
    fences: Path | None,
    key_id: str,
    yes: bool,
    as_json: bool,
) -> None:
    """Destroy a retired key for good. Refused while an open operation of the database needs it.

    For a master key the store of subjects' keys is asked, with --store and --fences, and no database.

    Only the database or store named is asked. Where several share a ring, rewrap and look at each of them first.
    """
    ring = _files(keyring)
    _demand_destroyable(ring, key_id)
    if isinstance(ring.find(key_id), Destroyed):
        # Only a copy of it is left, which a backup brought back.
        ring.destroy(key_id)
        _say_destroyed(key_id, as_json)
        return
    if minted_purpose(key_id) == "master":
        destroy_master(key_id, store, fences, ring, yes)
        _say_destroyed(key_id, as_json)
        return
    with session(dsn, ring) as here:
        _demand_unneeded(here.us.key_uses(), key_id)
        if not yes:
            confirm(f"Destroy key {key_id} for good? No seal under it can ever be opened again")
            # Somebody may have requested while the question stood there.
            _demand_unneeded(here.us.key_uses(), key_id)
        ring.destroy(key_id)
    _say_destroyed(key_id, as_json)


def _say_destroyed(key_id: str, as_json: bool) -> None:
    if as_json:
        print_json({"outcome": "destroyed", "key_id": key_id})
    else:
        click.echo(f"{key_id} is destroyed.")


def _demand_destroyable(ring: FileKeyRing, key_id: str) -> None:
    found = ring.find(key_id)
    if found is None:
        raise Stop(
            REFUSED, "refused", "unknown-key",
            f"expected a key of {ring.path}, found none named {key_id}; see: underseal keys list",
        )  # fmt: skip
    if key_id in _active(ring):
        raise Stop(
            REFUSED, "refused", "active-key",
            f"expected a retired key, found {key_id} sealing; first: underseal keys rotate {found.purpose}, "
            "and underseal keys rewrap",
        )  # fmt: skip


def _demand_unneeded(uses: Iterable[KeyUse], key_id: str) -> None:
    needed_by = sum(use.open_rows for use in uses if use.key_id == key_id)
    if needed_by:
        raise Stop(
            REFUSED, "refused", "key-needed",
            f"expected a key that no open operation needs, found {needed_by} seals under {key_id}; "
            "first: underseal keys rewrap",
        )  # fmt: skip


keys.add_command(subjects)

COMMANDS = (keys,)
