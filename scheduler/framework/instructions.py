"""What the edge is asked to do. Plugins and the cycle return these; they never call the API server themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from scheduler.api.core import Pod
from scheduler.api.resource import AllocationResult, ConsumerReference, ResourceClaim
from scheduler.api.storage import PersistentVolume, PersistentVolumeClaim
from scheduler.framework.extender_calls import CallExtenders


@dataclass(frozen=True, slots=True)
class WriteClaim:
    """Store ``allocation`` (None: the claim has one already, only reserve) and add ``consumer`` in one status write.

    ``claim`` is the version the decision was made on. The edge adds finalizer and timestamp, and after the write
    verifies by watch order. ``expected`` is the stored allocation the node was filtered on, when there was one.
    """

    claim: ResourceClaim
    consumer: ConsumerReference
    allocation: AllocationResult | None = None
    expected: AllocationResult | None = None


@dataclass(frozen=True, slots=True)
class DeallocateClaim:
    """Clear allocation, reservedFor and devices of ``claim`` (PostFilter); refused when it changed meanwhile.

    ``consumer_uid``: who alone may have reserved it; "" for the Pod whose attempt it is.
    """

    claim: ResourceClaim
    consumer_uid: str = ""


@dataclass(frozen=True, slots=True)
class UnreserveClaim:
    """Take the Pod with ``pod_uid`` out of reservedFor of ``claim``; the allocation stays (others may use it)."""

    claim: ResourceClaim
    pod_uid: str


@dataclass(frozen=True, slots=True)
class CreateClaim:
    """Create ``claim`` (its name is the beginning of the real one), then store ``allocation`` and ``consumer``.

    ``created`` is told of the stored claim before anything else is written to it.
    """

    claim: ResourceClaim
    consumer: ConsumerReference
    allocation: AllocationResult
    created: Callable[[ResourceClaim], None]


@dataclass(frozen=True, slots=True)
class DeleteClaim:
    """Take the finalizer off ``claim`` and delete it, whatever it holds. Done when it is gone already."""

    claim: ResourceClaim


@dataclass(frozen=True, slots=True)
class PatchPodStatus:
    """Merge the fields that ``status`` answers (asked when it is this one's turn) into the status of ``pod``.

    ``doing`` starts the message of a refusal.
    """

    pod: Pod
    status: Callable[[], Mapping[str, object]]
    doing: str


@dataclass(slots=True)
class PreemptionProgress:
    """How far a preemption in the background is. ``last``: the last victim, once its turn has come; ``ended``: it is
    over without anybody's going to wait for.
    """

    last: Pod | None = None
    ended: bool = False


@dataclass(frozen=True, slots=True)
class PreemptPods:
    """Make ``victims`` leave ``node`` for ``preemptor``; done as soon as the work has begun in the background.

    ``displaced``: Pods of lower priority that were nominated to the node and are not any more. ``progress`` is kept
    current for the plugin, which holds the preemptor back meanwhile.
    """

    preemptor: Pod
    node: str
    victims: tuple[Pod, ...]
    displaced: tuple[Pod, ...]
    progress: PreemptionProgress


@dataclass(frozen=True, slots=True)
class BindVolume:
    """Store that ``volume`` is promised to ``claim``: its claimRef and annotations as ``volume`` has them.

    Refused when the volume changed meanwhile. The answer is known at once.
    """

    volume: PersistentVolume
    claim: PersistentVolumeClaim


@dataclass(frozen=True, slots=True)
class SelectNode:
    """Store in ``claim`` that its volume is to be made for ``node`` ("": for no node any more).

    Refused when the claim changed meanwhile. The answer is known at once.
    """

    claim: PersistentVolumeClaim
    node: str


@dataclass(frozen=True, slots=True)
class WaitUntil:
    """Wait until ``ready`` answers: None to go on waiting, "" for ready, a text for failure.

    Checked at once and then every ``interval_s``, at most ``timeout_s``; ``timeout_text`` is the error afterwards.
    ``drivers``: whose devices are waited for, to be counted.
    """

    ready: Callable[[], str | None]
    timeout_s: float
    interval_s: float
    timeout_text: str
    reason: str = ""
    note: str = ""
    drivers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BindPod:
    """POST the Binding of ``pod`` to ``node``."""

    pod: Pod
    node: str


Instruction = (
    WriteClaim
    | DeallocateClaim
    | UnreserveClaim
    | CreateClaim
    | DeleteClaim
    | PatchPodStatus
    | PreemptPods
    | BindVolume
    | SelectNode
    | WaitUntil
    | BindPod
    | CallExtenders
)
