"""The floor: a client that decides nothing and makes every call a Pod needs, over the scheduler's own edge.

``python -m e2e.bench.floor KUBECONFIG NODES DEVICES`` watches Pods (and claims), gives the i-th Pod the i-th place in
turn, writes claim, Binding and event, and keeps no state. What a scheduler costs above it is its own; what this costs
is Python, TLS and JSON. Run by ``python -m e2e.bench WORKLOAD --floor`` beside the two schedulers.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import uvloop

from scheduler.api.bodies import Event, pod_reference
from scheduler.api.changes import Change
from scheduler.api.core import Pod
from scheduler.api.kinds import POD, RESOURCE_CLAIM
from scheduler.api.resource import (
    AllocationResult,
    ConsumerReference,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
)
from scheduler.edge.binder import Binder
from scheduler.edge.claims import ClaimWriter
from scheduler.edge.client import ApiClient
from scheduler.edge.credentials import find_access
from scheduler.edge.events import EventRecorder
from scheduler.edge.reflector import Reflector
from scheduler.errors import ClusterError

CLASS = "gpu.example.com"
NAME = "dra-scheduler"
AT_ONCE = 64
RETRY_PAUSE_S = 0.2


class Floor:
    """Places Pods in the order they are seen; those with a claim once the claim is seen."""

    def __init__(self, client: ApiClient, nodes: int, devices: int) -> None:
        self._nodes, self._devices, self._count = nodes, devices, 0
        self._claims: dict[str, ResourceClaim] = {}
        self._waiting: dict[str, Pod] = {}
        self._binder, self._writer, self.events = Binder(client), ClaimWriter(client), EventRecorder(client)
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()

    def deliver(self, batch: list[Change], revision: int) -> None:
        """What a watch shows."""
        for change in batch:
            if change.kind is RESOURCE_CLAIM:
                if change.new is not None:
                    self._claims[change.new.metadata.name] = change.new
                continue
            pod = change.new
            if pod is None or pod.spec.nodeName or pod.spec.schedulerName != NAME:
                continue
            if change.old is None or pod.uid in self._waiting:
                self._waiting[pod.uid] = pod
        for pod in [pod for pod in self._waiting.values() if self._claim_of(pod) is not None or not self._devices]:
            del self._waiting[pod.uid]
            task = asyncio.get_running_loop().create_task(self._place(pod, self._count))
            self._count += 1
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _claim_of(self, pod: Pod) -> ResourceClaim | None:
        statuses = pod.status.resourceClaimStatuses
        return self._claims.get(statuses[0].resourceClaimName or "") if statuses else None

    async def _place(self, pod: Pod, number: int) -> None:
        """Until it is placed: a claim may have changed since it was seen."""
        while True:
            try:
                return await self._try(pod, number)
            except ClusterError as error:
                print(f"{pod.key}: {error}", file=sys.stderr)
                await asyncio.sleep(RETRY_PAUSE_S)

    async def _try(self, pod: Pod, number: int) -> None:
        node = f"node-{number % self._nodes}"
        async with self._slots:
            claim = self._claim_of(pod)
            if claim is not None:
                device = f"gpu-{number // self._nodes % self._devices}"
                result = DeviceRequestAllocationResult(request="gpu", driver=CLASS, pool=node, device=device)
                allocation = AllocationResult(devices=DeviceAllocationResult(results=(result,)))
                consumer = ConsumerReference(resource="pods", name=pod.metadata.name, uid=pod.uid)
                await self._writer.allocate(claim, allocation, consumer)
            await self._binder.bind(pod, node)
        note = f"Successfully assigned {pod.key} to {node}"
        reference = pod_reference(pod)
        self.events.record(Event("Normal", "Scheduled", "Binding", note, reference, NAME, f"{NAME}-floor"))


async def _run(kubeconfig: Path, nodes: int, devices: int) -> None:
    access = await find_access(str(kubeconfig))
    async with ApiClient(access) as client:
        floor = Floor(client, nodes, devices)
        kinds = (POD, RESOURCE_CLAIM) if devices else (POD,)
        await asyncio.gather(*(Reflector(client, kind, floor).run() for kind in kinds), floor.events.run())


def main() -> None:
    """Until it is killed."""
    uvloop.run(_run(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))


if __name__ == "__main__":
    main()
