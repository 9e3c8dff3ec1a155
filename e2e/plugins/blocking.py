"""A score plugin that blocks the whole loop, as a user's mistake would (a synchronous call that hangs)."""

from __future__ import annotations

import time
from typing import Any


class Blocking:
    """For Pods labelled ``block=yes`` sleeps as long as its argument ``seconds`` says, giving the loop no chance."""

    name = "Blocking"

    def __init__(self, handle: Any) -> None:
        self.seconds = float(handle.arguments.get("seconds", 0))

    def score_node(self, cycle: Any, node: Any) -> int:
        """Every node gets the same."""
        if self.seconds and cycle.pod.metadata.labels.get("block") == "yes":
            time.sleep(self.seconds)
        return 50
