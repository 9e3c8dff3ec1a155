"""A real cluster that a scenario fills, changes for real, and looks at."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from e2e.api import (
    CLAIM_TEMPLATES,
    CLAIMS,
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    SLICES,
    Api,
    ApiError,
    Object,
    Resource,
)
from e2e.cleaning import clean
from e2e.controlplane import build
from e2e.provisioner import PERSISTENT_VOLUMES, STORAGE_CLASSES, VOLUME_CLAIMS
from e2e.scheduler import SchedulerProcess, condition
from e2e.waiting import eventually

NS = "default"
POD_GROUPS = Resource("scheduling.k8s.io", "v1beta1", "podgroups", "PodGroup")
REPLICA_SETS = Resource("apps", "v1", "replicasets", "ReplicaSet")
JOBS = Resource("batch", "v1", "jobs", "Job")
BUDGETS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
RESOURCES = {
    resource.kind: resource
    for resource in (
        NODES,
        PODS,
        CLAIMS,
        CLAIM_TEMPLATES,
        DEVICE_CLASSES,
        DEVICE_TAINT_RULES,
        SLICES,
        PRIORITY_CLASSES,
        PERSISTENT_VOLUMES,
        VOLUME_CLAIMS,
        STORAGE_CLASSES,
        POD_GROUPS,
        REPLICA_SETS,
        JOBS,
        BUDGETS,
    )
}
_SWEPT = (REPLICA_SETS, JOBS, POD_GROUPS, DEVICE_TAINT_RULES, BUDGETS, VOLUME_CLAIMS, PERSISTENT_VOLUMES,
          STORAGE_CLASSES, PRIORITY_CLASSES)  # fmt: skip
DUMPED = (
    "nodes,pods,namespaces,resourceslices,resourceclaims,resourceclaimtemplates,deviceclasses,devicetaintrules,"
    "persistentvolumes,persistentvolumeclaims,storageclasses,csinodes,poddisruptionbudgets,priorityclasses,limitranges,resourcequotas,"
    "services,replicasets,statefulsets,replicationcontrollers,podgroups"
)
Placements = dict[str, tuple[str, tuple[tuple[str, ...], ...]]]
"""Pod → (node, devices of each claim in the Pod's order); ("", ()) for one that waits."""


class RealCluster:
    """One API server with its controllers; the scheduler under test watches it."""

    def __init__(self, api: Api, kubeconfig: Path) -> None:
        self.api, self.kubeconfig = api, kubeconfig
        self._kubectl = str(build.control_plane_binaries() / "kubectl")

    async def kubectl(self, *arguments: str) -> str:
        """What kubectl prints; it must not fail."""
        process = await asyncio.create_subprocess_exec(
            self._kubectl,
            f"--kubeconfig={self.kubeconfig}",
            *arguments,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, error = await asyncio.wait_for(process.communicate(), 60)
        assert process.returncode == 0, f"kubectl {arguments}: {error.decode()}"
        return out.decode()

    async def dump(self) -> str:
        """The whole cluster as ``kubectl get -o yaml`` writes it."""
        return await self.kubectl("get", DUMPED, "-A", "-o", "yaml")

    async def empty(self) -> None:
        """Remove everything of the scenario before."""
        for resource in _SWEPT[:3]:
            await self._sweep(resource)
        await clean(self.api)
        for resource in _SWEPT[3:]:
            await self._sweep(resource)
        await clean(self.api)

    async def _sweep(self, resource: Resource) -> None:
        for item in await self.api.list(resource):
            metadata = item["metadata"]
            name, namespace = metadata["name"], metadata.get("namespace")
            if name.startswith("system-"):
                continue
            try:
                await self.api.delete(resource, name, namespace)
                await self.api.patch(resource, name, {"metadata": {"finalizers": None}}, namespace)
            except ApiError as error:
                if error.status not in (404, 409):
                    raise

    async def create(self, item: Object) -> None:
        """POST one object; a Node's status is written as its kubelet would."""
        resource = RESOURCES[item["kind"]]
        namespace = NS if resource.namespaced else None
        await self.api.create(resource, {key: value for key, value in item.items() if key != "status"}, namespace)
        if resource is NODES:
            body = {"status": copy.deepcopy(item["status"])}
            await self.api.patch(NODES, item["metadata"]["name"], body, subresource="status")

    async def fill(self, items: Sequence[Object], scheduler: SchedulerProcess) -> None:
        """Create the objects one after the other, and wait until the scheduler has looked at each Pod.

        Pods that come together get their claims, and so their turn, in any order.
        """
        for item in items:
            await self.create(item)
            if item["kind"] == PODS.kind:
                await eventually(partial(self._looked_at, item["metadata"]["name"]), "the Pod is bound or told why not")
        await eventually(lambda: self.settled(scheduler), "every Pod of the scenario is bound or told why not")

    async def _looked_at(self, name: str) -> bool:
        pod = await self.api.get(PODS, name, NS)
        return bool(pod["spec"].get("nodeName")) or condition(pod).get("status") == "False"

    async def settled(self, scheduler: SchedulerProcess) -> bool:
        """True when no Pod is to be tried: each has a node or was told that it waits."""
        pods = await self.api.list(PODS, NS)
        for pod in pods:
            waits = not pod["spec"].get("nodeName") and condition(pod).get("status") != "False"
            if waits or pod["metadata"].get("deletionTimestamp"):
                return False
        for workload in (*await self.api.list(REPLICA_SETS, NS), *await self.api.list(JOBS, NS)):
            wanted = workload["spec"].get("replicas", workload["spec"].get("parallelism", 0))
            own = [pod for pod in pods if _owner(pod) == workload["metadata"]["name"]]
            if len(own) != wanted:
                return False
        ready = await asyncio.to_thread(scheduler.metric, "scheduler_pending_pods", queue="active")
        backoff = await asyncio.to_thread(scheduler.metric, "scheduler_pending_pods", queue="backoff")
        return ready + backoff == 0

    async def placements(self) -> Placements:
        """Where every Pod is, with its devices."""
        claims = {item["metadata"]["name"]: item for item in await self.api.list(CLAIMS, NS)}
        return {
            pod["metadata"]["name"]: (pod["spec"].get("nodeName", ""), _devices(pod, claims))
            for pod in await self.api.list(PODS, NS)
        }

    async def messages(self) -> dict[str, str]:
        """What every waiting Pod's condition says."""
        pods = await self.api.list(PODS, NS)
        return {
            pod["metadata"]["name"]: condition(pod).get("message", "")
            for pod in pods
            if not pod["spec"].get("nodeName")
        }

    # Edits for real

    async def edit(self, name: str, body: Object) -> None:
        """Carry out one edit of a YAML list as a person with kubectl would."""
        if name == "add":
            await self._add(body)
        elif name == "delete":
            await self._delete(body)
        elif name == "addNodes":
            await self._add_nodes(body["like"], body["names"])
        elif name == "drain":
            flags = ("--force", "--ignore-daemonsets", "--delete-emptydir-data")
            await self.kubectl("drain", body["node"], *flags)
        elif name in ("cordon", "uncordon"):
            await self.kubectl(name, body["node"])
        elif name == "taintNode":
            await self.kubectl("taint", "node", body["node"], f"{body['key']}={body['value']}:{body['effect']}")
        elif name == "taintDevice":
            await self._taint_device(body)
        else:
            raise AssertionError(f"{name} is not made here")

    async def _add(self, body: Object) -> None:
        count = body.get("count", 1)
        for item in body["objects"]:
            for number in range(1, count + 1):
                named = copy.deepcopy(item)
                if count > 1:
                    named["metadata"]["name"] += f"-{number}"
                await self.create(named)

    async def _delete(self, body: Object) -> None:
        ((kind, key),) = body.items()
        resource = {"pod": PODS, "claim": CLAIMS, "node": NODES}[kind]
        namespace, _, name = key.rpartition("/")
        await self.api.delete(resource, name, namespace or (NS if resource.namespaced else None))
        if resource is NODES:  # what the garbage collectors of Pods and slices do after a while
            for pod in await self.api.list(PODS, NS, fieldSelector=f"spec.nodeName={name}"):
                await self.api.delete(PODS, pod["metadata"]["name"], NS, grace_period_s=0)
            for slice_ in await self.api.list(SLICES, fieldSelector=f"spec.nodeName={name}"):
                await self.api.delete(SLICES, slice_["metadata"]["name"])

    async def _add_nodes(self, like: str, names: Sequence[str]) -> None:
        """Machines of the same kind join: each with its slices first, as drivers may be quicker than we are."""
        model = await self.api.get(NODES, like)
        slices = await self.api.list(SLICES, fieldSelector=f"spec.nodeName={like}")
        for name in names:
            for slice_ in slices:
                spec = copy.deepcopy(slice_["spec"])
                spec["nodeName"] = spec["pool"]["name"] = name
                item = {"metadata": {"name": slice_["metadata"]["name"].replace(like, name)}, "spec": spec}
                await self.api.create(SLICES, item)
            labels = {**model["metadata"]["labels"], "kubernetes.io/hostname": name}
            await self.create({"kind": "Node", "metadata": {"name": name, "labels": labels}, "status": model["status"]})

    async def _taint_device(self, body: Object) -> None:
        _, pool, device = body["device"].split("/")
        taint = {key: body[key] for key in ("key", "value", "effect") if key in body}
        for slice_ in await self.api.list(SLICES):
            if slice_["spec"]["pool"]["name"] == pool:
                for published in slice_["spec"]["devices"]:
                    if published["name"] == device:
                        published.setdefault("taints", []).append(taint)
                await self.api.update(SLICES, slice_)


def _owner(pod: Object) -> str:
    owners = pod["metadata"].get("ownerReferences") or [{}]
    return str(owners[0].get("name", ""))


def _devices(pod: Object, claims: dict[str, Object]) -> tuple[tuple[str, ...], ...]:
    """The devices of each claim, in the Pod's order; the one made for extended resources comes last."""
    status = pod.get("status", {})
    generated = {s["name"]: s.get("resourceClaimName") for s in status.get("resourceClaimStatuses") or []}
    names = [
        entry.get("resourceClaimName") or generated.get(entry["name"])
        for entry in pod["spec"].get("resourceClaims") or []
    ]
    names.append((status.get("extendedResourceClaimStatus") or {}).get("resourceClaimName"))
    found = []
    for name in names:
        allocation = claims.get(name or "", {}).get("status", {}).get("allocation")
        if allocation and pod["spec"].get("nodeName"):
            results = allocation["devices"].get("results") or []
            found.append(tuple(f"{r['driver']}/{r['pool']}/{r['device']}" for r in results))
    return tuple(found)
