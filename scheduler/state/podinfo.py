"""PodInfo: what node accounting needs of a Pod, computed once per Pod object."""

from __future__ import annotations

from scheduler.api.core import Container, Pod
from scheduler.api.podrequests import counts, nonzero_requests, pod_requests, scorer_requests
from scheduler.errors import UserError

HostPort = tuple[str, str, int]
"""(IP, protocol, port); IP "0.0.0.0" stands for all addresses."""

ANY_IP = "0.0.0.0"


class PodInfo:
    """Derived values of one Pod object; immutable, shared freely.

    ``requests``: what the Pod asks for (names that count only); ``node_requests``: what it takes on its node, the
    kubelet's view included; ``nonzero_cpu_milli`` and ``nonzero_memory_bytes``: the same with defaults for silent
    containers. ``problem`` is set when a quantity is nonsense: all amounts are 0 then.
    """

    __slots__ = (
        "_scorer_requests",
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
        self.host_ports = _host_ports(pod)
        self.problem: UserError | None = None
        self.requests: dict[str, int] = {}
        self.node_requests: dict[str, int] = {}
        self.nonzero_cpu_milli = self.nonzero_memory_bytes = 0
        self._scorer_requests: dict[str, int] | None = None
        try:
            requests = _counted(pod_requests(pod))
            granted = pod.status.containerStatuses or pod.status.initContainerStatuses or pod.status.resources
            node_requests = _counted(pod_requests(pod, use_status=True)) if granted else requests
            self.nonzero_cpu_milli, self.nonzero_memory_bytes = nonzero_requests(pod)
        except UserError as error:
            self.problem = error
        else:
            self.requests, self.node_requests = requests, node_requests

    def scorer_requests(self) -> dict[str, int]:
        """Requests as NodeResourcesFit scores them (spec 3.8.4); computed on first use."""
        if self._scorer_requests is None:
            self._scorer_requests = {} if self.problem else scorer_requests(self.pod)
        return self._scorer_requests


def pod_info(pod: Pod) -> PodInfo:
    """The PodInfo of ``pod``, built on first use and kept beside the object. Never raises."""
    info: PodInfo | None = pod.__dict__.get("info")
    if info is None:
        info = PodInfo(pod)
        pod.__dict__["info"] = info
    return info


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
