"""Why a device, request, claim or node was refused: frozen records from a closed vocabulary. Words come last."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from scheduler.dra.devices import DeviceKey


class Reason(Enum):
    """Every reason for which devices are refused."""

    SELECTOR_FALSE = "selector false"
    SELECTOR_ERROR = "selector error"
    IN_USE = "in use by claim"
    TAINTED = "tainted"
    CAPACITY_SHORT = "capacity short by"
    COUNTER_SHORT = "counter short by"
    ATTRIBUTE_MISSING = "attribute missing"
    MATCH_BROKEN = "match broken against"
    DISTINCT_BROKEN = "distinct broken against"
    POOL_INCOMPLETE = "pool incomplete"
    POOL_INVALID = "pool invalid"
    NOT_ON_NODE = "not on this node"
    NOT_SUPPORTED = "not supported"
    INCOMPATIBLE_GROUP = "incompatible group"
    LIMIT = "limit"
    SEARCH_BUDGET = "search budget"


@dataclass(frozen=True, slots=True)
class Rejection:
    """One refusal. ``subject`` is the device (None: the whole request, pool or node); ``detail`` holds the facts."""

    reason: Reason
    claim: str = ""
    request: str = ""
    device: DeviceKey | None = None
    detail: Mapping[str, str] = field(default_factory=dict)

    def words(self) -> str:
        """One line for people, such as ``gpu.example.com/node-1/gpu-0: in use by claim default/a``."""
        subject = str(self.device) if self.device is not None else self.request or self.claim
        facts = ", ".join(f"{name} {value}" for name, value in self.detail.items())
        return f"{subject}: {self.reason.value}" + (f" ({facts})" if facts else "")


@dataclass(frozen=True, slots=True)
class Chosen:
    """A device that a search took for a request (``name`` or ``name/alternative``) of a claim."""

    claim: str
    request: str
    device: DeviceKey


@dataclass(frozen=True, slots=True)
class DeviceSearch:
    """One search, to be explained: why devices were passed over, and which were taken (none: it found no solution)."""

    rejections: tuple[Rejection, ...] = ()
    chosen: tuple[Chosen, ...] = ()
