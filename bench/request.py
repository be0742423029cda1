"""The values of one operation, the same for every side that is measured."""

from __future__ import annotations

import base64
import json
import os
import uuid
from dataclasses import dataclass
from typing import Final

EFFECT: Final = '{"amount":"125.00 EUR","balance_after":"2310.42 EUR","payee":"Example Ltd"}'
REDACTED: Final = '{"account":"DE02120300000000202051","amount":12500,"currency":"EUR","note":"invoice 2291"}'
RESULT: Final = '{"reference":"po-8812","sent":true}'
STATE_KEY: Final = "balance:243542"
PAYLOAD_BYTES: Final = 900
DECISION_BYTES: Final = 450


def _base64(size: int) -> str:
    return base64.urlsafe_b64encode(os.urandom(size)).rstrip(b"=").decode()


def envelope(fmt: str, operation_id: uuid.UUID, size: int) -> str:
    """JSON text in the shape of a seal; what it holds is random.

    Parameters:
        fmt: its format, for example held-payload-v1.
        operation_id: the operation it is bound to.
        size: bytes of ciphertext.
    """
    return json.dumps(
        {
            "__loomEnc": "underseal/aes-256-gcm-hkdf",
            "v": 1,
            "kid": "bench-key",
            "fmt": fmt,
            "org": str(operation_id),
            "salt": _base64(32),
            "iv": _base64(12),
            "kc": _base64(32),
            "ct": _base64(size),
        }
    )


@dataclass(frozen=True)
class Operation:
    """One operation to be requested, approved and run."""

    operation_id: uuid.UUID
    params_hash: bytes
    fingerprint: bytes
    payload: str
    decision: str


def new_operation() -> Operation:
    """An operation with an id, a hash, a fingerprint and seals of its own."""
    operation_id = uuid.uuid4()
    return Operation(
        operation_id,
        os.urandom(32),
        os.urandom(32),
        envelope("held-payload-v1", operation_id, PAYLOAD_BYTES),
        envelope("held-decision-v1", operation_id, DECISION_BYTES),
    )
