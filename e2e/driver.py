"""The pretended driver: publishes the devices of nodes as ResourceSlices and behaves as drivers do, badly too."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from e2e.api import CLAIMS, NODES, SLICES, Api, ApiError
from e2e.objects import device, node

Object = dict[str, Any]


@dataclass
class Pool:
    """What the driver wants the server to hold for one pool.

    place: exactly one of the slice spec's nodeName, nodeSelector, allNodes.
    """

    name: str
    devices: list[Object]
    place: Object
    slice_count: int = 1
    generation: int = 1
    extra: Object = field(default_factory=dict)

    def chunks(self) -> list[list[Object]]:
        """The devices slice by slice; sizes differ by one at most."""
        size, more = divmod(len(self.devices), self.slice_count)
        ends = [size * i + min(i, more) for i in range(self.slice_count + 1)]
        return [self.devices[start:end] for start, end in itertools.pairwise(ends)]


class PretendedDriver:
    """One driver name with any number of pools. Every method returns when the server has accepted the change."""

    def __init__(self, api: Api, name: str = "gpu.example.com") -> None:
        self._api = api
        self.name = name
        self.pools: dict[str, Pool] = {}
        self._written: dict[str, set[str]] = {}

    async def publish_node(
        self,
        node_name: str,
        count: int,
        *,
        attributes: Mapping[str, str | int | bool] | None = None,
        capacity: Mapping[str, str] | None = None,
        slices: int = 1,
    ) -> Pool:
        """A pool named like its node with devices gpu-0 .. gpu-(count-1); ``index`` is an attribute of each."""
        devices = [device(f"gpu-{i}", {"index": i, **(attributes or {})}, capacity) for i in range(count)]
        return await self.publish(Pool(node_name, devices, {"nodeName": node_name}, slice_count=slices))

    async def publish(self, pool: Pool) -> Pool:
        """Write every slice of the pool (create or replace), then remove those it does not have any more."""
        self.pools[pool.name] = pool
        for index in range(pool.slice_count):
            await self._write_slice(pool, index)
        await self._remove_slices(pool.name, keep=pool.slice_count)
        return pool

    async def bump(self, pool_name: str) -> None:
        """What a driver's restart looks like: the same devices under the next generation, slice after slice."""
        pool = self.pools[pool_name]
        pool.generation += 1
        await self.publish(pool)

    async def publish_half(self, pool_name: str) -> None:
        """Begin the next generation and stop after half of the slices (at least one missing); publish() completes it.

        Needs a pool of two or more slices. Until completed the pool is incomplete and must not be used.
        """
        pool = self.pools[pool_name]
        if pool.slice_count < 2:
            raise ValueError(f"pool {pool_name} has one slice: there is no half of it")
        pool.generation += 1
        for index in range(pool.slice_count // 2):
            await self._write_slice(pool, index)

    async def withdraw(self, pool_name: str) -> None:
        """Remove the pool's slices; restore() brings them back."""
        await self._remove_slices(pool_name, keep=0)

    async def restore(self, pool_name: str) -> None:
        """Publish a withdrawn or half-published pool again, under the generation it had reached."""
        await self.publish(self.pools[pool_name])

    async def taint(
        self, pool_name: str, device_name: str, *, key: str = "example.com/broken", effect: str = "NoSchedule"
    ) -> None:
        """Add a taint to one device and publish the next generation."""
        for candidate in self.pools[pool_name].devices:
            if candidate["name"] == device_name:
                candidate.setdefault("taints", []).append({"key": key, "value": "true", "effect": effect})
        await self.bump(pool_name)

    async def untaint(self, pool_name: str, device_name: str) -> None:
        """Remove all taints of one device and publish the next generation."""
        for candidate in self.pools[pool_name].devices:
            if candidate["name"] == device_name:
                candidate.pop("taints", None)
        await self.bump(pool_name)

    async def set_device_conditions(self, namespace: str, claim: str, conditions: Mapping[str, str]) -> None:
        """Report conditions (type -> "True"/"False") in status.devices for this driver's devices of the claim."""
        current = await self._api.get(CLAIMS, claim, namespace)
        results = current["status"]["allocation"]["devices"]["results"]
        # Reports of other drivers stay: the list is written as a whole.
        reports = [r for r in current["status"].get("devices") or [] if r["driver"] != self.name]
        for result in results:
            if result["driver"] != self.name:
                continue
            report: Object = {key: result[key] for key in ("driver", "pool", "device", "shareID") if key in result}
            report["conditions"] = [
                {
                    "type": kind,
                    "status": status,
                    "reason": "Reported",
                    "message": "",
                    "lastTransitionTime": current["metadata"]["creationTimestamp"],
                }
                for kind, status in conditions.items()
            ]
            reports.append(report)
        version = {"resourceVersion": current["metadata"]["resourceVersion"]}
        await self._api.patch(CLAIMS, claim, {"metadata": version, "status": {"devices": reports}}, namespace, "status")

    def slice_object(self, pool: Pool, index: int) -> Object:
        """The ResourceSlice number ``index`` of the pool as this driver publishes it."""
        return {
            "metadata": {"name": self._slice_name(pool.name, index)},
            "spec": {
                "driver": self.name,
                "pool": {
                    "name": pool.name,
                    "generation": pool.generation,
                    "resourceSliceCount": pool.slice_count,
                },
                **copy.deepcopy(pool.place),
                "devices": copy.deepcopy(pool.chunks()[index]),
                **copy.deepcopy(pool.extra),
            },
        }

    def _slice_name(self, pool_name: str, index: int) -> str:
        return f"{pool_name.replace('/', '-')}-{self.name}-{index}"

    async def _write_slice(self, pool: Pool, index: int) -> None:
        body = self.slice_object(pool, index)
        name = body["metadata"]["name"]
        current = await self._api.find(SLICES, name)
        if current is None:
            await self._api.create(SLICES, body)
        else:
            body["metadata"]["resourceVersion"] = current["metadata"]["resourceVersion"]
            await self._api.update(SLICES, body)
        self._written.setdefault(pool.name, set()).add(name)

    async def _remove_slices(self, pool_name: str, *, keep: int) -> None:
        kept = {self._slice_name(pool_name, index) for index in range(keep)}
        for name in sorted(self._written.get(pool_name, set()) - kept):
            await self._api.delete(SLICES, name, missing_ok=True)
            self._written[pool_name].discard(name)


async def add_node(
    api: Api,
    name: str,
    *,
    cpu: str = "8",
    memory: str = "32Gi",
    pods: int = 110,
    extended: Mapping[str, str] | None = None,
    zone: str | None = None,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Mapping[str, str]] = (),
    images: Sequence[Mapping[str, Any]] = (),
) -> Object:
    """Create a Ready Node with these resources, as its kubelet would have registered it."""
    await api.create(NODES, node(name, labels=labels, zone=zone, taints=taints))
    resources = {
        "cpu": cpu,
        "memory": memory,
        "pods": str(pods),
        "ephemeral-storage": "100Gi",
        **(extended or {}),
    }
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}
    status: Object = {"capacity": resources, "allocatable": resources, "conditions": [ready]}
    if images:
        status["images"] = list(images)
    return await api.patch(NODES, name, {"status": status}, subresource="status")


async def remove_node(api: Api, name: str) -> None:
    """Delete the Node object; its Pods stay until somebody deletes them."""
    try:
        await api.delete(NODES, name)
    except ApiError as error:
        if error.status != 404:
            raise
