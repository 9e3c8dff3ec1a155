"""A PreBind plugin that holds each Binding until our own watch has shown a foreign Pod on a node."""

from __future__ import annotations

from typing import Any

from scheduler.framework.instructions import WaitUntil


class Patient:
    """Waits for a placed Pod of another scheduler; from then on it lets every Pod pass at once."""

    name = "Patient"

    def __init__(self, handle: Any) -> None:
        self.handle = handle

    def pre_bind(self, cycle: Any, node: str) -> list[WaitUntil]:
        """See the class."""

        def seen() -> str | None:
            placed = cycle.state.placements.values()
            foreign = any(one.info.pod.spec.schedulerName != cycle.pod.spec.schedulerName for one in placed)
            return "" if foreign else None

        return [WaitUntil(seen, timeout_s=60.0, interval_s=0.05, timeout_text="no foreign pod was seen")]
