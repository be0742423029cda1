"""Is what is installed the release that this package belongs to, and is it usable?"""

from __future__ import annotations

from collections.abc import Iterator

from underseal.doctor.look import CannotCheckError, Look
from underseal.doctor.model import Finding
from underseal.foundation.install import revisions

REPAIR = (
    "as the schema's owner run: delete from underseal.setting where key = 'bundle.digest'; "
    "then: underseal migrate, which puts everything back"
)
"""How functions, views and triggers come back although the installed release looks unchanged."""

_OLDEST, _NEWEST = 15, 18


def check_release(look: Look) -> Iterator[Finding]:
    """The revision of the tables, the digest of the files, whether the schema is usable, and the server's version."""
    revision, head = look.server["schema_revision"], revisions(look.kernel)[-1].revision
    if not look.server["usable"]:
        yield Finding(
            "error", "release", "schema-unusable", revision or "no revision",
            "expected a schema at the head revision, found one that stopped at an older one; no function can be called",
            "run: underseal migrate",
        )  # fmt: skip
    elif revision != head:
        yield Finding(
            "error", "release", "revision-differs", revision or "no revision",
            f"expected the tables at revision {head}, which this package was written for, found {revision}",
            "run underseal migrate with the newest package that uses this database, and upgrade the others",
        )  # fmt: skip
    elif differs(look):
        yield Finding(
            "error", "release", "release-differs", revision,
            "expected the functions of this package's release, found those of another; they were not compared",
            "run underseal migrate with the newest package that uses this database, and upgrade the others",
        )  # fmt: skip
    major = look.server["server_version"] // 10000
    if not _OLDEST <= major <= _NEWEST:
        yield Finding(
            "warning", "release", "server-version", str(major),
            f"expected Postgres {_OLDEST} to {_NEWEST}, found {major}, on which nothing has been tried",
            "use one of the versions that are supported",
        )  # fmt: skip


def differs(look: Look) -> bool:
    """Whether another release is installed; False where this login may not know.

    Parameters:
        look: the examination's view.
    """
    revision = look.server["schema_revision"]
    try:
        installed = look.settings.get("bundle.digest")
    except CannotCheckError:
        return False
    return installed is not None and installed != look.kernel.digest(revision)


def demand_same(look: Look) -> None:
    """Go on only if the files at hand are those of the installed release.

    Parameters:
        look: the examination's view.

    Errors:
        CannotCheckError: another release is installed, so that comparing would only list its changes.
    """
    if not look.server["usable"] or differs(look):
        raise CannotCheckError("the installed release is not this package's")
