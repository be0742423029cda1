"""What the two seals of a held operation say, byte for byte (docs/formats.md; clauses H2.1, H2.2)."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Self
from uuid import UUID

from underseal.errors import SealError
from underseal.seal import KeyRing, open_seal, seal

PAYLOAD_FORMAT = "held-payload-v1"
DECISION_FORMAT = "held-decision-v1"
_VERSION = 1

Envelope = Mapping[str, Any]


def instant_text(instant: datetime) -> str:
    """An instant as it stands in a seal: UTC, with microseconds.

    Parameters:
        instant: with a zone.
    """
    return instant.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """The sealed request.

    Attributes:
        canonical: the canonical parameters, all of them.
        params_hash: hex.
        salt: 32 bytes where the hash is salted.
        policy: canonical text of the policy in force at the request; policy_digest its SHA-256, hex.
        sealed_at: database instant, read just before sealing.
        hold_for, run_within: seconds.
        The others are what the row's columns say too.
    """

    operation_id: UUID
    type: str
    version: int
    mode: str
    canonical: str
    params_hash: str
    salt: bytes | None
    requester: str
    auth_kind: str
    token_id: str | None
    policy: str
    policy_digest: str
    state_key: str
    sealed_at: datetime
    hold_for: int
    run_within: int

    def __repr__(self) -> str:
        """Nothing of what is sealed."""
        return f"<Payload of operation {self.operation_id}>"

    def sealed(self, ring: KeyRing) -> dict[str, Any]:
        """Seal it under the ring's active payload key.

        Errors:
            SealError: there is none.
        """
        salt = None if self.salt is None else base64.urlsafe_b64encode(self.salt).decode().rstrip("=")
        return _sealed(
            {**asdict(self), "salt": salt}, ring, "payload", PAYLOAD_FORMAT, (str(self.operation_id),)
        )

    @classmethod
    def opened(cls, envelope: Envelope, ring: KeyRing, operation_id: UUID) -> Self:
        """Open a seal found in the row of an operation.

        Parameters:
            envelope: the seal.
            ring: the keys here.
            operation_id: the row's id, which the seal is bound to.

        Errors:
            SealError: it does not open here, or is no payload.
        """
        data = _opened(envelope, ring, "payload", PAYLOAD_FORMAT, (str(operation_id),))
        payload: Self = _shaped(lambda: cls(**{**data, "salt": _salt(data["salt"])}), cls)
        return payload


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionSeal:
    """One sealed vote.

    Attributes:
        params_hash: hex; row_version: both as the approver echoed them.
        shown: hex digest over the redacted copy and the effect on the approver's screen.
        cast_at: database instant, read just before sealing.
    """

    operation_id: UUID
    approver: str
    decision: str
    reason: str | None
    params_hash: str
    row_version: int
    shown: str
    cast_at: datetime

    def sealed(self, ring: KeyRing) -> dict[str, Any]:
        """Seal it under the ring's active decision key.

        Errors:
            SealError: there is none.
        """
        return _sealed(
            asdict(self), ring, "decision", DECISION_FORMAT, (str(self.operation_id), self.approver)
        )

    @classmethod
    def opened(cls, envelope: Envelope, ring: KeyRing, operation_id: UUID, approver: str) -> Self:
        """Open a seal found in the row of a vote.

        Parameters:
            envelope: the seal.
            ring: the keys here.
            operation_id, approver: the row's key, which the seal is bound to.

        Errors:
            SealError: it does not open here, or is no decision.
        """
        data = _opened(envelope, ring, "decision", DECISION_FORMAT, (str(operation_id), approver))
        decision: Self = _shaped(lambda: cls(**data), cls)
        return decision


def _sealed(
    data: dict[str, Any], ring: KeyRing, purpose: Any, fmt: str, place: tuple[str, ...]
) -> dict[str, Any]:
    plain = {
        name: instant_text(value)
        if isinstance(value, datetime)
        else str(value)
        if isinstance(value, UUID)
        else value
        for name, value in data.items()
    }
    text = json.dumps({"v": _VERSION, **plain}, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return dict(seal(text.encode(), ring.active(purpose), fmt=fmt, place=place, origin=place[0]))


def _opened(
    envelope: Envelope, ring: KeyRing, purpose: Any, fmt: str, place: tuple[str, ...]
) -> dict[str, Any]:
    plain = open_seal(envelope, ring, purpose=purpose, fmt=fmt, place=place)
    try:
        data = json.loads(plain)
    except ValueError:
        raise SealError("malformed", "the seal opens, and what is in it is no JSON") from None
    if not isinstance(data, dict) or data.pop("v", None) != _VERSION:
        raise SealError("unsupported", f"the seal opens, and its content is not of version {_VERSION}")
    try:
        for name in ("sealed_at", "cast_at"):
            if name in data:
                data[name] = datetime.fromisoformat(data[name])
        data["operation_id"] = UUID(data["operation_id"])
    except (KeyError, TypeError, ValueError):
        raise SealError("malformed", "the seal opens, and a member of it has the wrong shape") from None
    return data


def _shaped(make: Any, cls: Any) -> Any:
    try:
        value = make()
    except (KeyError, TypeError, ValueError):
        raise SealError("malformed", "the seal opens, and its members are not the expected ones") from None
    for name, kind in _KINDS[cls.__name__].items():
        found = getattr(value, name)
        if not isinstance(found, kind) or isinstance(found, bool):
            raise SealError("malformed", f"the seal opens, and its member {name} has the wrong type")
    return value


def _salt(text: str | None) -> bytes | None:
    if text is None:
        return None
    try:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except binascii.Error:
        raise ValueError("no base64url") from None


_TEXT_OR_NONE = (str, type(None))
_KINDS: dict[str, dict[str, Any]] = {
    "Payload": {
        "type": str, "version": int, "mode": str, "canonical": str, "params_hash": str, "requester": str,
        "auth_kind": str, "token_id": _TEXT_OR_NONE, "policy": str, "policy_digest": str, "state_key": str,
        "hold_for": int, "run_within": int,
    },
    "DecisionSeal": {
        "approver": str, "decision": str, "reason": _TEXT_OR_NONE, "params_hash": str, "row_version": int, "shown": str,
    },
}  # fmt: skip
