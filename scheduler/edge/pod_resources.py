"""/metrics/resources: what each Pod requests and may use.

Source: kube-scheduler 1.37, metrics/resources (spec 11.3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from scheduler.api.core import Pod
from scheduler.api.podrequests import CPU, EPHEMERAL_STORAGE, MEMORY, Requests, exact_limits, exact_requests
from scheduler.errors import UserError

_LABELS = ("namespace", "pod", "node", "scheduler", "priority", "resource", "unit")
_TEXT = (
    "broken down by pod. This shows the resource usage the scheduler and kubelet expect per pod for resources along "
    "with the unit for the resource if any."
)


class PodResources(Collector):
    """Reads off ``pods`` when asked; nothing while ``leading`` says False. Cost: some 20 microseconds a Pod."""

    def __init__(self, pods: Callable[[], Iterable[Pod]], leading: Callable[[], bool]) -> None:
        self._pods, self._leading = pods, leading
        self.registry = CollectorRegistry()
        self.registry.register(self)

    def describe(self) -> Iterator[Metric]:
        """The two families, without samples."""
        yield from self._families()

    def collect(self) -> Iterator[Metric]:
        """Both families; Pods that have ended on a node, and amounts of zero, are left out."""
        requests, limits = self._families()
        if self._leading():
            for pod in self._pods():
                if pod.spec.nodeName and pod.terminal:
                    continue
                try:
                    _add(requests, pod, exact_requests(pod))
                    _add(limits, pod, exact_limits(pod))
                except UserError:
                    continue  # nonsense that the API server let pass: no number to show
        yield from (family for family in (limits, requests) if family.samples)

    def render(self) -> tuple[bytes, str]:
        """The text exposition and its content type."""
        return generate_latest(self.registry), CONTENT_TYPE_LATEST

    @staticmethod
    def _families() -> tuple[GaugeMetricFamily, GaugeMetricFamily]:
        requests = f"Resources requested by workloads on the cluster, {_TEXT}"
        limits = f"Resources limit for workloads on the cluster, {_TEXT}"
        return (
            GaugeMetricFamily("kube_pod_resource_request", requests, labels=_LABELS),
            GaugeMetricFamily("kube_pod_resource_limit", limits, labels=_LABELS),
        )


def _add(family: GaugeMetricFamily, pod: Pod, amounts: Requests) -> None:
    meta, spec = pod.metadata, pod.spec
    priority = "" if spec.priority is None else str(spec.priority)
    for name, quantity in sorted(amounts.items()):
        if not quantity.mantissa:
            continue
        unit = _unit(name)
        value = quantity.milli_value() / 1000 if unit == "cores" else float(quantity.value())
        labels = [meta.namespace, meta.name, spec.nodeName, spec.schedulerName, priority, name, unit]
        family.add_metric(labels, value)


def _unit(resource: str) -> str:
    if resource == CPU:
        return "cores"
    if resource in (MEMORY, EPHEMERAL_STORAGE, "storage") or resource.startswith("hugepages-"):
        return "bytes"
    return "integer"
