"""Why a claim could not be written, one class per thing the caller does differently.

ClaimError
├─ ClaimGoneError       deleted, or another object under the name
├─ ClaimTakenError      somebody stored another allocation
├─ ClaimFreedError      somebody cleared the allocation we counted on
├─ ClaimFullError       256 consumers
├─ ClaimRefusedError    the guard does not let the allocation be stored: somebody has the devices
├─ ClaimUnguardedError  no guard answered, and without its word nothing is stored
├─ ClaimInUseError      cannot be deallocated, others have reserved it
├─ ClaimConflictError   it kept changing under us
└─ ClaimUnknownError    the outcome of the write is unknown
Texts: kube-scheduler 1.37, DynamicResources PreBind, where it has one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from scheduler.api.resource import RESERVED_FOR_MAX, AllocationResult, ConsumerReference, ResourceClaim
from scheduler.errors import ClusterError


class ClaimError(ClusterError):
    """A claim could not be written. ``claim`` is ``namespace/name``; ``found`` the object read last, if any."""

    lost_race = False

    def __init__(self, claim: str, text: str, found: ResourceClaim | None = None) -> None:
        self.claim, self.found = claim, found
        super().__init__(text)


class ClaimGoneError(ClaimError):
    """The claim is deleted, being deleted, or another one under the same name."""

    def __init__(self, claim: str, found: ResourceClaim | None = None) -> None:
        super().__init__(claim, f"claim {claim} got deleted in the meantime", found)


class ClaimTakenError(ClaimError):
    """Another allocation than the one we know is stored: a race lost to whoever wrote it."""

    lost_race = True

    def __init__(self, claim: str, found: ResourceClaim | None = None) -> None:
        super().__init__(claim, f"claim {claim} got allocated elsewhere in the meantime", found)


class ClaimFreedError(ClaimError):
    """The allocation we counted on was cleared."""

    def __init__(self, claim: str, found: ResourceClaim | None = None) -> None:
        super().__init__(claim, f"claim {claim} got deallocated elsewhere in the meantime", found)


class ClaimFullError(ClaimError):
    """No room for another consumer."""

    def __init__(self, claim: str, found: ResourceClaim | None = None) -> None:
        super().__init__(claim, f"claim {claim} is already reserved for {RESERVED_FOR_MAX} consumers", found)


class ClaimRefusedError(ClaimError):
    """The guard refused the allocation: a race lost to the holder it names, or to news of the devices."""

    lost_race = True

    def __init__(self, claim: str, said: str, found: ResourceClaim | None = None) -> None:
        self.said = said
        super().__init__(claim, f"the guard refused the allocation of claim {claim}: {said}", found)


class ClaimUnguardedError(ClaimError):
    """The API server could not ask the guard and (failurePolicy Fail) stored nothing. Another try may find it back."""

    def __init__(self, claim: str, said: str, found: ResourceClaim | None = None) -> None:
        text = f"claim {claim} was not allocated, because no guard answered (its failurePolicy is Fail): {said}"
        super().__init__(claim, text, found)


class ClaimInUseError(ClaimError):
    """The claim cannot be deallocated: others have reserved it."""

    def __init__(self, claim: str, others: Sequence[ConsumerReference], found: ResourceClaim) -> None:
        self.others = tuple(others)
        names = ", ".join(f"{other.resource} {other.name}" for other in others)
        super().__init__(claim, f"claim {claim} is reserved for others: {names}", found)


class ClaimConflictError(ClaimError):
    """The claim kept changing under us, or the server refused the write; the cause tells which."""


class ClaimUnknownError(ClaimError):
    """The write may have taken effect, and reading back failed too. Count it as done until the watch tells."""


_GUARD = re.compile(r'admission webhook "[^"]*\bguard\.dra-scheduler" denied the request: (.*)', re.DOTALL)


_NO_GUARD = re.compile(r'failed calling webhook "[^"]*\bguard\.dra-scheduler": (.*)', re.DOTALL)


def guard_absence(message: str) -> str:
    """Why the API server could not ask the guard, "" when that is not what ``message`` says."""
    found = _NO_GUARD.search(message)
    return "" if found is None else found.group(1)


def guard_refusal(message: str) -> str:
    """What the guard said in an API server's refusal, "" when it was not the guard."""
    found = _GUARD.search(message)
    return "" if found is None else found.group(1)


def same_allocation(left: AllocationResult | None, right: AllocationResult | None) -> bool:
    """True when both give the same devices to the same requests, shares included, in any order.

    Nothing else is compared: the server adds defaults (a toleration's operator), spells quantities its own way, and
    everything else follows from the devices.
    """
    if left is None or right is None:
        return left is right
    return _given(left) == _given(right)


def _given(allocation: AllocationResult) -> list[tuple[str, str, str, str, bool, str]]:
    return sorted(
        (
            result.request,
            result.driver,
            result.pool,
            result.device,
            bool(result.adminAccess),
            result.shareID or "",
        )
        for result in allocation.devices.results
    )
