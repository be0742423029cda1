"""`make demo`: the main job, on a real Postgres and a real application database.

It starts a Postgres of its own, creates the service's database with its own Alembic history, installs Underseal on
it, and plays the scenes of scenes.py. `--scene N` plays one alone.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from examples.accounts.scenes import SCENES, searched_dump
from examples.accounts.stage import stage
from examples.accounts.tell import Teller
from underseal.foundation.server import THROWAWAY, embedded_server


@click.command()
@click.option("--scene", "only", type=click.IntRange(1, len(SCENES)), help="Play one scene alone.")
def demo(only: int | None) -> None:
    """Watch dangerous requests be held, approved by somebody else, and run once as their requester."""
    tell = Teller()
    ends: list[tuple[str, str, str]] = []
    with tempfile.TemporaryDirectory(prefix="underseal-demo-") as directory:
        place = Path(directory)
        with embedded_server(place / "data", THROWAWAY) as server, stage(server, place) as on:
            for number, (title, scene) in enumerate(SCENES.items(), start=1):
                if only in (None, number):
                    tell.scene(number, title, (scene.__doc__ or "").strip())
                    row = on.row(scene(on, tell))
                    ends.append((title, row["state"], row["outcome_reason"] or ""))
            tell.scene(len(SCENES) + 1, "The secret is nowhere", (searched_dump.__doc__ or "").strip())
            searched_dump(on, tell)
            tell.ends(ends)


if __name__ == "__main__":
    demo()
