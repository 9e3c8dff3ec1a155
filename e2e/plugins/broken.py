"""A score plugin that breaks its contract; the Pod's label ``break`` says how."""

from __future__ import annotations

from typing import Any


class Broken:
    """``raise``: raises; ``range``: answers 101; otherwise 50."""

    name = "Broken"

    def __init__(self, handle: Any) -> None:
        self.handle = handle

    def score_node(self, cycle: Any, node: Any) -> int:
        """See the class."""
        how = cycle.pod.metadata.labels.get("break", "")
        if how == "raise":
            raise RuntimeError(f"cannot judge {node.name}")
        return 101 if how == "range" else 50
