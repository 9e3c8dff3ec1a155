"""A cluster in memory for one workload, decided by the real core: what benchmarks and cache tests share.

Single steps are timed by ``make bench-micro`` (test_micro.py).
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Any

from e2e.bench.workloads import CLASS, NAMESPACE, Object, Workload, node, slices
from scheduler.api.changes import Change
from scheduler.api.core import Pod
from scheduler.api.kinds import DEVICE_CLASS, NODE, POD, RESOURCE_CLAIM, RESOURCE_SLICE, convert
from scheduler.api.workloads import SERVICE
from scheduler.app.profiles import build_profiles, queue_hooks
from scheduler.config import SchedulerConfig, load_config
from scheduler.cycle.attempt import Attempt, Rotation, decide
from scheduler.cycle.decision import Placed
from scheduler.framework.profile import Profile
from scheduler.framework.runner import run_reserve
from scheduler.state.cluster import ClusterState

DECIDED = ("plain", "service", "spread", "preferred-affinity", "anti-affinity", "device", "device-cel", "device-match")
WARM_UP = 20


class Bench:
    """A ClusterState of ``nodes`` nodes for one workload, and the default profile on it."""

    def __init__(self, workload: Workload, nodes: int, config: SchedulerConfig | None = None) -> None:
        self.state, self.workload = ClusterState(), workload
        ids = itertools.count()
        profiles = build_profiles(config or load_config(""), self.state, lambda: f"id-{next(ids)}", self.state.features)
        self.profile: Profile = next(iter(profiles.values()))
        self.hooks = queue_hooks(profiles)
        self.revision = 0
        self.templates = {item["metadata"]["name"]: item["spec"]["spec"] for item in workload.templates}
        for index in range(nodes):
            self.put(NODE, node(index))
        self._put_devices(nodes)
        for service in workload.services:
            self.put(SERVICE, service)

    def _put_devices(self, nodes: int) -> None:
        if not self.workload.devices:
            return
        selector = {"cel": {"expression": f'device.driver == "{CLASS}"'}}
        self.put(DEVICE_CLASS, {"metadata": {"name": CLASS}, "spec": {"selectors": [selector]}})
        for item in _slices_of(self.workload, nodes):
            self.put(RESOURCE_SLICE, item)

    def put(self, kind: Any, data: Object) -> Any:
        """One object appears."""
        self.revision += 1
        data = data | {"metadata": {"uid": data["metadata"]["name"], **data["metadata"]}}
        found = convert(kind, data)
        self.state.apply(Change(kind, None, found, self.revision))
        return found

    def pod(self, index: int) -> Pod:
        """Pod number ``index``, known to the state, its claims too."""
        item = self.workload.pod(index)
        item["spec"]["schedulerName"] = self.profile.name
        for entry in item["spec"].get("resourceClaims", ()):
            name = f"{item['metadata']['name']}-{entry['name']}"
            owner = {"metadata": {"name": name, "namespace": NAMESPACE}}
            owner["metadata"]["ownerReferences"] = [  # type: ignore[assignment]  # a plain JSON object
                {"kind": "Pod", "apiVersion": "v1", "name": name, "uid": item["metadata"]["name"], "controller": True}
            ]
            self.put(RESOURCE_CLAIM, owner | {"spec": self.templates[entry["resourceClaimTemplateName"]]})
            item["status"] = {"resourceClaimStatuses": [{"name": entry["name"], "resourceClaimName": name}]}
        pod: Pod = self.put(POD, item)
        return pod

    def place(self, pod: Pod) -> float:
        """Decide and assume one Pod; CPU seconds of the decision."""
        started = time.thread_time()
        decision = decide(Attempt(self.profile, pod, self.state, now=0.0, rotation=Rotation()))
        spent_s = time.thread_time() - started
        if not isinstance(decision, Placed):
            raise SystemExit(f"{self.workload.name}: {decision}")
        self.state.assume(pod, decision.node)
        run_reserve(self.profile, decision.cycle, decision.node)
        return spent_s


def _slices_of(workload: Workload, nodes: int) -> Iterator[Object]:
    return slices(Workload(workload.name, nodes, 0, workload.pod, devices=workload.devices, device=workload.device))


def warm(workload: Workload, nodes: int) -> tuple[Bench, Iterator[int]]:
    """A cluster on which some Pods have been placed, and the numbers of the next ones."""
    bench, numbers = Bench(workload, nodes), itertools.count()
    for index in itertools.islice(numbers, WARM_UP):
        bench.place(bench.pod(index))
    return bench, numbers


def rows_asked(workload: Workload, nodes: int, pods: int) -> float:
    """How often a plugin was asked about a node, per Pod, with nothing but what each Pod changes itself."""
    bench, numbers = warm(workload, nodes)
    before = bench.profile.classes.evaluations
    for index in itertools.islice(numbers, pods):
        bench.place(bench.pod(index))
    return (bench.profile.classes.evaluations - before) / pods
