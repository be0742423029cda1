"""Alembic's entry: everything it does is in `underseal.foundation.install`, which a host can call without Alembic."""

from __future__ import annotations

from alembic import context

from underseal.foundation.environment import run

run(context)
