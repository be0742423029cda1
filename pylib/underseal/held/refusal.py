"""How a run says no to itself."""

from __future__ import annotations


class Refusal(Exception):  # noqa: N818 -- an answer, not an error
    """The run must not happen.

    Attributes:
        reason: what is recorded, in one hyphenated word.
        detail: what was found, for people; never a parameter.
    """

    def __init__(self, reason: str, detail: str) -> None:
        """Name the check and what it found."""
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail
