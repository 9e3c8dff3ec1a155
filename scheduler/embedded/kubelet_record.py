"""What the pretended kubelet remembers: its Pods, who holds which device, what went wrong."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from scheduler.embedded.kubelet_admission import DeviceKey

Object = dict[str, Any]


@dataclass(frozen=True)
class Verdict:
    """Something a scheduler should not have caused: which Pod on which node, reason and message."""

    pod: str
    uid: str
    node: str
    reason: str
    message: str


@dataclass(frozen=True)
class DoubleUse:
    """Two claims of running Pods hold the same device."""

    device: DeviceKey
    pod: str
    claim_uid: str
    other_claim_uid: str


@dataclass
class PodRecord:
    """One bound Pod: its last known object and how far it has come."""

    pod: Object
    admitted: bool = False
    running: bool = False
    ended: bool = False
    deleted: bool = False
    # The last status of a Pod that ended, until it is written.
    final_status: Object | None = None
    dirty: bool = False
    worker: asyncio.Task[None] | None = None
    timer: asyncio.Task[None] | None = None

    @property
    def uid(self) -> str:
        """Identity; a Pod of the same name later has another."""
        return str(self.pod["metadata"]["uid"])

    @property
    def name(self) -> str:
        """namespace/name."""
        return f"{self.pod['metadata']['namespace']}/{self.pod['metadata']['name']}"

    @property
    def node(self) -> str:
        """The node it is bound to."""
        return str(self.pod["spec"]["nodeName"])

    @property
    def path(self) -> str:
        """Its URL path."""
        metadata = self.pod["metadata"]
        return f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"

    @property
    def leaving(self) -> bool:
        """Whether it has ended or was told to: nothing new is started for it."""
        return self.deleted or self.ended or bool(self.pod["metadata"].get("deletionTimestamp"))


@dataclass
class DeviceUse:
    """Which running Pods hold which device, by claim: device -> claim uid -> Pod uids."""

    holders: dict[DeviceKey, dict[str, set[str]]] = field(default_factory=dict)
    by_pod: dict[str, set[DeviceKey]] = field(default_factory=dict)

    def take(self, device: DeviceKey, claim_uid: str, pod_uid: str) -> list[str]:
        """Add a holder; returns the other claims that hold the device now."""
        claims = self.holders.setdefault(device, {})
        claims.setdefault(claim_uid, set()).add(pod_uid)
        self.by_pod.setdefault(pod_uid, set()).add(device)
        return [other for other in claims if other != claim_uid]

    def release(self, pod_uid: str) -> None:
        """The Pod holds nothing any more."""
        for device in self.by_pod.pop(pod_uid, ()):
            claims = self.holders[device]
            for claim_uid in [claim for claim, pods in claims.items() if pod_uid in pods]:
                claims[claim_uid].discard(pod_uid)
                if not claims[claim_uid]:
                    del claims[claim_uid]
            if not claims:
                del self.holders[device]
