"""Performs instructions against the API server; what the server confirms is known to the state at once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from scheduler.api.core import Pod
from scheduler.api.resource import ResourceClaim
from scheduler.edge.claim_errors import ClaimError, ClaimUnknownError
from scheduler.edge.commit_ports import Binds, ClaimWrites, Extends, NoExtenders, PodClaimWrites, VolumeWrites
from scheduler.errors import InternalError
from scheduler.framework.events import ClusterEvent
from scheduler.framework.extender_calls import CallExtenders
from scheduler.framework.instructions import (
    BindPod,
    BindVolume,
    CreateClaim,
    DeallocateClaim,
    DeleteClaim,
    Instruction,
    PatchPodStatus,
    PreemptPods,
    SelectNode,
    UnreserveClaim,
    WaitUntil,
    WriteClaim,
)
from scheduler.state.cluster import ClusterState

Waiter = Callable[[Pod, WaitUntil], Awaitable[None]]


class Performer:
    """``on_events`` receives the cluster events of our own writes; ``wait`` is asked for WaitUntil.

    ``on_claim_write`` is told of each write of a claim (allocate, reserve, unreserve, deallocate) and its result
    (success, conflict, error).
    """

    def __init__(
        self,
        state: ClusterState,
        claims: ClaimWrites,
        pod_claims: PodClaimWrites,
        volumes: VolumeWrites,
        binder: Binds,
        on_events: Callable[[Iterable[ClusterEvent]], None],
        wait: Waiter,
    ) -> None:
        self.state, self.claims, self.pod_claims = state, claims, pod_claims
        self.volumes, self.binder, self.on_events = volumes, binder, on_events
        self.extenders: Extends = NoExtenders()
        self.on_preempt: Callable[[PreemptPods], None] = lambda preemption: None
        self.on_claim_write: Callable[[str, str], None] = lambda operation, result: None
        self._wait = wait
        self._ways: dict[type, Callable[[Pod, Any], Awaitable[ResourceClaim | None]]] = {
            WriteClaim: self._write,
            DeallocateClaim: self._deallocate,
            UnreserveClaim: self._unreserve,
            CreateClaim: self._create,
            DeleteClaim: self._delete,
            PatchPodStatus: self._patch_status,
            BindVolume: self._bind_volume,
            SelectNode: self._select_node,
            WaitUntil: self._wait_until,
            PreemptPods: self._preempt,
            CallExtenders: self._call_extenders,
            BindPod: self._bind,
        }

    async def perform(self, pod: Pod, instruction: Instruction) -> ResourceClaim | None:
        """Do it; the stored claim of an instruction that writes one. Raises SchedulerError."""
        way = self._ways.get(type(instruction))
        if way is None:
            raise InternalError(f"unknown instruction {instruction!r}")
        return await way(pod, instruction)

    async def deallocate(self, claim: ResourceClaim, consumer_uid: str) -> None:
        """Clear the claim's allocation. Raises ClaimError."""
        with self._counted("deallocate"):
            self._learn(await self.claims.deallocate(claim, consumer_uid))

    async def _write(self, _: Pod, write: WriteClaim) -> ResourceClaim | None:
        if write.allocation is not None:
            with self._counted("allocate"):
                return self._learn(await self.claims.allocate(write.claim, write.allocation, write.consumer))
        with self._counted("reserve"):
            return self._learn(await self.claims.reserve(write.claim, write.consumer))

    async def _deallocate(self, pod: Pod, instruction: DeallocateClaim) -> ResourceClaim | None:
        with self._counted("deallocate"):
            consumer = instruction.consumer_uid or pod.uid
            return self._learn(await self.claims.deallocate(instruction.claim, consumer))

    async def _unreserve(self, _: Pod, instruction: UnreserveClaim) -> ResourceClaim | None:
        with self._counted("unreserve"):
            return self._learn(await self.claims.unreserve(instruction.claim, instruction.pod_uid))

    async def _create(self, _: Pod, instruction: CreateClaim) -> ResourceClaim | None:
        stored = await self.pod_claims.create(instruction.claim)
        instruction.created(stored)
        with self._counted("allocate"):
            try:
                return self._learn(await self.claims.allocate(stored, instruction.allocation, instruction.consumer))
            except ClaimUnknownError as error:
                error.found = error.found or stored  # nobody else knows the claim yet
                raise

    async def _delete(self, _: Pod, instruction: DeleteClaim) -> None:
        await self.pod_claims.delete(instruction.claim)

    async def _patch_status(self, _: Pod, instruction: PatchPodStatus) -> None:
        await self.pod_claims.patch_status(instruction)

    async def _bind_volume(self, _: Pod, instruction: BindVolume) -> None:
        self.on_events(self.state.learn_volume(await self.volumes.bind_volume(instruction.volume)))

    async def _select_node(self, _: Pod, instruction: SelectNode) -> None:
        chosen = await self.volumes.select_node(instruction.claim, instruction.node)
        self.on_events(self.state.learn_volume_claim(chosen))

    async def _wait_until(self, pod: Pod, instruction: WaitUntil) -> None:
        await self._wait(pod, instruction)

    async def _preempt(self, _: Pod, instruction: PreemptPods) -> None:
        self.on_preempt(instruction)

    async def _call_extenders(self, _: Pod, instruction: CallExtenders) -> None:
        await self.extenders.make(instruction)

    async def _bind(self, _: Pod, instruction: BindPod) -> None:
        await self.binder.bind(instruction.pod, instruction.node)

    @contextmanager
    def _counted(self, operation: str) -> Iterator[None]:
        """Tell how a write of a claim ended: ``conflict`` when somebody else's write was in its way."""
        result = "error"
        try:
            yield
            result = "success"
        except ClaimError as error:
            result = "conflict" if error.lost_race else "error"
            raise
        finally:
            self.on_claim_write(operation, result)

    def _learn(self, claim: ResourceClaim | None) -> ResourceClaim | None:
        """What the server confirmed is known at once, and is never un-assumed (spec dra 25, no. 16)."""
        if claim is not None:
            self.on_events(self.state.learn_claim(claim))
        return claim
