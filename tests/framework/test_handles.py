"""A process without a free file handle goes on deciding: nothing is imported in the middle of an attempt."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import sys
import scheduler.framework.runner, scheduler.framework.vectors
import numpy as np
known = set(sys.modules)
np.unique(np.arange(5000) % 7)
np.unique(np.arange(5000) % 7, return_index=True)
np.isin(np.arange(5000) * 100_003, np.arange(4000) * 7)
print(sorted(set(sys.modules) - known))
"""


def test_numpy_loads_nothing_at_its_first_call() -> None:
    """Found by chaos: numpy.ma was loaded by the first np.unique, while no handle was left."""
    found = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
