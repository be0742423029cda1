"""How long a poll loop waits before it looks again."""

from __future__ import annotations


class Pace:
    """Soon while there is work, ever later while there is none, and patient with a database that is away."""

    def __init__(self, shortest: float, longest: float) -> None:
        """Set the bounds.

        Parameters:
            shortest: seconds to wait after a look that found work.
            longest: seconds that the wait grows to, by doubling.
        """
        self._shortest = shortest
        self._longest = longest
        self._wait = shortest

    def worked(self) -> float:
        """The wait after a look that found something."""
        self._wait = self._shortest
        return self._wait

    def idled(self) -> float:
        """The wait after a look that found nothing."""
        self._wait = min(self._longest, self._wait * 2)
        return self._wait

    def failed(self) -> float:
        """The wait after a look that failed."""
        return self.idled()
