"""The cycle as the kernel does it: one function call a transaction."""

from __future__ import annotations

from typing import Any, Final

import psycopg

from bench.request import EFFECT, REDACTED, RESULT, STATE_KEY, Operation
from bench.setting import TYPE

REQUEST: Final = """
  select outcome
  from underseal.request_operation(%s, %s, 1, %s, 'ann', 'session', null, %s, %s, %s, %s, %s, %s, 'bench-key')
"""
VOTE: Final = "select outcome from underseal.vote(%s, 'bob', 'approve', null, %s, 1, %s)"
CLAIM: Final = """
  select outcome, operation_id, run_token, sealed_payload, votes
  from underseal.claim_runs('bench', %s, '{1}', '{bench-key}', 1, %s)
"""
FINISH: Final = "select outcome from underseal.finish_run(%s, %s, 'SUCCEEDED', null, null, %s)"


class KernelSide:
    """Requests, votes, claims and finishes through the functions.

    Parameters:
        connection: autocommit, of the service.
        by_id: True claims the operation just approved, as an approving replica may; False claims whatever is next, as
            a worker that polls does.
    """

    def __init__(self, connection: psycopg.Connection[Any], *, by_id: bool) -> None:
        self._connection = connection
        self._by_id = by_id
        row = connection.execute(
            "select policy_digest from underseal.begin_request(%s, 1, 'ann')", [TYPE]
        ).fetchone()
        assert row is not None
        self._policy_digest: bytes = row[0]

    def _call(self, query: str, expected: str, *values: object) -> tuple[Any, ...] | None:
        row: tuple[Any, ...] | None = self._connection.execute(query, values, prepare=True).fetchone()
        if row is not None and row[0] != expected:
            raise RuntimeError(
                f"expected {expected}, found {row[0]}: the cycle is broken, nothing was measured"
            )
        return row

    def cycle(self, op: Operation) -> None:
        """One operation from its request to its end, in four transactions."""
        self._call(
            REQUEST, "held", op.operation_id, TYPE, op.params_hash, self._policy_digest, STATE_KEY, EFFECT, REDACTED,
            op.payload, op.fingerprint,
        )  # fmt: skip
        self._call(VOTE, "approved", op.operation_id, op.params_hash, op.decision)
        claimed = None
        while claimed is None:  # another client may just have taken the one this client saw
            claimed = self._call(CLAIM, "claimed", [TYPE], op.operation_id if self._by_id else None)
        self._call(FINISH, "finished", claimed[1], claimed[2], RESULT)
