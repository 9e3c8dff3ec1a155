"""The short device summary that follows upstream's sentence in an event: ``gpu: 8 devices: 5 in use, 1 tainted``."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

import msgspec

from scheduler.api.core import Node, Pod
from scheduler.dra.claims import claims_by_entry
from scheduler.dra.rejections import Reason, Rejection
from scheduler.explain.facts import DeviceGroup
from scheduler.explain.text import counted, join_counts, short_reason
from scheduler.framework.cycle import Cycle
from scheduler.framework.profile import Profile
from scheduler.framework.status import Code
from scheduler.state.cluster import ClusterState
from scheduler.state.podinfo import pod_info

PLUGIN = "DynamicResources"
NODES_MAX = 8
"""Nodes whose devices are searched for a summary."""
STEPS_MAX = 300
"""Search steps per node at most."""
KEPT_S = 1.0
"""How old a summary may be when the devices have changed since."""
_SCAN_MAX = 64
_SHAPES_MAX = 256


class Summaries:
    """Summaries kept per shape of claims: Pods of one template that wait together cost one of them.

    A kept one is told again while the devices are in the same use, or for ``KEPT_S`` anyway, so that a busy cluster
    with many waiting Pods pays for one a second and shape.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, tuple[float, Hashable, str]] = OrderedDict()

    def summary(self, profile: Profile, pod: Pod, state: ClusterState, now: float) -> str:
        """As ``device_summary``, at most ``KEPT_S`` old. ``now``: Unix seconds."""
        shape = profile.name, *_shape(pod, state)
        devices = state.devices
        version = devices.slices.version, devices.ledger.version, devices.classes.version, state.nodes.structure_version
        kept = self._kept.get(shape)
        if kept is not None and (kept[1] == version or 0 <= now - kept[0] < KEPT_S):
            return kept[2]
        text = device_summary(profile, pod, state, now)
        self._kept[shape] = now, version, text
        self._kept.move_to_end(shape)
        if len(self._kept) > _SHAPES_MAX:
            self._kept.popitem(last=False)
        return text


def _shape(pod: Pod, state: ClusterState) -> Iterator[Hashable]:
    """Equal for Pods whose summaries are the same: what each entry's claim asks for, and whether it has it."""
    for entry, name in claims_by_entry(pod).items():
        claim = state.devices.claim(pod.metadata.namespace, name)
        if claim is not None:
            yield entry, claim.status.allocation is None, msgspec.json.encode(claim.spec.devices)


def device_summary(profile: Profile, pod: Pod, state: ClusterState, now: float, nodes_max: int = NODES_MAX) -> str:
    """One line on the devices of the first nodes that have any, "" when there is nothing to say.

    Names of entries of spec.resourceClaims stand for claims, as those of generated claims tell nobody anything. Cost:
    at most ``nodes_max`` bounded searches; half a millisecond on nodes of eight devices.
    """
    plugin: Any = profile.plugins.get(PLUGIN)
    if not hasattr(plugin, "device_reasons"):
        return ""
    cycle = Cycle(pod, pod_info(pod), state, now=now, profile_name=profile.name)
    if plugin.pre_filter(cycle).status.code is not Code.SUCCESS:
        return ""
    nodes = _nodes_with_devices(state, nodes_max)
    rejections = [one for node in nodes for one in plugin.device_reasons(cycle, node, _steps(state, node))]
    seen = sum(len(state.devices.slices.view(node).devices) for node in nodes)
    words = _words(rejections, _labels(pod, rejections), seen)
    if not words and nodes:
        most = max(len(state.devices.slices.view(node).devices) for node in nodes)
        words = list(_too_few(pod, state, most))
    if not words:
        return ""
    total = len(state.nodes.order())
    where = "" if total == 1 else f" ({len(nodes)} of {total} nodes)"
    return f"Devices: {'; '.join(words)}{where}."


def _steps(state: ClusterState, node: Node) -> int:
    """Enough to meet every device a few times; what a longer search would find is for ``explain``."""
    return min(STEPS_MAX, 16 + 4 * len(state.devices.slices.view(node).devices))


def _nodes_with_devices(state: ClusterState, nodes_max: int) -> list[Node]:
    found: list[Node] = []
    for row in state.nodes.order()[:_SCAN_MAX].tolist():
        node = state.nodes.node(row)
        if state.devices.slices.view(node).pools:
            found.append(node)
            if len(found) == nodes_max:
                break
    return found


def _labels(pod: Pod, rejections: Sequence[Rejection]) -> Callable[[Rejection], str]:
    """``entry/request``, or the request alone when only one claim is refused anything."""
    entries = {f"{pod.metadata.namespace}/{claim}": entry for entry, claim in claims_by_entry(pod).items()}
    several = len({one.claim for one in rejections if one.claim}) > 1

    def label(rejection: Rejection) -> str:
        if not rejection.claim:
            return ""
        entry = entries.get(rejection.claim, rejection.claim)
        return f"{entry}/{rejection.request}" if several else rejection.request

    return label


def _too_few(pod: Pod, state: ClusterState, most: int) -> Iterator[str]:
    """When no single device is refused, what is asked for is more than a node has."""
    for claim in state.devices.claims_of(pod):
        for request in () if claim.status.allocation is not None else claim.spec.devices.requests:
            if request.exactly is not None and request.exactly.count > most:
                asked = request.exactly.count
                yield f"{request.name}: {counted(most, 'device')} on a node at most, {asked} asked"


def _words(rejections: Sequence[Rejection], label: Callable[[Rejection], str], seen: int) -> list[str]:
    """Per request ``gpu: 8 devices: 5 in use, 3 would do``; pools and slices that cannot be used have no request."""
    counts: dict[str, dict[str, int]] = {}
    for rejection in rejections:
        if rejection.reason is Reason.SEARCH_BUDGET:
            continue  # what was met until then is told all the same
        group = DeviceGroup(rejection.reason.value, 1, dict(rejection.detail))
        reasons = counts.setdefault(label(rejection), {})
        words = short_reason(group)
        reasons[words] = reasons.get(words, 0) + 1
    parts = []
    for name, reasons in counts.items():
        ordered = sorted(((count, words) for words, count in reasons.items()), key=lambda entry: -entry[0])
        if not name:
            parts.append(join_counts(ordered))
            continue
        left = seen - sum(reasons.values())
        would_do = [(left, "would do")] if left > 0 else []
        parts.append(f"{name}: {counted(seen, 'device')}: {join_counts([*ordered, *would_do])}")
    return parts
