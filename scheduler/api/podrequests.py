"""What a Pod asks of a node: the sum over its containers, by the rules of kube-scheduler 1.37.

Amounts are integers, rounded up once after summing exactly: cpu in thousandths, memory and ephemeral-storage in
bytes, every other resource in units. Source: component-helpers/resource and the scheduler's PodInfo (spec 3.8.1,
3.8.3, 3.8.4). Errors: a text that is no quantity raises UserError with the Pod and the path of the field.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

from scheduler.api.core import Container, ContainerStatus, Pod, QuantityText
from scheduler.api.quantity import Quantity, QuantityError, parse_quantity
from scheduler.errors import UserError

CPU = "cpu"
MEMORY = "memory"
EPHEMERAL_STORAGE = "ephemeral-storage"
PODS = "pods"

DEFAULT_CPU_MILLI = 100
DEFAULT_MEMORY_BYTES = 200 * 1024 * 1024

Requests = dict[str, Quantity]
_Texts = Mapping[str, QuantityText]
_View = Callable[[Container, ContainerStatus | None], tuple[_Texts | None, str]]

_DEFAULTS: Requests = {CPU: Quantity(DEFAULT_CPU_MILLI, -3), MEMORY: Quantity(DEFAULT_MEMORY_BYTES)}
_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")


@lru_cache(maxsize=4096)
def is_extended(name: str) -> bool:
    """True for extended resources: a qualified name with a domain that is not of kubernetes.io."""
    if "/" not in name or "kubernetes.io/" in name or name.startswith("requests."):
        return False
    prefix, _, local = f"requests.{name}".partition("/")
    return (
        len(prefix) <= 253
        and _PREFIX.fullmatch(prefix) is not None
        and 0 < len(local) <= 63
        and _NAME.fullmatch(local) is not None
    )


@lru_cache(maxsize=4096)
def is_scalar(name: str) -> bool:
    """True for the resources that count besides cpu, memory, ephemeral-storage and pods; all other names do not."""
    return name.startswith(("hugepages-", "attachable-volumes-")) or "kubernetes.io/" in name or is_extended(name)


def counts(name: str) -> bool:
    """True for a resource that a node can run out of."""
    return name in (CPU, MEMORY, EPHEMERAL_STORAGE) or is_scalar(name)


def amount(name: str, quantity: Quantity) -> int:
    """``quantity`` of resource ``name`` as the integer that is compared: cpu in milli, everything else in units."""
    return quantity.milli_value() if name == CPU else quantity.value()


def pod_requests(pod: Pod, *, use_status: bool = False) -> dict[str, int]:
    """Requests of ``pod``, overhead included.

    ``use_status`` also looks at what the kubelet has granted (in-place resize) and takes the larger: the view for
    Pods that are on a node. Pod-level requests replace the containers' sum for the names they give.
    """
    return _integers(_total(pod, use_status=use_status))


def nonzero_requests(pod: Pod, *, use_status: bool = True) -> tuple[int, int]:
    """(cpu in milli, memory in bytes) with 100m and 200Mi for every container that does not say; explicit 0 stays.

    With pod-level requests the default stands in only for a resource missing from the total (spec 3.8.3).
    """
    total = _total(pod, use_status=use_status)
    missing = _DEFAULTS
    if _pod_level(pod):
        missing = {name: default for name, default in _DEFAULTS.items() if name not in total}
    if missing:
        total = _total(pod, use_status=use_status, missing=missing)
    return _milli_and_bytes(total)


def scorer_requests(pod: Pod) -> dict[str, int]:
    """Requests as NodeResourcesFit scores them: containers with defaults, pod-level requests ignored (spec 3.8.4)."""
    return _integers(_total(pod, use_status=False, missing=_DEFAULTS, pod_level=False))


def exact_requests(pod: Pod) -> Requests:
    """What ``pod_requests`` with the status view adds up to, before anything is rounded."""
    return _total(pod, use_status=True)


def exact_limits(pod: Pod) -> Requests:
    """The Pod's limits: summed as requests are; pod-level ones win, overhead counts where there is a limit."""
    total = _of_containers(pod, _limits_view, None)
    if pod.spec.resources is not None:
        own = parse_resources(pod.spec.resources.limits, _subject(pod), "spec.resources.limits")
        total.update({name: quantity for name, quantity in own.items() if _allowed_at_pod_level(name)})
    overhead = parse_resources(pod.spec.overhead, _subject(pod), "spec.overhead")
    _add(total, {name: quantity for name, quantity in overhead.items() if name in total and total[name].mantissa})
    return total


def container_requests(pod: Pod) -> Requests:
    """Requests of all containers and of devices that take node resources, without overhead and Pod-level requests."""
    total = _of_containers(pod, _spec_view, None)
    _add_devices(total, pod)
    return total


def _add_devices(total: Requests, pod: Pod) -> None:
    """Add what the Pod's devices take of its node: mappings once, overhead per Pod and per container of the claim."""
    for status in pod.status.nodeAllocatableResourceClaimStatuses:
        subject = f"{_subject(pod)}, claim {status.resourceClaimName}"
        _add(total, parse_resources({m.name: m.quantity for m in status.mapping}, subject, "mapping"))
        for overhead in status.overhead:
            for text, times in ((overhead.perPod, 1), (overhead.perContainer, len(status.containers))):
                if text is not None:
                    amount = parse_resources({overhead.name: text}, subject, "overhead")[overhead.name]
                    _add(total, {overhead.name: Quantity(amount.mantissa * times, amount.power, amount.format)})


def parse_resources(texts: _Texts | None, subject: str, field: str) -> Requests:
    """Quantities of a resource list; raises UserError naming ``subject`` and ``field`` on nonsense."""
    result: Requests = {}
    for name, text in (texts or {}).items():
        try:
            result[name] = parse_quantity(text if isinstance(text, int) else str(text))
        except QuantityError as error:
            raise UserError(subject, f"{field}[{name}]", f'"{error.text}" is not a quantity: {error}') from error
    return result


def _integers(total: Requests) -> dict[str, int]:
    return {name: amount(name, quantity) for name, quantity in total.items()}


def _milli_and_bytes(total: Requests) -> tuple[int, int]:
    cpu, memory = total.get(CPU), total.get(MEMORY)
    return cpu.milli_value() if cpu else 0, memory.value() if memory else 0


def _subject(pod: Pod) -> str:
    return f"Pod {pod.key}"


def _total(pod: Pod, *, use_status: bool, missing: Requests | None = None, pod_level: bool = True) -> Requests:
    """The whole rule: containers, pod-level replacement, overhead. ``missing`` fills names a container lacks."""
    total = _of_containers_and_status(pod, missing) if use_status else _of_containers(pod, _spec_view, missing)
    _add_devices(total, pod)
    if pod_level and _pod_level(pod):
        total.update(_pod_level_requests(pod, use_status))
    if pod.spec.overhead:
        _add(total, parse_resources(pod.spec.overhead, _subject(pod), "spec.overhead"))
    return total


def _pod_level(pod: Pod) -> bool:
    resources = pod.spec.resources
    return resources is not None and any(map(_allowed_at_pod_level, resources.requests or ()))


def _allowed_at_pod_level(name: str) -> bool:
    return name in (CPU, MEMORY) or name.startswith("hugepages-")


def _pod_level_requests(pod: Pod, use_status: bool) -> Requests:
    """Pod-level requests by name; with the status view the largest of asked, actuated and allocated."""
    assert pod.spec.resources is not None  # _pod_level said so
    subject = _subject(pod)
    views = [(pod.spec.resources.requests, "spec.resources.requests")]
    if use_status and pod.status.resources is not None:
        if _resize_infeasible(pod):
            views.clear()
        views.append((pod.status.resources.requests, "status.resources.requests"))
        views.append((pod.status.allocatedResources, "status.allocatedResources"))
    total = _largest(parse_resources(texts, subject, field) for texts, field in views)
    return {name: quantity for name, quantity in total.items() if _allowed_at_pod_level(name)}


def _of_containers_and_status(pod: Pod, missing: Requests | None) -> Requests:
    """The largest of three views of the whole Pod: asked, allocated by the kubelet, actuated (spec 3.8.1)."""
    status = pod.status
    spec = _of_containers(pod, _spec_view, missing)
    if not (status.containerStatuses or status.initContainerStatuses or status.resources):
        return spec  # nothing granted yet: all views are equal
    infeasible = _resize_infeasible(pod)
    if status.allocatedResources is not None and status.resources and status.resources.requests is not None:
        subject = _subject(pod)
        allocated = parse_resources(status.allocatedResources, subject, "status.allocatedResources")
        actuated = parse_resources(status.resources.requests, subject, "status.resources.requests")
    else:
        fallback: _View = _nothing if infeasible else _spec_view
        allocated = _of_containers(pod, _allocated_view(fallback), missing)
        actuated = _of_containers(pod, _actuated_view(fallback), missing)
    return _largest((actuated, allocated) if infeasible else (spec, actuated, allocated))


def _resize_infeasible(pod: Pod) -> bool:
    reason = next((c.reason for c in pod.status.conditions if c.type == "PodResizePending"), "")
    return reason == "Infeasible"


def _spec_view(container: Container, _status: ContainerStatus | None) -> tuple[_Texts | None, str]:
    return container.resources.requests, "resources.requests"


def _limits_view(container: Container, _status: ContainerStatus | None) -> tuple[_Texts | None, str]:
    return container.resources.limits, "resources.limits"


def _nothing(_container: Container, _status: ContainerStatus | None) -> tuple[_Texts | None, str]:
    return None, ""


def _allocated_view(fallback: _View) -> _View:
    def view(container: Container, status: ContainerStatus | None) -> tuple[_Texts | None, str]:
        if status is not None and status.allocatedResources is not None:
            return status.allocatedResources, "status.allocatedResources"
        return fallback(container, status)

    return view


def _actuated_view(fallback: _View) -> _View:
    allocated = _allocated_view(fallback)

    def view(container: Container, status: ContainerStatus | None) -> tuple[_Texts | None, str]:
        if status is not None and status.resources is not None and status.resources.requests is not None:
            return status.resources.requests, "status.resources.requests"
        return allocated(container, status)

    return view


def _of_containers(pod: Pod, view: _View, missing: Requests | None) -> Requests:
    """Containers and sidecars added up, but never less than what an init container needs while it runs."""
    subject = _subject(pod)
    statuses: dict[str, ContainerStatus] = {}
    if view is not _spec_view:
        for status in (*pod.status.containerStatuses, *pod.status.initContainerStatuses):
            statuses.setdefault(status.name, status)

    def requests_of(container: Container, group: str) -> Requests:
        texts, field = view(container, statuses.get(container.name))
        own = parse_resources(texts, subject, f"spec.{group}[{container.name}].{field}")
        if missing:
            own = {**missing, **own}
        return own

    total: Requests = {}
    for container in pod.spec.containers:
        _add(total, requests_of(container, "containers"))
    sidecars: Requests = {}
    peak: Requests = {}
    for container in pod.spec.initContainers:
        own = requests_of(container, "initContainers")
        if container.restartPolicy == "Always":
            _add(total, own)
            _add(sidecars, own)
            own = sidecars
        else:
            _add(own, sidecars)
        peak = _largest((peak, own))
    return _largest((total, peak)) if peak else total


def _add(total: Requests, more: Requests) -> None:
    for name, quantity in more.items():
        present = total.get(name)
        total[name] = quantity if present is None else present + quantity


def _largest(views: Iterable[Requests]) -> Requests:
    result: Requests = {}
    for view in views:
        for name, quantity in view.items():
            present = result.get(name)
            if present is None or quantity > present:
                result[name] = quantity
    return result
