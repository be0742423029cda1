"""Holding operations for flows, in the name of whoever owns the execution."""

# `type` is what the column is called, in SQL and here.

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from underseal.errors import RequestRefused, UndersealError
from underseal.flow.batches import AWAY
from underseal.foundation.steps import Steps, call
from underseal.held import verbs
from underseal.held.core import Core
from underseal.held.model import Principal
from underseal.held.request import request_steps

if TYPE_CHECKING:
    from underseal.held.async_client import AsyncUnderseal
    from underseal.held.client import Underseal

AUTH_KIND = "flow"
"""How the requester of a flow's operation was authenticated: by owning the execution."""


class ClientHolds:
    """What `ctx.hold` asks, over a client with its keys and its gated types."""

    def __init__(self, client: Underseal | AsyncUnderseal) -> None:
        """Keep the client.

        Parameters:
            client: sync or async.
        """
        self._client = client

    async def request(self, kind: str, principal: str, params: Any, operation_id: UUID) -> UUID:
        """Request an operation of mode ON_APPROVAL in the owner's name, under an id that one before a crash may have.

        Parameters:
            kind: its type.
            principal: the owner of the execution.
            params: its parameters.
            operation_id: the id that was recorded for it.

        Returns:
            The id that is live: another one, where the same was requested before and is open still.

        Errors:
            RequestRefused: `requester-unavailable`, `other-mode`, `request-failed` (what the application's own code
                raised, by its type), and as `Underseal.request`.
            ParametersRefused, CanonicalError: the parameters.
            SealError: a key is missing here.
        """
        held: UUID = await self._client._perform(
            _request(self._client._core, kind, principal, params, operation_id)
        )
        return held

    async def cancel(self, operation_id: UUID, principal: str) -> None:
        """Take it back, as its requester; what has ended stays as it is.

        Parameters:
            operation_id: which.
            principal: the owner of the execution.
        """
        note = "the flow that asked for it was cancelled"
        await self._client._perform(verbs.cancel(self._client._core, operation_id, principal, note, False))


def _request(core: Core, type: str, owner: str, params: Any, operation_id: UUID) -> Steps[UUID]:  # noqa: A002
    try:
        requester = yield from _requester(core, owner)
        kind = yield from core.kind_of(type)
        if kind.mode != "ON_APPROVAL":
            raise RequestRefused(
                "other-mode",
                f"expected a type of mode ON_APPROVAL, found {type} of mode {kind.mode}: "
                "nobody is there to ask again for a flow",
            )
        held = yield from request_steps(core, kind, requester, params, operation_id)
    except (UndersealError, *AWAY):
        raise
    except Exception as error:
        raise RequestRefused(
            "request-failed",
            f"expected {type} to be requested, found that {error.__class__.__name__} was raised on the way",
        ) from error
    return held.operation_id


def _requester(core: Core, owner: str) -> Steps[Principal]:
    if core.rebuild is None:
        return Principal(owner, AUTH_KIND)
    found = yield from call(core.rebuild, owner, AUTH_KIND, None)
    if found is None:
        raise RequestRefused(
            "requester-unavailable",
            "expected the owner of the execution to be somebody who may act, found that they may not any more",
        )
    requester: Principal = found
    return requester
