"""Canonical JSON, its hash, and what a parameter schema says about both (clauses H1.1 to H1.6)."""

from underseal.canonical.fit import normalise, redact
from underseal.canonical.form import canonical_json, canonicalise
from underseal.canonical.hashing import SALT_BYTES, params_hash
from underseal.canonical.leak import redaction_leak
from underseal.canonical.limits import MAX_BYTES, MAX_DEPTH, MAX_INTEGER, MAX_TEXT_BYTES
from underseal.canonical.schema import check_schema, hides, schema_flaw

__all__ = [
    "MAX_BYTES",
    "MAX_DEPTH",
    "MAX_INTEGER",
    "MAX_TEXT_BYTES",
    "SALT_BYTES",
    "canonical_json",
    "canonicalise",
    "check_schema",
    "hides",
    "normalise",
    "params_hash",
    "redact",
    "redaction_leak",
    "schema_flaw",
]
