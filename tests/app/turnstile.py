"""A Permit plugin whose answers a test gives."""

from __future__ import annotations

from typing import Any

from scheduler.framework.permit import PermitResult, WaitingPods
from scheduler.framework.status import SUCCESS, Code, Status, unschedulable


class Turnstile:
    """Pods labelled ``turnstile`` wait (``wait``: 30 s, ``brief``: 0.2 s) or are refused (``closed``)."""

    name = "tests.app.turnstile:Turnstile"
    waiting: WaitingPods

    def __init__(self, handle: Any) -> None:
        type(self).waiting = handle.waiting_pods

    def permit(self, cycle: Any, node: str) -> PermitResult:
        """As the label says."""
        wish = cycle.pod.metadata.labels.get("turnstile")
        if wish == "closed":
            return PermitResult(unschedulable("the turnstile is closed"))
        if wish in ("wait", "brief"):
            return PermitResult(Status(Code.WAIT), 30.0 if wish == "wait" else 0.2)
        return PermitResult(SUCCESS)
