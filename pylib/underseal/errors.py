"""Every error that Underseal raises, and the table of its SQLSTATEs.

An expected "no" of the database (a conflict, a denial) is not here: it comes back as an *outcome*.
Errors are for malformed calls, broken invariants and requests that must not be mistaken for done.
No message holds a parameter, a key or the plaintext of a seal.
"""

# The names say what happened; a suffix would add nothing to AccessDenied.
# ruff: noqa: N818

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Literal

SQLSTATES: Mapping[str, str] = MappingProxyType(
    {
        "US001": "malformed argument",
        "US002": "illegal state transition",
        "US003": "immutable column",
        "US004": "append-only table",
        "US005": "no event beside a change of state",
        "US006": "payload rule",
        "US007": "retention rule",
        "US008": "wrong isolation level; READ COMMITTED is needed",
        "US009": "schema unusable: it stopped at an older revision",
        "US010": "canonical JSON refused",
        "US011": "a hook of the host refused or failed",
        "US012": "access misconfigured",
        "US013": "key or seal of the wrong shape",
    }
)
"""SQLSTATE → what it means; every one that the schema raises (docs/errors.md says what to do)."""


class UndersealError(Exception):
    """The base of all of ours.

    Attributes:
        code: one hyphenated word that stays the same from release to release.
    """

    code: str = "error"


class KernelError(UndersealError):
    """The schema raised one of its own SQLSTATEs.

    Attributes:
        sqlstate: the SQLSTATE, a key of `SQLSTATES`.
        code: the same, for uniform handling.
    """

    def __init__(self, sqlstate: str, message: str) -> None:
        """Keep the database's own words.

        Parameters:
            sqlstate: the five characters.
            message: the primary message of the database.
        """
        super().__init__(f"{message} [{sqlstate}: {SQLSTATES.get(sqlstate, 'unknown')}]")
        self.sqlstate = sqlstate
        self.code = sqlstate


class CanonicalError(UndersealError):
    """A value has no canonical form (clauses H1.2, H1.6).

    Attributes:
        reason: the rule that refused it, in one hyphenated word.
        path: RFC 6901 pointer to the offender; empty for the whole value.
    """

    code = "canonical-refused"

    def __init__(self, reason: str, path: str, message: str | None = None) -> None:
        """Name rule and place.

        Parameters:
            reason: one hyphenated word.
            path: RFC 6901 pointer.
            message: a whole sentence, if the default does not say enough.
        """
        super().__init__(message or f"canonical JSON refused: {reason} at {path or 'the top level'}")
        self.reason = reason
        self.path = path


SealReason = Literal[
    "key-unavailable",
    "key-destroyed",
    "malformed",
    "unsupported",
    "does-not-open",
    "not-sealed",
    "marker-unopenable",
    "subject-erasing",
]


class SealError(UndersealError):
    """A seal was not made or not opened; says nothing about what is inside (clauses H2.3, H2.4, H2.11, M19).

    Attributes:
        reason: `key-unavailable` (the key is not here), `key-destroyed` (it was destroyed, for good),
            `malformed` (not an envelope, or not the arguments of one), `unsupported` (a cipher, version,
            format or purpose that is not accepted there), `does-not-open` (the key is here, and the seal is
            not what it claims to be), `not-sealed` (a value is readable that must be sealed, M20),
            `marker-unopenable` (the capability does not open what the event's marker names, M3) or `subject-erasing`
            (the subject is being erased, or was: nothing is sealed for it any more, X2).
        key_id: id of the key that the seal names, where it is known; never the key.
    """

    code = "seal"

    def __init__(self, reason: SealReason, message: str | None = None, key_id: str | None = None) -> None:
        """Name the cause.

        Parameters:
            reason: one of the words above.
            message: a whole sentence, without anything secret.
            key_id: id of the key concerned.
        """
        super().__init__(message or f"the seal was refused: {reason}")
        self.reason: SealReason = reason
        self.key_id = key_id


class KeyRingError(SealError):
    """A key ring cannot be used as it is: a loose mode, a foreign owner, a damaged file (clauses X9, X10).

    Its reason is always `key-unavailable`: a ring that cannot be read never looks like an erasure.
    """

    code = "key-ring"

    def __init__(self, message: str) -> None:
        """Name the fault.

        Parameters:
            message: what was expected, what was found and what to do; no secret.
        """
        super().__init__("key-unavailable", message)


class KeyStoreError(SealError):
    """A key store cannot answer: it is missing, loose, damaged, another's, or its master does not open (X9, X10).

    Its reason is always `key-unavailable`: whatever is wrong with a store never looks like an erasure.
    """

    code = "key-store"

    def __init__(self, message: str, key_id: str | None = None) -> None:
        """Name the fault.

        Parameters:
            message: what was expected, what was found and what to do; no secret.
            key_id: id of the key concerned, if it is one key's fault.
        """
        super().__init__("key-unavailable", message, key_id)


class SubjectErasingError(SealError):
    """A subject is being erased, or was: it gets no key any more, and nothing is sealed for it (clause X2).

    Attributes:
        subject: which.
    """

    code = "subject-erasing"

    def __init__(self, subject: str) -> None:
        """Name the subject.

        Parameters:
            subject: which.
        """
        super().__init__(
            "subject-erasing",
            f"subject {subject!r} is being erased or was erased; whoever comes back gets a subject of another name",
        )
        self.subject = subject


class KeyUnavailableError(SealError):
    """The key of a sealed value is not here, or another is here in its place; no erasure (clauses M14, X10)."""

    code = "key-unavailable"

    def __init__(self, key_id: str | None = None) -> None:
        """Name the key.

        Parameters:
            key_id: id of the key that the seal names.
        """
        named = f" (key {key_id})" if key_id is not None else ""
        super().__init__(
            "key-unavailable",
            f"the key of this seal is not here; run it where the key store has it{named}",
            key_id,
        )


class PayloadShreddedError(SealError):
    """What was sealed is erased for good: the key store destroyed the key, or the log has the proof (clause M14)."""

    code = "payload-shredded"

    def __init__(self, key_id: str | None = None) -> None:
        """Name the key.

        Parameters:
            key_id: id of the key that the seal names.
        """
        super().__init__("key-destroyed", "what was sealed here has been erased for good", key_id)


class SnapshotUndecryptableError(SealError):
    """A snapshot's seal does not open where it was found: copied, rolled back, changed or unmarked (clause S2).

    Never an erasure. Its reason is `does-not-open`.
    """

    code = "snapshot-undecryptable"

    def __init__(self, message: str, key_id: str | None = None) -> None:
        """Say what is wrong.

        Parameters:
            message: a whole sentence, nothing of the cipher's own.
            key_id: id of the key that the seal names, where it names one.
        """
        super().__init__("does-not-open", message, key_id)


class PlaintextSnapshotRefusedError(SealError):
    """A snapshot is readable where `legacy_plaintext` is `refuse` (clause S3). Its reason is `not-sealed`."""

    code = "plaintext-snapshot"

    def __init__(self, execution_id: str) -> None:
        """Name the execution.

        Parameters:
            execution_id: whose snapshot it is.
        """
        super().__init__(
            "not-sealed",
            f"expected a sealed snapshot of {execution_id}, found a readable one, and legacy_plaintext is 'refuse'",
        )
        self.execution_id = execution_id


class ShardSealingMismatchError(UndersealError):
    """Databases that are used as one do not open the same (clause M4).

    Attributes:
        capabilities: the capability of each, in their order; None for one that opens nothing.
    """

    code = "shard-sealing-mismatch"

    def __init__(self, capabilities: Sequence[Mapping[str, Sequence[str]] | None]) -> None:
        """Keep what each declares: ciphers and paths, nothing of keys.

        Parameters:
            capabilities: in their order.
        """
        shown = "; ".join(f"{place}: {_shown(one)}" for place, one in enumerate(capabilities))
        super().__init__(f"expected all databases to open the same, found {shown}")
        self.capabilities = tuple(capabilities)


def _shown(capability: Mapping[str, Sequence[str]] | None) -> str:
    if capability is None:
        return "nothing"
    return f"{', '.join(capability['covers'])} under {', '.join(capability['ciphers'])}"


class ProviderRefused(UndersealError):
    """A provider cannot be registered as it is (clauses H1.5, H6.10).

    Attributes:
        reason: one hyphenated word, `float-parameter` for instance.
        path: RFC 6901 pointer into the parameters' JSON Schema, where there is a place.
    """

    code = "provider-refused"

    def __init__(self, reason: str, message: str, path: str = "") -> None:
        """Name the rule, and the place in the schema.

        Parameters:
            reason: one hyphenated word.
            message: what was found and what to do.
            path: RFC 6901 pointer.
        """
        super().__init__(message)
        self.reason = reason
        self.path = path


class ParametersRefused(UndersealError):
    """The arguments are no valid parameters of the type; holds places and rules, never values.

    Attributes:
        faults: pairs of RFC 6901 pointer and rule.
    """

    code = "parameters-refused"

    def __init__(self, message: str, faults: Sequence[tuple[str, str]] = ()) -> None:
        """Name the places.

        Parameters:
            message: what was expected.
            faults: pairs of pointer and rule.
        """
        listed = "; ".join(f"{path or 'the top level'}: {rule}" for path, rule in faults)
        super().__init__(f"{message}: {listed}" if listed else message)
        self.faults = tuple(faults)


class RequestRefused(UndersealError):
    """A request was neither held nor run; nothing of it has happened.

    It is an error and not an outcome, so that no caller of a gated method can mistake it for done.

    Attributes:
        reason: why, in one hyphenated word, `provider-disarmed` for instance.
    """

    code = "request-refused"

    def __init__(self, reason: str, message: str) -> None:
        """Name the cause.

        Parameters:
            reason: one hyphenated word.
            message: a whole sentence.
        """
        super().__init__(message)
        self.reason = reason


class PermissionDenied(UndersealError, PermissionError):
    """Raise this from a gated method's body when the principal may not do it (clause H6.8).

    A run that ends in it, or in the built-in `PermissionError`, is REFUSED `permission-denied`.
    """

    code = "permission-denied"


class ReplayRefused(UndersealError):
    """A gated method was called under a replay that does not fit it (clause H6.6).

    Attributes:
        reason: `arguments-differ`, `principal-differs` or `ticket-refused`.
    """

    code = "replay-refused"

    def __init__(self, reason: str, message: str) -> None:
        """Name the cause.

        Parameters:
            reason: one of the words above.
            message: a whole sentence, without arguments.
        """
        super().__init__(message)
        self.reason = reason


class OutcomeUnknown(UndersealError):
    """A gated BY_REQUESTER call ran, and its end could not be recorded in time: nobody knows how far it got (H8).

    Attributes:
        reason: `lease-lost`, or why else the run was not the caller's any more.
    """

    code = "outcome-unknown"

    def __init__(self, reason: str, message: str) -> None:
        """Name the cause.

        Parameters:
            reason: one hyphenated word.
            message: a whole sentence.
        """
        super().__init__(message)
        self.reason = reason


class AccessDenied(UndersealError):
    """The database login may not act for the principal named, or has not the access the call needs (clause E13).

    Attributes:
        reason: `no-principal`.
    """

    code = "access-denied"

    def __init__(self, reason: str, message: str) -> None:
        """Name the cause.

        Parameters:
            reason: one hyphenated word.
            message: the database's own sentence.
        """
        super().__init__(message)
        self.reason = reason


class UnknownConsumer(UndersealError):
    """No consumer of the outbox is registered under this name; register it first."""

    code = "unknown-consumer"


class ExecutionAlreadyExistsError(UndersealError):
    """The id that was chosen for an execution is taken, whoever may read what has it (clauses E3, M13).

    Attributes:
        execution_id: the id.
    """

    code = "execution-exists"

    def __init__(self, execution_id: str, message: str) -> None:
        """Name the id.

        Parameters:
            execution_id: the id.
            message: the database's own sentence.
        """
        super().__init__(message)
        self.execution_id = execution_id


class ExecutionDeniedError(UndersealError):
    """A principal may not do this to this execution, or there is none: both read the same (clauses E12, M8).

    Attributes:
        op: what was asked: `read`, `send`, `resume`, `cancel`, `fork`, `outcome`, `discard`, `compact` or `delete`.
        execution_id: the id as it was given.
        reason: the one word that every denial has.
    """

    code = "execution-denied"

    def __init__(self, op: str, execution_id: str, reason: str, message: str) -> None:
        """Name the operation and the execution, and no cause.

        Parameters:
            op: what was asked.
            execution_id: the id as it was given.
            reason: the database's one word.
            message: the database's one sentence.
        """
        super().__init__(message)
        self.op = op
        self.execution_id = execution_id
        self.reason = reason


class ExecutionRefusedError(UndersealError):
    """A call about executions was refused as it was asked; nothing of it has happened.

    Attributes:
        reason: one hyphenated word, `malformed-flow`, `too-large`, `compacted` or `foreign-cursor` for instance.
    """

    code = "execution-refused"

    def __init__(self, reason: str, message: str) -> None:
        """Name the cause.

        Parameters:
            reason: one hyphenated word.
            message: the database's own sentence, without a payload.
        """
        super().__init__(message)
        self.reason = reason


class InboxMessageRefusedError(UndersealError):
    """A message was refused before anything was written (clause G13).

    Attributes:
        execution_id: to whom it was sent.
        topic: the topic; `$gate/<name>` for an answer to a gate.
        reason: `envelope`, `too-large`, `malformed-topic`, `malformed-id`, `malformed-expiry`…
    """

    code = "message-refused"

    def __init__(self, execution_id: str, topic: str, reason: str, message: str) -> None:
        """Name the place and the cause, and nothing of the message.

        Parameters:
            execution_id: to whom it was sent.
            topic: the topic.
            reason: one hyphenated word.
            message: the database's own sentence.
        """
        super().__init__(message)
        self.execution_id = execution_id
        self.topic = topic
        self.reason = reason


class InboxFullError(InboxMessageRefusedError):
    """The topic holds as many messages as it may; other topics still take some (clause I4). Send it again later."""

    code = "inbox-full"


class StepError(UndersealError):
    """A step of a flow failed for good. Live and at a replay it is this, whatever the step raised (clause E5).

    Attributes:
        step: the step's name.
        type: the class of what the step raised, by its name.
        error: the recorded object: `type`, `message`, and `traceback` where it is kept.
    """

    code = "step-failed"

    def __init__(self, step: str, error: Mapping[str, object]) -> None:
        """Keep what was recorded.

        Parameters:
            step: the step's name.
            error: the recorded object.
        """
        super().__init__(f"{step}: {error.get('type')}: {error.get('message')}")
        self.step = step
        self.type = str(error.get("type"))
        self.error = dict(error)


class _EndedBadly(UndersealError):
    """What an execution's bad end has in common, whoever waited for it."""

    _what: str

    def __init__(self, execution_id: str, status: str, error: Mapping[str, object] | None) -> None:
        """Keep how it ended.

        Parameters:
            execution_id: which.
            status: its status.
            error: its recorded error.
        """
        said = f": {error.get('type')}: {error.get('message')}" if error else ""
        super().__init__(f"{self._what} {execution_id} ended {status}{said}")
        self.execution_id = execution_id
        self.status = status
        self.error = dict(error) if error else None


class ChildFailed(_EndedBadly):
    """A child execution did not complete.

    Attributes:
        execution_id: which.
        status: `failed` or `cancelled`; `not-carried-over` in a flow that goes on from another's state.
        error: what it ended with, None for a cancelled one.
    """

    code = "child-failed"

    _what = "child"


class HoldEnded(UndersealError):
    """A held operation that a flow waited for did not succeed.

    Attributes:
        operation_id: which, as text.
        state: REJECTED, CANCELLED, EXPIRED, REFUSED, FAILED or OUTCOME_UNKNOWN; NOT_CARRIED_OVER in a flow that goes on
            from another's state.
        reason: the recorded word or sentence, if there is one.
    """

    code = "hold-ended"

    def __init__(self, operation_id: str, state: str, reason: str | None) -> None:
        """Keep how it ended.

        Parameters:
            operation_id: which.
            state: its state.
            reason: why.
        """
        super().__init__(f"held operation {operation_id} ended {state}" + (f" ({reason})" if reason else ""))
        self.operation_id = operation_id
        self.state = state
        self.reason = reason


class FlowError(UndersealError):
    """A flow was written or called wrongly; the message says what was expected."""

    code = "flow"


class ExecutionFailed(_EndedBadly):
    """An execution whose result was waited for has failed or was cancelled.

    Attributes:
        execution_id: which.
        status: `failed` or `cancelled`.
        error: the recorded object, None for a cancelled one.
    """

    code = "execution-failed"

    _what = "execution"
