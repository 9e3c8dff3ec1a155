"""Edits carried out on the objects of an imagined cluster."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from scheduler.api.core import Node, Pod
from scheduler.api.kinds import NODE, POD, RESOURCE_CLAIM, RESOURCE_SLICE, Kind, convert
from scheduler.api.policy import POD_DISRUPTION_BUDGET
from scheduler.api.resource import ResourceSlice
from scheduler.api.storage import CSI_NODE
from scheduler.api.taints import Taint
from scheduler.errors import UserError
from scheduler.explain.text import counted
from scheduler.state.budgets import BudgetState
from scheduler.state.podinfo import pod_info
from scheduler.whatif.controllers import delete_claim, evict, stays_on_drain
from scheduler.whatif.edits import (
    Add,
    AddNodes,
    Cordon,
    Delete,
    Drain,
    Edit,
    NewConfig,
    Placed,
    Serve,
    TaintDevice,
    TaintNode,
    Weight,
)
from scheduler.whatif.evictions import taint_words
from scheduler.whatif.manifests import Kinds, apply_manifests
from scheduler.whatif.objects import Json, completed
from scheduler.whatif.store import Store

HOSTNAME = "kubernetes.io/hostname"
DELETED = "deleted by an edit"
NOT_READY = ("node.kubernetes.io/unschedulable",)


class Editor:
    """Applies edits in order. ``read``: the documents of a manifest file. ``removed``: Pods that an edit made go, with
    why; ``added``: uids of Pods that came with edits → key of the Pod whose place they take, "" for new ones.
    """

    def __init__(
        self, store: Store, kinds: Kinds, read: Callable[[str], Iterable[Any]], profiles: Sequence[str]
    ) -> None:
        self._store, self._kinds, self._read, self._profiles = store, kinds, read, tuple(profiles)
        self.removed: dict[str, str] = {}
        self.added: dict[str, str] = {}
        self.done: list[str] = []

    def apply(self, placed: Placed) -> None:
        """Carry out one edit. Raises UserError with the edit's position."""
        edit = placed.edit
        try:
            self.done.append(self._apply(edit))
        except OSError as error:
            raise UserError(placed.subject, "add.file", f"{error.filename}: {error.strerror}") from error
        except UserError as error:
            field = f"{error.subject}: {error.field}" if error.field else error.subject
            raise UserError(placed.subject, field, error.problem) from error

    def _apply(self, edit: Edit) -> str:
        if isinstance(edit, Add):
            return self._add(edit)
        if isinstance(edit, Delete):
            return self._delete(edit)
        if isinstance(edit, AddNodes):
            return self._add_nodes(edit)
        if isinstance(edit, Drain):
            return self._drain(edit)
        if isinstance(edit, Cordon):
            self._cordon(self._node(edit.node), edit.on)
            return f"node {edit.node} {'takes no new Pods' if edit.on else 'takes Pods again'}"
        if isinstance(edit, TaintNode):
            return self._taint_node(edit)
        if isinstance(edit, TaintDevice):
            return self._taint_device(edit)
        if isinstance(edit, Serve):
            return self._serve(edit)
        if isinstance(edit, Weight):
            where = f" in profile {edit.profile}" if edit.profile else ""
            return f"score plugin {edit.plugin} weighs {edit.weight}{where}"
        assert isinstance(edit, NewConfig)
        return f"configuration {edit.file}"

    def _node(self, name: str) -> Node:
        node: Node | None = self._store.get(NODE.name, name)
        if node is None:
            raise UserError("node", "", f"{name!r} does not exist{_near(name, self._store.of(NODE.name))}")
        return node

    def _evict(self, pod: Pod, why: str) -> None:
        self.removed[pod.key] = why
        again = evict(self._store, pod)
        if again is not None:
            self.added[again.uid] = pod.key

    # Pods and claims

    def _add(self, edit: Add) -> str:
        documents = list(edit.objects) if edit.objects else list(self._read(edit.file))
        if not documents:
            raise UserError("add", "file", f"{edit.file} holds no object")
        pods = apply_manifests(self._store, self._kinds, documents, edit.count, edit.namespace)
        self.added.update(dict.fromkeys((pod.uid for pod in pods), ""))
        where = edit.file or counted(len(edit.objects), "object")
        return f"{where} applied" + (f": {counted(len(pods), 'Pod')}" if pods else "")

    def _delete(self, edit: Delete) -> str:
        store = self._store
        item = store.get(edit.kind, edit.key)
        if item is None:
            near = _near(edit.key, store.of(edit.kind))
            raise UserError(edit.kind, "", f"{edit.key!r} does not exist{near}")
        if edit.kind == POD.name:
            self._evict(item, DELETED)
        elif edit.kind == RESOURCE_CLAIM.name:
            users = delete_claim(store, item)
            if users:
                store.note(f"claim {edit.key} is in use by {users}: it is only marked, and keeps its devices till then")
                return f"claim {edit.key} is being deleted"
        elif edit.kind == NODE.name:
            self._delete_node(item)
        else:
            kind = next(kind for kind, found in store.entries() if found is item)
            store.remove(kind, item)
        return f"{edit.kind} {edit.key} deleted"

    def _delete_node(self, node: Node) -> None:
        """With its slices and Pods, as the garbage collectors do."""
        for slice_ in self._store.of(RESOURCE_SLICE.name):
            if slice_.spec.nodeName == node.name:
                self._store.remove(RESOURCE_SLICE, slice_)
        csi = self._store.get(CSI_NODE.name, node.name)
        if csi is not None:
            self._store.remove(CSI_NODE, csi)
        self._store.remove(NODE, node)
        for pod in self._store.pods():
            if pod.spec.nodeName == node.name:
                self._evict(pod, f"its node {node.name} is deleted")

    def _serve(self, edit: Serve) -> str:
        profile = edit.profile or self._profiles[0]
        if profile not in self._profiles:
            raise UserError("serve", "profile", f"{profile!r} is not among the profiles {', '.join(self._profiles)}")
        count = 0
        for pod in self._store.pods():
            if pod.spec.schedulerName == edit.scheduler_name and not pod.spec.nodeName:
                spec = replace(pod.spec, schedulerName=profile)
                self._store.put(POD, replace(pod, spec=spec))
                count += 1
        return f"waiting Pods of {edit.scheduler_name} are served by profile {profile}: {count}"

    # nodes

    def _cordon(self, node: Node, on: bool) -> None:
        taints = tuple(taint for taint in node.spec.taints if taint.key not in NOT_READY)
        if on:  # the node controller's taint follows the field
            taints += (Taint(key=NOT_READY[0], effect="NoSchedule"),)
        spec = replace(node.spec, unschedulable=on, taints=taints)
        self._store.put(NODE, replace(node, spec=spec))

    def _drain(self, edit: Drain) -> str:
        node = self._node(edit.node)
        self._cordon(node, True)
        here = [pod for pod in self._store.pods() if pod.spec.nodeName == node.name]
        leaving = [pod for pod in here if not stays_on_drain(pod)]
        self._warn_of_budgets(leaving)
        for pod in leaving:
            self._evict(pod, f"node {node.name} is drained")
        return f"node {node.name} drained: {counted(len(leaving), 'Pod')} to go, {len(here) - len(leaving)} to stay"

    def _warn_of_budgets(self, leaving: Sequence[Pod]) -> None:
        budgets = BudgetState()
        for budget in self._store.of(POD_DISRUPTION_BUDGET.name):
            budgets.apply(None, budget)
        refused = budgets.violating([pod_info(pod) for pod in leaving])
        for pod, over in zip(leaving, refused, strict=True):
            if over:
                self._store.note(f"a PodDisruptionBudget would make the eviction of pod {pod.key} wait")

    def _taint_node(self, edit: TaintNode) -> str:
        node = self._node(edit.node)
        kept = tuple(t for t in node.spec.taints if (t.key, t.effect) != (edit.key, edit.effect))
        taint = Taint(key=edit.key, value=edit.value, effect=edit.effect)
        spec = replace(node.spec, taints=(*kept, taint))
        self._store.put(NODE, replace(node, spec=spec))
        return f"node {edit.node} tainted {taint_words(taint)}"

    def _add_nodes(self, edit: AddNodes) -> str:
        model = self._node(edit.like)
        raw = self._store.raw[NODE.name, model.name]
        names = edit.names or _next_names(self._store, model.name, edit.count)
        slices = copies = 0
        for name in names:
            if self._store.get(NODE.name, name) is not None:
                raise UserError("addNodes", "names", f"node {name} exists already")
            self._put_copy(NODE, _node_like(raw, model.name, name, edit.labels))
            for slice_ in self._store.of(RESOURCE_SLICE.name):
                if slice_.spec.nodeName == model.name:
                    source = self._store.raw[RESOURCE_SLICE.name, slice_.name]
                    self._put_copy(RESOURCE_SLICE, _slice_like(source, model.name, name))
                    slices += 1
                elif slice_.spec.perDeviceNodeSelection and any(d.nodeName == model.name for d in slice_.spec.devices):
                    copies += 1
            csi = self._store.raw.get((CSI_NODE.name, model.name))
            if csi is not None:
                self._put_copy(CSI_NODE, {**csi, "metadata": {"name": name}})
        if copies:
            self._store.note(f"devices of node {model.name} in pools of several nodes are not copied to new nodes")
        added = f"{counted(len(names), 'node')} like {model.name} added ({', '.join(_few(names))})"
        return f"{added}, with {counted(slices, 'slice')}"

    def _put_copy(self, kind: Kind, item: Json) -> None:
        """A copy is read as its model was."""
        known = next(known for known, found in self._store.entries() if known.name == kind.name)
        decoded = convert(known, completed(item, known))
        self._store.raw[kind.name, decoded.metadata.key] = item
        metadata = replace(decoded.metadata, uid=self._store.new_uid(), creationTimestamp=self._store.stamp())
        self._store.put(known, replace(decoded, metadata=metadata))

    # devices

    def _taint_device(self, edit: TaintDevice) -> str:
        found = [
            slice_
            for slice_ in self._store.of(RESOURCE_SLICE.name)
            if (slice_.spec.driver, slice_.spec.pool.name) == (edit.driver, edit.pool)
            and any(device.name == edit.device for device in slice_.spec.devices)
        ]
        name = f"{edit.driver}/{edit.pool}/{edit.device}"
        if not found:
            raise UserError("device", "", f"{name!r} is not published{_near_device(edit, self._store)}")
        taint = Taint(key=edit.key, value=edit.value, effect=edit.effect, timeAdded=self._store.stamp())
        for slice_ in found:
            devices = tuple(
                replace(device, taints=(*device.taints, taint)) if device.name == edit.device else device
                for device in slice_.spec.devices
            )
            spec = replace(slice_.spec, devices=devices)
            self._store.put(RESOURCE_SLICE, replace(slice_, spec=spec))
        return f"device {name} tainted {taint_words(taint)}"


def _node_like(raw: Json, model: str, name: str, labels: Any) -> Json:
    item = copy.deepcopy(raw)
    metadata = item["metadata"]
    kept = {**(metadata.get("labels") or {}), **labels}
    if kept.get(HOSTNAME, model) == model:
        kept[HOSTNAME] = name
    item["metadata"] = {"name": name, "labels": kept, "annotations": metadata.get("annotations") or {}}
    spec = item.get("spec") or {}
    spec.pop("unschedulable", None)
    spec["taints"] = [taint for taint in spec.get("taints") or () if taint.get("key") not in NOT_READY]
    item["spec"] = spec
    # Images and volumes in use come with Pods, not with the machine; the scheduler reads images only.
    return item


def _slice_like(raw: Json, model: str, name: str) -> Json:
    """A pool named after its node is named after the new one; any other gets a name of its own."""
    item = copy.deepcopy(raw)
    old = item["metadata"]["name"]
    item["metadata"] = {"name": old.replace(model, name) if model in old else f"{old}-{name}"}
    spec = item["spec"]
    spec["nodeName"] = name
    pool = spec["pool"]["name"]
    spec["pool"] = {**spec["pool"], "name": pool.replace(model, name) if model in pool else f"{pool}-{name}"}
    return item


def _next_names(store: Store, model: str, count: int) -> tuple[str, ...]:
    """``node-3`` → node-4, node-5 … as far as they are new; a name without a number gets one."""
    stem = model.rstrip("0123456789")
    digits = model[len(stem) :]
    number = int(digits) if digits else 1
    stem = stem if digits else f"{model}-"
    names: list[str] = []
    while len(names) < count:
        number += 1
        name = f"{stem}{str(number).zfill(len(digits))}"
        if store.get(NODE.name, name) is None:
            names.append(name)
    return tuple(names)


def _few(names: Sequence[str]) -> list[str]:
    return [*names[:3], "…", names[-1]] if len(names) > 5 else list(names)


def _near(key: str, items: Sequence[Any]) -> str:
    """Where the same name is, else a few that exist."""
    name = key.rpartition("/")[2]
    keys = [item.metadata.key for item in items]
    same = [other for other in keys if other.rpartition("/")[2] == name]
    if same:
        return f"; there is {', '.join(same[:3])}"
    return f"; there are {', '.join(_few(sorted(keys)))}" if keys else "; there are none"


def _near_device(edit: TaintDevice, store: Store) -> str:
    slices: list[ResourceSlice] = store.of(RESOURCE_SLICE.name)
    pools = {(slice_.spec.driver, slice_.spec.pool.name) for slice_ in slices}
    if (edit.driver, edit.pool) in pools:
        names = [d.name for s in slices if s.spec.pool.name == edit.pool for d in s.spec.devices]
        return f"; that pool has {', '.join(_few(names))}"
    return f"; there are pools {', '.join(_few(sorted('/'.join(pool) for pool in pools)))}" if pools else ""
