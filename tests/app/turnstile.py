"""A plugin whose answers at Permit and PreBind a test gives."""

from __future__ import annotations

from typing import Any

from scheduler.framework.instructions import WaitUntil
from scheduler.framework.permit import PermitResult, WaitingPods
from scheduler.framework.status import SUCCESS, Code, Status, unschedulable


class Turnstile:
    """Pods labelled ``turnstile`` wait (``wait``: 30 s, ``brief``: 0.2 s), are refused (``closed``), or wait at PreBind
    (``queue``) until ``opened``.
    """

    name = "tests.app.turnstile:Turnstile"
    waiting: WaitingPods
    opened = False
    told: tuple[str, ...] = ()

    def __init__(self, handle: Any) -> None:
        type(self).waiting, type(self).opened, type(self).told = handle.waiting_pods, False, ()

    def permit(self, cycle: Any, node: str) -> PermitResult:
        """As the label says."""
        wish = cycle.pod.metadata.labels.get("turnstile")
        if wish == "closed":
            return PermitResult(unschedulable("the turnstile is closed"))
        if wish in ("wait", "brief"):
            return PermitResult(Status(Code.WAIT), 30.0 if wish == "wait" else 0.2)
        return PermitResult(SUCCESS)

    def pre_bind(self, cycle: Any, node: str) -> list[WaitUntil]:
        """As the label says."""
        if cycle.pod.metadata.labels.get("turnstile") != "queue":
            return []
        return [WaitUntil(lambda: "" if type(self).opened else None, 30.0, 0.02, "nobody opened")]

    def post_bind(self, cycle: Any, node: str) -> None:
        """Remember who was bound where."""
        type(self).told += (f"{cycle.pod.metadata.name} on {node}",)
