"""SchedulingGates: a Pod with gates stays out of the active queue."""

from __future__ import annotations

from collections.abc import Sequence

from plugins.base import PluginBase
from scheduler.api.core import Pod
from scheduler.framework.events import Action, Registration, Resource
from scheduler.framework.status import SUCCESS, Status, unresolvable


class SchedulingGates(PluginBase):
    """Source: kube-scheduler 1.37, SchedulingGates (spec 3.1)."""

    name = "SchedulingGates"

    def pre_enqueue(self, pod: Pod) -> Status:
        """Unresolvable while spec.schedulingGates is not empty."""
        if not pod.spec.schedulingGates:
            return SUCCESS
        gates = " ".join(gate.name for gate in pod.spec.schedulingGates)
        return unresolvable(f"waiting for scheduling gates: [{gates}]")

    def events(self) -> Sequence[Registration]:
        """The last gate went."""
        return (Registration(Resource.TARGET_POD, Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED),)
