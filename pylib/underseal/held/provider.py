"""What an embedder writes to have one kind of operation held."""

from __future__ import annotations

import builtins
from collections.abc import Awaitable, Mapping
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import BaseModel

from underseal.held.model import Effect, Mode, Policy, Principal

P = TypeVar("P", bound=BaseModel)


class Provider(Generic[P]):
    """One type of operation: subclass it, say what it is in class attributes, and gate a method with it.

    Every method may be a plain function or `async def`. None of them sees a key, a seal or a vote.

    Attributes:
        type: name of the type, `payout.send` for instance; letters, digits, `.`, `_`, `-`.
        version: from 1; raise it whenever parameters, mode, redaction or meaning change. Approved
            requests of an older version are then REFUSED `version-changed` (clause H6.2).
        params: the pydantic model of the parameters. No float may occur in it (clause H1.5).
        mode: `ON_APPROVAL` runs in the background once approved. `BY_REQUESTER` runs when the
            requester calls again, and its result is stored nowhere (clause H7).
        policy: who must agree, and how long they have.
        drifting: members of the effect that may differ at the run (clause H2.10).
        safe_errors: exception types whose message may be recorded; of all others, only the type.
    """

    type: ClassVar[str]
    version: ClassVar[int]
    params: ClassVar[builtins.type[BaseModel]]
    policy: ClassVar[Policy]
    mode: ClassVar[Mode] = "ON_APPROVAL"
    drifting: ClassVar[frozenset[str]] = frozenset()
    safe_errors: ClassVar[tuple[builtins.type[Exception], ...]] = ()

    def needs_approval(self, principal: Principal, params: P) -> bool | Awaitable[bool]:  # noqa: ARG002
        """Whether this call must be held; if not, the method just runs. True unless overridden.

        Parameters:
            principal: who calls.
            params: the validated parameters.
        """
        return True

    def estimate(self, principal: Principal, params: P) -> Effect | Awaitable[Effect]:
        """Say what a run would do, and in which state of the world. Must change nothing.

        It is asked at the request, and again at the run, as the requester both times.

        Parameters:
            principal: the requester.
            params: the parameters.
        """
        raise NotImplementedError(
            f"{builtins.type(self).__name__} must say what a run would do: define estimate()"
        )

    def check_run(
        self,
        principal: Principal,  # noqa: ARG002
        params: P,  # noqa: ARG002
    ) -> str | Awaitable[str | None] | None:
        """Agree to a run (None), or give the reason why not, in one hyphenated word (clause H6.5).

        Parameters:
            principal: the requester, rebuilt.
            params: the parameters.
        """
        return None

    def redact(self, params: P) -> Mapping[str, Any] | None:  # noqa: ARG002
        """The parameters as approvers may see them; None (the default) hides what the model calls secret.

        It must be pure: the same parameters always give the same copy, and nothing else is looked
        at (clause H2.10). It may only leave out or shorten; a member that the model does not
        declare is refused.

        Parameters:
            params: the parameters.
        """
        return None
