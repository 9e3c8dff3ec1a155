"""Devices that a Pod still holds although it is held back: given back, so that others may have them.

A leader that died between the write of a claim and the Binding leaves a claim that is reserved for a Pod without a
node. The next attempt uses or clears it; but a Pod of which a claim is being deleted, or does not exist, goes nowhere,
whether a PreEnqueue plugin holds it back or its attempts fail. It would keep the devices of its other claims until
somebody deletes it, and the claim that is being deleted would wait for the Pod as the Pod waits for the claim.
kube-scheduler 1.37 leaves them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from scheduler.api.core import Pod
from scheduler.api.resource import ResourceClaim
from scheduler.dra.claims import ClaimError, resolve_claims
from scheduler.framework.instructions import DeallocateClaim, Instruction, UnreserveClaim
from scheduler.state.cluster import ClusterState

PAUSES_S = (1.0, 5.0, 30.0)
"""Between tries; after the last one it is left to whoever leads next, and to the doctor."""

Perform = Callable[[Pod, Instruction], Awaitable[str | None]]


class Leftovers:
    """``perform`` carries out one instruction and answers with what went wrong. While ``busy``, a Pod is not tried."""

    def __init__(
        self, state: ClusterState, perform: Perform, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._state, self._perform, self._sleep = state, perform, sleep
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def busy(self, uid: str) -> bool:
        """True while the Pod's claims are being given back: an attempt now would count on them."""
        return uid in self._tasks

    def let_go(self, pod: Pod) -> None:
        """Begin to give back what is reserved for ``pod``, which is held back. Does nothing for a Pod on a node."""
        held = [claim for claim in self._state.devices.claims_of(pod) if claim.reserved_for(pod.uid)]
        if held and not self.busy(pod.uid) and pod.uid not in self._state.placements and not pod.spec.nodeName:
            task = asyncio.get_running_loop().create_task(self._give_back(pod, held))
            self._tasks[pod.uid] = task
            task.add_done_callback(lambda done: self._tasks.pop(pod.uid, None))

    def after_failure(self, pod: Pod) -> None:
        """``let_go`` when an attempt cannot but have failed: a claim is being deleted or missing."""
        try:
            resolve_claims(pod, self._state.devices.claim, groups=True)
        except ClaimError:
            self.let_go(pod)

    async def finish(self) -> None:
        """End what is under way; a write that was sent is not taken back."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _give_back(self, pod: Pod, held: list[ResourceClaim]) -> None:
        for claim in held:
            for pause_s in PAUSES_S:
                # Others that have reserved it keep the allocation: then only this Pod's name goes.
                if await self._perform(pod, DeallocateClaim(claim, pod.uid)) is None:
                    break
                if await self._perform(pod, UnreserveClaim(claim, pod.uid)) is None:
                    break
                await self._sleep(pause_s)
