"""What a commit needs of others, and what it ends with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from scheduler.api.core import Pod
from scheduler.api.resource import AllocationResult, ConsumerReference, ResourceClaim
from scheduler.api.storage import PersistentVolume, PersistentVolumeClaim
from scheduler.config.model import Extender
from scheduler.errors import SchedulerError
from scheduler.framework.extender_calls import CallExtenders
from scheduler.framework.instructions import PatchPodStatus


class ClaimWrites(Protocol):
    """What the committer needs of the claim writer; every call answers with the stored object."""

    async def allocate(
        self, claim: ResourceClaim, allocation: AllocationResult, consumer: ConsumerReference
    ) -> ResourceClaim: ...
    async def reserve(self, claim: ResourceClaim, consumer: ConsumerReference) -> ResourceClaim: ...
    async def unreserve(self, claim: ResourceClaim, pod_uid: str) -> ResourceClaim | None: ...
    async def deallocate(
        self, claim: ResourceClaim, pod_uid: str = "", expected: AllocationResult | None = None
    ) -> ResourceClaim | None: ...


class PodClaimWrites(Protocol):
    """What the committer needs for claims that we make ourselves."""

    async def create(self, claim: ResourceClaim) -> ResourceClaim: ...
    async def delete(self, claim: ResourceClaim) -> None: ...
    async def patch_status(self, instruction: PatchPodStatus) -> None: ...


class VolumeWrites(Protocol):
    """What the committer needs for volumes; every call answers with the stored object."""

    async def bind_volume(self, volume: PersistentVolume) -> PersistentVolume: ...
    async def select_node(self, claim: PersistentVolumeClaim, node: str) -> PersistentVolumeClaim: ...


class Binds(Protocol):
    """What the committer needs of the binder: returns on success, raises SchedulerError otherwise."""

    async def bind(self, pod: Pod, node: str) -> None: ...


class Revisions(Protocol):
    """The claim watch: resolves once it has reached a revision."""

    async def wait_revision(self, revision: int, timeout_s: float) -> bool: ...


class Extends(Protocol):
    """What the committer needs of HTTP extenders."""

    async def make(self, calls: CallExtenders) -> None: ...
    async def bind(self, extenders: Sequence[Extender], pod: Pod, node: str) -> bool: ...


class NoExtenders:
    """Where none are configured."""

    async def make(self, calls: CallExtenders) -> None:
        """Every call fails."""
        for call_ in calls.calls:
            call_.failure = "there are no extenders here"

    async def bind(self, extenders: Sequence[Extender], pod: Pod, node: str) -> bool:
        """The Bind plugins bind."""
        return False


@dataclass(slots=True)
class CommitOutcome:
    """``bound``; or ``gone`` (the Pod is being deleted or has been); or ``text`` says why not.

    ``lost`` marks a race lost to another scheduler; ``overlaps`` lists foreign claims that took our devices later
    (we keep ours, but somebody must know).
    """

    bound: bool = False
    gone: bool = False
    lost: bool = False
    text: str = ""
    overlaps: list[str] = field(default_factory=list)


class LostError(SchedulerError):
    """Another scheduler was first; the text names what was lost to whom."""


class DeviceGoneError(SchedulerError):
    """A device of the new allocation is not published any more."""


class GoneError(SchedulerError):
    """The Pod no longer wants a node."""


class PreemptedError(SchedulerError):
    """The Pod gives way to a more important one before it is bound."""
