"""PodInfo: what node accounting needs of a Pod, computed once per Pod object."""

from __future__ import annotations

from weakref import ReferenceType, ref

import msgspec

from scheduler.api.core import Container, Pod
from scheduler.api.podrequests import counts, nonzero_requests, pod_requests, scorer_requests
from scheduler.errors import InternalError, UserError

HostPort = tuple[str, str, int]
"""(IP, protocol, port); IP "0.0.0.0" stands for all addresses."""

ANY_IP = "0.0.0.0"


class _Amounts:
    """What follows from containers, Pod-level resources and overhead alone: the same for all Pods of a template."""

    __slots__ = ("host_ports", "node_requests", "nonzero_cpu_milli", "nonzero_memory_bytes", "requests", "scored")

    def __init__(self, pod: Pod) -> None:
        """Raises UserError for a quantity that is nonsense."""
        self.host_ports = _host_ports(pod)
        self.requests = _counted(pod_requests(pod))
        self.node_requests = _counted(pod_requests(pod, use_status=True)) if _granted(pod) else self.requests
        self.nonzero_cpu_milli, self.nonzero_memory_bytes = nonzero_requests(pod)
        self.scored: dict[str, int] | None = None


_NOTHING: dict[str, int] = {}
_TEMPLATES_MAX = 1024
_known: dict[bytes, _Amounts] = {}
"""By what they follow from. A pure function's memory: it can be forgotten at any time, and is when it is full."""


def _amounts(pod: Pod) -> _Amounts:
    """The amounts of ``pod``; those of Pods whose status has no say are computed once per template."""
    spec, status = pod.spec, pod.status
    if _granted(pod) or status.allocatedResources or status.nodeAllocatableResourceClaimStatuses:
        return _Amounts(pod)
    key = msgspec.json.encode((spec.containers, spec.initContainers, spec.overhead, spec.resources))
    found = _known.get(key)
    if found is None:
        found = _Amounts(pod)
        if len(_known) >= _TEMPLATES_MAX:
            _known.clear()
        _known[key] = found
    return found


class PodInfo:
    """Derived values of one Pod object; immutable, shared freely.

    ``requests``: what the Pod asks for (names that count only); ``node_requests``: what it takes on its node, the
    kubelet's view included; ``nonzero_cpu_milli`` and ``nonzero_memory_bytes``: the same with defaults for silent
    containers. ``problem`` is set when a quantity is nonsense: all amounts are 0 then.
    """

    __slots__ = (
        "__weakref__",
        "_amounts",
        "_verified",
        "host_ports",
        "node_requests",
        "nonzero_cpu_milli",
        "nonzero_memory_bytes",
        "pod",
        "problem",
        "requests",
        "uid",
    )

    def __init__(self, pod: Pod) -> None:
        self.pod = pod
        self.uid = pod.uid or pod.key
        self.problem: UserError | None = None
        self._verified = False
        try:
            amounts = self._amounts = _amounts(pod)
        except UserError as error:
            self.problem, self.host_ports = error, _host_ports(pod)
            self.requests = self.node_requests = _NOTHING
            self.nonzero_cpu_milli = self.nonzero_memory_bytes = 0
            return
        self.host_ports, self.requests, self.node_requests = amounts.host_ports, amounts.requests, amounts.node_requests
        self.nonzero_cpu_milli, self.nonzero_memory_bytes = amounts.nonzero_cpu_milli, amounts.nonzero_memory_bytes

    def scorer_requests(self) -> dict[str, int]:
        """Requests as NodeResourcesFit scores them (spec 3.8.4); computed on first use."""
        if self.problem is not None:
            return _NOTHING
        if self._amounts.scored is None:
            self._amounts.scored = scorer_requests(self.pod)
        return self._amounts.scored

    def verify(self) -> None:
        """Compute the amounts anew, once per object; InternalError names the first that differs."""
        if self._verified or self.problem is not None:
            return
        fresh = _Amounts(self.pod)
        for name in ("host_ports", "requests", "node_requests", "nonzero_cpu_milli", "nonzero_memory_bytes"):
            kept, now = getattr(self, name), getattr(fresh, name)
            if kept != now:
                raise InternalError(f"{name} kept for pod {self.pod.key} are stale", (f"kept: {kept}", f"fresh: {now}"))
        self._verified = True

    def same_on_node(self, other: PodInfo) -> bool:
        """True when a node that counts ``other`` need not count anew for this one, a later object of the same Pod.

        What may differ is its version, its node's name and its conditions.
        """
        one, two = self.pod, other.pod
        before, after = one.metadata, two.metadata
        return (
            self.uid == other.uid
            and self.problem is None
            and other.problem is None
            and self.host_ports == other.host_ports
            and self.node_requests == other.node_requests
            and self.nonzero_cpu_milli == other.nonzero_cpu_milli
            and self.nonzero_memory_bytes == other.nonzero_memory_bytes
            and before.namespace == after.namespace
            and before.labels == after.labels
            and before.annotations == after.annotations
            and before.deletionTimestamp == after.deletionTimestamp
            and one.status.phase == two.status.phase
            and one.spec.priority == two.spec.priority
            and one.spec.affinity == two.spec.affinity
            and one.spec.volumes == two.spec.volumes
        )


def pod_info(pod: Pod) -> PodInfo:
    """The PodInfo of ``pod``, built on first use and kept as long as somebody uses it. Never raises.

    The Pod refers to it weakly: a strong reference would make a cycle of every version of every Pod, which only a
    collection of the oldest generation frees.
    """
    known: ReferenceType[PodInfo] | None = pod.__dict__.get("info")
    info = None if known is None else known()
    if info is None:
        info = PodInfo(pod)
        pod.__dict__["info"] = ref(info)
    return info


def _granted(pod: Pod) -> bool:
    """The kubelet has said what the Pod has."""
    return bool(pod.status.containerStatuses or pod.status.initContainerStatuses or pod.status.resources)


def _counted(requests: dict[str, int]) -> dict[str, int]:
    return {name: amount for name, amount in requests.items() if counts(name)}


def _host_ports(pod: Pod) -> tuple[HostPort, ...]:
    """Host ports of containers and sidecars, empty protocol and IP filled in (spec 3.7)."""
    ports: list[HostPort] = []
    for container in pod.spec.containers:
        _collect(container, ports)
    for container in pod.spec.initContainers:
        if container.restartPolicy == "Always":
            _collect(container, ports)
    return tuple(ports)


def _collect(container: Container, ports: list[HostPort]) -> None:
    ports.extend(
        (port.hostIP or ANY_IP, port.protocol or "TCP", port.hostPort) for port in container.ports if port.hostPort > 0
    )
