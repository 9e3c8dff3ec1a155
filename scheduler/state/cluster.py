"""ClusterState: everything decisions are made on, kept current event by event.

``apply`` takes one Change and answers with the cluster events it amounts to; ``assume`` and ``forget`` put a Pod on a
node before the API server knows of it. One writer (the loop), no locks. Source: kube-scheduler 1.37, backend/cache and
the informer handlers (spec 4.9, 4.10, 5).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scheduler.api.changes import Change
from scheduler.api.core import Node, Pod
from scheduler.api.kinds import (
    DEVICE_CLASS,
    DEVICE_TAINT_RULE,
    NAMESPACE,
    NODE,
    POD,
    RESOURCE_CLAIM,
    RESOURCE_SLICE,
)
from scheduler.api.podgroups import POD_GROUP
from scheduler.api.policy import POD_DISRUPTION_BUDGET
from scheduler.api.resource import ResourceClaim
from scheduler.api.storage import PersistentVolume, PersistentVolumeClaim
from scheduler.dra.features import Features
from scheduler.errors import InternalError
from scheduler.state.budgets import BudgetState
from scheduler.state.devices import DeviceState
from scheduler.state.events import Action, ClusterEvent, Resource
from scheduler.state.nodes import NodeTable
from scheduler.state.nominator import Nominator
from scheduler.state.object_events import node_update_events, pod_update_events
from scheduler.state.podgroups import PodGroupState
from scheduler.state.podinfo import PodInfo, pod_info
from scheduler.state.topology import TopologyIndex
from scheduler.state.topology_workloads import WORKLOAD_KINDS, WorkloadState
from scheduler.state.volumes import VOLUME_KINDS, VolumeState


@dataclass(frozen=True, slots=True)
class Placement:
    """A Pod that counts on a node: bound, or assumed by us and not yet confirmed by the watch."""

    info: PodInfo
    node: str
    assumed: bool


class ClusterState:
    """Nodes as columns, Pods that count on them, devices and claims.

    ``version`` grows with every change; a suspended attempt compares it to learn that the world moved.
    ``pods``: uid → newest Pod the watch has shown and not ended, waiting ones included. ``served``: namespaces whose
    Pods this scheduler may place and preempt, empty: all; what other Pods take counts all the same. ``victims``: uids
    of Pods that a preemption under way will evict; the watch need not show it yet. ``assumed``: uid → node of Pods that
    count there and are not confirmed yet.
    """

    def __init__(self, features: Features | None = None) -> None:
        self.features = features or Features()
        self.nodes = NodeTable()
        self.devices = DeviceState(self.features)
        self.pods: dict[str, Pod] = {}
        self.placements: dict[str, Placement] = {}
        self.assumed: dict[str, str] = {}
        self.namespaces: dict[str, Mapping[str, str]] = {}
        self.topology = TopologyIndex()
        self.nominator = Nominator()
        self.budgets = BudgetState()
        self.workloads = WorkloadState()
        self.pod_groups = PodGroupState()
        self.volumes = VolumeState()
        self.version = 0
        self.served: frozenset[str] = frozenset()
        self.victims: set[str] = set()

    def serves(self, pod: Pod) -> bool:
        """Whether the Pod may be placed, or made to go."""
        return not self.served or pod.metadata.namespace in self.served

    def apply(self, change: Change) -> list[ClusterEvent]:
        """Take in one change; the events it amounts to, in upstream's order. Cost: O(1) for Pods and nodes."""
        self.version += 1
        kind = change.kind.name
        if kind == POD.name:
            return self._apply_pod(change.old, change.new)
        if kind == NODE.name:
            return self._apply_node(change.old, change.new)
        if kind == RESOURCE_CLAIM.name:
            return self.devices.apply_claim(change)
        if kind == RESOURCE_SLICE.name:
            return self.devices.apply_slice(change.old, change.new)
        if kind == DEVICE_CLASS.name:
            return self.devices.apply_class(change.old, change.new)
        if kind == DEVICE_TAINT_RULE.name:
            return self.devices.apply_taint_rule(change.old, change.new)
        if kind == NAMESPACE.name:
            if change.new is None:
                self.namespaces.pop(change.old.metadata.name, None)
            else:
                self.namespaces[change.new.metadata.name] = change.new.metadata.labels
            return []
        if kind == POD_DISRUPTION_BUDGET.name:
            self.budgets.apply(change.old, change.new)
            return []
        if kind in VOLUME_KINDS:
            return self.volumes.apply(change)
        if kind == POD_GROUP.name:
            return self.pod_groups.apply(change)
        if kind in WORKLOAD_KINDS:
            self.workloads.apply(change)
            return []
        raise InternalError(f"no handler for changes of {kind}")

    def _apply_node(self, old: Node | None, new: Node | None) -> list[ClusterEvent]:
        if new is None:
            if old is None:
                return []
            self.nodes.remove(old.name)
            self.devices.forget_node(old.name)
            self.nominator.forget_node(old.name)
            return [ClusterEvent(Resource.NODE, Action.DELETE, old, None)]
        if old is None or self.nodes.row_of(new.name) is None:
            self.nodes.add(new)
            return [ClusterEvent(Resource.NODE, Action.ADD, None, new)]
        self.nodes.update(new)
        return node_update_events(old, new)

    def _apply_pod(self, old: Pod | None, new: Pod | None) -> list[ClusterEvent]:
        """Ended Pods use nothing: seeing one end is the same as seeing it go."""
        if new is not None and new.terminal:
            old, new = old or new, None
        if new is None:
            return self._pod_gone(old) if old is not None else []
        self.pod_groups.pod_seen(new, self.pods.get(new.uid))
        self.pods[new.uid] = new
        if not new.spec.nodeName:
            return self._pod_waits(old, new)
        known = old is not None and bool(old.spec.nodeName) and not old.terminal
        earlier = self.placements.get(new.uid)
        self._place(new, new.spec.nodeName, assumed=False)
        if old is not None and known:
            return pod_update_events(old, new, Resource.ASSIGNED_POD)
        events = [ClusterEvent(Resource.ASSIGNED_POD, Action.ADD, None, new)]
        if earlier is not None and earlier.node != new.spec.nodeName:
            # Somebody bound it elsewhere while we counted it here: this node's room is free again.
            events.append(ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE, earlier.info.pod, None))
        return events

    def _pod_waits(self, old: Pod | None, new: Pod) -> list[ClusterEvent]:
        """A Pod without a node. One that was shown with a node before (a restored store) takes no room any more."""
        placement = self.placements.get(new.uid)
        if placement is not None and placement.assumed:
            return []
        before = old.status.nominatedNodeName if old is not None else ""
        if placement is None:
            self.nominator.seen(pod_info(new), before, new.status.nominatedNodeName)
            return []
        self._drop(new.uid)
        self._lift(placement)
        self.nominator.seen(pod_info(new), before, new.status.nominatedNodeName)
        return [ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE, placement.info.pod, None)]

    def _pod_gone(self, pod: Pod) -> list[ClusterEvent]:
        self.pods.pop(pod.uid, None)
        self.victims.discard(pod.uid)
        self.pod_groups.pod_gone(pod)
        self.nominator.forget(pod.uid)
        placement = self._drop(pod.uid)
        if placement is None:
            return []
        self._lift(placement)
        return [ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE, pod, None)]

    def _place(self, pod: Pod, node: str, *, assumed: bool) -> None:
        info = pod_info(pod)
        earlier = self.placements.get(pod.uid)
        if earlier is not None:
            if earlier.node == node and info.same_on_node(earlier.info):
                # The watch confirms what we assumed, mostly: nothing that anybody counts has changed.
                self.nodes.replace_pod(info, node)
                self._count(pod.uid, Placement(info, node, assumed))
                return
            self._drop(pod.uid)
            self._lift(earlier)
        self.nominator.forget(pod.uid)
        self.topology.pod_added(info, self.nodes.add_pod(info, node))
        self.volumes.pod_added(pod, node)
        self._count(pod.uid, Placement(info, node, assumed))

    def _count(self, uid: str, placement: Placement) -> None:
        self.placements[uid] = placement
        if placement.assumed:
            self.assumed[uid] = placement.node
        else:
            self.assumed.pop(uid, None)

    def _drop(self, uid: str) -> Placement | None:
        self.assumed.pop(uid, None)
        return self.placements.pop(uid, None)

    def _lift(self, placement: Placement) -> None:
        self.nodes.remove_pod(placement.info, placement.node)
        self.topology.pod_removed(placement.info)
        self.volumes.pod_removed(placement.info.pod, placement.node)

    def assume(self, pod: Pod, node: str) -> None:
        """Count ``pod`` on ``node`` from now on; the watch confirms it later, ``forget`` takes it back."""
        if pod.uid in self.placements:
            raise InternalError(f"pod {pod.key} is already counted on node {self.placements[pod.uid].node}")
        self.version += 1
        self._place(pod, node, assumed=True)

    def revise(self, pod: Pod) -> None:
        """An assumed Pod takes something else of its node than thought; nothing for a Pod that is not assumed."""
        placement = self.placements.get(pod.uid)
        if placement is not None and placement.assumed:
            self.version += 1
            self._place(pod, placement.node, assumed=True)

    def nominate(self, pod: Pod, node: str) -> None:
        """Keep ``node``'s room for ``pod`` from now on ("": no longer); nothing for a Pod that is gone or placed."""
        if pod.uid in self.pods and pod.uid not in self.placements:
            self.version += 1
            self.nominator.nominate(pod_info(pod), node)

    def choose_victims(self, uids: Sequence[str]) -> None:
        """A preemption begins that will evict these; remembered until they are gone."""
        self.version += 1
        self.victims.update(uid for uid in uids if uid in self.pods)

    def spare_victims(self, uids: Sequence[str]) -> None:
        """The preemption is over, and they need not go any more."""
        self.version += 1
        self.victims.difference_update(uids)

    def forget(self, pod: Pod) -> list[ClusterEvent]:
        """Take back an assumption; nothing when the watch confirmed it or it is gone. Others may fit now."""
        placement = self.placements.get(pod.uid)
        if placement is None or not placement.assumed:
            return []
        self.version += 1
        self._drop(pod.uid)
        self._lift(placement)
        return [ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE, pod, None)]

    def learn_claim(self, claim: ResourceClaim) -> list[ClusterEvent]:
        """The answer to our own claim write: known from now on, before the watch shows it."""
        self.version += 1
        return self.devices.learn_claim(claim)

    def learn_volume(self, volume: PersistentVolume) -> list[ClusterEvent]:
        """The answer to our own write of a volume: known from now on, before the watch shows it."""
        self.version += 1
        return self.volumes.learn_volume(volume)

    def learn_volume_claim(self, claim: PersistentVolumeClaim) -> list[ClusterEvent]:
        """As learn_volume, for a PersistentVolumeClaim."""
        self.version += 1
        return self.volumes.learn_claim(claim)

    def assumed_count(self) -> int:
        """Pods assumed and not yet confirmed."""
        return len(self.assumed)

    def verify(self) -> None:
        """Recompute every derived column, index and count; raise InternalError with the first difference."""
        self._verify_placements()
        self.nominator.verify(self.pods.keys() - self.placements.keys())
        if strange := sorted(self.victims - self.pods.keys()):
            raise InternalError(f"pods {strange} are to be evicted but do not exist")
        by_node: dict[str, list[PodInfo]] = {}
        for placement in self.placements.values():
            placement.info.verify()
            by_node.setdefault(placement.node, []).append(placement.info)
        self.nodes.verify(by_node)
        self.topology.verify((info, self.nodes.row_with_pods(name)) for name, pods in by_node.items() for info in pods)
        self.volumes.verify((info.pod, name) for name, pods in by_node.items() for info in pods)
        self.devices.verify()

    def _verify_placements(self) -> None:
        """Every Pod shown on a node counts there, and nothing else does but what we assumed."""
        for uid, pod in self.pods.items():
            placement = self.placements.get(uid)
            if pod.spec.nodeName and (placement is None or placement.assumed or placement.node != pod.spec.nodeName):
                raise InternalError(f"pod {pod.key} is on node {pod.spec.nodeName} but counted as {placement}")
        assumed = {uid: placement.node for uid, placement in self.placements.items() if placement.assumed}
        if assumed != self.assumed:
            raise InternalError(f"the assumed Pods are {assumed}, noted are {self.assumed}")
        for uid, placement in self.placements.items():
            known = self.pods.get(uid)
            if not placement.assumed and (known is None or known.spec.nodeName != placement.node):
                raise InternalError(f"pod {placement.info.pod.key} is counted on node {placement.node} but not there")
        for problem in self.pod_groups.problems(self.pods.values()):
            raise InternalError(problem)
