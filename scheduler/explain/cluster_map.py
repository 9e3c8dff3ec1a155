"""The cluster as a picture: each node with its devices and how they stand, and the Pods that wait."""

from __future__ import annotations

import re
from collections.abc import Collection, Generator
from dataclasses import dataclass, field

from scheduler.api.core import Node, Pod
from scheduler.api.taints import NO_EXECUTE, NO_SCHEDULE
from scheduler.dra.claims import claims_by_entry
from scheduler.dra.devices import DeviceInfo, DeviceKey, SliceInfo
from scheduler.explain.inventory import ANYWHERE, STATES, inventory_steps, model, where
from scheduler.explain.inventory_facts import Line
from scheduler.state.cluster import ClusterState

UNSEEN = "unseen"
"""The state of a device whose pool is incomplete or invalid: nobody can get it."""
DEVICE_STATES = (*STATES, UNSEEN)
_BY_URGENCY = ("used", "shared", "tainted", "blocked")
_ROWS_PER_STEP = 200
_DIGITS = re.compile(r"(\d+)", re.ASCII)


@dataclass(slots=True)
class MapDevice:
    """``state``: one of DEVICE_STATES. ``holders``: ``claim ns/x (pod ns/y)``; ``left``: capacities left to share.

    ``why``: taints, or what is wrong with the pool.
    """

    driver: str
    pool: str
    device: str
    model: str
    state: str
    holders: list[str] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)
    why: str = ""


@dataclass(slots=True)
class MapNode:
    """``node``: its name, "(any node)" for devices that several nodes reach. ``notes``: what keeps Pods away."""

    node: str
    pods: int = 0
    notes: list[str] = field(default_factory=list)
    devices: list[MapDevice] = field(default_factory=list)


@dataclass(slots=True)
class ClusterMap:
    """``states``: number of devices by state, all nodes; ``found``: nodes that were asked for, ``nodes`` the first."""

    nodes: list[MapNode] = field(default_factory=list)
    found: int = 0
    states: dict[str, int] = field(default_factory=dict)
    caveats: list[str] = field(default_factory=list)


@dataclass(slots=True)
class WaitingPod:
    """A Pod without a node. ``since``: RFC 3339; ``message``: its PodScheduled condition; ``node``: already decided,
    being written."""

    pod: str
    scheduler: str
    since: str = ""
    message: str = ""
    claims: list[str] = field(default_factory=list)
    node: str = ""
    priority: int = 0


@dataclass(slots=True)
class WaitingPods:
    """``found``: how many there are; ``pods``: those that wait longest."""

    pods: list[WaitingPod] = field(default_factory=list)
    found: int = 0


def map_steps(state: ClusterState, now: float, match: str = "", limit: int = 200) -> Generator[None, None, ClusterMap]:
    """Nodes whose name contains ``match``, ``limit`` at most, in slices. Cost: that of an inventory by device."""
    counted = yield from inventory_steps(state, "device", now)
    known = {DeviceKey(line.driver, line.pool, line.device): line for line in counted.lines}
    nodes: dict[str, MapNode] = {}
    for row in state.nodes.order().tolist():
        node = state.nodes.node(row)
        nodes[node.name] = MapNode(node.name, len(state.nodes.pods(row)), _node_notes(node))
    answer = ClusterMap(states=dict.fromkeys(DEVICE_STATES, 0))
    newest = _newest(state)
    for number, info in enumerate(device for one in newest for device in one.devices):
        device = _device(info, known.get(info.key), counted.pools)
        answer.states[device.state] += 1
        on = nodes.setdefault(where(info), MapNode(where(info)))
        on.devices.append(device)
        if number % _ROWS_PER_STEP == 0:
            yield
    for name, drawn in nodes.items():
        if name != ANYWHERE and state.nodes.row_of(name) is None:
            drawn.notes.append("there is no such node")
    chosen = [nodes[name] for name in sorted(nodes, key=_natural) if match in name]
    answer.found, answer.nodes = len(chosen), chosen[:limit]
    return answer


def _natural(name: str) -> list[tuple[int, str]]:
    """node-2 before node-10."""
    return [(int(part) if part.isdigit() else 0, part) for part in _DIGITS.split(name)]


def _newest(state: ClusterState) -> list[SliceInfo]:
    infos = list(state.devices.slices.infos())
    newest: dict[object, int] = {}
    for info in infos:
        newest[info.key] = max(info.generation, newest.get(info.key, info.generation))
    return [info for info in infos if info.generation == newest[info.key]]


def _device(info: DeviceInfo, line: Line | None, unusable: dict[str, str]) -> MapDevice:
    key: DeviceKey = info.key
    device = MapDevice(key.driver, key.pool, key.device, model(info), UNSEEN)
    taints = [taint for taint in info.taints if taint.effect in (NO_SCHEDULE, NO_EXECUTE)]
    device.why = ", ".join(f"{taint.key}={taint.value}:{taint.effect}" for taint in taints)
    if line is None:
        device.why = unusable.get(f"{key.driver}/{key.pool}", "its pool cannot be used")
        return device
    device.state = next((name for name in _BY_URGENCY if getattr(line, name)), "free")
    device.holders, device.left = line.holders, line.remainder
    return device


def _node_notes(node: Node) -> list[str]:
    notes = ["cordoned"] if node.spec.unschedulable else []
    notes += ["not ready" for one in node.status.conditions if one.type == "Ready" and one.status != "True"]
    notes += [f"taint {t.key}={t.value}:{t.effect}" for t in node.spec.taints if t.effect in (NO_SCHEDULE, NO_EXECUTE)]
    return notes


def waiting_pods(state: ClusterState, schedulers: Collection[str], limit: int = 500) -> WaitingPods:
    """Pods of ``schedulers`` without a node, those created first first. Cost: O(Pods)."""
    waits = [pod for pod in state.pods.values() if not pod.spec.nodeName and pod.spec.schedulerName in schedulers]
    waits.sort(key=lambda pod: (pod.metadata.creationTimestamp or "", pod.key))
    return WaitingPods([_waiting(pod, state) for pod in waits[:limit]], len(waits))


def _waiting(pod: Pod, state: ClusterState) -> WaitingPod:
    condition = next((one for one in pod.status.conditions if one.type == "PodScheduled"), None)
    placement = state.placements.get(pod.uid)
    return WaitingPod(
        pod.key,
        pod.spec.schedulerName,
        pod.metadata.creationTimestamp or "",
        condition.message if condition is not None and condition.status == "False" else "",
        [f"{pod.metadata.namespace}/{name}" for name in claims_by_entry(pod).values() if name],
        placement.node if placement is not None else "",
        pod.spec.priority or 0,
    )
