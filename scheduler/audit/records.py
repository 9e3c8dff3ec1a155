"""Record: one line of the audit trail.

``kind`` says what happened:

- ``decision``: a node and devices were chosen. ``outcome`` is ``reserved`` while it is being written, then ``bound``,
  ``undone`` (``text`` says why) or ``lost`` (another scheduler was first). Later versions replace earlier ones by id.
- ``rejection``: no node fitted. Equal rejections of one Pod are one record: ``count`` of them, ``time`` to ``until``.
- ``freed``: a claim lost its devices; ``outcome``: ``deallocated`` or ``deleted``; ``by``: who did it, as far as known.
- ``foreign``: somebody else allocated devices. ``found``: they were allocated when this process began to watch.
- ``preempted``: the Pod had to go for the Pod ``by``. ``given-twice``: another scheduler gave away what the Pod has.
- ``ended``: a Pod that had a node ended or was deleted.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from scheduler.api.resource import AllocationResult, DeviceRequestAllocationResult

KINDS = ("decision", "rejection", "freed", "foreign", "found", "preempted", "given-twice", "ended")


class DeviceUse(msgspec.Struct, frozen=True, omit_defaults=True):
    """One device for one request. ``device`` is ``driver/pool/device``; ``consumed``: capacity → amount, if shared."""

    device: str
    request: str = ""
    share: str = ""
    admin: bool = False
    consumed: dict[str, str] = {}


class ClaimUse(msgspec.Struct, frozen=True, omit_defaults=True):
    """A claim and its devices. ``given``: allocated by this decision; else it had the devices before (shared claim).

    ``version``: resourceVersion of the claim that the decision read.
    """

    claim: str
    uid: str = ""
    version: str = ""
    given: bool = False
    devices: tuple[DeviceUse, ...] = ()


class NodeScore(msgspec.Struct, frozen=True, omit_defaults=True):
    """A node's weighted total, and each plugin's normalised score (0 to 100) with its weight not yet applied."""

    node: str
    total: int
    plugins: dict[str, int] = {}


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """See the module. Times are Unix seconds. ``pod`` and ``by`` are ``namespace/name`` where they name a Pod.

    ``scores``: the best nodes, best first, the chosen one among them; empty when one node only was feasible. ``seed``:
    what ties among extenders' nodes are broken with; nothing else is drawn. ``position``: where in the journal the
    decision was made, 0 without ``--record``. ``config``: digest of the effective configuration.
    """

    id: str
    kind: str
    time: float
    replica: str = ""
    pod: str = ""
    pod_uid: str = ""
    pod_version: str = ""
    node: str = ""
    node_uid: str = ""
    outcome: str = ""
    text: str = ""
    by: str = ""
    claims: tuple[ClaimUse, ...] = ()
    scores: tuple[NodeScore, ...] = ()
    evaluated: int = 0
    feasible: int = 0
    attempt: int = 0
    profile: str = ""
    seed: str = ""
    version: str = ""
    config: str = ""
    position: int = 0
    duration_s: float = 0.0
    count: int = 1
    until: float = 0.0

    @property
    def last(self) -> float:
        """When it last happened."""
        return max(self.time, self.until)


def subjects(record: Record) -> Iterator[tuple[str, str]]:
    """(kind, name) of everything the record is about: what it is found by. Claims also by uid, as ``claim-uid``."""
    if record.pod:
        yield "pod", record.pod
    if record.by and record.kind == "preempted":
        yield "pod", record.by
    if record.node:
        yield "node", record.node
    for use in record.claims:
        yield "claim", use.claim
        if use.uid:
            yield "claim-uid", use.uid
        for device in use.devices:
            yield "device", device.device


def device_uses(allocation: AllocationResult | None) -> tuple[DeviceUse, ...]:
    """The devices of an allocation, in its order."""
    return () if allocation is None else tuple(_use(result) for result in allocation.devices.results)


def _use(result: DeviceRequestAllocationResult) -> DeviceUse:
    return DeviceUse(
        f"{result.driver}/{result.pool}/{result.device}",
        result.request,
        result.shareID or "",
        bool(result.adminAccess),
        {name: str(amount) for name, amount in (result.consumedCapacity or {}).items()},
    )
