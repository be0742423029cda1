"""What doctor says: findings, and what it could not look at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

Severity = Literal["error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that somebody should know.

    Attributes:
        severity: `error` (a promise does not hold, or a run cannot happen), `warning` (it will, or may) or `note`
            (as it was set up; look whether it is meant).
        check: the check that found it, in one hyphenated word.
        what: what is the matter, in one hyphenated word; stays the same from release to release.
        subject: what it is about: an operation, a function, a role.
        found: what was expected and what was found, in a sentence.
        fix: what to do.
    """

    severity: Severity
    check: str
    what: str
    subject: str
    found: str
    fix: str


@dataclass(frozen=True, slots=True)
class Skipped:
    """One check that could not be made.

    Attributes:
        check: its name.
        why: what was missing.
    """

    check: str
    why: str


@dataclass(frozen=True, slots=True)
class Report:
    """What one examination gave.

    Attributes:
        checked: names of the checks that were made.
        findings: the gravest first.
        skipped: the checks that were not made.
    """

    checked: Sequence[str] = field(default_factory=tuple)
    findings: Sequence[Finding] = field(default_factory=tuple)
    skipped: Sequence[Skipped] = field(default_factory=tuple)

    @property
    def healthy(self) -> bool:
        """Whether no finding is an error."""
        return all(one.severity != "error" for one in self.findings)
