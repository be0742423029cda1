"""Markers and capabilities: what an event says is sealed in it, and what a node says it opens (M1, M3, M4).

``opens`` is the Python twin of ``underseal.seal_opens``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from underseal.errors import ShardSealingMismatchError

MARKER_VERSION: Final = 1

Capability: TypeAlias = dict[str, list[str]]
"""``{"ciphers": [...], "covers": [...]}``, both sorted, as the verbs take it."""


def marker(cipher: str, covers: Iterable[str]) -> dict[str, Any]:
    """The marker of an event in which these entries were sealed.

    Parameters:
        cipher: the one cipher of all its envelopes.
        covers: ``EVENT_TYPE.dot.path`` of each; sorted and deduplicated here.
    """
    return {"v": MARKER_VERSION, "cipher": cipher, "covers": sorted(set(covers))}


def opens(marker: object, capability: object) -> bool:
    """Whether a node with this capability may be handed what carries this marker.

    Parameters:
        marker: as it was stored; None for none, which makes no claim and opens for everybody (M15).
        capability: as it was declared; None opens nothing that has a marker (M16).
    """
    if marker is None:
        return True
    if not isinstance(marker, Mapping) or not isinstance(capability, Mapping):
        return False
    if (
        marker.keys() != {"v", "cipher", "covers"}
        or type(marker["v"]) is not int
        or marker["v"] != MARKER_VERSION
    ):
        return False
    covers = marker["covers"]
    if not isinstance(covers, list) or not covers or not all(isinstance(entry, str) for entry in covers):
        return False
    ciphers, paths = capability.get("ciphers"), capability.get("covers")
    if not isinstance(ciphers, list) or not isinstance(paths, list):
        return False
    return (
        isinstance(marker["cipher"], str) and marker["cipher"] in ciphers and all(c in paths for c in covers)
    )


def common_capability(capabilities: Sequence[Mapping[str, Sequence[str]] | None]) -> Capability | None:
    """The capability of several databases that are used as one; judged anew at every call (M4).

    Parameters:
        capabilities: what each database's client declares now; None for one that opens nothing.

    Returns:
        That capability where all declare the same; None where none declares any.

    Raises:
        ShardSealingMismatchError: anything else.
    """
    shown = {
        None if one is None else (frozenset(one["ciphers"]), frozenset(one["covers"])) for one in capabilities
    }
    if len(shown) > 1:
        raise ShardSealingMismatchError(capabilities)
    same = next(iter(shown), None)
    return None if same is None else {"ciphers": sorted(same[0]), "covers": sorted(same[1])}
