"""What somebody outside measures of a profile's plugins. The core has no clock: ``Timings`` brings one, or nothing.

Source: kube-scheduler 1.37, framework metrics (spec 11.1): durations per extension point in every cycle, per plugin in
one cycle of ten, and how many Pods or nodes each plugin was asked about.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any


class PluginTimer:
    """Measures single plugin calls of one cycle: ``clock`` in seconds; ``took(plugin, point, status, seconds)``."""

    __slots__ = ("clock", "took")

    def __init__(self, clock: Callable[[], float], took: Callable[[str, str, str, float], None]) -> None:
        self.clock, self.took = clock, took


class Timings:
    """Measures nothing. ``clock``: seconds from any start, 0.0 here."""

    def clock(self) -> float:
        """Now."""
        return 0.0

    def sample(self) -> PluginTimer | None:
        """A cycle begins; a timer when its plugins are to be measured one by one."""
        return None

    def point(self, point: str, status: str, began: float) -> None:
        """All plugins of ``point`` have run, since ``began`` of this clock; ``status``: a code's label."""

    def waited(self, drivers: Iterable[str], status: str, began: float) -> None:
        """Binding conditions of the devices of ``drivers`` were waited for: success, failure, timeout or error."""

    def asked(self, point: str, skipped: Collection[str], count: int, refused: Iterable[tuple[str, int]] = ()) -> None:
        """The plugins of ``point`` that are not ``skipped`` were asked about ``count`` Pods or nodes, in their order.

        ``refused``: (plugin, how many it refused), which those after it were not asked about. Once per point, so that
        counting costs next to nothing.
        """


NO_TIMINGS = Timings()


def status_label(answer: Any) -> str:
    """The status label of what a plugin answered: arrays and None mean Success."""
    status = getattr(answer, "status", answer)
    code = getattr(status, "code", None)
    return "Success" if code is None else str(code.label)
