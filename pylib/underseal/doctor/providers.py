"""Are the types that an application gates registered as it gates them?"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from underseal.doctor.look import CannotCheckError, Look
from underseal.doctor.model import Finding
from underseal.foundation.steps import drive
from underseal.held.kinds import PythonKind
from underseal.held.model import OperationType
from underseal.held.verbs import types

_REGISTER = "with the schema owner's connection run: underseal types register --app …"


def check_providers(look: Look, kinds: Mapping[str, PythonKind] | None) -> Iterator[Finding]:
    """Each gated type is registered, in force, armed, and says the same as the provider."""
    registered = drive(look.connection, types())
    yield from _armed(registered)
    if kinds is None:
        raise CannotCheckError(
            "comparing types with their providers takes the application: --app module:attribute"
        )
    by_version = {(one.type, one.version): one for one in registered}
    in_force = {one.type: one for one in registered if one.current}
    for kind in kinds.values():
        label = f"{kind.type} version {kind.version}"
        found = by_version.get((kind.type, kind.version))
        if found is None:
            yield Finding(
                "error", "providers", "type-unregistered", label,
                f"expected {label}, gated by this application, to be registered, found it is not; requests are refused",
                _REGISTER,
            )  # fmt: skip
            continue
        if in_force[kind.type].version != kind.version:
            yield Finding(
                "error", "providers", "version-behind", label,
                f"expected {label} to be in force, found version {in_force[kind.type].version}: requests are refused",
                "deploy the release of the application that has the newer version",
            )  # fmt: skip
        yield from _drift(kind, found, label)


def _armed(registered: list[OperationType]) -> Iterator[Finding]:
    for one in registered:
        if one.current and not one.armed:
            yield Finding(
                "note", "providers", "type-disarmed", f"{one.type} version {one.version}",
                f"{one.type} version {one.version} is switched off: requests and runs are refused",
                f"once it is meant to run again: underseal types arm {one.type} {one.version}",
            )  # fmt: skip


def _drift(kind: PythonKind, found: OperationType, label: str) -> Iterator[Finding]:
    if (kind.mode, kind.schema, kind.salted) != (found.mode, found.parameters, found.salted):
        yield Finding(
            "error", "providers", "type-differs", label,
            f"expected {label} registered with the mode, parameters and redaction of its provider, found others",
            f"a registered version stays as it is: raise the provider's version, then {_REGISTER}",
        )  # fmt: skip
    if _policy(json.loads(kind.provider.policy.as_json())) != _policy(json.loads(found.policy)):
        yield Finding(
            "warning", "providers", "policy-differs", label,
            f"expected the policy of {label} as its provider has it, found another in force",
            f"if the provider's is meant, {_REGISTER}",
        )  # fmt: skip


def _policy(policy: dict[str, Any]) -> dict[str, Any]:
    """A policy without what makes no difference: absent members, the order of approvers."""
    said = {name: value for name, value in policy.items() if value is not None}
    if "approvers" in said:
        said["approvers"] = sorted(set(said["approvers"]))
    return said
