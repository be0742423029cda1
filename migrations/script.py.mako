"""${message}"""

from __future__ import annotations

from underseal.foundation.environment import execute_script

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}


def upgrade() -> None:
    execute_script("""
""")


def downgrade() -> None:
    execute_script("""
""")
