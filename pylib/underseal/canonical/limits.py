"""The limits of canonical JSON (clauses H1.2, H1.6); SQL and Python have the same."""

from __future__ import annotations

MAX_BYTES = 65_536
"""Most bytes of canonical text (UTF-8)."""

MAX_TEXT_BYTES = 6 * MAX_BYTES
"""Most bytes of the JSON text that is handed in: the largest canonical text, all of it written as `\\uXXXX`."""

MAX_DEPTH = 64
"""Most levels of objects and arrays inside each other; the top level is the first."""

MAX_INTEGER = 2**53 - 1
"""The largest integer on either side of zero that every JSON library reads as itself."""

MAX_SHOWN_PATH = 512
"""Most characters of a pointer that an error shows."""
