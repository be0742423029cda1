"""The demo is run as a stranger runs it; each scene demands its own end, so its exit code tells."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from examples.accounts.scenes import SCENES

ROOT = Path(__file__).parents[2]


def test_the_demo_plays_every_scene_to_its_promised_end() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "examples.accounts.demo"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "pylib")])},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for number, title in enumerate(SCENES, start=1):
        assert f"{number}  {title}" in done.stdout
    assert "neither the passphrase nor the token is anywhere" in done.stdout
