"""Key rotation: open rows are sealed anew under the active keys, in batches, while the system runs (clause H2.6)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import psycopg

from underseal.errors import SealError
from underseal.foundation.steps import Row, Steps
from underseal.held import kernel
from underseal.held.core import Core
from underseal.held.model import RewrapProgress
from underseal.held.payload import DecisionSeal, Payload
from underseal.seal import KeyRing, fingerprint, key_id_of
from underseal.seal.keys import Purpose


class Rewrap:
    """One pass over the open rows; `batch` is called until it answers None.

    It needs no memory between processes: a row that is done is not listed any more.
    """

    def __init__(self, core: Core, batch_size: int) -> None:
        """Prepare a pass.

        Parameters:
            core: the client's state. Decisions are rewrapped where a decision key is, payloads and
                fingerprints where a payload key and a fingerprint key are.
            batch_size: rows of each kind to read at once.
        """
        self._core = core
        self._size = batch_size
        self._seen: set[tuple[UUID, str | None]] = set()
        self._unopened: set[tuple[UUID, str | None]] = set()
        self._counts = {"payload": 0, "decision": 0, "moved": 0}

    def batch(self) -> Steps[RewrapProgress | None]:
        """Do one batch.

        Returns:
            How far the pass got, or None if nothing is left that this ring can do.
        """
        keys = self._core.keys
        payload, decision, prints = (_active(keys, one) for one in ("payload", "decision", "fingerprint"))
        if payload is None or prints is None:
            payload = prints = None
        # Rows that did not open stay at the head of the list; reading past them keeps the pass going.
        rows = yield from kernel.list_rewrap(payload, decision, prints, self._size + len(self._unopened))
        fresh = [row for row in rows if (row["operation_id"], row["approver"]) not in self._seen]
        if not fresh:
            return None
        for row in fresh:
            # Once a pass each, so that it ends even where a row is listed again.
            self._seen.add((row["operation_id"], row["approver"]))
            yield from self._one(row)
        return RewrapProgress(
            self._counts["payload"],
            self._counts["decision"],
            self._counts["moved"],
            tuple(sorted({operation_id for operation_id, _ in self._unopened})),
        )

    def _one(self, row: Row) -> Steps[None]:
        try:
            done = yield from (_payload if row["outcome"] == "payload" else _decision)(self._core.keys, row)
        except (SealError, psycopg.errors.UniqueViolation):
            # The second: the same is requested again under the new key, by a process that lacked the old one.
            self._unopened.add((row["operation_id"], row["approver"]))
            return
        self._counts[row["outcome"] if done["outcome"] == "rewrapped" else "moved"] += 1


def _payload(keys: KeyRing, row: Row) -> Steps[Row]:
    opened = Payload.opened(row["sealed"], keys, row["operation_id"])
    key = keys.active("fingerprint")
    digest = fingerprint(key, opened.requester, opened.type, opened.version, opened.canonical)
    # Where only the fingerprint's key was rotated the seal stays: a row's seal is replaced under another key alone.
    kept = key_id_of(row["sealed"]) == keys.active("payload").id
    sealed = row["sealed"] if kept else opened.sealed(keys)
    return (yield from kernel.rewrap_operation(row["operation_id"], row["sealed"], sealed, digest, key.id))


def _decision(keys: KeyRing, row: Row) -> Steps[Row]:
    sealed: Mapping[str, Any] = row["sealed"]
    opened = DecisionSeal.opened(sealed, keys, row["operation_id"], row["approver"])
    return (yield from kernel.rewrap_vote(row["operation_id"], row["approver"], sealed, opened.sealed(keys)))


def _active(keys: KeyRing, purpose: Purpose) -> str | None:
    live = keys.live(purpose)
    return live[0].id if live else None
