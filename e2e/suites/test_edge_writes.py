"""What the edge's writes rely on, asked of the real API server: patches, preconditions, Events, conditions, leases."""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec
import pytest

from e2e.controlplane.cluster import ControlPlane, ControlPlaneOptions
from e2e.controlplane.fixtures import require_binaries
from scheduler.api import bodies
from scheduler.api.core import Pod
from scheduler.api.kinds import POD, RESOURCE_CLAIM, Kind, decode
from scheduler.api.resource import (
    AllocationResult,
    ConsumerReference,
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    OpaqueDeviceConfiguration,
    ResourceClaim,
)
from scheduler.edge.beat import Beat
from scheduler.edge.binder import Binder, BoundElsewhereError
from scheduler.edge.claim_errors import ClaimFullError, ClaimTakenError
from scheduler.edge.claims import ClaimWriter
from scheduler.edge.client import ApiClient
from scheduler.edge.credentials import Access
from scheduler.edge.election import ElectionSettings
from scheduler.edge.errors import Conflict, Invalid
from scheduler.edge.events import EventRecorder
from scheduler.edge.leader import LeaderElector
from scheduler.edge.status import StatusWriter, pod_scheduled

PARAMETERS = b'{"apiVersion":"x/v1","kind":"P","n":1.50,"no":null,"list":[1,null,{"a":"b","z":null}]}'


def devices(*names: str, parameters: bytes = b"") -> AllocationResult:
    opaque = OpaqueDeviceConfiguration("d.example", msgspec.Raw(parameters))
    config = (DeviceAllocationConfiguration("FromClaim", ("r",), opaque),) if parameters else ()
    results = tuple(
        DeviceRequestAllocationResult(request="r", driver="d.example", pool="n1", device=name) for name in names
    )
    return AllocationResult(DeviceAllocationResult(results, config))


def consumer(name: str) -> ConsumerReference:
    return ConsumerReference(resource="pods", name=name, uid=f"uid-{name}")


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """Without controllers: they would take back reservations for Pods that do not exist."""
    require_binaries()
    with ControlPlane(ControlPlaneOptions(controllers=())) as started:
        yield started


@pytest.fixture
def access(plane: ControlPlane) -> Access:
    tls = ssl.create_default_context(cafile=str(plane.ca_file))
    return Access(plane.url, tls=tls, authorization=f"Bearer {plane.admin_token}")


@pytest.fixture
async def client(access: Access) -> AsyncIterator[ApiClient]:
    async with ApiClient(access) as made:
        yield made


async def create(client: ApiClient, kind: Kind, thing: dict[str, Any]) -> Any:
    answer = await client.call("POST", kind.path("default" if kind.namespaced else ""), json.dumps(thing).encode())
    return decode(kind, answer.body)


async def create_claim(client: ApiClient, name: str) -> ResourceClaim:
    request = {"name": "r", "exactly": {"deviceClassName": "gpu"}}
    spec = {"devices": {"requests": [request]}}
    claim: ResourceClaim = await create(client, RESOURCE_CLAIM, {"metadata": {"name": name}, "spec": spec})
    return claim


async def create_pod(client: ApiClient, name: str) -> Pod:
    spec = {"schedulerName": "dra-scheduler", "containers": [{"name": "c", "image": "i"}]}
    pod: Pod = await create(client, POD, {"metadata": {"name": name}, "spec": spec})
    return pod


async def test_claims(client: ApiClient) -> None:
    """Allocation, sharing, the 256 limit, unreserving, freeing; driver parameters stay byte for byte all along."""
    writer = ClaimWriter(client)
    claim = await writer.allocate(
        await create_claim(client, "c"), devices("gpu-0", parameters=PARAMETERS), consumer("p")
    )
    claim = await writer.allocate(claim, devices("gpu-0"), consumer("q"))
    with pytest.raises(ClaimTakenError):
        await writer.allocate(claim, devices("gpu-1"), consumer("r"))
    await asyncio.gather(*(writer.reserve(claim, consumer(f"m{number}")) for number in range(254)))
    with pytest.raises(ClaimFullError):
        await writer.reserve(claim, consumer("one-too-many"))
    left = await writer.unreserve(claim, "uid-q")
    assert left is not None
    assert len(left.consumers) == 255
    assert left.status.allocation is not None
    opaque = left.status.allocation.devices.config[0].opaque
    assert opaque is not None
    assert bytes(opaque.parameters) == PARAMETERS
    other = await writer.allocate(await create_claim(client, "d"), devices("gpu-5"), consumer("p"))
    freed = await writer.deallocate(other, "uid-p")
    assert freed is not None
    assert freed.status.allocation is None
    assert freed.status.reservedFor == ()


async def test_preconditions(client: ApiClient) -> None:
    """A wrong uid is 422 (immutable field), an old resourceVersion 409, for every patch of ours."""
    claim = await ClaimWriter(client).allocate(await create_claim(client, "e"), devices("gpu-0"), consumer("p"))
    meta = claim.metadata
    foreign = msgspec.structs.replace(
        claim, metadata=msgspec.structs.replace(meta, uid="00000000-0000-0000-0000-000000000000")
    )
    old = msgspec.structs.replace(claim, metadata=msgspec.structs.replace(meta, resourceVersion="1"))
    path = RESOURCE_CLAIM.path("default", "e", "status")
    for body in (bodies.claim_unreserve_patch, lambda version, _: bodies.claim_deallocation_patch(version)):
        with pytest.raises(Invalid, match=r"metadata\.uid"):
            await client.call("PATCH", path, body(foreign, "uid-p"), bodies.MERGE_PATCH)
        with pytest.raises(Conflict):
            await client.call("PATCH", path, body(old, "uid-p"), bodies.MERGE_PATCH)
    patch, content_type = bodies.claim_allocation_patch(old, devices("gpu-0", parameters=PARAMETERS), [])
    assert content_type == bodies.JSON_PATCH
    with pytest.raises(Conflict):
        await client.call("PATCH", path, patch, content_type)


async def test_events_and_condition(client: ApiClient) -> None:
    """Events with a long multi-byte note and as a series, and the PodScheduled condition, are accepted."""
    pod = await create_pod(client, "told")
    recorder, status = EventRecorder(client), StatusWriter(client)
    tasks = [asyncio.create_task(recorder.run()), asyncio.create_task(status.run())]
    event = bodies.Event(
        "Warning", "FailedScheduling", "Scheduling", "ä€😀" * 600, bodies.pod_reference(pod), "dra-scheduler", "h"
    )
    for _ in range(2):
        recorder.record(event)
        assert await recorder.drain(10)
    status.set_condition(pod, "Unschedulable", "m" * 3000, "n1")
    assert await status.drain(10)
    for task in tasks:
        task.cancel()
    items = msgspec.json.decode((await client.call("GET", bodies.events_path("default"))).body)["items"]
    mine = [item for item in items if item["regarding"]["name"] == "told"]  # others' events come late, too
    assert [(item["reason"], item["series"]["count"]) for item in mine] == [("FailedScheduling", 2)]
    assert recorder.dropped == 0
    stored: Pod = decode(POD, (await client.call("GET", POD.path("default", "told"))).body)
    condition = pod_scheduled(stored)
    assert condition is not None
    assert (condition.status, condition.message, condition.observedGeneration) == ("False", "m" * 3000, 1)
    assert stored.status.nominatedNodeName == "n1"


async def test_binding(client: ApiClient) -> None:
    """Bound once; again on the same node is success, on another one a lost race."""
    pod, binder = await create_pod(client, "bound"), Binder(client)
    await binder.bind(pod, "n1")
    await binder.bind(pod, "n1")
    with pytest.raises(BoundElsewhereError):
        await binder.bind(pod, "n2")


async def test_lease(client: ApiClient, access: Access) -> None:
    """The Lease is created, held, and given back over the thread's own TLS connection."""
    leads = threading.Event()
    elector = LeaderElector(
        access,
        ElectionSettings(identity="me_1"),
        Beat(),
        on_leading=leads.set,
        on_lost=lambda reason: None,
        exit_process=lambda code: None,
    )
    elector.start()
    assert await asyncio.to_thread(leads.wait, 10)
    path = bodies.lease_path("kube-system", "dra-scheduler")
    assert bodies.decode_lease((await client.call("GET", path)).body).spec.holderIdentity == "me_1"
    await asyncio.to_thread(elector.stop)
    assert bodies.decode_lease((await client.call("GET", path)).body).spec.holderIdentity == ""
