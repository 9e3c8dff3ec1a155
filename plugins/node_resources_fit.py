"""NodeResourcesFit: the node has room for what the Pod requests; how much room is left (or used) is the score."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from plugins.base import CONTINUE, PluginBase
from plugins.device_counts import DeviceCounter
from plugins.fit_strategies import build_strategy
from plugins.resource_scoring import resource_uses, row_uses
from scheduler.api.core import Node, Pod
from scheduler.api.podrequests import CPU, EPHEMERAL_STORAGE, MEMORY, PODS, is_extended, is_scalar
from scheduler.api.resource import DeviceClass
from scheduler.framework.because import Because, resource_text
from scheduler.framework.cycle import Cycle
from scheduler.framework.events import Action, Registration, Resource
from scheduler.framework.plugin import Depends, Handle, PreFilterResult, Rows, Scores, Verdicts
from scheduler.framework.status import SUCCESS, Code, Status, VerdictTable, error, unresolvable
from scheduler.state.allocatable import node_allocatable
from scheduler.state.nodes import NodeTable
from scheduler.state.podinfo import pod_info

_BASIC = (CPU, MEMORY, EPHEMERAL_STORAGE)
_IMPLICIT_PREFIX = "deviceclass.resource.kubernetes.io/"
_BITS = 62
"""Failures of one row are bits of an int64."""


class NodeResourcesFit(PluginBase):
    """Source: kube-scheduler 1.37, NodeResourcesFit (spec 3.8).

    Arguments: ``ignoredResources`` and ``ignoredResourceGroups`` (extended resources that are not filtered),
    ``scoringStrategy`` (type, resources, requestedToCapacityRatio.shape).
    """

    name = "NodeResourcesFit"
    depends = Depends.PODS
    by_template = True

    def __init__(self, handle: Handle) -> None:
        super().__init__(handle)
        self._ignored = frozenset(handle.arguments.get("ignoredResources") or ())
        self._ignored_groups = frozenset(handle.arguments.get("ignoredResourceGroups") or ())
        self._strategy = build_strategy(handle.arguments.get("scoringStrategy") or {}, "scoringStrategy")
        self._devices = DeviceCounter(handle.state)
        self.verdicts = VerdictTable(self.name)

    def pre_filter(self, cycle: Cycle) -> PreFilterResult:
        """Never skipped: an empty Pod still counts. A quantity that is nonsense rejects the Pod everywhere."""
        problem = cycle.info.problem
        return CONTINUE if problem is None else PreFilterResult(unresolvable(str(problem)))

    def signature(self, cycle: Cycle) -> Hashable | None:
        """The requests; not kept where devices are counted for the score."""
        scored = cycle.info.scorer_requests()
        if any(is_scalar(resource.name) and scored.get(resource.name, 0) for resource in self._strategy.resources):
            return None
        return tuple(cycle.info.requests.items()), tuple(scored.items())

    def epoch(self, nodes: NodeTable) -> Hashable:
        """Which classes stand for extended resources."""
        version: int = self.state.devices.classes.version
        return version

    def filter_row(self, cycle: Cycle, nodes: NodeTable, row: int) -> int | None:
        """0 where there is room; what is missing elsewhere, ``filter`` says."""
        if nodes.pod_counts[row] >= nodes.allowed_pods[row]:
            return None
        for name, request in self._checked(cycle.info.requests):
            if request > int(nodes.allocatable(name)[row]) - int(nodes.requested(name)[row]):
                return None
        return 0

    def filter(self, cycle: Cycle, nodes: NodeTable, rows: Rows) -> Verdicts:
        """Rejects nodes without room, with every resource that is short.

        Unresolvable when some resource exceeds all that the node has: preemption cannot help. Cost: three numpy
        operations per requested resource.
        """
        reasons = ["Too many pods"]
        short = [nodes.pod_counts[rows] + 1 > nodes.allowed_pods[rows]]
        beyond = np.zeros(len(rows), np.bool_)
        for name, request in self._checked(cycle.info.requests):
            allocatable = nodes.allocatable(name)[rows]
            lacking = request > allocatable - nodes.requested(name)[rows]
            if self._delegated(name):
                lacking &= allocatable > 0
            if lacking.any():
                reasons.append(f"Insufficient {name}")
                short.append(lacking)
                beyond |= lacking & (request > allocatable)
        return self._verdicts_of(reasons, short, beyond)

    def because(self, cycle: Cycle, nodes: NodeTable, row: int) -> Iterator[Because]:
        """Every resource that is short, and by how much."""
        pods, allowed = int(nodes.pod_counts[row]), int(nodes.allowed_pods[row])
        if pods >= allowed:
            facts = {"resource": PODS, "asked": "1", "free": str(max(allowed - pods, 0)), "total": str(allowed)}
            yield Because(PODS, f"pods: {pods} of at most {allowed} are there", facts, pods + 1 - allowed)
        for name, asked in self._checked(cycle.info.requests):
            total = int(nodes.allocatable(name)[row])
            free = total - int(nodes.requested(name)[row])
            if asked <= free or (self._delegated(name) and total <= 0):
                continue
            told = {"asked": asked, "free": free, "total": total, "short by": asked - free}
            facts = {"resource": name, **{word: resource_text(name, amount) for word, amount in told.items()}}
            text = f"{name}: {facts['asked']} asked, {facts['free']} free of {facts['total']}"
            text += "" if asked <= total else ", which is more than the whole node has"
            yield Because(name, text, facts, asked - free)

    def pre_score(self, cycle: Cycle, nodes: NodeTable, rows: Rows) -> Status:
        """Only a check: without configured resources nothing can be scored."""
        return SUCCESS if self._strategy.resources else error("resources not found")

    def score(self, cycle: Cycle, nodes: NodeTable, rows: Rows) -> Scores:
        """The configured strategy over nodes plus Pod, both with defaults for silent containers."""
        requests, resources = cycle.info.scorer_requests(), self._strategy.resources
        uses = resource_uses(nodes, rows, resources, requests, self._devices, defaults=True)
        return self._strategy.score(uses, len(rows))

    def score_row(self, cycle: Cycle, nodes: NodeTable, row: int) -> int | None:
        """``score`` of one row, for the strategies that have a form for it."""
        requests, resources = cycle.info.scorer_requests(), self._strategy.resources
        uses = row_uses(nodes, row, resources, requests, defaults=True)
        return None if uses is None else self._strategy.score_row(uses)

    def events(self) -> Sequence[Registration]:
        """Something got free or larger, or a DeviceClass began to stand for a requested resource."""
        return (
            Registration(Resource.ASSIGNED_POD, Action.DELETE, _pod_left),
            Registration(Resource.NODE, Action.ADD | Action.UPDATE_NODE_ALLOCATABLE, self._node_has_room),
            Registration(Resource.DEVICE_CLASS, Action.ADD | Action.UPDATE, _class_stands_for_request),
            Registration(Resource.ASSIGNED_POD, Action.UPDATE_POD_SCALE_DOWN, _pod_shrank),
            Registration(Resource.TARGET_POD, Action.UPDATE_POD_SCALE_DOWN),
        )

    def _checked(self, requests: Mapping[str, int]) -> list[tuple[str, int]]:
        """Requests that are filtered: the basic ones in upstream's order, then scalars by name."""
        basic = [(name, requests[name]) for name in _BASIC if requests.get(name, 0) > 0]
        scalars = sorted((name, request) for name, request in requests.items() if request and is_scalar(name))
        return basic + [(name, request) for name, request in scalars if not self._is_ignored(name)]

    def _is_ignored(self, name: str) -> bool:
        if not is_extended(name):
            return False
        return name in self._ignored or name.partition("/")[0] in self._ignored_groups

    def _delegated(self, name: str) -> bool:
        """True when a DeviceClass stands for the resource: DynamicResources decides where the node has none."""
        return is_scalar(name) and self.state.devices.class_for_extended_resource(name) is not None

    def _verdicts_of(
        self, reasons: Sequence[str], short: Sequence[NDArray[np.bool_]], beyond: NDArray[np.bool_]
    ) -> Verdicts:
        """Rows with the same failures share a verdict."""
        failed = np.flatnonzero(np.logical_or.reduce(short))
        verdicts = np.zeros(len(beyond), np.int64)
        if not len(failed):
            return verdicts
        matrix = np.stack([*(column[failed] for column in short), beyond[failed]])
        if len(matrix) <= _BITS:
            keys = (matrix << np.arange(len(matrix), dtype=np.int64)[:, None]).sum(axis=0)
            _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
        else:
            _, first, inverse = np.unique(matrix, axis=1, return_index=True, return_inverse=True)
        ids = []
        for column in matrix[:, first].T.tolist():
            *lacking, unresolvable_here = column
            code = Code.UNSCHEDULABLE_AND_UNRESOLVABLE if unresolvable_here else Code.UNSCHEDULABLE
            ids.append(
                self.verdicts.intern(code, [r for r, is_short in zip(reasons, lacking, strict=True) if is_short])
            )
        verdicts[failed] = np.asarray(ids, np.int64)[inverse.reshape(-1)]
        return verdicts

    def _node_has_room(self, pod: Pod, old: Node | None, new: Node) -> bool:
        """The Pod fits the empty node; for updates also some requested resource grew (ignored ones count here)."""
        requests = {name: request for name, request in pod_info(pod).requests.items() if request}
        now, _ = node_allocatable(new)
        if now.get(PODS, 0) < 1:
            return False
        delegated = {name for name in requests if now.get(name, 0) <= 0 and self._delegated(name)}
        if any(request > now.get(name, 0) for name, request in requests.items() if name not in delegated):
            return False
        if old is None or delegated:
            return True
        before, _ = node_allocatable(old)
        return any(now.get(name, 0) > before.get(name, 0) for name in (PODS, *requests))


def _pod_left(_pod: Pod, old: Pod, _new: None) -> bool:
    return bool(old.spec.nodeName or old.status.nominatedNodeName)


def _pod_shrank(pod: Pod, old: Pod, new: Pod) -> bool:
    """Another Pod on a node takes less of something the waiting Pod requests."""
    if not new.spec.nodeName:
        return False
    before, after = pod_info(old).node_requests, pod_info(new).node_requests
    return any(
        request and before.get(name, 0) > after.get(name, 0) for name, request in pod_info(pod).node_requests.items()
    )


def _class_stands_for_request(pod: Pod, old: DeviceClass | None, new: DeviceClass) -> bool:
    name, requests = new.spec.extendedResourceName, pod_info(pod).requests
    if old is not None and (old.spec.extendedResourceName or "") == (name or ""):
        return False
    if old is None and f"{_IMPLICIT_PREFIX}{new.name}" in requests:
        return True
    return name is not None and name in requests
