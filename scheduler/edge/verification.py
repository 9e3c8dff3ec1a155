"""Whether what was decided still holds: devices by watch order after our writes, claims, node and room at the end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Container, Iterable
from contextlib import suppress

from scheduler.api.core import Pod
from scheduler.api.meta import revision_of
from scheduler.api.resource import AllocationResult, ConsumerReference, ResourceClaim
from scheduler.cycle.decision import Placed
from scheduler.dra.ledger import NOT_SHOWN
from scheduler.dra.podgroups import reservation
from scheduler.dra.verify import Lost, Verdict, WonPair
from scheduler.edge.claim_errors import ClaimInUseError
from scheduler.edge.commit_ports import CommitOutcome, DeviceGoneError, LostError, Revisions
from scheduler.errors import SchedulerError
from scheduler.state.cluster import ClusterState
from scheduler.state.overcommit import overcommitted

_LAST = 1 << 62
"""Stands for an unknown revision of our own allocation: whoever else is known was there before."""


class Verification:
    """``deallocate(claim, consumer uid)`` gives back what lost; ``timeout_s`` bounds the wait for the claim watch.

    ``on_verified`` is told how each verification ended (won, pair, lost, late) and how many seconds it waited.
    """

    def __init__(
        self,
        state: ClusterState,
        revisions: Revisions,
        deallocate: Callable[[ResourceClaim, str], Awaitable[None]],
        timeout_s: float,
    ) -> None:
        self.state, self.revisions, self.timeout_s = state, revisions, timeout_s
        self._deallocate = deallocate
        self._contested: dict[str, list[ResourceClaim]] = {}
        self.on_verified: Callable[[str, float], None] = lambda result, waited_s: None

    async def verify(self, placed: Placed, written: list[ResourceClaim], outcome: CommitOutcome) -> None:
        """Wait until the claim watch has passed our writes, then look who else holds our devices.

        Claims that had their allocation before are looked at too, as long as no bound Pod counts on them: a process
        that died between write and verification left them unchecked, and another Pod that shares the claim may have
        written it a moment ago and be about to lose it.
        """
        began_s = asyncio.get_running_loop().time()
        ours = {claim.uid: claim for claim in written}
        found = self._unchecked(placed.pod, ours)
        revision = max((revision_of(claim.metadata.resourceVersion) or 0 for claim in written), default=0)
        revision = max(revision, *(self._shown_at(claim) for claim in found), 0)
        if revision and not await self.revisions.wait_revision(revision, self.timeout_s):
            self.on_verified("late", asyncio.get_running_loop().time() - began_s)
            text = f"the claim watch did not reach revision {revision} within {self.timeout_s:g} s"
            raise LostError(text + await self._give_back(written, placed.pod))
        lost: list[ResourceClaim] = []
        texts: list[str] = []
        # By now the watch may have told where the others appeared.
        judged = [*((claim, None) for claim in written), *((claim, self._appeared(claim)) for claim in found)]
        for claim, at in judged:
            verdict = self._verdict(placed, claim, at)
            if isinstance(verdict, str):
                texts.append(verdict)
                if claim.uid in ours:
                    lost.append(claim)
            elif isinstance(verdict, Lost):
                other = verdict.conflict
                lost.append(claim)
                texts.append(f"{other.what} of claim {claim.key} is held by claim {other.claim}, which was first")
            elif isinstance(verdict, WonPair):
                outcome.overlaps += [f"{c.what} of claim {claim.key}: also {c.claim}" for c in verdict.conflicts]
        if judged:
            result = "lost" if texts else "pair" if outcome.overlaps else "won"
            self.on_verified(result, asyncio.get_running_loop().time() - began_s)
        if texts:
            outcome.overlaps.clear()
            raise LostError("; ".join(texts) + await self._give_back(lost, placed.pod))

    def _unchecked(self, pod: Pod, ours: Container[str]) -> list[ResourceClaim]:
        """Allocated claims of the Pod that this commit did not write and no bound Pod uses.

        Claims of groups are their group's.
        """
        found = []
        for claim in self.state.devices.claims_of(pod):
            others = [consumer for consumer in claim.consumers if consumer.uid != pod.uid]
            if claim.uid in ours or claim.status.allocation is None or any(map(self._counts, others)):
                continue
            found.append(claim)
        return found

    def _appeared(self, claim: ResourceClaim) -> int:
        """The revision at which the claim's allocation appeared, _LAST when nobody knows."""
        at = self.state.devices.ledger.first_allocated_revision(claim.uid)
        return _LAST if at is None or at == NOT_SHOWN else at

    def _shown_at(self, claim: ResourceClaim) -> int:
        """The revision that the watch must have reached for the order of the claim's allocation to be known."""
        at = self._appeared(claim)
        return at if at != _LAST else revision_of(claim.metadata.resourceVersion) or 0

    def _counts(self, consumer: ConsumerReference) -> bool:
        """True for a consumer that keeps the claim whatever we find: a Pod on a node, or no Pod at all."""
        if consumer.resource != "pods":
            return True
        pod = self.state.pods.get(consumer.uid)
        return pod is not None and bool(pod.spec.nodeName) and not pod.terminal

    def _verdict(self, placed: Placed, claim: ResourceClaim, revision: int | None) -> Verdict | str:
        """Who else holds the claim's devices; a text when claim or node are no longer what the decision left."""
        newest = self.state.devices.claims.get(claim.key)
        if newest is None or newest.uid != claim.uid or reservation(newest, placed.pod) is None:
            return f"claim {claim.key} was taken away again before the pod was bound"
        nodes = self.state.nodes
        row = nodes.row_of(placed.node)
        if row is None:
            return f"node {placed.node} is gone"
        return self.state.devices.verify_write(claim, nodes.node(row), revision)

    def devices_there(self, placed: Placed, key: str, allocation: AllocationResult) -> None:
        """Before a new allocation is written, and once more before the Binding: its devices are still published.

        Stricter than upstream, which binds Pods to devices whose driver has just gone. Raises SchedulerError.
        """
        nodes = self.state.nodes
        row = nodes.row_of(placed.node)
        if row is None:
            raise LostError(f"node {placed.node} is gone")
        missing = self.state.devices.missing_device(allocation, nodes.node(row))
        if missing is not None:
            raise DeviceGoneError(f"device {missing} for claim {key} is no longer published for node {placed.node}")

    async def _give_back(self, claims: Iterable[ResourceClaim], pod: Pod) -> str:
        """Clear allocations that lost, unless another consumer has meanwhile reserved the claim.

        Answers with what went wrong, to be added to the reason, "" when nothing did.
        """
        trouble = ""
        for claim in claims:
            mine = reservation(claim, pod)
            try:
                await self._deallocate(claim, pod.uid if mine is None else mine.uid)
            except ClaimInUseError:
                # Another consumer counts on it now: it keeps the claim, this Pod tries again.
                if mine is None or mine.uid == pod.uid:
                    self._contested.setdefault(pod.uid, []).append(claim)
            except SchedulerError as error:
                trouble += f"; claim {claim.key} could not be given back: {error}"
        return trouble

    async def give_back_last(self, pod: Pod) -> None:
        """After ``pod`` has been taken out of its claims: what lost and was in use by others is given back if none is
        left. Two Pods that share it and have both lost would else wait for each other, and try for ever.
        """
        for claim in self._contested.pop(pod.uid, ()):
            with suppress(SchedulerError):  # in use by another one still, who finds out by itself
                await self._deallocate(claim, pod.uid)

    async def keep_published(self, placed: Placed, written: list[ResourceClaim]) -> None:
        """Give back what vanished between our write and now; raises what devices_there raises."""
        for claim in written:
            assert claim.status.allocation is not None
            try:
                self.devices_there(placed, claim.key, claim.status.allocation)
            except DeviceGoneError as error:
                raise DeviceGoneError(str(error) + await self._give_back([claim], placed.pod)) from error

    def look_again(self, placed: Placed) -> None:
        """The last look before the Binding: claims still the Pod's, node still there, still room for it."""
        for claim in self.state.devices.claims_of(placed.pod):
            if claim.status.allocation is None or reservation(claim, placed.pod) is None:
                # Perhaps another Pod of the group has lost its devices and given the claim back.
                raise LostError(f"claim {claim.key} was taken away again before the pod was bound")
        nodes = self.state.nodes
        row = nodes.row_of(placed.node)
        if row is None or nodes.node(row).metadata.uid != placed.node_uid:
            raise LostError(f"node {placed.node} is gone")
        placement = self.state.placements.get(placed.pod.uid)
        short = overcommitted(nodes, row, placed.cycle.info if placement is None else placement.info)
        if short:
            raise LostError(f"node {placed.node} was filled by others meanwhile: {short}")
