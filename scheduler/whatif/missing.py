"""Which kinds an input lacks that its Pods need, and what cannot be judged without them."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from scheduler.api.core import Pod
from scheduler.api.kinds import DEVICE_TAINT_RULE, RESOURCE_SLICE
from scheduler.whatif.objects import JUDGED_BY, NEEDED, TEMPLATE
from scheduler.whatif.store import Store

TAINTED_BY_RULE = "if there are any, devices that they taint look untainted"


def missing_for(
    store: Store, found: Collection[str], waiting: Collection[Pod] | None = None, taint_rules: bool = True
) -> list[str]:
    """One sentence per kind. ``found``: kinds that the input had, empty lists included.

    ``waiting``: the Pods that are to be judged, None for all that have no node. Without ``taint_rules`` (their gate is
    off) nobody misses DeviceTaintRules.
    """
    present = _present(store, found, taint_rules)
    if waiting is None:
        waiting = [pod for pod in store.pods() if not pod.spec.nodeName]
    return _basics(found) + [_words(kind, what) for kind, what in _needed(store, waiting) if kind not in present]


def missing_for_devices(store: Store, found: Collection[str], taint_rules: bool = True) -> list[str]:
    """The same for answers about all devices and not about Pods."""
    present = _present(store, found, taint_rules)
    missing = _basics(found)
    if DEVICE_TAINT_RULE.name not in present and store.of(RESOURCE_SLICE.name):
        missing.append(_words(DEVICE_TAINT_RULE.name, TAINTED_BY_RULE))
    return missing


def _words(kind: str, what: str) -> str:
    return f"no {kind} in the input: {what}"


def _basics(found: Collection[str]) -> list[str]:
    return [_words(kind, JUDGED_BY[kind]) for kind in NEEDED if kind not in found]


def _present(store: Store, found: Collection[str], taint_rules: bool) -> set[str]:
    present = {kind.name for kind, _ in store.entries()} | set(found)
    if store.templates:
        present.add(TEMPLATE)
    if not taint_rules:
        present.add(DEVICE_TAINT_RULE.name)
    return present


def _needed(store: Store, waiting: Collection[Pod]) -> Iterator[tuple[str, str]]:
    """Kinds that the waiting Pods need, with what is wrong without them."""
    if any(_awaits_template(pod) for pod in waiting):
        yield TEMPLATE, "Pods wait for claims that nobody makes"
    if store.of(RESOURCE_SLICE.name) and any(_asks_devices(pod) for pod in waiting):
        yield DEVICE_TAINT_RULE.name, TAINTED_BY_RULE
    if any(volume.claim_name(pod.metadata.name) is not None for pod in waiting for volume in pod.spec.volumes):
        yield "PersistentVolumeClaim", "Pods with volumes wait for claims that seem not to exist"
        yield "PersistentVolume", "no volume is there to be bound, and bound ones do not limit the choice of nodes"
        yield "StorageClass", "claims without a volume seem to have to be bound before"
        yield "CSINode", "how many volumes a node may have is not known"
    if any(_asks_namespaces(pod) for pod in store.pods()):
        yield "Namespace", "namespaceSelectors match nothing"
    placed = [pod.priority for pod in store.pods() if pod.spec.nodeName]
    if placed and any(pod.priority > min(placed) for pod in waiting if not pod.spec.nodeName):
        yield "PodDisruptionBudget", "preemption spares no Pod because of a budget"
    if store.pods() and any(pod.spec.schedulingGroup is not None for pod in waiting):
        yield "PodGroup", "members of groups wait for their group"


def _asks_devices(pod: Pod) -> bool:
    """With claims, or with an extended resource, which a DeviceClass may serve."""
    if pod.spec.resourceClaims:
        return True
    containers = (*pod.spec.initContainers, *pod.spec.containers)
    return any("/" in name for container in containers for name in container.resources.requests or ())


def _awaits_template(pod: Pod) -> bool:
    known = {status.name for status in pod.status.resourceClaimStatuses}
    return any(entry.resourceClaimTemplateName and entry.name not in known for entry in pod.spec.resourceClaims)


def _asks_namespaces(pod: Pod) -> bool:
    affinity = pod.spec.affinity
    for part in () if affinity is None else (affinity.podAffinity, affinity.podAntiAffinity):
        if part is None:
            continue
        preferred = (entry.podAffinityTerm for entry in part.preferredDuringSchedulingIgnoredDuringExecution)
        for term in (*part.requiredDuringSchedulingIgnoredDuringExecution, *preferred):
            if term.namespaceSelector is not None:
                return True
    return False
