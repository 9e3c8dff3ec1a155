"""Services and controllers by namespace, and the selector they give a Pod without spread constraints of its own.

Source: kube-scheduler 1.37, plugins/helper (spec 3.11.1).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from scheduler.api.changes import Change
from scheduler.api.core import Pod
from scheduler.api.selectors import LabelSelector, SelectorError
from scheduler.api.workloads import REPLICATION_CONTROLLER, SERVICE, WORKLOADS, Service
from scheduler.state.topology_terms import Requirements, both, requirements_of

WORKLOAD_KINDS = frozenset(kind.name for kind in WORKLOADS)
_CONTROLLERS = {(kind.api_version, kind.name): kind.name for kind in WORKLOADS if kind is not SERVICE}


class WorkloadState:
    """The newest Services, ReplicationControllers, ReplicaSets and StatefulSets."""

    def __init__(self) -> None:
        self._services: dict[str, dict[str, Service]] = {}
        self._controllers: dict[tuple[str, str, str], Any] = {}

    def apply(self, change: Change) -> None:
        """Take in one change of one of WORKLOAD_KINDS. O(1)."""
        gone = change.new is None
        metadata = (change.old if gone else change.new).metadata
        if change.kind.name == SERVICE.name:
            services = self._services.setdefault(metadata.namespace, {})
            if gone:
                services.pop(metadata.name, None)
            else:
                services[metadata.name] = change.new
            return
        key = (change.kind.name, metadata.namespace, metadata.name)
        if gone:
            self._controllers.pop(key, None)
        else:
            self._controllers[key] = change.new

    def objects(self) -> Iterator[tuple[str, Any]]:
        """Every object with the name of its kind."""
        for services in self._services.values():
            yield from ((SERVICE.name, service) for service in services.values())
        yield from ((kind, item) for (kind, _, _), item in self._controllers.items())

    def default_selector(self, pod: Pod) -> Requirements:
        """What selects the Pod's fellows; ``()`` when nothing does, which then spreads nothing.

        The selectors of all Services that select the Pod, merged, and that of its controller. A controller is looked
        up by kind, API version and name. Cost: the Services of the namespace.
        """
        labels = pod.metadata.labels
        merged: dict[str, str] = {}
        for service in self._services.get(pod.metadata.namespace, {}).values():
            selector = service.spec.selector
            if selector is not None and selector.items() <= labels.items():
                merged |= selector
        owner = pod.metadata.controller()
        kind = _CONTROLLERS.get((owner.apiVersion, owner.kind)) if owner is not None else None
        controller = None
        if owner is not None and kind is not None:
            controller = self._controllers.get((kind, pod.metadata.namespace, owner.name))
        if controller is None and not merged:
            return ()
        if controller is None:
            return requirements_of(LabelSelector(matchLabels=merged))
        if kind == REPLICATION_CONTROLLER.name:
            return requirements_of(LabelSelector(matchLabels=merged | (controller.spec.selector or {})))
        found = requirements_of(LabelSelector(matchLabels=merged))
        try:
            own = requirements_of(controller.spec.selector)
        except SelectorError:  # upstream ignores a controller whose selector cannot be read
            return found
        return found if own is None else both(found, own)
