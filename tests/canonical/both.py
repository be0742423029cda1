"""One question put to SQL and to Python, so that tests compare the two answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from underseal.canonical import canonical_json, canonicalise, normalise, redact
from underseal.errors import CanonicalError
from underseal.testing import DictConnection

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "vectors" / "canonical.json").read_text(encoding="utf-8")
)


@dataclass(frozen=True)
class Answer:
    """A canonical text, or what was refused and how."""

    text: str | None
    reason: str | None = None
    path: str | None = None
    message: str | None = None


def expand(given: str | list[list[Any]]) -> str:
    """Write out the input of a vector."""
    return given if isinstance(given, str) else "".join(text * times for text, times in given)


def ask_python(call: Callable[[], str]) -> Answer:
    """The answer of a Python function."""
    try:
        return Answer(call())
    except CanonicalError as refused:
        return Answer(None, refused.reason, refused.path, str(refused))


def python_canonical(text: str) -> Answer:
    """Python's canonical form of JSON text."""
    return ask_python(lambda: canonicalise(text))


def python_fitted(schema: dict[str, Any], text: str, redacting: bool) -> Answer:
    """Python's normal or redacted form of JSON text."""

    def fit() -> str:
        plain = json.loads(canonicalise(text))
        return canonical_json(redact(schema, plain) if redacting else normalise(schema, plain))

    return ask_python(fit)


_ASKING = """
create or replace function pg_temp.ask(which text, schema jsonb, params text) returns text[] language plpgsql as $$
declare
  detail jsonb;
begin
  return array[case which
    when 'canonical' then underseal.canonical_json(params)
    when 'normalise' then underseal.normalise_params(schema, params)
    else underseal.redact_params(schema, params) end];
exception
  when sqlstate 'US010' then
    get stacked diagnostics which = message_text, params = pg_exception_detail;
    detail := params;
    return array[null, detail ->> 'reason', detail ->> 'path', which];
end
$$
"""


def ask_sql(
    db: DictConnection, which: str, texts: Sequence[str], schemas: Sequence[dict[str, Any]] | None = None
) -> list[Answer]:
    """SQL's answers, all from one query: `which` is canonical, normalise or redact."""
    db.execute(_ASKING)
    rows = db.execute(
        "select pg_temp.ask(%s, asked.schema::jsonb, asked.params) as answer"
        " from unnest(%s::text[], %s::text[]) with ordinality as asked (schema, params, at) order by asked.at",
        [which, [json.dumps(schema) for schema in schemas or [{}] * len(texts)], list(texts)],
    ).fetchall()
    return [Answer(*row["answer"]) for row in rows]
