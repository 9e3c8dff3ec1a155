"""Whole scheduling cases in the conformity format (e2e/oracle/FORMAT.md): same seed, same cases.

Each topic has a generator of its own; a mixed case is one of each laid on top of the others, so that plugins meet.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from e2e.conformity.schedule_devices import DeviceCases, PoolCases
from e2e.conformity.schedule_touches import Touches, neighbour, new_config, nodes_of
from tests.plugins import preemption_cases, schedule_cases, topology_cases
from tests.plugins.volume_cases import VolumeCases

Json = dict[str, Any]
# Topic -> weight.
SHARES = {
    "basic": 26,
    "topology": 33,
    "neighbours": 7,
    "preemption": 12,
    "twins": 15,
    "devices": 10,
    "pools": 36,
    "volumes": 42,
    "mixed": 6,
}


def schedule_case_stream(seed: int, count: int) -> Iterator[Json]:
    """``count`` cases; the first n of a longer run are the same."""
    source = Source(seed)
    for number in range(count):
        yield source.case(f"{seed}-{number}")


class Source:
    """The generators of one run. ``shares``: topic -> weight."""

    def __init__(self, seed: int, shares: dict[str, int] | None = None) -> None:
        self.random = random.Random(seed)
        self.shares = shares or SHARES
        self._basic = schedule_cases.Cases(seed + 1)
        self._topology = topology_cases.Cases(seed + 2)
        self._preemption = preemption_cases.Cases(seed + 3)
        self._devices = DeviceCases(seed + 4)
        self._touches = Touches(self.random, self._basic.config)
        self._topics: dict[str, Callable[[str], Json]] = {
            "basic": self._basic.case,
            "topology": self._topology.case,
            "preemption": self._preemption.case,
            "neighbours": self._neighbours,
            "twins": self._twins,
            "devices": self._devices.case,
            "pools": PoolCases(seed + 5).case,
            "volumes": VolumeCases(seed + 6).case,
            "mixed": self._mixed,
        }

    def case(self, name: str) -> Json:
        """One case; its topic is the beginning of its name."""
        pick = self.random
        topic = pick.choices(tuple(self.shares), tuple(self.shares.values()))[0]
        case = self._topics[topic](f"{topic}-{name}")
        if pick.random() < 0.65:
            self._touches.touch(case)
        return case

    def _neighbours(self, name: str) -> Json:
        """A Pod with one or two terms, and placed Pods that some of its nodes have and others have not."""
        pick = self.random
        keys = (topology_cases.ZONE, topology_cases.HOST)
        nodes = [
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": f"n{place}", "labels": {keys[0]: pick.choice("abc"), keys[1]: f"n{place}"}},
                "spec": {},
                "status": {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "110"}},
            }
            for place in range(pick.randint(2, 6))
        ]
        pods = [
            neighbour(self.random, f"on{place}", f"n{pick.randrange(len(nodes))}")
            for place in range(pick.randint(1, 6))
        ]
        waiting = neighbour(pick, "waiting", "")
        for kind in pick.choice((("podAffinity",), ("podAntiAffinity",), ("podAffinity", "podAntiAffinity"))):
            selector = {"matchLabels": {"app": pick.choice("ab")}}
            term = {"topologyKey": pick.choice(keys), "labelSelector": selector}
            rules = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
            waiting["spec"].setdefault("affinity", {})[kind] = rules
        return {"name": name, "objects": [*nodes, *pods], "pod": waiting}

    def _twins(self, name: str) -> Json:
        """Nodes that are alike down to their Pods, so that preemption finds candidates of equal worth."""
        case = self._preemption.case(name)
        first = nodes_of(case)[0]
        here = first["metadata"]["name"]
        pods = [item for item in case["objects"] if item["kind"] == "Pod" and item["spec"].get("nodeName") == here]
        others = [item for item in case["objects"] if item["kind"] not in ("Pod", "Node")]
        objects: list[Json] = []
        for number in range(self.random.randint(2, 4)):
            twin = f"n{number}"
            labels = {**first["metadata"]["labels"], "kubernetes.io/hostname": twin}
            objects.append({**first, "metadata": {"name": twin, "labels": labels}})
            # Its budget may speak of other Pods.
            label = {"app": self.random.choice("ab")} if self.random.random() < 0.4 else {}
            for pod in pods:
                own = {"name": f"{pod['metadata']['name']}-{number}", "uid": f"{pod['metadata']['uid']}-{number}"}
                metadata = {**pod["metadata"], **own, "labels": {**pod["metadata"].get("labels", {}), **label}}
                # A copy of its own: what is changed later in one must not change its twins.
                spec = copy.deepcopy(pod["spec"])
                objects.append({**pod, "metadata": metadata, "spec": {**spec, "nodeName": twin}})
        if self.random.random() < 0.7:
            others = [self._preemption.budget("guard")]
        return {**case, "objects": [*objects, *others]}

    def _mixed(self, name: str) -> Json:
        """Two or three cases in one: nodes of equal place are one node, the waiting Pods are one Pod."""
        pick = self.random
        # What basic nodes offer would make most mixed Pods impossible; their easy half is enough.
        parts: list[Callable[[str], Json]] = [self._topology.case, self._preemption.case, self._devices.case]
        chosen = pick.sample(parts, 2)
        if pick.random() < 0.5:
            chosen[pick.randrange(2)] = self._basic.case
        return merge(name, [make(name) for make in chosen])


def merge(name: str, cases: Sequence[Json]) -> Json:
    """One case of several. Later ones win where fields of a node or of the waiting Pod collide."""
    objects: dict[tuple[str, str], Json] = {}
    pod: Json = {}
    arguments: dict[str, Json] = {}
    for number, case in enumerate(cases):
        for item in case["objects"]:
            moved = _moved(item, number)
            key = moved["kind"], moved["metadata"].get("namespace", "") + "/" + moved["metadata"]["name"]
            objects[key] = _merged(objects[key], moved) if key in objects else moved
        pod = _merged(pod, case["pod"]) if pod else case["pod"]
        for profile in case.get("config", {}).get("profiles", ()):
            arguments |= {entry["name"]: entry for entry in profile.get("pluginConfig", ())}
    _one_user_per_port(list(objects.values()))
    merged: Json = {"name": name, "objects": list(objects.values()), "pod": pod}
    if arguments:
        merged["config"] = new_config(list(arguments.values()))
    return merged


def _moved(item: Json, number: int) -> Json:
    """An object of case ``number`` under names of its own; nodes keep theirs."""
    if item["kind"] != "Pod":
        return item
    metadata, status = item["metadata"], item.get("status") or {}
    moved = {**metadata, "name": f"{metadata['name']}-{number}", "uid": f"{metadata['uid']}-{number}"}
    if item["spec"].get("nodeName") and "startTime" not in status:
        # Without one both sides take the present, which is another one for each of two comparisons.
        minute, second = divmod(sum(map(ord, metadata["name"])) * 61 + number * 7, 60)
        started = f"2026-02-{number + 1:02}T{minute // 60 % 24:02}:{minute % 60:02}:{second:02}Z"
        status = {**status, "startTime": started}
    return {**item, "metadata": moved, "status": status}


def _one_user_per_port(objects: list[Json]) -> None:
    """Pods of one node cannot share a host port, and upstream forgets the port when the first of them goes."""
    taken: set[tuple[str, int]] = set()
    for item in objects:
        if item["kind"] != "Pod" or not item["spec"].get("nodeName"):
            continue
        spec = item["spec"]
        for container in (*spec["containers"], *spec.get("initContainers", ())):
            ports = {(spec["nodeName"], port.get("hostPort", 0)) for port in container.get("ports", ())}
            if ports & taken:
                del container["ports"]
            else:
                taken |= {port for port in ports if port[1]}


def _merged(one: Json, other: Json) -> Json:
    """``other`` over ``one``: objects field by field; lists that name things of both; else the later."""
    result = dict(one)
    for key, value in other.items():
        old = result.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            result[key] = _merged(old, value)
        elif key == "containers" and old:
            result[key] = _containers(old, value)
        elif old and not value:
            result[key] = old
        else:
            result[key] = value
    return result


def _containers(one: list[Json], other: list[Json]) -> list[Json]:
    return [*one, *({**container, "name": f"m{place}"} for place, container in enumerate(other))]
