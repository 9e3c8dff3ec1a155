"""A whole ClusterState with devices, and attempts of a profile that has DynamicResources alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from plugins.dynamic_resources import DynamicResources
from scheduler.api.changes import Change
from scheduler.api.core import Pod
from scheduler.api.kinds import DEVICE_CLASS, NODE, POD, RESOURCE_CLAIM, RESOURCE_SLICE, Kind, convert
from scheduler.api.resource import AllocationResult, ResourceClaim
from scheduler.cycle.attempt import Attempt, Rotation
from scheduler.cycle.decision import Decision, Need, Running
from scheduler.dra.features import Features
from scheduler.framework.instructions import DeallocateClaim, Instruction
from scheduler.framework.plugin import Handle
from scheduler.framework.profile import Profile, ScoreEntry
from scheduler.state.cluster import ClusterState
from scheduler.state.events import ClusterEvent

Json = dict[str, Any]
DRIVER = "gpu.example.com"


class DeviceWorld:
    """Objects in, decisions out. Every change gets the next revision; ``done`` collects mid-cycle instructions."""

    def __init__(self, features: Features | None = None, **arguments: float) -> None:
        self.state = ClusterState(features)
        self.revision = 100
        self.ids = 0
        self.done: list[Instruction] = []
        self.plugin = DynamicResources(Handle(self.state, self.new_id, None, arguments))
        plugin = self.plugin
        self.profile = Profile(
            "dra-scheduler",
            {plugin.name: plugin},
            pre_filter=(plugin,),
            filter=(plugin,),
            post_filter=(plugin,),
            score=(ScoreEntry(plugin.name, plugin, 2, plugin),),
            reserve=(plugin,),
            pre_bind=(plugin,),
        )
        self.known: dict[tuple[str, str], Any] = {}
        self.put(
            DEVICE_CLASS, {"metadata": {"name": "gpu"}, "spec": {"selectors": [cel(f'device.driver == "{DRIVER}"')]}}
        )

    def new_id(self) -> str:
        """Share ids in sequence."""
        self.ids += 1
        return f"share-{self.ids}"

    def put(self, kind: Kind, data: Json) -> list[ClusterEvent]:
        """Add or replace an object, as the watch would."""
        self.revision += 1
        metadata = {"resourceVersion": str(self.revision), "uid": data["metadata"]["name"]} | data["metadata"]
        new = convert(kind, data | {"metadata": metadata})
        old = self.known.get((kind.name, new.metadata.key))
        self.known[(kind.name, new.metadata.key)] = new
        return self.state.apply(Change(kind, old, new, self.revision))

    def remove(self, kind: Kind, key: str) -> list[ClusterEvent]:
        """Delete an object."""
        self.revision += 1
        return self.state.apply(Change(kind, self.known.pop((kind.name, key)), None, self.revision))

    def node(self, name: str, devices: int = 1, **device: Any) -> None:
        """A node with that many equal devices in one pool."""
        self.put(NODE, {"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}})
        self.slice(name, [{"name": f"gpu-{i}"} | device for i in range(devices)])

    def slice(self, node: str, devices: Sequence[Json], generation: int = 1, count: int = 1, name: str = "") -> None:
        """A slice of the node's pool."""
        pool = {"name": node, "generation": generation, "resourceSliceCount": count}
        spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": devices}
        self.put(RESOURCE_SLICE, {"metadata": {"name": name or f"slice-{node}"}, "spec": spec})

    def claim(self, name: str, *requests: Json, **metadata: Any) -> ResourceClaim:
        """A claim in namespace default; without requests it asks for one gpu."""
        asked = list(requests) or [exactly()]
        metadata = {"name": name, "namespace": "default"} | metadata
        self.put(RESOURCE_CLAIM, {"metadata": metadata, "spec": {"devices": {"requests": asked}}})
        return self.state.devices.claims[f"default/{name}"]

    def allocate(self, claim: ResourceClaim, allocation: Any, *consumers: str, devices: Sequence[Json] = ()) -> None:
        """Store an allocation (a Struct or JSON; None clears it) and reservations, as a scheduler's write would."""
        reserved = [{"resource": "pods", "name": uid, "uid": uid} for uid in consumers]
        status: Json = {"reservedFor": reserved, "devices": list(devices)}
        if allocation is not None:
            status["allocation"] = msgspec.to_builtins(allocation)
        spec = msgspec.to_builtins(claim.spec)
        metadata = {"name": claim.metadata.name, "namespace": claim.metadata.namespace, "uid": claim.uid}
        self.put(RESOURCE_CLAIM, {"metadata": metadata, "spec": spec, "status": status})

    def pod(self, name: str, *claims: str, **status: Any) -> Pod:
        """A waiting Pod using claims by name."""
        entries = [{"name": f"c{i}", "resourceClaimName": claim} for i, claim in enumerate(claims)]
        data = {
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"resourceClaims": entries},
            "status": status,
        }
        self.put(POD, data)
        return self.state.pods[name]

    def decide(self, pod: Pod, now: float = 0.0, failure: str | None = None) -> Decision:
        """One attempt; mid-cycle instructions are answered with ``failure`` (None: done)."""
        attempt = Attempt(self.profile, pod, self.state, now=now, rotation=Rotation())
        while True:
            outcome = attempt.step(1000)
            if isinstance(outcome, Need):
                self.done.append(outcome.instruction)
                if isinstance(outcome.instruction, DeallocateClaim) and failure is None:
                    self.allocate(outcome.instruction.claim, None)
                attempt.answer(failure)
            elif not isinstance(outcome, Running):
                return outcome


def cel(expression: str) -> Json:
    """A selector."""
    return {"cel": {"expression": expression}}


def exactly(name: str = "req", count: int = 1, device_class: str = "gpu", **fields: Any) -> Json:
    """A request for a number of devices."""
    asked = {"deviceClassName": device_class, "allocationMode": "ExactCount", "count": count} | fields
    return {"name": name, "exactly": asked}


def first_of(name: str, *subs: Json) -> Json:
    """A prioritized list."""
    return {"name": name, "firstAvailable": list(subs)}


def sub(name: str, **fields: Any) -> Json:
    """An alternative."""
    return {"name": name, "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1} | fields


def devices_of(allocation: AllocationResult) -> list[str]:
    """pool/device of each result."""
    return [f"{result.pool}/{result.device}" for result in allocation.devices.results]


def allocation_of(device: str, pool: str = "node-1", **fields: Any) -> Json:
    """status.allocation with one device."""
    result = {"request": "req", "driver": DRIVER, "pool": pool, "device": device} | fields
    return {"devices": {"results": [result]}}


def on_node(name: str) -> Json:
    """The node selector of an allocation that can be used on one node."""
    field = {"key": "metadata.name", "operator": "In", "values": [name]}
    return {"nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]}}
