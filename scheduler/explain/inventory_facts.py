"""What an inventory says, as data: the shape of ``inventory -o json``."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Line:
    """Devices counted together. ``used``: given to a claim as a whole; ``shared``: given in part.

    ``tainted``: not used, but kept from requests without toleration; ``blocked``: not used, but what they are made of
    (counters of the pool) is; ``free``: what a request could get now. ``largest``: the most devices that one request
    for them could get on one node now, ``largest_empty``: if none were in use. ``fragmentation``: as the function says.
    ``remainder``: what is left of the capacities of devices that may be shared, summed; ``largest_share``: the most of
    it that one device has. ``holders``: claims, with their Pods; told by device only.
    """

    driver: str = ""
    model: str = ""
    pool: str = ""
    node: str = ""
    device: str = ""
    total: int = 0
    used: int = 0
    shared: int = 0
    tainted: int = 0
    blocked: int = 0
    free: int = 0
    largest: int = 0
    largest_empty: int = 0
    fragmentation: float = 0.0
    remainder: dict[str, str] = field(default_factory=dict)
    largest_share: dict[str, str] = field(default_factory=dict)
    holders: list[str] = field(default_factory=list)


def fragmentation(line: Line) -> float:
    """The part by which the largest request falls short of what as many free devices could serve in the best case.

    The best case: they stand together on one node, as far as a node has as many. 0 for a fleet that nobody uses.
    """
    best = min(line.free, line.largest_empty)
    return round(max(0.0, 1 - line.largest / best), 3) if best else 0.0


@dataclass(slots=True)
class ClaimNote:
    """A claim worth a look: ``because`` says why, ``devices`` what it holds."""

    claim: str
    because: str
    devices: list[str] = field(default_factory=list)
    age_s: float | None = None


@dataclass(slots=True)
class Inventory:
    """``leaked``: reserved for Pods that do not exist; ``waiting``: without devices for long; ``lost``: holding devices
    that no driver publishes; ``on_tainted``: holding devices that are tainted by now; ``pools``: those that cannot be
    used, and why; ``namespaces``: devices by driver; ``shares``: capacities taken of shared devices, by namespace and
    ``driver/capacity``.
    """

    lines: list[Line] = field(default_factory=list)
    leaked: list[ClaimNote] = field(default_factory=list)
    waiting: list[ClaimNote] = field(default_factory=list)
    lost: list[ClaimNote] = field(default_factory=list)
    on_tainted: list[ClaimNote] = field(default_factory=list)
    pools: dict[str, str] = field(default_factory=dict)
    namespaces: dict[str, dict[str, int]] = field(default_factory=dict)
    shares: dict[str, dict[str, str]] = field(default_factory=dict)
    caveats: list[str] = field(default_factory=list)

    @property
    def troubled(self) -> bool:
        """Whether anything needs somebody's attention."""
        return bool(self.leaked or self.lost or self.pools or self.on_tainted)
