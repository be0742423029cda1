"""The tables of the first release.

Their SQL stands beside this file: a copy of sql/*/tables.sql made by `make freeze`, final once 0.1.0 is released.
"""

from __future__ import annotations

from pathlib import Path

from underseal.foundation.environment import execute_script

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create every table."""
    execute_script(Path(__file__).with_suffix(".sql").read_text())


def downgrade() -> None:
    """Nothing here: below the first revision the whole schema goes, after Alembic has written its last row in it."""
