"""The collector of a process that does nothing but work."""

from __future__ import annotations

import subprocess
import sys

_ASK = """
import gc
from underseal.worker.collector import calm_collector
calm_collector()
print(gc.get_threshold()[0] > 10_000, gc.get_freeze_count() > 1_000, gc.isenabled())
"""


def test_the_collector_looks_seldom_and_still_looks() -> None:
    done = subprocess.run([sys.executable, "-c", _ASK], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True", "True"]


def test_a_worker_calms_it_before_it_works() -> None:
    ask = (
        "import gc\n"
        "from unittest.mock import patch\n"
        "from underseal.worker.service import Worker\n"
        "from underseal.cli import main\n"
        "def run(self): print('threshold', gc.get_threshold()[0])\n"
        "with patch.object(Worker, 'run', run), patch('underseal.cli.worker.connect'), "
        "patch('underseal.cli.worker.demand_usable'), patch('underseal.cli.worker._demand_access'), "
        "patch('underseal.cli.worker.needed_ring') as ring:\n"
        "    from underseal import MemoryKeyRing\n"
        "    ring.return_value = MemoryKeyRing()\n"
        "    main(['worker', '--dsn', 'dbname=nowhere'], standalone_mode=False)\n"
    )
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True)
    assert "threshold 20000" in done.stdout
