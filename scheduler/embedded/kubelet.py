"""The pretended kubelet: one instance plays the kubelets of all nodes of any API server, over HTTP.

It admits bound Pods as a real one does, refuses claims that are not allocated and reserved, runs and finishes Pods,
and finalises their deletion. It also keeps what suites judge a scheduler by: rejections, refusals, double uses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

import aiohttp

from scheduler.embedded.kubelet_admission import (
    NodeAccount,
    Rejection,
    claim_names,
    claim_refusal,
    devices_of,
)
from scheduler.embedded.kubelet_http import GoneError, KubeletHttp, Sleep, UnavailableError
from scheduler.embedded.kubelet_record import DeviceUse, DoubleUse, PodRecord, Verdict
from scheduler.embedded.kubelet_status import failed_status, finished_status, running_status

Object = dict[str, Any]

# How long the Pod's containers run, in seconds (a decimal number); without it they run until deleted.
RUN_SECONDS_ANNOTATION = "demo.dra-scheduler/run-seconds"
_FINAL_PHASES = ("Succeeded", "Failed")


def _utc_now() -> datetime:
    return datetime.now(UTC)


class PretendedKubelet:
    """Use as an async context manager: it works in the background until the block ends.

    ``session`` must have a base URL and the credentials. sleep and now are the clock (tests inject theirs);
    retry_s paces new tries after a refusal, termination_s is how long containers take to stop.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        *,
        sleep: Sleep = asyncio.sleep,
        now: Callable[[], datetime] = _utc_now,
        retry_s: float = 0.5,
        termination_s: float = 0.0,
    ) -> None:
        self._http = KubeletHttp(session)
        self._sleep = sleep
        self._now = now
        self._retry_s = retry_s
        self._termination_s = termination_s
        self._nodes: dict[str, NodeAccount] = {}
        self._records: dict[str, PodRecord] = {}
        self._devices = DeviceUse()
        self._background: set[asyncio.Task[None]] = set()
        self._next_ip = 0
        self.failure: BaseException | None = None
        self.rejections: list[Verdict] = []
        self.refusals: list[Verdict] = []
        self.double_uses: list[DoubleUse] = []

    # -- life ---------------------------------------------------------------------------------------------

    async def __aenter__(self) -> PretendedKubelet:
        """Start and wait until nodes and Pods have been listed once."""
        nodes, pods = asyncio.Event(), asyncio.Event()
        self._spawn(self._http.follow("/api/v1/nodes", self._node_changed, self._node_removed, nodes.set, self._sleep))
        await nodes.wait()
        self._spawn(self._http.follow("/api/v1/pods", self._pod_changed, self._pod_removed, pods.set, self._sleep))
        await pods.wait()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        tasks = list(self._background)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self.failure is not None and error is None:
            raise self.failure

    def _spawn(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._background.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self.failure = task.exception()  # raised when the block ends: a broken judge passes nobody

    # -- what suites ask ----------------------------------------------------------------------------------

    @property
    def running(self) -> set[str]:
        """namespace/name of every Pod that runs now."""
        return {record.name for record in self._records.values() if record.running and not record.ended}

    def complaints(self) -> list[str]:
        """Everything that no Pod of a right scheduler meets, one line each; empty when all is well."""
        lines = [f"{v.pod} on {v.node}: {v.reason}: {v.message}" for v in (*self.rejections, *self.refusals)]
        lines += [f"{use.pod}: {use.device} is also held by claim {use.other_claim_uid}" for use in self.double_uses]
        return lines

    async def finish(self, namespace: str, name: str, phase: str = "Succeeded") -> None:
        """End a running Pod's containers now; KeyError when it does not run here."""
        for record in self._records.values():
            if record.name == f"{namespace}/{name}" and record.running and not record.ended:
                self._end(record, phase)
                if record.worker is not None:
                    await record.worker
                return
        raise KeyError(f"{namespace}/{name} does not run")

    # -- events -------------------------------------------------------------------------------------------

    def _node_changed(self, node: Object) -> None:
        name = node["metadata"]["name"]
        account = self._nodes.get(name)
        if account is not None:
            account.node = node
            return
        if not node.get("status", {}).get("allocatable"):
            return  # a real kubelet registers with its resources; tests write them in a second request
        account = self._nodes[name] = NodeAccount(node)
        for record in self._records.values():
            if record.node == name:
                if record.running and not record.ended:
                    account.adopt(record.pod)
                self._kick(record)

    def _node_removed(self, node: Object) -> None:
        self._nodes.pop(node["metadata"]["name"], None)
        for record in self._records.values():
            if record.node == node["metadata"]["name"]:
                record.admitted = record.running  # a node of the same name starts with an empty account
                self._kick(record)

    def _pod_changed(self, pod: Object) -> None:
        if not pod["spec"].get("nodeName"):
            return
        record = self._records.get(pod["metadata"]["uid"])
        if record is None:
            record = self._records[pod["metadata"]["uid"]] = PodRecord(pod)
        record.pod = pod
        if pod["status"].get("phase") in _FINAL_PHASES:
            self._release(record)
        self._kick(record)

    def _pod_removed(self, pod: Object) -> None:
        record = self._records.pop(pod["metadata"]["uid"], None)
        if record is None:
            return
        record.deleted = True
        self._release(record)
        if record.timer is not None:
            record.timer.cancel()

    def _release(self, record: PodRecord) -> None:
        """Node and devices are free from now on: before anybody else can learn that the Pod has ended."""
        record.ended = True
        account = self._nodes.get(record.node)
        if account is not None:
            account.release(record.uid)
        self._devices.release(record.uid)

    def _kick(self, record: PodRecord) -> None:
        """Look at the Pod (again); one worker at a time per Pod."""
        record.dirty = True
        if record.worker is None or record.worker.done():
            record.worker = self._spawn(self._work(record))

    async def _work(self, record: PodRecord) -> None:
        while record.dirty and not record.deleted:
            record.dirty = False
            try:
                done = await self._sync(record)
            except (GoneError, UnavailableError):
                done = False  # when the Pod is gone, the watch says so and ends this loop
            if not done:
                await self._sleep(self._retry_s)
                record.dirty = True

    # -- one Pod ------------------------------------------------------------------------------------------

    async def _sync(self, record: PodRecord) -> bool:
        """Bring the Pod one state further; False: try again later."""
        if record.pod["metadata"].get("deletionTimestamp"):
            await self._finalise(record)
            return True
        await self._write_final_status(record)
        if record.ended:
            return True
        account = self._nodes.get(record.node)
        if account is None:
            return True  # looked at again when the node appears
        if record.pod["status"].get("phase") == "Running" and not record.running:
            account.adopt(record.pod)  # another kubelet started it before us
            record.admitted = record.running = True
            await self._prepare(record, account)
        if not record.admitted and not await self._admit(record, account):
            return True
        if not record.running:
            if not await self._prepare(record, account):
                return False
            await self._start(record)
        self._start_timer(record)
        return True

    async def _admit(self, record: PodRecord, account: NodeAccount) -> bool:
        rejection = account.admit(record.pod)
        if rejection is not None:
            # Our copy of the node may be older than the scheduler's; a kubelet knows its own node.
            account.node = await self._http.get(f"/api/v1/nodes/{record.node}")
            rejection = account.admit(record.pod)
        if record.deleted or record.ended:
            account.release(record.uid)
            return False
        if rejection is None:
            record.admitted = True
            return True
        await self._reject(record, rejection)
        return False

    async def _reject(self, record: PodRecord, rejection: Rejection) -> None:
        self.rejections.append(Verdict(record.name, record.uid, record.node, rejection.reason, rejection.message))
        self._release(record)
        record.final_status = failed_status(record.pod, rejection, self._now())
        await self._write_final_status(record)

    async def _prepare(self, record: PodRecord, account: NodeAccount) -> bool:
        """Check the Pod's claims against the server's present state and take their devices."""
        names, missing = claim_names(record.pod)
        if missing is not None:
            return self._refuse(record, missing)
        claims: list[Object] = []
        for name, must_own in names:
            namespace = record.pod["metadata"]["namespace"]
            try:
                claim = await self._http.get(f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{name}")
            except GoneError:
                return self._refuse(record, f"fetch ResourceClaim {name}: not found")
            problem = claim_refusal(record.pod, claim, account.node, must_own=must_own)
            if problem is not None:
                return self._refuse(record, problem)
            claims.append(claim)
        if not record.leaving:
            for claim in claims:
                self._take_devices(record, claim)
        return True

    def _refuse(self, record: PodRecord, message: str) -> bool:
        if record.leaving:
            return True  # it is on its way out: a kubelet would not have started it either
        verdict = Verdict(record.name, record.uid, record.node, "FailedPrepareDynamicResources", message)
        if verdict not in self.refusals:
            self.refusals.append(verdict)
        return False

    def _take_devices(self, record: PodRecord, claim: Object) -> None:
        claim_uid = claim["metadata"]["uid"]
        for device in devices_of(claim):
            for other in self._devices.take(device, claim_uid, record.uid):
                self.double_uses.append(DoubleUse(device, record.name, claim_uid, other))

    async def _start(self, record: PodRecord) -> None:
        if record.leaving:
            return
        self._next_ip += 1
        address = f"10.{self._next_ip >> 16 & 255}.{self._next_ip >> 8 & 255}.{self._next_ip & 255}"
        await self._patch_status(record, running_status(record.pod, address, self._now()))
        record.running = True

    def _start_timer(self, record: PodRecord) -> None:
        text = (record.pod["metadata"].get("annotations") or {}).get(RUN_SECONDS_ANNOTATION)
        if text is not None and record.running and record.timer is None:
            record.timer = self._spawn(self._end_after(record, float(text)))

    async def _end_after(self, record: PodRecord, run_s: float) -> None:
        await self._sleep(run_s)
        if not record.leaving:
            self._end(record, "Succeeded")

    def _end(self, record: PodRecord, phase: str) -> None:
        """Its containers have ended; the worker writes the status."""
        self._release(record)
        record.final_status = finished_status(record.pod, phase, self._now())
        self._kick(record)

    async def _finalise(self, record: PodRecord) -> None:
        """A Pod that was deleted: stop its containers, report that, remove the object."""
        if record.timer is not None:
            record.timer.cancel()
        if record.running and not record.ended:
            if self._termination_s > 0:
                await self._sleep(self._termination_s)
            self._release(record)
            record.final_status = finished_status(record.pod, "Succeeded", self._now())
        self._release(record)
        await self._write_final_status(record)
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "gracePeriodSeconds": 0,
            "preconditions": {"uid": record.uid},
        }
        await self._http.delete(record.path, options)

    async def _write_final_status(self, record: PodRecord) -> None:
        if record.final_status is not None:
            await self._patch_status(record, record.final_status)
            record.final_status = None

    async def _patch_status(self, record: PodRecord, status: Object) -> None:
        """Write the Pod's status; the uid keeps it away from a new Pod of the same name (GoneError)."""
        body = {"metadata": {"uid": record.uid}, "status": status}
        await self._http.patch(f"{record.path}/status", body)
