"""The recorded history of a cluster: every change of claims, Pods and slices with the revision at which it happened.

A fact is what the checker (e2e/history_check.py) needs of one version of an object, and no more, so that an hour of
churn fits into memory. Revisions of all kinds come from one etcd and can be compared. Facts are kept as JSON lines, one
each, so that a history that was found bad can be judged again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from scheduler.api.quantity import parse_quantity

Object = Mapping[str, Any]
DeviceName = tuple[str, str, str]
"""Driver, pool, device."""

_FINAL_PHASES = ("Succeeded", "Failed")


class Taken(msgspec.Struct, frozen=True):
    """One result of an allocation. ``consumed``: amounts by name, as the API writes them, in thousandths."""

    driver: str
    pool: str
    device: str
    admin: bool = False
    share_id: str = ""
    consumed: dict[str, int] = {}

    @property
    def name(self) -> DeviceName:
        """Driver, pool, device."""
        return self.driver, self.pool, self.device


class ClaimFact(msgspec.Struct, frozen=True, tag="claim"):
    """One version of a ResourceClaim. ``writer``: the field manager that owns status.allocation ("" when unknown).

    ``listed``: it was there when the recording began, nobody knows for how long.
    """

    revision: int
    uid: str
    namespace: str
    name: str
    gone: bool = False
    allocated: bool = False
    writer: str = ""
    results: tuple[Taken, ...] = ()
    reserved: tuple[str, ...] = ()
    listed: bool = False

    @property
    def key(self) -> str:
        """namespace/name."""
        return f"{self.namespace}/{self.name}"


class PodFact(msgspec.Struct, frozen=True, tag="pod"):
    """One version of a Pod. ``claims``: names of its claims; ``unmade``: entries whose claim was not made yet.

    ``told``: the message of its PodScheduled condition while that is False; ``listed``: as for claims.
    """

    revision: int
    uid: str
    namespace: str
    name: str
    scheduler: str
    gone: bool = False
    node: str = ""
    claims: tuple[str, ...] = ()
    unmade: int = 0
    finished: bool = False
    leaving: bool = False
    told: str = ""
    listed: bool = False

    @property
    def key(self) -> str:
        """namespace/name."""
        return f"{self.namespace}/{self.name}"


class Published(msgspec.Struct, frozen=True):
    """What a device has and takes, in thousandths: capacity by name, counters by "set/counter"."""

    capacity: dict[str, int] = {}
    consumes: dict[str, int] = {}


class SliceFact(msgspec.Struct, frozen=True, tag="slice"):
    """One version of a ResourceSlice."""

    revision: int
    name: str
    driver: str
    pool: str
    generation: int
    gone: bool = False
    devices: dict[str, Published] = {}
    counters: dict[str, int] = {}


Fact = ClaimFact | PodFact | SliceFact
_DECODER = msgspec.json.Decoder(Fact)


def _milli(text: object) -> int:
    """An amount in thousandths."""
    return parse_quantity(str(text)).milli_value()


def claim_fact(claim: Object, revision: int, gone: bool, listed: bool = False) -> ClaimFact:
    """What one version of a claim says; a claim that is gone holds nothing."""
    meta, status = claim["metadata"], claim.get("status") or {}
    allocation = None if gone else status.get("allocation")
    results = (allocation or {}).get("devices", {}).get("results") or ()
    return ClaimFact(
        revision,
        meta["uid"],
        meta["namespace"],
        meta["name"],
        gone,
        allocation is not None,
        allocation_writer(claim) if allocation is not None else "",
        tuple(
            Taken(
                r["driver"],
                r["pool"],
                r["device"],
                bool(r.get("adminAccess")),
                r.get("shareID") or "",
                {name: _milli(amount) for name, amount in (r.get("consumedCapacity") or {}).items()},
            )
            for r in results
        ),
        () if gone else tuple(c["uid"] for c in status.get("reservedFor") or () if c.get("resource") == "pods"),
        listed,
    )


def allocation_writer(claim: Object) -> str:
    """The field manager that owns status.allocation: by default the first word of a client's User-Agent."""
    for entry in claim["metadata"].get("managedFields") or ():
        owned = (entry.get("fieldsV1") or {}).get("f:status") or {}
        if "f:allocation" in owned:
            return str(entry.get("manager") or "")
    return ""


def pod_fact(pod: Object, revision: int, gone: bool, listed: bool = False) -> PodFact:
    """What one version of a Pod says."""
    meta, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
    made = {entry["name"]: entry.get("resourceClaimName") for entry in status.get("resourceClaimStatuses") or ()}
    claims, unmade = [], 0
    for entry in spec.get("resourceClaims") or ():
        # A generated entry without a name was found to need no claim; one without a status is not made yet.
        name = entry.get("resourceClaimName") or made.get(entry["name"])
        if name:
            claims.append(name)
        elif entry["name"] not in made:
            unmade += 1
    conditions = {entry["type"]: entry for entry in status.get("conditions") or ()}
    scheduled = conditions.get("PodScheduled") or {}
    return PodFact(
        revision,
        meta["uid"],
        meta["namespace"],
        meta["name"],
        spec.get("schedulerName") or "default-scheduler",
        gone,
        spec.get("nodeName") or "",
        tuple(claims),
        unmade,
        status.get("phase") in _FINAL_PHASES,
        meta.get("deletionTimestamp") is not None,
        (scheduled.get("message") or scheduled.get("reason") or "") if scheduled.get("status") == "False" else "",
        listed,
    )


def slice_fact(slice_: Object, revision: int, gone: bool, listed: bool = False) -> SliceFact:
    """What one version of a ResourceSlice publishes; ``listed`` makes no difference."""
    spec = slice_["spec"]
    devices = {}
    for device in spec.get("devices") or ():
        charges = device.get("consumesCounters") or ()
        devices[device["name"]] = Published(
            {name: _milli(entry["value"]) for name, entry in (device.get("capacity") or {}).items()},
            _counters((charge["counterSet"], charge["counters"]) for charge in charges),
        )
    return SliceFact(
        revision,
        slice_["metadata"]["name"],
        spec["driver"],
        spec["pool"]["name"],
        spec["pool"]["generation"],
        gone,
        devices,
        _counters((entry["name"], entry["counters"]) for entry in spec.get("sharedCounters") or ()),
    )


def _counters(sets: Iterable[tuple[str, Mapping[str, Object]]]) -> dict[str, int]:
    return {f"{name}/{counter}": _milli(entry["value"]) for name, found in sets for counter, entry in found.items()}


def save(facts: Iterable[Fact], file: Path) -> None:
    """Write a history, one fact a line."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"".join(msgspec.json.encode(fact) + b"\n" for fact in facts))


def load(file: Path) -> list[Fact]:
    """Read a history. Raises msgspec.DecodeError for what is none."""
    return [_DECODER.decode(line) for line in file.read_bytes().splitlines() if line.strip()]
