"""Pods that taints drive out: NoExecute on their node, or on a device that they use.

Source: kube-controller-manager 1.37, taint eviction and device taint eviction. A toleration for a time only counts as
none: in the end the Pod goes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from scheduler.api.core import Pod
from scheduler.api.resource import DeviceRequestAllocationResult
from scheduler.api.taints import NO_EXECUTE, Taint, Toleration, first_untolerated
from scheduler.dra.devices import DeviceKey
from scheduler.state.cluster import ClusterState
from scheduler.whatif.store import Store


def driven_out(store: Store, state: ClusterState) -> Iterator[tuple[Pod, str]]:
    """Pods on nodes that have to go, in order, with why. Cost: O(Pods and devices)."""
    devices = _tainted_devices(state) if state.features.device_taints else {}
    nodes = {node.name: node.spec.taints for node in store.of("Node") if _executes(node.spec.taints)}
    if not devices and not nodes:
        return
    for pod in store.pods():
        if not pod.spec.nodeName:
            continue
        taint = first_untolerated(nodes.get(pod.spec.nodeName, ()), _lasting(pod.spec.tolerations), (NO_EXECUTE,))
        if taint is not None:
            yield pod, f"node {pod.spec.nodeName} is tainted {taint_words(taint)}"
            continue
        why = _by_device(store, pod, devices) if devices else ""
        if why:
            yield pod, why


def _by_device(store: Store, pod: Pod, devices: dict[DeviceKey, tuple[Taint, ...]]) -> str:
    for claim in store.claims_of(pod):
        for result in () if claim.status.allocation is None else claim.status.allocation.devices.results:
            taint = _untolerated(result, devices)
            if taint is not None:
                return f"device {result.driver}/{result.pool}/{result.device} is tainted {taint_words(taint)}"
    return ""


def _untolerated(result: DeviceRequestAllocationResult, devices: dict[DeviceKey, tuple[Taint, ...]]) -> Taint | None:
    taints = devices.get(DeviceKey(result.driver, result.pool, result.device), ())
    return first_untolerated(taints, _lasting(result.tolerations), (NO_EXECUTE,))


def _tainted_devices(state: ClusterState) -> dict[DeviceKey, tuple[Taint, ...]]:
    return {
        device.key: device.taints
        for info in state.devices.slices.infos()
        for device in info.devices
        if _executes(device.taints)
    }


def _executes(taints: Sequence[Taint]) -> bool:
    return any(taint.effect == NO_EXECUTE for taint in taints)


def _lasting(tolerations: Sequence[Toleration]) -> list[Toleration]:
    return [toleration for toleration in tolerations if toleration.tolerationSeconds is None]


def taint_words(taint: Taint) -> str:
    """``key=value:effect``, as kubectl writes it."""
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"
