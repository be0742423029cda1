"""A request: canonical, hashed, redacted, estimated, sealed, held (DESIGN 4; clauses H1, H2.1, H2.8)."""

# `type` is what the column is called, in SQL and here.

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

from underseal.canonical import params_hash, redaction_leak
from underseal.errors import RequestRefused, SealError
from underseal.foundation.steps import Row, Steps, Undo, atomic
from underseal.held import kernel
from underseal.held.core import Core
from underseal.held.hidden import hidden_texts, tells
from underseal.held.kinds import Kind
from underseal.held.model import Held, Principal, effect_text
from underseal.held.payload import Payload
from underseal.held.refusal import Refusal
from underseal.seal import fingerprint
from underseal.seal.entropy import random_bytes

STALE = timedelta(seconds=30)
"""A seal whose instant is further than this from what the kernel then wrote is not kept."""

_TRIES = 5
_SALT_BYTES = 32


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A request as far as it can be made before the database is asked anything about it."""

    canonical: str = field(repr=False)
    redacted: str
    effect: str
    state_key: str


def request_steps(
    core: Core, kind: Kind, principal: Principal, params: Any, chosen: UUID | None = None
) -> Steps[Held]:
    """Hold a request, or find that it is open already.

    A seal that got stale on its way is cancelled and made again; so is one for a policy that
    changed meanwhile.

    Parameters:
        core: the client's state.
        kind: what is asked for.
        principal: who asks.
        params: the parameters, validated here.
        chosen: an id of the caller's choice, under which a repetition is found also when it has ended.

    Errors:
        ParametersRefused, CanonicalError: the parameters.
        RequestRefused: the database holds no such request now.
        SealError: a key is missing.
    """
    canonical = kind.canonical(params)
    redacted = kind.redacted(canonical)
    if (leak := redaction_leak(kind.schema, json.loads(redacted))) is not None:
        # The kernel refuses it too; but as an argument it would be in the server's log by then.
        raise RequestRefused(
            "redaction-leak",
            f"expected a redacted copy without secret or undeclared members, found one at {leak}; "
            f"correct the redaction of {kind.type}",
        )
    # Before the estimate: it may no longer agree to what has been done.
    if chosen is not None and (
        made := (yield from _made_before(kind, principal, chosen, canonical, redacted))
    ):
        return made
    prepared = yield from _prepare(kind, principal, canonical, redacted)
    row: Row = {}
    for _ in range(_TRIES):
        row = yield from _attempt(core, kind, principal, prepared, chosen)
        if row["outcome"] == "duplicate":
            _confirm(core, kind, principal, canonical, row)
        if row["outcome"] in ("held", "duplicate"):
            return Held(
                row["held_id"], row["state"], row["outcome"] == "duplicate", bytes(row["held_hash"]),
                row["requested_at"], row["expires_at"], row["message"],
            )  # fmt: skip
        if chosen is not None and row["reason"] == "id-taken":
            if (made := (yield from _made_before(kind, principal, chosen, canonical, redacted))) is not None:
                return made
            break
        if row["outcome"] != "conflict":
            break
    raise RequestRefused(row["reason"], row["message"])


def _prepare(kind: Kind, principal: Principal, canonical: str, redacted: str) -> Steps[_Prepared]:
    arguments = kind.arguments(canonical)
    try:
        effect = yield from kind.as_requester(
            principal, lambda: kind.estimate(principal, arguments), keep=False
        )
    except Refusal as refusal:
        raise RequestRefused(refusal.reason, refusal.detail) from None
    if kind.salted and tells([effect.effect, effect.state_key], hidden_texts(canonical, redacted)):
        raise RequestRefused(
            "effect-tells",
            f"the effect or the state key of {kind.type} repeats a hidden parameter; "
            "make estimate() say what happens without it",
        )
    return _Prepared(canonical, redacted, effect_text(effect.effect), effect.state_key)


def _made_before(
    kind: Kind, principal: Principal, chosen: UUID, canonical: str, redacted: str
) -> Steps[Held | None]:
    """The operation of this id, where it is this request's.

    The hash of a salted type cannot be made again. While such an operation is open, its seal is what a duplicate is
    confirmed by; of one that has ended the redacted copy is all that is left to compare.
    """
    row = yield from kernel.get_operation(chosen, principal.id)
    if row["outcome"] != "found" or (row["requester"], row["type"]) != (principal.id, kind.type):
        return None
    digest = bytes(row["params_hash"])
    if params_hash(kind.type, row["version"], canonical, None) != digest and not (
        kind.salted and row["ended_at"] is not None and row["redacted"] == redacted
    ):
        return None
    message = f"This was requested before, as operation {chosen}, {row['state']}."
    return Held(chosen, row["state"], True, digest, row["requested_at"], row["expires_at"], message)


def _attempt(
    core: Core, kind: Kind, principal: Principal, prepared: _Prepared, chosen: UUID | None
) -> Steps[Row]:
    begun = yield from kernel.begin_request(kind.type, kind.version, principal.id)
    if begun["outcome"] != "ready":
        return begun
    requester = begun["effective_principal"]
    salt = random_bytes(_SALT_BYTES) if begun["salted"] or kind.salted else None
    digest = params_hash(kind.type, kind.version, prepared.canonical, salt)
    payload = Payload(
        operation_id=chosen or _new_id(),
        type=kind.type,
        version=kind.version,
        mode=begun["mode"],
        canonical=prepared.canonical,
        params_hash=digest.hex(),
        salt=salt,
        requester=requester,
        auth_kind=principal.auth_kind,
        token_id=principal.token_id,
        policy=begun["policy"],
        policy_digest=begun["policy_digest"].hex(),
        state_key=prepared.state_key,
        sealed_at=begun["now"],
        hold_for=begun["hold_for"],
        run_within=begun["run_within"],
    )
    prints = [
        (key.id, fingerprint(key, requester, kind.type, kind.version, prepared.canonical))
        for key in core.keys.live("fingerprint")
    ]
    if not prints:
        raise SealError("key-unavailable", "a request needs a fingerprint key, and this ring has none")
    arguments = {
        "operation_id": payload.operation_id,
        "type": kind.type,
        "version": kind.version,
        "params_hash": digest,
        "principal": requester,
        "auth_kind": principal.auth_kind,
        "token_id": principal.token_id,
        "policy_digest": begun["policy_digest"],
        "state_key": prepared.state_key,
        "effect": prepared.effect,
        "redacted": prepared.redacted,
        "sealed_payload": payload.sealed(core.keys),
        "fingerprint": prints[0][1],
        "fingerprint_key_id": prints[0][0],
        "older_fingerprints": [digest for _, digest in prints[1:]],
    }
    if chosen is not None:
        # its id is wanted again, so a stale one must leave none behind
        return (yield from atomic(lambda: _held_while_fresh(arguments, payload)))
    row = yield from kernel.request_operation(arguments)
    if _is_stale(row, payload):
        yield from kernel.cancel_operation(
            payload.operation_id, requester, "the seal was stale; sealed again", False
        )
        return {**row, **_STALE_CONFLICT}
    return row


def _held_while_fresh(arguments: Row, payload: Payload) -> Steps[Row]:
    row = yield from kernel.request_operation(arguments)
    if _is_stale(row, payload):
        raise Undo({**row, **_STALE_CONFLICT})
    return row


def _is_stale(row: Row, payload: Payload) -> bool:
    return bool(row["outcome"] == "held" and abs(row["requested_at"] - payload.sealed_at) > STALE)


_STALE_MESSAGE = (
    f"Expected the request to reach the database within {STALE.seconds} seconds of being sealed, and it did not, "
    f"{_TRIES} times. See what delays this client."
)
_STALE_CONFLICT = {"outcome": "conflict", "reason": "stale-seal", "message": _STALE_MESSAGE}


def _confirm(core: Core, kind: Kind, principal: Principal, canonical: str, row: Row) -> None:
    """A fingerprint only finds; what is in the seal decides, byte for byte (clause H1.7)."""
    try:
        live = Payload.opened(row["live_payload"], core.keys, row["held_id"])
        same = (live.requester, live.type, live.version, live.canonical) == (
            principal.id, kind.type, kind.version, canonical,
        )  # fmt: skip
    except SealError:
        same = False
    if not same:
        raise RequestRefused(
            "duplicate-unconfirmed",
            f"operation {row['held_id']} has the fingerprint of this request, and its seal does not say the same; "
            "an operator should look at it with underseal doctor, and cancel it",
        )


def _new_id() -> UUID:
    return UUID(bytes=random_bytes(16), version=4)
