"""Python's cyclic collector, for a process that does nothing but work."""

from __future__ import annotations

import gc
from typing import Final

_THRESHOLDS: Final = (20_000, 20, 50)


def calm_collector() -> None:
    """Let the collector look seldom, and never at what was there before the work began.

    A flow that ends leaves no circles, yet every 700 new objects make Python look through the young ones, and at times
    through all: a third of the processor time of one-step flows. `underseal worker` calls this; a process that embeds a
    runtime may, if it is alone in it, since it is the whole process's.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
