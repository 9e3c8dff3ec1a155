"""metadata of every object: only the fields the scheduler reads."""

from __future__ import annotations

import msgspec


class OwnerReference(msgspec.Struct, frozen=True, omit_defaults=True):
    """An owner; ``controller`` marks the one that manages the object."""

    apiVersion: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class ObjectMeta(msgspec.Struct, frozen=True, omit_defaults=True):
    """Names, identity, versions and labels. Timestamps stay RFC 3339 text; parse where one is compared."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resourceVersion: str = ""
    generation: int = 0
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    ownerReferences: tuple[OwnerReference, ...] = ()
    creationTimestamp: str | None = None
    deletionTimestamp: str | None = None
    finalizers: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """``namespace/name``, or the name alone for cluster-wide objects: how messages print an object."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    def controller(self) -> OwnerReference | None:
        """The owner reference marked as controller, None without one."""
        return next((owner for owner in self.ownerReferences if owner.controller), None)


_REVISION_DIGITS_MAX = 20  # etcd counts in 64 bits


def revision_of(resource_version: str) -> int | None:
    """A resourceVersion as a number; None for what no server of etcd gives out."""
    plain = resource_version.isascii() and resource_version.isdigit() and len(resource_version) <= _REVISION_DIGITS_MAX
    return int(resource_version) if plain else None


class Condition(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry of status.conditions."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    lastTransitionTime: str | None = None
    observedGeneration: int | None = None
