"""Objects on the embedded server, and how to read them back."""

from __future__ import annotations

from typing import Any

from scheduler.api.core import Pod
from scheduler.api.kinds import POD, RESOURCE_CLAIM, convert, decode
from scheduler.api.resource import (
    AllocationResult,
    ConsumerReference,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
)
from scheduler.edge.client import ApiClient
from scheduler.embedded import EmbeddedServer


def load_pod(server: EmbeddedServer, name: str = "p", **spec: Any) -> Pod:
    record = server.load(
        [
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"containers": [{"name": "c", "image": "i"}], "schedulerName": "dra-scheduler", **spec},
            }
        ]
    )[0]
    pod: Pod = convert(POD, record.obj)
    return pod


def load_claim(server: EmbeddedServer, name: str = "c") -> ResourceClaim:
    request = {"name": "r", "exactly": {"deviceClassName": "gpu"}}
    record = server.load(
        [
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaim",
                "metadata": {"name": name, "namespace": "default", "labels": {"keep": "me"}, "finalizers": ["x/y"]},
                "spec": {"devices": {"requests": [request]}},
            }
        ]
    )[0]
    claim: ResourceClaim = convert(RESOURCE_CLAIM, record.obj)
    return claim


def devices(*names: str) -> AllocationResult:
    """An allocation of these devices of one pool."""
    return AllocationResult(
        DeviceAllocationResult(
            tuple(DeviceRequestAllocationResult(request="r", driver="d.example", pool="n1", device=n) for n in names)
        )
    )


def consumer(name: str) -> ConsumerReference:
    return ConsumerReference(resource="pods", name=name, uid=f"uid-{name}")


async def read_claim(api: ApiClient, name: str = "c") -> ResourceClaim:
    claim: ResourceClaim = decode(RESOURCE_CLAIM, (await api.call("GET", RESOURCE_CLAIM.path("default", name))).body)
    return claim


async def read_pod(api: ApiClient, name: str = "p") -> Pod:
    pod: Pod = decode(POD, (await api.call("GET", POD.path("default", name))).body)
    return pod
