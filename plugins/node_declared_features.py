"""NodeDeclaredFeatures: a Pod that needs a node feature goes where the kubelet declares it."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import chain

import msgspec
import numpy as np

from plugins.base import CONTINUE, SKIP_FILTER, PluginBase
from scheduler.api.core import Container, Node, Pod
from scheduler.framework.because import Because
from scheduler.framework.cycle import Cycle
from scheduler.framework.events import Action, Registration, Resource
from scheduler.framework.plugin import Depends, Handle, PreFilterResult, Rows, Verdicts
from scheduler.framework.status import Code, VerdictTable
from scheduler.state.nodes import NodeTable

_NOTHING = (b"", b"null", b"[]")


class NodeDeclaredFeatures(PluginBase):
    """Source: kube-scheduler 1.37, NodeDeclaredFeatures (spec 3.17)."""

    name = "NodeDeclaredFeatures"
    depends = Depends.NODE
    by_template = True

    def __init__(self, handle: Handle) -> None:
        super().__init__(handle)
        self.verdicts = VerdictTable(self.name)
        reason = "node(s) didn't match Pod's required features"
        self._lacking = self.verdicts.intern(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (reason,))

    def pre_filter(self, cycle: Cycle) -> PreFilterResult:
        """Skips Pods that need no feature: nearly all."""
        features = required_features(cycle.pod)
        if not features:
            return SKIP_FILTER
        cycle.data[self.name] = features
        return CONTINUE

    def signature(self, cycle: Cycle) -> Hashable | None:
        """The features needed."""
        features: frozenset[str] = cycle.data.get(self.name, frozenset())
        return features

    def filter(self, cycle: Cycle, nodes: NodeTable, rows: Rows) -> Verdicts:
        """Rejects nodes that do not declare every feature. Cost: one look-up per row, one answer per distinct list."""
        features: frozenset[str] = cycle.data[self.name]
        answers: dict[tuple[str, ...], int] = {}
        result = np.zeros(len(rows), np.int64)
        for position, row in enumerate(rows.tolist()):
            declared = nodes.node(row).status.declaredFeatures
            verdict = answers.get(declared)
            if verdict is None:
                verdict = answers[declared] = 0 if features.issubset(declared) else self._lacking
            result[position] = verdict
        return result

    def because(self, cycle: Cycle, nodes: NodeTable, row: int) -> Iterator[Because]:
        """Every feature that the kubelet does not declare."""
        features: frozenset[str] = cycle.data[self.name]
        for feature in sorted(features.difference(nodes.node(row).status.declaredFeatures)):
            yield Because(f"feature {feature}", f"the kubelet does not declare {feature}", {"feature": feature})

    def events(self) -> Sequence[Registration]:
        """A node came or declares other features; the Pod needs others."""
        return (
            Registration(Resource.NODE, Action.ADD | Action.UPDATE_NODE_DECLARED_FEATURE, _declares_others),
            Registration(Resource.TARGET_POD, Action.UPDATE, _needs_others),
        )


def required_features(pod: Pod) -> frozenset[str]:
    """The features that matter for scheduling ``pod``; all other known ones never do."""
    spec = pod.spec
    features: set[str] = set()
    if spec.hostNetwork and spec.hostUsers is False:
        features.add("UserNamespacesHostNetworkSupport")
    restartable = (*spec.containers, *spec.initContainers)
    if any(_has_mount_options(c) for c in chain(restartable, spec.ephemeralContainers)):
        features.add("VolumeBindMountOptions")
    if any(rule.action == "RestartAllContainers" for c in restartable for rule in c.restartPolicyRules):
        features.add("RestartAllContainersOnContainerExits")
    return frozenset(features)


def _has_mount_options(container: Container) -> bool:
    return any(_is_given(mount.bindMountOptions) for mount in container.volumeMounts)


def _is_given(options: msgspec.Raw) -> bool:
    return bytes(options).strip() not in _NOTHING


def _declares_others(pod: Pod, old: Node | None, new: Node) -> bool:
    return old is None or old.status.declaredFeatures != new.status.declaredFeatures


def _needs_others(pod: Pod, old: Pod, new: Pod) -> bool:
    return required_features(old) != required_features(new)
